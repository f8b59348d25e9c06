"""What two evaluations of a service say otherwise. Pure."""

from collections.abc import Iterable, Iterator, Mapping

from pillion_operator.evaluation.namespace import Namespace
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    REPLAY,
    SUBSCRIPTION,
    named_by,
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


def named_first(
    judged: Iterable[Key],
    before: ServiceEvaluation,
    after: ServiceEvaluation,
    *,
    namespace: Namespace,
) -> set[Key]:
    """What those of ``judged`` name that had no verdict before, unless the configuration has it:
    what is said of it has waited for that verdict."""
    known = {SUBSCRIPTION: before.subscriptions, REPLAY: before.replays}
    bodies = (
        namespace.body(key.kind, key.name)
        for key in judged
        if key.kind in known and key.name not in known[key.kind]
    )
    named = {key for body in bodies if body is not None for key in named_by(body)}
    return named - after.content.keys()


def _differing(old: Mapping[str, object], new: Mapping[str, object]) -> Iterator[str]:
    if old is new:
        return
    for name, one in new.items():
        there = old.get(name)
        # Most are the same object, which Python would compare all the same.
        if there is not one and there != one:
            yield name
    yield from old.keys() - new.keys()
