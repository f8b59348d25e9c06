"""The trace that requests of a task name, and the span of its attempt."""

import logging
import os
import pickle
import sys
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from threading import BoundedSemaphore, Event, Thread
from typing import Any

import pyarrow as pa
import pytest
from opentelemetry import trace as api
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from pyspark.sql import types as T

from pyspark_pillion import spans
from pyspark_pillion.errors import ConfigurationError, UndeliveredError
from pyspark_pillion.options import parse_options
from pyspark_pillion.source import BatchWriter, DefaultSource
from pyspark_pillion.tracing import Trace, current_span, trace_of
from support.fake_deliverer import FakeDeliverer
from support.publisher import lines_of

TRACE, SPAN = "4bf92f3577b34da6a3ce929d0e0e4736", "00f067aa0ba902b7"
PARENT = f"00-{TRACE}-{SPAN}-01"
LINES = T.StructType([T.StructField("value", T.StringType())])


class Collector(ThreadingHTTPServer):
    """Keeps the spans that it gets; answers with ``status``."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Handler)
        self.status = 200
        self.requests: list[ExportTraceServiceRequest] = []

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_port}"

    @property
    def spans(self) -> list[Any]:
        return [
            span
            for request in self.requests
            for resource in request.resource_spans
            for scope in resource.scope_spans
            for span in scope.spans
        ]


class _Handler(BaseHTTPRequestHandler):
    server: Collector

    def do_POST(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        assert self.path == "/v1/traces"
        self.server.requests.append(ExportTraceServiceRequest.FromString(content))
        self.send_response(self.server.status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, format: str, *args: Any) -> None:
        pass


class HungExporter(SpanExporter):
    """Ends a request when it is told so. Never hangs for good, so that a test fails instead."""

    def __init__(self) -> None:
        self.requests = 0
        self.may_end, self.ended = Event(), Event()

    def export(self, spans: Any) -> SpanExportResult:
        self.requests += 1
        self.may_end.wait(20)
        self.ended.set()
        return SpanExportResult.SUCCESS


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    for name in [name for name in os.environ if name.startswith(("OTEL_", "TRACE"))]:
        monkeypatch.delenv(name)
    return monkeypatch


@pytest.fixture
def collector(environment: pytest.MonkeyPatch) -> Iterator[Collector]:
    with Collector() as server:
        thread = Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", server.url)
        yield server
        server.shutdown()
        thread.join()


def writer(deliverer: FakeDeliverer, **given: str) -> BatchWriter:
    options = {"source": "weather", "url": deliverer.url, **given}
    made = DefaultSource(options).writer(LINES, overwrite=False)
    # As Spark does it.
    found = pickle.loads(pickle.dumps(made))
    assert isinstance(found, BatchWriter)
    return found


def write(made: BatchWriter, *names: str) -> None:
    made.write(iter([pa.record_batch([lines_of(*names)], names=["value"])]))


def told(deliverer: FakeDeliverer) -> list[dict[str, str]]:
    """The trace in the headers of each request, flushes among them."""
    return [
        {name: value for name, value in seen.headers.items() if name.startswith("trace")}
        for seen in deliverer.requests
    ]


def parents(deliverer: FakeDeliverer) -> set[str]:
    return {headers["traceparent"] for headers in told(deliverer)}


def attributes(span: Any) -> dict[str, str | int]:
    return {one.key: one.value.string_value or one.value.int_value for one in span.attributes}


def test_without_a_trace_requests_name_none(deliverer: FakeDeliverer) -> None:
    write(writer(deliverer), "a")
    assert told(deliverer) == [{}, {}]


def test_each_request_of_a_task_names_the_trace_of_the_options(deliverer: FakeDeliverer) -> None:
    made = writer(deliverer, traceparent=PARENT, tracestate="congo=t61", batchSize="1")
    write(made, "a", "b")
    assert told(deliverer) == [{"traceparent": PARENT, "tracestate": "congo=t61"}] * 3


def test_the_environment_of_the_driver_is_the_default(
    deliverer: FakeDeliverer, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("TRACEPARENT", PARENT)
    environment.setenv("TRACESTATE", "congo=t61")
    made = writer(deliverer)
    # Only the driver has it.
    environment.delenv("TRACEPARENT")
    write(made, "a")
    assert told(deliverer)[0] == {"traceparent": PARENT, "tracestate": "congo=t61"}


@pytest.mark.parametrize(
    ("environ", "headers"),
    [
        ({}, {}),
        ({"TRACESTATE": "a=1"}, {}),
        ({"TRACEPARENT": PARENT}, {"traceparent": PARENT}),
        ({"TRACEPARENT": PARENT, "TRACESTATE": "a=\n"}, {"traceparent": PARENT}),
        ({"TRACEPARENT": "00-nonsense"}, {}),
    ],
)
def test_a_wrong_environment_costs_the_trace_alone(
    environ: Mapping[str, str], headers: Mapping[str, str]
) -> None:
    assert trace_of(None, None, environ=environ).headers == headers
    assert trace_of(PARENT, None, environ=environ).headers == {"traceparent": PARENT}


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"traceparent": "x"}, "option traceparent is 'x': write 00-TRACE-SPAN-FLAGS"),
        ({"traceparent": PARENT.upper()}, "option traceparent is '00-4BF9"),
        ({"traceparent": f"00-{'0' * 32}-{SPAN}-01"}, "option traceparent is "),
        ({"traceparent": PARENT, "tracestate": "ü"}, "option tracestate is not at most 512"),
        ({"tracestate": "a=1"}, "option tracestate is given: set option traceparent"),
    ],
)
def test_wrong_options_are_refused_on_the_driver(given: dict[str, str], problem: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        parse_options({"source": "s", **given})
    (told,) = caught.value.problems
    assert told.startswith(problem)


def test_the_span_of_the_driver_is_found() -> None:
    assert current_span() == {}
    context = api.SpanContext(
        int(TRACE, 16),
        int(SPAN, 16),
        is_remote=False,
        trace_flags=api.TraceFlags(1),
        trace_state=api.TraceState([("congo", "t61")]),
    )
    with api.use_span(api.NonRecordingSpan(context)):
        assert current_span() == {"traceparent": PARENT, "tracestate": "congo=t61"}


def test_a_driver_without_opentelemetry_has_no_span(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "opentelemetry.trace")
    assert current_span() == {}


def test_a_task_attempt_is_a_span_between_its_parent_and_the_requests(
    deliverer: FakeDeliverer, collector: Collector
) -> None:
    made = writer(deliverer, traceparent=PARENT, tracestate="congo=t61")
    write(made, "a", "b")
    (span,) = collector.spans
    assert (span.trace_id.hex(), span.parent_span_id.hex()) == (TRACE, SPAN)
    assert (span.name, span.kind) == ("send", 4)
    expected = {"traceparent": f"00-{TRACE}-{span.span_id.hex()}-01", "tracestate": "congo=t61"}
    assert told(deliverer) == [expected] * 2
    (publisher,) = {seen.headers["pillion-publisher"] for seen in deliverer.published}
    assert attributes(span) == {
        "messaging.system": "pillion",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.batch.message_count": 2,
        "messaging.client.id": publisher,
        "messaging.pillion.source": "weather",
        "server.address": "127.0.0.1",
        "server.port": int(deliverer.url.rpartition(":")[2]),
    }


def test_the_tasks_of_a_save_begin_one_trace_and_each_save_its_own(
    deliverer: FakeDeliverer, collector: Collector
) -> None:
    made = writer(deliverer)
    write(made, "a")
    write(pickle.loads(pickle.dumps(made)), "b")
    write(writer(deliverer), "c")
    first, second, other = collector.spans
    assert first.trace_id == second.trace_id != other.trace_id
    assert {span.parent_span_id for span in collector.spans} == {b""}
    assert len(parents(deliverer)) == 3


def test_what_is_not_sampled_is_told_so(
    deliverer: FakeDeliverer, collector: Collector, environment: pytest.MonkeyPatch
) -> None:
    environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_always_off")
    write(writer(deliverer), "a")
    (parent,) = parents(deliverer)
    assert not int(parent[-1], 16) & api.TraceFlags.SAMPLED
    write(writer(deliverer, traceparent=PARENT), "b")
    assert len(collector.spans) == 1


def test_a_failed_attempt_is_a_failed_span(deliverer: FakeDeliverer, collector: Collector) -> None:
    deliverer.discards = {"d": {"queue-full": 1}}
    with pytest.raises(UndeliveredError):
        write(writer(deliverer, flushLevel="delivered"), "a")
    (span,) = collector.spans
    assert (span.status.code, attributes(span)["error.type"]) == (2, "UndeliveredError")


def test_a_collector_that_refuses_costs_the_span_alone(
    deliverer: FakeDeliverer, collector: Collector
) -> None:
    collector.status = 400
    write(writer(deliverer), "a")
    assert len(deliverer.accepted) == 1


@pytest.fixture
def hung(environment: pytest.MonkeyPatch) -> Iterator[HungExporter]:
    """Attempts wait for it no longer than a moment, and one request at a time is made."""
    exporter, exports = HungExporter(), BoundedSemaphore(1)
    environment.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    environment.setattr(spans, "OTLPSpanExporter", lambda timeout: exporter)
    environment.setattr(spans, "EXPORT_SECONDS", 0.01)
    environment.setattr(spans, "_EXPORTS", exports)
    yield exporter
    exporter.may_end.set()
    # No thread of the test outlives it.
    assert exports.acquire(timeout=20)


def test_an_attempt_does_not_wait_for_a_collector_that_hangs(
    deliverer: FakeDeliverer, hung: HungExporter
) -> None:
    write(writer(deliverer), "a")
    assert not hung.ended.is_set()
    assert len(deliverer.accepted) == 1
    hung.may_end.set()
    assert hung.ended.wait(20), "the span was given up, not sent late"


def test_requests_to_a_collector_that_hangs_are_bounded(
    deliverer: FakeDeliverer, hung: HungExporter, caplog: pytest.LogCaptureFixture
) -> None:
    for name in "abc":
        write(writer(deliverer), name)
    assert len(deliverer.accepted) == 3
    assert caplog.text.count("a span is lost") == 2
    hung.may_end.set()
    assert hung.ended.wait(20)
    assert hung.requests == 1


@pytest.mark.parametrize(
    ("variables", "warns"),
    [
        ({"OTEL_SDK_DISABLED": "true"}, ""),
        ({"OTEL_TRACES_EXPORTER": "none"}, ""),
        ({"OTEL_EXPORTER_OTLP_PROTOCOL": "grpc"}, "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc'"),
        ({"OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT": "few"}, "few"),
    ],
)
def test_without_spans_the_parent_is_passed_on(
    deliverer: FakeDeliverer,
    collector: Collector,
    environment: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variables: Mapping[str, str],
    warns: str,
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    with caplog.at_level(logging.WARNING, "pyspark_pillion"):
        write(writer(deliverer, traceparent=PARENT), "a")
    assert parents(deliverer) == {PARENT}
    assert collector.requests == []
    assert warns in caplog.text
    assert bool(caplog.text) == bool(warns)


def test_executors_without_the_extra_pass_the_parent_on(
    deliverer: FakeDeliverer,
    collector: Collector,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setitem(sys.modules, "pyspark_pillion.spans", None)
    write(writer(deliverer, traceparent=PARENT), "a")
    assert parents(deliverer) == {PARENT}
    assert "install the extra otel" in caplog.text


def test_wrong_headers_which_may_be_credentials_are_not_logged(
    deliverer: FakeDeliverer,
    collector: Collector,
    environment: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", "very secret")
    write(writer(deliverer), "a")
    assert "secret" not in caplog.text


def test_attempts_at_a_time_have_a_span_each(
    deliverer: FakeDeliverer, collector: Collector
) -> None:
    made = writer(deliverer, traceparent=PARENT)
    with ThreadPoolExecutor(2) as pool:
        list(pool.map(lambda name: write(made, name), "ab"))
    assert len({span.span_id for span in collector.spans}) == 2


def test_a_trace_that_begins_with_tasks_has_an_identifier_for_any_sampler() -> None:
    identifiers = {Trace().identifier for _ in range(64)}
    assert len(identifiers) == 64
    # A sampler by ratio reads the lower half.
    assert len({identifier[16] for identifier in identifiers}) > 4
