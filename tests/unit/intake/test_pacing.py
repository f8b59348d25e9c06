"""``publisherRateLimit`` at the door: who is refused for now, for how long, and who is not."""

import json
import logging
from collections.abc import Sequence
from typing import Any

import pytest

from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.indication import Refusal
from pillion_sidecar.intake import pacing
from pillion_sidecar.intake.notices import SECONDS
from pillion_sidecar.intake.pacing import PublisherPaces, paced_publishers, publisher_of
from support.intake import Door, alert, lines

EXPORT = (
    '<?xml version="1.0" encoding="utf-8"?>'
    '<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="42" PROTOCOLVERSION="1.0">'
    '<SIMPLEEXPREQ><EXPMETHODCALL NAME="ExportIndication"><EXPPARAMVALUE NAME="NewIndication">'
    '<INSTANCE CLASSNAME="CIM_AlertIndication"><PROPERTY NAME="IndicationIdentifier" TYPE="string">'
    "<VALUE>{identifier}</VALUE></PROPERTY></INSTANCE>"
    "</EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"
)


def limited(per_second: float, burst: int | None = None) -> Door:
    door = Door()
    door.context.paces = PublisherPaces(RateLimit(per_second=per_second, burst=burst))
    return door


def numbered(first: int, count: int, **envelope: Any) -> bytes:
    return lines(*(alert(str(number)) | envelope for number in range(first, first + count)))


def refused(document: dict[str, Any]) -> Sequence[int]:
    assert all(one["status"] == 429 for one in document["refused"])
    return [one["line"] for one in document["refused"]]


async def test_what_exceeds_the_limit_is_refused_by_line_and_told_when() -> None:
    async with limited(2.0, 3).open() as door:
        status, document, headers = await door.post(numbered(0, 5))
        assert (status, document["accepted"], refused(document)) == (207, 3, [3, 4])
        assert "publisherRateLimit" in document["refused"][0]["reason"]
        assert headers["Retry-After"] == "1"
        # It is true: after that time, what was refused is accepted.
        door.time.advance(1.0)
        status, document, _ = await door.post(numbered(3, 2))
        assert (status, document["accepted"]) == (200, 2)
        assert door.queues.identifiers == ["0", "1", "2", "3", "4"]


async def test_retry_after_is_the_time_for_all_refused_lines_up_to_the_burst() -> None:
    async with limited(0.1, 2).open() as door:
        await door.post(numbered(0, 2))
        for count, seconds in ((1, "10"), (2, "20"), (7, "20")):
            status, _, headers = await door.post(numbered(2, count))
            assert (status, headers["Retry-After"]) == (429, seconds)
        door.time.advance(20.0)
        assert (await door.post(numbered(2, 2)))[0] == 200


async def test_a_refused_line_and_a_duplicate_spend_nothing() -> None:
    async with limited(0.1, 2).open() as door:
        assert (await door.post(numbered(0, 1, source="s")))[0] == 200
        door.queues.refusal = Refusal(1.0, "the journal is full")
        assert (await door.post(numbered(1, 1, source="s")))[0] == 429
        door.queues.refusal = None
        for _ in range(3):
            assert (await door.post(numbered(0, 1, source="s")))[1]["duplicate"] == 1
        assert (await door.post(lines({"class": "nonsense"})))[0] == 400
        assert (await door.post(numbered(1, 1, source="s")))[0] == 200
        assert (await door.post(numbered(2, 1, source="s")))[0] == 429
        # A duplicate is known even then.
        assert (await door.post(numbered(1, 1, source="s")))[0] == 200


async def test_another_source_is_not_limited_by_it() -> None:
    async with limited(0.1).open() as door:
        for source in ("a", "b"):
            path = f"/v1/indications?source={source}"
            assert (await door.post(numbered(0, 1), path=path))[0] == 200
            assert (await door.post(numbered(1, 1), path=path))[0] == 429
        # A source of the line counts before that of the request.
        assert (await door.post(numbered(5, 1, source="c"), path=path))[0] == 200


async def test_without_a_source_the_publisher_counts_and_without_both_all_are_one() -> None:
    async with limited(0.1).open() as door:
        for headers in ({"Pillion-Publisher": "a"}, {"Pillion-Publisher": "b"}, {}):
            assert (await door.post(lines(alert()), headers=headers))[0] == 200
            assert (await door.post(lines(alert()), headers=headers))[0] == 429


