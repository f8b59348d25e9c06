"""Who names whom: kept up to date with the store, so that a change finds all that it concerns."""

from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.store import Change, Key

SERVICE = "IndicationService"
DESTINATION = "ListenerDestination"
FILTER = "IndicationFilter"
SUBSCRIPTION = "IndicationSubscription"
SECRET = "Secret"

#: The service of a subscription that names none.
DEFAULT_SERVICE = "default"


def named_by(body: Object) -> Iterator[Key]:
    """The objects that a subscription or a destination names in its spec."""
    spec = body.get("spec") or {}
    namespace = body["metadata"].get("namespace") or ""
    if body["kind"] == SUBSCRIPTION:
        for field, kind in (("filterRef", FILTER), ("destinationRef", DESTINATION)):
            yield Key(kind, namespace, _name(spec, field))
        yield Key(SERVICE, namespace, service_of(body))
    elif body["kind"] == DESTINATION:
        for name in sorted(secrets_of(spec)):
            yield Key(SECRET, namespace, name)


def service_of(subscription: Object) -> str:
    """The name of the service that serves a subscription."""
    return _name(subscription.get("spec") or {}, "serviceRef") or DEFAULT_SERVICE


def secrets_of(spec: Mapping[str, Any]) -> set[str]:
    """The names of the Secrets that a destination's spec uses."""
    tls, credentials = spec.get("tls") or {}, spec.get("credentials") or {}
    blocks = (
        tls.get("caSecretRef"),
        tls.get("clientCertificateSecretRef"),
        (credentials.get("basic") or {}).get("secretRef"),
        (credentials.get("bearer") or {}).get("secretRef"),
    )
    return {block["name"] for block in blocks if block and block.get("name")}


def _name(spec: Mapping[str, Any], field: str) -> str:
    return str((spec.get(field) or {}).get("name") or "")


class References:
    """The references of every subscription and destination, both ways."""

    def __init__(self) -> None:
        self._from: dict[Key, frozenset[Key]] = {}
        self._to: defaultdict[Key, set[Key]] = defaultdict(set)

    def follow(self, change: Change) -> None:
        """Take a change of the store into account."""
        if change.key.kind not in (SUBSCRIPTION, DESTINATION):
            return
        named = frozenset(named_by(change.after)) if change.after is not None else frozenset()
        for gone in self._from.pop(change.key, frozenset()) - named:
            self._to[gone].discard(change.key)
            if not self._to[gone]:
                del self._to[gone]
        if named:
            self._from[change.key] = named
            for target in named:
                self._to[target].add(change.key)

    def naming(self, key: Key) -> frozenset[Key]:
        """The objects that name ``key``."""
        return frozenset(self._to.get(key, ()))

    def services_using(self, key: Key) -> set[Key]:
        """The services whose configuration depends on a filter, destination or Secret."""
        namers = self.naming(key)
        if key.kind == SECRET:
            namers = frozenset().union(*(self.naming(destination) for destination in namers))
        return {
            target
            for subscription in namers
            for target in self._from.get(subscription, ())
            if target.kind == SERVICE
        }

    def served_by(self, service: Key) -> set[Key]:
        """The subscriptions of a service, and the filters and destinations that they name."""
        subscriptions = self.naming(service)
        named = {key for one in subscriptions for key in self._from.get(one, ())}
        return {*subscriptions, *(key for key in named if key.kind != SERVICE)}
