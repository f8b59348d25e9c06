"""The request bodies of ``POST /v1/indications``, by content type."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from pillion_cim.schema import Schema
from pillion_sidecar.auth.principal import PRINCIPAL
from pillion_sidecar.clock import Timers
from pillion_sidecar.intake.bodies import (
    BodyBudget,
    BodyError,
    HeldBody,
    IntakeLimits,
    crowd_out,
    read_at_once,
    read_chunks,
    read_document,
)
from pillion_sidecar.intake.cloudevents import binary_event, decode_event, split_batch
from pillion_sidecar.intake.decoding import Decoded, LineError, decode_object, parse_json
from pillion_sidecar.intake.errors import IntakeError
from pillion_sidecar.intake.fast_path import FastPath
from pillion_sidecar.intake.relay import RelayFastPath, decode_relayed
from pillion_sidecar.intake.submission import MAXIMUM_REFUSED, IntakeObserver, Submission

MAXIMUM_LINE_BYTES = 1 << 20
#: Lines between two turns of the event loop.
LINES_PER_TURN = 256


class LineSplitter:
    """Cuts chunks into lines. A line that is too long is skipped without being held.

    No more than one line is held back.
    """

    def __init__(self, *, maximum_line_bytes: int = MAXIMUM_LINE_BYTES) -> None:
        self._maximum = maximum_line_bytes
        self._rest: list[bytes] = []
        #: Bytes of the line that is not whole yet.
        self.held = 0
        self._skipping = False

    def feed(self, chunk: bytes) -> list[bytes | None]:
        """Return the lines that a chunk ends, without their ends; None for one too long."""
        first, *others = chunk.split(b"\n")
        if not others:
            self._hold(first)
            return []
        lines: list[bytes | None] = [self._finish(first), *others[:-1]]
        if b"\r" in chunk:
            lines = [line.removesuffix(b"\r") if line is not None else None for line in lines]
        if len(chunk) > self._maximum:
            lines = [
                None if line is not None and len(line) > self._maximum else line for line in lines
            ]
        self._hold(others[-1])
        return lines

    def end(self) -> bytes | None:
        """Return the last line, which no newline ends; empty where there is none."""
        return self._finish(b"")

    def _hold(self, part: bytes) -> None:
        self.held += len(part)
        if self.held > self._maximum:
            self._rest.clear()
            self._skipping = True
            self.held = self._maximum + 1
        else:
            self._rest.append(part)

    def _finish(self, part: bytes) -> bytes | None:
        self._hold(part)
        line = None if self._skipping else b"".join(self._rest).removesuffix(b"\r")
        self._rest.clear()
        self.held = 0
        self._skipping = False
        return line


class LineDecoder:
    """Decodes the JSON form of indications. Made once; compiling takes some milliseconds."""

    def __init__(
        self,
        schema: Schema,
        *,
        maximum_line_bytes: int,
        is_relayed: bool = False,
        in_force: Callable[[], Schema] | None = None,
    ) -> None:
        """``is_relayed``: of lines that sidecars relay. ``in_force`` gives the classes as they are
        declared by now; None: those of ``schema``."""
        self._in_force = in_force or (lambda: schema)
        self._maximum = maximum_line_bytes
        # Of the packaged classes alone: the others' bodies state types, so they are written anew.
        self._fast = RelayFastPath(schema.base) if is_relayed else FastPath(schema.base)
        self._decode_object = decode_relayed if is_relayed else decode_object

    @property
    def schema(self) -> Schema:
        """The classes in force."""
        return self._in_force()

    def decode(self, line: bytes) -> Decoded:
        """Decode one line, which holds no newline. Raises :class:`LineError`."""
        if len(line) > self._maximum:
            raise self.too_long()
        decoded = self._fast.decode(line)
        return decoded if decoded is not None else self.decode_complete(line)

    def decode_complete(self, line: bytes) -> Decoded:
        """Decode one object the complete way. Raises :class:`LineError`."""
        return self._decode_object(parse_json(line), schema=self.schema)

    def too_long(self) -> LineError:
        """Return the error of a line that is too long."""
        return LineError(f"longer than {self._maximum} bytes")

    def submit(self, lines: Sequence[bytes | None], *, first: int, submission: Submission) -> int:
        """Submit lines, the first of which has the number ``first``; None is one too long.

        Blank lines are skipped. Returns the number of the line after the last one taken: fewer
        than all where no further refusal could be told.
        """
        decode, accept, refused = self._fast.decode, submission.accept, submission.refused
        number = first
        for line in lines:
            try:
                decoded = decode(line) if line else None
                if decoded is None:
                    decoded = self._decode_unusual(line)
                if decoded is not None:
                    accept(decoded, number)
            except LineError as error:
                submission.refuse(error, number)
            number += 1
            if len(refused) >= MAXIMUM_REFUSED:
                break
        return number

    def _decode_unusual(self, line: bytes | None) -> Decoded | None:
        if line is None:
            raise self.too_long()
        if not line or line.isspace():
            return None
        return self.decode_complete(line)


class ReadingInterruptedError(IntakeError):
    """Reading stopped before the end: answered with what had come until then."""

    def __init__(self, status: int, reason: str, *, unread_from: int) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.unread_from = unread_from


class BodyIntake:
    """Reads bodies and submits what is in them."""

    def __init__(
        self,
        *,
        decoder: LineDecoder,
        timers: Timers,
        limits: IntakeLimits,
        observer: IntakeObserver,
        budget: BodyBudget,
    ) -> None:
        self._budget = budget
        self._decoder = decoder
        self._timers = timers
        self._limits = limits
        self._observer = observer

    async def read_relayed(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Submit the lines that a sidecar relays. As :meth:`read` otherwise."""
        try:
            return await self.read_lines(request, submission)
        finally:
            submission.report(self._observer, RELAY_KIND)

    async def read(
        self, request: web.BaseRequest, submission: Submission, *, body: "Format"
    ) -> int | None:
        """Submit a request's body; return where reading stopped, if it did.

        Raises :class:`ReadingInterruptedError`, and what aiohttp raises where the client goes away.
        """
        assert body.read is not None
        try:
            return await body.read(self, request, submission)
        finally:
            submission.report(self._observer, body.kind)

    async def read_document(self, request: web.BaseRequest) -> bytes:
        """Return a body of one document, held whole. Raises ReadingInterruptedError."""
        maximum = self._limits.line_bytes
        try:
            body = read_at_once(request, maximum=maximum)
        except BodyError as error:
            raise interrupted(error, unread_from=0) from None
        if body is not None:
            # Nothing is held while something is waited for: no budget, and no timer.
            return body
        with self._holding(request) as held:
            return await self._document(request, held, maximum=maximum)

    async def _document(self, request: web.BaseRequest, held: HeldBody, *, maximum: int) -> bytes:
        try:
            return await read_document(
                request, timers=self._timers, limits=self._limits, maximum=maximum, held=held
            )
        except BodyError as error:
            raise interrupted(error, unread_from=0) from None

    def _holding(self, request: web.BaseRequest) -> HeldBody:
        return self._budget.holding(partial(crowd_out, request), principal=request.get(PRINCIPAL))

    # ------------------------------------------------------------------ one document

    async def read_object(self, request: web.BaseRequest, submission: Submission) -> None:
        """One indication in its JSON form."""
        body = (await self.read_document(request)).strip()
        # Written over several lines: only the complete way makes one of them.
        is_line = b"\n" not in body and b"\r" not in body
        decode = self._decoder.decode if is_line else self._decoder.decode_complete
        self._submit_one(partial(decode, body), submission)

    async def read_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """One CloudEvent in structured mode."""
        body = await self.read_document(request)
        self._submit_one(lambda: self._decode_event(parse_json(body)), submission)

    async def read_binary_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """One CloudEvent in binary mode."""
        body = await self.read_document(request)
        event = partial(binary_event, request.headers, body)
        self._submit_one(lambda: self._decode_event(event()), submission)

    def _submit_one(self, decode: Callable[[], Decoded], submission: Submission) -> None:
        try:
            submission.accept(decode(), 0)
        except LineError as error:
            submission.refuse(error, 0)

    def _decode_event(self, event: Any) -> Decoded:
        return decode_event(event, schema=self._decoder.schema)

    async def read_batch(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """A batch of CloudEvents."""
        with self._holding(request) as held:
            body = await self._document(request, held, maximum=self._limits.document_bytes)
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
                    self._submit_event(body, span, number, submission)
                    number += 1
        except LineError as error:
            submission.refuse(error, number)
            return number + 1 if number else None
        return None

    def _submit_event(
        self, body: bytes, span: tuple[int, int], number: int, submission: Submission
    ) -> None:
        start, end = span
        try:
            if end - start > self._limits.line_bytes:
                raise self._decoder.too_long()
            event = body[start:end]
            submission.accept(self._decode_event(parse_json(event)), number)
        except LineError as error:
            submission.refuse(error, number)

    # ------------------------------------------------------------------ lines

    async def read_lines(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Indications in their JSON form, one a line."""
        with self._holding(request) as held:
            return await self._read_held_lines(request, submission, held)

    async def _read_held_lines(
        self, request: web.BaseRequest, submission: Submission, held: HeldBody
    ) -> int | None:
        splitter = LineSplitter(maximum_line_bytes=self._limits.line_bytes)
        following = 0
        chunks = read_chunks(
            request, timers=self._timers, limits=self._limits, maximum=self._limits.stream_bytes
        )
        async with aclosing(chunks):
            try:
                async for chunk in chunks:
                    following = await self._submit(splitter.feed(chunk), following, submission)
                    if submission.full:
                        return following
                    held.hold(splitter.held)
            except BodyError as error:
                raise interrupted(error, unread_from=following) from None
        await self._submit([splitter.end()], following, submission)
        return None

    async def _submit(self, lines: list[bytes | None], first: int, submission: Submission) -> int:
        following = first
        for start in range(0, len(lines), LINES_PER_TURN):
            part = lines[start : start + LINES_PER_TURN]
            following = self._decoder.submit(part, first=following, submission=submission)
            if submission.full:
                break
            # The loop has other publishers and all listeners to serve.
            await asyncio.sleep(0)
        return following


def interrupted(error: BodyError, *, unread_from: int) -> ReadingInterruptedError:
    """Return how a body that was not read to its end is answered."""
    return ReadingInterruptedError(error.status, str(error), unread_from=unread_from)


@dataclass(frozen=True, slots=True)
class Format:
    """A form of the bodies of ``POST /v1/indications``."""

    #: The label of metrics.
    kind: str
    #: Submits a body; None: an export message, which is answered by its own protocol.
    read: Callable[[BodyIntake, web.BaseRequest, Submission], Awaitable[int | None]] | None


_BINARY_EVENT = Format("cloudevents", BodyIntake.read_binary_event)
_EXPORT = Format("cim-xml", None)
#: What publishers may send, by content type: another format is one line, and what reads it.
FORMATS: Mapping[str, Format] = {
    "application/json": Format("json", BodyIntake.read_object),
    "application/x-ndjson": Format("ndjson", BodyIntake.read_lines),
    "application/cloudevents+json": Format("cloudevents", BodyIntake.read_event),
    "application/cloudevents-batch+json": Format("cloudevents", BodyIntake.read_batch),
    "application/xml": _EXPORT,
    "text/xml": _EXPORT,
}
#: What sidecars relay.
RELAYED = "application/x-ndjson"
#: The label of what another deliverer had accepted.
RELAY_KIND = "relay"
EXPORT_KIND = _EXPORT.kind
#: Every label.
INTAKE_KINDS = (*dict.fromkeys(one.kind for one in FORMATS.values()), RELAY_KIND)


def format_of(request: web.BaseRequest) -> Format | None:
    """Return the form of a request's body; None for a content type that is not taken."""
    if request.content_type == "application/json" and "ce-specversion" in request.headers:
        return _BINARY_EVENT
    return FORMATS.get(request.content_type)
