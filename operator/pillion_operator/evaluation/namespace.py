"""The objects of one namespace, each validated with the deliverer's schema and parsed once."""

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Any

from pillion_operator.cluster.types import Object, being_deleted, labels_of
from pillion_operator.evaluation.references import (
    DESTINATION,
    FILTER,
    REPLAY,
    SECRET,
    SERVICE,
    secrets_of,
    secrets_of_stores,
)
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
#: The same of replays.
TTL = "ttlSecondsAfterFinished"
#: Metadata that a deliverer reads.
_METADATA = ("name", "namespace", *IDENTITY)


@dataclass(frozen=True, slots=True, kw_only=True)
class Parsed:
    resource: Resource | None = None
    secret: Secret | None = None
    problems: tuple[Problem, ...] = ()
    #: The Secrets that a valid destination, or a valid service for its stores, names.
    secrets: frozenset[str] = frozenset()
    #: One line of JSON, as rendered.
    item: str = field(repr=False)


class Parsing:
    """A cache: a service of thousands of destinations is evaluated many times a minute."""

    def __init__(self) -> None:
        #: By variant: the versions of its inputs, and the result.
        self._known: dict[Key, dict[str, tuple[tuple[str, ...], Parsed]]] = {}
        #: What has been deleted since ``beside`` began.
        self._deleted: set[Key] | None = None

    def parse(
        self,
        body: Object,
        variant: str = "",
        make: Callable[[Object], Object] = lambda body: body,
        *,
        versions: Sequence[str] = (),
    ) -> Parsed:
        """Return the parsed result of ``make``, as some services render the object. ``variant``
        identifies the function, ``versions`` its other inputs."""
        metadata = body["metadata"]
        # Secrets have no generation, and one of their labels matters too.
        version = "resourceVersion" if body["kind"] == "Secret" else "generation"
        inputs = (str(metadata.get("uid")), str(metadata.get(version)), *versions)
        known = self._known.setdefault(key_of(body), {})
        found = known.get(variant)
        if found is None or found[0] != inputs:
            # Another thread may put another version there.
            found = known[variant] = (inputs, parse(make(body)))
        return found[1]

    @contextmanager
    def beside(self) -> Iterator[None]:
        """Within it another thread may parse too, also what is deleted meanwhile. Not nested."""
        self._deleted = set()
        try:
            yield
        finally:
            for key in self._deleted:
                self._known.pop(key, None)
            self._deleted = None

    def follow(self, change: Change) -> None:
        if change.after is None:
            self._known.pop(change.key, None)
            if self._deleted is not None:
                self._deleted.add(change.key)


def parse(body: Object) -> Parsed:
    rendered = _rendered(body)
    try:
        resources = parse_documents([Document("", rendered)])
    except Exception as error:  # noqa: BLE001 - whatever it is, it is this object's
        problem = defect_of(body["kind"], body["metadata"]["name"], error)
        return Parsed(problems=(problem,), item=_as_rendered(rendered))
    resource = next((found for kind in resources.by_kind.values() for found in kind.values()), None)
    return Parsed(
        resource=resource,
        secrets=_secrets_of(resource),
        secret=next(iter(resources.secrets.values()), None),
        problems=tuple(resources.problems),
        item=_as_rendered(rendered),
    )


def _secrets_of(resource: Resource | None) -> frozenset[str]:
    if resource is None or not resource.valid:
        return frozenset()
    if resource.kind.name == SERVICE:
        return frozenset(secrets_of_stores({"spec": resource.spec}))
    return frozenset(secrets_of(resource.spec) if resource.kind.name == DESTINATION else ())


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
        kept["labels"] = {CREDENTIALS_LABEL: str(labels_of(body).get(CREDENTIALS_LABEL))}
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
    elif rendered["kind"] == REPLAY:
        spec = {name: value for name, value in rendered["spec"].items() if name != TTL}
        created = rendered["metadata"].get("creationTimestamp")
        rendered = {**rendered, "spec": {**_end_of_second(spec, created), **spec}}
    return item_text(rendered)


def _end_of_second(spec: Mapping[str, Any], created: Any) -> dict[str, str]:
    """The default of ``until``: the creation of a replay. The API server cuts it to the second, and
    what was delivered just before it must not be missing."""
    try:
        until = datetime.fromisoformat(created) + timedelta(seconds=1)
        if datetime.fromisoformat(spec["from"]) >= until:
            return {}
    except (KeyError, OverflowError, TypeError, ValueError):
        # It is not valid, and refused.
        return {}
    return {"until": until.isoformat().replace("+00:00", "Z")}


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
    return " ".join(
        (f"{problem.field}: " if problem.field else "")
        + problem.message
        + (f" (value {problem.value})" if problem.value else "")
        + f". {problem.remedy}"
        for problem in problems
    )


class Namespace:
    def __init__(self, name: str, *, store: Store, parsing: Parsing) -> None:
        self.name = name
        self._store = store
        self._parsing = parsing

    def copied(self) -> "Namespace":
        """It as it is now, for another thread."""
        store = self._store.copied(self.name)
        return Namespace(self.name, store=store, parsing=self._parsing)

    def body(self, kind: str, name: str) -> Object | None:
        return self._store.all(kind, self.name).get(name)

    def bodies(self, kind: str) -> Mapping[str, Object]:
        return self._store.all(kind, self.name)

    def parsed(
        self,
        kind: str,
        name: str,
        variant: str = "",
        make: Callable[[Object], Object] = lambda body: body,
        *,
        versions: Sequence[str] = (),
    ) -> Parsed | None:
        """``Parsing.parse``; None without the object."""
        body = self.body(kind, name)
        if body is None:
            return None
        return self._parsing.parse(body, variant, make, versions=versions)

    def secrets(self, names: Iterable[str]) -> Iterator[Parsed]:
        """The named Secrets that destinations and stores may use."""
        bodies = (self.body(SECRET, name) for name in names)
        found = (self._parsing.parse(body) for body in bodies if body is not None and usable(body))
        return (parsed for parsed in found if parsed.secret is not None)

    def secrets_by_key(self, names: Iterable[str]) -> dict[Key, Parsed]:
        return {
            Key(SECRET, self.name, parsed.secret.name): parsed
            for parsed in self.secrets(names)
            if parsed.secret is not None
        }


def usable(secret: Object) -> bool:
    """Whether destinations and stores may use a Secret: it has the label and is not oversized."""
    oversized = secret.get("data", {}) is None
    return bool(labels_of(secret).get(CREDENTIALS_LABEL) == "true") and not oversized


def draining(store: Store, namespace: str) -> set[Key]:
    return {
        Key(DESTINATION, namespace, name)
        for name, body in store.all(DESTINATION, namespace).items()
        # Of thousands hardly any is.
        if "deletionTimestamp" in body["metadata"] and being_drained(body)
    }


def being_drained(body: Object) -> bool:
    return being_deleted(body) and DRAIN_FINALIZER in (body["metadata"].get("finalizers") or ())
