"""Request bodies: streamed, bounded in size and time, and decoded by content type."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import aclosing, contextmanager
from dataclasses import dataclass
from functools import partial
from io import BytesIO
from typing import Any

from aiohttp import web

from pillion_cim.schema import Schema
from pillion_sidecar.auth.principal import PRINCIPAL
from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.http_errors import refuse
from pillion_sidecar.intake import IntakeError
from pillion_sidecar.intake.cloudevents import binary_event, decode_event, parse_event, split_batch
from pillion_sidecar.intake.decoding import Decoded, LineError, decode_object, parse_json
from pillion_sidecar.intake.fast_path import FastPath
from pillion_sidecar.intake.limits import BodyBudget, HeldBody, IntakeLimits
from pillion_sidecar.intake.relay import RelayFastPath, decode_relayed
from pillion_sidecar.intake.submission import MAXIMUM_REFUSED, Submission

LINES_PER_TURN = 256


class BodyError(IntakeError):
    """A body is not read to its end. The text says why."""

    status = 400
    #: The first line that was not submitted.
    unread_from = 0


class BodyTooLargeError(BodyError):
    status = 413

    def __init__(self, maximum: int) -> None:
        super().__init__(f"the body has more than {maximum} bytes; send it in parts")


# TimeoutErrors: aiohttp continues reading an answered request, and only this exception stops it.


class BodyStalledError(BodyError, TimeoutError):
    """The body stopped arriving."""

    status = 408

    def __init__(self, seconds: float) -> None:
        super().__init__(f"the body brought nothing for {seconds:g} s")


class BodyInterruptedError(BodyError, TimeoutError):
    """The deliverer stops and does not wait for the rest."""

    status = 503


class BodyCrowdedError(BodyError, TimeoutError):
    """There is no memory for the rest of the body."""

    status = 503

    def __init__(self) -> None:
        super().__init__("the bodies that are being read take all memory there is for them")


def interrupt_body(request: web.BaseRequest, reason: str) -> None:
    """Raise BodyInterruptedError in the body's reader, unless all of it is read."""
    if not request.content.at_eof():
        request.content.set_exception(BodyInterruptedError(reason))


class LineSplitter:
    """Splits chunks into lines, holding at most one. A line that is too long is skipped, not
    held."""

    def __init__(self, *, maximum: int) -> None:
        self._maximum = maximum
        self._rest: list[bytes] = []
        #: Bytes of the incomplete line.
        self.held = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return completed lines without line ends; None for one that is too long."""
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
    """None stands for a line longer than ``maximum``."""
    # In half the time of ``bytes.split``, which looks at one byte after the other.
    lines: list[bytes | None] = [line[:-1] for line in BytesIO(text + b"\n")]
    if b"\r" in text:
        lines = [line and line.removesuffix(b"\r") for line in lines]
    if len(text) > maximum:
        lines = [None if line and len(line) > maximum else line for line in lines]
    return lines


class BodyReader:
    """Reads bodies. One that has arrived completely needs no timer and no budget."""

    def __init__(self, *, timers: Timers, limits: IntakeLimits, budget: BodyBudget) -> None:
        self.limits = limits
        self._timers = timers
        self._budget = budget

    async def lines(self, request: web.BaseRequest) -> AsyncGenerator[list[bytes | None], None]:
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
                        # Other publishers and all listeners need the loop.
                        await asyncio.sleep(0)
                    held.hold(splitter.held)
            yield splitter.end()

    async def document(self, request: web.BaseRequest) -> bytes:
        """Return a body of one document, at most as long as a line. Raises :class:`BodyError`, and
        aiohttp's exceptions if the client disconnects."""
        if request.content.is_eof():
            return read_at_once(request, maximum=self.limits.line_bytes)
        with self.holding(request) as held:
            return await self.whole(request, held, maximum=self.limits.line_bytes)

    @contextmanager
    def holding(self, request: web.BaseRequest) -> Iterator[HeldBody]:
        """Account for a body while the context lasts."""
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
        """Yield a body's chunks; nothing if its Content-Length is too large. Each ``idle_seconds``
        must bring ``progress_bytes`` (slowloris). One timer per body."""
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
    """Return a completely received body. Raises :class:`BodyTooLargeError` and
    :class:`BodyInterruptedError`."""
    body = request.content.read_nowait()
    if len(body) > maximum:
        raise BodyTooLargeError(maximum)
    return body


