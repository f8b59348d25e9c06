"""Request bodies: streamed, bounded in size each and in memory together, and read only as long as
they keep coming."""

from collections import Counter
from collections.abc import AsyncGenerator, Callable
from dataclasses import dataclass
from typing import Self

from aiohttp import StreamReader, web

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.intake.errors import IntakeError

#: Bytes of all bodies that are held while the rest of them comes.
MOST_BODY_BYTES = 64 << 20
#: Seconds that a body has before it may have to give way to others.
GRACE_SECONDS = 5.0


class HeldBody:
    """A body whose beginning is held."""

    __slots__ = ("_budget", "began", "crowd_out", "principal", "size")

    def __init__(
        self,
        budget: "BodyBudget",
        crowd_out: Callable[[], bool],
        *,
        principal: Principal | None,
        began: float,
    ) -> None:
        self._budget = budget
        self.crowd_out = crowd_out
        self.principal = principal
        self.began = began
        self.size = 0

    def __enter__(self) -> Self:
        self._budget.begin(self)
        return self

    def __exit__(self, *_error: object) -> None:
        self._budget.end(self)

    def hold(self, size: int) -> None:
        """So many bytes of it are held now. Where there is no room for them, another body ends, or
        this one."""
        if size != self.size:
            self._budget.resize(self, size)


class BodyBudget:
    """Shares memory among bodies.

    Where it is all taken, the body gives way that has been coming for longest, of the principal
    that holds most; the one that needs more, where none has had its time yet.
    """

    def __init__(self, *, clock: Clock, maximum: int = MOST_BODY_BYTES) -> None:
        self._clock = clock
        self._maximum = maximum
        # In the order in which they began.
        self._bodies: dict[HeldBody, None] = {}
        #: Bytes that are held.
        self.used = 0

    def holding(self, crowd_out: Callable[[], bool], *, principal: Principal | None) -> HeldBody:
        """Hold a body while the context lasts. ``crowd_out`` ends its reading, and returns whether
        there was any left to end."""
        return HeldBody(self, crowd_out, principal=principal, began=self._clock.monotonic())

    def begin(self, body: HeldBody) -> None:
        """Its reading begins."""
        self._bodies[body] = None

    def end(self, body: HeldBody) -> None:
        """Its reading has ended; it may have given way before."""
        if body in self._bodies:
            self._release(body)

    def resize(self, body: HeldBody, size: int) -> None:
        """See ``HeldBody.hold``."""
        if body not in self._bodies:
            # It had to give way, and hears of it at its next read.
            return
        self.used += size - body.size
        body.size = size
        while self.used > self._maximum:
            leaving = self._giving_way(body)
            self._release(leaving)
            if leaving is body:
                return

    def _release(self, body: HeldBody) -> None:
        del self._bodies[body]
        self.used -= body.size

    def _giving_way(self, newcomer: HeldBody) -> HeldBody:
        held = Counter[Principal | None]()
        for body in self._bodies:
            held[body.principal] += body.size
        greedy = max(held, key=lambda principal: held[principal])
        before = self._clock.monotonic() - GRACE_SECONDS
        for body in self._bodies:
            is_due = body.principal == greedy and body.size and body.began <= before
            if is_due and body.crowd_out():
                return body
        newcomer.crowd_out()
        return newcomer


@dataclass(frozen=True, slots=True, kw_only=True)
class IntakeLimits:
    """The bounds of a request. Sizes in bytes, times in seconds."""

    line_bytes: int = 1 << 20
    #: A streamed body: NDJSON.
    stream_bytes: int = 1 << 30
    #: A batch of CloudEvents, which is held whole. Single documents are as long as a line.
    document_bytes: int = 16 << 20
    #: A body must bring ``progress_bytes`` in each such period, or end.
    idle_seconds: float = 30.0
    progress_bytes: int = 256
    #: The longest time that a publisher may wait for an answer.
    wait_seconds: float = 3600.0


class BodyError(IntakeError):
    """A body is not read to its end. The text says why."""

    #: The status that it is answered with.
    status = 400


