"""Whether an object's present state is in force at every deliverer that uses it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.ports import Answer, Deliverers
from pillion_operator.controllers.states import ServiceState, ServiceStates
from pillion_operator.desired.configuration import level_of
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.references import (
    DESTINATION,
    SERVICE,
    SUBSCRIPTION,
    References,
    destination_ref,
)
from pillion_operator.evaluation.relaying import shared_by
from pillion_operator.evaluation.service import OLDER_DELIVERERS, level_for
from pillion_operator.injection.decision import labels_of
from pillion_operator.names import DELIVERER_LABEL, configuration_secret
from pillion_operator.polling.reports import DelivererReport
from pillion_operator.polling.targets import has_ended
from pillion_operator.status.conditions import Condition
from pillion_operator.status.deliverers import (
    DelivererCounts,
    count_deliverers,
    is_deliverer,
    ready_condition,
)
from pillion_operator.store import Key, Store, key_of

#: Seconds in which deliverers usually take a new revision over. For so long nothing is written of
#: a change: not "rolling out" and, a moment later, "in force".
GRACE = 1.5

_NONE = DelivererCounts(deliverers=0, ready=0, behind=0, starting=0, unreachable=0)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be said yet. ``seconds``: when to come again, None when something will call."""

    seconds: float | None = None


class Readiness:
    """Judges the condition Ready."""

    def __init__(
        self,
        *,
        store: Store,
        references: References,
        parsing: Parsing,
        states: ServiceStates,
        deliverers: Deliverers,
    ) -> None:
        self._store = store
        self._references = references
        self._parsing = parsing
        self._states = states
        self._deliverers = deliverers

    def of(self, body: Object, services: Iterable[Key], *, now: float) -> Condition | Wait:
        """The condition Ready of a destination, filter or subscription that is accepted.

        ``services`` are those that may have it in their configuration, ``now`` is on the monotonic
        clock.
        """
        key = key_of(body)
        using = []
        for service in services:
            found = self._in_service(key, body, service)
            if isinstance(found, Condition | Wait):
                return found
            if found is not None:
                using.append((service, found))
        return self._judged(key, using, now)

    def _in_service(
        self, key: Key, body: Object, service: Key
    ) -> ServiceState | Condition | Wait | None:
        """The service's state where its latest revision holds the object as it is, or what there
        is to say instead; None where the service does not use it.

        Wait: the service's own reconcile is to come or under way, and calls when it is done.
        """
        state = self._states.get(service)
        if state is None:
            return Wait() if self._store.get(service) is not None else None
        if not state.evaluation.verdict.accepted:
            message = f"IndicationService {service.name} is not accepted; its conditions say why."
            return Condition("Ready", "False", "ServiceNotAccepted", message)
        content = state.evaluation.content.get(key)
        if state.unwritten is not None and (content is not None or key in state.rollout):
            return Condition("Ready", "False", state.unwritten.reason, state.unwritten.message)
        if content is None:
            # A subscription that is accepted and delivered for is always used: the service has not
            # been evaluated since it became so.
            coming = key.kind == SUBSCRIPTION or self._unjudged(key, service, state)
            return Wait() if coming or key in state.rollout else None
        if state.evaluation.held.get(_destination_of(body)) == OLDER_DELIVERERS:
            return Condition("Ready", "False", OLDER_DELIVERERS, _waits_for(service))
        item = self._parsing.parse(body).item
        in_force = state.evaluation.holds(key, item) and state.rollout.holds(key, content)
        return state if in_force else Wait()

    def _unjudged(self, key: Key, service: Key, state: ServiceState) -> bool:
        """Whether a subscription leads from the service to the object that is not judged yet."""
        leading = self._references.naming(key) & self._references.naming(service)
        return any(one.name not in state.evaluation.subscriptions for one in leading)

    def _judged(
        self, key: Key, using: Sequence[tuple[Key, ServiceState]], now: float
    ) -> Condition | Wait:
        if not self.gathered(service for service, _ in using):
            # Just become the leader: nobody has been asked yet, and the first round calls.
            for _, state in using:
                state.pending.add(key)
            return Wait()
        if not using:
            message = "No subscription that is accepted and enabled uses it."
            return Condition("Ready", "True", "NotUsed", message)
        counts = _NONE
        patience = 0.0
        for service, state in using:
            if running_on(self.answers(service)) != state.running:
                # Newer than what the others were judged by; they may differ once it is told.
                state.running = None
            counts = added(counts, self.counts(service, state.rollout.revisions_with(key)))
            patience = max(patience, state.rolled_out_at + GRACE - now)
        condition = ready_condition(counts)
        if condition.status == "False" and patience > 0:
            return Wait(patience)
        for _, state in using:
            # Whoever is not ready is looked at again with every answer of a deliverer.
            (state.pending.add if condition.status == "False" else state.pending.discard)(key)
        return condition

    def counts(self, service: Key, revisions: Iterable[str]) -> DelivererCounts:
        """The deliverers of a service, by whether they run on one of ``revisions``."""
        return count_deliverers(
            self.pods(service),
            self.answers(service),
            service=service.name,
            revisions=frozenset(revisions),
        )

    def pods(self, service: Key) -> list[Object]:
        """The pods that have a deliverer of the service."""
        return deliverer_pods(self._store, service)

    def level(self, service: Key) -> int:
        """The level of the schema that every deliverer of the service knows."""
        return level_known(self._store, self._deliverers, service)

    def answers(self, service: Key) -> tuple[Answer, ...]:
        """What the deliverers of the service have last said."""
        return self._deliverers.reports(service.namespace, service.name)

    def shared_by(self, destination: Object) -> list[str]:
        """The services that deliver to a destination's URL where that are several deliverers."""
        name = str(destination["metadata"]["namespace"])
        namespace = Namespace(name, store=self._store, parsing=self._parsing)
        return shared_by(destination, namespace=namespace, references=self._references)

    def gathered(self, services: Iterable[Key]) -> bool:
        """Whether the answers say more than the statuses that an earlier leader has left."""
        return all(self._deliverers.gathered(one.namespace, one.name) for one in services)

    def services_of(self, key: Key) -> list[Key]:
        """The services that may have an object in their configuration."""
        if key.kind == SERVICE:
            return [key]
        # A gateway may still have what nobody relays to it any more.
        holding = {
            gateway
            for gateway in self._references.gateways(key.namespace)
            if (state := self._states.get(gateway)) is not None and key in state.rollout
        }
        return sorted(self._references.services_using(key) | holding)


