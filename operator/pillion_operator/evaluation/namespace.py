"""The objects of one namespace, each validated with the deliverer's schema and parsed once."""

import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from pillion_operator.cluster.types import Object
from pillion_operator.evaluation.references import DESTINATION, FILTER, SECRET, SERVICE
from pillion_operator.names import DRAIN_FINALIZER, UID_ANNOTATION
from pillion_operator.store import CONTINUES, IDENTITY, Change, Key, Store, identity_of, key_of
from pillion_sidecar.config.parsing import Document, Resource, Secret, parse_documents
from pillion_sidecar.config.problems import Problem, defect
from pillion_sidecar.config.rendered import item_text
from pillion_sidecar.config.schema import CREDENTIALS_LABEL
from pillion_sidecar.config.schema.deliverer import DelivererMode

logger = logging.getLogger("pillion.operator")

#: Service fields that only the operator reads.
_OPERATORS = ("deliverer", "mofFrom")
#: Metadata that a deliverer reads.
_METADATA = ("name", "namespace", *IDENTITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    resource: Resource | None = None
    secret: Secret | None = None
    problems: tuple[Problem, ...] = ()
    #: One line of JSON, as rendered.
    item: str = field(repr=False)


#: With the versions of its other inputs.
_Variant = tuple[tuple[str, ...], Parsed]


class Parsing:
    def __init__(self) -> None:
        self._known: dict[Key, tuple[tuple[str, ...], Parsed]] = {}
        #: Objects as rendered for some services, by the name of the variant.
        self._variants: dict[Key, tuple[tuple[str, ...], dict[str, _Variant]]] = {}

    def parse(self, body: Object) -> Parsed:
        key = key_of(body)
        state = _state(body)
        known = self._known.get(key)
        if known is not None and known[0] == state:
            return known[1]
        parsed = parse(body)
        self._known[key] = (state, parsed)
        return parsed

    def variant(
        self,
        body: Object,
        name: str,
        make: Callable[[Object], Object],
        *,
        beside: Sequence[str] = (),
    ) -> Parsed:
        """Return the parsed result of ``make``. ``name`` identifies the function, ``beside`` the
        versions of its other inputs."""
        key, state = key_of(body), _state(body)
        known = self._variants.get(key)
        if known is None or known[0] != state:
            known = self._variants[key] = (state, {})
        made = known[1].get(name)
        if made is None or made[0] != tuple(beside):
            made = known[1][name] = (tuple(beside), parse(make(body)))
        return made[1]

    def follow(self, change: Change) -> None:
        if change.after is None:
            self._known.pop(change.key, None)
            self._variants.pop(change.key, None)


def _state(body: Object) -> tuple[str, ...]:
    """Identifies the version of an object's meaning."""
    metadata = body["metadata"]
    # Secrets have no generation, and one of their labels matters too.
    version = "resourceVersion" if body["kind"] == "Secret" else "generation"
    return (str(metadata.get("uid")), str(metadata.get(version)))


def parse(body: Object) -> Parsed:
    rendered = _rendered(body)
    try:
        resources = parse_documents([Document("", rendered)])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this object's
        problem = defect_of(body["kind"], body["metadata"]["name"], error)
        return Parsed(problems=(problem,), item=_as_rendered(rendered))
    return Parsed(
        resource=next(
            (found for kind in resources.by_kind.values() for found in kind.values()), None
        ),
        secret=next(iter(resources.secrets.values()), None),
        problems=tuple(resources.problems),
        item=_as_rendered(rendered),
    )


def _rendered(body: Object) -> dict[str, Any]:
    metadata: Mapping[str, Any] = body["metadata"]
    kept: dict[str, Any] = {name: metadata[name] for name in _METADATA if name in metadata}
    if CONTINUES in metadata:
        # Tells a restarted operator which object continues the earlier one.
        kept |= {**identity_of(body), "annotations": {UID_ANNOTATION: metadata["uid"]}}
    if body["kind"] == FILTER and "generation" in metadata:
        kept["generation"] = metadata["generation"]
    rendered = {"apiVersion": body["apiVersion"], "kind": body["kind"], "metadata": kept}
    if body["kind"] == "Secret":
        labels = metadata.get("labels") or {}
        kept["labels"] = {CREDENTIALS_LABEL: str(labels.get(CREDENTIALS_LABEL))}
        rendered["data"] = body.get("data") or {}
    else:
        rendered["spec"] = body.get("spec") or {}
    return rendered


def _as_rendered(rendered: Mapping[str, Any]) -> str:
    """Omit the operator's own fields: their changes must not reload deliverers."""
    if rendered["kind"] == "IndicationService":
        spec = {name: value for name, value in rendered["spec"].items() if name not in _OPERATORS}
        if not spec.get("classes"):
            # The API server writes this default, which deliverers of the first release refuse.
            spec.pop("classes", None)
        mode = (rendered["spec"].get("deliverer") or {}).get("mode")
        if mode == DelivererMode.GATEWAY:
            # Only a deliverer in mode Gateway accepts relayed indications.
            spec["deliverer"] = {"mode": mode}
        rendered = {**rendered, "spec": spec}
    return item_text(rendered)


def defect_of(kind: str, name: str, error: Exception) -> Problem:
    """Log an internal error with its trace, and return it as a problem."""
    logger.error(
        "the judgement of %s %s failed",
        kind,
        name,
        exc_info=error,
        extra={"event": "judgement-failed", "object": f"{kind}/{name}"},
    )
    return replace(defect(error), resource=f"{kind}/{name}")


def describe(problems: Iterable[Problem]) -> str:
    """Each problem with its field, value and remedy."""
    return " ".join(_described(problem) for problem in problems)


def _described(problem: Problem) -> str:
    value = f" (value {problem.value})" if problem.value else ""
    where = f"{problem.field}: " if problem.field else ""
    return f"{where}{problem.message}{value}. {problem.remedy}"


class Namespace:
    def __init__(self, name: str, *, store: Store, parsing: Parsing) -> None:
        self.name = name
        self._store = store
        self._parsing = parsing

    def body(self, kind: str, name: str) -> Object | None:
        return self._store.get(Key(kind, self.name, name))

    def bodies(self, kind: str) -> Mapping[str, Object]:
        return self._store.all(kind, self.name)

    def parsed(self, kind: str, name: str) -> Parsed | None:
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
        """``Parsing.variant`` of an object that exists."""
        body = self.body(kind, name)
        assert body is not None
        return self._parsing.variant(body, variant, make, beside=beside)

    def secrets(self, names: Iterable[str]) -> dict[str, tuple[Secret, Parsed]]:
        """The named Secrets that destinations may use."""
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
    """For the webhook and the search for missed pods."""

    def __init__(self, store: Store) -> None:
        self._store = store

    def namespaces(self) -> list[str]:
        return self._store.namespaces(SERVICE)

    def services(self, namespace: str) -> list[Object]:
        return list(self._store.all(SERVICE, namespace).values())


def usable(secret: Object) -> bool:
    """Whether destinations may use a Secret: it has the label and is not oversized."""
    labels = secret["metadata"].get("labels") or {}
    oversized = secret.get("data", {}) is None
    return bool(labels.get(CREDENTIALS_LABEL) == "true") and not oversized


def draining(store: Store, namespace: str) -> set[Key]:
    return {
        Key(DESTINATION, namespace, name)
        for name, body in store.all(DESTINATION, namespace).items()
        if being_drained(body)
    }


def being_drained(body: Object) -> bool:
    return being_deleted(body) and DRAIN_FINALIZER in (body["metadata"].get("finalizers") or ())


def being_deleted(body: Object) -> bool:
    return body["metadata"].get("deletionTimestamp") is not None
