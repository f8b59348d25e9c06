"""Which reconciles a change of the cluster causes. Pure, except for the references' index."""

from collections.abc import Iterable, Iterator, Mapping, Sequence

from pillion_operator.cluster.scaling import scaler
from pillion_operator.cluster.types import STATEFUL_SET, Object, labels_of
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.readiness import running_on
from pillion_operator.controllers.selector_overlap import pod_selector
from pillion_operator.controllers.states import status_of
from pillion_operator.evaluation.namespace import draining
from pillion_operator.evaluation.references import (
    CONFIG_MAP,
    DESTINATION,
    FILTER,
    REPLAY,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    USERS,
    References,
    named_by,
    url_of,
)
from pillion_operator.evaluation.replaying import is_finished, is_under_way
from pillion_operator.injection.selectors import selects
from pillion_operator.names import DELIVERER_LABEL, SERVICE_LABEL
from pillion_operator.polling.aggregate import DestinationDelivery, deliveries
from pillion_operator.polling.reports import Answer, DelivererReport
from pillion_operator.status.delivery import failing_since
from pillion_operator.status.relaying import abandoned_gateway
from pillion_operator.store import Change, Key, key_of
from pillion_sidecar.config.schema import CREDENTIALS_LABEL

#: Seconds that a service waits for more changes, so that one ``kubectl apply`` makes one revision.
SETTLE = 0.05
#: The same for pods, which change several times at their start.
POD_SETTLE = 0.2


def triggered(
    change: Change, references: References, *, services: Iterable[Object]
) -> Iterator[tuple[Key, float]]:
    """The keys to reconcile, each with the seconds that it may wait for more changes. ``services``
    are the IndicationServices of the namespace."""
    key = change.key
    if key.kind in (SERVICE, DESTINATION, FILTER, *USERS):
        yield from _of_ours(change, references)
        if key.kind == DESTINATION and not references.naming(key) and _means_something_else(change):
            # A configuration keeps one that has got dead letters.
            yield from ((key_of(other), SETTLE) for other in services)
        if key.kind == SERVICE and _means_something_else(change):
            # The overlap of its selector with others may have changed.
            yield from ((status_of(key_of(other)), 2 * SETTLE) for other in services)
    elif key.kind == SECRET:
        yield from _of_a_secret(change, references)
    elif key.kind == CONFIG_MAP:
        concerned = labelled(change, SERVICE_LABEL) | references.services_using(key)
        yield from ((service, SETTLE) for service in sorted(concerned))
    else:
        label = DELIVERER_LABEL if key.kind == "Pod" else SERVICE_LABEL
        for service in sorted(labelled(change, label)):
            if key.kind == "Pod":
                yield status_of(service), POD_SETTLE
                # What only its history had is gone with it.
                yield from ((one, POD_SETTLE) for one in sorted(references.replays_at(service)))
            else:
                yield service, SETTLE
            if key.kind == STATEFUL_SET.kind and _scaled_otherwise(change):
                # Sidecars may relay only to a gateway with one pod.
                yield from ((one, SETTLE) for one in sorted(_dependents(service, references)))
        if key.kind == "Pod":
            yield from _of_selectors(change, services)


def _dependents(gateway: Key, references: References) -> set[Key]:
    """The services that are told of this gateway."""
    return references.guests(gateway) | references.writers(gateway)


def _scaled_otherwise(change: Change) -> bool:
    before, after = (
        (scaler(body), ((body or {}).get("spec") or {}).get("replicas"))
        for body in (change.before, change.after)
    )
    return before != after and bool(before[0] or after[0])


def _of_selectors(change: Change, services: Iterable[Object]) -> Iterator[tuple[Key, float]]:
    before, after = labels_of(change.before), labels_of(change.after)
    if before == after:
        return
    for service in services:
        selector = pod_selector(service)
        if selects(selector, before) or selects(selector, after):
            yield status_of(key_of(service)), POD_SETTLE


def _of_ours(change: Change, references: References) -> Iterator[tuple[Key, float]]:
    key = change.key
    if key.kind == SERVICE:
        # Only a change of the rendering reconciles the whole service: its status is our own write.
        yield (key, SETTLE) if _means_something_else(change) else (status_of(key), SETTLE)
        gateway = abandoned_gateway(change.after)
        if gateway != abandoned_gateway(change.before) and gateway:
            yield Key(SERVICE, key.namespace, gateway), SETTLE
    else:
        # They wait for the services that render them.
        yield key, 2 * SETTLE
    if key.kind == DESTINATION and failing_since(change.before) != failing_since(change.after):
        # subscriptionRemovalAction counts from then.
        yield from ((subscription, 2 * SETTLE) for subscription in references.subscriptions_to(key))
    if _means_something_else(change):
        yield from _of_those_concerned(change, references)


