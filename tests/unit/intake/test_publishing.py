"""Intake over HTTP, with scripted doubles behind it."""

import asyncio
import errno
import json
from collections.abc import AsyncIterator, Sequence
from typing import NoReturn

import pytest

from pillion_sidecar.config.schema.service import Acknowledgement
from pillion_sidecar.history.faults import FaultList
from pillion_sidecar.indication import DiscardReason, Indication, Refusal, Target
from pillion_sidecar.intake import bodies
from pillion_sidecar.intake.limits import IntakeLimits
from pillion_sidecar.reliability.kept_receipts import KeptReceipts
from pillion_sidecar.trace_context import TraceContext
from support.intake import Door, alert, lines, target


async def test_a_batch_is_accepted_in_order() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(
            lines(*(alert(str(n)) for n in range(1000))), path="/v1/indications?source=s"
        )
        assert (status, document) == (200, {"accepted": 1000, "duplicate": 0, "refused": []})
        assert door.queues.identifiers == [str(n) for n in range(1000)]
        assert {one.source for one in door.queues.taken} == {"s"}
        assert door.observer.counts == {("ndjson", "accepted"): 1000}


async def test_the_last_line_needs_no_newline_and_blank_lines_count_only_as_numbers() -> None:
    async with Door().open() as door:
        body = lines(alert("0")) + b"\r\n  \n" + json.dumps(alert("3")).encode() + b"\n{"
        status, document, _ = await door.post(body)
        assert status == 207
        assert document["accepted"] == 2
        assert [one["line"] for one in document["refused"]] == [4]


async def test_a_wrong_line_is_told_with_field_and_remedy_and_the_others_are_accepted() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(
            lines(alert("a"), alert("b", PerceivedSeverity=70_000), alert("c"))
        )
        assert status == 207
        (refused,) = document["refused"]
        assert (refused["line"], refused["status"]) == (1, 400)
        assert refused["field"] == "properties.PerceivedSeverity"
        assert "70000" in refused["reason"]
        assert "65535" in refused["reason"]
        assert door.queues.identifiers == ["a", "c"]


@pytest.mark.parametrize(
    ("line", "says"),
    [
        (b"not json", "not JSON"),
        (b'{"class":"CIM_AlertIndication","properties":{"Message":"\xff"}}', "UTF-8"),
        (b"[" * 100_000, "deep"),
        (b'{"a":' * 100_000, "deep"),
        (b"[1]", "not an object"),
        (b'{"class":"CIM_AlertIndication"}', "properties"),
        (b'{"class":"CIM_Nothing","properties":{"X":1}}', "type"),
        (lines(alert("x", AlertType=float("nan"))).strip(), "NaN"),
        (lines(alert("x", Message="a\0b")).strip(), "U+0000"),
        (lines(alert("x", Message="a\ud800b")).strip(), "U+D800"),
        ('{"class":"CIM_AlertIndication","properties":{"Message":"\uffff"}}'.encode(), "U+FFFF"),
        (lines(alert("x", AlertType="six")).strip(), "integer"),
        (lines(alert("x", AlertType=True)).strip(), "integer"),
        (b"1" * 5000, "digits"),
        (lines(alert("x") | {"sequence": 3}).strip(), "without group"),
        (lines(alert("x") | {"colour": 3}).strip(), "colour"),
        (lines(alert("x") | {"source": ""}).strip(), "source"),
        (lines(alert("x") | {"expires": "tomorrow"}).strip(), "RFC 3339"),
        (lines(alert("x") | {"expires": "2026-02-30T00:00:00Z"}).strip(), "RFC 3339"),
        (
            b'{"class":"CIM_AlertIndication","properties":{"AlertType":1,"AlertType":2,'
            b'"PerceivedSeverity":5,"ProbableCause":52}}',
            "twice",
        ),
        (
            b'{"class":"CIM_AlertIndication","properties":{"AlertType":1,"alerttype":2,'
            b'"PerceivedSeverity":5,"ProbableCause":52}}',
            "same property",
        ),
    ],
)
async def test_bad_input_gets_one_clear_answer_and_nothing_else_suffers(
    line: bytes, says: str
) -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(lines(alert("before"), line, alert("after")))
        assert status == 207
        (refused,) = document["refused"]
        assert (refused["line"], refused["status"]) == (1, 400)
        assert says in refused["reason"]
        assert len(refused["reason"]) < 2000
        assert door.queues.identifiers == ["before", "after"]


