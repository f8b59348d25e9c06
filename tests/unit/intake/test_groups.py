"""Message groups at the door: the members of a line, order, expiry, duplicates, refusals (S1)."""

import json
from datetime import UTC, datetime
from typing import Any

import pytest

from pillion_sidecar.indication import DiscardReason, Refusal
from pillion_sidecar.intake.submission import MAXIMUM_GROUP_LIFE
from pillion_sidecar.reliability.group_index import GroupLimits
from pillion_sidecar.reliability.message_groups import Groups
from support.intake import Door, alert, lines, target

LATER = "2023-12-01T00:00:00Z"


def member(sequence: int, identifier: str | None = None, **members: Any) -> dict[str, Any]:
    return alert(identifier) | {"group": "g", "sequence": sequence} | members


def sequences(door: Door) -> list[int]:
    return [one.member.sequence for one in door.queues.taken if one.member is not None]


# ---------------------------------------------------------------------- what a line may say


@pytest.mark.parametrize("spaced", [False, True])
async def test_a_members_place_travels_with_it(spaced: bool) -> None:
    async with Door().open() as door:
        line = member(
            7,
            "x",
            last=True,
            ordered=False,
            expires="2023-11-30T23:59:59Z",
            groupExpires=LATER,
            groupMaxIdleSeconds=60,
        )
        # Spaces before colons take the complete way, the usual spelling the shorter one.
        body = json.dumps(line, separators=(",", " : " if spaced else ":")).encode()
        status, _, _ = await door.post(lines(body) if not spaced else body + b"\n")
        assert status == 200
        (taken,) = door.queues.taken
        assert taken.member is not None
        assert (taken.group, taken.member.sequence, taken.member.last) == ("g", 7, True)
        assert (taken.member.ordered, taken.member.max_idle_seconds) == (False, 60.0)
        assert taken.member.expires == taken.expires + 1 if taken.expires else 0
        assert json.loads(taken.body).keys() == {"class", "properties"}


@pytest.mark.parametrize(
    ("members", "field"),
    [
        ({"sequence": -1}, "sequence"),
        ({"sequence": 1.0}, "sequence"),
        ({"sequence": True}, "sequence"),
        ({"sequence": "1"}, "sequence"),
        ({"sequence": None}, "sequence"),
        ({"sequence": 2**63 - 1}, "sequence"),
        ({"last": 1}, "last"),
        ({"last": None}, "last"),
        ({"ordered": "yes"}, "ordered"),
        ({"groupExpires": "tomorrow"}, "groupExpires"),
        ({"groupExpires": 5}, "groupExpires"),
        ({"groupExpires": LATER, "expires": LATER}, "groupExpires"),
        ({"groupMaxIdleSeconds": 0}, "groupMaxIdleSeconds"),
        ({"groupMaxIdleSeconds": -1.5}, "groupMaxIdleSeconds"),
        ({"groupMaxIdleSeconds": True}, "groupMaxIdleSeconds"),
        ({"groupMaxIdleSeconds": 10**400}, "groupMaxIdleSeconds"),
        ({"groupMaxIdleSeconds": 2_592_001}, "groupMaxIdleSeconds"),
        ({"group": "x" * 1025}, "group"),
        ({"source": "x" * 1025}, "source"),
        ({"groupExpires": "2001-01-01T00:00:00Z"}, "groupExpires"),
    ],
)
async def test_a_wrong_member_is_told_by_field(members: dict[str, Any], field: str) -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(lines(member(1) | members))
        assert status == 400
        assert document["refused"][0]["field"] == field
        assert door.queues.taken == []


async def test_a_group_that_would_last_for_more_than_31_days_is_refused() -> None:
    async with Door().open() as door:
        now = door.time.time()
        ends = [
            datetime.fromtimestamp(now + MAXIMUM_GROUP_LIFE + more, UTC).isoformat()
            for more in (0, 1)
        ]
        status, document, _ = await door.post(
            lines(member(0, groupExpires=ends[0]), member(0, group="h", groupExpires=ends[1]))
        )
        assert (status, document["accepted"]) == (207, 1)
        (refused,) = document["refused"]
        assert (refused["line"], refused["status"], refused["field"]) == (1, 400, "groupExpires")
        assert "2678400 seconds" in refused["reason"]
        assert sequences(door) == [0]


@pytest.mark.parametrize("name", ["sequence", "last", "ordered", "groupExpires"])
async def test_a_place_without_a_group_is_told_by_field(name: str) -> None:
    async with Door().open() as door:
        value = {"sequence": 1, "groupExpires": LATER}.get(name, True)
        status, document, _ = await door.post(lines(alert("x") | {name: value}))
        assert (status, document["refused"][0]["field"]) == (400, name)


