"""What is assumed of a service that leaves durability out, and what a durability gives."""

import pytest

from pillion_sidecar.config.durability import (
    assumed_acknowledgement,
    assumed_durability,
    queue_capacity,
)
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.schema.service import Acknowledgement, Durability, IndicationService

MEMORY, STATE_ONLY, DISK = Durability.MEMORY, Durability.STATE_ONLY, Durability.DISK
ACCEPTED, DURABLE = Acknowledgement.ACCEPTED, Acknowledgement.DURABLE
DELIVERED = Acknowledgement.DELIVERED


@pytest.mark.parametrize(
    ("asked", "has_journal", "assumed"),
    [
        (None, True, DISK),
        (None, False, MEMORY),
        (MEMORY, True, MEMORY),
        (STATE_ONLY, True, STATE_ONLY),
        (DISK, False, DISK),
    ],
)
def test_what_is_not_said_is_as_safe_as_the_deliverer_can_make_it(
    asked: Durability | None, has_journal: bool, assumed: Durability
) -> None:
    service = IndicationService(durability=asked)
    assert assumed_durability(service, has_journal=has_journal) is assumed


@pytest.mark.parametrize(
    ("asked", "durability", "assumed"),
    [
        (None, DISK, DURABLE),
        (None, STATE_ONLY, ACCEPTED),
        (None, MEMORY, ACCEPTED),
        (ACCEPTED, DISK, ACCEPTED),
        (DELIVERED, MEMORY, DELIVERED),
        (DURABLE, DISK, DURABLE),
        (DURABLE, MEMORY, ACCEPTED),
    ],
)
def test_a_publish_is_acknowledged_as_asked_and_never_beyond_the_durability(
    asked: Acknowledgement | None, durability: Durability, assumed: Acknowledgement
) -> None:
    assert assumed_acknowledgement(IndicationService(acknowledgement=asked), durability) is assumed


@pytest.mark.parametrize(
    ("asked", "durability", "capacity"),
    [
        (None, DISK, 1_000_000),
        (None, STATE_ONLY, 10_000),
        (None, MEMORY, 10_000),
        (7, DISK, 7),
        (7, MEMORY, 7),
    ],
)
def test_a_queue_on_disk_holds_more_than_one_in_memory(
    asked: int | None, durability: Durability, capacity: int
) -> None:
    destination = ListenerDestination(
        name="ops",
        uid="1",
        destination="https://ops.example/",
        protocol="CIM-XML",
        queue_size=asked,
    )
    assert queue_capacity(destination, durability) == capacity
