"""What is discarded goes to the dead-letter destination as well: once, with the reason, and before
it leaves its own queue (S0.11)."""

from typing import Any

import pytest

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import (
    Ordering,
    RemovalPolicy,
    RetryPolicy,
)
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.dead_letters import (
    MAKES_DEAD_LETTER,
    MOST_UNWRITTEN,
    PERIOD_SECONDS,
)
from pillion_sidecar.delivery.settlement import DISCARDS_PER_TURN
from pillion_sidecar.history.outcome import Outcome
from pillion_sidecar.indication import DeadLetter, DiscardReason, GroupMember, Indication
from pillion_sidecar.journal.limits import JournalSettings
from support.crashing_files import RecordingFiles
from support.delivery import ERROR, FATAL_ERROR, Deliverer, destination, subscription
from support.on_disk import OnDisk
from support.outcomes import KeptOutcomes

ONCE = RetryPolicy(attempts=0)
GRAVE = destination("grave")
#: Keeps what it gets.
SHUT = destination("grave", suspended=True)


def ops(**changes: Any) -> Any:
    return destination("ops", **{"dead_letter": "grave", "retry": ONCE, **changes})


def begin(*destinations: Any, deliverer: Deliverer | None = None) -> Deliverer:
    """A deliverer with one subscription, to ops."""
    made = deliverer or Deliverer(history=KeptOutcomes())
    made.apply([*destinations], [subscription("ops", "ops")])
    return made


def fail(deliverer: Deliverer, *identifiers: str, answer: Any = FATAL_ERROR, **given: Any) -> None:
    deliverer.handlers["ops"].answer = answer
    for identifier in identifiers:
        assert deliverer.publish(identifier, **given) is None
    deliverer.run()


def letters(deliverer: Deliverer) -> list[Indication]:
    return [delivery.indication for delivery in deliverer.handlers["grave"].attempts]


def buried(deliverer: Deliverer) -> list[str | None]:
    return deliverer.handlers["grave"].identifiers


def outcomes(deliverer: Deliverer) -> list[Outcome]:
    history = deliverer.service._records.history
    assert isinstance(history, KeptOutcomes)
    return history.discards


# ---------------------------------------------------------------------- what becomes one


def test_each_reason_is_decided() -> None:
    assert MAKES_DEAD_LETTER.keys() == set(DiscardReason)


def test_what_failed_for_good_comes_in_order_and_says_why() -> None:
    deliverer = begin(ops(), GRAVE)
    now = deliverer.time.time()
    fail(deliverer, "a", "b", "c", answer=ERROR)
    deliverer.advance(100.0)
    assert buried(deliverer) == ["a", "b", "c"]
    first = letters(deliverer)[0]
    assert first.dead_letter == DeadLetter("ops", "attempts-exceeded", "connection refused", 1, now)
    assert (first.body, first.class_name) == (b"{}", "CIM_AlertIndication")
    assert deliverer.settlements.discarded(DiscardReason.ATTEMPTS_EXCEEDED) == ["a", "b", "c"]
    assert deliverer.service.pending == 0


def test_a_fatal_error_makes_a_dead_letter() -> None:
    deliverer = begin(ops(), GRAVE)
    fail(deliverer, "a", answer=FATAL_ERROR)
    assert [one.dead_letter.reason for one in letters(deliverer) if one.dead_letter] == [
        "fatal-error"
    ]


def test_an_expired_one_has_the_last_answer_of_its_listener() -> None:
    deliverer = begin(ops(retry=RetryPolicy(), indication_lifetime_seconds=40.0), GRAVE)
    fail(deliverer, "a", answer=ERROR)
    deliverer.advance(60.0)
    (letter,) = letters(deliverer)
    assert letter.dead_letter is not None
    assert letter.dead_letter.reason == "lifetime-expired"
    assert (letter.dead_letter.detail, letter.dead_letter.attempts) == ("connection refused", 2)


def test_its_lifetime_begins_anew() -> None:
    lost = ops(retry=RetryPolicy(), indication_lifetime_seconds=40.0)
    deliverer = begin(lost, destination("grave", suspended=True, indication_lifetime_seconds=60.0))
    fail(deliverer, "a", answer=ERROR)
    deliverer.advance(50.0)
    begin(lost, destination("grave", indication_lifetime_seconds=60.0), deliverer=deliverer)
    assert buried(deliverer) == ["a"]


def test_what_a_full_queue_evicts_becomes_one() -> None:
    full = ops(queue_size=2, queue_full_policy=QueueFullPolicy.DISCARD_OLDEST, suspended=True)
    deliverer = begin(full, GRAVE)
    fail(deliverer, *"abcd")
    assert buried(deliverer) == ["a", "b"]