async def test_a_place_without_a_sequence_is_told_by_field() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(lines(alert() | {"group": "g", "ordered": True}))
        assert (status, document["refused"][0]["field"]) == (400, "ordered")
        assert "sequence" in document["refused"][0]["reason"]


async def test_a_group_alone_is_a_key_and_nothing_else() -> None:
    async with Door().open() as door:
        await door.post(lines(alert() | {"group": "g"}, alert() | {"group": "g"}))
        assert [one.member for one in door.queues.taken] == [None, None]
        assert door.groups.active == 0


async def test_members_that_contradict_their_group_are_told_by_field() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(
            lines(member(0), member(1, ordered=True), member(2, groupExpires=LATER), member(3))
        )
        assert (status, document["accepted"]) == (207, 2)
        assert [(one["status"], one["field"]) for one in document["refused"]] == [
            (400, "ordered"),
            (400, "groupExpires"),
        ]


# ---------------------------------------------------------------------- order


async def test_members_are_delivered_in_sequence_whatever_their_order() -> None:
    async with Door().open() as door:
        ordered: dict[str, Any] = {"ordered": True, "groupMaxIdleSeconds": 60}
        status, document, _ = await door.post(
            lines(member(2, **ordered), member(0, **ordered), member(1, **ordered))
        )
        assert (status, document["accepted"]) == (200, 3)
        assert sequences(door) == [0, 1, 2]


async def test_groups_of_two_sources_are_two() -> None:
    async with Door().open() as door:
        await door.post(lines(member(0, source="a"), member(0, source="b"), member(0)))
        assert door.groups.active == 3


async def test_an_acknowledged_member_that_is_discarded_is_told_as_a_fault() -> None:
    async with Door().open() as door:
        status, document, _ = await door.post(
            lines(member(0, ordered=True), member(2, "late", ordered=True)),
            path="/v1/indications?ack=delivered&timeout=0&source=s",
        )
        assert (status, document["accepted"]) == (202, 2)
        assert document["discarded"] == [
            {"line": 1, "destination": "siem", "reason": "out-of-order"}
        ]
        # A repeat is told the same.
        _, document, _ = await door.post(
            lines(member(2, "late", ordered=True)),
            path="/v1/indications?ack=delivered&timeout=0&source=s",
        )
        assert document["duplicate"] == 1
        assert document["discarded"][0]["reason"] == "out-of-order"


async def test_a_held_member_that_is_discarded_later_ends_the_wait() -> None:
    async with Door().open() as door:
        _, document, _ = await door.post(
            lines(member(1, ordered=True, groupMaxIdleSeconds=5)),
            path="/v1/indications?ack=delivered&timeout=0",
        )
        assert document["pending"] == 1
        door.time.advance(5)
        _, receipt = await door.get(f"/v1/receipts/{document['receipt']}")
        assert receipt["discarded"][0]["reason"] == "out-of-order"


# ---------------------------------------------------------------------- duplicates


async def test_a_member_without_an_identifier_is_known_by_its_place() -> None:
    async with Door().open() as door:
        await door.post(lines(member(0)))
        assert door.queues.taken[0].digest is not None
        path = "/v1/indications?ack=delivered&timeout=0"
        _, document, _ = await door.post(lines(member(0)), path=path)
        assert (document["duplicate"], document["pending"]) == (1, 1)
        door.queues.settle(0)
        _, document, _ = await door.post(lines(member(0)), path=path)
        assert (document["duplicate"], document["delivered"]) == (1, 1)


async def test_a_repeat_of_a_discarded_member_is_told_so() -> None:
    async with Door().open() as door:
        await door.post(lines(member(0)))
        door.queues.settle(0, discarded=DiscardReason.LIFETIME_EXPIRED)
        _, document, _ = await door.post(lines(member(0)), path="/v1/indications?ack=delivered")
        assert document["discarded"][0]["reason"] == "lifetime-expired"


async def test_a_repeat_whose_original_nobody_remembers_is_not_called_delivered() -> None:
    async with Door().open() as door:
        await door.post(lines(member(0, "one", source="s")))
        door.queues.settle(0)
        # By another identifier only its place tells that it is a repeat.
        _, document, _ = await door.post(
            lines(member(0, "two", source="s")), path="/v1/indications?ack=delivered&timeout=0"
        )
        assert (document["duplicate"], document["pending"]) == (1, 1)


