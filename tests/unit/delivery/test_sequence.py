"""SequenceContext, SequenceNumber and the lifetime of what is queued (D.2)."""

import itertools

import pytest

from pillion_sidecar.config.schema.destination import (
    WITHHELD_URL,
    Ordering,
    RetryPolicy,
    SequenceIdentifiers,
)
from pillion_sidecar.delivery import sequence
from pillion_sidecar.indication import DiscardReason
from support.delivery import ERROR, SUCCESS, Deliverer, destination, subscription


@pytest.fixture
def deliverer() -> Deliverer:
    return Deliverer()


def numbers(deliverer: Deliverer, name: str = "ops") -> list[int | None]:
    return [delivery.sequence_number for delivery in deliverer.handlers[name].attempts]


def contexts(deliverer: Deliverer, name: str = "ops") -> set[str | None]:
    return {delivery.sequence_context for delivery in deliverer.handlers[name].attempts}


def test_numbers_start_at_zero_and_grow_by_one(deliverer):
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    assert numbers(deliverer) == [0, 1, 2]
    assert contexts(deliverer) == {"default#run1#uid-ops#0"}


def test_each_destination_counts_for_itself(deliverer):
    deliverer.apply([destination("ops"), destination("audit")])
    deliverer.publish("a", "ops")
    deliverer.publish("b", "ops", "audit")
    deliverer.run()
    assert (numbers(deliverer, "ops"), numbers(deliverer, "audit")) == ([0, 1], [0])


def test_all_subscriptions_of_a_destination_share_its_numbers(deliverer):
    deliverer.apply(
        [destination("ops")], [subscription("warm", "ops"), subscription("cold", "ops")]
    )
    deliverer.publish("a")
    deliverer.publish("b")
    deliverer.run()
    assert numbers(deliverer) == [0, 1, 2, 3]


