"""What two evaluations of a service say otherwise. Pure."""

from collections.abc import Iterator, Mapping

from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    REPLAY,
    SUBSCRIPTION,
)
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.store import Key


def judged_otherwise(
    before: ServiceEvaluation | None, after: ServiceEvaluation, namespace: str
) -> set[Key]:
    return {
        Key(kind, namespace, name)
        for kind, old, new in (
            (SUBSCRIPTION, before.subscriptions if before else {}, after.subscriptions),
            (SUBSCRIPTION, before.relayed if before else {}, after.relayed),
            (REPLAY, before.replays if before else {}, after.replays),
            (REPLAY, before.carried if before else {}, after.carried),
            (REPLAY, before.waiting if before else {}, after.waiting),
            (DESTINATION, before.destinations if before else {}, after.destinations),
            (DESTINATION, before.held if before else {}, after.held),
            (FILTER, before.last_good if before else {}, after.last_good),
            (FILTER, before.unknown_classes if before else {}, after.unknown_classes),
            (DESTINATION, before.same_places if before else {}, after.same_places),
        )
        for name in _differing(old, new)
    }


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    if old is new:
        return
    for name, one in new.items():
        there = old.get(name)
        # Most are the same object, which Python would compare all the same.
        if there is not one and there != one:
            yield name
    yield from old.keys() - new.keys()
