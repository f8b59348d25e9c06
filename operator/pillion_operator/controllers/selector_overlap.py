"""Which services' selectors select the same pod; cached for a namespace until it changes. Every
service's status asks, and pods come and go by the thousand."""

from collections.abc import Iterable, Mapping, Sequence
from itertools import islice, permutations

from pillion_operator.cluster.types import Object, deliverer_of, labels_of
from pillion_operator.evaluation.references import SERVICE
from pillion_operator.injection.decision import is_sidecar_service
from pillion_operator.injection.selectors import covers, selects
from pillion_operator.names import INJECT_LABEL
from pillion_operator.store import Change, Key, Store

#: Maximum comparisons of selectors with labels in one namespace, because they block the event loop.
#: Overlaps beyond it are not reported.
MOST_LOOKS = 50_000
MOST_NAMES = 5


class Overlaps:
    def __init__(self, *, store: Store) -> None:
        self._store = store
        self._known: dict[str, Mapping[str, Sequence[str]]] = {}

    def follow(self, change: Change) -> None:
        before, after = change.before or {}, change.after or {}
        if change.key.kind == SERVICE:
            changed = before.get("spec") != after.get("spec")
        else:
            changed = change.key.kind == "Pod" and labels_of(before) != labels_of(after)
        if changed or None in (change.before, change.after):
            self._known.pop(change.key.namespace, None)

    def of(self, service: Key) -> Sequence[str]:
        namespace = service.namespace
        known = self._known.get(namespace)
        if known is None:
            known = self._known[namespace] = overlapping(
                self._store.all(SERVICE, namespace).values(),
                pods=self._store.all("Pod", namespace).values(),
            )
        return known.get(service.name, ())


def overlapping(
    services: Iterable[Object], *, pods: Iterable[Object]
) -> Mapping[str, Sequence[str]]:
    """By service, some names of those that select one of its pods, or that always overlap with it.
    ``pods`` are those with a deliverer; those that name their service by label are ignored."""
    selectors = {
        service["metadata"]["name"]: selector
        for service in services
        if is_sidecar_service(service) and (selector := pod_selector(service)) is not None
    }
    if len(selectors) < 2:
        return {}
    keys = frozenset[str]().union(*map(_keys, selectors.values()))
    # Pods with the same relevant labels count once.
    kinds = {
        tuple(sorted((key, labels[key]) for key in keys & labels.keys()))
        for pod in pods
        if INJECT_LABEL not in (labels := labels_of(pod))
    }
    found: dict[str, set[str]] = {}
    for group in {
        frozenset(name for name, selector in selectors.items() if selects(selector, dict(kind)))
        for kind in sorted(kinds)[: MOST_LOOKS // len(selectors)]
    }:
        some = sorted(group)[: MOST_NAMES + 1]
        for name in group if len(group) > 1 else ():
            found.setdefault(name, set()).update(some)
    # Overlaps of any future pods.
    for one, other in islice(permutations(sorted(selectors), 2), MOST_LOOKS):
        if covers(selectors[one], selectors[other]):
            found.setdefault(one, set()).add(other)
            found.setdefault(other, set()).add(one)
    return {name: sorted(others - {name})[:MOST_NAMES] for name, others in found.items()}


def pod_selector(service: Object) -> Object | None:
    selector: Object | None = deliverer_of(service).get("podSelector")
    return selector


def _keys(selector: Object) -> set[str]:
    expressions = selector.get("matchExpressions") or ()
    return {*(selector.get("matchLabels") or {}), *(one["key"] for one in expressions)}