def _destination_of(body: Object) -> str:
    """The name of a destination, or of that of a subscription; empty for other objects."""
    name = body["metadata"]["name"] if body["kind"] == DESTINATION else ""
    return str(destination_ref(body) if body["kind"] == SUBSCRIPTION else name)


def _waits_for(service: Key) -> str:
    return (
        f"A deliverer of IndicationService {service.name} is of an older version and does not know "
        "destinationFrom. Indications are queued. Make the pods anew that the condition "
        "OlderDeliverers of the service names."
    )


def deliverer_pods(store: Store, service: Key) -> list[Object]:
    """The pods that have a deliverer of a service."""
    pods = store.all("Pod", service.namespace).values()
    return [pod for pod in pods if is_deliverer(pod, service.name)]


def level_known(store: Store, deliverers: Deliverers, service: Key) -> int:
    """The level of the schema that every deliverer of a service knows."""
    answers = deliverers.reports(service.namespace, service.name)
    heard = {one.pod: one.schema_level for one in answers if isinstance(one, DelivererReport)}
    first = Key("Secret", service.namespace, configuration_secret(service.name, 0))
    return level_for(
        (heard.get(pod["metadata"]["name"]) for pod in deliverer_pods(store, service)),
        standing=level_of(store.get(first)),
    )


def ending_pods(store: Store, service: Key) -> list[Object]:
    """The pods with a deliverer of a service that have been told to end, and have not yet."""
    return [
        pod
        for pod in store.all("Pod", service.namespace).values()
        if pod["metadata"].get("deletionTimestamp")
        and labels_of(pod).get(DELIVERER_LABEL) == service.name
        and not has_ended(pod)
    ]


def running_on(answers: Iterable[Answer]) -> frozenset[str | None]:
    """What the deliverers of a service run on, as far as it matters to objects: revisions, None for
    one that has none while no other has any, "" for one that cannot be reached."""
    running: set[str | None] = set()
    for answer in answers:
        running.add(answer.revision if isinstance(answer, DelivererReport) else "")
    if len(running - {""}) > 1:
        running.discard(None)
    return frozenset(running)


def added(one: DelivererCounts, other: DelivererCounts) -> DelivererCounts:
    """The deliverers of two services together."""
    return DelivererCounts(
        deliverers=one.deliverers + other.deliverers,
        ready=one.ready + other.ready,
        behind=one.behind + other.behind,
        starting=one.starting + other.starting,
        unreachable=one.unreachable + other.unreachable,
    )
