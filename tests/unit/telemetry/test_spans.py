"""Spans of requests, commits and attempts, as OpenTelemetry's SDK gets them."""

import asyncio
import logging
import os
import subprocess
import sys
import threading
from collections.abc import Sequence
from typing import Any

import pytest
from aiohttp import web
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.export.in_memory_span_exporter import InMemorySpanExporter
from opentelemetry.trace import SpanKind, StatusCode

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause
from pillion_sidecar.telemetry import spans as module
from pillion_sidecar.telemetry import tracing
from pillion_sidecar.telemetry.metrics import Metrics
from pillion_sidecar.telemetry.spans import BATCH, MOST_COMMITS, MOST_WAITING, Spans
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.trace_context import TraceContext
from pillion_sidecar.wire.relay import RELAY_PATH, TRACE_HEADER
from support.delivery import SUCCESS, Deliverer, destination
from support.intake import Door, alert, lines, target
from support.listening import listening
from support.relay_lines import UID, compact, relayed

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
TRACE_ID, PARENT_ID = (int(part, 16) for part in IDS.split("-"))
SAMPLED = TraceContext(f"00-{IDS}-01", "congo=t61")
UNSAMPLED = TraceContext(f"00-{IDS}-00")
HTTP_503 = DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", 503)
EXPORT = (
    b'<?xml version="1.0" encoding="utf-8"?><CIM CIMVERSION="2.0" DTDVERSION="2.0">'
    b'<MESSAGE ID="42" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication">'
    b'<EXPPARAMVALUE NAME="NewIndication"><INSTANCE CLASSNAME="CIM_AlertIndication"/>'
    b"</EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"
)
PREEMPTED = DeliveryOutcome(DeliveryResult.ERROR, preempted=True)


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """Without variables of whoever runs the tests."""
    for name in [name for name in os.environ if name.startswith("OTEL_")]:
        monkeypatch.delenv(name)
    return monkeypatch


class Recorded:
    """Spans, and what was exported of them once they are closed."""

    def __init__(self) -> None:
        self._exporter = InMemorySpanExporter()
        self.spans = Spans(self._exporter, clock=FakeTime())

    def finish(self) -> Sequence[ReadableSpan]:
        self.spans.close()
        return self._exporter.get_finished_spans()


async def finished(recorded: Recorded) -> Sequence[ReadableSpan]:
    """As :meth:`Recorded.finish`, which blocks."""
    return await asyncio.to_thread(recorded.finish)


@pytest.fixture
def recorded() -> Recorded:
    return Recorded()


def delivering(recorded: Recorded, *outcomes: DeliveryOutcome, **offered: Any) -> Deliverer:
    """Offer an indication, and answer its attempts."""
    deliverer = Deliverer(begin_span=recorded.spans.begin_attempt)
    deliverer.answer = None
    deliverer.apply([destination("siem", protocol="CloudEvents")])
    deliverer.publish("a-1", **offered)
    deliverer.run()
    handler = deliverer.handlers["siem"]
    for number, outcome in enumerate(outcomes, start=1):
        assert len(handler.attempts) == number
        handler.held.popleft()(outcome)
        deliverer.run()
        deliverer.time.advance(30)
        deliverer.run()
    return deliverer


def parent(span: ReadableSpan) -> int | None:
    return None if span.parent is None else span.parent.span_id


# ------------------------------------------------------------------ attempts


