"""What a gateway takes from sidecars: a prefix of each request, each line once, as it was
accepted."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pillion_cim.mof import parse_mof
from pillion_cim.schema import extend, load_schema
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE, DeadLetter, Indication, Refusal
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.decoding import LineError
from pillion_sidecar.intake.pacing import PublisherPaces
from pillion_sidecar.intake.parameters import parse_marks
from pillion_sidecar.trace_context import TraceContext
from pillion_sidecar.wire.relay import REPEATED_HEADER, TRACE_HEADER, RelayOrigin
from support.intake import Door, alert, target
from support.relay_lines import UID, compact, relayed, statuses

LONG_AGO = "2001-01-01T00:00:00Z"
BEFORE_THAT = "2000-01-01T00:00:00Z"
RELAY = "/v1/relay"


@pytest.fixture(name="gateway")
async def gateway_fixture() -> AsyncIterator[Door]:
    door = Door()
    door.routes.takes_relayed = True
    door.routes.by_uid = {UID: target("siem"), "uid-other": target("ops", "other")}
    async with door.open():
        yield door


async def relay(door: Door, *lines: Any, ack: str = "accepted") -> tuple[list[int], Any]:
    """Relay lines; return the status of each, and the document."""
    _, document, _ = await door.post(compact(*lines), path=f"{RELAY}?ack={ack}")
    return statuses(document, len(lines)), document


def taken(door: Door) -> list[tuple[str | None, str]]:
    """Identifier and destination of all that was queued, in order."""
    return [
        (one.identifier, queued[0])
        for one, queued in zip(door.queues.taken, door.queues.places, strict=True)
    ]


def refuse_now(door: Door, *, at: int) -> None:
    """Refuse all from the indication with a number on, as a full journal does."""
    offer = door.queues.offer

    def offering(indication: Indication, targets: Any) -> Refusal | None:
        if len(door.queues.taken) >= at:
            return Refusal(3.0, "the journal is full")
        return offer(indication, targets)

    door.queues.offer = offering  # type: ignore[method-assign]


# ---------------------------------------------------------------------- the line


async def test_lines_that_repeat_what_a_sidecar_discarded_are_marked(gateway: Door) -> None:
    lines = compact(relayed("a", 1), relayed("b", 2), relayed("c", 3))
    path = f"{RELAY}?ack=accepted"
    status, _, _ = await gateway.post(lines, path=path, headers={REPEATED_HEADER: "0,2,900"})
    assert status == 200
    marks = [one.redrives for one in gateway.queues.taken]
    assert marks == [REDRIVEN_ELSEWHERE, 0, REDRIVEN_ELSEWHERE]
    for wrong in ("", "a", "1;2", "-1", "1" * 4000):
        status, answer, _ = await gateway.post(lines, path=path, headers={REPEATED_HEADER: wrong})
        assert (status, answer["reason"][: len(REPEATED_HEADER)]) == (400, REPEATED_HEADER)


async def test_lines_have_the_traces_that_headers_give_them(gateway: Door) -> None:
    lines = compact(*(relayed(str(number), number) for number in range(3)))
    first, second = (f"00-{number:032x}-00f067aa0ba902b7-01" for number in (1, 2))
    headers = {TRACE_HEADER: f"{first} 0,2,900 a=1 b"}
    await gateway.post(lines, path=f"{RELAY}?ack=accepted", headers=headers)
    marked = TraceContext(first, "a=1 b")
    assert [one.trace for one in gateway.queues.taken] == [marked, None, marked]
    # What is no trace is no reason to refuse lines.
    given = [f"{second} 3", f"{second} x", "no trace 1", second, "", f"{first} 4"]
    traces = parse_marks({}, given).traces
    assert traces == {3: TraceContext(second), 4: TraceContext(first)}


@pytest.mark.parametrize("spaced", [False, True])
def test_a_relayed_line_is_decoded_by_both_ways_alike(spaced: bool) -> None:
    line = relayed(
        alert("x", Message='with "quotes": and a colon'),
        7,
        accepted_at=1_700_000_000.25,
        group="g",
        sequence=3,
        ordered=True,
        groupMaxIdleSeconds=60,
        expires=LONG_AGO,
        languages=["de", "en-GB"],
    )
    # Spaces before colons take the complete way, the usual spelling the shorter one.
    body = json.dumps(line, separators=(",", " : " if spaced else ":")).encode()
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
    decoded = decoder.decode(body)
    assert decoded.relay == RelayOrigin(UID, 1_700_000_000.25, "default#j#d#0", 7)
    assert decoded.languages == ("de", "en-GB")
    assert (decoded.source, decoded.identifier, decoded.group) == ("s", "x", "g")
    assert decoded.member is not None
    assert (decoded.member.sequence, decoded.member.ordered) == (3, True)
    assert decoded.expires == 978_307_200.0
    assert json.loads(decoded.body) == {key: line[key] for key in ("class", "properties")}


def test_the_usual_relayed_line_takes_the_shorter_way(monkeypatch: pytest.MonkeyPatch) -> None:
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)

    def complete(_line: bytes) -> None:
        raise AssertionError("the complete way was taken")

    monkeypatch.setattr(decoder, "decode_complete", complete)
    for line in (
        relayed("x"),
        relayed("x", source=None),
        relayed("x", languages=["de"]),
        relayed("x", group="g", sequence=1, ordered=True, groupMaxIdleSeconds=5),
        # An earlier version has accepted it.
        relayed("x", group="g", sequence=1, ordered=True, groupMaxIdleSeconds=10**8),
    ):
        decoded = decoder.decode(compact(line).strip())
        assert json.loads(decoded.body) == {key: line[key] for key in ("class", "properties")}


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"relay": None}, "relay"),
        ({"relay": []}, "relay"),
        ({"relay": {"subscription": UID}}, "relay.acceptedAt"),
        ({"subscription": ""}, "relay.subscription"),
        ({"subscription": 7}, "relay.subscription"),
        ({"subscription": "x" * 257}, "relay.subscription"),
        ({"subscription": "\ud800"}, "relay.subscription"),
        ({"acceptedAt": -1}, "relay.acceptedAt"),
        ({"acceptedAt": "2026-11-21T13:30:00Z"}, "relay.acceptedAt"),
        ({"acceptedAt": True}, "relay.acceptedAt"),
        ({"acceptedAt": 10**400}, "relay.acceptedAt"),
        ({"context": ""}, "relay.context"),
        ({"context": "x" * 1025}, "relay.context"),
        ({"number": -1}, "relay.number"),
        ({"number": 2**63}, "relay.number"),
        ({"number": 1.0}, "relay.number"),
        ({"unknown": 1}, "relay.unknown"),
        ({"languages": "de"}, "languages"),
        ({"languages": ["not a tag!"]}, "languages"),
        ({"languages": ["de"] * 17}, "languages"),
        ({"surprise": 1, "languages": ["de"]}, "surprise"),
        ({"expires": "soon"}, "expires"),
        ({"sequence": 1}, "sequence"),
        ({"properties": {"AlertType": 6}}, "properties.PerceivedSeverity"),
    ],
)
def test_what_is_wrong_with_a_relayed_line_is_told_by_field(
    change: dict[str, Any], field: str
) -> None:
    line = relayed("x")
    for name, value in change.items():
        beside = name in ("relay", "languages", "surprise", "expires", "sequence", "properties")
        (line if beside else line["relay"])[name] = value
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
    with pytest.raises(LineError) as error:
        decoder.decode(json.dumps(line, separators=(",", ":")).encode())
    assert error.value.field is not None
    assert error.value.field.startswith(field)


def written(*members: str, last: str = "", properties: str = "") -> bytes:
    """A line as text: members between properties and ``relay``, and behind it."""
    origin = '"subscription":"u","acceptedAt":1,"context":"c","number":1'
    given = f'"AlertType":6,"PerceivedSeverity":5,"ProbableCause":52{properties}'
    between = "".join(f",{one}" for one in members)
    return (
        f'{{"class":"CIM_AlertIndication","properties":{{{given}}}{between}'
        f',"relay":{{{origin}{last}}}}}'
    ).encode()


@pytest.mark.parametrize(
    "line",
    [
        written('"source":"a"', '"source":"b"'),
        written('"source" :"a"', '"source":"b"'),
        written('"sequence":1', '"group":"g"', '"sequence" : 2'),
        written('"languages":["de"]', '"languages":["en"]'),
        written(last=',"number":2'),
        written(last=',"context" :"d"'),
        written('"relay":{"subscription":"u","acceptedAt":1,"context":"c","number":2}'),
        written(properties=',"Message":"a","Message":"b"'),
        written('"class":"CIM_AlertIndication"'),
        written('"properties":{}'),
    ],
)
def test_a_member_that_is_given_twice_is_not_overlooked(line: bytes) -> None:
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
    with pytest.raises(LineError, match="given twice"):
        decoder.decode(line)


@pytest.mark.parametrize(
    ("line", "source", "message"),
    [
        (written('"source":"a},"', properties=',"Message":"m"'), "a},", "m"),
        (written('"source":"a"', properties=',"Message":"m},"'), "a", "m},"),
        (written('"source":"a\\":b"', properties=',"Message":"}\\""'), 'a":b', '}"'),
        (written('"source":"grün"', properties=',"Message":"ü"'), "grün", "ü"),
        (written('"source":" : "', properties=',"Message":"{},{}"'), " : ", "{},{}"),
        (written('"source":"a"').replace(b'},"', b'} ,"'), "a", None),
        (b"  " + written('"source":"a"') + b" ", "a", None),
    ],
)
def test_what_stands_in_a_text_ends_no_member(
    line: bytes, source: str, message: str | None
) -> None:
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
    decoded = decoder.decode(line)
    assert decoded.source == source
    assert json.loads(decoded.body)["properties"].get("Message") == message
    assert json.loads(decoded.body).keys() == {"class", "properties"}


def test_what_xml_cannot_carry_is_refused_in_a_relayed_line_too() -> None:
    decoder = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
    for text in ("\\u0001", "\ufffe"):
        with pytest.raises(LineError, match="XML"):
            decoder.decode(written(f'"source":"{text}"'))


async def test_an_ordinary_request_cannot_say_where_it_comes_from(gateway: Door) -> None:
    status, document, _ = await gateway.post(compact(relayed("x")))
    assert status == 400
    assert document["refused"][0]["field"] == "relay"


async def test_only_a_gateway_is_relayed_to() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(compact(relayed("x")), path=RELAY)
        assert status == 404
        assert "is no gateway" in document["reason"]
        assert "refused" not in document


async def test_only_lines_are_relayed(gateway: Door) -> None:
    status, document, _ = await gateway.post(
        compact(relayed("x")), path=RELAY, content_type="application/json"
    )
    assert status == 415
    assert "application/x-ndjson" in document["reason"]


# ---------------------------------------------------------------------- where it goes, and how


async def test_a_line_goes_to_its_subscription_whatever_the_filters_say(gateway: Door) -> None:
    gateway.routes.targets = ()
    found, _ = await relay(gateway, relayed("a"), relayed("b", uid="uid-other", number=1))
    assert found == [200, 200]
    assert taken(gateway) == [("a", "siem"), ("b", "ops")]


async def test_what_a_sidecar_knows_of_it_travels_on(gateway: Door) -> None:
    await relay(
        gateway, relayed("a", group="g", languages=["de"], accepted_at=gateway.time.time() - 60)
    )
    (one,) = gateway.queues.taken
    assert (one.source, one.identifier, one.languages) == ("s", "a", ("de",))
    assert one.group == f"{UID}/g"
    assert one.accepted_at == pytest.approx(gateway.time.monotonic() - 60)
    assert one.relayed is not None
    assert one.relayed.at == gateway.time.monotonic()


@pytest.mark.parametrize("ahead", [1.0, 1e9, 1e300])
async def test_nothing_was_accepted_later_than_now(gateway: Door, ahead: float) -> None:
    await relay(gateway, relayed("a", accepted_at=gateway.time.time() + ahead))
    assert gateway.queues.taken[0].accepted_at == gateway.time.monotonic()


async def test_what_was_accepted_before_this_machine_ran_is_as_old_as_it_is(gateway: Door) -> None:
    await relay(gateway, relayed("a", accepted_at=0))
    one = gateway.queues.taken[0]
    assert one.accepted_at == pytest.approx(gateway.time.monotonic() - gateway.time.time())
    # Its identity is remembered from now on all the same.
    assert gateway.memory.find(one.digest or b"") is not None


async def test_relayed_lines_are_counted_by_a_kind_of_their_own(gateway: Door) -> None:
    await relay(gateway, relayed("a"), relayed("a", 1), b"{", relayed("b", 2, uid="unknown"))
    assert gateway.observer.counts == {
        ("relay", "accepted"): 1,
        ("relay", "duplicate"): 1,
        ("relay", "invalid"): 1,
        ("relay", "refused"): 1,
    }


# ---------------------------------------------------------------------- each once


async def test_what_two_sidecars_relay_is_taken_once_for_each_subscription(gateway: Door) -> None:
    first, _ = await relay(gateway, relayed("a", 0, context="one"))
    second, document = await relay(
        gateway,
        relayed("a", 9, context="two"),
        relayed("a", 10, context="two", uid="uid-other"),
        relayed("a", 11, context="two", source="another"),
    )
    assert (first, second) == ([200], [200, 200, 200])
    assert (document["accepted"], document["duplicate"]) == (2, 1)
    assert taken(gateway) == [("a", "siem"), ("a", "ops"), ("a", "siem")]


@pytest.mark.parametrize(("identifier", "source"), [(None, "s"), ("a", None), (None, None)])
async def test_without_an_identity_its_place_in_the_sidecars_queue_is_one(
    gateway: Door, identifier: str | None, source: str | None
) -> None:
    line = relayed(identifier, 4, source=source)
    await relay(gateway, line)
    found, document = await relay(
        gateway,
        line,
        relayed(identifier, 5, source=source),
        relayed(identifier, 4, source=source, context="another"),
    )
    assert found == [200, 200, 200]
    assert (document["accepted"], document["duplicate"]) == (2, 1)


async def test_what_is_published_here_is_no_duplicate_of_what_is_relayed(gateway: Door) -> None:
    await relay(gateway, relayed("a"))
    _, document, _ = await gateway.post(compact(alert("a") | {"source": "s"}))
    assert document["accepted"] == 1


async def test_a_duplicate_is_durable_only_once_its_original_is(gateway: Door) -> None:
    gateway.context.durability = Durability.DISK
    gateway.queues.barriers = []
    path = f"{RELAY}?ack=durable&timeout=0"
    for _ in range(2):
        status, document, _ = await gateway.post(compact(relayed("a")), path=path)
        assert (status, document["durable"]) == (202, False)
    gateway.queues.secure()
    gateway.queues.barriers = None
    status, document, _ = await gateway.post(compact(relayed("a")), path=path)
    assert (status, document["duplicate"], document["durable"]) == (200, 1, True)
    assert len(gateway.queues.taken) == 1


async def test_durable_is_refused_where_the_gateway_has_no_disk(gateway: Door) -> None:
    status, document, _ = await gateway.post(compact(relayed("a")), path=f"{RELAY}?ack=durable")
    assert status == 400
    assert "this deliverer has Memory" in document["reason"]
    assert "refused" not in document
    assert not gateway.queues.taken


# ---------------------------------------------------------------------- expired meanwhile


async def test_what_has_expired_since_its_acceptance_is_taken(gateway: Door) -> None:
    found, _ = await relay(
        gateway,
        relayed("a", expires=LONG_AGO),
        relayed("b", 1, group="g", sequence=0, expires=BEFORE_THAT, groupExpires=LONG_AGO),
    )
    assert found == [200, 200]
    assert [one.expires for one in gateway.queues.taken] == [978_307_200.0, 946_684_800.0]


async def test_what_has_expired_is_remembered_for_the_window_all_the_same(gateway: Door) -> None:
    line = relayed("a", expires=LONG_AGO, accepted_at=0)
    await relay(gateway, line)
    gateway.time.advance(3599)
    _, document = await relay(gateway, line)
    assert document["duplicate"] == 1
    gateway.time.advance(2)
    _, document = await relay(gateway, line)
    assert document["accepted"] == 1


async def test_what_expires_after_the_window_is_remembered_until_then(gateway: Door) -> None:
    line = relayed("a", expires="2023-11-15T22:13:20Z")
    await relay(gateway, line)
    gateway.time.advance(86_000)
    _, document = await relay(gateway, line)
    assert document["duplicate"] == 1


# ---------------------------------------------------------------------- a prefix


async def test_nothing_is_taken_after_a_line_that_is_refused_for_now(gateway: Door) -> None:
    refuse_now(gateway, at=2)
    lines = [
        relayed("a", 0),
        relayed("b", 1),
        relayed("c", 2),
        # A duplicate, one for another destination, an invalid one, and one for nobody.
        relayed("a", 3),
        relayed("d", 4, uid="uid-other"),
        b"{",
        relayed("e", 6, uid="unknown"),
    ]
    found, document = await relay(gateway, *lines)
    assert found == [200, 200, 429, 429, 429, 429, 429]
    assert document["refused"][0]["reason"] == "the journal is full"
    assert document["refused"][1]["reason"] == (
        "line 2 before it was refused for now: the journal is full"
    )
    assert (document["accepted"], document["duplicate"]) == (2, 0)


async def test_a_line_that_is_wrong_costs_no_other(gateway: Door) -> None:
    wrong = relayed("b", 1)
    del wrong["relay"]["context"]
    found, document = await relay(gateway, relayed("a"), wrong, relayed("c", 2))
    assert found == [200, 400, 200]
    assert document["refused"][0]["field"] == "relay.context"
    assert taken(gateway) == [("a", "siem"), ("c", "siem")]


async def test_an_unknown_subscription_is_refused_for_now_by_name(gateway: Door) -> None:
    status, document, headers = await gateway.post(
        compact(relayed("a", uid="uid-new"), relayed("b", 1)), path=RELAY
    )
    assert status == 429
    assert statuses(document, 2) == [429, 429]
    assert "subscription uid-new" in document["refused"][0]["reason"]
    assert headers["Retry-After"] == "1"
    # Its configuration comes.
    gateway.routes.by_uid["uid-new"] = target("new")
    found, _ = await relay(gateway, relayed("a", uid="uid-new"), relayed("b", 1))
    assert found == [200, 200]


async def test_a_duplicate_counts_though_its_subscription_has_gone(gateway: Door) -> None:
    await relay(gateway, relayed("a"))
    gateway.routes.by_uid.clear()
    found, document = await relay(gateway, relayed("a"))
    assert (found, document["duplicate"]) == ([200], 1)


async def test_a_gateway_that_closes_takes_nothing_more(gateway: Door) -> None:
    await relay(gateway, relayed("a"))
    gateway.context.closing = "the deliverer is shutting down"
    found, _ = await relay(gateway, relayed("b", 1))
    assert found == [429]
    assert taken(gateway) == [("a", "siem")]


async def test_an_idle_time_that_an_earlier_version_accepted_is_taken(gateway: Door) -> None:
    line = relayed("a", group="g", sequence=0, ordered=True, groupMaxIdleSeconds=10**8)
    found, _ = await relay(gateway, line, relayed("b", 1))
    assert found == [200, 200]


async def test_a_group_that_has_no_room_ends_the_prefix(gateway: Door) -> None:
    gateway.queues.refusal = Refusal(1.0, "full")
    found, _ = await relay(
        gateway,
        relayed("a", group="g", sequence=1, ordered=True, groupMaxIdleSeconds=60),
        relayed("b", 1, group="g", sequence=0, ordered=True, groupMaxIdleSeconds=60),
    )
    assert found == [429, 429]


# ---------------------------------------------------------------------- groups


def member(sequence: int, sidecar: str, number: int, **members: Any) -> dict[str, Any]:
    given: dict[str, Any] = {"ordered": True, "groupMaxIdleSeconds": 60} | members
    return relayed(str(sequence), number, context=sidecar, group="g", sequence=sequence, **given)


def sequences(door: Door) -> list[int]:
    return [one.member.sequence for one in door.queues.taken if one.member is not None]


async def test_the_members_of_two_sidecars_are_delivered_in_order_past_gaps(gateway: Door) -> None:
    await relay(gateway, member(1, "one", 0), member(3, "one", 1))
    assert sequences(gateway) == []
    await relay(gateway, member(0, "two", 0), member(2, "two", 1), member(1, "two", 2))
    assert sequences(gateway) == [0, 1, 2, 3]


async def test_subscriptions_have_groups_of_their_own(gateway: Door) -> None:
    await relay(gateway, member(1, "one", 0), member(0, "one", 1, uid="uid-other"))
    assert taken(gateway) == [("0", "ops")]
    await relay(gateway, member(0, "one", 2))
    assert taken(gateway) == [("0", "ops"), ("0", "siem"), ("1", "siem")]


async def test_a_place_that_another_sidecar_has_relayed_is_a_duplicate(gateway: Door) -> None:
    await relay(gateway, relayed(None, 0, context="one", group="g", sequence=0))
    _, document = await relay(gateway, relayed(None, 5, context="two", group="g", sequence=0))
    assert document["duplicate"] == 1


async def test_so_it_is_long_after_its_groups_expiry_unless_it_was_accepted_after_that(
    gateway: Door,
) -> None:
    times = {"expires": BEFORE_THAT, "groupExpires": LONG_AGO, "group": "g", "sequence": 0}
    in_time, later = 900_000_000.0, 1_000_000_000.0
    await relay(gateway, relayed(None, 0, context="one", accepted_at=in_time, **times))
    again = relayed(None, 5, context="two", accepted_at=in_time, **times)
    _, document = await relay(gateway, again)
    assert document["duplicate"] == 1
    # The group had ended and was forgotten when this was accepted: it is of another run.
    another = relayed(None, 6, context="two", accepted_at=later, **times)
    _, document = await relay(gateway, another)
    assert document["accepted"] == 1


async def test_members_in_order_are_delivered_long_after_their_groups_expiry(gateway: Door) -> None:
    times = {"expires": BEFORE_THAT, "groupExpires": LONG_AGO, "accepted_at": 900_000_000.0}
    lines = [
        relayed(str(number), number, group="g", sequence=sequence, ordered=True, **times)
        for number, sequence in enumerate((1, 0, 2))
    ]
    found, _ = await relay(gateway, lines[0])
    gateway.time.advance(100)
    again, _ = await relay(gateway, *lines[1:])
    assert found + again == [200, 200, 200]
    assert sequences(gateway) == [0, 1, 2]
    # Once nobody has come for long, it ends: nothing is delivered past a gap.
    await relay(gateway, relayed("4", 3, group="g", sequence=4, ordered=True, **times))
    gateway.time.advance(121)
    assert sequences(gateway) == [0, 1, 2]
    assert [one.identifier for one in gateway.queues.out_of_order] == ["4"]


def test_what_a_gateway_declares_is_not_for_what_a_sidecar_accepted() -> None:
    declared = parse_mof(
        "class HP_Alert : CIM_AlertIndication { uint8 Bay; [Required] string X; };"
    )
    schema = extend(load_schema(), declared)
    decoder = LineDecoder(
        load_schema(), maximum_line_bytes=1 << 20, is_relayed=True, in_force=lambda: schema
    )
    bay = {"type": "uint16", "value": 900}
    relay = {"subscription": "u", "acceptedAt": 1.0, "context": "c", "number": 1}
    line = {"class": "HP_Alert", "properties": {"Bay": bay}, "relay": relay}
    decoded = decoder.decode(json.dumps(line).encode())
    assert json.loads(decoded.body)["properties"] == {"Bay": bay}
    assert not decoded.undeclared


async def test_relayed_lines_are_not_limited_and_spend_nothing(gateway: Door) -> None:
    """Their publishers were limited at the sidecars."""
    gateway.context.paces = PublisherPaces(RateLimit(per_second=0.001))
    lines = [relayed(alert(str(number)) | {"source": "s"}, number) for number in range(5)]
    found, _ = await relay(gateway, *lines)
    assert found == [200] * 5
    assert len(gateway.context.paces) == 0


# ---------------------------------------------------------------------- dead letters


def dead(number: int = 0, **changes: Any) -> dict[str, Any]:
    line = relayed("x", number)
    why = {"destination": "siem", "reason": "queue-full", "detail": "", "attempts": 2, "at": 1.5}
    line["relay"]["discard"] = {**why, **changes}
    return line


async def test_a_dead_letter_keeps_its_reason_and_is_told_apart_by_who_lost_it(
    gateway: Door,
) -> None:
    _, document = await relay(gateway, dead(), dead(1, destination="noc"), dead(2), relayed("x"))
    assert (document["accepted"], document["duplicate"]) == (3, 1)
    found = [one.dead_letter for one in gateway.queues.taken]
    assert found[0] == DeadLetter("siem", "queue-full", "", 2, 1.5)
    assert [one and one.destination for one in found] == ["siem", "noc", None]


@pytest.mark.parametrize(
    "changes",
    [{"destination": ""}, {"reason": "x" * 254}, {"attempts": -1}, {"detail": None}, {"more": 1}],
)
async def test_a_wrong_reason_of_a_dead_letter_is_refused(
    gateway: Door, changes: dict[str, Any]
) -> None:
    _, document = await relay(gateway, dead(**changes))
    (refused,) = document["refused"]
    assert (refused["status"], refused["field"]) == (400, "relay.discard")
