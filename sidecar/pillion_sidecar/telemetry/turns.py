"""A few requests of a kind at a time."""

from collections.abc import Iterator
from contextlib import contextmanager

from aiohttp import web


class Turns:
    def __init__(self, what: str, *, most: int) -> None:
        self._what = what
        self._most = most
        self._taken = 0

    @contextmanager
    def one(self) -> Iterator[None]:
        """Raises HTTPServiceUnavailable if as many go on as may."""
        if self._taken >= self._most:
            raise web.HTTPServiceUnavailable(
                text=f"{self._most} {self._what} are under way already",
                headers={"Retry-After": "1"},
            )
        self._taken += 1
        try:
            yield
        finally:
            self._taken -= 1
