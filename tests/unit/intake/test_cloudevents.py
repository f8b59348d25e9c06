"""CloudEvents at the door: structured, batched, binary."""

import json
from typing import Any

import pytest

from pillion_sidecar.intake.cloudevents import EXTENSIONS
from support.house import ROOT
from support.intake import Door, alert

STRUCTURED = "application/cloudevents+json"
BATCH = "application/cloudevents-batch+json"


def event(identifier: str = "e1", **members: Any) -> dict[str, Any]:
    return {
        "specversion": "1.0",
        "id": identifier,
        "source": "urn:station:ewr",
        "type": "org.dmtf.cim.indication",
        "data": alert(),
    } | members


async def test_source_id_and_time_stand_in_for_what_the_instance_lacks() -> None:
    async with Door().open() as door:
        body = json.dumps(event(time="2026-11-21T13:30:00Z"))
        status, document, _ = await door.post(body, content_type=STRUCTURED)
        assert (status, document["accepted"]) == (200, 1)
        (indication,) = door.queues.taken
        assert (indication.source, indication.identifier) == ("urn:station:ewr", "e1")
        properties = json.loads(indication.body)["properties"]
        assert properties["IndicationIdentifier"] == "e1"
        assert properties["IndicationTime"] == "20261121133000.000000+000"


async def test_the_instances_own_identity_comes_first() -> None:
    async with Door().open() as door:
        body = json.dumps(event(data=alert("own") | {"source": "mine"}))
        await door.post(body, content_type=STRUCTURED)
        (indication,) = door.queues.taken
        assert (indication.source, indication.identifier) == ("mine", "own")


async def test_a_batch_is_answered_event_by_event() -> None:
    async with Door().open() as door:
        events = [event("e1"), event("e2", specversion="0.3"), event("e1"), event("e3")]
        status, document, _ = await door.post(json.dumps(events), content_type=BATCH)
        assert status == 207
        assert (document["accepted"], document["duplicate"]) == (2, 1)
        assert [one["line"] for one in document["refused"]] == [1]
        assert door.observer.counts["cloudevents", "accepted"] == 2


async def test_binary_mode_takes_the_attributes_from_the_headers() -> None:
    async with Door().open() as door:
        headers = {
            "ce-specversion": "1.0",
            "ce-id": "e%201",
            "ce-source": "s",
            "ce-type": "t",
        }
        status, _, _ = await door.post(
            json.dumps(alert()), content_type="application/json", headers=headers
        )
        assert status == 200
        assert door.queues.taken[0].identifier == "e 1"


@pytest.mark.parametrize(
    ("body", "field"),
    [
        (event(data=None), "data"),
        (event(data_base64="e30="), "data_base64"),
        (event(id=""), "id"),
        (event(source=3), "source"),
        (event(specversion="2.0"), "specversion"),
        (event(time="yesterday"), "properties.IndicationTime"),
    ],
)
async def test_a_wrong_event_is_told_by_field(body: dict[str, Any], field: str) -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(json.dumps(body), content_type=STRUCTURED)
        assert status == 400
        assert document["refused"][0]["field"].startswith(field)


@pytest.mark.parametrize("body", [b"{}", b"[", b"[" * 100_000, b"[1,]", b"[1]"])
async def test_a_batch_that_is_none_is_400(body: bytes) -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(body, content_type=BATCH)
        assert status == 400
        assert document["refused"][0]["status"] == 400


@pytest.mark.parametrize(
    ("content_type", "body", "line", "reason"),
    [
        (BATCH, b"{}", 0, "not a batch of CloudEvents, a JSON array: it does not begin with ["),
        (BATCH, b"[{}", 0, "not a batch of CloudEvents, a JSON array: it does not end with ]"),
        (BATCH, b'[1, {"id": x}]', 1, "not JSON: Expecting value at character 7 of the event; "),
        (BATCH, b'[1, {"id": "\xff"}]', 1, "not UTF-8: invalid start byte at byte 8 of the event"),
        (
            STRUCTURED,
            b'{"id"}',
            0,
            "not JSON: Expecting ':' delimiter at character 5 of the event; ",
        ),
    ],
)
async def test_what_is_no_json_is_told_by_event_and_place(
    content_type: str, body: bytes, line: int, reason: str
) -> None:
    async with Door().open() as door:
        _, document, _ = await door.post(body, content_type=content_type)
    told = {one["line"]: one["reason"] for one in document["refused"]}[line]
    assert told.startswith(reason)
    assert ("of the event;" in told) == told.endswith('"data": {"class": NAME, "properties": {…}}}')