async def test_a_line_that_is_too_long_is_skipped_without_being_held() -> None:
    async with Door(limits=IntakeLimits(line_bytes=1000)).open() as door:
        status, document, _ = await door.post(
            lines(alert("a"), alert("b", Message="x" * 500_000), alert("c"))
        )
        assert status == 207
        assert document["refused"] == [
            {"line": 1, "status": 400, "reason": "longer than 1000 bytes"}
        ]
        assert door.queues.identifiers == ["a", "c"]


async def test_a_million_line_body_with_one_bad_line_is_taken_but_for_that_line() -> None:
    one = lines(alert())
    block = one * 10_000

    async def body() -> AsyncIterator[bytes]:
        for number in range(100):
            yield block if number != 57 else one * 9_999 + b'{"class":1}\n'

    door = Door()
    door.routes.targets = ()
    async with door.open():
        status, document, _ = await door.post(body())
        assert status == 207
        assert document["accepted"] == 999_999
        assert [refused["line"] for refused in document["refused"]] == [579_999]


async def test_reading_stops_where_no_more_refusals_can_be_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bodies, "MAXIMUM_REFUSED", 3)
    async with Door().open() as door:
        status, document, _ = await door.post(lines(*[b"{"] * 3, alert("never read")))
        assert len(document["refused"]) == 3
        assert door.queues.taken == []
        assert status == 400


async def test_everything_refused_for_now_is_429_and_says_when() -> None:
    async with Door().open() as door:
        door.queues.full.add("siem")
        status, document, headers = await door.post(lines(alert("a"), alert("b")))
        assert status == 429
        assert headers["Retry-After"] == "2"
        assert document["refused"][0]["destination"] == "siem"
        assert [one["status"] for one in document["refused"]] == [429, 429]
        assert door.observer.counts == {("ndjson", "refused"): 2}


async def test_wrong_and_for_now_without_any_accepted_is_207() -> None:
    async with Door().open() as door:
        door.queues.full.add("siem")
        status, _, _ = await door.post(lines(alert("a"), b"{"))
        assert status == 207


async def test_nothing_overtakes_a_line_that_was_refused_for_the_same_destination() -> None:
    door = Door()
    door.routes.by_class["CIM_AlertInstIndication"] = (target("other"),)
    async with door.open():
        offered = door.queues.offer
        door.queues.full.add("siem")

        def drains_after_the_first(
            indication: Indication, targets: Sequence[Target]
        ) -> Refusal | None:
            refusal = offered(indication, targets)
            door.queues.full.clear()
            return refusal

        door.context.queues.offer = drains_after_the_first  # type: ignore[method-assign]
        other = alert("c", IndObject={"class": "CIM_AlertIndication", "properties": {}})
        other["class"] = "CIM_AlertInstIndication"
        _, document, _ = await door.post(lines(alert("a"), alert("b"), other))
        assert [one["line"] for one in document["refused"]] == [0, 1]
        assert door.queues.identifiers == ["c"]


async def test_a_line_behind_a_refused_one_is_told_the_same_reason() -> None:
    async with Door().open() as door:
        full = Refusal(1.0, "the journal is nearly full, and destination siem holds most", "siem")
        door.context.queues.offer = lambda *_: full  # type: ignore[method-assign]
        _, document, _ = await door.post(lines(alert("a"), alert("b")))
        assert [one["reason"] for one in document["refused"]] == [full.reason] * 2


async def test_a_refused_line_leaves_no_identity_behind() -> None:
    async with Door().open() as door:
        door.queues.full.add("siem")
        await door.post(lines(alert("a")), path="/v1/indications?source=s")
        door.queues.full.clear()
        _, document, _ = await door.post(lines(alert("a")), path="/v1/indications?source=s")
        assert document["accepted"] == 1


async def test_a_duplicate_is_answered_with_success_and_not_delivered_again() -> None:
    async with Door().open() as door:
        path = "/v1/indications?source=s"
        await door.post(lines(alert("a")), path=path)
        status, document, _ = await door.post(lines(alert("a"), alert("b")), path=path)
        assert (status, document["accepted"], document["duplicate"]) == (200, 1, 1)
        assert door.queues.identifiers == ["a", "b"]


