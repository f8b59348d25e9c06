"""A bell: whoever waits for it is woken by it, however often it was rung before."""

import asyncio


class Bell:
    """Rung by many, heard by one."""

    def __init__(self) -> None:
        self._rung = asyncio.Event()

    def ring(self) -> None:
        """There is something to do."""
        self._rung.set()

    async def heard(self) -> None:
        """Return once it was rung since the last time."""
        await self._rung.wait()
        self._rung.clear()
