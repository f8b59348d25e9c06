"""An ordered message group at one destination: one after the other, and never past a member that
was lost there (S1.5)."""

import logging

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import DeliverThrough, Ordering, RetryPolicy
from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.delivery.sequence import MAXIMUM_GAPS
from pillion_sidecar.indication import DiscardReason, GroupMember
from support.delivery import (
    ERROR,
    FATAL_ERROR,
    POST_DELIVERY_ERROR,
    SUCCESS,
    Deliverer,
    destination,
    subscription,
)
from support.fake_journal import FakeJournal
from support.journaled import restarted, settle_loads

OUT_OF_ORDER = DiscardReason.OUT_OF_ORDER
ONCE = RetryPolicy(attempts=0, interval_seconds=1.0)


def step(deliverer: Deliverer, sequence: int, *to: str, run: int = 1, group: str = "g") -> None:
    """Publish a member of an ordered group; its identifier is its sequence."""
    member = GroupMember(sequence, ordered=True)
    assert deliverer.publish(str(sequence), *to, group=group, member=member, run=run) is None


def steps(deliverer: Deliverer, *sequences: int, run: int = 1) -> None:
    for sequence in sequences:
        step(deliverer, sequence, run=run)


def to_ops(**changes: object) -> Deliverer:
    deliverer = Deliverer()
    deliverer.apply([destination("ops", retry=ONCE, **changes)])
    return deliverer


# ---------------------------------------------------------------------- the end of a group


def test_a_group_ends_where_a_member_is_lost_and_goes_on_elsewhere() -> None:
    deliverer = Deliverer()
    deliverer.apply([destination("dead", retry=ONCE), destination("well")])
    deliverer.handlers["dead"].answer = ERROR
    steps(deliverer, 0, 1, 2)
    deliverer.run()
    deliverer.handlers["dead"].answer = SUCCESS
    deliverer.advance(5)
    steps(deliverer, 3)
    deliverer.publish("single", "dead")
    deliverer.run()
    assert deliverer.handlers["dead"].identifiers == ["0", "single"]
    assert deliverer.handlers["well"].identifiers == ["0", "1", "2", "3"]
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["0"]
    # Each is told: to its publisher, in the log, in the metrics.
    assert deliverer.settlements.discarded(OUT_OF_ORDER) == ["1", "2", "3"]
    assert deliverer.queue("dead").statistics.discarded[OUT_OF_ORDER] == 3


def test_the_end_of_a_group_at_a_destination_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deliverer = to_ops()
    deliverer.handlers["ops"].answer = FATAL_ERROR
    with caplog.at_level(logging.WARNING, logger="pillion.delivery"):
        steps(deliverer, 4, 5, 6)
        deliverer.advance(5)
    told = [vars(one) for one in caplog.records if vars(one)["event"].startswith("group-")]
    assert [(one["event"], one["group"], one["sequence"]) for one in told] == [
        ("group-ended-at-destination", "g", 4)
    ]


@pytest.mark.parametrize("how", ["purge", "skip", "full", "subscription"])
def test_whatever_a_member_is_lost_by_nothing_behind_it_is_delivered(how: str) -> None:
    deliverer = to_ops(
        suspended=True, queue_size=3, queue_full_policy=QueueFullPolicy.DISCARD_OLDEST
    )
    steps(deliverer, 0, 1)
    destinations = list(deliverer.configuration.destinations.values())
    if how == "purge":
        deliverer.service.purge("ops")
    elif how == "skip":
        deliverer.service.skip("ops")
    elif how == "full":
        steps(deliverer, 2, 3)
    else:
        deliverer.apply(destinations, [])
        deliverer.apply(destinations)
    deliverer.apply([destination("ops", retry=ONCE)])
    steps(deliverer, 5, 6)
    deliverer.publish("single")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["single"]
    assert deliverer.settlements.discarded(OUT_OF_ORDER)[-2:] == ["5", "6"]


def test_a_member_whose_lifetime_ends_holds_back_the_younger_ones_behind_it() -> None:
    deliverer = Deliverer()
    deliverer.apply([destination("ops", indication_lifetime_seconds=100.0)])
    deliverer.handlers["ops"].answer = ERROR
    steps(deliverer, 0)
    deliverer.advance(80)
    steps(deliverer, 1)
    deliverer.publish("single")
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.handlers["ops"].attempts.clear()
    deliverer.queue("ops").health.next_attempt_at = deliverer.time.monotonic() + 30
    deliverer.advance(31)
    assert deliverer.handlers["ops"].identifiers == ["single"]
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["0"]
    assert deliverer.settlements.discarded(OUT_OF_ORDER) == ["1"]


def test_a_second_subscription_to_the_destination_still_gets_the_member_that_one_lost() -> None:
    deliverer = Deliverer()
    deliverer.apply(
        [destination("ops", retry=ONCE)], [subscription("a", "ops"), subscription("b", "ops")]
    )
    deliverer.handlers["ops"].answer = FATAL_ERROR
    step(deliverer, 0)
    deliverer.advance(5)
    assert len(deliverer.handlers["ops"].attempts) == 2


def test_a_group_of_the_same_name_that_follows_is_another_one() -> None:
    deliverer = to_ops()
    deliverer.handlers["ops"].answer = FATAL_ERROR
    steps(deliverer, 0, 1)
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.service.end_group(1)
    steps(deliverer, 0, 1, run=2)
    deliverer.advance(5)
    assert deliverer.handlers["ops"].identifiers == ["0", "0", "1"]
    assert len(deliverer.queue("ops").gaps) == 0