async def test_the_source_of_the_line_comes_before_that_of_the_request() -> None:
    async with Door().open() as door:
        path = "/v1/indications?source=s"
        await door.post(lines(alert("a")), path=path)
        _, document, _ = await door.post(lines(alert("a") | {"source": "t"}), path=path)
        assert document["accepted"] == 1
        assert door.queues.taken[1].source == "t"


async def test_without_source_the_incoming_sequence_identifier_is_the_identity() -> None:
    async with Door().open() as door:
        line = alert("a", SequenceContext="c", SequenceNumber=7)
        await door.post(lines(line))
        _, document, _ = await door.post(lines(line, alert("a"), alert("a")))
        assert (document["accepted"], document["duplicate"]) == (2, 1)


async def test_properties_of_a_delivery_are_taken_out_of_the_body() -> None:
    async with Door().open() as door:
        await door.post(
            lines(alert("a", SequenceContext="c", SequenceNumber=7, indicationfiltername="f"))
        )
        (indication,) = door.queues.taken
        assert sorted(json.loads(indication.body)["properties"]) == [
            "AlertType",
            "IndicationIdentifier",
            "PerceivedSeverity",
            "ProbableCause",
        ]


async def test_what_is_expired_is_refused_and_never_again_looked_at() -> None:
    async with Door().open() as door:
        before = {"expires": "2023-11-14T22:13:19Z"}
        after = {"expires": "2023-11-14T22:13:21.5+00:00"}
        status, document, _ = await door.post(lines(alert("a") | before, alert("b") | after))
        assert status == 207
        assert document["refused"][0]["field"] == "expires"
        assert door.queues.identifiers == ["b"]


async def test_envelope_members_are_kept_apart_from_the_body() -> None:
    async with Door().open() as door:
        envelope = {"source": "s", "sourceNamespace": "root/cimv2", "group": "g"}
        await door.post(lines(alert("a") | envelope))
        (indication,) = door.queues.taken
        assert json.loads(indication.body) == alert("a")
        assert indication.group == "g"
        assert door.routes.namespaces == ["root/cimv2"]


async def test_content_languages_travel_with_the_indication() -> None:
    async with Door().open() as door:
        await door.post(lines(alert("a")), headers={"Content-Language": "de, en-GB"})
        assert door.queues.taken[0].languages == ("de", "en-GB")


async def test_a_trace_travels_with_each_indication_of_its_request() -> None:
    parent = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    async with Door().open() as door:
        given = {"traceparent": parent, "tracestate": "a=1"}
        await door.post(lines(alert("a"), alert("b")), headers=given)
        assert [one.trace for one in door.queues.taken] == [TraceContext(parent, "a=1")] * 2
        status, _, _ = await door.post(lines(alert("c")), headers={"traceparent": "garbage"})
        assert (status, door.queues.taken[-1].trace) == (200, None)


async def test_an_event_has_a_trace_of_its_own() -> None:
    own = "00-11111111111111111111111111111111-00f067aa0ba902b7-01"
    of_request = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
    event = {"specversion": "1.0", "id": "1", "source": "s", "type": "t", "data": alert("a")}
    events = [event | {"traceparent": own, "tracestate": "a=1"}, event | {"id": "2"}]
    events[1]["data"] = alert("b")
    async with Door().open() as door:
        status, _, _ = await door.post(
            json.dumps(events).encode(),
            content_type="application/cloudevents-batch+json",
            headers={"traceparent": of_request},
        )
        assert status == 200
        traces = [one.trace for one in door.queues.taken]
        assert traces == [TraceContext(own, "a=1"), TraceContext(of_request)]


async def test_one_json_object_is_taken_also_over_several_lines() -> None:
    async with Door().open() as door:
        body = json.dumps(alert("a"), indent=2).encode()
        status, document, _ = await door.post(body, content_type="application/json")
        assert (status, document["accepted"]) == (200, 1)
        assert b"\n" not in door.queues.taken[0].body
        assert door.observer.counts == {("json", "accepted"): 1}


@pytest.mark.parametrize(
    ("headers", "says"),
    [
        ({"Content-Type": "text/plain"}, "Content-Type"),
        ({"Content-Type": "application/json", "Content-Encoding": "gzip"}, "Content-Encoding"),
        ({"Content-Type": "application/json; charset=utf-16"}, "charset"),
    ],
)
async def test_a_body_of_another_form_is_415(headers: dict[str, str], says: str) -> None:
    async with Door().open() as door:
        content_type = headers.pop("Content-Type")
        status, document, _ = await door.post(b"{}", content_type=content_type, headers=headers)
        assert status == 415
        assert says in document["reason"]