class LineDecoder:
    """Decodes the JSON form of indications. Compiling takes milliseconds."""

    def __init__(
        self,
        schema: Schema,
        *,
        maximum_line_bytes: int,
        is_relayed: bool = False,
        in_force: Callable[[], Schema] | None = None,
    ) -> None:
        """``is_relayed``: lines of sidecars. ``in_force`` returns the currently declared classes;
        None: those of ``schema``."""
        self._in_force = in_force or (lambda: schema)
        self._maximum = maximum_line_bytes
        # Packaged classes only: bodies of others state types and are encoded anew.
        self._fast = RelayFastPath(schema.base) if is_relayed else FastPath(schema.base)
        self._decode_object = decode_relayed if is_relayed else decode_object

    @property
    def schema(self) -> Schema:
        return self._in_force()

    def decode(self, line: bytes) -> Decoded:
        """Decode one line without newline. Raises :class:`LineError`."""
        if len(line) > self._maximum:
            raise self.too_long()
        decoded = self._fast.decode(line)
        return decoded if decoded is not None else self.decode_complete(line)

    def decode_complete(self, line: bytes) -> Decoded:
        return self._decode_object(parse_json(line), schema=self.schema)

    def too_long(self) -> LineError:
        return LineError(f"longer than {self._maximum} bytes")

    def submit(self, lines: Sequence[bytes | None], *, first: int, submission: Submission) -> int:
        """Submit lines, numbered from ``first``; None is one too long. Blank lines are skipped.
        Returns the number after the last line submitted: it stops early if no further refusal can
        be reported."""
        decode, add, refused = self._fast.decode, submission.add, submission.refused
        number = first
        # Near the limit, each line must be known to be refused before the next is read.
        is_near = len(refused) + len(lines) >= MAXIMUM_REFUSED
        for line in lines:
            try:
                decoded = decode(line) if line else None
                if decoded is None and line != b"":
                    decoded = self._decode_unusual(line)
                if decoded is not None:
                    add(decoded, number)
            except LineError as error:
                submission.refuse(error, number)
            number += 1
            if is_near:
                submission.take()
                if len(refused) >= MAXIMUM_REFUSED:
                    break
        submission.take()
        return number

    def _decode_unusual(self, line: bytes | None) -> Decoded | None:
        if line is None:
            raise self.too_long()
        if line.isspace():
            return None
        return self.decode_complete(line)


