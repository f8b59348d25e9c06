"""Which services relay to which gateway, whether it is usable, and who else delivers. Pure. A
missing or wrong gateway removes nothing from a configuration, because deliverers discard the queue
of a removed destination: sidecars keep what they relay until the gateway is usable."""

from collections.abc import Iterable, Iterator
from itertools import islice

from pillion_operator.cluster.scaling import replicas_of
from pillion_operator.cluster.types import STATEFUL_SET, Object, being_deleted, deliverer_of
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
    service_of,
    stores_named,
    url_of,
)
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict
from pillion_operator.names import gateway
from pillion_operator.store import Key
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability

#: Maximum subscriptions at one URL that are read to find the services that deliver there.
_MOST_LOOKS = 1_000
GATEWAY_NOT_FOUND = "GatewayNotFound"
GATEWAY_NOT_USABLE = "GatewayNotUsable"


def relays(service: Object | None, destination: Object | None) -> bool:
    if service is None or is_gateway(service):
        return False
    through = ((destination or {}).get("spec") or {}).get("deliverThrough")
    return bool(through == DeliverThrough.GATEWAY and gateway_named(service, GATEWAY_REF))


def storage_class_of(gateway: Object) -> str | None:
    named = (deliverer_of(gateway).get("storage") or {}).get("storageClassName")
    return None if named is None else str(named)


def gateways_named(service: Object, *, namespace: Namespace) -> dict[str, Verdict]:
    """Verdicts by the field that names the gateway."""
    named = {field: gateway_named(service, field) for field in (GATEWAY_REF, HAND_OVER_TO)}
    found = {
        field: _verdict(name, service, namespace=namespace, field=field)
        for field, name in named.items()
        if name
    }
    stores = stores_named(service).items()
    return found | {
        field: _verdict(name, service, namespace=namespace, field=field, is_store=True)
        for field, name in stores
    }


def _verdict(
    name: str, service: Object, *, namespace: Namespace, field: str, is_store: bool = False
) -> Verdict:
    if name == service["metadata"]["name"]:
        message = f"{field} names the service itself. Name one with deliverer.mode Gateway."
        return Verdict(False, GATEWAY_NOT_USABLE, message)
    body = namespace.body(SERVICE, name)
    if body is None:
        remedy = "deliverer.mode Gateway, or name another. Relayed indications wait."
        if is_store:
            remedy = "deliverer.mode Gateway and journalCopies, or name another."
        return Verdict(
            False,
            GATEWAY_NOT_FOUND,
            f"{field} names IndicationService {name}, which does not exist in this namespace. "
            f"Create it with {remedy}",
        )
    problem = _problem(body, namespace, is_store=is_store)
    if problem is None and is_store:
        problem = _problem_of_store(body)
    if problem is None:
        return ACCEPTED
    message = f"IndicationService {name}, which {field} names, {problem}"
    return Verdict(False, GATEWAY_NOT_USABLE, message)


def _problem(body: Object, namespace: Namespace, *, is_store: bool) -> str | None:
    """The problem of a gateway, with the remedy."""
    parsed = namespace.parsed(SERVICE, body["metadata"]["name"])
    if being_deleted(body):
        return "is being deleted. Name another, or recreate it."
    if parsed is None or parsed.resource is None or parsed.problems:
        return "is not accepted: see its conditions."
    if not is_gateway(body):
        return "is not in mode Gateway. Name a service with deliverer.mode Gateway."
    replicas = _replicas(body, namespace)
    if replicas != 1:
        own = "queues and identities. Order, and one delivery for each identity, need one replica"
        if is_store:
            own = "copies, and requests go to any of them"
        return (
            f"has {replicas} replicas, each with its own {own}. Set its deliverer.replicas to 1, "
            "and remove its autoscaler."
        )
    if body["spec"].get("durability", Durability.DISK) != Durability.DISK:
        return (
            f"has durability {body['spec']['durability']}, so it cannot keep indications. Set "
            "its durability to Disk."
        )
    namespace_name = body["metadata"]["namespace"]
    publishers = body["spec"].get("publishers") or ()
    if publishers and all(one.get("namespace") != namespace_name for one in publishers):
        return (
            f"has publishers of other namespaces only, so it refuses sidecars of {namespace_name}. "
            f"Add {namespace_name} to its publishers."
        )
    return None


