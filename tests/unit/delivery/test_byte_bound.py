"""Dead listeners that share what they are sent, at the journal's byte bound (S0.4, S3.1)."""

import pytest

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.repeating import Room
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.limits import MIB, JournalSettings
from support.delivery import ERROR, SUCCESS, destination
from support.journal_files import MemoryFiles
from support.on_disk import OnDisk

SETTINGS = JournalSettings(durability=Durability.DISK, maximum_bytes=8 * MIB)


@pytest.mark.parametrize("dead", [1, 2, 10, 40])
def test_dead_listeners_that_share_all_never_refuse_what_others_get(dead: int) -> None:
    deliverer = OnDisk(MemoryFiles(), settings=SETTINGS)
    names = [f"dead{number}" for number in range(dead)]
    deliverer.answer = ERROR
    deliverer.apply([destination(name) for name in names])
    deliverer.answer = SUCCESS
    deliverer.apply([*(destination(name) for name in names), destination("well")])
    # An attempt and its retry have failed before there is no more room.
    assert deliverer.give("first") is None
    deliverer.advance(31)
    for number in range(1200):
        assert deliverer.give(str(number), body=b"x" * 10_000) is None, number
        deliverer.run()
        deliverer.time.advance(0.01)
    assert len(deliverer.handlers["well"].attempts) == 1201
    assert deliverer.journal.statistics.live_bytes <= SETTINGS.live_bound
    assert not deliverer.settlements.discarded(DiscardReason.LIFETIME_EXPIRED)
    assert set(deliverer.settlements.discarded(DiscardReason.QUEUE_FULL))


def test_what_is_repeated_takes_no_room_of_others() -> None:
    deliverer = OnDisk(MemoryFiles(), settings=SETTINGS)
    deliverer.answer = ERROR
    deliverer.apply([destination("dead"), destination("well")])
    assert deliverer.service.room_to_repeat("well").places == 1
    number = 0
    while not deliverer.journal.is_half_full:
        assert deliverer.give(f"i{number}", "dead", body=b"x" * 10_000) is None
        deliverer.run()
        number += 1
    assert deliverer.service.room_to_repeat("well") == Room(0, "the journal is half full")
    while not deliverer.journal.is_over_bytes(10_000):
        assert deliverer.give(f"i{number}", "dead", body=b"x" * 10_000) is None
        deliverer.run()
        number += 1
    again = deliverer.indication("again", body=b"x" * 10_000)
    again.redrives = 1
    refusal = deliverer.service.offer(again, deliverer.targets("well"))
    assert refusal is not None
    assert refusal.reason == "the journal is nearly full"
    assert deliverer.settlements.seen == []
    assert deliverer.give("new", "well", body=b"x" * 10_000) is None
