"""The conditions Accepted and Ready of every kind. Ready says whether an object's current state is
in force at every deliverer that uses it."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import ServiceState
from pillion_operator.desired.configuration import level_of
from pillion_operator.evaluation.fitting import OLDER_DELIVERERS
from pillion_operator.evaluation.judging import object_problems
from pillion_operator.evaluation.references import (
    DESTINATION,
    GATEWAY_REF,
    REPLAY,
    SERVICE,
    SUBSCRIPTION,
    destination_ref,
    gateway_named,
    named_by,
    service_of,
)
from pillion_operator.evaluation.relaying import relays
from pillion_operator.evaluation.replaying import is_under_way
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict, missing, refused, together
from pillion_operator.names import configuration_secret
from pillion_operator.polling.reports import Answer, DelivererReport
from pillion_operator.status.conditions import Condition
from pillion_operator.status.deliverers import DelivererCounts, count_deliverers, ready_condition
from pillion_operator.store import Key, Store, key_of
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.problems import INTERNAL_ERROR

#: Seconds in which deliverers usually load a new revision. Nothing is written meanwhile, which
#: avoids a "rolling out" just before an "in force".
GRACE = 1.5


@dataclass(frozen=True, slots=True)
class Wait:
    """Nothing can be said yet. ``seconds`` is the time to the next check; None: a caller will
    notify."""

    seconds: float | None = None


def verdict_of(context: Context, body: Object, services: Iterable[Key]) -> Verdict | None:
    """The verdict on any object but a replay; None until its service's own reconcile has run."""
    key = key_of(body)
    if key.kind == SUBSCRIPTION:
        return _verdict_of_subscription(context, body)
    namespace = context.namespace(key.namespace)
    problems = object_problems(key.kind, key.name, namespace=namespace, judge=context.judge)
    if problems:
        return refused(problems)
    if key.kind == DESTINATION:
        for service in services:
            state = context.states.get(service)
            verdict = state.evaluation.destinations.get(key.name) if state else None
            if verdict is not None:
                message = f"In the service {service.name}: {verdict.message}"
                return Verdict(False, verdict.reason, message)
    return ACCEPTED


def _verdict_of_subscription(context: Context, body: Object) -> Verdict | None:
    problems = context.parsing.parse(body).problems
    if problems:
        return refused(problems)
    key = key_of(body)
    service = Key(SERVICE, key.namespace, service_of(body))
    if context.store.get(service) is None:
        no_service = Verdict(
            False,
            "ServiceNotFound",
            f"IndicationService {service.name} does not exist in this namespace. Create it, or "
            "name another in serviceRef.",
        )
        absent = [
            missing(named.kind, named.name)
            for named in named_by(body)
            if named != service and context.store.get(named) is None
        ]
        return together([no_service, *absent])
    state = context.states.get(service)
    verdict = state.evaluation.subscriptions.get(key.name) if state is not None else None
    gateway = gateway_of(body, store=context.store)
    if verdict is None or not verdict.accepted or gateway is None:
        return verdict
    relaying = context.states.get(gateway)
    if relaying is None or not relaying.evaluation.verdict.accepted:
        return verdict if relaying is not None else None
    # The gateway delivers, so its verdict counts.
    return relaying.evaluation.relayed.get(key.name)


def gateway_of(subscription: Object, *, store: Store) -> Key | None:
    namespace = subscription["metadata"]["namespace"]
    service = store.get(Key(SERVICE, namespace, service_of(subscription)))
    destination = store.get(Key(DESTINATION, namespace, destination_ref(subscription)))
    if service is None or not relays(service, destination):
        return None
    return Key(SERVICE, namespace, gateway_named(service, GATEWAY_REF))


def accepted_condition(verdict: Verdict) -> Condition:
    return Condition(
        "Accepted", "True" if verdict.accepted else "False", verdict.reason, verdict.message
    )