def test_each_attempt_is_a_child_of_its_publishers_trace(recorded: Recorded) -> None:
    deliverer = delivering(recorded, HTTP_503, SUCCESS, trace=SAMPLED)
    failed, succeeded = spans = recorded.finish()
    for span in spans:
        assert (span.name, span.kind) == ("send siem", SpanKind.CLIENT)
        assert (span.context.trace_id, parent(span)) == (TRACE_ID, PARENT_ID)
    assert failed.attributes == {
        "messaging.system": "pillion",
        "messaging.operation.name": "send",
        "messaging.operation.type": "send",
        "messaging.destination.name": "siem",
        "messaging.message.id": "a-1",
        "messaging.pillion.destination.protocol": "CloudEvents",
        "messaging.pillion.message.delivery_attempt": 1,
        "http.response.status_code": 503,
        "error.type": "status",
    }
    assert (failed.status.status_code, failed.status.description) == (StatusCode.ERROR, "HTTP 503")
    assert succeeded.attributes is not None
    assert succeeded.attributes["messaging.pillion.message.delivery_attempt"] == 2
    assert "error.type" not in succeeded.attributes
    assert succeeded.status.status_code is StatusCode.UNSET
    # Headers name the attempt; everything else keeps the publisher's.
    first, second = deliverer.handlers["siem"].attempts
    expected = [f"00-{TRACE_ID:032x}-{span.context.span_id:016x}-01" for span in spans]
    assert [first.span, second.span] == [TraceContext(one, "congo=t61") for one in expected]
    assert first.indication.trace == SAMPLED


@pytest.mark.parametrize("cause", [*FailureCause])
def test_a_failed_attempt_has_its_cause(cause: FailureCause) -> None:
    recorded = Recorded()
    delivering(recorded, DeliveryOutcome(DeliveryResult.ERROR, "no", cause=cause), trace=SAMPLED)
    (span,) = recorded.finish()
    assert span.attributes is not None
    assert span.attributes["error.type"] == cause.value


@pytest.mark.parametrize("trace", [None, UNSAMPLED])
def test_an_attempt_without_a_sampled_trace_is_not_recorded(trace: TraceContext | None) -> None:
    recorded = Recorded()
    deliverer = delivering(recorded, SUCCESS, trace=trace)
    assert deliverer.handlers["siem"].attempts[0].span is None
    assert recorded.finish() == ()


def test_the_sampler_of_the_environment_decides(environment: pytest.MonkeyPatch) -> None:
    environment.setenv("OTEL_TRACES_SAMPLER", "always_on")
    recorded = Recorded()
    delivering(recorded, SUCCESS, trace=UNSAMPLED)
    environment.setenv("OTEL_TRACES_SAMPLER", "traceidratio")
    environment.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    none = Recorded()
    deliverer = delivering(none, SUCCESS, trace=SAMPLED)
    assert (len(recorded.finish()), len(none.finish())) == (1, 0)
    assert deliverer.handlers["siem"].attempts[0].span is None


def test_what_another_destination_preempts_was_no_attempt(recorded: Recorded) -> None:
    delivering(recorded, PREEMPTED, SUCCESS, trace=SAMPLED)
    (span,) = recorded.finish()
    assert span.status.status_code is StatusCode.UNSET


def test_a_strange_identifier_costs_no_batch(recorded: Recorded) -> None:
    deliverer = Deliverer(begin_span=recorded.spans.begin_attempt)
    deliverer.apply([destination("siem")])
    for identifier in ("\ud800" + "x" * 2000, "b"):
        deliverer.publish(identifier, trace=SAMPLED)
    deliverer.run()
    told = [span.attributes["messaging.message.id"] for span in recorded.finish()]  # type: ignore[index]
    assert told == ["?" + "x" * 255, "b"]


# ------------------------------------------------------------------ requests and commits


async def test_a_request_and_its_commit_are_children_of_the_publishers_trace(
    recorded: Recorded,
) -> None:
    async with Door(spans=recorded.spans).open() as door:
        door.context.durability = Durability.DISK
        door.queues.barriers = []
        body = lines(alert("a"), alert("b")) + b"no JSON"
        status, _, _ = await door.post(body, headers={"traceparent": SAMPLED.parent})
        assert status == 207
        # Lines carry what their publisher has sent.
        assert {one.trace for one in door.queues.taken} == {TraceContext(SAMPLED.parent)}
        assert recorded.spans.exports.exported == 0
        door.queues.secure()
    request, commit = await finished(recorded)
    assert (request.name, request.kind) == ("accept", SpanKind.CONSUMER)
    assert (request.context.trace_id, parent(request)) == (TRACE_ID, PARENT_ID)
    assert request.attributes == {
        "messaging.system": "pillion",
        "messaging.operation.name": "accept",
        "messaging.operation.type": "process",
        "messaging.batch.message_count": 3,
        "http.response.status_code": 207,
    }
    assert request.status.status_code is StatusCode.UNSET
    assert (commit.name, commit.kind) == ("commit", SpanKind.INTERNAL)
    assert parent(commit) == request.context.span_id
    assert commit.attributes is not None
    assert commit.attributes["messaging.batch.message_count"] == 2


