"""The request bodies of ``POST /v1/indications``, by content type."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from functools import partial
from typing import Any

from aiohttp import web

from pillion_cim.schema import Schema
from pillion_sidecar.http_errors import refuse
from pillion_sidecar.intake.bodies import LINES_PER_TURN, BodyError, BodyReader
from pillion_sidecar.intake.cloudevents import binary_event, decode_event, split_batch
from pillion_sidecar.intake.decoding import Decoded, LineError, decode_object, parse_json
from pillion_sidecar.intake.fast_path import FastPath
from pillion_sidecar.intake.relay import RelayFastPath, decode_relayed
from pillion_sidecar.intake.submission import MAXIMUM_REFUSED, Submission


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
                if decoded is None and line != b"":
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
        if line.isspace():
            return None
        return self.decode_complete(line)


class BodyIntake:
    """Reads bodies and submits what is in them.

    Each method returns the first line that it did not submit; None: it submitted all. It raises
    :class:`BodyError`, and what aiohttp raises where the client goes away.
    """

    def __init__(self, *, decoder: LineDecoder, reader: BodyReader) -> None:
        self._decoder = decoder
        self.reader = reader

    async def read_lines(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Submit indications in their JSON form, one a line."""
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
        """Submit one indication in its JSON form."""
        body = (await self.reader.document(request)).strip()
        # Written over several lines: only the complete way makes one of them.
        is_line = b"\n" not in body and b"\r" not in body
        decode = self._decoder.decode if is_line else self._decoder.decode_complete
        _submit(partial(decode, body), 0, submission)

    async def read_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """Submit one CloudEvent in structured mode."""
        body = await self.reader.document(request)
        _submit(lambda: self._decode_event(parse_json(body)), 0, submission)

    async def read_binary_event(self, request: web.BaseRequest, submission: Submission) -> None:
        """Submit one CloudEvent in binary mode."""
        body = await self.reader.document(request)
        _submit(lambda: self._decode_event(binary_event(request.headers, body)), 0, submission)

    async def read_batch(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Submit a batch of CloudEvents."""
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
        return self._decode_event(parse_json(body[start:end]))

    def _decode_event(self, event: Any) -> Decoded:
        return decode_event(event, schema=self._decoder.schema)


def _submit(decode: Callable[[], Decoded], number: int, submission: Submission) -> None:
    try:
        submission.accept(decode(), number)
    except LineError as error:
        submission.refuse(error, number)


@dataclass(frozen=True, slots=True)
class Format:
    """A form of request bodies."""

    #: The label of metrics.
    kind: str
    #: Submits a body; None: an export message, which is answered by its own protocol.
    read: Callable[[BodyIntake, web.BaseRequest, Submission], Awaitable[int | None]] | None


_BINARY_EVENT = Format("cloudevents", BodyIntake.read_binary_event)
EXPORT = Format("cim-xml", None)
#: What publishers may send to ``POST /v1/indications``, by content type: another format is one
#: line, and what reads it.
FORMATS: Mapping[str, Format] = {
    "application/json": Format("json", BodyIntake.read_object),
    "application/x-ndjson": Format("ndjson", BodyIntake.read_lines),
    "application/cloudevents+json": Format("cloudevents", BodyIntake.read_event),
    "application/cloudevents-batch+json": Format("cloudevents", BodyIntake.read_batch),
    "application/xml": EXPORT,
    "text/xml": EXPORT,
}
#: What sidecars send to ``POST /v1/relay``.
RELAY_FORMATS: Mapping[str, Format] = {
    "application/x-ndjson": Format("relay", BodyIntake.read_lines)
}
#: Every label.
INTAKE_KINDS = (*dict.fromkeys(one.kind for one in (*FORMATS.values(), *RELAY_FORMATS.values())),)


def find_format(request: web.BaseRequest, formats: Mapping[str, Format]) -> Format | web.Response:
    """Return the form of a request's body, or the 415 for one that is none of ``formats``."""
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
