"""The listener over real HTTP: order, answers, and being as bad as it is told to be (D.5)."""

import asyncio
import gzip
import io
import json
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from typing import Any

import aiohttp
import pytest
import pytest_asyncio

from pillion_cim.cimxml.export import EXPORT_HEADERS, ExportTemplate
from pillion_cim.cimxml.response import ExportResponseError, ResponseChecker
from pillion_cim.model import CIMInstance, CIMValue
from pillion_cim.schema import load_schema
from pillion_cli.listener.arrivals import JSONReporter
from pillion_cli.listener.sequence import Sequencer
from pillion_cli.listener.server import MAX_BODY, Behaviour, Listener, serve
from pillion_sidecar.clock import Timer
from pillion_sidecar.testing import FakeTime

SCHEMA = load_schema()
ALERT_CLASS = SCHEMA.get("CIM_AlertIndication")
LIFETIME = 900.0


class Reports(JSONReporter):
    """Keeps the lines, and lets a test wait until requests have been treated badly."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self._answered = asyncio.Semaphore(0)
        super().__init__(self.lines.append)

    def answered(self, what: str, *, path: str) -> None:
        self._answered.release()

    async def wait_for_answer(self) -> None:
        await self._answered.acquire()


class WatchedTime(FakeTime):
    """Lets a test wait until someone waits for time to pass."""

    def __init__(self) -> None:
        super().__init__()
        self.awaited = asyncio.Event()

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.awaited.set()
        return super().call_later(delay, callback)


class Peer:
    """A listener, and a sender set against it."""

    def __init__(self, listener: Listener, url: str, told: Reports) -> None:
        self.listener = listener
        self.url = url
        self.told = told
        self.session = aiohttp.ClientSession()

    async def export(
        self, identifier: str, number: int | None = None, *, context: str = "A", path: str = "/"
    ) -> tuple[int, Mapping[str, str], bytes]:
        """Send a CIM-XML export message; return status, headers and body of the answer."""
        body = export_body(identifier, None if number is None else context, number)
        headers = dict(EXPORT_HEADERS)
        async with self.session.post(
            self.url + path, data=body, headers=headers, allow_redirects=False
        ) as answer:
            return answer.status, answer.headers, await answer.read()

    async def event(self, **properties: Any) -> int:
        """Send a CloudEvent; return the status of the answer."""
        status, _ = await self.post(event_body(**properties), "application/cloudevents+json")
        return status

    async def post(self, body: bytes, content_type: str, path: str = "/") -> tuple[int, str]:
        headers = {"Content-Type": content_type}
        async with self.session.post(
            self.url + path, data=io.BytesIO(body), headers=headers
        ) as answer:
            return answer.status, await answer.text()

    async def behave(self, **changes: Any) -> None:
        async with self.session.post(self.url + "/-/behaviour", json=changes) as answer:
            assert answer.status == 200, await answer.text()

    async def arrivals(self, query: str = "") -> list[dict[str, Any]]:
        async with self.session.get(f"{self.url}/-/arrivals?{query}") as answer:
            assert answer.status == 200
            return [json.loads(line) for line in (await answer.text()).splitlines()]

    def reports(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.told.lines]

    def verdicts(self) -> list[str]:
        """``delivered IDENTIFIER``, one for each line."""
        return [f"{line['verdict']} {line['identifier']}" for line in self.reports()]


def export_body(identifier: str, context: str | None, number: int | None) -> bytes:
    assert ALERT_CLASS is not None
    values: dict[str, CIMValue] = {
        "IndicationIdentifier": identifier,
        "AlertType": 5,
        "PerceivedSeverity": 6,
        "ProbableCause": 1,
    }
    return ExportTemplate(CIMInstance("CIM_AlertIndication", values, ALERT_CLASS.types)).render(
        message_id="m<1>",
        filter_name="severe",
        sequence_context=context,
        sequence_number=number,
        correlated=False,
    )


def event_body(**properties: Any) -> bytes:
    return json.dumps(
        {
            "specversion": "1.0",
            "id": "1",
            "source": "/s",
            "type": "org.dmtf.cim.indication.CIM_AlertIndication",
            "data": {"class": "CIM_AlertIndication", "properties": properties},
        }
    ).encode()


@asynccontextmanager
async def listening(
    time: FakeTime, behaviour: Behaviour, *, count: int | None = None, keep: int = 0
) -> AsyncIterator[Peer]:
    told = Reports()
    listener = Listener(
        schema=SCHEMA,
        clock=time,
        timers=time,
        reporter=told,
        sequencer=Sequencer(lifetime=LIFETIME),
        behaviour=behaviour,
        count=count,
        keep=keep,
    )
    async with serve(listener, address="127.0.0.1", port=0) as url:
        peer = Peer(listener, url, told)
        async with peer.session:
            yield peer


@pytest_asyncio.fixture
async def peer(fake_time: FakeTime) -> AsyncIterator[Peer]:
    async with listening(fake_time, Behaviour()) as found:
        yield found


# --- order


async def test_a_cim_xml_export_is_answered_and_told(peer: Peer) -> None:
    status, headers, body = await peer.export("one", 41, path="/siem/x")
    ResponseChecker().check(status=status, headers=headers, body=body, message_id="m<1>")
    (line,) = peer.reports()
    properties = line.pop("properties")
    assert line == {
        "verdict": "delivered",
        "reason": "first of its sender",
        "class": "CIM_AlertIndication",
        "identifier": "one",
        "context": "A",
        "number": 41,
        "missing": 0,
        "filter": "severe",
        "protocol": "CIM-XML",
        "path": "/siem/x",
    }
    assert properties["PerceivedSeverity"] == 6


async def test_a_cloud_event_is_answered_and_told(peer: Peer) -> None:
    status = await peer.event(IndicationIdentifier="one", SequenceContext="A", SequenceNumber=3)
    assert status == 204
    (line,) = peer.reports()
    assert (line["protocol"], line["identifier"], line["number"]) == ("CloudEvents", "one", 3)


async def test_a_duplicate_is_dropped_and_answered_with_success(peer: Peer) -> None:
    for number in (0, 1, 1, 0, 2):
        status, headers, body = await peer.export(f"i{number}", number)
        ResponseChecker().check(status=status, headers=headers, body=body, message_id="m<1>")
    assert peer.verdicts() == [
        "delivered i0",
        "delivered i1",
        "duplicate i1",
        "duplicate i0",
        "delivered i2",
    ]


async def test_a_gap_is_held_until_it_fills(peer: Peer) -> None:
    for number in (0, 2, 3, 1):
        await peer.export(f"i{number}", number)
    assert peer.verdicts() == [
        "delivered i0",
        "held i2",
        "held i3",
        "delivered i1",
        "delivered i2",
        "delivered i3",
    ]
    assert peer.listener.summary.gaps == 0


async def test_a_gap_is_given_up_at_the_end_of_the_held_ones_lifetime(
    peer: Peer, fake_time: FakeTime
) -> None:
    await peer.export("i0", 0)
    await peer.export("i3", 3)
    assert peer.listener.summary.held == 1
    fake_time.advance(LIFETIME - 1)
    assert peer.verdicts() == ["delivered i0", "held i3"]
    fake_time.advance(1)
    assert peer.verdicts() == ["delivered i0", "held i3", "delivered i3"]
    assert peer.reports()[-1]["missing"] == 2
    summary = peer.listener.summary
    assert (summary.held, summary.gaps, summary.missing) == (0, 1, 2)
    await peer.export("i1", 1)
    assert peer.verdicts()[-1] == "late i1"


async def test_the_timer_follows_what_is_held(peer: Peer, fake_time: FakeTime) -> None:
    await peer.export("i0", 0)
    await peer.export("i2", 2)
    assert fake_time.next_due() == fake_time.monotonic() + LIFETIME
    await peer.export("i1", 1)
    assert fake_time.next_due() is None


async def test_paths_are_senders_of_their_own(peer: Peer) -> None:
    await peer.export("a", 5, path="/a")
    await peer.export("b", 0, path="/b")
    assert peer.verdicts() == ["delivered a", "delivered b"]


async def test_a_new_context_and_no_sequence(peer: Peer) -> None:
    await peer.export("a7", 7)
    await peer.export("b0", 0, context="B")
    await peer.export("a8", 8)
    await peer.export("none")
    assert peer.verdicts() == ["delivered a7", "delivered b0", "late a8", "delivered none"]


async def test_it_ends_after_so_many(fake_time: FakeTime) -> None:
    async with listening(fake_time, Behaviour(), count=2) as peer:
        await peer.export("i0", 0)
        await peer.export("i0", 0)
        assert not peer.listener.finished.is_set()
        await peer.export("i1", 1)
        assert peer.listener.finished.is_set()


async def test_what_is_held_is_told_at_the_end(fake_time: FakeTime) -> None:
    async with listening(fake_time, Behaviour()) as peer:
        await peer.export("i0", 0)
        await peer.export("i2", 2)
    peer.listener.end()
    assert [line["verdict"] for line in peer.reports()[:-1]] == ["delivered", "held", "delivered"]
    assert peer.reports()[-1]["summary"]["missing"] == 1
    assert fake_time.next_due() is None


# --- wrong requests


@pytest.mark.parametrize(
    ("body", "content_type", "status", "part"),
    [
        (b"", "application/cloudevents+json", 400, "not JSON"),
        (b"[" * 100_000, "application/cloudevents+json", 400, "not JSON"),
        (b"{}", "application/cloudevents+json", 400, "no specversion"),
        (
            event_body(SequenceContext="A", SequenceNumber="x"),
            "application/cloudevents+json",
            400,
            "sint64",
        ),
        (b"{}", "application/cloudevents-batch+json", 400, "no JSON array"),
        (b"[5]", "application/cloudevents-batch+json", 400, "no JSON object"),
        (b"{}", "application/json", 415, "CIM-XML and CloudEvents"),
        (b"<CIM/>", "application/xml", 400, ""),
        (b"x" * (MAX_BODY + 1), "application/cloudevents+json", 413, ""),
    ],
)
async def test_what_is_no_indication_is_refused(
    peer: Peer, body: bytes, content_type: str, status: int, part: str
) -> None:
    answered, text = await peer.post(body, content_type)
    assert answered == status
    assert part in text
    assert peer.reports() == []
    assert peer.listener.summary.received == 0


@pytest.mark.parametrize("body", [b"{}", gzip.compress(b"<CIM/>", mtime=0)])
async def test_a_compressed_body_is_415(peer: Peer, body: bytes) -> None:
    headers = {"Content-Type": "application/xml", "Content-Encoding": "gzip"}
    async with peer.session.post(peer.url, data=body, headers=headers) as answer:
        assert answer.status == 415
    assert peer.listener.summary.wrong == 1


async def test_a_wrong_export_request_is_told_why(peer: Peer) -> None:
    headers = {"Content-Type": "application/xml"}
    async with peer.session.post(peer.url, data=b"<CIM/>", headers=headers) as answer:
        assert answer.status == 400
        assert answer.headers["CIMError"] == "unsupported-operation"
        assert "CIMExport" in answer.headers["CIMErrorDetails"]
    assert peer.listener.summary.wrong == 1


async def test_an_unknown_method_is_answered_with_a_cim_error(peer: Peer) -> None:
    body = export_body("x", None, None).replace(b"ExportIndication", b"Dance")
    headers = dict(EXPORT_HEADERS) | {"CIMExportMethod": "Dance"}
    async with peer.session.post(peer.url, data=body, headers=headers) as answer:
        assert answer.status == 200
        assert b'<ERROR CODE="7"' in await answer.read()


async def test_only_post_is_allowed(peer: Peer) -> None:
    async with peer.session.get(peer.url) as answer:
        assert answer.status == 405
        assert answer.headers["Allow"] == "POST"


# --- bad behaviour


async def test_a_status_with_retry_after_for_so_many(fake_time: FakeTime) -> None:
    bad = Behaviour(fail=2, retry_after=7)
    async with listening(fake_time, bad) as peer:
        for _ in range(2):
            status, headers, _body = await peer.export("i0", 0)
            assert (status, headers["Retry-After"]) == (503, "7")
        assert (await peer.export("i0", 0))[0] == 200
        assert peer.verdicts() == ["delivered i0"]
        assert peer.listener.summary.refused == 2


async def test_a_redirect(peer: Peer) -> None:
    await peer.behave(redirect="http://127.0.0.1:9/x")
    status, headers, _ = await peer.export("i0", 0)
    assert (status, headers["Location"]) == (307, "http://127.0.0.1:9/x")
    assert peer.verdicts() == []


async def test_a_cim_error(peer: Peer) -> None:
    await peer.behave(cim_error=1, fail=1)
    status, headers, body = await peer.export("i0", 0)
    with pytest.raises(ExportResponseError) as caught:
        ResponseChecker().check(status=status, headers=headers, body=body, message_id="m<1>")
    assert caught.value.code == 1
    assert (await peer.export("i0", 0))[0] == 200
    assert peer.verdicts() == ["delivered i0"]
    await peer.behave(cim_error=1)
    assert await peer.event(IndicationIdentifier="x") == 500


async def test_a_good_status_of_another_kind_takes_the_indication(peer: Peer) -> None:
    await peer.behave(status=202)
    assert await peer.event(IndicationIdentifier="x") == 202
    assert peer.verdicts() == ["delivered x"]


async def test_closing_takes_the_indication_so_its_retry_is_a_duplicate(peer: Peer) -> None:
    await peer.behave(close=True, fail=1)
    with pytest.raises(aiohttp.ServerDisconnectedError):
        await peer.export("i0", 0)
    assert (await peer.export("i0", 0))[0] == 200
    assert peer.verdicts() == ["delivered i0", "duplicate i0"]


async def test_garbage_is_no_http(peer: Peer) -> None:
    await peer.behave(garbage=True, fail=1)
    with pytest.raises(aiohttp.ClientError) as caught:
        await peer.export("i0", 0)
    assert not isinstance(caught.value, aiohttp.ServerDisconnectedError)
    assert peer.verdicts() == []
    assert (await peer.export("i0", 0))[0] == 200


async def test_hanging_never_answers_and_does_not_hold_up_the_end(fake_time: FakeTime) -> None:
    async with listening(fake_time, Behaviour(hang=True)) as peer:
        hung = asyncio.ensure_future(peer.export("i0", 0))
        await peer.told.wait_for_answer()
        assert not hung.done()
        await peer.behave()
        assert (await peer.export("i1", 0))[0] == 200
        hung.cancel()
        with pytest.raises(asyncio.CancelledError):
            await hung
        await peer.export("i2", 1)
        await peer.behave(hang=True)
        held_up = asyncio.ensure_future(peer.export("i3", 2))
        await peer.told.wait_for_answer()
    with pytest.raises(aiohttp.ClientError):
        await held_up
    assert peer.verdicts() == ["delivered i1", "delivered i2"]


async def test_a_delay_passes_before_the_answer() -> None:
    time = WatchedTime()
    async with listening(time, Behaviour(delay=5)) as peer:
        slow = asyncio.ensure_future(peer.export("i0", 0))
        await time.awaited.wait()
        time.advance(4.9)
        assert not slow.done()
        assert peer.verdicts() == []
        time.advance(0.1)
        assert (await slow)[0] == 200
        assert peer.verdicts() == ["delivered i0"]


async def test_a_delay_does_not_hold_up_the_end() -> None:
    time = WatchedTime()
    async with listening(time, Behaviour(delay=5)) as peer:
        slow = asyncio.ensure_future(peer.export("i0", 0))
        await time.awaited.wait()
        slow.cancel()
        with pytest.raises(asyncio.CancelledError):
            await slow
    assert time.next_due() is None


async def test_the_behaviour_can_be_seen_and_changed(peer: Peer) -> None:
    await peer.behave(status=500, fail=2)
    assert (await peer.export("i0", 0))[0] == 500
    async with peer.session.get(peer.url + "/-/behaviour") as answer:
        shown = await answer.json()
    assert (shown["status"], shown["fail"]) == (500, 1)
    async with peer.session.post(peer.url + "/-/behaviour", json={"status": 1}) as answer:
        assert answer.status == 400
        assert "status: 1 is not" in (await answer.json())["error"]
    async with peer.session.post(peer.url + "/-/behaviour", data=b"[" * 10_000) as answer:
        assert answer.status == 400
    await peer.behave()
    assert (await peer.export("i0", 0))[0] == 200
    async with peer.session.get(peer.url + "/-/summary") as answer:
        assert (await answer.json())["delivered"] == 1


async def test_what_came_can_be_read_back_from_where_one_was() -> None:
    async with listening(FakeTime(), Behaviour(), keep=3) as peer:
        for number in range(4):
            assert (await peer.export(f"i{number}", number))[0] == 200
        assert [(one["index"], one["identifier"]) for one in await peer.arrivals()] == [
            (2, "i1"),
            (3, "i2"),
            (4, "i3"),
        ]
        assert [one["index"] for one in await peer.arrivals("after=2&limit=1")] == [3]
        assert await peer.arrivals("after=4") == []
        (last,) = await peer.arrivals("after=3")
        assert (last["verdict"], last["context"], last["number"]) == ("delivered", "A", 3)


@pytest.mark.parametrize("query", ["after=-1", "after=x", "limit=1e3", f"after={'9' * 5000}"])
async def test_a_place_that_is_no_count_is_refused(peer: Peer, query: str) -> None:
    async with peer.session.get(f"{peer.url}/-/arrivals?{query}") as answer:
        assert answer.status == 400
        assert "is no count" in (await answer.json())["error"]
