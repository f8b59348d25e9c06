"""The references among resources, indexed both ways: a change finds all that it affects."""

from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping
from typing import Any, TypeVar

from pillion_operator.cluster.types import Object
from pillion_operator.store import Change, Key
from pillion_sidecar.config.addresses import listener_address
from pillion_sidecar.config.schema import LISTENER_DESTINATION
from pillion_sidecar.config.schema.common import secret_names
from pillion_sidecar.config.schema.deliverer import DelivererMode
from pillion_sidecar.config.schema.destination import SequenceIdentifiers
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS

SERVICE = "IndicationService"
DESTINATION = "ListenerDestination"
FILTER = "IndicationFilter"
SUBSCRIPTION = "IndicationSubscription"
SECRET = "Secret"
CONFIG_MAP = "ConfigMap"

#: The service of a subscription that names none.
DEFAULT_SERVICE = "default"

#: The fields by which a service names gateways: who delivers for it, and who takes what is left.
GATEWAY_REF = "gatewayRef"
HAND_OVER_TO = "handOverTo"
#: Where the fields of a destination begin that name Secrets.
OF_SECRETS = ("spec.destinationFrom.secretKeyRef.", "spec.tls.", "spec.credentials.")
#: Destinations at one URL beyond which they are not told of each other at once.
MOST_AT_ONE_URL = 100
_GATEWAY_FIELDS = (GATEWAY_REF, HAND_OVER_TO)


def named_by(body: Object) -> Iterator[Key]:
    """The objects that a subscription, a destination or a service names in its spec."""
    spec = body.get("spec") or {}
    namespace = body["metadata"].get("namespace") or ""
    if body["kind"] == SUBSCRIPTION:
        for field, kind in (("filterRef", FILTER), ("destinationRef", DESTINATION)):
            yield Key(kind, namespace, _name(spec, field))
        yield Key(SERVICE, namespace, service_of(body))
    elif body["kind"] == DESTINATION:
        for name in sorted(secrets_of(spec)):
            yield Key(SECRET, namespace, name)
    elif body["kind"] == SERVICE:
        for name in sorted({gateway_named(body, field) for field in _GATEWAY_FIELDS} - {""}):
            yield Key(SERVICE, namespace, name)
        for name in sorted(config_maps_of(spec)):
            yield Key(CONFIG_MAP, namespace, name)


def config_maps_of(spec: Mapping[str, Any]) -> set[str]:
    """The names of the ConfigMaps with MOF that a service's spec names, valid or not."""
    named = spec.get("mofFrom")
    found = named if isinstance(named, list) else []
    entries = [one.get("configMapRef") for one in found if isinstance(one, dict)]
    names = {one.get("name") for one in entries if isinstance(one, dict)}
    return {name for name in names if isinstance(name, str) and name}


def gateway_named(service: Object, field: str) -> str:
    """The gateway that a service names in ``GATEWAY_REF`` or ``HAND_OVER_TO``; empty: none."""
    return _name(service.get("spec") or {}, field)


def is_gateway(service: Object | None) -> bool:
    deliverer = ((service or {}).get("spec") or {}).get("deliverer") or {}
    return bool(deliverer.get("mode") == DelivererMode.GATEWAY)


def service_of(subscription: Object) -> str:
    return _name(subscription.get("spec") or {}, "serviceRef") or DEFAULT_SERVICE


def destination_ref(subscription: Object) -> str:
    return _name(subscription.get("spec") or {}, "destinationRef")


def secrets_of(spec: Mapping[str, Any]) -> set[str]:
    """The names of the Secrets that a destination's spec uses."""
    return secret_names(LISTENER_DESTINATION.spec, spec)


def _url_source(spec: Mapping[str, Any]) -> Mapping[str, Any]:
    return (spec.get("destinationFrom") or {}).get("secretKeyRef") or {}


def url_of(destination: Object) -> str:
    """The address of a destination's listener, as one URL for all its spellings; where it is in a
    Secret, that Secret's name and key."""
    spec = destination.get("spec") or {}
    source = _url_source(spec)
    if source:
        # What it holds is not known here, and shown nowhere.
        return f"secret {source.get('name')}/{source.get('key')}"
    url, protocol = str(spec.get("destination") or ""), str(spec.get("protocol"))
    return listener_address(url, protocol if protocol in PROTOCOLS else FALLBACK)


def _name(spec: Mapping[str, Any], field: str) -> str:
    return str((spec.get(field) or {}).get("name") or "")


