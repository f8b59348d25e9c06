"""Which destination gets whose dead letters: references, the default of the service, and rules."""

from collections.abc import Callable, Mapping
from dataclasses import replace

from pillion_sidecar.config.parsing import Resource, Resources
from pillion_sidecar.config.schema.destination import ListenerDestination, RemovalPolicy
from pillion_sidecar.config.schema.service import IndicationService

DESTINATION = "ListenerDestination"
FIELD = "deadLetterRef"


def with_dead_letters(
    destinations: Mapping[str, ListenerDestination],
    *,
    service: IndicationService,
    resources: Resources,
    check: Callable[[Resource, str, str], None],
) -> dict[str, ListenerDestination]:
    """Return the destinations with the service's default; complain of wrong references.

    The default does not apply to a destination that gets dead letters: they go no further.
    ``check`` complains of a reference to an unknown name.
    """
    known = resources.by_kind[DESTINATION]
    # Of unusable destinations too: what they name gets no default.
    own = {name: to for name, one in known.items() if (to := dead_letter_of(one)) is not None}
    _check_service(resources, service, own=own, check=check)
    getting = {*own.values(), service.dead_letter}
    resolved = {}
    for name, destination in destinations.items():
        resource = known[name]
        if name in own:
            check(resource, FIELD, DESTINATION)
            _check_own(resources, resource, own)
        elif name not in getting and service.dead_letter is not None:
            destination = replace(destination, dead_letter=service.dead_letter)
        resolved[name] = destination
        if destination.dead_letter is None:
            _check_removal(resources, resource, destination)
    return resolved


def dead_letter_of(resource: Resource) -> str | None:
    """Return the name in a resource's own deadLetterRef."""
    return str(resource.spec[FIELD]["name"]) if resource.sound(FIELD) else None


def _check_service(
    resources: Resources,
    service: IndicationService,
    *,
    own: Mapping[str, str],
    check: Callable[[Resource, str, str], None],
) -> None:
    resource = resources.by_kind["IndicationService"].get(service.name)
    if resource is not None and resource.sound(FIELD):
        check(resource, FIELD, DESTINATION)
        _check_chain(resources, resource, own)


def _check_own(resources: Resources, resource: Resource, own: Mapping[str, str]) -> None:
    if own[resource.name] != resource.name:
        _check_chain(resources, resource, own)
        return
    resources.complain(
        resource.place,
        ("spec", FIELD, "name"),
        resource.name,
        "names this destination itself",
        "Name another ListenerDestination, or remove it.",
    )


def _check_chain(resources: Resources, resource: Resource, own: Mapping[str, str]) -> None:
    name = dead_letter_of(resource) or ""
    if name in own:
        resources.complain(
            resource.place,
            ("spec", FIELD, "name"),
            name,
            "names a destination that has a deadLetterRef itself, and dead letters go no further",
            f"Remove deadLetterRef of {name}, or name another ListenerDestination.",
        )


def _check_removal(
    resources: Resources, resource: Resource, destination: ListenerDestination
) -> None:
    if destination.removal_policy is RemovalPolicy.DEAD_LETTER:
        resources.complain(
            resource.place,
            ("spec", "removalPolicy"),
            destination.removal_policy.value,
            "needs a deadLetterRef, here or in the service; a destination that gets dead letters "
            "has none",
            "Name the destination that gets dead letters, or choose Discard or Drain.",
        )
