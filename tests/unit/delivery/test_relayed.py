"""What a gateway took from a sidecar, on its way to the listener."""

import logging
from collections.abc import Callable

import pytest

from pillion_sidecar.config.schema.destination import DeliverThrough, RetryPolicy
from pillion_sidecar.config.schema.subscription import RepeatNotification, RepeatPolicy
from pillion_sidecar.delivery.entries import RepeatNotifications, SubscriptionEnd
from pillion_sidecar.indication import DiscardReason, Indication, Relayed, Target
from pillion_sidecar.journal.files import Files
from support.delivery import ERROR, SUCCESS, Deliverer, destination, subscription
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

OPS = Target("ops", "filter-of-ops", "ops", event=("an event",))
#: Each event once in a minute.
SUPPRESS = RepeatNotification(policy=RepeatPolicy.SUPPRESS, interval_seconds=60.0, count=1)
THROUGH = {"deliver_through": DeliverThrough.GATEWAY}


def relayed(deliverer: Deliverer, identifier: str, *, ago: float = 0.0) -> Indication:
    """An indication that a sidecar accepted some seconds ago, and relays now."""
    now = deliverer.time.monotonic()
    return Indication(
        body=b"{}",
        class_name="CIM_AlertIndication",
        accepted_at=now - ago,
        identifier=identifier,
        trackers=(deliverer.settlements,),
        relayed=Relayed(now, deliverer.time.time() + 86_400),
    )


def in_memory() -> Deliverer:
    return Deliverer()


def on_disk() -> Deliverer:
    return OnDisk(MemoryFiles())


