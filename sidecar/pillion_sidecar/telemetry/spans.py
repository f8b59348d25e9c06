"""Spans of publish requests, of the commits of their lines and of attempts, by OpenTelemetry's
conventions for messaging. Only with the extra ``otel``.

A request and its commit are children of the trace in the request's headers, an attempt of the one
that its indication carries. Whatever a collector does, only spans are lost.
"""

import logging
import os
import threading
from collections.abc import Awaitable, Callable, Mapping
from contextlib import closing
from importlib.metadata import version
from queue import Empty, SimpleQueue

import requests
from aiohttp import web
from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import ReadableSpan, SpanProcessor, TracerProvider
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import ParentBased
from opentelemetry.trace import (
    NonRecordingSpan,
    Span,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)
from opentelemetry.util.types import AnyValue

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.problems import one_line
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.trace_context import TraceContext

#: Ended spans that wait for the exporter; further ones are dropped.
MOST_WAITING = 2048
#: Spans of one request to the collector, and seconds to wait for so many.
BATCH = 512
BATCH_SECONDS = 1.0
#: Commits with a span at a time.
MOST_COMMITS = 1000
#: Seconds in which the last spans are sent when the deliverer ends.
CLOSING_SECONDS = 2.0
#: Seconds between two lines in the log.
LOG_SECONDS = 60.0
#: Characters of an identifier, which publishers choose, and of other texts.
MOST_TEXT = 256
_PROVIDERS = (
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER",
    "OTEL_PYTHON_EXPORTER_OTLP_HTTP_TRACES_CREDENTIAL_PROVIDER",
)
#: An exporter says there why it has failed.
_EXPORTER_LOG = "opentelemetry.exporter.otlp.proto.http.trace_exporter"
#: It would write wrong headers, which may be credentials, to the log.
_HEADERS_LOG = "opentelemetry.util.re"

_SYSTEM = {"messaging.system": "pillion"}
_ACCEPT = {**_SYSTEM, "messaging.operation.name": "accept", "messaging.operation.type": "process"}
_COMMIT = {**_SYSTEM, "messaging.operation.name": "commit"}
_SEND = {**_SYSTEM, "messaging.operation.name": "send", "messaging.operation.type": "send"}
_COUNT = "messaging.batch.message_count"
_ERROR = "error.type"
_STATUS = "http.response.status_code"
_NO_PARENT = Context()

logger = logging.getLogger("pillion.spans")


class Spans:
    def __init__(self, exporter: SpanExporter, *, clock: Clock) -> None:
        """Sampling and resource are from the environment (``OTEL_…``). Raises ValueError if it has
        a wrong limit."""
        provider = TracerProvider(resource=_resource(), shutdown_on_exit=False)
        self.exports = SpanExports(exporter, clock=clock)
        provider.add_span_processor(self.exports)
        self._tracer = provider.get_tracer("pillion", version("pillion"))
        # Then the flag of a trace is enough, and its sampler is not asked.
        self._follows_publishers = isinstance(provider.sampler, ParentBased)
        self._commits = 0

    def begin_request(self, trace: TraceContext | None) -> "RequestSpan | None":
        """``trace``: of the request's headers. Returns None if it is not sampled."""
        if trace is not None and self._is_unsampled(trace):
            return None
        span = self._begin("accept", SpanKind.CONSUMER, trace, _ACCEPT)
        return None if span is None else RequestSpan(self, span, trace)

    def begin_attempt(
        self,
        queue: DestinationQueue,
        delivery: Delivery,
        done: Callable[[DeliveryOutcome], None],
    ) -> Callable[[DeliveryOutcome], None]:
        """Return what to call with the outcome instead of ``done``. Sets ``delivery.span`` if the
        trace of its indication is sampled."""
        indication = delivery.indication
        trace = indication.trace
        if trace is None or self._is_unsampled(trace):
            return done
        span = self._begin(f"send {queue.name}", SpanKind.CLIENT, trace, _SEND)
        if span is None:
            return done
        span.set_attributes(
            {
                "messaging.destination.name": queue.name,
                "messaging.pillion.destination.protocol": queue.protocol,
                "messaging.pillion.message.delivery_attempt": delivery.attempt,
            }
        )
        if indication.identifier is not None:
            span.set_attribute("messaging.message.id", _text(indication.identifier))
        delivery.span = TraceContext(_parent(span), trace.state)

        def ended(outcome: DeliveryOutcome) -> None:
            # Another destination got the connection: this was no attempt.
            if not outcome.preempted:
                _end_attempt(span, outcome)
            done(outcome)

        return ended

    def begin_commit(self, request: Span, lines: int) -> Callable[[], None]:
        """Return what to call once the accepted lines of a request are durable."""
        if self._commits >= MOST_COMMITS:
            self.exports.overflowed += 1
            return _nothing
        self._commits += 1
        # A child of a span that is sampled.
        context = set_span_in_context(request, _NO_PARENT)
        attributes: dict[str, AnyValue] = {**_COMMIT, _COUNT: lines}
        span = self._tracer.start_span("commit", context, SpanKind.INTERNAL, attributes)

        def committed() -> None:
            self._commits -= 1
            span.end()

        return committed

    def close(self) -> None:
        """Export what is left, within ``CLOSING_SECONDS``. Blocks."""
        self.exports.shutdown()

    def _is_unsampled(self, trace: TraceContext) -> bool:
        return self._follows_publishers and not int(trace.parent[-1], 16) & TraceFlags.SAMPLED

    def _begin(
        self, name: str, kind: SpanKind, trace: TraceContext | None, attributes: Mapping[str, str]
    ) -> Span | None:
        context = _NO_PARENT if trace is None else _remote(trace.parent)
        span = self._tracer.start_span(name, context, kind, attributes)
        return span if span.is_recording() else None


