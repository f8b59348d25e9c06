"""Which deliverers carry out a replay, and with which destinations. Pure.

The deliverers of its service do. What they have relayed or handed over is in the history of a
gateway, which therefore carries out a replay of its guests, too: a copy that names the gateway as
its service and the destinations that the guest relays or hands over. Both have one uid.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.evaluation.namespace import Namespace
from pillion_operator.evaluation.references import (
    DESTINATION,
    GATEWAY_REF,
    HAND_OVER_TO,
    SERVICE,
    SUBSCRIPTION,
    References,
    destination_ref,
    gateway_named,
    is_gateway,
)
from pillion_operator.evaluation.relaying import relays
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import Key
from pillion_sidecar.config.schema.replay import MOST_DESTINATIONS


@dataclass(frozen=True, slots=True)
class Carried:
    """A guest's replay at its gateway."""

    #: The destinations whose outcomes the gateway has; empty: it only delivers what the sidecars
    #: replay and relay.
    destinations: tuple[str, ...] = ()


def is_finished(replay: Object) -> bool:
    return bool((replay.get("status") or {}).get("completionTime"))


def is_under_way(replay: Object | None) -> bool:
    """Whether deliverers are to know it."""
    return replay is not None and not is_finished(replay) and not being_deleted(replay)


def carried_at(gateway: Key, *, namespace: Namespace, references: References) -> dict[str, Carried]:
    """The replays of its guests that a gateway has to know, by name."""
    found = {}
    for guest in sorted(references.guests(gateway)):
        body = namespace.body(SERVICE, guest.name)
        replays = sorted(references.replays_to(guest))
        if body is None or is_gateway(body) or not replays:
            continue
        known = set(_taken_over(body, gateway.name, namespace=namespace, references=references))
        for replay in replays:
            resource = namespace.body(replay.kind, replay.name)
            if resource is None or not is_under_way(resource):
                continue
            named = frozenset((resource.get("spec") or {}).get("destinations") or ())
            destinations = tuple(sorted(_selected(named, known, namespace)))
            if destinations or _relayed_by(body, resource, gateway.name, namespace):
                found[replay.name] = Carried(destinations)
    return found


def at_gateway(replay: Object, gateway: str, carried: Carried) -> Object:
    """A guest's replay as its gateway needs it."""
    spec = {
        **replay["spec"],
        "serviceRef": {"name": gateway},
        "destinations": list(carried.destinations),
    }
    return {**replay, "spec": spec}


def too_many(name: str, gateway: str, carried: Carried) -> Verdict | None:
    """The verdict on a replay that its gateway would need too many destinations for."""
    if len(carried.destinations) <= MOST_DESTINATIONS:
        return None
    return Verdict(
        False,
        "TooManyDestinations",
        f"spec.destinations: the gateway {gateway} has outcomes of {len(carried.destinations)} "
        f"destinations for IndicationReplay {name}; {MOST_DESTINATIONS} are allowed. Name them in "
        "spec.destinations of several replays.",
    )


def _taken_over(
    service: Object, gateway: str, *, namespace: Namespace, references: References
) -> Iterator[str]:
    """The destinations for which a gateway has outcomes of a service's indications."""
    all_of_them = gateway_named(service, HAND_OVER_TO) == gateway
    relayed = gateway_named(service, GATEWAY_REF) == gateway
    key = Key(SERVICE, namespace.name, service["metadata"]["name"])
    for subscription in references.subscriptions_to(key):
        body = namespace.body(SUBSCRIPTION, subscription.name)
        name = destination_ref(body) if body is not None else ""
        if all_of_them or (relayed and relays(service, namespace.body(DESTINATION, name))):
            yield name


def _selected(
    named: frozenset[str], known: set[str], namespace: Namespace
) -> frozenset[str] | set[str]:
    if not named:
        return known
    # Nobody knows any more who delivered to a destination that is gone.
    return {name for name in named if name in known or namespace.body(DESTINATION, name) is None}


def _relayed_by(service: Object, replay: Object, gateway: str, namespace: Namespace) -> bool:
    """Whether sidecars relay to this gateway what they replay."""
    destination = namespace.body(DESTINATION, destination_ref(replay))
    return gateway_named(service, GATEWAY_REF) == gateway and relays(service, destination)