class BodyIntake:
    """Reads bodies and submits their lines. Methods return the first line that was not submitted,
    or None. They raise :class:`BodyError`, and aiohttp's exceptions if the client disconnects."""

    def __init__(self, *, decoder: LineDecoder, reader: BodyReader) -> None:
        self._decoder = decoder
        self.reader = reader

    async def read_lines(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """NDJSON."""
        following = 0
        try:
            async with aclosing(self.reader.lines(request)) as batches:
                async for lines in batches:
                    following = self._decoder.submit(lines, first=following, submission=submission)
                    if submission.full:
                        return following
        except BodyError as error:
            error.unread_from = following
            raise
        return None

    async def read_object(self, request: web.BaseRequest, submission: Submission) -> None:
        body = (await self.reader.document(request)).strip()
        # Only the complete decoder accepts an object on several lines.
        is_line = b"\n" not in body and b"\r" not in body
        decode = self._decoder.decode if is_line else self._decoder.decode_complete
        _submit(partial(decode, body), 0, submission)

    async def read_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """One CloudEvent in structured mode."""
        body = await self.reader.document(request)
        _submit(lambda: self._decode_event(parse_event(body)), 0, submission)

    async def read_binary_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """One CloudEvent in binary mode."""
        body = await self.reader.document(request)
        _submit(lambda: self._decode_event(binary_event(request.headers, body)), 0, submission)

    async def read_batch(self, request: web.BaseRequest, submission: Submission) -> int | None:
        with self.reader.holding(request) as held:
            maximum = self.reader.limits.document_bytes
            body = await self.reader.whole(request, held, maximum=maximum)
            return await self._submit_batch(body, submission)

    async def _submit_batch(self, body: bytes, submission: Submission) -> int | None:
        number = 0
        try:
            for span in split_batch(body):
                if submission.full:
                    return number
                if span is None or number % LINES_PER_TURN == LINES_PER_TURN - 1:
                    await asyncio.sleep(0)
                if span is not None:
                    _submit(partial(self._decode_span, body, *span), number, submission)
                    number += 1
        except LineError as error:
            submission.refuse(error, number)
            return number + 1 if number else None
        return None

    def _decode_span(self, body: bytes, start: int, end: int) -> Decoded:
        if end - start > self.reader.limits.line_bytes:
            raise self._decoder.too_long()
        return self._decode_event(parse_event(body[start:end]))

    def _decode_event(self, event: Any) -> Decoded:
        return decode_event(event, schema=self._decoder.schema)


def _submit(decode: Callable[[], Decoded], number: int, submission: Submission) -> None:
    try:
        submission.accept(decode(), number)
    except LineError as error:
        submission.refuse(error, number)


@dataclass(frozen=True, slots=True)
class Format:
    kind: str
    #: Submits a body; None: a CIM-XML export message.
    read: Callable[[BodyIntake, web.BaseRequest, Submission], Awaitable[int | None]] | None


_BINARY_EVENT = Format("cloudevents", BodyIntake.read_binary_event)
EXPORT = Format("cim-xml", None)
#: Formats of ``POST /v1/indications`` by content type.
FORMATS: Mapping[str, Format] = {
    "application/json": Format("json", BodyIntake.read_object),
    "application/x-ndjson": Format("ndjson", BodyIntake.read_lines),
    "application/cloudevents+json": Format("cloudevents", BodyIntake.read_event),
    "application/cloudevents-batch+json": Format("cloudevents", BodyIntake.read_batch),
    "application/xml": EXPORT,
    "text/xml": EXPORT,
}
#: Formats of ``POST /v1/relay``.
RELAY_FORMATS: Mapping[str, Format] = {
    "application/x-ndjson": Format("relay", BodyIntake.read_lines)
}
INTAKE_KINDS = (*dict.fromkeys(one.kind for one in (*FORMATS.values(), *RELAY_FORMATS.values())),)


def find_format(request: web.BaseRequest, formats: Mapping[str, Format]) -> Format | web.Response:
    """Return the format of a body, or the 415."""
    content_type = request.content_type
    found = formats.get(content_type)
    if found is None:
        taken = next(iter(formats)) if len(formats) == 1 else f"one of {', '.join(formats)}"
        return refuse(415, f"Content-Type: {content_type[:80]!r}; send {taken}")
    refusal = refuse_encoding(request)
    if refusal is not None:
        return refusal
    if (request.charset or "utf-8").lower() not in ("utf-8", "utf8", "us-ascii"):
        return refuse(415, f"charset: {request.charset!r:.40}; send UTF-8")
    if formats is FORMATS and content_type == "application/json":
        return _BINARY_EVENT if "ce-specversion" in request.headers else found
    return found


def refuse_encoding(request: web.BaseRequest) -> web.Response | None:
    """Answer 415 to a compressed body."""
    encoding = request.headers.get("Content-Encoding", "identity")
    if encoding.lower() == "identity":
        return None
    return refuse(415, f"Content-Encoding: {encoding[:40]!r}; send the body as it is")