class RequestSpan:
    """The span of a publish request, until its answer."""

    __slots__ = ("_span", "_spans", "trace")

    def __init__(self, spans: Spans, span: Span, trace: TraceContext | None) -> None:
        self._spans = spans
        self._span = span
        #: The publisher's; without one, this span's: it begins the trace.
        self.trace = trace or TraceContext(_parent(span))

    def received(self, lines: int) -> None:
        self._span.set_attribute(_COUNT, lines)

    def begin_commit(self, lines: int) -> Callable[[], None]:
        """Return what to call once the accepted ``lines`` are durable."""
        return self._spans.begin_commit(self._span, lines)

    async def follow(self, answering: Awaitable[web.StreamResponse]) -> web.StreamResponse:
        """Await the answer, and end with it. Raises what ``answering`` raises."""
        error = ""
        try:
            response = await answering
            self._span.set_attribute(_STATUS, response.status)
            error = str(response.status) if response.status >= 400 else ""
        except BaseException as raised:
            error = type(raised).__name__
            raise
        finally:
            if error:
                _fail(self._span, error)
            self._span.end()
        return response


class SpanExports(SpanProcessor):
    """Hands ended spans to the exporter, in a thread. Bounded: further ones are dropped."""

    def __init__(self, exporter: SpanExporter, *, clock: Clock) -> None:
        self._exporter = exporter
        self._clock = clock
        self._waiting: SimpleQueue[ReadableSpan | None] = SimpleQueue()
        self._has_batch = threading.Event()
        self._is_closing = False
        #: Spans that were not exported and never waited.
        self.overflowed = 0
        # All that have waited; what became of them, which the thread counts.
        self._taken = 0
        self.exported = self._failed = 0
        # What the log has, and when it got that.
        self._told = 0
        self._told_at: float | None = None
        self._reason = LastMessage(_EXPORTER_LOG)
        # A collector that hangs cannot keep the process from its end.
        self._thread = threading.Thread(target=self._run, name="pillion-spans", daemon=True)
        self._thread.start()

    @property
    def dropped(self) -> int:
        return self.overflowed + self._failed

    def on_end(self, span: ReadableSpan) -> None:
        waiting = self._waiting.qsize()
        if self._is_closing or waiting >= MOST_WAITING:
            self.overflowed += 1
            return
        self._taken += 1
        self._waiting.put(span)
        if waiting + 1 >= BATCH:
            self._has_batch.set()

    def shutdown(self) -> None:
        """Export what is left, within ``CLOSING_SECONDS``. Blocks."""
        if self._is_closing:
            return
        self._is_closing = True
        self._waiting.put(None)
        self._has_batch.set()
        self._thread.join(CLOSING_SECONDS)
        # It ends a wait of the thread between two tries.
        self._exporter.shutdown()
        if self._thread.is_alive():
            self.overflowed += self._taken - self.exported - self._failed
            self._reason.text = f"the collector did not take the last in {CLOSING_SECONDS:g} s"
        if self.dropped > self._told:
            self._tell()

    def _run(self) -> None:
        with closing(self._reason):
            self._export_all()

    def _export_all(self) -> None:
        while (first := self._waiting.get()) is not None:
            if not self._is_closing:
                self._has_batch.wait(BATCH_SECONDS)
                self._has_batch.clear()
            batch, is_last = self._fill([first])
            self._export(batch)
            if is_last:
                return

    def _fill(self, batch: list[ReadableSpan]) -> tuple[list[ReadableSpan], bool]:
        """Return it with what waits, and whether no more comes."""
        while len(batch) < BATCH:
            try:
                span = self._waiting.get_nowait()
            except Empty:
                break
            if span is None:
                return batch, True
            batch.append(span)
        return batch, False

    def _export(self, batch: list[ReadableSpan]) -> None:
        try:
            result = self._exporter.export(batch)
        except Exception as error:  # noqa: BLE001 - the thread must go on
            self._reason.text, result = type(error).__name__, SpanExportResult.FAILURE
        if result is SpanExportResult.SUCCESS:
            self.exported += len(batch)
        else:
            self._failed += len(batch)
        now = self._clock.monotonic()
        is_due = self._told_at is None or now - self._told_at >= LOG_SECONDS
        # At the end ``shutdown`` tells.
        if self.dropped > self._told and is_due and not self._is_closing:
            self._told_at = now
            self._tell()

    def _tell(self) -> None:
        count, self._told = self.dropped - self._told, self.dropped
        shown = one_line(self._reason.text or "too many at once", MOST_TEXT)
        logger.warning(
            "spans are dropped: %s",
            shown,
            extra={"event": "spans-dropped", "count": count, "reason": shown},
        )