@pytest.mark.parametrize("make", [in_memory, on_disk])
@pytest.mark.parametrize("held", [False, True])
def test_what_is_relayed_for_a_subscription_that_has_ended_is_discarded_and_told(
    make: Callable[[], Deliverer], held: bool, caplog: pytest.LogCaptureFixture
) -> None:
    deliverer = make()
    deliverer.apply([destination("ops")], [subscription("ops", "ops", duration_seconds=10.0)])
    deliverer.advance(11)
    one = relayed(deliverer, "late")
    with caplog.at_level(logging.WARNING):
        if held:
            assert deliverer.service.hold(one, [OPS]) is None
            deliverer.service.release(one)
        else:
            assert deliverer.service.offer(one, [OPS]) is None
        deliverer.run()
    assert deliverer.settlements.seen == [("late", "ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE)]
    assert deliverer.queue("ops").statistics.discarded[DiscardReason.SUBSCRIPTION_NOT_ACTIVE] == 1
    assert deliverer.handlers["ops"].attempts == []
    assert deliverer.service.pending == 0
    assert [r.identifier for r in caplog.records if r.event == "indication-discarded"] == ["late"]


def test_its_lifetime_counts_from_its_acceptance_by_the_sidecar() -> None:
    deliverer = Deliverer()
    deliverer.answer = ERROR
    retry = RetryPolicy(attempts=100, interval_seconds=30.0)
    deliverer.apply([destination("ops", retry=retry, indication_lifetime_seconds=300.0)])
    deliverer.service.offer(relayed(deliverer, "a", ago=250), [OPS])
    deliverer.advance(49)
    assert deliverer.queue("ops").depth == 1
    deliverer.advance(2)
    assert deliverer.settlements.seen == [("a", "ops", DiscardReason.LIFETIME_EXPIRED)]


def test_its_lifetime_goes_on_over_a_restart() -> None:
    files: Files = MemoryFiles()
    retry = RetryPolicy(attempts=100, interval_seconds=30.0)
    ops = destination("ops", retry=retry, indication_lifetime_seconds=300.0)
    deliverer = OnDisk(files)
    deliverer.answer = ERROR
    deliverer.apply([ops])
    deliverer.service.offer(relayed(deliverer, "a", ago=250), [OPS])
    deliverer.service.offer(relayed(deliverer, "b", ago=100), [OPS])
    deliverer.run()
    following = deliverer.restart()
    following.answer = ERROR
    following.apply([ops])
    following.advance(51)
    assert following.queue("ops").statistics.discarded[DiscardReason.LIFETIME_EXPIRED] == 1
    assert following.queue("ops").depth == 1


def test_whether_a_full_queue_refuses_is_judged_as_of_now() -> None:
    deliverer = Deliverer()
    deliverer.apply([destination("ops", queue_size=1)])
    deliverer.publish("delivered", "ops")
    deliverer.run()
    deliverer.handlers["ops"].answer = ERROR
    deliverer.advance(1000)
    deliverer.publish("older", "ops")
    deliverer.advance(31)
    # The listener fails: it is not the sidecar that waits.
    assert deliverer.service.offer(relayed(deliverer, "a", ago=1e6), [OPS]) is None
    assert deliverer.settlements.discarded(DiscardReason.QUEUE_FULL) == ["older"]


# ---------------------------------------------------------------------- repeats


def test_repeats_are_told_by_the_gateway_over_all_sidecars() -> None:
    deliverer = Deliverer()
    repeating = subscription("ops", "ops", repeat_notification=SUPPRESS)
    deliverer.apply([destination("ops", **THROUGH)], [repeating])
    for identifier in ("one", "two"):
        deliverer.service.offer(relayed(deliverer, identifier), [OPS])
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["one"]


def test_what_is_handed_over_has_been_let_through_by_its_sidecar() -> None:
    deliverer = Deliverer()
    repeating = subscription("ops", "ops", repeat_notification=SUPPRESS)
    deliverer.apply([destination("ops")], [repeating])
    for identifier in ("one", "two"):
        deliverer.service.offer(relayed(deliverer, identifier), [OPS])
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["one", "two"]


def test_a_sidecar_lets_all_through_to_the_gateway() -> None:
    deliverer = Deliverer()
    repeating = subscription("ops", "ops", repeat_notification=SUPPRESS)
    deliverer.apply([destination("ops", relay_to="shared", **THROUGH)], [repeating])
    for identifier in ("one", "two"):
        deliverer.publish(identifier, "ops")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["one", "two"]


def test_occurrences_that_waited_for_the_gateway_count_as_of_their_acceptance() -> None:
    deliverer = Deliverer()
    repeating = subscription("ops", "ops", repeat_notification=SUPPRESS)
    deliverer.apply([destination("ops", **THROUGH)], [repeating])
    for ago in (200, 190, 100, 0):
        deliverer.service.offer(relayed(deliverer, str(ago), ago=ago), [OPS])
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["200", "100", "0"]


@pytest.mark.parametrize("policy", [RepeatPolicy.SUPPRESS, RepeatPolicy.DELAY])
def test_an_occurrence_that_comes_late_opens_no_interval_of_its_own(policy: RepeatPolicy) -> None:
    repeats = RepeatNotifications(
        RepeatNotification(policy=policy, interval_seconds=60.0, gap_seconds=600.0, count=1)
    )
    times = (1000.0, 100.0, 1001.0, 200.0, 1002.0)
    sent = [repeats.admits("event", now=time) for time in times]
    expected = {
        RepeatPolicy.SUPPRESS: [True, False, False, False, False],
        RepeatPolicy.DELAY: [False, True, False, False, False],
    }
    assert sent == expected[policy]


def test_a_subscription_that_ends_while_it_is_on_its_way_to_disk_discards_it() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops")])
    deliverer.service.offer(relayed(deliverer, "a"), [OPS])
    table = deliverer.service._table.subscriptions
    found = table.get("ops")
    assert found is not None
    table.end(found, SubscriptionEnd.EXPIRED)
    deliverer.run()
    assert deliverer.settlements.seen == [("a", "ops", DiscardReason.SUBSCRIPTION_NOT_ACTIVE)]