@pytest.mark.parametrize(
    ("query", "says"),
    [
        ("ack=durable", "durability Disk"),
        ("ack=stable", "stores"),
        ("ack=certainly", "no level"),
        ("timeout=-1", "timeout"),
        ("timeout=nan", "timeout"),
        ("timeout=1e9", "timeout"),
        ("source=", "source"),
        ("source=a%01b", "source: has a character that XML cannot carry"),
        ("sorce=a", "'sorce': there is no such parameter; did you mean source?"),
        ("frobnicate=1", "use ack, callback, instance, redeliver, source, timeout"),
        ("source=a&ack=accepted&source=b", "source: is given more than once"),
    ],
)
async def test_a_wrong_parameter_is_400_with_the_remedy(query: str, says: str) -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(lines(alert("a")), path=f"/v1/indications?{query}")
        assert status == 400
        assert says in document["reason"]
        assert door.queues.taken == []


@pytest.mark.parametrize(
    ("method", "path", "says"),
    [
        ("POST", "/v1/flush?publisher=p&levle=durable", "did you mean level?"),
        ("POST", "/v1/flush?publisher=p&publisher=q", "publisher: is given more than once"),
        ("GET", "/v1/faults?publisher=p&aftr=3", "did you mean after?"),
        ("GET", "/v1/service?name=default", "there is no such parameter"),
    ],
)
async def test_parameters_that_a_question_does_not_take_are_refused(
    method: str, path: str, says: str
) -> None:
    async with Door().open() as door, door.session.request(method, f"{door.url}{path}") as answer:
        assert answer.status == 400
        assert says in (await answer.json())["reason"]


