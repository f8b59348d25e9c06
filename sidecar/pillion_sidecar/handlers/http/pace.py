"""The pace of opening: one connection is begun in each turn of the event loop.

Opening costs more than anything else that a destination can ask for, a TLS handshake most of all.
When hundreds of destinations are tried again at one moment, the others get their turns in between.
"""

import asyncio
from collections import deque


class OpeningPace:
    """Lets those in who are about to open a connection, one at a time, in order."""

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for one's turn."""
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            loop.call_soon(self._let_in)
        await mine

    def _let_in(self) -> None:
        # Those who gave up meanwhile (a time-out) take no turn.
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_in)
