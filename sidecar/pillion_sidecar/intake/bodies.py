"""Request bodies: streamed, bounded in size each and in memory together, and read only as long as
they keep coming."""

import asyncio
from collections import Counter
from collections.abc import AsyncGenerator, Callable, Iterator
from contextlib import aclosing, contextmanager
from dataclasses import dataclass

from aiohttp import web

from pillion_sidecar.auth.principal import PRINCIPAL, Principal
from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.intake import IntakeError

#: Bytes of all bodies that are held while the rest of them comes.
MOST_BODY_BYTES = 64 << 20
#: Seconds that a body has before it may have to give way to others.
GRACE_SECONDS = 5.0
#: Lines between two turns of the event loop.
LINES_PER_TURN = 256


@dataclass(slots=True, eq=False)
class HeldBody:
    """A body whose beginning is held."""

    budget: "BodyBudget"
    #: Ends its reading; returns whether there was any left to end.
    crowd_out: Callable[[], bool]
    principal: Principal | None
    began: float
    size: int = 0

    def hold(self, size: int) -> None:
        """Account for ``size`` bytes of it. Without memory for them, another body ends, or this."""
        if size != self.size:
            self.budget.resize(self, size)


class BodyBudget:
    """Shares memory among bodies.

    Without memory left, the oldest body of the principal that holds most gives way; the one that
    needs more, where all of those are younger than ``GRACE_SECONDS``.
    """

    def __init__(self, *, clock: Clock, maximum: int = MOST_BODY_BYTES) -> None:
        self._clock = clock
        self._maximum = maximum
        # In the order in which they began.
        self._bodies: dict[HeldBody, None] = {}
        #: Bytes that are held.
        self.used = 0

    @contextmanager
    def holding(
        self, crowd_out: Callable[[], bool], *, principal: Principal | None
    ) -> Iterator[HeldBody]:
        """Hold a body while the context lasts."""
        body = HeldBody(self, crowd_out, principal, self._clock.monotonic())
        self._bodies[body] = None
        try:
            yield body
        finally:
            if body in self._bodies:
                self._release(body)

    def resize(self, body: HeldBody, size: int) -> None:
        """See ``HeldBody.hold``."""
        if body not in self._bodies:
            # It had to give way; its next read raises.
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

    #: The status of the answer.
    status = 400
    #: The first line that was not submitted.
    unread_from = 0


class BodyTooLargeError(BodyError):
    """The body is larger than intake accepts."""

    status = 413

    def __init__(self, maximum: int) -> None:
        super().__init__(f"the body has more than {maximum} bytes; send it in parts")


# TimeoutErrors, these three: aiohttp tries to read on once a request was answered, and takes no
# other exception for the end of it.


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


def interrupt_body(request: web.BaseRequest, reason: str) -> None:
    """Raise BodyInterruptedError in the reader of a request's body, unless all of it is read."""
    if not request.content.at_eof():
        request.content.set_exception(BodyInterruptedError(reason))


