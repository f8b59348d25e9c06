"""What a deliverer that is gone left pending comes through the gateway's relay door, each once and
in order."""

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE, GroupMember, Refusal
from pillion_sidecar.intake.adoption import (
    LEFT_SECONDS,
    RETRY_SECONDS,
    UNKNOWN_SECONDS,
    AdoptionSender,
    StoppedError,
)
from pillion_sidecar.intake.relay import RelaySubmission
from support.adoption import DECODER, Adopter, Gone
from support.delivery import destination, subscription
from support.relay_lines import compact, relayed


async def until(condition: Callable[[], bool]) -> None:
    """Let turns go on."""
    for _ in range(100):
        if condition():
            return
        await asyncio.sleep(0)
    raise AssertionError("it does not come")


async def sent(sender: AdoptionSender) -> dict[str, tuple[int, int, int, int]]:
    """Send all; return pending, taken, duplicate and refused by destination."""
    await sender.send()
    return counts(sender)


def counts(sender: AdoptionSender) -> dict[str, tuple[int, int, int, int]]:
    return {
        one.name: (one.pending, one.taken, one.duplicate, one.refused) for one in sender.progress
    }


def problem(sender: AdoptionSender) -> str | None:
    """Why the destination siem waits."""
    return next(one.problem for one in sender.progress if one.name == "siem")


async def test_what_is_pending_is_sent_in_order_and_marked_as_a_repeat() -> None:
    gone = Gone("siem", "ops")
    gone.give_all("1", "2", "3")
    gone.give_all("4", to=["ops"])
    adopter = Adopter("siem", "ops")
    found = await sent(adopter.sender(gone.copy()))
    assert found == {"siem": (0, 3, 0, 0), "ops": (0, 4, 0, 0)}
    assert adopter.taken("siem") == ["1", "2", "3"]
    assert adopter.taken("ops") == ["1", "2", "3", "4"]
    assert {one.redrives for one in adopter.queues.taken} == {REDRIVEN_ELSEWHERE}


async def test_it_keeps_the_time_at_which_the_deliverer_accepted_it() -> None:
    gone = Gone()
    accepted = gone.time.time()
    gone.give_all("1")
    adopter = Adopter(time=gone.time)
    gone.time.advance(500.0)
    await sent(adopter.sender(gone.copy()))
    (one,) = adopter.queues.taken
    since = adopter.time.time() - adopter.time.monotonic()
    assert one.accepted_at + since == pytest.approx(accepted, abs=0.001)


async def test_what_the_deliverer_had_settled_is_not_sent() -> None:
    gone = Gone()
    gone.give_all("1", "2", "3")
    gone.service.skip("siem")
    gone.rest()
    adopter = Adopter()
    assert await sent(adopter.sender(gone.copy())) == {"siem": (0, 2, 0, 0)}
    assert adopter.taken("siem") == ["2", "3"]


async def test_a_second_adopter_finds_only_duplicates() -> None:
    gone = Gone()
    gone.give_all("1", "2", "3")
    adopter = Adopter()
    await sent(adopter.sender(gone.copy()))
    again = await sent(adopter.sender(gone.copy()))
    assert again == {"siem": (0, 0, 3, 0)}
    assert len(adopter.queues.taken) == 3


async def test_more_than_one_request_has_is_sent_in_order() -> None:
    gone = Gone("siem", "ops")
    names = [str(number) for number in range(700)]
    for name in names:
        gone.publish(name)
    gone.run()
    gone.rest()
    adopter = Adopter("siem", "ops")
    assert set((await sent(adopter.sender(gone.copy()))).values()) == {(0, 700, 0, 0)}
    assert adopter.taken("siem") == adopter.taken("ops") == names


async def test_a_full_destination_waits_and_no_other_does() -> None:
    gone = Gone("siem", "ops")
    gone.give_all("1", "2")
    adopter = Adopter("siem", "ops")
    adopter.fill("siem")
    sender = adopter.sender(gone.copy())
    sending = asyncio.ensure_future(sender.send())
    await until(lambda: adopter.taken("ops") == ["1", "2"])
    assert counts(sender)["siem"] == (2, 0, 0, 0)
    assert problem(sender) == "the queue of destination siem is full"
    adopter.queues.full.clear()
    adopter.time.advance(2.0)
    await sending
    assert adopter.taken("siem") == ["1", "2"]
    assert problem(sender) is None