async def test_a_history_that_cannot_be_read_is_no_defect(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fail(*_: object, **__: object) -> NoReturn:
        raise OSError(errno.EIO, "Input/output error")

    async with Door().open() as door:
        monkeypatch.setattr(FaultList, "after", fail)
        monkeypatch.setattr(KeptReceipts, "find", fail)
        for path in ("/v1/faults?publisher=p", "/v1/receipts/another"):
            status, document = await door.get(path)
            assert status == 503
            assert document["reason"] == "the history cannot be read: Input/output error"


async def test_before_configuration_and_after_closing_publishers_are_told_to_come_again() -> None:
    async with Door().open() as door:
        door.gate.close("shutting down")
        status, document, headers = await door.post(lines(alert("a")))
        assert status == 503
        assert document["reason"] == "shutting down"
        assert int(headers["Retry-After"]) >= 1


async def test_the_default_level_is_that_of_the_service() -> None:
    async with Door().open() as door:
        door.context.acknowledgement = Acknowledgement.DELIVERED
        status, document, _ = await door.post(lines(alert("a")), path="/v1/indications?timeout=0")
        assert status == 202
        assert document["pending"] == 1


async def test_delivered_is_answered_once_every_listener_has_it() -> None:
    door = Door()
    door.routes.targets = (target("a"), target("b", "second"))
    async with door.open():
        asked = asyncio.create_task(
            door.post(lines(alert("1")), path="/v1/indications?ack=delivered&source=s")
        )
        await door.taken(1)
        door.queues.settle(0, destination="a")
        door.queues.settle(0, destination="b")
        status, document, _ = await asked
        assert status == 200
        assert (document["delivered"], document["pending"]) == (1, 0)


async def test_the_wait_ends_once_every_target_is_settled_and_tells_all_discards() -> None:
    door = Door()
    door.routes.targets = (target("a"), target("b", "second"))
    async with door.open():
        asked = asyncio.create_task(
            door.post(lines(alert("1")), path="/v1/indications?ack=delivered")
        )
        await door.taken(1)
        door.queues.settle(0, destination="b", discarded=DiscardReason.ATTEMPTS_EXCEEDED)
        await asyncio.sleep(0)
        assert not asked.done()
        door.queues.settle(0, destination="a", discarded=DiscardReason.PURGED)
        status, document, _ = await asked
        assert status == 200
        assert document["discarded"] == [
            {"line": 0, "destination": "b", "reason": "attempts-exceeded"},
            {"line": 0, "destination": "a", "reason": "purged"},
        ]
        assert (document["delivered"], document["pending"]) == (0, 0)


async def test_delivered_later_is_told_by_the_receipt() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(
            lines(alert("1"), alert("2")), path="/v1/indications?ack=delivered&timeout=0"
        )
        assert (status, document["pending"]) == (202, 2)
        path = f"/v1/receipts/{document['receipt']}?timeout=0"
        door.queues.settle(0)
        assert (await door.get(path))[0] == 202
        door.queues.settle(1)
        status, document = await door.get(path)
        assert status == 200
        assert (document["delivered"], document["pending"]) == (2, 0)
        assert (await door.get("/v1/receipts/none"))[0] == 404


@pytest.mark.parametrize("parameter", ["timeout=-1", "timeout=4000", "level=soon", "time=1"])
async def test_a_wrong_parameter_is_named_for_a_receipt_that_is_not_known_too(
    parameter: str,
) -> None:
    async with Door().open() as door:
        status, document = await door.get(f"/v1/receipts/none?{parameter}")
        assert status == 400
        assert parameter.partition("=")[0] in document["reason"]


async def test_a_duplicate_waits_for_its_original_or_is_told_its_discard() -> None:
    async with Door().open() as door:
        door.routes.targets = (target("siem"), target("noc"))
        path = "/v1/indications?source=s&ack=delivered&timeout=0"
        await door.post(lines(alert("1")), path=path)
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert (status, document["duplicate"], document["pending"]) == (202, 1, 1)
        door.queues.settle(0, destination="noc")
        door.queues.settle(0, discarded=DiscardReason.LIFETIME_EXPIRED)
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert status == 200
        assert document["discarded"] == [
            {"line": 0, "destination": "siem", "reason": "lifetime-expired"}
        ]


async def test_what_nobody_has_subscribed_to_is_settled_at_once() -> None:
    door = Door()
    door.routes.targets = ()
    async with door.open():
        status, document, _ = await door.post(
            lines(alert("1")), path="/v1/indications?ack=delivered"
        )
        assert (status, document["accepted"], document["delivered"]) == (200, 1, 0)


async def test_flush_waits_for_what_a_publisher_published_and_counts_by_destination() -> None:
    async with Door().open() as door:
        mine = {"Pillion-Publisher": "task-1"}
        for sent in (("1", "2", "3"), ("3",)):
            await door.post(lines(*map(alert, sent)), path="/v1/indications?source=s", headers=mine)
        status, document, _ = await door.post(b"", path="/v1/flush?publisher=task-1&timeout=0")
        assert document["accepted"] == 3
        assert (status, document["complete"]) == (202, False)
        assert document["destinations"]["siem"]["pending"] == 3
        flush = asyncio.create_task(door.post(b"", path="/v1/flush?publisher=task-1"))
        await asyncio.sleep(0)
        door.queues.settle(0)
        door.queues.settle(1, discarded=DiscardReason.QUEUE_FULL)
        door.queues.settle(2)
        status, document, _ = await flush
        assert (status, document["complete"]) == (200, True)
        assert document["destinations"] == {
            "siem": {"delivered": 2, "discarded": {"queue-full": 1}, "pending": 0}
        }


async def test_flush_of_an_unknown_publisher_is_404_and_without_one_400() -> None:
    async with Door().open() as door:
        assert (await door.post(b"", path="/v1/flush?publisher=nobody"))[0] == 404
        assert (await door.post(b"", path="/v1/flush"))[0] == 400
        assert (await door.post(b"", path="/v1/flush?publisher=x&level=stable"))[0] == 400


async def test_a_body_with_too_large_a_length_is_413_unread() -> None:
    async with Door(limits=IntakeLimits(stream_bytes=100, line_bytes=50)).open() as door:
        status, _, _ = await door.post(b"x" * 101)
        assert status == 413
        status, _, _ = await door.post(b"x" * 51, content_type="application/json")
        assert status == 413


async def test_a_body_without_a_length_that_came_whole_and_is_too_large_is_413() -> None:
    async with Door(limits=IntakeLimits(line_bytes=50)).open() as door:
        reader, writer = await asyncio.open_connection("127.0.0.1", door.port)
        head = b"POST /v1/indications HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n"
        chunks = b"19\r\n" + b"x" * 25 + b"\r\n1a\r\n" + b"x" * 26 + b"\r\n0\r\n\r\n"
        writer.write(head + b"Transfer-Encoding: chunked\r\n\r\n" + chunks)
        assert (await reader.readuntil(b"\r\n")).split()[1] == b"413"
        writer.close()


async def test_a_stream_that_grows_too_large_is_answered_with_what_had_come() -> None:
    line = lines(alert("a"))
    door = Door(limits=IntakeLimits(stream_bytes=len(line) + 150))

    async def body() -> AsyncIterator[bytes]:
        yield line
        await door.taken(1)
        yield b"x" * 200

    async with door.open():
        status, document, _ = await door.post(body())
        assert status == 413
        assert (document["accepted"], document["unreadFrom"]) == (1, 1)


async def test_a_body_that_stops_coming_is_answered_408_with_what_had_come() -> None:
    door = Door()
    gone = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield lines(alert("a"))
        await door.taken(1)
        door.time.advance(29)
        assert not gone.is_set()
        door.time.advance(31)
        await gone.wait()

    async with door.open():
        try:
            status, document, _ = await door.post(body())
        finally:
            gone.set()
        assert status == 408
        assert (document["accepted"], document["unreadFrom"]) == (1, 1)
        assert "30 s" in document["reason"]


async def test_too_many_requests_at_a_time_are_turned_away_and_nobody_else() -> None:
    door = Door(requests=1)
    go_on = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield lines(alert("a"))
        await go_on.wait()

    async with door.open():
        first = asyncio.create_task(door.post(body()))
        await door.taken(1)
        assert (await door.post(lines(alert("b"))))[0] == 503
        go_on.set()
        assert (await first)[0] == 200
        assert (await door.post(lines(alert("b"))))[0] == 200


async def test_a_client_that_goes_away_leaves_whole_lines_only(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async with Door().open() as door:
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        whole = lines(alert("a"))
        writer.write(
            b"POST /v1/indications HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
            b"Content-Length: 10000\r\n\r\n" + whole + json.dumps(alert("b")).encode()
        )
        await door.taken(1)
        writer.close()
        await writer.wait_closed()
        assert (await door.post(lines(alert("c"))))[0] == 200
        assert door.queues.identifiers == ["a", "c"]
    # That is no fault of this process.
    assert [one.getMessage() for one in caplog.records if one.levelname == "ERROR"] == []


# ---------------------------------------------------------------------- what is known

MINE = {"Pillion-Publisher": "task-1"}


async def test_what_is_known_of_a_publisher_has_an_instance_that_each_answer_names() -> None:
    async with Door().open() as door:
        _, published, _ = await door.post(lines(alert("1")), headers=MINE)
        _, flushed, _ = await door.post(b"", path="/v1/flush?publisher=task-1&timeout=0")
        _, faults = await door.get("/v1/faults?publisher=task-1")
        _, unnamed, _ = await door.post(lines(alert("2")))
        assert published["instance"]
        assert published["instance"] == flushed["instance"]
        assert faults["instance"] == door.history.id
        named = f"/v1/faults?publisher=task-1&instance={published['instance']}"
        _, faults = await door.get(named)
        assert (faults["instance"], faults["since"]) == (published["instance"], flushed["since"])
        assert "instance" not in unnamed


async def test_nothing_is_certified_to_a_publisher_that_names_a_run_before() -> None:
    async with Door().open() as door:
        _, published, _ = await door.post(lines(alert("1")), headers=MINE)
    before = published["instance"]
    async with Door().open() as door:
        # One line makes the publisher known again, and no more than that line.
        _, published, _ = await door.post(lines(alert("2")), headers=MINE)
        assert published["instance"] != before
        flush = f"/v1/flush?publisher=task-1&timeout=0&instance={before}"
        status, document, _ = await door.post(b"", path=flush)
        assert (status, document["instance"]) == (409, published["instance"])
        assert "restarted" in document["reason"]
        assert (await door.get(f"/v1/faults?publisher=task-1&instance={before}"))[0] == 409
        publish = f"/v1/indications?instance={before}"
        status, document, _ = await door.post(lines(alert("3")), path=publish, headers=MINE)
        assert (status, len(door.queues.taken)) == (409, 1)
        publish = f"/v1/indications?instance={published['instance']}"
        assert (await door.post(lines(alert("3")), path=publish, headers=MINE))[0] == 200


async def test_a_publisher_that_names_an_instance_names_itself() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(lines(alert("1")), path="/v1/indications?instance=x")
        assert (status, document["reason"].split(":")[0]) == (400, "instance")
        named = await door.post(lines(alert("1")), path="/v1/indications?instance=x", headers=MINE)
        assert named[0] == 409
