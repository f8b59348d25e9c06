"""The references among resources, indexed both ways: a change finds all that it affects."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from pillion_operator.cluster.types import Object, deliverer_of
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
REPLAY = "IndicationReplay"
SECRET = "Secret"
CONFIG_MAP = "ConfigMap"

#: The kinds that name a service, a filter and a destination.
USERS = (SUBSCRIPTION, REPLAY)

DEFAULT_SERVICE = "default"

#: The service fields that name gateways: the one that delivers, and the one that takes what is
#: pending when a sidecar ends.
GATEWAY_REF = "gatewayRef"
HAND_OVER_TO = "handOverTo"
DEAD_LETTER_REF = "deadLetterRef"
#: Prefixes of the fields of a destination that name Secrets.
OF_SECRETS = (
    "spec.destinationFrom.secretKeyRef.",
    "spec.tls.",
    "spec.credentials.",
    "spec.proxy.secretRef.",
)
#: The same of a service, together with the end of the name of such a field.
_OF_STORES, _SECRET_REF = "spec.stores.", "ecretRef."
#: Maximum destinations with one URL that are reconciled for a change of another.
MOST_AT_ONE_URL = 100
_GATEWAY_FIELDS = (GATEWAY_REF, HAND_OVER_TO)
#: Index keys that are no objects: gateways of a namespace, destinations with a URL, those of them
#: with sequenceIdentifiers Send, and gateways as stores of a journal.
_GATEWAYS, _URL, _SENDERS, _STORE = "gateways", "url", "senders", "store"


def named_by(body: Object) -> Iterator[Key]:
    spec = body.get("spec") or {}
    namespace = body["metadata"].get("namespace") or ""
    if body["kind"] in USERS:
        for field, kind in (("filterRef", FILTER), ("destinationRef", DESTINATION)):
            # The filter of a replay is optional.
            if body["kind"] == SUBSCRIPTION or _name(spec, field):
                yield Key(kind, namespace, _name(spec, field))
        yield Key(SERVICE, namespace, service_of(body))
    elif body["kind"] == DESTINATION:
        for name in sorted(secrets_of(spec)):
            yield Key(SECRET, namespace, name)
        yield from _dead_letter(body)
    elif body["kind"] == SERVICE:
        yield from _dead_letter(body)
        for name in sorted({gateway_named(body, field) for field in _GATEWAY_FIELDS} - {""}):
            yield Key(SERVICE, namespace, name)
        for name in sorted(config_maps_of(spec)):
            yield Key(CONFIG_MAP, namespace, name)
        for name in sorted(secrets_of_stores(body)):
            yield Key(SECRET, namespace, name)


def _dead_letter(body: Object) -> Iterator[Key]:
    if name := dead_letter_named(body):
        yield Key(DESTINATION, body["metadata"].get("namespace") or "", name)


def dead_letter_named(body: Object) -> str:
    """The destination in the deadLetterRef of a destination or service; empty if there is none."""
    return _name(body.get("spec") or {}, DEAD_LETTER_REF)


def _indexed_under(body: Object) -> Iterator[Key]:
    yield from named_by(body)
    namespace = body["metadata"].get("namespace") or ""
    if body["kind"] == SERVICE and is_gateway(body):
        yield Key(_GATEWAYS, namespace, "")
    elif body["kind"] == SERVICE:
        # Not as gateways: they deliver nothing of it.
        for name in sorted(set(stores_named(body).values())):
            yield Key(_STORE, namespace, name)
    elif body["kind"] == DESTINATION:
        url = url_of(body)
        yield Key(_URL, namespace, url)
        if (body.get("spec") or {}).get("sequenceIdentifiers") == SequenceIdentifiers.SEND:
            yield Key(_SENDERS, namespace, url)


def config_maps_of(spec: Mapping[str, Any]) -> set[str]:
    """The ConfigMaps with MOF that a spec names, even invalid ones."""
    named = spec.get("mofFrom")
    found = named if isinstance(named, list) else []
    entries = [one.get("configMapRef") for one in found if isinstance(one, dict)]
    names = {one.get("name") for one in entries if isinstance(one, dict)}
    return {name for name in names if isinstance(name, str) and name}


def gateway_named(service: Object, field: str) -> str:
    """Empty if there is none."""
    return _name(service.get("spec") or {}, field)


def stores_named(service: Object) -> dict[str, str]:
    """The gateways in ``stores``, by field, even invalid ones; those of other fields may be among
    them."""
    stores = (service.get("spec") or {}).get("stores")
    return {
        f"stores.groups[{at}].{field}[{index}].gatewayRef": name
        for at, group in enumerate(_dicts(stores, "groups"))
        for field in ("members", "backups")
        for index, member in enumerate(_dicts(group, field))
        if isinstance(reference := member.get(GATEWAY_REF), dict)
        and isinstance(name := reference.get("name"), str)
        and name
    }


def streams_named(service: Object) -> list[str]:
    """The names of the stores that are NATS streams."""
    return [name for one in _streams(service) if isinstance(name := one.get("name"), str)]


def secrets_of_stores(service: Object) -> set[str]:
    """The Secrets that streams in ``stores`` name, even invalid ones."""
    return {
        name
        for stream in _streams(service)
        for reference in _references(stream)
        if isinstance(name := reference.get("name"), str) and name
    }


def _streams(service: Object) -> Iterator[dict[str, Any]]:
    for group in _dicts((service.get("spec") or {}).get("stores"), "groups"):
        for field in ("members", "backups"):
            for member in _dicts(group, field):
                if isinstance(stream := member.get("nats"), dict):
                    yield stream


def _references(value: Any) -> Iterator[dict[str, Any]]:
    """What names Secrets in a body that may be of any form."""
    for name, below in value.items() if isinstance(value, dict) else ():
        if str(name).endswith(("secretRef", "SecretRef")):
            yield below if isinstance(below, dict) else {}
        else:
            yield from _references(below)


def names_secret(field: str) -> bool:
    """Whether a field of a destination or service names a Secret."""
    is_store = field.startswith(_OF_STORES) and _SECRET_REF in field
    return is_store or field.startswith(OF_SECRETS)


def _dicts(body: Any, field: str) -> list[dict[str, Any]]:
    """A list of a body that may be of any form; what is no dict in it is empty."""
    found = body.get(field) if isinstance(body, dict) else None
    return [
        one if isinstance(one, dict) else {} for one in (found if isinstance(found, list) else ())
    ]


def is_gateway(service: Object | None) -> bool:
    return bool(deliverer_of(service).get("mode") == DelivererMode.GATEWAY)


def service_of(user: Object) -> str:
    """Of a subscription or a replay."""
    return _name(user.get("spec") or {}, "serviceRef") or DEFAULT_SERVICE


def destination_ref(user: Object) -> str:
    return _name(user.get("spec") or {}, "destinationRef")


def secrets_of(spec: Mapping[str, Any]) -> set[str]:
    return secret_names(LISTENER_DESTINATION.spec, spec)


def url_of(destination: Object) -> str:
    """A normalized URL, or the name and key of the Secret that has it."""
    spec = destination.get("spec") or {}
    source = (spec.get("destinationFrom") or {}).get("secretKeyRef") or {}
    if source:
        return f"secret {source.get('name')}/{source.get('key')}"
    url, protocol = str(spec.get("destination") or ""), str(spec.get("protocol"))
    return listener_address(url, protocol if protocol in PROTOCOLS else FALLBACK)


def _name(spec: Mapping[str, Any], field: str) -> str:
    return str((spec.get(field) or {}).get("name") or "")


class References:
    """The references of subscriptions, replays, destinations and services, both ways. Gateways and
    URLs are indexed under keys of their own."""

    def __init__(self) -> None:
        self._from: dict[Key, frozenset[Key]] = {}
        self._to: defaultdict[Key, set[Key]] = defaultdict(set)

    def follow(self, change: Change) -> None:
        key = change.key
        if key.kind not in (*USERS, DESTINATION, SERVICE):
            return
        found = frozenset() if change.after is None else frozenset(_indexed_under(change.after))
        for gone in self._from.pop(key, frozenset()) - found:
            self._to[gone].discard(key)
            if not self._to[gone]:
                del self._to[gone]
        if found:
            self._from[key] = found
            for target in found:
                self._to[target].add(key)

    def naming(self, key: Key) -> frozenset[Key]:
        """The objects that name ``key``: of a service, subscriptions, replays and other
        services. A copy, because another thread may read while this one follows changes."""
        return frozenset(self._to.get(key, ()))

    def subscriptions_to(self, key: Key) -> set[Key]:
        return {one for one in self.naming(key) if one.kind == SUBSCRIPTION}

    def replays_to(self, key: Key) -> set[Key]:
        return {one for one in self.naming(key) if one.kind == REPLAY}

    def replays_at(self, service: Key) -> set[Key]:
        """The replays that the deliverers of a service may carry out: its own, and those of the
        services that name it as their gateway."""
        named = {service, *self.guests(service)}
        return set[Key]().union(*map(self.replays_to, named))

    def carriers(self, replay: Key) -> set[Key]:
        """The services whose deliverers may carry out a replay."""
        services = self._services_named(replay)
        return services.union(*map(self._services_named, services))

    def guests(self, gateway: Key) -> set[Key]:
        """The services that name this one as their gateway."""
        return {one for one in self.naming(gateway) if one.kind == SERVICE} - {gateway}

    def gateways_of(self, service: Key) -> frozenset[Key]:
        """The gateways that a service names, even invalid ones."""
        return frozenset(self._services_named(service)) - {service}

    def _services_named(self, one: Key) -> set[Key]:
        return {target for target in self._from.get(one, ()) if target.kind == SERVICE}

    def writers(self, gateway: Key) -> set[Key]:
        """The services whose journals this one is to keep copies of."""
        return set(self.naming(Key(_STORE, gateway.namespace, gateway.name))) - {gateway}

    def stores_of(self, service: Key) -> frozenset[Key]:
        """The gateways that are to keep copies of a service's journals, even invalid ones."""
        named = (one for one in self._from.get(service, ()) if one.kind == _STORE)
        return frozenset(Key(SERVICE, one.namespace, one.name) for one in named) - {service}

    def gateways(self, namespace: str) -> frozenset[Key]:
        return self.naming(Key(_GATEWAYS, namespace, ""))

    def at(self, namespace: str, url: str) -> frozenset[Key]:
        return self.naming(Key(_URL, namespace, url))

    def senders_at(self, namespace: str, url: str) -> set[Key]:
        """The destinations with a URL and sequenceIdentifiers Send; empty if very many have this
        URL, because each change of one would reconcile all others."""
        there = self._to.get(Key(_URL, namespace, url), ())
        if len(there) > MOST_AT_ONE_URL:
            return set()
        return set(self._to.get(Key(_SENDERS, namespace, url), ()))

    def senders_beside(self, destination: Key) -> set[Key]:
        urls = [one.name for one in self._from.get(destination, ()) if one.kind == _URL]
        return self.senders_at(destination.namespace, urls[0]) if urls else set()

    def services_using(self, key: Key) -> set[Key]:
        """The services whose configuration depends on a filter, destination, Secret or ConfigMap,
        and their gateways."""
        namers = self.naming(key)
        if key.kind == CONFIG_MAP:
            return set(namers)
        if key.kind == SECRET:
            # A service has some for its stores.
            own = {one for one in namers if one.kind == SERVICE}
            namers = frozenset(own).union(*(self._to.get(one, ()) for one in namers - own))
        # Dead letters go no further, so there is one step.
        losing = [one for one in namers if one.kind == DESTINATION]
        namers = namers.union(*map(self.naming, losing))
        # One comprehension: a Secret may be that of thousands.
        named = (target for one in namers for target in self._from.get(one, ()))
        services = {one for one in named if one.kind == SERVICE}
        services |= {one for one in namers if one.kind == SERVICE}
        return services.union(*map(self._services_named, services))

    def dead_letters_of(self, one: Key) -> set[Key]:
        """The destination that a destination's or service's deadLetterRef names."""
        return {target for target in self._from.get(one, ()) if target.kind == DESTINATION}

    def losing_to(self, destination: Key) -> set[Key]:
        """The destinations and services whose deadLetterRef names this one."""
        return {one for one in self.naming(destination) if one.kind != SUBSCRIPTION}

    def served_by(self, service: Key) -> set[Key]:
        """The subscriptions and replays of a service and its guests, with their filters and
        destinations."""
        users = self.subscriptions_to(service) | self.replays_at(service)
        for guest in self.guests(service):
            users |= self.subscriptions_to(guest)
        named = {key for one in users for key in self._from.get(one, ())}
        for one in (service, *self.guests(service), *named):
            if one.kind in (SERVICE, DESTINATION):
                named = named | self.dead_letters_of(one)
        return {*users, *(key for key in named if key.kind != SERVICE)}
