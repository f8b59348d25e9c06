"""One namespace as the evaluation reads it.

Each object is checked by itself with the deliverer's schema, and parsed once until it changes.
"""

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

#: Of a service's spec, what the operator alone reads.
_OPERATORS = ("deliverer", "mofFrom")
#: Of metadata, what a deliverer reads.
_METADATA = ("name", "namespace", *IDENTITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    """One object: what it says, what is wrong with it by itself, and how it is rendered."""

    resource: Resource | None = None
    secret: Secret | None = None
    problems: tuple[Problem, ...] = ()
    #: The object as it stands in a rendered configuration: one line of JSON.
    item: str = field(repr=False)


#: A variant, by the state of what it was made with.
_Variant = tuple[tuple[str, ...], Parsed]


class Parsing:
    """Parses objects, each once for each state of its spec."""

    def __init__(self) -> None:
        self._known: dict[Key, tuple[tuple[str, ...], Parsed]] = {}
        #: Objects as they are rendered for some services: by what is other in them.
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
        """The parsed object that ``make`` makes of this one. ``name`` stands for what it does,
        ``beside`` for the state of all else that it reads."""
        key, state = key_of(body), _state(body)
        known = self._variants.get(key)
        if known is None or known[0] != state:
            known = self._variants[key] = (state, {})
        made = known[1].get(name)
        if made is None or made[0] != tuple(beside):
            made = known[1][name] = (tuple(beside), parse(make(body)))
        return made[1]

    def follow(self, change: Change) -> None:
        """Forget what is gone from the store."""
        if change.after is None:
            self._known.pop(change.key, None)
            self._variants.pop(change.key, None)


def _state(body: Object) -> tuple[str, ...]:
    """What changes whenever the object may mean something else."""
    metadata = body["metadata"]
    # A Secret has no generation; a label of it matters too.
    version = "resourceVersion" if body["kind"] == "Secret" else "generation"
    return (str(metadata.get("uid")), str(metadata.get(version)))


def parse(body: Object) -> Parsed:
    """Check one object by itself."""
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
        # The operator's next life finds out by the annotation which object this is.
        kept |= {**identity_of(body), "annotations": {UID_ANNOTATION: metadata["uid"]}}
    if body["kind"] == FILTER and "generation" in metadata:
        # So that a status can say which one is in force.
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
    """What is for the operator alone is left out, so that a change of it reloads nobody."""
    if rendered["kind"] == "IndicationService":
        spec = {name: value for name, value in rendered["spec"].items() if name not in _OPERATORS}
        if not spec.get("classes"):
            # The API server writes the default, which deliverers of the first release refuse.
            spec.pop("classes", None)
        mode = (rendered["spec"].get("deliverer") or {}).get("mode")
        if mode == DelivererMode.GATEWAY:
            # A deliverer takes over what is relayed only where it knows that it is a gateway.
            spec["deliverer"] = {"mode": mode}
        rendered = {**rendered, "spec": spec}
    return item_text(rendered)


def defect_of(kind: str, name: str, error: Exception) -> Problem:
    """The problem of an object on which the operator itself fails; logged with its trace."""
    logger.error(
        "the judgement of %s %s failed",
        kind,
        name,
        exc_info=error,
        extra={"event": "judgement-failed", "object": f"{kind}/{name}"},
    )
    return replace(defect(error), resource=f"{kind}/{name}")


def describe(problems: Iterable[Problem]) -> str:
    """Problems as a condition's message: each with its field, value and remedy."""
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