def _of_those_concerned(change: Change, references: References) -> Iterator[tuple[Key, float]]:
    key = change.key
    if key.kind != FILTER:
        # What gateways accept from others, and who else delivers at their URLs, depends on it.
        yield from ((gateway, SETTLE) for gateway in sorted(references.gateways(key.namespace)))
    if key.kind == SERVICE:
        yield from ((one, SETTLE) for one in sorted(_dependents(key, references)))
        # They are judged by its settings.
        for served in references.served_by(key):
            yield served, 2 * SETTLE
            yield from _beside(served, references)
        return
    if key.kind not in USERS:
        yield from ((service, SETTLE) for service in references.services_using(key))
        # A service that is missing tells them nothing.
        yield from ((subscription, 2 * SETTLE) for subscription in references.subscriptions_to(key))
    for body in (change.before, change.after):
        if body is not None and key.kind in USERS:
            # Its service may render nothing, and so not notify the others.
            for named in named_by(body):
                yield named, SETTLE if named.kind == SERVICE else 2 * SETTLE
                yield from _beside(named, references)
        elif body is not None and key.kind == DESTINATION:
            senders = references.senders_at(key.namespace, url_of(body))
            yield from ((sender, 2 * SETTLE) for sender in sorted(senders))


def _beside(destination: Key, references: References) -> Iterator[tuple[Key, float]]:
    """Those whose condition depends on who else sends sequence identifiers to a URL."""
    senders = sorted(references.senders_beside(destination))
    yield from ((sender, 2 * SETTLE) for sender in senders)


def _of_a_secret(change: Change, references: References) -> Iterator[tuple[Key, float]]:
    for service in sorted(labelled(change, SERVICE_LABEL)):
        yield service, SETTLE
    if any(
        labels_of(body).get(CREDENTIALS_LABEL) == "true" for body in (change.before, change.after)
    ):
        yield from ((user, 2 * SETTLE) for user in references.naming(change.key))
        yield from ((service, SETTLE) for service in references.services_using(change.key))


def labelled(change: Change, label: str) -> set[Key]:
    names = {labels_of(body).get(label) for body in (change.before, change.after)}
    return {Key(SERVICE, change.key.namespace, name) for name in names if name}


def _means_something_else(change: Change) -> bool:
    if change.before is None or change.after is None:
        return True
    before, after = change.before["metadata"], change.after["metadata"]
    return any(
        before.get(name) != after.get(name) for name in ("uid", "generation", "deletionTimestamp")
    ) or _ended(change.before) != _ended(change.after)


def _ended(body: Object) -> object:
    if body["kind"] == REPLAY:
        return is_finished(body)
    return (body.get("status") or {}).get("subscriptionState")


class DeliveryChanges:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._before: dict[Key, Mapping[str, DestinationDelivery]] = {}

    def enqueue(self, service: Key) -> None:
        namespace, enqueue = service.namespace, self._context.queue.add
        reports = self._context.answers(service)
        now = deliveries(reports)
        before = self._before.get(service, {})
        if now:
            self._before[service] = now
        else:
            self._before.pop(service, None)
        for destination in sorted(now.keys() | before.keys()):
            if now.get(destination) != before.get(destination):
                enqueue(Key(DESTINATION, namespace, destination))
        self._drained(service)
        for report in reports:
            if isinstance(report, DelivererReport):
                for ended in report.ended:
                    enqueue(Key(SUBSCRIPTION, namespace, ended.name))
        for key in sorted(self._concerned(service, reports)):
            enqueue(key)
        self._replays(service)
        enqueue(status_of(service))
        for one in sorted(_dependents(service, self._context.references)):
            # Their status reports whether their gateway runs.
            enqueue(status_of(one))

    def _replays(self, service: Key) -> None:
        for replay in sorted(self._context.references.replays_at(service)):
            if is_under_way(self._context.store.get(replay)):
                self._context.queue.add(replay)

    def _drained(self, service: Key) -> None:
        enqueue = self._context.queue.add
        held = sorted(draining(self._context.store, service.namespace))
        for key in held:
            enqueue(key)
        for gateway in sorted(self._context.references.gateways_of(service)) if held else ():
            # It drains what its guests have relayed, after them.
            enqueue(gateway)

    def _concerned(self, service: Key, reports: Sequence[Answer]) -> frozenset[Key]:
        state = self._context.states.get(service)
        if state is None:
            return frozenset(self._context.references.served_by(service))
        running = running_on(reports)
        if running == state.running:
            return frozenset(state.pending)
        state.running = running
        return frozenset(self._context.references.served_by(service)) | state.pending
