"""What a service's durability comes to where it is left out, and what it gives. Pure."""

from pillion_sidecar.config.resources import (
    Acknowledgement,
    Durability,
    IndicationService,
    ListenerDestination,
)

#: queueSize where neither the destination nor its service names one.
QUEUE_SIZE_ON_DISK = 1_000_000
QUEUE_SIZE_IN_MEMORY = 10_000


def assumed_durability(service: IndicationService, *, has_journal: bool) -> Durability:
    """The durability that the service asks for, else the safest that the deliverer has."""
    if service.durability is not None:
        return service.durability
    return Durability.DISK if has_journal else Durability.MEMORY


def highest_acknowledgement(durability: Durability) -> Acknowledgement:
    """How safe an indication is at most before it is delivered. Of bodies in memory nothing is
    promised, whatever is remembered of them."""
    return Acknowledgement.DURABLE if durability is Durability.DISK else Acknowledgement.ACCEPTED


def assumed_acknowledgement(service: IndicationService, durability: Durability) -> Acknowledgement:
    """How a publish that does not say is acknowledged, with the ``durability`` in force.

    That may be less than the service asks for where a deliverer has no journal. A promise that it
    cannot keep is not made then.
    """
    highest = highest_acknowledgement(durability)
    asked = service.acknowledgement
    return highest if asked in (None, Acknowledgement.DURABLE) else asked


def queue_capacity(destination: ListenerDestination, durability: Durability) -> int:
    """The most indications that the destination's queue holds, with the ``durability`` in force."""
    if destination.queue_size is not None:
        return destination.queue_size
    return QUEUE_SIZE_ON_DISK if durability is Durability.DISK else QUEUE_SIZE_IN_MEMORY