async def test_a_repeat_of_a_held_member_under_another_identifier_is_told_of_its_original() -> None:
    async with Door().open() as door:
        held: dict[str, Any] = {"source": "s", "ordered": True, "groupMaxIdleSeconds": 5}
        await door.post(lines(member(1, "one", **held)))
        _, document, _ = await door.post(
            lines(member(1, "two", **held)), path="/v1/indications?ack=delivered&timeout=0"
        )
        assert (document["duplicate"], document["pending"]) == (1, 1)
        door.time.advance(5)
        status, receipt = await door.get(f"/v1/receipts/{document['receipt']}?timeout=0")
        assert (status, receipt["pending"]) == (200, 0)
        assert receipt["discarded"][0]["reason"] == "out-of-order"


async def test_a_new_group_of_the_same_name_is_not_told_of_the_old_ones_members() -> None:
    async with Door().open() as door:
        await door.post(lines(member(0), member(2, last=True)))
        door.queues.settle(0, discarded=DiscardReason.QUEUE_FULL)
        # t4.2: the group ended incomplete, and its state is gone.
        _, document, _ = await door.post(lines(member(0)))
        assert document["accepted"] == 1
        _, document, _ = await door.post(
            lines(member(0)), path="/v1/indications?ack=delivered&timeout=0"
        )
        assert (document["duplicate"], document["pending"]) == (1, 1)


async def test_what_expires_while_it_is_looked_at_is_still_found_to_be_a_duplicate() -> None:
    """The draft's refinement (S1.3): all conditions count as of the moment of readiness."""
    door = Door()
    expires = "2023-11-14T22:13:25Z"
    line = alert("x") | {"source": "s", "expires": expires}
    async with door.open():
        await door.post(lines(line))
        reads = 0

        class Rushing:
            """Each look at the clock costs two seconds."""

            def monotonic(self) -> float:
                nonlocal reads
                reads += 1
                if reads > 1:
                    door.time.advance(2)
                return door.time.monotonic()

            def time(self) -> float:
                return door.time.time()

        door.time.advance(4)
        door.context.clock = Rushing()
        _, document, _ = await door.post(lines(line))
        assert (document["accepted"], document["duplicate"]) == (0, 1)
        door.time.advance(2)
        status, document, _ = await door.post(lines(line))
        assert (status, document["refused"][0]["field"]) == (400, "expires")


# ---------------------------------------------------------------------- refusals


async def test_a_full_journal_closes_the_rest_of_the_request() -> None:
    async with Door().open() as door:
        door.queues.refusal = Refusal(3.0, "the journal is full")
        door.routes.by_class["CIM_AlertInstIndication"] = ()
        other = alert("c") | {"class": "CIM_AlertInstIndication"}
        status, document, headers = await door.post(lines(alert("a"), alert("b"), other))
        assert (status, headers["Retry-After"]) == (429, "3")
        assert [one["reason"] for one in document["refused"]] == ["the journal is full"] * 3
        assert [one.get("destination") for one in document["refused"]] == [None] * 3
        door.queues.refusal = None
        status, document, _ = await door.post(lines(alert("a"), alert("b"), other))
        assert (status, document["accepted"]) == (200, 3)


async def test_what_is_journaled_without_a_target_has_an_identity_or_a_place() -> None:
    async with Door().open() as door:
        door.routes.targets = ()
        await door.post(lines(alert("a") | {"source": "s"}, alert(), member(0)))
        assert [one.digest is not None for one in door.queues.taken] == [True, True]


async def test_a_refused_member_of_an_ordered_group_is_not_overtaken_in_its_group() -> None:
    """The ones behind it would be hopelessly out of order, and end the group (d3)."""
    async with Door().open() as door:
        door.routes.by_class["CIM_AlertIndication"] = (target("siem"),)
        door.queues.full.add("siem")
        other = alert() | {"class": "CIM_AlertInstIndication", "group": "g"}
        door.routes.by_class["CIM_AlertInstIndication"] = (target("noc"),)
        status, document, _ = await door.post(
            lines(
                member(0, ordered=True),
                other | {"sequence": 1, "ordered": True},
                other | {"group": "h", "sequence": 0, "ordered": True},
            )
        )
        assert (status, document["accepted"]) == (207, 1)
        assert "member 0 of its group" in document["refused"][1]["reason"]
        assert door.queues.out_of_order == []
        door.queues.full.clear()
        status, document, _ = await door.post(
            lines(member(0, ordered=True), other | {"sequence": 1, "ordered": True})
        )
        assert (status, document["accepted"]) == (200, 2)


async def test_more_groups_than_can_be_kept_are_refused_for_now_and_close_the_request() -> None:
    async with Door().open() as door:
        door.context.groups = Groups(
            clock=door.time,
            timers=door.time,
            queues=door.queues,
            window_seconds=3600,
            limits=GroupLimits(groups=1),
        )
        status, document, headers = await door.post(
            lines(member(0), member(0, group="h"), alert("behind"))
        )
        assert (status, document["accepted"], headers["Retry-After"]) == (207, 1, "1")
        assert [one["status"] for one in document["refused"]] == [429, 429]
        assert "1 message groups are remembered already" in document["refused"][0]["reason"]