async def test_a_request_without_a_trace_begins_one(recorded: Recorded) -> None:
    async with Door(spans=recorded.spans).open() as door:
        await door.post(lines(alert("a")))
        (taken,) = door.queues.taken
    # Nothing is durable without a journal.
    (request,) = await finished(recorded)
    context = request.context
    flags = f"{context.trace_flags:02x}"
    assert request.parent is None
    expected = f"00-{context.trace_id:032x}-{context.span_id:016x}-{flags}"
    assert taken.trace == TraceContext(expected)


@pytest.fixture
def unsampled(environment: pytest.MonkeyPatch) -> Recorded:
    environment.setenv("OTEL_TRACES_SAMPLER", "parentbased_traceidratio")
    environment.setenv("OTEL_TRACES_SAMPLER_ARG", "0")
    return Recorded()


async def test_a_request_that_is_not_sampled_leaves_no_trace(unsampled: Recorded) -> None:
    async with Door(spans=unsampled.spans).open() as door:
        await door.post(lines(alert("a")))
        await door.post(lines(alert("b")), headers={"traceparent": UNSAMPLED.parent})
        assert [one.trace for one in door.queues.taken] == [None, UNSAMPLED]
    assert await finished(unsampled) == ()


async def test_a_refused_request_has_its_status(recorded: Recorded) -> None:
    async with Door(spans=recorded.spans).open() as door:
        await door.post(b"no JSON")
        door.queues.full.add("siem")
        await door.post(lines(alert("a")))
    told = [(span.status.status_code, span.attributes) for span in await finished(recorded)]
    assert [code for code, _ in told] == [StatusCode.ERROR] * 2
    assert [one["error.type"] for _, one in told if one is not None] == ["400", "429"]


async def test_an_export_message_is_a_request_too(recorded: Recorded) -> None:
    async with Door(spans=recorded.spans).open() as door:
        headers = {
            "CIMExport": "MethodRequest",
            "CIMExportMethod": "ExportIndication",
            "traceparent": SAMPLED.parent,
        }
        kind = "application/xml; charset=utf-8"
        await door.post(EXPORT, path="/CIMListener", content_type=kind, headers=headers)
        assert len(door.queues.taken) == 1
    (request,) = await finished(recorded)
    assert (request.name, parent(request)) == ("accept", PARENT_ID)
    assert request.attributes is not None
    assert request.attributes["messaging.batch.message_count"] == 1


async def test_what_sidecars_relay_is_no_request_of_a_publisher(recorded: Recorded) -> None:
    door = Door(spans=recorded.spans)
    door.routes.takes_relayed = True
    door.routes.by_uid = {UID: target()}
    async with door.open():
        headers = {TRACE_HEADER: f"{SAMPLED.parent} 0 {SAMPLED.state}"}
        await door.post(compact(relayed("a", 1), relayed("b", 2)), path=RELAY_PATH, headers=headers)
        # The gateway's attempts are of the publisher's trace, too, and of none without one.
        assert [one.trace for one in door.queues.taken] == [SAMPLED, None]
    assert await finished(recorded) == ()


async def test_what_a_request_raises_ends_its_span(recorded: Recorded) -> None:
    span = recorded.spans.begin_request(SAMPLED)
    assert span is not None

    async def fail() -> web.Response:
        raise ConnectionResetError

    with pytest.raises(ConnectionResetError):
        await span.follow(fail())
    (ended,) = await finished(recorded)
    assert ended.attributes is not None
    assert ended.attributes["error.type"] == "ConnectionResetError"


