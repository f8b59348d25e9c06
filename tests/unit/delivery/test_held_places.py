"""Members of incomplete groups have a bounded share beside a queue, and close it to nobody."""

import pytest

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Refusal, Target
from support.delivery import Deliverer, destination

SIZE = 20


def make() -> Deliverer:
    deliverer = Deliverer()
    deliverer.answer = None
    deliverer.apply([destination("ops", queue_size=SIZE, queue_full_policy=QueueFullPolicy.REJECT)])
    return deliverer


def indication(deliverer: Deliverer, sequence: int, group: str) -> Indication:
    return Indication(
        body=b"{}",
        class_name="C",
        accepted_at=deliverer.time.monotonic(),
        identifier=f"{group}-{sequence}",
        group=group,
        member=GroupMember(sequence, ordered=True),
        group_run=1,
        trackers=(deliverer.settlements,),
    )


TARGETS = (Target("ops", "filter", "ops"),)


def hold(deliverer: Deliverer, sequence: int, group: str = "g") -> Refusal | None:
    return deliverer.service.hold(indication(deliverer, sequence, group), TARGETS)


def held(deliverer: Deliverer, group: str) -> list[Indication]:
    found = []
    for sequence in range(1, SIZE):
        one = indication(deliverer, sequence, group)
        if deliverer.service.hold(one, TARGETS) is None:
            found.append(one)
    return found


def test_one_group_holds_a_quarter_of_a_queue_and_is_named_beyond() -> None:
    deliverer = make()
    assert len(held(deliverer, "g")) == SIZE // 4
    refusal = hold(deliverer, 99)
    assert refusal is not None
    assert refusal.is_of_group
    assert "group g" in refusal.reason
    assert "destination ops" in refusal.reason
    assert hold(deliverer, 1, "other") is None


def test_all_groups_hold_half_of_a_queue() -> None:
    deliverer = make()
    counts = [len(held(deliverer, group)) for group in "abc"]
    assert counts == [SIZE // 4, SIZE // 4, 0]
    assert deliverer.queue("ops").held == SIZE // 2


def test_nobody_is_refused_because_of_what_groups_hold() -> None:
    deliverer = make()
    for group in "ab":
        held(deliverer, group)
    # One more than the queue: one is in flight.
    assert all(deliverer.publish(str(number)) is None for number in range(SIZE))
    assert deliverer.publish("beyond") is not None


def test_what_completes_a_group_finds_room_in_a_full_queue() -> None:
    deliverer = make()
    members = held(deliverer, "g")
    for number in range(SIZE + 1):
        deliverer.publish(str(number))
        deliverer.run()
    first = indication(deliverer, 0, "g")
    assert deliverer.service.offer(first, TARGETS) is not None
    assert deliverer.service.offer(first, TARGETS, completes=True) is None
    for one in members:
        deliverer.service.release(one)
    assert deliverer.queue("ops").held == 0
    assert deliverer.queue("ops").waiting.count == SIZE + 1 + len(members)


def test_a_full_queue_holds_nothing_more() -> None:
    deliverer = make()
    for number in range(SIZE + 1):
        deliverer.publish(str(number))
        deliverer.run()
    refusal = hold(deliverer, 1)
    assert refusal is not None
    assert refusal.destination == "ops"


@pytest.mark.parametrize("ending", ["released", "discarded"])
def test_the_places_are_free_again_when_the_group_is_complete_or_over(ending: str) -> None:

    deliverer = make()
    for one in held(deliverer, "g"):
        if ending == "released":
            deliverer.service.release(one)
        else:
            deliverer.service.discard_held(one, DiscardReason.OUT_OF_ORDER)
    assert deliverer.queue("ops").held == 0
    assert len(held(deliverer, "g")) == SIZE // 4