class References:
    """The references of every subscription, destination and service, both ways."""

    def __init__(self) -> None:
        self._from: dict[Key, frozenset[Key]] = {}
        self._to: defaultdict[Key, set[Key]] = defaultdict(set)
        #: By namespace: the services in mode Gateway.
        self._gateways: defaultdict[str, set[Key]] = defaultdict(set)
        #: By namespace and URL: the destinations that lead there.
        self._at: defaultdict[tuple[str, str], set[Key]] = defaultdict(set)
        self._urls: dict[Key, str] = {}
        #: The destinations that have sequence identifiers sent whoever else delivers there.
        self._senders: set[Key] = set()

    def follow(self, change: Change) -> None:
        """Take a change of the store into account."""
        if change.key.kind not in (SUBSCRIPTION, DESTINATION, SERVICE):
            return
        if change.key.kind == SERVICE:
            _entered(
                self._gateways, change.key.namespace, change.key, there=is_gateway(change.after)
            )
        elif change.key.kind == DESTINATION:
            self._follow_destination(change.key, change.after)
        named = frozenset(named_by(change.after)) if change.after is not None else frozenset()
        for gone in self._from.pop(change.key, frozenset()) - named:
            _entered(self._to, gone, change.key, there=False)
        if named:
            self._from[change.key] = named
            for target in named:
                self._to[target].add(change.key)

    def _follow_destination(self, key: Key, body: Object | None) -> None:
        url = self._urls.pop(key, None)
        if url is not None:
            _entered(self._at, (key.namespace, url), key, there=False)
        self._senders.discard(key)
        if body is None:
            return
        self._urls[key] = url_of(body)
        _entered(self._at, (key.namespace, self._urls[key]), key, there=True)
        if (body.get("spec") or {}).get("sequenceIdentifiers") == SequenceIdentifiers.SEND:
            self._senders.add(key)

    def naming(self, key: Key) -> frozenset[Key]:
        """The objects that name ``key``: of a service, subscriptions and other services."""
        return frozenset(self._to.get(key, ()))

    def subscriptions_to(self, key: Key) -> set[Key]:
        return {one for one in self._to.get(key, ()) if one.kind == SUBSCRIPTION}

    def guests(self, gateway: Key) -> set[Key]:
        """The other services that name this one as their gateway."""
        return {one for one in self._to.get(gateway, ()) if one.kind == SERVICE} - {gateway}

    def gateways_of(self, service: Key) -> frozenset[Key]:
        """The services that this one names as its gateways, whatever they are."""
        return frozenset(self._services_named(service)) - {service}

    def _services_named(self, one: Key) -> set[Key]:
        return {target for target in self._from.get(one, ()) if target.kind == SERVICE}

    def gateways(self, namespace: str) -> frozenset[Key]:
        return frozenset(self._gateways.get(namespace, ()))

    def at(self, namespace: str, url: str) -> frozenset[Key]:
        """The destinations of a namespace that lead to a URL."""
        return frozenset(self._at.get((namespace, url), ()))

    def senders_at(self, namespace: str, url: str) -> set[Key]:
        """Of the destinations that lead to a URL, those with sequenceIdentifiers Send.

        None of very many: each change of one would have all others looked at again.
        """
        there = self._at.get((namespace, url), set())
        return self._senders & there if len(there) <= MOST_AT_ONE_URL else set()

    def senders_beside(self, destination: Key) -> set[Key]:
        """The destinations with sequenceIdentifiers Send that lead where this one does."""
        return self.senders_at(destination.namespace, self._urls.get(destination, ""))

    def services_using(self, key: Key) -> set[Key]:
        """The services whose configuration depends on a filter, destination, Secret or
        ConfigMap: those whose
        subscriptions lead to it, and the gateways of these."""
        namers = self.naming(key)
        if key.kind == CONFIG_MAP:
            return set(namers)
        if key.kind == SECRET:
            namers = frozenset().union(*(self.naming(destination) for destination in namers))
        services = set[Key]().union(*map(self._services_named, namers))
        return services.union(*map(self._services_named, services))

    def served_by(self, service: Key) -> set[Key]:
        """The subscriptions of a service and of those that name it as their gateway, and the
        filters and destinations that they name."""
        subscriptions = self.subscriptions_to(service)
        for guest in self.guests(service):
            subscriptions |= self.subscriptions_to(guest)
        named = {key for one in subscriptions for key in self._from.get(one, ())}
        return {*subscriptions, *(key for key in named if key.kind != SERVICE)}


_Index = TypeVar("_Index", bound=Hashable)


def _entered(index: defaultdict[_Index, set[Key]], place: _Index, key: Key, *, there: bool) -> None:
    if there:
        index[place].add(key)
        return
    known = index.get(place)
    if known is not None:
        known.discard(key)
        if not known:
            del index[place]
