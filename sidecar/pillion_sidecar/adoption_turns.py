"""Which adoptions are under way at once: of all that are ordered a few have a turn, and the copies
of these have room on the disk.

The rest waits in order. An adoption that only waits gives its turn to the next one.
"""

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager


class Turns:
    def __init__(self, most: int) -> None:
        self._slots = asyncio.Semaphore(most)
        self._wanting = 0

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for a turn."""
        return self._wanting > 0

    @asynccontextmanager
    async def turn(self) -> AsyncIterator[None]:
        self._wanting += 1
        try:
            await self._slots.acquire()
        finally:
            self._wanting -= 1
        try:
            yield
        finally:
            self._slots.release()


class NoRoomError(Exception):
    """A copy is too large for the disk. The message says what to do."""


class Room:
    """What copies may take of the gateway's volume.

    All of it is the journal's, and what is adopted moves there. So together they take up to half of
    what the journal may still take. A larger copy goes alone, in what the disk has beyond that.
    """

    def __init__(self, *, journal: Callable[[], int], free: Callable[[], int]) -> None:
        """``journal``: bytes that the journal may still take; ``free``: bytes of the disk. It
        blocks."""
        self._journal = journal
        self._free = free
        self._taken = 0
        #: Those who wait, in order: their bytes.
        self._line: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def is_wanted(self) -> bool:
        """Whether somebody waits for room."""
        return bool(self._line)

    def fits(self, size: int) -> bool:
        """Whether a copy has room at once, or is the only one."""
        if self._line:
            return False
        return not self._taken or self._taken + size <= self._journal() // 2

    async def take(self, size: int) -> None:
        """Wait for room. Raises NoRoomError, and OSError: the disk refuses."""
        if not self.fits(size):
            called: asyncio.Future[None] = asyncio.get_running_loop().create_future()
            self._line.append((size, called))
            try:
                await called
            except asyncio.CancelledError:
                self._leave(size, called)
                raise
        else:
            self._taken += size
        try:
            await self._check(size)
        except BaseException:
            self.give_back(size)
            raise

    def give_back(self, size: int) -> None:
        self._taken -= size
        self._call_next()

    def _leave(self, size: int, called: asyncio.Future[None]) -> None:
        if called.done() and not called.cancelled():
            # It was its turn already.
            self._taken -= size
        else:
            self._line = deque(one for one in self._line if one[1] is not called)
        self._call_next()

    def _call_next(self) -> None:
        while self._line:
            size, called = self._line[0]
            if self._taken and self._taken + size > self._journal() // 2:
                return
            self._line.popleft()
            self._taken += size
            called.set_result(None)

    async def _check(self, size: int) -> None:
        free, journal = await asyncio.to_thread(self._free), self._journal()
        # The disk may be smaller than anybody has said. Others may have written their copies or
        # not: they count as if not.
        fits = (
            self._taken <= free - journal // 2 if size <= journal // 2 else size <= free - journal
        )
        if not fits:
            raise NoRoomError(
                f"its copy has {_mebibytes(size)}, and the volume has {_mebibytes(free)} free, of"
                f" which the journal may need {_mebibytes(journal)}; raise"
                " deliverer.storage.sizeLimit, or wait until the gateway has delivered more"
            )


def _mebibytes(size: int) -> str:
    return f"{size / (1 << 20):.1f}Mi"