def test_a_retry_carries_the_same_pair(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.advance(61)
    assert numbers(deliverer) == [0, 0, 0]
    assert len(contexts(deliverer)) == 1


def test_what_was_discarded_shows_as_a_gap(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops", queue_size=2)])
    for identifier in "abcd":
        deliverer.publish(identifier)
        deliverer.advance(31)
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.handlers["ops"].attempts.clear()
    deliverer.advance(31)
    assert numbers(deliverer) == [2, 3]


def identifiers(journal_id):
    return sequence.SequenceIdentifiers(
        service="s", journal_id=journal_id, destination_uid="u", epochs=itertools.count()
    )


def test_another_run_of_the_deliverer_has_another_context():
    first, second = identifiers("1"), identifiers("2")
    assert first.context != second.context


def test_a_destination_made_anew_begins_a_new_context(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    before = contexts(deliverer)
    deliverer.apply([destination("ops", uid="another")])
    deliverer.publish("b")
    deliverer.run()
    assert numbers(deliverer) == [0]
    assert not contexts(deliverer) & before


def test_a_destination_that_is_removed_and_comes_back_begins_a_new_context(deliverer):
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    before = contexts(deliverer)
    deliverer.apply([])
    deliverer.apply([destination("ops")])
    deliverer.publish("b")
    deliverer.run()
    assert numbers(deliverer) == [0]
    assert not contexts(deliverer) & before


def test_another_listener_gets_what_is_queued_under_a_new_context(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        deliverer.publish(identifier)
    deliverer.run()
    before = contexts(deliverer)
    deliverer.answer = SUCCESS
    deliverer.apply([destination("ops", destination="http://elsewhere.example:5988/")])
    deliverer.run()
    assert deliverer.handlers["ops"].identifiers == ["a", "b", "c"]
    assert numbers(deliverer) == [0, 1, 2]
    assert not contexts(deliverer) & before


def test_numbers_wrap_to_zero_past_the_range_of_sint64():
    numbered = identifiers("1")
    numbered.next_number = 2**63 - 1
    assert [numbered.sequence_number(numbered.number()) for _ in range(2)] == [2**63 - 1, 0]


@pytest.mark.parametrize(
    ("policy", "ordering", "sole", "sent"),
    [
        (SequenceIdentifiers.AUTO, Ordering.DESTINATION, True, True),
        (SequenceIdentifiers.AUTO, Ordering.DESTINATION, False, False),
        (SequenceIdentifiers.AUTO, Ordering.NONE, True, False),
        (SequenceIdentifiers.OMIT, Ordering.DESTINATION, True, False),
        (SequenceIdentifiers.SEND, Ordering.DESTINATION, False, True),
    ],
)
def test_identifiers_are_sent_where_one_destination_alone_serves_a_listener_in_order(
    deliverer, policy, ordering, sole, sent
):
    ops = destination("ops", sequence_identifiers=policy, ordering=ordering)
    url = ops.destination if not sole else "http://other.example:5988/"
    deliverer.apply([ops, destination("twin", destination=url)])
    deliverer.publish("a", "ops")
    deliverer.run()
    assert (numbers(deliverer) == [0]) is sent
    assert (contexts(deliverer) != {None}) is sent


SECRET_URL = "https://hooks.example.com/a"


@pytest.mark.parametrize(
    ("policy", "sent"), [(SequenceIdentifiers.AUTO, False), (SequenceIdentifiers.SEND, True)]
)
def test_a_url_in_a_secret_may_be_shared_with_anybody(deliverer, policy, sent):
    ops = destination(
        "ops", destination=SECRET_URL, url_is_secret=True, sequence_identifiers=policy
    )
    deliverer.apply([ops])
    deliverer.publish("a", "ops")
    deliverer.run()
    assert (numbers(deliverer) == [0]) is sent


def test_whether_a_written_url_is_one_in_a_secret_makes_no_difference(deliverer):
    secret = destination("ops", destination=SECRET_URL, url_is_secret=True)
    for url in (SECRET_URL, "https://hooks.example.com/b"):
        deliverer.apply([secret, destination("guess", destination=url)])
        queues = [deliverer.queue(name) for name in ("ops", "guess")]
        assert [queue.sends_identifiers for queue in queues] == [False, True]


def test_urls_that_are_withheld_for_a_while_renumber_nothing(deliverer):
    known = [
        destination(name, destination=f"{SECRET_URL}{name}", url_is_secret=True) for name in "ab"
    ]
    deliverer.apply(known)
    before = [deliverer.queue(name).sequence.context for name in "ab"]
    withheld = {"destination": WITHHELD_URL, "suspended": True}
    for hidden in ("a", "ab"):
        deliverer.apply(
            [destination(one.name, **withheld) if one.name in hidden else one for one in known]
        )
        deliverer.apply(known)
    assert [deliverer.queue(name).sequence.context for name in "ab"] == before


# ---------------------------------------------------------------- lifetime


def long_retry(**changes):
    """A retry that outlives a lifetime of 100 s."""
    retry = RetryPolicy(attempts=1000, interval_seconds=30.0)
    return destination("ops", retry=retry, indication_lifetime_seconds=100.0, **changes)


def test_what_waits_longer_than_its_lifetime_is_discarded_when_it_ends(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([long_retry()])
    deliverer.publish("a")
    deliverer.advance(50)
    deliverer.publish("b")
    deliverer.advance(49)
    assert deliverer.settlements.seen == []
    deliverer.advance(1)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]
    deliverer.advance(50)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a", "b"]


def test_a_lifetime_of_zero_never_ends(deliverer):
    deliverer.answer = ERROR
    retry = RetryPolicy(attempts=1000, interval_seconds=30.0)
    deliverer.apply([destination("ops", retry=retry, indication_lifetime_seconds=0.0)])
    deliverer.publish("a")
    deliverer.advance(20_000)
    assert deliverer.queue("ops").depth == 1


def test_time_suspended_counts_neither_against_lifetime_nor_against_attempts(deliverer):
    deliverer.answer = ERROR
    deliverer.apply([long_retry()])
    deliverer.publish("a")
    deliverer.advance(10)
    deliverer.apply([long_retry(suspended=True)])
    deliverer.advance(100_000)
    attempts = len(deliverer.handlers["ops"].attempts)
    assert deliverer.settlements.seen == []
    deliverer.apply([long_retry()])
    deliverer.advance(89)
    assert deliverer.settlements.seen == []
    assert len(deliverer.handlers["ops"].attempts) > attempts
    deliverer.advance(2)
    assert deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED) == ["a"]


def test_a_suspended_destination_is_not_attempted(deliverer):
    deliverer.apply([destination("ops", suspended=True)])
    deliverer.publish("a")
    deliverer.advance(1000)
    assert deliverer.handlers["ops"].attempts == []
    deliverer.apply([destination("ops")])
    assert deliverer.settlements.delivered == ["a"]
