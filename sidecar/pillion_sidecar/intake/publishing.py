"""The request bodies of ``POST /v1/indications``, by content type."""

import asyncio
from contextlib import aclosing
from functools import partial

from aiohttp import web

from pillion_sidecar.clock import Timers
from pillion_sidecar.door.principal import PRINCIPAL
from pillion_sidecar.intake.acceptance import Submission
from pillion_sidecar.intake.bodies import (
    BodyError,
    IntakeLimits,
    crowd_out,
    read_at_once,
    read_chunks,
    read_document,
)
from pillion_sidecar.intake.budget import BodyBudget, HeldBody
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
            return await self._read_lines(request, submission)
        finally:
            submission.report(self._observer, IntakeKind.RELAY)

    async def read(
        self, request: web.BaseRequest, submission: Submission, *, kind: IntakeKind
    ) -> int | None:
        """Submit a request's body; return where reading stopped, if it did.

        Raises :class:`Interrupted`, and what aiohttp raises where the client goes away.
        """
        event = kind is IntakeKind.CLOUD_EVENTS
        try:
            if kind is IntakeKind.NDJSON:
                return await self._read_lines(request, submission)
            if event and request.content_type == "application/cloudevents-batch+json":
                return await self._read_batch(request, submission)
            await self._read_one(request, submission, event=event)
            return None
        finally:
            submission.report(self._observer, kind)

    async def read_document(self, request: web.BaseRequest) -> bytes:
        """Return a body of one document, held whole. Raises Interrupted."""
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

    async def _read_one(
        self, request: web.BaseRequest, submission: Submission, *, event: bool
    ) -> None:
        body = await self.read_document(request)
        try:
            submission.accept(self._decode_one(request, body, event=event), 0)
        except InvalidLine as error:
            submission.refuse(error, 0)

    def _decode_one(self, request: web.BaseRequest, body: bytes, *, event: bool) -> Decoded:
        if event:
            is_binary = request.content_type == "application/json"
            found = binary_event(request.headers, body) if is_binary else parse_json(body)
            return decode_event(found, schema=self._decoder.schema)
        body = body.strip()
        if b"\n" in body or b"\r" in body:
            # Written over several lines: only the complete way makes one of them.
            return self._decoder.decode_complete(body)
        return self._decoder.decode(body)

    async def _read_batch(self, request: web.BaseRequest, submission: Submission) -> int | None:
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
        except InvalidLine as error:
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
            submission.accept(decode_event(parse_json(event), schema=self._decoder.schema), number)
        except InvalidLine as error:
            submission.refuse(error, number)

    # ------------------------------------------------------------------ lines

    async def _read_lines(self, request: web.BaseRequest, submission: Submission) -> int | None:
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


def interrupted(error: BodyError, *, unread_from: int) -> Interrupted:
    """Return how a body that was not read to its end is answered."""
    return Interrupted(error.status, str(error), unread_from=unread_from)
