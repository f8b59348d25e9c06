"""Failures that no caller sees: those of callbacks on the event loop.

The loop logs an exception of a callback and goes on; the dispatcher, a timer or a settlement that
raised would leave delivery standing still, with nobody the wiser. So it ends the run instead.
"""

import asyncio
import logging
from traceback import walk_tb
from types import TracebackType
from typing import Any, NoReturn

logger = logging.getLogger("pillion.supervision")

#: What a callback of the loop's own may run through.
OUR_PACKAGES = ("pillion_sidecar.", "pillion_cim.")
#: What must not fail even where the loop only closes a connection over it: that attempt fails and
#: is made again, but what these packages were about to note is lost.
UNREPEATABLE = (
    "pillion_sidecar.delivery.",
    "pillion_sidecar.reliability.",
    "pillion_sidecar.journal.",
    "pillion_sidecar.clock",
)


class PartFailed(Exception):
    """A part failed for a reason outside the program. The text tells people why and what to do;
    no traceback tells them more."""


def first(group: BaseException, kind: type[Exception]) -> Exception | None:
    """The first exception of a kind in a group, however deep it lies, or the exception itself; None
    without one."""
    if not isinstance(group, ExceptionGroup):
        return group if isinstance(group, kind) else None
    found = (first(inner, kind) for inner in group.exceptions)
    return next((one for one in found if one is not None), None)


class LoopSupervisor:
    """Notes the first failure of our own code that reached the event loop itself.

    A context manager: what handled the loop's exceptions before does so again at its end, and logs
    those of others meanwhile.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._before = loop.get_exception_handler()
        self._failed = asyncio.Event()
        self._failure: BaseException | None = None

    def __enter__(self) -> "LoopSupervisor":
        self._loop.set_exception_handler(self._handle)
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.set_exception_handler(self._before)

    async def failure(self) -> NoReturn:
        """Raise what failed, once something has."""
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def check(self) -> None:
        """Raise what has failed since nobody awaited :meth:`failure` any more."""
        if self._failure is not None:
            raise self._failure

    def _handle(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        error = context.get("exception")
        told = isinstance(error, PartFailed)
        if told:
            pass
        elif self._before is None:
            loop.default_exception_handler(context)
        else:
            self._before(loop, context)
        # A callback has a handle; what a connection's protocol raises comes with its transport.
        packages = OUR_PACKAGES if "handle" in context else UNREPEATABLE
        if isinstance(error, Exception) and _came_through(error.__traceback__, packages):
            logger.critical(
                "the deliverer stops, since a part of it failed: %s",
                error if told else repr(error),
                extra={"event": "deliverer-failed"},
            )
            self._failure = self._failure or error
            self._failed.set()


def _came_through(traceback: TracebackType | None, packages: tuple[str, ...]) -> bool:
    return any(
        frame.f_globals.get("__name__", "").startswith(packages) for frame, _ in walk_tb(traceback)
    )
