"""Two queues of one destination: the one before drains, or is gone, and what was held for it is
released. No number is given twice, since the journal knows what it settles by it."""

import pytest

from pillion_sidecar.config.schema.destination import RemovalPolicy
from support.delivery import SUCCESS, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk


@pytest.mark.parametrize("policy", [RemovalPolicy.DRAIN, RemovalPolicy.DISCARD])
def test_what_was_held_before_a_destination_came_back_settles_nothing_else(
    policy: RemovalPolicy,
) -> None:
    deliverer = OnDisk(MemoryFiles())
    deliverer.answer = None
    ops = destination("ops", removal_policy=policy)
    deliverer.apply([ops])
    held = deliverer.indication("held")
    assert deliverer.service.hold(held, deliverer.targets()) is None
    deliverer.run()
    deliverer.apply([])
    deliverer.apply([ops])
    for identifier in "abc":
        assert deliverer.give(identifier) is None
    deliverer.run()
    before = deliverer.created[0]
    deliverer.service.release(held)
    deliverer.run()
    while before.held:
        before.held.popleft()(SUCCESS)
        deliverer.run()
    deliverer.rest()
    again = deliverer.restart()
    again.apply([ops])
    assert again.handlers["ops"].identifiers == ["a", "b", "c"]
