"""Failures of callbacks on the event loop, which no caller sees.

The loop would log the exception and continue without the dispatcher, timer or settlement that
raised; here it ends the run.
"""

import asyncio
import logging
from traceback import walk_tb
from types import TracebackType
from typing import Any, NoReturn

logger = logging.getLogger("pillion.supervision")

#: Packages whose failing callbacks end the run.
OUR_PACKAGES = ("pillion_sidecar.", "pillion_cim.")
#: Packages whose failures also count when the loop closes a connection over them: the attempt is
#: repeated, but what they were about to record is lost.
UNREPEATABLE = (
    "pillion_sidecar.delivery.",
    "pillion_sidecar.reliability.",
    "pillion_sidecar.journal.",
    "pillion_sidecar.clock",
)


class PartFailed(Exception):
    """A part failed for a reason outside the program. The text has cause and remedy; no traceback
    is needed."""


def first(group: BaseException, kind: type[Exception]) -> Exception | None:
    """The first exception of a kind in a group, at any depth, or the exception itself."""
    if not isinstance(group, ExceptionGroup):
        return group if isinstance(group, kind) else None
    found = (first(inner, kind) for inner in group.exceptions)
    return next((one for one in found if one is not None), None)


class LoopSupervisor:
    """Notes the first failure of our own code that reached the event loop.

    A context manager: the loop's previous exception handler is still called, except for
    ``PartFailed``, and is restored at the end.
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
        await self._failed.wait()
        assert self._failure is not None
        raise self._failure

    def check(self) -> None:
        """Raise a failure that came after :meth:`failure` was last awaited."""
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
        # A callback has a handle; an exception of a connection's protocol has its transport.
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


async def goes_on(
    loading: "asyncio.Task[Any]", *, stop: asyncio.Event, slow: asyncio.Event
) -> bool:
    """Wait until ``loading`` has ended or is ``slow``; then it continues. Return False once
    ``stop`` is set, with ``loading`` cancelled. Raises what ``loading`` raises."""
    events = [asyncio.create_task(one.wait()) for one in (stop, slow)]
    try:
        await asyncio.wait((loading, *events), return_when=asyncio.FIRST_COMPLETED)
    finally:
        for one in events:
            one.cancel()
    if loading.done():
        loading.result()
    elif stop.is_set():
        loading.cancel()
        await asyncio.wait((loading,))
        return False
    return True
