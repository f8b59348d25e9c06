"""The span of a task attempt, by OpenTelemetry's conventions for messaging. Only with the extra
``otel``. A collector that fails or hangs costs the span, and the attempt at most
``EXPORT_SECONDS``."""

import logging
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from threading import BoundedSemaphore, Thread

from opentelemetry.context import Context
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import SERVICE_NAME, OTELResourceDetector, Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import SimpleSpanProcessor
from opentelemetry.sdk.trace.id_generator import RandomIdGenerator
from opentelemetry.trace import (
    NonRecordingSpan,
    SpanContext,
    SpanKind,
    Status,
    StatusCode,
    TraceFlags,
    set_span_in_context,
)

PARENT = "traceparent"
#: Maximum seconds that an attempt waits at its end for the collector.
EXPORT_SECONDS = 2.0
#: Maximum requests to the collector at a time in a process. An attempt may have left some of them.
MOST_EXPORTS = 16
#: Characters of an attribute.
MOST_TEXT = 256
#: It would write wrong headers, which may be credentials, to the executor's log.
_HEADERS_LOG = logging.getLogger("opentelemetry.util.re")
_EXPORTS = BoundedSemaphore(MOST_EXPORTS)

log = logging.getLogger("pyspark_pillion")

_SEND = {
    "messaging.system": "pillion",
    "messaging.operation.name": "send",
    "messaging.operation.type": "send",
}


class _OneTrace(RandomIdGenerator):
    """All tasks of a save begin the same trace. So a sampler that decides by the trace decides in
    all of them alike."""

    def __init__(self, identifier: str) -> None:
        self._identifier = int(identifier, 16)

    def generate_trace_id(self) -> int:
        return self._identifier


class RecordedSpan:
    def __init__(
        self,
        given: Mapping[str, str],
        *,
        identifier: str,
        attributes: Mapping[str, str | int],
    ) -> None:
        """``given`` are header fields with the parent; without one the trace is ``identifier``.
        Sampling, resource and collector are from the environment (``OTEL_…``). Raises ValueError or
        RuntimeError if that is wrong."""
        with _without_headers():
            exporter = OTLPSpanExporter(timeout=EXPORT_SECONDS)
        self._provider = TracerProvider(
            resource=_resource(), id_generator=_OneTrace(identifier), shutdown_on_exit=False
        )
        self._provider.add_span_processor(SimpleSpanProcessor(exporter))
        shown = {
            name: value[:MOST_TEXT] if isinstance(value, str) else value
            for name, value in attributes.items()
        }
        # Requests name this span: it is the context in which their messages are created.
        self._span = self._provider.get_tracer("pillion").start_span(
            "send", _context(given.get(PARENT)), SpanKind.PRODUCER, {**_SEND, **shown}
        )
        context = self._span.get_span_context()
        ids = f"{context.trace_id:032x}-{context.span_id:016x}"
        self.headers = {**given, PARENT: f"00-{ids}-{context.trace_flags:02x}"}

    def end(self, *, rows: int, error: str) -> None:
        self._span.set_attribute("messaging.batch.message_count", rows)
        if error:
            self._span.set_attribute("error.type", error)
            self._span.set_status(Status(StatusCode.ERROR))
        if not _EXPORTS.acquire(blocking=False):
            log.warning("a span is lost: the collector answers none of the requests before it")
            return
        # The exporter's time-out is for each read: a collector that sends byte by byte exceeds it.
        exporting = Thread(target=self._export, daemon=True)
        exporting.start()
        exporting.join(EXPORT_SECONDS)

    def _export(self) -> None:
        try:
            self._span.end()
            self._provider.shutdown()
        finally:
            _EXPORTS.release()


def _resource() -> Resource:
    named = OTELResourceDetector().detect().attributes
    return Resource.create({} if SERVICE_NAME in named else {SERVICE_NAME: "spark"})


def _context(parent: str | None) -> Context:
    if parent is None:
        return Context()
    _, trace, span, flags = parent.split("-")
    context = SpanContext(
        int(trace, 16), int(span, 16), is_remote=True, trace_flags=TraceFlags(int(flags, 16))
    )
    return set_span_in_context(NonRecordingSpan(context), Context())


@contextmanager
def _without_headers() -> Iterator[None]:
    before, _HEADERS_LOG.disabled = _HEADERS_LOG.disabled, True
    try:
        yield
    finally:
        _HEADERS_LOG.disabled = before
