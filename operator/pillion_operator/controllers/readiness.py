"""Whether an object's current state is in force at every deliverer that uses it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pillion_operator.cluster.types import Object, has_ended
from pillion_operator.controllers.acceptance import accepted_condition, not_ready
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import ServiceState
from pillion_operator.desired.configuration import level_of
from pillion_operator.evaluation.references import DESTINATION, SUBSCRIPTION, destination_ref
from pillion_operator.evaluation.service import OLDER_DELIVERERS, level_for
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.injection.decision import labels_of
from pillion_operator.names import DELIVERER_LABEL, configuration_secret
from pillion_operator.polling.reports import Answer, DelivererReport
from pillion_operator.status.conditions import Condition
from pillion_operator.status.deliverers import (
    DelivererCounts,
    count_deliverers,
    ready_condition,
)
from pillion_operator.store import Key, Store, key_of

#: Seconds in which deliverers usually load a new revision. Nothing is written meanwhile, which
#: avoids a "rolling out" just before an "in force".
GRACE = 1.5

_NONE = DelivererCounts(deliverers=0, ready=0, behind=0, starting=0, unreachable=0)


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be said yet. ``seconds`` is the time to the next check; None: a caller will
    notify."""

    seconds: float | None = None


def ready(context: Context, body: Object, services: Iterable[Key]) -> Condition | Wait:
    """The condition Ready of an accepted object; ``services`` may have it in their
    configuration."""
    key = key_of(body)
    using = []
    for service in services:
        found = _in_service(context, key, body, service)
        if isinstance(found, Condition | Wait):
            return found
        if found is not None:
            using.append((service, found))
    return _judged(context, key, using)


def conditions(
    context: Context, body: Object, verdict: Verdict, services: Sequence[Key]
) -> list[Condition] | None:
    if not verdict.accepted:
        return [accepted_condition(verdict), not_ready(verdict)]
    found = ready(context, body, services)
    if isinstance(found, Wait):
        if found.seconds is not None:
            context.requeue(key_of(body), found.seconds)
        return None
    return [accepted_condition(verdict), found]


def _in_service(
    context: Context, key: Key, body: Object, service: Key
) -> ServiceState | Condition | Wait | None:
    """The service's state if its latest revision holds the object as it is, or the condition to
    report instead; None if the service does not use it.

    Wait: the service's own reconcile is pending and notifies when it is done.
    """
    state = context.states.get(service)
    if state is None:
        return Wait() if context.store.get(service) is not None else None
    if not state.evaluation.verdict.accepted:
        message = f"IndicationService {service.name} is not accepted; its conditions say why."
        return Condition("Ready", "False", "ServiceNotAccepted", message)
    content = state.evaluation.content.get(key)
    if state.unwritten is not None and (content is not None or key in state.rollout):
        return Condition("Ready", "False", state.unwritten.reason, state.unwritten.message)
    if content is None:
        # An accepted, active subscription is always used: the service has not been evaluated since
        # it became so.
        coming = key.kind == SUBSCRIPTION or _unjudged(context, key, service, state)
        return Wait() if coming or key in state.rollout else None
    if state.evaluation.held.get(_destination_of(body)) == OLDER_DELIVERERS:
        return Condition("Ready", "False", OLDER_DELIVERERS, _waits_for(service))
    item = context.parsing.parse(body).item
    in_force = state.evaluation.holds(key, item) and state.rollout.holds(key, content)
    return state if in_force else Wait()


def _unjudged(context: Context, key: Key, service: Key, state: ServiceState) -> bool:
    leading = context.references.naming(key) & context.references.naming(service)
    return any(one.name not in state.evaluation.subscriptions for one in leading)


def _judged(
    context: Context, key: Key, using: Sequence[tuple[Key, ServiceState]]
) -> Condition | Wait:
    if not context.gathered(service for service, _ in using):
        # A new leader has no reports yet; the first round notifies.
        for _, state in using:
            state.pending.add(key)
        return Wait()
    if not using:
        message = "No subscription that is accepted and enabled uses it."
        return Condition("Ready", "True", "NotUsed", message)
    total = _NONE
    patience = 0.0
    now = context.clock.monotonic()
    for service, state in using:
        if running_on(context.answers(service)) != state.running:
            # Newer than what the other objects were judged by; they may differ once it is reported.
            state.running = None
        total = added(total, counts(context, service, state.rollout.revisions_with(key)))
        patience = max(patience, state.rolled_out_at + GRACE - now)
    condition = ready_condition(total)
    if condition.status == "False" and patience > 0:
        return Wait(patience)
    for _, state in using:
        # An object that is not ready is checked again with every report.
        (state.pending.add if condition.status == "False" else state.pending.discard)(key)
    return condition


def counts(context: Context, service: Key, revisions: Iterable[str]) -> DelivererCounts:
    return count_deliverers(
        context.pods(service),
        context.answers(service),
        service=service.name,
        revisions=frozenset(revisions),
    )


def services_of(context: Context, key: Key) -> list[Key]:
    # A gateway may still hold what is no longer relayed to it.
    holding = {
        gateway
        for gateway in context.references.gateways(key.namespace)
        if (state := context.states.get(gateway)) is not None and key in state.rollout
    }
    return sorted(context.references.services_using(key) | holding)


def _destination_of(body: Object) -> str:
    name = body["metadata"]["name"] if body["kind"] == DESTINATION else ""
    return str(destination_ref(body) if body["kind"] == SUBSCRIPTION else name)


def _waits_for(service: Key) -> str:
    return (
        f"A deliverer of IndicationService {service.name} is of an older version and does not know "
        "destinationFrom. Indications are queued. Make the pods anew that the condition "
        "OlderDeliverers of the service names."
    )


def level_known(context: Context, service: Key) -> int:
    answers = context.answers(service)
    heard = {one.pod: one.schema_level for one in answers if isinstance(one, DelivererReport)}
    first = Key("Secret", service.namespace, configuration_secret(service.name, 0))
    return level_for(
        (heard.get(pod["metadata"]["name"]) for pod in context.pods(service)),
        standing=level_of(context.store.get(first)),
    )


def ending_pods(store: Store, service: Key) -> list[Object]:
    return [
        pod
        for pod in store.all("Pod", service.namespace).values()
        if pod["metadata"].get("deletionTimestamp")
        and labels_of(pod).get(DELIVERER_LABEL) == service.name
        and not has_ended(pod)
    ]


def running_on(answers: Iterable[Answer]) -> frozenset[str | None]:
    """What the deliverers run, as far as it matters to objects: revisions, None for a deliverer
    without one if no other has any, "" for an unreachable one."""
    running: set[str | None] = set()
    for answer in answers:
        running.add(answer.revision if isinstance(answer, DelivererReport) else "")
    if len(running - {""}) > 1:
        running.discard(None)
    return frozenset(running)


def added(one: DelivererCounts, other: DelivererCounts) -> DelivererCounts:
    return DelivererCounts(
        deliverers=one.deliverers + other.deliverers,
        ready=one.ready + other.ready,
        behind=one.behind + other.behind,
        starting=one.starting + other.starting,
        unreachable=one.unreachable + other.unreachable,
    )