async def test_a_member_that_cannot_be_held_does_not_keep_out_the_one_that_it_waits_for() -> None:
    async with Door().open() as door:
        door.context.groups = Groups(
            clock=door.time,
            timers=door.time,
            queues=door.queues,
            window_seconds=3600,
            limits=GroupLimits(held=1),
        )
        ordered: dict[str, Any] = {"ordered": True, "groupMaxIdleSeconds": 60}
        status, document, _ = await door.post(
            lines(member(1, **ordered), member(2, **ordered), member(0, **ordered))
        )
        assert (status, document["accepted"]) == (207, 2)
        (refused,) = document["refused"]
        assert (refused["line"], refused["status"]) == (1, 429)
        assert sequences(door) == [0, 1]


# ---------------------------------------------------------------------- a group is sent again

AGAIN: dict[str, Any] = {"ordered": True, "groupMaxIdleSeconds": 60}
SOURCE = "/v1/indications?source=s"


def steps(group: str, *sequences: int, last: int | None = None) -> bytes:
    return lines(
        *(
            alert(f"step-{n}")
            | {"group": group, "sequence": n, **AGAIN}
            | ({"last": True} if n == last else {})
            for n in sequences
        )
    )


async def test_a_group_that_failed_is_sent_again_whole_under_a_new_group_id() -> None:
    async with Door().open() as door:
        await door.post(steps("g1", 0, 2, 3), path=SOURCE)
        door.queues.settle(0)
        door.time.advance(61)
        assert [one.identifier for one in door.queues.out_of_order] == ["step-2", "step-3"]
        status, document, _ = await door.post(steps("g2", 0, 1, 2, 3, last=3), path=SOURCE)
        # Delivered once, and its place is no gap; the others come for the first time.
        assert (status, document["duplicate"], document["accepted"]) == (200, 1, 3)
        again = [one.identifier for one in door.queues.taken if one.group == "g2" and one.body]
        assert again == ["step-1", "step-2", "step-3"]
        assert door.groups.terminations["t3.1"] == 1


async def test_a_duplicate_whose_place_comes_first_lets_the_held_ones_go() -> None:
    async with Door().open() as door:
        await door.post(steps("g1", 0), path=SOURCE)
        door.queues.settle(0)
        await door.post(steps("g2", 1), path=SOURCE)
        assert door.groups.held == 1
        await door.post(steps("g2", 0), path=SOURCE)
        assert door.groups.held == 0


async def test_what_was_discarded_everywhere_may_come_again() -> None:
    async with Door().open() as door:
        await door.post(lines(alert("1")), path=SOURCE)
        door.queues.settle(0, discarded=DiscardReason.ATTEMPTS_EXCEEDED)
        _, document, _ = await door.post(lines(alert("1")), path=SOURCE)
        assert (document["accepted"], document["duplicate"]) == (1, 0)
        # While that is pending, and once it is delivered, a repeat is one.
        _, document, _ = await door.post(lines(alert("1")), path=SOURCE)
        assert document["duplicate"] == 1
        door.queues.settle(1)
        _, document, _ = await door.post(lines(alert("1")), path=SOURCE)
        assert document["duplicate"] == 1


async def test_what_one_listener_has_does_not_come_again() -> None:
    async with Door().open() as door:
        door.routes.targets = (target("siem"), target("noc"))
        await door.post(lines(alert("1")), path=SOURCE)
        door.queues.settle(0, discarded=DiscardReason.ATTEMPTS_EXCEEDED, destination="siem")
        _, document, _ = await door.post(lines(alert("1")), path=SOURCE)
        assert document["duplicate"] == 1
        door.queues.settle(0, destination="noc")
        _, document, _ = await door.post(lines(alert("1")), path=SOURCE)
        assert document["duplicate"] == 1


async def test_a_destination_that_lost_the_original_gets_nothing_behind_its_repeat() -> None:
    async with Door().open() as door:
        door.routes.targets = (target("siem"), target("noc"))
        await door.post(steps("g1", 0), path=SOURCE)
        door.queues.settle(0, destination="noc")
        door.queues.settle(0, discarded=DiscardReason.ATTEMPTS_EXCEEDED, destination="siem")
        await door.post(steps("g2", 0), path=SOURCE)
        ((run, destination),) = door.queues.lost
        assert destination == "siem"
        await door.post(steps("g2", 1), path=SOURCE)
        assert door.queues.taken[-1].group_run == run
