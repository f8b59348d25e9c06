"""What a queue that drained and the one that followed it left for one queue, after a restart; and
first revisions that are refused before one is taken over."""

import pytest

from pillion_sidecar.config.schema.destination import RemovalPolicy
from pillion_sidecar.delivery.table import TooManyDestinations
from support.delivery import ERROR, SUCCESS, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk


def test_what_drained_is_never_numbered_below_the_context_that_followed() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = None
    ops = destination("ops", removal_policy=RemovalPolicy.DRAIN)
    deliverer.apply([ops])
    assert deliverer.give("a") is None
    assert deliverer.give("b") is None
    deliverer.run()
    deliverer.apply([])
    deliverer.apply([ops])
    assert deliverer.give("c") is None
    deliverer.run()
    # Both have something under way, and it is the newer one that tells of itself last.
    deliverer.answer_held("ops", ERROR)
    deliverer.rest()
    again = deliverer.restart()
    again.apply([ops])
    again.advance(100.0)
    attempts = again.handlers["ops"].attempts
    assert [(one.indication.identifier, one.sequence_number) for one in attempts] == [
        ("a", 0),
        ("b", 1),
        ("c", 2),
    ]
    assert len({one.sequence_context for one in attempts}) == 1


def test_what_is_pending_waits_for_a_revision_that_can_be_taken_over() -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")])
    for identifier in "abc":
        assert deliverer.give(identifier) is None
    deliverer.run()
    deliverer.rest()
    again = deliverer.restart()
    for _ in range(2):
        with pytest.raises(TooManyDestinations):
            again.apply([destination(f"d{number}") for number in range(101)])
        again.run()
        again.advance(5.0)
    again.answer = SUCCESS
    again.apply([destination("ops")])
    again.advance(40.0)
    assert again.handlers["ops"].identifiers == ["a", "b", "c"]
    assert again.service.pending == 0