def refused_conditions(verdict: Verdict) -> list[Condition]:
    """Accepted and Ready of an object that is not accepted."""
    internal = verdict.reason == INTERNAL_ERROR
    message = f"It is not accepted: {verdict.message}"
    ready = Condition("Ready", "False", INTERNAL_ERROR if internal else "NotAccepted", message)
    return [accepted_condition(verdict), ready]


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
        return refused_conditions(verdict)
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
        message = f"IndicationService {service.name} is not accepted: see its conditions."
        return Condition("Ready", "False", "ServiceNotAccepted", message)
    content = state.evaluation.content.get(key)
    if state.unwritten is not None and (content is not None or key in state.rollout.content):
        return Condition("Ready", "False", state.unwritten.reason, state.unwritten.message)
    if content is None:
        # An accepted, active subscription is always used: the service has not been evaluated since
        # it became so.
        coming = key.kind == SUBSCRIPTION or _unjudged(context, key, service, state)
        return Wait() if coming or key in state.rollout.content else None
    destination = key.name if key.kind == DESTINATION else destination_ref(body)
    if state.evaluation.held.get(destination) == OLDER_DELIVERERS:
        message = (
            f"A deliverer of IndicationService {service.name} is of an older version and does not "
            "know destinationFrom. Indications are queued. Recreate the pods that the condition "
            "OlderDeliverers of the service names."
        )
        return Condition("Ready", "False", OLDER_DELIVERERS, message)
    item = context.parsing.parse(body).item
    in_force = state.evaluation.holds(key, item) and state.rollout.content.get(key) == content
    return state if in_force else Wait()


def _unjudged(context: Context, key: Key, service: Key, state: ServiceState) -> bool:
    leading = context.references.naming(key) & context.references.naming(service)
    evaluation = state.evaluation
    judged = {SUBSCRIPTION: evaluation.subscriptions, REPLAY: evaluation.replays}
    return any(
        one.kind in judged and one.name not in judged[one.kind]
        for one in leading
        if one.kind != REPLAY or is_under_way(context.store.get(one))
    )


def _judged(
    context: Context, key: Key, using: Sequence[tuple[Key, ServiceState]]
) -> Condition | Wait:
    if not context.has_synced(service for service, _ in using):
        # A new leader has no reports yet; the first round notifies.
        for _, state in using:
            state.pending.add(key)
        return Wait()
    if not using:
        message = "No subscription that is accepted and enabled uses it, and no replay."
        return Condition("Ready", "True", "NotUsed", message)
    total = DelivererCounts()
    grace = 0.0
    now = context.clock.monotonic()
    for service, state in using:
        if running_on(context.answers(service)) != state.running:
            # Newer than what the other objects were judged by; they may differ once it is reported.
            state.running = None
        total += counts(context, service, *state.rollout.revisions_with(key))
        grace = max(grace, state.rolled_out_at + GRACE - now)
    condition = ready_condition(total)
    if condition.status == "False" and grace > 0:
        return Wait(grace)
    for _, state in using:
        # An object that is not ready is checked again with every report.
        (state.pending.add if condition.status == "False" else state.pending.discard)(key)
    return condition


def counts(context: Context, service: Key, *revisions: str | None) -> DelivererCounts:
    """``revisions`` are those that count as the desired one."""
    return count_deliverers(
        context.pods(service),
        context.answers(service),
        service=service.name,
        revisions=frozenset(revisions) - {None},
    )


def services_of(context: Context, key: Key) -> list[Key]:
    # A gateway may still hold what is no longer relayed to it, and a service a destination that has
    # got dead letters.
    may_hold: Iterable[Key] = context.references.gateways(key.namespace)
    if key.kind == DESTINATION and not context.references.naming(key):
        names = context.store.all(SERVICE, key.namespace)
        may_hold = [Key(SERVICE, key.namespace, name) for name in names]
    holding = {
        service
        for service in may_hold
        if (state := context.states.get(service)) is not None and key in state.rollout.content
    }
    return sorted(context.references.services_using(key) | holding)


def level_known(context: Context, service: Key) -> int:
    """The schema level that all deliverers of a service can read. One without an answer may run the
    configuration as it is."""
    known = {report.pod: report.schema_level for report in context.reports(service)}
    first = Key("Secret", service.namespace, configuration_secret(service.name, 0))
    current = level_of(context.store.get(first))
    pods = context.pods(service)
    return min((LEVEL, *(known.get(pod["metadata"]["name"], current) for pod in pods)))


def running_on(answers: Iterable[Answer]) -> frozenset[str | None]:
    """What the deliverers run, as far as it matters to objects: revisions, None for a deliverer
    without one if no other has any, "" for an unreachable one."""
    running: set[str | None] = set()
    for answer in answers:
        running.add(answer.revision if isinstance(answer, DelivererReport) else "")
    if len(running - {""}) > 1:
        running.discard(None)
    return frozenset(running)
