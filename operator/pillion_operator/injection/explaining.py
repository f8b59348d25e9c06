"""Explains why a pod has no sidecar, by the rules of the webhook. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime

from pillion_operator.cluster.types import Object, labels_of
from pillion_operator.injection.decision import (
    Leave,
    Reason,
    decide,
    has_deliverer,
    is_sidecar_service,
)
from pillion_operator.injection.selectors import selects
from pillion_operator.names import DELIVERER_LABEL, INJECT_LABEL

WEBHOOK = "inject.pillion.dev"

_GATEWAY = "Publish to a service with mode Gateway."
_REMEDIES = {
    Reason.EXCLUDED_NAMESPACE: "Run it in another namespace.",
    Reason.OPTED_OUT: f"Remove the label {INJECT_LABEL} from its template, or name a service.",
    Reason.BAD_NAME: 'Write "true", "false" or the name of an IndicationService.',
    Reason.GATEWAY: "Publish to the gateway's Service, or name a service with mode Sidecar.",
    Reason.SPARK_DRIVER: "Set deliverer.injectSparkDriver in the service, or label the driver with "
    f"{INJECT_LABEL}.",
    Reason.HOST_NETWORK: f"Take it off the node's network. {_GATEWAY}",
    Reason.WINDOWS: _GATEWAY,
    Reason.MIRROR: _GATEWAY,
}
_ANEW = "Delete the pod, so that its owner makes another."


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """The rule that decides on a pod."""

    #: Stable, such as ``NotSelected``.
    rule: str
    message: str
    #: Empty if nothing is wrong.
    remedy: str = ""
    #: What might be the reason instead, and was not read for lack of rights.
    unchecked: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Surroundings:
    services: Sequence[Object]
    #: None if the user may not read it.
    namespace: Object | None
    #: None if the user may not read them.
    configurations: Sequence[Object] | None
    operator_namespace: str


def explain(pod: Object, around: Surroundings) -> Explanation:
    if has_deliverer(pod):
        service = labels_of(pod).get(DELIVERER_LABEL, "")
        return Explanation(rule="HasOne", message=f"It has a deliverer of the service {service}.")
    webhooks = _webhooks(around)
    decision = decide(
        pod,
        namespace=pod["metadata"]["namespace"],
        services=around.services,
        operator_namespace=_operator_namespace(webhooks, around),
    )
    if isinstance(decision, Leave):
        return _left(decision.reason, around.services)
    unreached = _let_through(webhooks, pod, around)
    return unreached or replace(
        _missed(pod, decision.service, around.services), unchecked=_unchecked(around)
    )


def _unchecked(around: Surroundings) -> tuple[str, ...]:
    unread = {
        "namespaces: whether the webhook selects this one": around.namespace,
        "mutatingwebhookconfigurations: whether there is a webhook, and a CA in it": (
            around.configurations
        ),
    }
    return tuple(what for what, found in unread.items() if found is None)


def _left(reason: Reason, services: Iterable[Object]) -> Explanation:
    remedy = _REMEDIES.get(reason, "")
    if reason is Reason.NOT_SELECTED:
        names = sorted(one["metadata"]["name"] for one in services if is_sidecar_service(one))
        known = (
            f"Services with mode Sidecar are {', '.join(names[:10])}."
            if names
            else "The namespace has no service with mode Sidecar; make one."
        )
        remedy = f'Add the label {INJECT_LABEL}: "true" or NAME to the pod\'s template. {known}'
    rule = "".join(word.capitalize() for word in reason.name.split("_"))
    return Explanation(rule=rule, message=f"{reason[0].upper()}{reason[1:]}.", remedy=remedy)


def _webhooks(around: Surroundings) -> list[Object] | None:
    if around.configurations is None:
        return None
    return [
        webhook
        for configuration in around.configurations
        for webhook in configuration.get("webhooks") or ()
        if webhook.get("name") == WEBHOOK
    ]


def _operator_namespace(webhooks: Sequence[Object] | None, around: Surroundings) -> str:
    for webhook in webhooks or ():
        service = (webhook.get("clientConfig") or {}).get("service") or {}
        if service.get("namespace"):
            return str(service["namespace"])
    return around.operator_namespace


def _let_through(
    webhooks: Sequence[Object] | None, pod: Object, around: Surroundings
) -> Explanation | None:
    """Why the API server does not call the webhook; None if no reason is known."""
    if webhooks is None:
        return None
    if not webhooks:
        return Explanation(
            rule="NoWebhook",
            message="The cluster has no injecting webhook of Pillion.",
            remedy="Install the chart with injection.enabled.",
        )
    if not any(map(_is_verifiable, webhooks)):
        return Explanation(
            rule="NoCABundle",
            message="The API server cannot verify the webhook: its caBundle is empty.",
            remedy="See that the operator runs, and its log: it writes caBundle. With "
            f"cert-manager, see its Certificate. {_ANEW}",
        )
    if around.namespace is None:
        return None
    labels = labels_of(around.namespace)
    selectors = [webhook.get("namespaceSelector") for webhook in webhooks]
    if any(not selector or selects(selector, labels) for selector in selectors):
        return None
    return Explanation(
        rule="NamespaceNotSelected",
        message=f"The webhook is not asked about pods of the namespace "
        f"{pod['metadata']['namespace']}: its namespaceSelector does not select it.",
        remedy="Label the namespace, or change injection.namespaceSelector and scope.namespaces of "
        f"the chart. {_ANEW}",
    )


def _is_verifiable(webhook: Object) -> bool:
    client = webhook.get("clientConfig") or {}
    # A certificate at a URL may be one that the API server's system trusts.
    return bool(client.get("caBundle") or client.get("url"))


def _missed(pod: Object, name: str, services: Iterable[Object]) -> Explanation:
    service = next((one for one in services if one["metadata"]["name"] == name), None)
    if service is not None and _made(service) > _made(pod):
        return Explanation(
            rule="OlderThanService",
            message=f"It was made before the IndicationService {name}, which selects it now.",
            remedy=_ANEW,
        )
    return Explanation(
        rule="Missed",
        message=f"A pod like it would get a deliverer of the service {name} now. When it was made, "
        "the webhook did not answer, or pod or service had other labels or selectors.",
        remedy=f"See that the operator is ready. {_ANEW}",
    )


def _made(resource: Object) -> datetime:
    return datetime.fromisoformat(resource["metadata"]["creationTimestamp"])