class BodyTooLargeError(BodyError):
    """The body is larger than intake accepts."""

    status = 413

    def __init__(self, maximum: int) -> None:
        super().__init__(f"the body has more than {maximum} bytes; send it in parts")


# TimeoutErrors, these two: aiohttp tries to read on once a request was answered, and takes no other
# exception for the end of it.


class BodyStalledError(BodyError, TimeoutError):
    """The body stopped coming."""

    status = 408

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the body brought nothing for {seconds:g} s")


class BodyInterruptedError(BodyError, TimeoutError):
    """The deliverer stops, and does not wait for the rest."""

    status = 503


class BodyCrowdedError(BodyError, TimeoutError):
    """There is no memory for the rest of the body."""

    status = 503

    def __init__(self) -> None:
        super().__init__("the bodies that are being read take all memory there is for them")


def crowd_out(request: web.BaseRequest) -> bool:
    """Raise BodyCrowdedError in the reader of a request's body; return whether there is one."""
    if request.content.at_eof():
        return False
    request.content.set_exception(BodyCrowdedError())
    return True


def interrupt_body(request: web.BaseRequest, reason: str) -> None:
    """Raise BodyInterruptedError in the reader of a request's body, unless all of it is read."""
    if not request.content.at_eof():
        request.content.set_exception(BodyInterruptedError(reason))


class _Progress:
    """Breaks a read that waits for a body which does not come (slowloris).

    One timer for a body, however many chunks it has.
    """

    def __init__(self, content: StreamReader, *, timers: Timers, limits: IntakeLimits) -> None:
        self._content = content
        self._timers = timers
        self._limits = limits
        self._received = self._seen = 0
        self._timer = self._arm()

    def _arm(self) -> Timer:
        return self._timers.call_later(self._limits.idle_seconds, self._check)

    def received(self, count: int) -> None:
        self._received += count

    def _check(self) -> None:
        if self._received - self._seen < self._limits.progress_bytes:
            self._content.set_exception(BodyStalledError(self._limits.idle_seconds))
            return
        self._seen = self._received
        self._timer = self._arm()

    def stop(self) -> None:
        self._timer.cancel()


async def read_chunks(
    request: web.BaseRequest, *, timers: Timers, limits: IntakeLimits, maximum: int
) -> AsyncGenerator[bytes, None]:
    """Yield a body as it comes in. Close the iterator if it is left early.

    Raises :class:`BodyTooLargeError` (with a Content-Length, before anything is read),
    :class:`BodyStalledError`, :class:`BodyInterruptedError`, and what aiohttp raises where the
    client goes away.
    """
    if request.content_length is not None and request.content_length > maximum:
        raise BodyTooLargeError(maximum)
    content = request.content
    progress = _Progress(content, timers=timers, limits=limits)
    total = 0
    try:
        while chunk := await content.readany():
            total += len(chunk)
            if total > maximum:
                raise BodyTooLargeError(maximum)
            progress.received(len(chunk))
            yield chunk
    finally:
        progress.stop()


def read_at_once(request: web.BaseRequest, *, maximum: int) -> bytes | None:
    """Return a body all of which has come; None for one whose rest is still to come, of which
    nothing is read. Raises :class:`BodyTooLargeError` and :class:`BodyInterruptedError`."""
    content = request.content
    if not content.is_eof():
        return None
    body = content.read_nowait()
    if len(body) > maximum:
        raise BodyTooLargeError(maximum)
    return body


async def read_document(
    request: web.BaseRequest,
    *,
    timers: Timers,
    limits: IntakeLimits,
    maximum: int,
    held: HeldBody,
) -> bytes:
    """Return a whole body. Raises what :func:`read_chunks` does, and :class:`BodyCrowdedError`."""
    chunks, size = [], 0
    # Never left early: nothing in the loop raises.
    async for chunk in read_chunks(request, timers=timers, limits=limits, maximum=maximum):
        chunks.append(chunk)
        size += len(chunk)
        held.hold(size)
    return b"".join(chunks)
