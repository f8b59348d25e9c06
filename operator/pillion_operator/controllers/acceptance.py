"""The condition Accepted of every kind."""

from collections.abc import Iterable

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.context import Context
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    GATEWAY_REF,
    SERVICE,
    SUBSCRIPTION,
    gateway_named,
    service_of,
)
from pillion_operator.evaluation.relaying import relays
from pillion_operator.evaluation.service import missing, object_problems
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict, refused, together
from pillion_operator.status.conditions import Condition
from pillion_operator.store import Key, Store, key_of
from pillion_sidecar.config.problems import INTERNAL_ERROR


def verdict_of(context: Context, body: Object, services: Iterable[Key]) -> Verdict | None:
    """The verdict on an object; None until its service's own reconcile has run."""
    key = key_of(body)
    if key.kind == SUBSCRIPTION:
        return _of_subscription(context, body)
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


def _of_subscription(context: Context, body: Object) -> Verdict | None:
    problems = context.parsing.parse(body).problems
    if problems:
        return refused(problems)
    key = key_of(body)
    service = Key(SERVICE, key.namespace, service_of(body))
    if context.store.get(service) is None:
        others = ((FILTER, "filterRef"), (DESTINATION, "destinationRef"))
        named = [(kind, body["spec"][reference]["name"]) for kind, reference in others]
        absent = [
            missing(kind, name)
            for kind, name in named
            if context.store.get(Key(kind, key.namespace, name)) is None
        ]
        return together([_no_service(service.name), *absent])
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


def _no_service(name: str) -> Verdict:
    return Verdict(
        False,
        "ServiceNotFound",
        f"There is no IndicationService {name} in this namespace. Make it, or name another in "
        "serviceRef.",
    )


def gateway_of(subscription: Object, *, store: Store) -> Key | None:
    namespace = subscription["metadata"]["namespace"]
    service = store.get(Key(SERVICE, namespace, service_of(subscription)))
    name = ((subscription.get("spec") or {}).get("destinationRef") or {}).get("name", "")
    if service is None or not relays(service, store.get(Key(DESTINATION, namespace, name))):
        return None
    return Key(SERVICE, namespace, gateway_named(service, GATEWAY_REF))


def accepted_condition(verdict: Verdict) -> Condition:
    return Condition(
        "Accepted", "True" if verdict.accepted else "False", verdict.reason, verdict.message
    )


def not_ready(verdict: Verdict) -> Condition:
    message = f"It is not accepted: {verdict.message}"
    if verdict.reason == INTERNAL_ERROR:
        return Condition("Ready", "False", INTERNAL_ERROR, message)
    return Condition("Ready", "False", "NotAccepted", message)
