"""What is handed over when delivery has ended, or to a subscription that has."""

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.admission import CLOSED
from pillion_sidecar.indication import DiscardReason, Indication, Target
from support.delivery import Deliverer, destination, subscription
from support.fake_journal import FakeJournal

OPS = Target("ops", "filter-of-ops", "ops")


@pytest.fixture(params=[Durability.DISK, Durability.STATE_ONLY])
def journal(request: pytest.FixtureRequest) -> FakeJournal:
    made = FakeJournal()
    made.durability = request.param
    return made


def indication(deliverer: Deliverer, identifier: str = "held") -> Indication:
    return Indication(
        body=b"{}",
        class_name="CIM_AlertIndication",
        accepted_at=deliverer.time.monotonic(),
        identifier=identifier,
        trackers=(deliverer.settlements,),
    )


def test_once_delivery_has_ended_nothing_is_taken_and_the_journal_is_left_alone(
    journal: FakeJournal,
) -> None:
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops")])
    held = indication(deliverer)
    assert deliverer.service.hold(held, [OPS]) is None
    assert deliverer.publish("waits") is None
    deliverer.service.close()
    records, settled = dict(journal.records), list(journal.settled)
    ended = list(journal.ended_holds)

    assert deliverer.publish("late") is CLOSED
    assert deliverer.service.hold(indication(deliverer, "late"), [OPS]) is CLOSED
    deliverer.service.release(held)
    deliverer.service.discard_held(held, DiscardReason.OUT_OF_ORDER)
    journal.commit()
    deliverer.run()
    assert journal.records == records
    assert (journal.settled, journal.ended_holds) == (settled, ended)
    assert deliverer.handlers["ops"].attempts == []


def test_at_the_end_what_is_held_stays_where_it_has_its_body_and_else_is_told_of() -> None:
    for durability, told in (
        (Durability.DISK, []),
        (Durability.STATE_ONLY, [("held", "ops", DiscardReason.SHUTDOWN)]),
    ):
        journal = FakeJournal()
        journal.durability = durability
        deliverer = Deliverer(journal=journal)
        deliverer.apply([destination("ops")])
        deliverer.service.hold(indication(deliverer), [OPS])
        journal.commit()
        deliverer.service.close()
        deliverer.run()
        assert deliverer.settlements.seen == told


def test_a_subscription_whose_time_is_over_at_the_start_takes_nothing() -> None:
    deliverer = Deliverer()
    over = subscription("ops", "ops", duration_seconds=60.0, created_at=deliverer.time.time() - 60)
    runs = subscription("mail", "ops", duration_seconds=61.0, created_at=deliverer.time.time() - 60)
    deliverer.apply([destination("ops")], [over, runs])
    assert deliverer.publish("a") is None
    deliverer.run()
    # One place, for the one that still runs.
    assert deliverer.handlers["ops"].identifiers == ["a"]
    deliverer.advance(1.0)
    deliverer.publish("b")
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a"]
