"""The queues for the operator: on the pod's address, so for a bearer of its token alone.

Whoever has no token learns nothing, not even whether there is one.
"""

import asyncio
import hmac
from collections.abc import Callable
from pathlib import Path

from aiohttp import web

from pillion_sidecar.telemetry.administration import Administration, list_queues

#: Bytes of a token's file that are read.
MOST_TOKEN_BYTES = 4096


class TokenFile:
    """A file with a token, read anew each time: whoever mounts it may change it."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def read(self) -> bytes:
        """The token; nothing where there is no file, or it is empty or too long."""
        try:
            with self._path.open("rb") as file:
                content = file.read(MOST_TOKEN_BYTES + 1)
        except OSError:
            return b""
        return content.strip() if len(content) <= MOST_TOKEN_BYTES else b""


def add_operator_route(
    app: web.Application,
    administration: Administration,
    *,
    token: Callable[[], bytes],
    refused: Callable[[], None],
) -> None:
    """Mount ``GET /v1/queues`` for the bearer of a token.

    ``token`` is asked in a thread for each request, one at a time, and answers nothing where
    nobody may come in; ``refused`` is told of each request that was not let in.
    """
    one_at_a_time = asyncio.Lock()

    async def answer(request: web.Request) -> web.Response:
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        if scheme.lower() == "bearer":
            async with one_at_a_time:
                expected = await asyncio.to_thread(token)
            if _same(given.strip(), expected):
                return list_queues(request, administration)
        refused()
        return web.Response(
            status=401, text="unauthorized\n", headers={"WWW-Authenticate": "Bearer"}
        )

    app.router.add_get("/v1/queues", answer, allow_head=False)


def _same(given: str, expected: bytes) -> bool:
    # Compared without a token too, so that the time it takes does not tell whether there is one.
    return hmac.compare_digest(given.encode(errors="replace"), expected) and bool(expected)