def test_commits_with_a_span_are_bounded(recorded: Recorded) -> None:
    request = recorded.spans.begin_request(SAMPLED)
    assert request is not None
    committed = [request.begin_commit(1) for _ in range(MOST_COMMITS + 1)]
    for one in committed:
        one()
    assert len(recorded.finish()) == MOST_COMMITS
    assert recorded.spans.exports.dropped == 1


def test_the_resource_names_the_service(environment: pytest.MonkeyPatch) -> None:
    def named() -> object:
        recorded = Recorded()
        delivering(recorded, SUCCESS, trace=SAMPLED)
        return recorded.finish()[0].resource.attributes["service.name"]

    assert named() == "pillion"
    environment.setenv("OTEL_RESOURCE_ATTRIBUTES", "service.name=plant")
    assert named() == "plant"
    environment.setenv("OTEL_SERVICE_NAME", "alerts")
    assert named() == "alerts"


# ------------------------------------------------------------------ the collector


class Scripted(SpanExporter):
    """An exporter that hangs or fails."""

    def __init__(self, clock: FakeTime, result: SpanExportResult | None = None) -> None:
        """``result``: None, it raises."""
        self.clock = clock
        self.result = result
        self.began = threading.Event()
        self.goes_on = threading.Event()
        self.goes_on.set()

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        self.began.set()
        self.goes_on.wait()
        logging.getLogger(module._EXPORTER_LOG).error("HTTP %d\x1b[31m", 503)
        if self.result is None:
            raise OSError
        return self.result


def record(spans: Spans, count: int) -> None:
    """Begin and end so many."""
    request = spans.begin_request(SAMPLED)
    assert request is not None
    for _ in range(count):
        request.begin_commit(1)()


def test_a_collector_that_hangs_costs_spans_alone(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "CLOSING_SECONDS", 0.0)
    exporter = Scripted(FakeTime())
    exporter.goes_on.clear()
    spans = Spans(exporter, clock=exporter.clock)
    record(spans, BATCH)
    exporter.began.wait()
    record(spans, MOST_WAITING + 10)
    assert (spans.exports.exported, spans.exports.dropped) == (0, 10)
    spans.close()
    assert spans.exports.dropped == BATCH + MOST_WAITING + 10
    (line,) = caplog.records
    assert (vars(line)["event"], vars(line)["count"]) == ("spans-dropped", spans.exports.dropped)
    record(spans, 1)
    assert spans.exports.dropped == BATCH + MOST_WAITING + 11
    exporter.goes_on.set()
    spans.exports._thread.join()


@pytest.mark.parametrize("result", [SpanExportResult.FAILURE, None])
def test_what_a_collector_refuses_is_counted_and_logged_once_a_minute(
    caplog: pytest.LogCaptureFixture, result: SpanExportResult | None
) -> None:
    exporter = Scripted(FakeTime(), result)
    spans = Spans(exporter, clock=exporter.clock)
    record(spans, 3 * BATCH)
    spans.close()
    assert (spans.exports.exported, spans.exports.dropped) == (0, 3 * BATCH)
    # The library's own lines are not in the log, but for the reason.
    reason = "HTTP 503 [31m" if result is not None else "OSError"
    told = [(vars(line)["count"], vars(line)["reason"]) for line in caplog.records]
    assert told == [(BATCH, reason), (2 * BATCH, reason)]