async def test_a_gateway_without_room_takes_a_beginning_first() -> None:
    gone = Gone()
    gone.give_all("1", "2", "3")
    adopter = Adopter()
    offer = adopter.queues.offer

    def offering(*given: Any, **more: Any) -> Any:
        if len(adopter.queues.taken) == 2:
            adopter.fill()
        return offer(*given, **more)

    adopter.queues.offer = offering  # type: ignore[method-assign]
    sender = adopter.sender(gone.copy())
    sending = asyncio.ensure_future(sender.send())
    await until(lambda: problem(sender) == "full")
    assert counts(sender) == {"siem": (1, 2, 0, 0)}
    adopter.queues.offer = offer  # type: ignore[method-assign]
    adopter.queues.refusal = None
    adopter.time.advance(2.0)
    await sending
    assert adopter.taken("siem") == ["1", "2", "3"]


async def test_all_is_done_only_once_it_is_on_disk() -> None:
    gone = Gone()
    gone.give_all("1")
    adopter = Adopter()
    adopter.queues.barriers = []
    sending = asyncio.ensure_future(adopter.sender(gone.copy()).send())
    await adopter.queues.barrier_asked.wait()
    assert not sending.done()
    adopter.queues.secure()
    await sending


async def test_a_gateway_that_stops_takes_no_more() -> None:
    gone = Gone()
    gone.give_all("1")
    adopter = Adopter()
    adopter.context.closing = "it ends"
    with pytest.raises(StoppedError, match="it ends"):
        await adopter.sender(gone.copy()).send()
    assert adopter.queues.taken == []


async def test_a_line_that_is_refused_for_good_is_told_and_passed() -> None:
    gone = Gone()
    gone.publish("1")
    gone.publish("2", body=b'{"class":"CIM_AlertIndication","properties":{"AlertType":"x"}}')
    gone.publish("3")
    gone.run()
    gone.rest()
    adopter = Adopter()
    assert await sent(adopter.sender(gone.copy())) == {"siem": (0, 2, 0, 1)}
    assert adopter.taken("siem") == ["1", "3"]
    ((name, reason),) = adopter.refused
    assert name == "siem"
    assert "AlertType" in reason


async def test_what_a_gateway_had_of_the_deliverer_is_a_duplicate() -> None:
    gone = Gone("siem", relay_to="shared", deliver_through=DeliverThrough.GATEWAY)
    gone.give_all("1", "2", "3")
    sequence = gone.queue("siem").sequence
    adopter = Adopter()
    submission = RelaySubmission(context=adopter.context)
    before = [
        compact(relayed(name, number, uid="uid-siem", context=sequence.context, source=None))[:-1]
        for number, name in enumerate("12")
    ]
    assert DECODER.submit(before, first=0, submission=submission) == submission.accepted == 2
    found = await sent(adopter.sender(gone.copy(), service=gone.configuration.service.name))
    assert found == {"siem": (0, 1, 2, 0)}
    assert adopter.taken("siem") == ["1", "2", "3"]


# ---------------------------------------------------------------------- groups


def member(sequence: int, *, timed: bool = True) -> GroupMember:
    idle = 500.0 if timed else None
    return GroupMember(sequence=sequence, ordered=True, max_idle_seconds=idle)


async def test_what_follows_a_lost_member_is_not_sent() -> None:
    gone = Gone("siem", suspended=True)
    for sequence in range(3):
        gone.publish(str(sequence), group="g", member=member(sequence), run=1)
    gone.publish("other")
    gone.run()
    gone.rest()
    gone.service.skip("siem")
    gone.rest()
    assert gone.queue("siem").depth == 3
    adopter = Adopter()
    found = await sent(adopter.sender(gone.copy()))
    assert adopter.taken("siem") == ["other"]
    assert found == {"siem": (0, 1, 0, 2)}


def hold(gone: Gone, sequence: int) -> None:
    indication = gone.indication(str(sequence), body=gone.body_of(str(sequence)))
    indication.group, indication.member, indication.group_run = "g", member(sequence), 1
    assert gone.service.hold(indication, gone.targets()) is None
    gone.rest()