class LineSplitter:
    """Cuts chunks into lines. A line that is too long is skipped without being held.

    No more than one line is held back.
    """

    def __init__(self, *, maximum: int) -> None:
        self._maximum = maximum
        self._rest: list[bytes] = []
        #: Bytes of the line that is not whole yet.
        self.held = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the lines that a chunk ends, without their ends; None for one too long."""
        whole, newline, rest = chunk.rpartition(b"\n")
        if not newline:
            self._hold(chunk)
            return []
        lines = split_lines(b"".join([*self._rest, whole]), maximum=self._maximum)
        if self._skipping:
            lines[0] = None
        self._rest.clear()
        self.held, self._skipping = 0, False
        self._hold(rest)
        return lines

    def end(self) -> list[bytes | None]:
        """Return the last line, which no newline ends; empty where there is none."""
        return self.feed(b"\n")

    def _hold(self, part: bytes) -> None:
        self.held += len(part)
        if self.held > self._maximum:
            self._rest.clear()
            self._skipping = True
            self.held = self._maximum + 1
        else:
            self._rest.append(part)


def split_lines(text: bytes, *, maximum: int) -> list[bytes | None]:
    """Return the lines of a text without their ends; None for one longer than ``maximum``."""
    lines: list[bytes | None] = [*text.split(b"\n")]
    if b"\r" in text:
        lines = [line and line.removesuffix(b"\r") for line in lines]
    if len(text) > maximum:
        lines = [None if line and len(line) > maximum else line for line in lines]
    return lines


class BodyReader:
    """Reads bodies. One that has come whole needs no time limit, and no part of the budget."""

    def __init__(self, *, timers: Timers, limits: IntakeLimits, budget: BodyBudget) -> None:
        self.limits = limits
        self._timers = timers
        self._budget = budget

    async def lines(self, request: web.BaseRequest) -> AsyncGenerator[list[bytes | None], None]:
        """Yield a body's lines, some at a time; None for one too long. Raises as
        :meth:`document`. Close the iterator if it is left early."""
        maximum = self.limits.line_bytes
        if request.content.is_eof():
            body = read_at_once(request, maximum=self.limits.stream_bytes)
            lines = split_lines(body, maximum=maximum)
            yield lines[:LINES_PER_TURN]
            for start in range(LINES_PER_TURN, len(lines), LINES_PER_TURN):
                await asyncio.sleep(0)
                yield lines[start : start + LINES_PER_TURN]
            return
        splitter = LineSplitter(maximum=maximum)
        chunks = self._chunks(request, maximum=self.limits.stream_bytes)
        with self.holding(request) as held:
            async with aclosing(chunks):
                async for chunk in chunks:
                    lines = splitter.feed(chunk)
                    for start in range(0, len(lines), LINES_PER_TURN):
                        yield lines[start : start + LINES_PER_TURN]
                        # The loop has other publishers and all listeners to serve.
                        await asyncio.sleep(0)
                    held.hold(splitter.held)
            yield splitter.end()

    async def document(self, request: web.BaseRequest) -> bytes:
        """Return a body of one document, as long as a line.

        Raises :class:`BodyError`, and what aiohttp raises where the client goes away.
        """
        if request.content.is_eof():
            return read_at_once(request, maximum=self.limits.line_bytes)
        with self.holding(request) as held:
            return await self.whole(request, held, maximum=self.limits.line_bytes)

    @contextmanager
    def holding(self, request: web.BaseRequest) -> Iterator[HeldBody]:
        """Hold a body while the context lasts."""
        content = request.content

        def crowd_out() -> bool:
            if content.at_eof():
                return False
            content.set_exception(BodyCrowdedError())
            return True

        with self._budget.holding(crowd_out, principal=request.get(PRINCIPAL)) as held:
            yield held

    async def whole(self, request: web.BaseRequest, held: HeldBody, *, maximum: int) -> bytes:
        """Return a whole body. Raises as :meth:`document`."""
        chunks, size = [], 0
        # Never left early: nothing in the loop raises.
        async for chunk in self._chunks(request, maximum=maximum):
            chunks.append(chunk)
            size += len(chunk)
            held.hold(size)
        return b"".join(chunks)

    async def _chunks(
        self, request: web.BaseRequest, *, maximum: int
    ) -> AsyncGenerator[bytes, None]:
        """Yield a body as it comes in; nothing of one whose Content-Length is too large.

        Each ``idle_seconds`` bring ``progress_bytes``, or it ends (slowloris). One timer for a
        body, however many chunks it has.
        """
        if request.content_length is not None and request.content_length > maximum:
            raise BodyTooLargeError(maximum)
        content, limits, received, seen = request.content, self.limits, 0, 0
        timer: Timer

        def check() -> None:
            nonlocal seen, timer
            if received - seen < limits.progress_bytes:
                content.set_exception(BodyStalledError(limits.idle_seconds))
                return
            seen = received
            timer = self._timers.call_later(limits.idle_seconds, check)

        timer = self._timers.call_later(limits.idle_seconds, check)
        try:
            while chunk := await content.readany():
                received += len(chunk)
                if received > maximum:
                    raise BodyTooLargeError(maximum)
                yield chunk
        finally:
            timer.cancel()


def read_at_once(request: web.BaseRequest, *, maximum: int) -> bytes:
    """Return a body all of which has come. Raises :class:`BodyTooLargeError` and
    :class:`BodyInterruptedError`."""
    body = request.content.read_nowait()
    if len(body) > maximum:
        raise BodyTooLargeError(maximum)
    return body
