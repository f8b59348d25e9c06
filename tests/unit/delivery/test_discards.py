"""How discards are told: all in the list, the first of a kind in the log at once, the rest as a
count (S0.11)."""

from typing import Any

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.delivery.events import COUNTED_KINDS
from pillion_sidecar.delivery.settlement import PERIOD_SECONDS, TOLD_IN_ALL, TOLD_OF_KIND
from support.delivery import Deliverer, destination
from support.fake_journal import FakeJournal
from support.journaled import settle_loads
from support.outcomes import KeptOutcomes


def _queue_of_one(name: str) -> Any:
    return destination(
        name, queue_size=1, queue_full_policy=QueueFullPolicy.DISCARD_OLDEST, suspended=True
    )


def _told(caplog: pytest.LogCaptureFixture, event: str) -> list[dict[str, Any]]:
    return [vars(record) for record in caplog.records if vars(record).get("event") == event]


def _publish(deliverer: Deliverer, count: int, *, begin: int = 0) -> None:
    for number in range(begin, begin + count):
        deliverer.publish(f"i{number}")
    deliverer.run()


def test_the_first_of_a_kind_are_told_at_once_and_the_rest_counted(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed = KeptOutcomes()
    deliverer = Deliverer(history=listed)
    deliverer.apply([_queue_of_one("siem")])
    _publish(deliverer, 1001)
    assert [one.identifier for one in listed.discards] == [f"i{number}" for number in range(1000)]
    told = _told(caplog, "indication-discarded")
    assert [one["identifier"] for one in told] == [f"i{number}" for number in range(TOLD_OF_KIND)]
    assert _told(caplog, "discards-counted") == []
    deliverer.time.advance(PERIOD_SECONDS)
    (counted,) = _told(caplog, "discards-counted")
    assert (counted["destination"], counted["reason"]) == ("siem", "queue-full")
    assert counted["count"] == 1000 - TOLD_OF_KIND
    assert counted["message"].startswith("990 more discards for siem: queue-full;")
    # A new period begins with lines for each again.
    _publish(deliverer, 2, begin=1001)
    assert len(_told(caplog, "indication-discarded")) == TOLD_OF_KIND + 2
    deliverer.service.close()
    assert len(_told(caplog, "discards-counted")) == 1


def test_a_discard_of_what_too_few_stores_have_is_told_as_forced(
    caplog: pytest.LogCaptureFixture,
) -> None:
    listed, journal = KeptOutcomes(), FakeJournal()
    journal.unstable = {2}
    deliverer = Deliverer(history=listed, journal=journal)
    deliverer.apply([_queue_of_one("siem")])
    for number in range(3):
        deliverer.publish(f"i{number}")
        journal.commit()
        settle_loads(deliverer, journal)
    assert [(one.identifier, one.forced) for one in listed.discards] == [
        ("i0", False),
        ("i1", True),
    ]
    stable, forced = _told(caplog, "indication-discarded")
    assert (stable["forced"], forced["forced"]) == (None, True)
    assert forced["message"] == "indication discarded before it was stable: queue-full"


def test_few_discards_are_told_one_by_one_and_no_timer_waits() -> None:
    deliverer = Deliverer()
    deliverer.apply([_queue_of_one("siem")])
    _publish(deliverer, TOLD_OF_KIND + 1)
    assert deliverer.time.next_due() is None


def test_what_is_not_told_yet_is_counted_at_the_end(caplog: pytest.LogCaptureFixture) -> None:
    deliverer = Deliverer()
    deliverer.apply([_queue_of_one("siem")])
    _publish(deliverer, 100)
    deliverer.service.close()
    told = len(_told(caplog, "indication-discarded"))
    counted = sum(one["count"] for one in _told(caplog, "discards-counted"))
    assert told + counted == 100
    assert deliverer.time.next_due() is None


def test_what_is_discarded_at_the_end_is_told_with_every_identifier(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deliverer = Deliverer()
    deliverer.apply([destination("siem", suspended=True)])
    _publish(deliverer, 300)
    deliverer.service.close()
    told = [one["identifier"] for one in _told(caplog, "indication-discarded")]
    counted = _told(caplog, "discards-counted")
    assert len(counted) == 3
    told += [identifier for one in counted for identifier in one["identifiers"]]
    assert told == [f"i{number}" for number in range(300)]


def test_the_lines_are_bounded_however_many_destinations_there_are(
    caplog: pytest.LogCaptureFixture,
) -> None:
    deliverer = Deliverer(maximum_destinations=1000)
    deliverer.apply([_queue_of_one(f"d{number}") for number in range(COUNTED_KINDS + 50)])
    _publish(deliverer, 11)
    deliverer.time.advance(PERIOD_SECONDS)
    assert len(_told(caplog, "indication-discarded")) == TOLD_IN_ALL
    counted = _told(caplog, "discards-counted")
    assert len(counted) == COUNTED_KINDS + 1
    assert sum(one["count"] for one in counted) == (COUNTED_KINDS + 50) * 10 - TOLD_IN_ALL
    assert counted[-1]["destination"] is None


def test_the_list_says_when_where_why_and_which() -> None:
    listed = KeptOutcomes()
    deliverer = Deliverer(history=listed)
    deliverer.apply([_queue_of_one("siem")])
    _publish(deliverer, 2)
    (one,) = listed.discards
    assert one.time == pytest.approx(deliverer.time.time())
    assert (one.destination, one.subscription, one.reason) == ("siem", "siem", "queue-full")
    assert (one.identifier, one.sequence_number, one.attempts) == ("i0", 0, 0)
    assert "run1" in (one.sequence_context or "")