def test_what_an_administrator_purges_or_an_ended_subscription_leaves_does_not() -> None:
    deliverer = begin(ops(suspended=True), GRAVE)
    fail(deliverer, "a", "b")
    deliverer.service.skip("ops")
    deliverer.service.purge("ops")
    fail(deliverer, "c")
    deliverer.apply([ops(suspended=True), GRAVE], [])
    assert buried(deliverer) == []
    reasons = [reason for _, _, reason in deliverer.settlements.seen]
    assert reasons == [DiscardReason.PURGED] * 2 + [DiscardReason.SUBSCRIPTION_NOT_ACTIVE]


def test_one_without_a_body_is_not_handed_on() -> None:
    deliverer = begin(ops(), GRAVE)
    fail(deliverer, "a", body=b"")
    assert buried(deliverer) == []


def test_it_keeps_its_group_without_its_place_there() -> None:
    deliverer = begin(ops(), destination("grave", ordering=Ordering.GROUP))
    for number in range(3):
        member = GroupMember(number, ordered=True)
        fail(deliverer, str(number), group="g", member=member, run=7)
    assert buried(deliverer) == ["0", "1", "2"]
    reasons = [one.dead_letter.reason for one in letters(deliverer) if one.dead_letter]
    assert reasons == ["fatal-error", "out-of-order", "out-of-order"]
    assert {(one.group, one.member, one.group_run) for one in letters(deliverer)} == {
        ("g", None, 0)
    }


# ---------------------------------------------------------------------- where it goes


def test_a_dead_letter_is_never_dead_lettered_again() -> None:
    deliverer = begin(ops(), destination("grave", dead_letter="other"), destination("other"))
    deliverer.handlers["grave"].answer = FATAL_ERROR
    fail(deliverer, "a")
    assert deliverer.handlers["other"].attempts == []
    assert deliverer.settlements.of("a") == [("ops", DiscardReason.FATAL_ERROR)]
    assert [(one.destination, one.dead_letter) for one in outcomes(deliverer)] == [
        ("ops", "grave"),
        ("grave", None),
    ]
    # What a redrive of it says.
    lost = outcomes(deliverer)[-1].lost
    assert lost is not None
    assert (lost.destination, lost.reason) == ("ops", "fatal-error")


@pytest.mark.parametrize("name", ["ops", "nowhere"])
def test_without_a_usable_destination_it_is_a_plain_discard(name: str) -> None:
    deliverer = begin(ops(dead_letter=name))
    fail(deliverer, "a")
    assert deliverer.settlements.discarded(DiscardReason.FATAL_ERROR) == ["a"]
    assert [one.dead_letter for one in outcomes(deliverer)] == [None]
    statistics = deliverer.queue("ops").statistics
    assert (statistics.dead_letters_taken, statistics.dead_letters_refused) == (0, 1)


def test_a_full_queue_of_dead_letters_refuses_and_tells_now_and_then(
    caplog: pytest.LogCaptureFixture,
) -> None:
    rejects = {"queue_size": 2, "queue_full_policy": QueueFullPolicy.REJECT, "suspended": True}
    deliverer = begin(ops(), destination("grave", **rejects))
    fail(deliverer, *"abcde")
    assert [one.dead_letter for one in outcomes(deliverer)] == ["grave"] * 2 + [None] * 3
    deliverer.advance(PERIOD_SECONDS)
    fail(deliverer, "f")
    told = [one for one in caplog.records if getattr(one, "event", "") == "dead-letter-refused"]
    assert [one.__dict__["count"] for one in told] == [1, 3]
    statistics = deliverer.queue("ops").statistics
    assert (statistics.dead_letters_taken, statistics.dead_letters_refused) == (2, 4)


def test_a_full_queue_of_dead_letters_follows_its_own_policy() -> None:
    oldest = {"queue_size": 2, "queue_full_policy": QueueFullPolicy.DISCARD_OLDEST}
    deliverer = begin(ops(), destination("grave", suspended=True, **oldest))
    fail(deliverer, *"abcd")
    lost = [(one.identifier, one.destination, one.dead_letter) for one in outcomes(deliverer)]
    assert lost == [
        ("a", "ops", "grave"),
        ("b", "ops", "grave"),
        ("a", "grave", None),
        ("c", "ops", "grave"),
        ("b", "grave", None),
        ("d", "ops", "grave"),
    ]


# ---------------------------------------------------------------------- on disk