class LastMessage(logging.Filter):
    """Keeps the last message of a library's logger out of the log."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.text = ""
        self._logger = logging.getLogger(name)
        self._logger.addFilter(self)

    def filter(self, record: logging.LogRecord) -> bool:
        self.text = record.getMessage()
        return False

    def close(self) -> None:
        self._logger.removeFilter(self)


def create_exporter() -> SpanExporter:
    """Return the exporter of the environment. Raises RuntimeError if that names a provider of
    credentials that is not installed."""
    with closing(LastMessage(_HEADERS_LOG)) as said:
        exporter = OTLPSpanExporter(session=_session())
    if said.text:
        problem = (
            "OTEL_EXPORTER_OTLP_HEADERS has what is no NAME=VALUE: write NAME=VALUE,NAME=VALUE, "
            "with %2C for a comma in a value"
        )
        logger.warning(
            "some headers are not sent with spans; %s",
            problem,
            extra={"event": "spans-off", "problem": problem},
        )
    return exporter


def _session() -> requests.Session | None:
    """Return what refuses redirects: the exporter follows none, and takes them for success. None
    where the environment names a provider of credentials, which has a session of its own."""
    if any(os.environ.get(name) for name in _PROVIDERS):
        return None
    session = requests.Session()
    session.hooks["response"].append(_refuse_redirect)
    return session


def _refuse_redirect(response: requests.Response, **_: object) -> None:
    if 300 <= response.status_code < 400:
        response.close()
        raise requests.HTTPError(
            f"HTTP {response.status_code}, a redirect, which is not followed: name the collector"
        )


def _resource() -> Resource:
    named = OTELResourceDetector().detect().attributes
    own = {"service.version": version("pillion")}
    return Resource.create(own if SERVICE_NAME in named else {**own, SERVICE_NAME: "pillion"})


def _remote(parent: str) -> Context:
    flags = TraceFlags(int(parent[53:], 16))
    context = SpanContext(
        int(parent[3:35], 16), int(parent[36:52], 16), is_remote=True, trace_flags=flags
    )
    return set_span_in_context(NonRecordingSpan(context), _NO_PARENT)


def _parent(span: Span) -> str:
    """Return its ``traceparent``."""
    context = span.get_span_context()
    return f"00-{context.trace_id:032x}-{context.span_id:016x}-{context.trace_flags:02x}"


def _end_attempt(span: Span, outcome: DeliveryOutcome) -> None:
    if outcome.status is not None:
        span.set_attribute(_STATUS, outcome.status)
    if (cause := outcome.failure_cause) is not None:
        _fail(span, cause.value, _text(outcome.detail))
    span.end()


def _fail(span: Span, error: str, detail: str | None = None) -> None:
    span.set_attribute(_ERROR, error)
    span.set_status(Status(StatusCode.ERROR, detail))


def _text(text: str) -> str:
    """Return what a span can carry of a text: a lone surrogate would cost a whole batch."""
    return text[:MOST_TEXT].encode("utf-8", "replace").decode("utf-8")


def _nothing() -> None: ...
