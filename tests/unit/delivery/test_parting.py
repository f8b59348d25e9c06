"""Members of ordered groups that wait here and are relayed at once (S1.5)."""

import pytest

from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Target
from pillion_sidecar.reliability.group_rules import Moment
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.reliability.states import Guard
from support.delivery import destination
from support.relaying import RelayingDeliverer, relayed


class Publisher:
    """Publishes members of one ordered group, as intake does."""

    def __init__(self, made: RelayingDeliverer) -> None:
        self.made = made
        self.groups = Groups(
            clock=made.time, timers=made.time, queues=made.service, window_seconds=60.0
        )
        offset = made.time.time() - made.time.monotonic()
        self.groups.restore(None, (), (), offset=offset)
        self.groups.resume()

    def publish(self, sequence: int, *to: str, timed: bool = True) -> tuple[Guard, Indication]:
        made, names = self.made, to or tuple(self.made.configuration.subscriptions)
        targets = [
            Target(name, f"filter-of-{name}", name, relayed=made.queue(name).relay_to is not None)
            for name in names
        ]
        member = GroupMember(sequence, ordered=True, max_idle_seconds=1000.0 if timed else None)
        body = made.body_of(str(sequence))
        examined = self.groups.examine(
            source="s",
            group="g",
            member=member,
            size=len(body),
            moment=Moment(made.time.monotonic(), made.time.time()),
            passes_gaps=all(target.relayed for target in targets),
        )
        indication = Indication(
            body=body,
            class_name="CIM_AlertIndication",
            accepted_at=made.time.monotonic(),
            source="s",
            identifier=str(sequence),
            group="g",
            member=member,
            digest=examined.digest,
            trackers=(made.settlements,),
        )
        assert self.groups.take(examined, indication, targets) is None
        found = examined.decision.process
        assert found is not None
        taken_for = indication.unsettled
        self.groups.proceed(examined)
        made.run()
        assert taken_for == len(targets)
        return found, indication


@pytest.fixture
def made() -> RelayingDeliverer:
    deliverer = RelayingDeliverer()
    deliverer.apply([destination("ops"), relayed("siem")])
    return deliverer


@pytest.fixture
def publisher(made: RelayingDeliverer) -> Publisher:
    return Publisher(made)


def test_what_is_relayed_alone_passes_every_gap(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    for sequence in (2, 5, 0, 1):
        found, _ = publisher.publish(sequence, "siem")
        assert found is Guard.IN_SEQUENCE
    made.answer_all()
    assert made.gateway.identifiers == ["2", "5", "0", "1"]
    assert [line["sequence"] for line in made.gateway.lines] == [2, 5, 0, 1]
    assert all(line["ordered"] for line in made.gateway.lines)
    assert publisher.groups.held == 0


def test_what_an_untimed_group_cannot_wait_for_is_relayed_all_the_same(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    publisher.publish(3, "siem", timed=False)
    publisher.publish(1, "siem", timed=False)
    made.answer_all()
    assert made.gateway.identifiers == ["3", "1"]
    assert not made.settlements.discarded(DiscardReason.OUT_OF_ORDER)


def test_what_was_relayed_is_not_missed_by_those_that_are_delivered_here(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    publisher.publish(1, "siem")
    publisher.publish(0, "ops")
    publisher.publish(2, "ops")
    assert made.handlers["ops"].identifiers == ["0", "2"]


def test_one_that_has_both_is_relayed_at_once_and_waits_here(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    found, _ = publisher.publish(1)
    assert found is Guard.PREDECESSORS_MISSING
    made.answer_all()
    assert made.gateway.identifiers == ["1"]
    assert made.handlers["ops"].identifiers == []
    assert made.settlements.of("1") == [("siem", None)]
    publisher.publish(0)
    made.answer_all()
    assert made.handlers["ops"].identifiers == ["0", "1"]
    assert made.gateway.identifiers == ["1", "0"]
    assert made.settlements.of("1") == [("ops", None), ("siem", None)]
    assert made.service.pending == 0


def test_the_whole_is_told_to_those_who_follow_it(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    left: list[tuple[str, int]] = []

    class Follower:
        def settled(self, indication: Indication, to: str, discarded: DiscardReason | None) -> None:
            left.append((to, indication.unsettled))
            assert indication.digest is not None

    follower = Follower()
    made.settlements.settled = follower.settled  # type: ignore[method-assign]
    publisher.publish(1)
    made.answer_all()
    assert left == [("siem", 1)]
    publisher.publish(0, "ops")
    assert left[1:] == [("ops", 0), ("ops", 0)]


def test_a_group_that_ends_discards_what_waits_here_and_not_what_was_relayed(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    publisher.publish(1)
    made.advance(1000)
    made.answer_all()
    assert made.settlements.of("1") == [("ops", DiscardReason.OUT_OF_ORDER), ("siem", None)]
    assert made.service.pending == 0


def test_one_that_cannot_wait_is_discarded_here_and_relayed(
    made: RelayingDeliverer, publisher: Publisher
) -> None:
    found, _ = publisher.publish(1, timed=False)
    assert found is Guard.HOPELESS
    made.answer_all()
    assert made.settlements.of("1") == [("ops", DiscardReason.OUT_OF_ORDER), ("siem", None)]


def test_it_is_taken_for_both_or_for_none(made: RelayingDeliverer) -> None:
    made.apply([destination("ops", queue_size=1), relayed("siem")])
    publisher = Publisher(made)
    targets = [Target(name, f"filter-of-{name}", name) for name in ("ops", "siem")]
    publisher.publish(1)
    second = Indication(
        body=made.body_of("2"),
        class_name="CIM_AlertIndication",
        accepted_at=0.0,
        member=GroupMember(2, ordered=True, max_idle_seconds=1000.0),
        group="g",
    )
    refusal = made.service.hold(second, targets)
    assert refusal is not None
    assert refusal.is_of_group
    assert "destination ops" in refusal.reason
    made.answer_all()
    assert made.gateway.identifiers == ["1"]