def on_disk(*destinations: Any) -> OnDisk:
    deliverer = OnDisk(RecordingFiles())
    begin(*destinations, deliverer=deliverer)
    return deliverer


def test_it_survives_a_restart_with_its_reason() -> None:
    deliverer = on_disk(ops(), SHUT)
    fail(deliverer, "a", "b")
    deliverer.rest()
    again = deliverer.restart()
    begin(ops(), GRAVE, deliverer=again)
    assert buried(again) == ["a", "b"]
    assert [one.dead_letter.reason for one in letters(again) if one.dead_letter] == [
        "fatal-error"
    ] * 2


def test_a_removed_destination_leaves_its_queue_to_it_in_turns() -> None:
    leaves = ops(suspended=True, removal_policy=RemovalPolicy.DEAD_LETTER)
    deliverer = on_disk(leaves, GRAVE)
    count = 3 * DISCARDS_PER_TURN
    fail(deliverer, *map(str, range(count)))
    deliverer.service.apply(deliverer.configuration)
    before = deliverer.turns
    deliverer.apply([GRAVE], [])
    assert deliverer.turns - before > 3
    assert buried(deliverer) == [str(number) for number in range(count)]
    assert {one.dead_letter.reason for one in letters(deliverer) if one.dead_letter} == {
        "destination-removed"
    }


def test_a_removed_destination_with_another_policy_leaves_nothing() -> None:
    deliverer = on_disk(ops(suspended=True), GRAVE)
    fail(deliverer, "a")
    deliverer.apply([GRAVE], [])
    assert buried(deliverer) == []


def test_what_a_removal_left_is_handed_on_after_a_crash() -> None:
    leaves = ops(suspended=True, removal_policy=RemovalPolicy.DEAD_LETTER)
    deliverer = on_disk(leaves, GRAVE)
    fail(deliverer, *"abc")
    deliverer.rest()
    # Removed while the deliverer is down.
    again = deliverer.restart()
    again.apply([GRAVE], [])
    again.rest()
    assert buried(again) == ["a", "b", "c"]
    third = again.restart()
    third.apply([GRAVE], [])
    assert third.service.pending == 0


def test_evictions_for_a_nearly_full_journal_are_not_handed_on() -> None:
    settings = JournalSettings(durability=Durability.DISK, maximum_bytes=8 << 20)
    full = ops(suspended=True, queue_full_policy=QueueFullPolicy.DISCARD_OLDEST)
    deliverer = OnDisk(RecordingFiles(), settings=settings)
    begin(full, SHUT, deliverer=deliverer)
    for number in range(100):
        assert deliverer.publish(str(number), body=b"{" + b" " * 50_000 + b"}") is None
        deliverer.rest()
    statistics = deliverer.queue("ops").statistics
    assert statistics.dead_letters_taken == 0
    assert statistics.dead_letters_refused > 10
    # Dead letters would have pushed all of them out.
    assert deliverer.queue("ops").depth > 10


def test_a_mass_of_large_ones_waits_for_the_disk() -> None:
    leaves = ops(suspended=True, removal_policy=RemovalPolicy.DEAD_LETTER)
    settings = JournalSettings(durability=Durability.DISK, maximum_bytes=64 << 20)
    deliverer = OnDisk(RecordingFiles(), settings=settings)
    begin(leaves, SHUT, deliverer=deliverer)
    size, count = 200_000, 100
    for number in range(count):
        assert deliverer.publish(str(number), body=b"{" + b" " * size + b"}") is None
        deliverer.run()
    waiting = []
    before = deliverer.service._admission.offer_dead_letter

    def offer(*given: Any, **more: Any) -> Any:
        waiting.append(deliverer.journal._log.waiting)
        return before(*given, **more)

    deliverer.service.offer_dead_letter = offer
    deliverer.apply([SHUT], [])
    assert len(waiting) == count
    assert max(waiting) < MOST_UNWRITTEN + 2 * size
    assert deliverer.queue("grave").depth == count


def test_a_removal_goes_on_where_the_deliverer_was_closed() -> None:
    leaves = ops(suspended=True, removal_policy=RemovalPolicy.DEAD_LETTER)
    deliverer = on_disk(leaves, SHUT)
    names = [str(number) for number in range(2 * DISCARDS_PER_TURN)]
    fail(deliverer, *names)
    deliverer.rest()
    deliverer.service.apply(Configuration(revision="9", destinations={"grave": SHUT}))
    deliverer.step()
    deliverer.service.close()
    deliverer.journal.close()
    again = deliverer.restart()
    again.apply([GRAVE], [])
    again.rest()
    assert buried(again) == names
    assert again.service.pending == 0