def _problem_of_store(body: Object) -> str | None:
    if body["spec"].get("journalCopies") is not None:
        return None
    return "keeps no copies of journals. Set its journalCopies."


def accounts_refused(gateway: Object, accounts: Iterable[str]) -> list[str]:
    """The service accounts of the gateway's own namespace that may not publish at it."""
    publishers = gateway["spec"].get("publishers") or ()
    own = gateway["metadata"]["namespace"]
    admitted = [one.get("serviceAccount") for one in publishers if one.get("namespace") == own]
    if not publishers or None in admitted:
        return []
    return sorted(set(accounts) - set(admitted))


def relayed_to(gateway: Key, *, namespace: Namespace, references: References) -> set[str]:
    """The subscriptions of other services that relay, or hand over, to it."""
    return {
        subscription.name
        for guest in references.guests(gateway)
        for subscription in references.subscriptions_to(guest)
        if gateway.name in _leads_to(guest, subscription, namespace=namespace)
    }


def _leads_to(service: Key, subscription: Key, *, namespace: Namespace) -> set[str]:
    """The services whose deliverers deliver for a subscription of ``service``."""
    body = namespace.body(SERVICE, service.name)
    if body is None or is_gateway(body):
        return {service.name}
    delivers = service.name
    destination = destination_ref(namespace.body(SUBSCRIPTION, subscription.name) or {})
    if relays(body, namespace.body(DESTINATION, destination)):
        delivers = gateway_named(body, GATEWAY_REF)
    return {delivers, gateway_named(body, HAND_OVER_TO)} - {""}


def _replicas(gateway_service: Object, namespace: Namespace) -> int:
    name = gateway(gateway_service["metadata"]["name"])
    return replicas_of(gateway_service, namespace.body(STATEFUL_SET.kind, name))


def _deliverers(url: str, namespace: Namespace, references: References) -> Iterator[str]:
    """The services of a namespace that deliver to a URL through any destination."""
    for destination in references.at(namespace.name, url):
        losing = references.losing_to(destination)
        yield from (one.name for one in losing if one.kind == SERVICE)
        for one in (destination, *(one for one in losing if one.kind == DESTINATION)):
            for subscription in references.subscriptions_to(one):
                body = namespace.body(SUBSCRIPTION, subscription.name)
                if body is not None:
                    service = Key(SERVICE, namespace.name, service_of(body))
                    yield from _leads_to(service, subscription, namespace=namespace)


def delivered_alone(
    service: str, url: str, *, namespace: Namespace, references: References
) -> bool:
    """Whether the gateway ``service`` is the only deliverer to a URL. A service with sidecars has
    many deliverers; other namespaces are not considered."""
    body = namespace.body(SERVICE, service)
    if body is None or not is_gateway(body) or _replicas(body, namespace) != 1:
        return False
    return set(_deliverers(url, namespace, references)) <= {service}


def shared_by(destination: Object, *, namespace: Namespace, references: References) -> list[str]:
    """The services that deliver to a destination's URL; empty if there is only one deliverer."""
    url = url_of(destination)
    found = islice(_deliverers(url, namespace, references), _MOST_LOOKS)
    services = sorted(set(found))
    used = (key for key in references.at(namespace.name, url) if references.naming(key))
    alone = len(services) == 1 and delivered_alone(
        services[0], url, namespace=namespace, references=references
    )
    return [] if not services or (alone and len(list(islice(used, 2))) < 2) else services