async def test_data_in_binary_mode_that_is_no_json_is_told_by_its_place() -> None:
    headers = {f"ce-{name}": "x" for name in ("id", "source", "type")} | {"ce-specversion": "1.0"}
    async with Door().open() as door:
        _, document, _ = await door.post(b"{}x", content_type="application/json", headers=headers)
    assert document["refused"][0]["reason"] == (
        "not JSON: Extra data at character 2 of the data; send the data as one JSON object:"
        ' {"class": NAME, "properties": {…}}'
    )


_PLACE = {
    "expirytime": "2023-11-30T23:59:59Z",
    "group": "g",
    "groupexpires": "2023-12-01T00:00:00Z",
    "groupmaxidleseconds": "1.5",
}


@pytest.mark.parametrize(
    "attributes",
    [
        {"groupsequence": 7, "grouplast": True, "groupordered": False},
        {"groupsequence": "7", "grouplast": "true", "groupordered": "false"},
    ],
)
async def test_extension_attributes_give_the_place_in_a_group(attributes: dict[str, Any]) -> None:
    async with Door().open() as door:
        body = json.dumps(event() | _PLACE | attributes)
        status, _, _ = await door.post(body, content_type=STRUCTURED)
        assert status == 200
        (taken,) = door.queues.taken
        assert taken.member is not None
        assert (taken.group, taken.member.sequence) == ("g", 7)
        assert (taken.member.last, taken.member.ordered) == (True, False)
        assert taken.expires is not None
        assert taken.member.expires == taken.expires + 1
        assert taken.member.max_idle_seconds == 1.5


async def test_binary_mode_gives_the_place_in_headers() -> None:
    async with Door().open() as door:
        headers = {
            "ce-specversion": "1.0",
            "ce-id": "1",
            "ce-source": "s",
            "ce-type": "t",
            "ce-group": "g",
            "ce-groupsequence": "12",
            "ce-groupordered": "true",
            "ce-groupmaxidleseconds": "60",
        }
        status, _, _ = await door.post(
            json.dumps(alert()), content_type="application/json", headers=headers
        )
        assert status == 200
        assert door.groups.held == 1


@pytest.mark.parametrize(
    ("attributes", "field"),
    [
        ({"groupsequence": "0x7"}, "sequence"),
        ({"groupsequence": -7}, "sequence"),
        ({"groupsequence": 7, "grouplast": "yes"}, "last"),
        ({"groupsequence": 7, "groupmaxidleseconds": "nan"}, "groupMaxIdleSeconds"),
    ],
)
async def test_a_wrong_extension_attribute_is_told_by_the_members_name(
    attributes: dict[str, Any], field: str
) -> None:
    async with Door().open() as door:
        body = json.dumps(event(group="g") | attributes)
        status, document, _ = await door.post(body, content_type=STRUCTURED)
        assert (status, document["refused"][0]["field"]) == (400, field)


async def test_the_lines_own_place_comes_first() -> None:
    async with Door().open() as door:
        data = alert() | {"group": "mine", "sequence": 1}
        body = json.dumps(event(data=data, group="g", groupsequence=2))
        await door.post(body, content_type=STRUCTURED)
        (taken,) = door.queues.taken
        assert taken.member is not None
        assert (taken.group, taken.member.sequence) == ("mine", 1)


def test_the_manual_has_the_extension_attributes() -> None:
    page = (ROOT / "docs/publishing.md").read_text(encoding="utf-8")
    for name, (member, _) in EXTENSIONS.items():
        assert f"| `{name}` | `{member}` |" in page