def test_the_end_is_kept_until_nothing_of_the_group_is_left() -> None:
    deliverer = to_ops(suspended=True)
    steps(deliverer, 0, 1, 2)
    deliverer.service.skip("ops")
    deliverer.service.end_group(1)
    assert len(deliverer.queue("ops").gaps) == 1
    deliverer.apply([destination("ops")])
    assert deliverer.handlers["ops"].identifiers == []
    assert deliverer.settlements.discarded(OUT_OF_ORDER) == ["1", "2"]


def test_the_ends_of_groups_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    deliverer = to_ops()
    deliverer.handlers["ops"].answer = FATAL_ERROR
    for run in range(1, MAXIMUM_GAPS + 3):
        step(deliverer, 0, run=run)
    with caplog.at_level(logging.WARNING, logger="pillion.delivery"):
        deliverer.run()
    assert len(deliverer.queue("ops").gaps) == MAXIMUM_GAPS
    events = [vars(one)["event"] for one in caplog.records]
    assert events.count("group-gap-forgotten") == 2


def test_ends_of_groups_that_are_over_and_gone_make_room() -> None:
    deliverer = to_ops()
    deliverer.handlers["ops"].answer = FATAL_ERROR
    for run in range(1, 2 * MAXIMUM_GAPS):
        step(deliverer, 0, run=run)
        deliverer.run()
        deliverer.service.end_group(run)
    assert len(deliverer.queue("ops").gaps) == 0


# ---------------------------------------------------------------------- side by side


def test_members_of_an_ordered_group_are_never_in_flight_together_whatever_the_ordering() -> None:
    deliverer = to_ops(ordering=Ordering.NONE, max_in_flight=8)
    deliverer.handlers["ops"].answer = None
    steps(deliverer, 0, 1)
    step(deliverer, 10, run=2, group="other")
    deliverer.publish("single")
    steps(deliverer, 2)
    deliverer.run()
    # The rest keeps its freedom.
    assert deliverer.handlers["ops"].identifiers == ["0", "10", "single"]
    deliverer.answer_held("ops", SUCCESS)
    assert deliverer.handlers["ops"].identifiers == ["0", "10", "single", "1"]


@pytest.mark.parametrize("outcome", [ERROR, POST_DELIVERY_ERROR])
@pytest.mark.parametrize("ordering", list(Ordering))
def test_members_of_an_ordered_group_do_not_overtake_each_other_after_a_failure(
    ordering: Ordering, outcome: object
) -> None:
    deliverer = Deliverer()
    in_flight = 1 if ordering is Ordering.DESTINATION else 4
    deliverer.apply([destination("ops", ordering=ordering, max_in_flight=in_flight)])
    handler = deliverer.handlers["ops"]
    handler.answer = outcome  # type: ignore[assignment]
    steps(deliverer, 0, 1, 2, 3)
    deliverer.advance(1)
    handler.answer = SUCCESS
    deliverer.advance(31)
    assert handler.identifiers == ["0", "0", "1", "2", "3"]


# ---------------------------------------------------------------------- on disk


def test_the_end_of_a_group_at_a_destination_outlives_a_restart() -> None:
    journal = FakeJournal()
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops", retry=ONCE)])
    deliverer.handlers["ops"].answer = FATAL_ERROR
    steps(deliverer, 0, 1)
    journal.commit(1)
    deliverer.run()
    journal.commit()
    following = restarted(journal)
    following.apply([destination("ops", retry=ONCE)])
    following.service.end_other_groups({1})
    settle_loads(following, journal)
    step(following, 2)
    step(following, 0, run=2)
    journal.commit()
    following.advance(5)
    assert [attempt.indication.identifier for attempt in following.handlers["ops"].attempts] == [
        "0"
    ]
    assert following.settlements.discarded(OUT_OF_ORDER) == ["1", "2"]


def test_a_group_that_does_not_go_on_after_a_restart_is_forgotten() -> None:
    journal = FakeJournal()
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops", retry=ONCE)])
    deliverer.handlers["ops"].answer = FATAL_ERROR
    steps(deliverer, 0)
    journal.commit()
    deliverer.run()
    following = restarted(journal)
    following.apply([destination("ops", retry=ONCE)])
    assert len(following.queue("ops").gaps) == 1
    following.service.end_other_groups(set())
    assert len(following.queue("ops").gaps) == 0


def test_a_member_waits_while_nobody_knows_which_groups_are_being_discarded() -> None:
    journal = FakeJournal()
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops", suspended=True)])
    for number in range(FRONT_ENTRIES):
        deliverer.publish(f"single-{number}")
    steps(deliverer, 0)
    journal.commit()
    deliverer.service.purge("ops")
    deliverer.apply([destination("ops")])
    steps(deliverer, 1)
    deliverer.publish("single")
    journal.commit()
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == []
    settle_loads(deliverer, journal)
    assert deliverer.handlers["ops"].identifiers == ["single"]
    assert deliverer.settlements.discarded(OUT_OF_ORDER) == ["1"]


# ---------------------------------------------------------------------- through a gateway


def test_what_is_relayed_passes_gaps_since_the_gateway_orders() -> None:
    deliverer = Deliverer()
    deliverer.apply([destination("ops", relay_to="shared", deliver_through=DeliverThrough.GATEWAY)])
    deliverer.handlers["ops"].answer = FATAL_ERROR
    steps(deliverer, 0)
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    steps(deliverer, 1, 2)
    deliverer.advance(5)
    assert deliverer.settlements.delivered == ["1", "2"]
