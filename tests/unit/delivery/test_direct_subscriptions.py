"""What no filter has selected for a destination, over revisions and restarts."""

from pillion_sidecar.indication import DiscardReason, Indication, Target
from support.crashing_files import RecordingFiles
from support.delivery import destination, subscription
from support.on_disk import OnDisk

OPS = destination("ops", suspended=True)


def offer(deliverer: OnDisk, identifier: str) -> None:
    target = deliverer.service.direct_target("ops")
    assert target is not None
    one = Indication(
        body=b"{}",
        class_name="CIM_AlertIndication",
        accepted_at=deliverer.time.monotonic(),
        identifier=identifier,
        trackers=(deliverer.settlements,),
    )
    assert deliverer.service.offer(one, [target]) is None
    deliverer.rest()


def pending(deliverer: OnDisk) -> int:
    deliverer.rest()
    return deliverer.service.left().get("ops", 0)


def test_it_stays_queued_over_revisions_and_restarts() -> None:
    deliverer = OnDisk(RecordingFiles())
    deliverer.apply([OPS], [])
    offer(deliverer, "one")
    deliverer.apply([OPS], [subscription("other", "ops")])
    offer(deliverer, "two")
    assert pending(deliverer) == 2
    again = deliverer.restart()
    again.apply([OPS], [])
    assert pending(again) == 2
    offer(again, "three")
    assert pending(again) == 3
    assert again.service.ended_subscriptions() == []


def test_it_ends_with_its_destination() -> None:
    deliverer = OnDisk(RecordingFiles())
    deliverer.apply([OPS], [])
    offer(deliverer, "one")
    deliverer.apply([], [])
    deliverer.rest()
    assert deliverer.settlements.seen == [("one", "ops", DiscardReason.DESTINATION_REMOVED)]
    assert deliverer.service.direct_target("ops") is None
    unknown = Target("direct/ops", "", "ops", is_direct=True)
    assert deliverer.service._table.resolve([unknown]) == []
