"""One namespace as the evaluation reads it: its objects, parsed."""

from collections.abc import Callable, Iterable, Mapping, Sequence

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.parsing import Parsed, Parsing
from pillion_operator.evaluation.references import DESTINATION, SECRET, SERVICE
from pillion_operator.names import DRAIN_FINALIZER
from pillion_operator.store import Key, Store
from pillion_sidecar.config.parsing import Secret
from pillion_sidecar.config.schema import CREDENTIALS_LABEL


class Namespace:
    def __init__(self, name: str, *, store: Store, parsing: Parsing) -> None:
        self.name = name
        self._store = store
        self._parsing = parsing

    def body(self, kind: str, name: str) -> Object | None:
        """An object as the API server has it; None where there is none."""
        return self._store.get(Key(kind, self.name, name))

    def bodies(self, kind: str) -> Mapping[str, Object]:
        """All objects of a kind, by name."""
        return self._store.all(kind, self.name)

    def parsed(self, kind: str, name: str) -> Parsed | None:
        """An object, checked by itself."""
        body = self.body(kind, name)
        return None if body is None else self._parsing.parse(body)

    def variant(
        self,
        kind: str,
        name: str,
        variant: str,
        make: Callable[[Object], Object],
        *,
        beside: Sequence[str] = (),
    ) -> Parsed:
        """What ``make`` makes of an object that is there, checked by itself."""
        body = self.body(kind, name)
        assert body is not None
        return self._parsing.variant(body, variant, make, beside=beside)

    def secrets(self, names: Iterable[str]) -> dict[str, tuple[Secret, Parsed]]:
        """Of the Secrets so named, those that destinations may use."""
        found = {}
        for name in names:
            body = self.body(SECRET, name)
            if body is None or not usable(body):
                continue
            parsed = self._parsing.parse(body)
            if parsed.secret is not None:
                found[name] = (parsed.secret, parsed)
        return found


class Services:
    """The IndicationServices of all namespaces, for whoever asks without waiting."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def namespaces(self) -> list[str]:
        return self._store.namespaces(SERVICE)

    def services(self, namespace: str) -> list[Object]:
        return list(self._store.all(SERVICE, namespace).values())


def usable(secret: Object) -> bool:
    """Whether a Secret carries the label that lets a destination use it."""
    labels = secret["metadata"].get("labels") or {}
    oversized = secret.get("data", {}) is None
    return bool(labels.get(CREDENTIALS_LABEL) == "true") and not oversized


def draining(store: Store, namespace: str) -> set[Key]:
    """The destinations that are held until their queues have been drained, whoever serves them."""
    return {
        Key(DESTINATION, namespace, name)
        for name, body in store.all(DESTINATION, namespace).items()
        if being_drained(body)
    }


def being_drained(body: Object) -> bool:
    """Whether a destination is being deleted and waits for its queues."""
    return being_deleted(body) and DRAIN_FINALIZER in (body["metadata"].get("finalizers") or ())


def being_deleted(body: Object) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None