async def test_held_members_go_with_what_their_group_had() -> None:
    gone = Gone()
    gone.publish("0", group="g", member=member(0), run=1)
    hold(gone, 2)
    hold(gone, 3)
    adopter = Adopter(time=gone.time)
    found = await sent(adopter.sender(gone.copy()))
    assert found == {"siem": (0, 3, 0, 0)}
    assert adopter.taken("siem") == ["0"]
    assert len(adopter.queues.held) == 2
    again = await sent(adopter.sender(gone.copy()))
    assert again == {"siem": (0, 0, 3, 0)}
    missing = relayed(
        *("1", 7),
        uid="uid-siem",
        source=None,
        group="g",
        sequence=1,
        ordered=True,
        groupMaxIdleSeconds=500.0,
        accepted_at=gone.time.time(),
    )
    submission = RelaySubmission(context=adopter.context)
    DECODER.submit([compact(missing)[:-1]], first=0, submission=submission)
    assert submission.refused == []
    assert adopter.taken("siem") == ["0", "1", "2", "3"]


async def test_held_members_end_with_their_group() -> None:
    gone = Gone()
    gone.publish("0", group="g", member=member(0), run=1)
    hold(gone, 2)
    adopter = Adopter(time=gone.time)
    await sent(adopter.sender(gone.copy()))
    adopter.time.advance(1000.0)
    assert [one.identifier for one in adopter.queues.out_of_order] == ["2"]
    assert adopter.context.groups.held == 0


async def test_a_held_member_waits_until_there_is_room_for_its_group() -> None:
    gone = Gone()
    gone.publish("0", group="g", member=member(0), run=1)
    hold(gone, 2)
    adopter = Adopter(time=gone.time)
    asked = 0
    note = adopter.context.groups.note_before

    def noting(**given: Any) -> Refusal | None:
        nonlocal asked
        asked += 1
        return Refusal(3.0, "too many groups") if asked == 1 else note(**given)

    adopter.context.groups.note_before = noting  # type: ignore[method-assign]
    sender = adopter.sender(gone.copy())
    sending = asyncio.ensure_future(sender.send())
    await until(lambda: problem(sender) == "too many groups")
    assert counts(sender) == {"siem": (1, 1, 0, 0)}
    adopter.time.advance(3.0)
    await sending
    assert counts(sender) == {"siem": (0, 2, 0, 0)}


# ---------------------------------------------------------------------- subscriptions


def two_subscriptions() -> Gone:
    gone = Gone()
    gone.apply([destination("siem")], [subscription("known", "siem"), subscription("lost", "siem")])
    for identifier, name in (("1", "known"), ("2", "lost"), ("3", "known"), ("4", "lost")):
        gone.give_all(identifier, to=[name])
    return gone


async def test_a_subscription_that_comes_late_is_waited_for() -> None:
    adopter = Adopter("known")
    sender = adopter.sender(two_subscriptions().copy())
    sending = asyncio.ensure_future(sender.send())
    await until(lambda: problem(sender) is not None)
    assert "its configuration may be on its way" in str(problem(sender))
    adopter.know("lost")
    adopter.time.advance(RETRY_SECONDS)
    await sending
    assert [one.identifier for one in adopter.queues.taken] == ["1", "2", "3", "4"]


async def test_a_subscription_that_does_not_come_keeps_no_other_waiting() -> None:
    adopter = Adopter("known")
    sender = adopter.sender(two_subscriptions().copy())
    sending = asyncio.ensure_future(sender.send())
    await until(lambda: counts(sender)["siem"] == (3, 1, 0, 0))
    for _ in range(2):
        adopter.time.advance(UNKNOWN_SECONDS)
        await until(lambda: sending.done() or adopter.time.next_due() is not None)
    await until(lambda: "does not know: lost" in str(problem(sender)))
    assert [one.identifier for one in adopter.queues.taken] == ["1", "3"]
    adopter.know("lost")
    adopter.time.advance(LEFT_SECONDS)
    await sending
    assert [one.identifier for one in adopter.queues.taken] == ["1", "3", "2", "4"]
    assert counts(sender) == {"siem": (0, 4, 0, 0)}
