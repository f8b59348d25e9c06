"""The request bodies of ``POST /v1/indications``, by content type."""

import asyncio
from contextlib import aclosing

from aiohttp import web

from pillion_sidecar.clock import Timers
from pillion_sidecar.intake.acceptance import Submission
from pillion_sidecar.intake.bodies import BodyError, IntakeLimits, read_chunks, read_document
from pillion_sidecar.intake.cloudevents import binary_event, decode_event, split_batch
from pillion_sidecar.intake.decoding import Decoded, InvalidLine
from pillion_sidecar.intake.jsontext import parse_json
from pillion_sidecar.intake.lines import LineDecoder
from pillion_sidecar.intake.ndjson import LineSplitter
from pillion_sidecar.intake.statistics import IntakeObserver
from pillion_sidecar.telemetry.metrics import IntakeKind

#: Lines between two turns of the event loop.
LINES_PER_TURN = 256

KINDS = {
    "application/json": IntakeKind.JSON,
    "application/x-ndjson": IntakeKind.NDJSON,
    "application/cloudevents+json": IntakeKind.CLOUD_EVENTS,
    "application/cloudevents-batch+json": IntakeKind.CLOUD_EVENTS,
    "application/xml": IntakeKind.CIM_XML,
    "text/xml": IntakeKind.CIM_XML,
}


class Interrupted(Exception):
    """Reading stopped before the end: answered with what had come until then."""

    def __init__(self, status: int, reason: str, *, unread_from: int) -> None:
        super().__init__(reason)
        self.status = status
        self.reason = reason
        self.unread_from = unread_from


def kind_of(request: web.BaseRequest) -> IntakeKind | None:
    """Return the form of a request's body; None for a content type that is not taken."""
    kind = KINDS.get(request.content_type)
    if kind is IntakeKind.JSON and "ce-specversion" in request.headers:
        return IntakeKind.CLOUD_EVENTS
    return kind


class BodyIntake:
    """Reads bodies and submits what is in them."""

    def __init__(
        self,
        *,
        decoder: LineDecoder,
        timers: Timers,
        limits: IntakeLimits,
        observer: IntakeObserver,
    ) -> None:
        self._decoder = decoder
        self._timers = timers
        self._limits = limits
        self._observer = observer

    async def read_relayed(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Submit the lines that a sidecar relays. As :meth:`read` otherwise."""
        try:
            return await self._read_lines(request, submission)
        finally:
            submission.report(self._observer, IntakeKind.RELAY)

    async def read(self, request: web.BaseRequest, submission: Submission) -> int | None:
        """Submit a request's body, which has a kind; return where reading stopped, if it did.

        Raises :class:`Interrupted`, and what aiohttp raises where the client goes away.
        """
        kind = kind_of(request)
        assert kind is not None
        try:
            if kind is IntakeKind.NDJSON:
                return await self._read_lines(request, submission)
            if request.content_type == "application/cloudevents-batch+json":
                return await self._read_batch(request, submission)
            await self._read_one(request, submission, event=kind is IntakeKind.CLOUD_EVENTS)
            return None
        finally:
            submission.report(self._observer, kind)

    async def read_document(self, request: web.BaseRequest, *, maximum: int | None = None) -> bytes:
        """Return a body that is held whole; by default as long as a line. Raises Interrupted."""
        try:
            return await read_document(
                request,
                timers=self._timers,
                limits=self._limits,
                maximum=self._limits.line_bytes if maximum is None else maximum,
            )
        except BodyError as error:
            raise interrupted(error, unread_from=0) from None

    # ------------------------------------------------------------------ one document

    async def _read_one(
        self, request: web.BaseRequest, submission: Submission, *, event: bool
    ) -> None:
        body = await self.read_document(request)
        try:
            submission.accept(self._decode_one(request, body, event=event), 0)
        except InvalidLine as error:
            submission.refuse(error, 0)

    def _decode_one(self, request: web.BaseRequest, body: bytes, *, event: bool) -> Decoded:
        schema = self._decoder.schema
        if event and request.content_type == "application/json":
            return decode_event(binary_event(request.headers, body), schema=schema)
        if event:
            return decode_event(parse_json(body), schema=schema)
        body = body.strip()
        if b"\n" in body or b"\r" in body:
            # Written over several lines: only the complete way makes one of them.
            return self._decoder.decode_complete(body)
        return self._decoder.decode(body)

    async def _read_batch(self, request: web.BaseRequest, submission: Submission) -> int | None:
        body = await self.read_document(request, maximum=self._limits.document_bytes)
        try:
            events = split_batch(body)
        except InvalidLine as error:
            submission.refuse(error, 0)
            return None
        for number, event in enumerate(events):
            if submission.full:
                return number
            if number % LINES_PER_TURN == LINES_PER_TURN - 1:
                await asyncio.sleep(0)
            self._submit_event(event, number, submission)
        return None

    def _submit_event(self, event: bytes, number: int, submission: Submission) -> None:
        try:
            if len(event) > self._limits.line_bytes:
                raise self._decoder.too_long()
            submission.accept(decode_event(parse_json(event), schema=self._decoder.schema), number)
        except InvalidLine as error:
            submission.refuse(error, number)

    # ------------------------------------------------------------------ lines

    async def _read_lines(self, request: web.BaseRequest, submission: Submission) -> int | None:
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


def interrupted(error: BodyError, *, unread_from: int) -> Interrupted:
    """Return how a body that was not read to its end is answered."""
    return Interrupted(error.status, str(error), unread_from=unread_from)