async def test_what_a_collector_redirects_is_dropped_and_told(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def export() -> Spans:
        spans = tracing.create_spans(FakeTime())
        assert spans is not None
        record(spans, 3)
        spans.close()
        return spans

    async with listening(status=302) as collector:
        environment.setenv(ENDPOINT, collector.url)
        spans = await asyncio.to_thread(export)
    assert (spans.exports.exported, spans.exports.dropped) == (0, 3)
    (line,) = [one for one in caplog.records if vars(one).get("event") == "spans-dropped"]
    assert (vars(line)["count"], "HTTP 302, a redirect" in vars(line)["reason"]) == (3, True)


def test_spans_are_counted_in_the_metrics(recorded: Recorded) -> None:
    delivering(recorded, SUCCESS, trace=SAMPLED)
    recorded.finish()
    metrics = Metrics(clock=FakeTime(), version="1")
    assert "pillion_spans_total{" not in "".join(metrics.exposition())
    metrics.watch(spans=recorded.spans.exports)
    text = "".join(metrics.exposition())
    assert 'pillion_spans_total{result="exported"} 1\n' in text
    assert 'pillion_spans_total{result="dropped"} 0\n' in text


# ------------------------------------------------------------------ the switch

ENDPOINT = "OTEL_EXPORTER_OTLP_ENDPOINT"


@pytest.mark.parametrize("endpoint", tracing.ENDPOINTS)
@pytest.mark.parametrize(
    "more", [{}, {"OTEL_SDK_DISABLED": "True"}, {"OTEL_TRACES_EXPORTER": "none"}]
)
def test_an_endpoint_asks_for_spans(
    environment: pytest.MonkeyPatch, endpoint: str, more: dict[str, str]
) -> None:
    environment.setenv(endpoint, "http://127.0.0.1:1")
    for name, value in more.items():
        environment.setenv(name, value)
    spans = tracing.create_spans(FakeTime())
    assert (spans is None) is bool(more)
    if spans is not None:
        spans.close()


def test_another_protocol_is_told(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv(ENDPOINT, "http://127.0.0.1:4317")
    environment.setenv("OTEL_EXPORTER_OTLP_PROTOCOL", "grpc")
    assert tracing.create_spans(FakeTime()) is None
    (line,) = caplog.records
    assert vars(line)["problem"].startswith(
        "OTEL_EXPORTER_OTLP_PROTOCOL is 'grpc': set it to http/protobuf, and "
        "OTEL_EXPORTER_OTLP_ENDPOINT to the port"
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("OTEL_SPAN_ATTRIBUTE_COUNT_LIMIT", "-1"),
        ("OTEL_PYTHON_EXPORTER_OTLP_HTTP_CREDENTIAL_PROVIDER", "nobody"),
    ],
)
def test_what_opentelemetry_refuses_is_told(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture, name: str, value: str
) -> None:
    environment.setenv(ENDPOINT, "http://127.0.0.1:1")
    environment.setenv(name, value)
    threads = threading.active_count()
    assert tracing.create_spans(FakeTime()) is None
    assert threading.active_count() == threads
    (line,) = caplog.records
    assert vars(line)["event"] == "spans-off"
    assert value in vars(line)["problem"] or name in vars(line)["problem"]


def test_a_wrong_header_is_told_without_its_value(
    environment: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    environment.setenv(ENDPOINT, "http://127.0.0.1:1")
    environment.setenv("OTEL_EXPORTER_OTLP_HEADERS", "Bearer s3cret")
    spans = tracing.create_spans(FakeTime())
    assert spans is not None
    spans.close()
    assert "OTEL_EXPORTER_OTLP_HEADERS" in caplog.text
    assert "s3cret" not in caplog.text


PROGRAM = """
import logging, sys
{block}
logging.basicConfig(format="%(message)s", stream=sys.stdout)
import pillion_cli.commands.sidecar, pillion_sidecar.embedded
from pillion_sidecar.clock import SystemClock
from pillion_sidecar.telemetry.tracing import create_spans
assert create_spans(SystemClock()) is None
print([name for name in sys.modules if name.startswith("opentelemetry.")])
"""
BLOCK = 'sys.modules["opentelemetry"] = None'


@pytest.mark.parametrize(
    ("variables", "block", "said"),
    [
        ({}, "", "[]\n"),
        (
            {ENDPOINT: "http://127.0.0.1:1"},
            BLOCK,
            "no spans are recorded; OTEL_EXPORTER_OTLP_ENDPOINT is set: install the extra otel "
            '(pip install "pillion[otel]")\n[]\n',
        ),
    ],
)
def test_nothing_of_opentelemetry_is_loaded_unasked(
    environment: pytest.MonkeyPatch, variables: dict[str, str], block: str, said: str
) -> None:
    for name, value in variables.items():
        environment.setenv(name, value)
    program = PROGRAM.format(block=block)
    answer = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert (answer.stdout, answer.stderr) == (said, "")
