"""Mass expiry takes turns with everybody else (S0.15)."""

from pillion_sidecar.delivery.backlog import FRONT_ENTRIES
from pillion_sidecar.delivery.dispatcher import EXPIRED_PER_TURN
from pillion_sidecar.indication import DiscardReason
from support.delivery import SUCCESS, Deliverer, destination
from support.fake_journal import FakeJournal

LIFETIME = 100.0
MANY = 10 * EXPIRED_PER_TURN


def expired_backlog() -> Deliverer:
    """A deliverer that has just been answered by ``slow``, behind whose first indication many have
    expired, and one has not."""
    deliverer = Deliverer()
    slow = destination("slow", indication_lifetime_seconds=LIFETIME, queue_size=2 * MANY)
    good = destination("good")
    deliverer.answer = None
    deliverer.apply([slow])
    deliverer.answer = SUCCESS
    deliverer.apply([slow, good])
    for number in range(MANY):
        assert deliverer.publish(str(number), "slow") is None
    deliverer.run()
    deliverer.time.advance(LIFETIME + 1)
    assert deliverer.publish("live", "slow") is None
    deliverer.handlers["slow"].held.popleft()(SUCCESS)
    return deliverer


def test_others_have_their_turns_while_many_expire() -> None:
    deliverer = expired_backlog()
    assert deliverer.publish("urgent", "good") is None
    while not deliverer.handlers["good"].attempts:
        deliverer.step()
    assert deliverer.queue("slow").depth > MANY // 2
    deliverer.run()
    expired = deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)
    assert expired == [str(number) for number in range(1, MANY)]


def test_the_listener_is_tried_before_all_that_expired_is_settled() -> None:
    deliverer = expired_backlog()
    slow = deliverer.handlers["slow"]
    while slow.identifiers[-1] != "live":
        deliverer.step()
    assert slow.identifiers == ["0", "live"]
    assert len(deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)) < MANY - 1
    deliverer.run()
    assert len(deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)) == MANY - 1


def test_the_age_of_the_oldest_is_known_while_the_front_is_read() -> None:
    journal = FakeJournal()
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops", suspended=True)])
    for number in range(FRONT_ENTRIES + 3):
        assert deliverer.publish(str(number)) is None
    journal.commit()
    deliverer.run()
    queue = deliverer.queue("ops")
    accepted_at = queue.oldest_accepted_at
    while queue.waiting.front:
        queue.evict()
    assert queue.depth == 3
    assert queue.oldest_accepted_at == accepted_at
    journal.finish_loads()
    assert queue.oldest_accepted_at == accepted_at