async def test_a_line_does_not_overtake_a_refused_one_of_another_source() -> None:
    async with limited(0.1).open() as door:
        await door.post(numbered(0, 1, source="a"))
        body = numbered(1, 1, source="b") + numbered(2, 1, source="a") + numbered(3, 1, source="b")
        _, document, _ = await door.post(body)
        assert (document["accepted"], refused(document)) == (1, [1, 2])
        assert all("source a" in one["reason"] for one in document["refused"])


async def test_members_behind_a_refused_one_are_refused_in_their_request() -> None:
    async with limited(1.0, 2).open() as door:
        member = {"group": "g", "ordered": True, "source": "s"}
        body = lines(*(alert(str(n)) | member | {"sequence": n} for n in range(4)))
        _, document, _ = await door.post(body)
        assert (document["accepted"], refused(document)) == (2, [2, 3])
        door.time.advance(2.0)
        _, document, _ = await door.post(body)
        assert (document["accepted"], document["duplicate"], refused(document)) == (2, 2, [])
        assert door.queues.identifiers == ["0", "1", "2", "3"]


async def test_a_single_document_is_limited_too() -> None:
    async with limited(0.1).open() as door:
        assert (await door.post(lines(alert("a")), content_type="application/json"))[0] == 200
        status, _, headers = await door.post(lines(alert("b")), content_type="application/json")
        assert (status, headers["Retry-After"]) == (429, "10")


async def test_a_batch_of_cloudevents_is_limited_by_event() -> None:
    async with limited(0.1, 2).open() as door:
        common = {"specversion": "1.0", "source": "urn:ewr", "type": "org.dmtf.cim.indication"}
        events = [common | {"id": str(number), "data": alert()} for number in range(3)]
        status, document, _ = await door.post(
            json.dumps(events), content_type="application/cloudevents-batch+json"
        )
        assert (status, document["accepted"], refused(document)) == (207, 2, [2])
        assert "source urn:ewr" in document["refused"][0]["reason"]


async def test_an_exporter_is_told_to_try_again() -> None:
    async with limited(0.1).open() as door:
        for identifier, is_refused in (("i1", False), ("i2", True), ("i1", False)):
            message = EXPORT.format(identifier=identifier).encode()
            status, text, _ = await door.post(
                message,
                path="/CIMListener?source=bmc-17",
                content_type="application/xml; charset=utf-8",
                headers={"CIMExport": "MethodRequest", "CIMExportMethod": "ExportIndication"},
            )
            assert status == 200
            assert ('ERROR CODE="1"' in text) == is_refused
            assert ("source bmc-17 publishes more" in text) == is_refused


async def test_the_refusals_are_counted_and_logged_by_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with limited(0.001).open() as door:
        for number in range(4):
            await door.post(numbered(number, 1, source="loop"))
        assert door.context.beyond_limit == 3
        assert door.observer.counts["ndjson", "refused"] == 3
        door.time.advance(SECONDS)
        told = [one for one in caplog.records if getattr(one, "event", "") == "lines-held-back"]
        assert [one.lines for one in told] == [1, 2]  # type: ignore[attr-defined]
        assert "source loop publishes more than 0.001" in told[0].getMessage()


async def test_without_a_limit_nothing_is_refused() -> None:
    async with Door().open() as door:
        assert (await door.post(numbered(0, 500)))[1]["accepted"] == 500
        assert door.context.paces is None


def test_a_publisher_is_known_by_its_namespace_first() -> None:
    known = {"source": "s", "publisher": "p"}
    assert publisher_of(namespace="jobs", **known) == "namespace jobs"
    assert publisher_of(namespace=None, **known) == "source s"
    assert publisher_of(namespace=None, source=None, publisher="p") == "publisher p"
    assert publisher_of(namespace=None, source=None, publisher=None) == ""


def test_the_number_of_known_publishers_and_their_names_are_bounded(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(pacing, "MOST_PUBLISHERS", 3)
    paces = PublisherPaces(RateLimit(per_second=1.0))
    first = paces.of("a")
    for name in ("b", "c", "a", "d"):
        paces.of(name)
    assert len(paces) == 3
    assert paces.of("a") is first
    assert paces.of("x" * 1_000_000) is paces.of("x" * 2_000_000)
    assert len(paces.reason("x" * 1_000_000)) < 200


def test_a_changed_limit_holds_for_known_publishers_at_once() -> None:
    before = PublisherPaces(RateLimit(per_second=0.001))
    before.of("a").spend(1000.0)
    after = paced_publishers(RateLimit(per_second=1.0), before=before)
    assert after is before
    assert after.of("a").due() == 1001.0
    assert paced_publishers(None, before=before) is None
