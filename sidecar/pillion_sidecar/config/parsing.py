"""Documents to resources, each checked by itself."""

import base64
import binascii
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from pillion_sidecar.config.problems import Problem, show
from pillion_sidecar.config.schema import API_VERSION, CREDENTIALS_LABEL, GROUP, KINDS
from pillion_sidecar.config.schema.common import object_name
from pillion_sidecar.config.validation import (
    TOP_FIELDS,
    Complaints,
    Path,
    beside_spec,
    check,
    dotted,
    misplaced_remedy,
    suggestion,
    top_field_remedy,
)
from pillion_sidecar.fields import Kind, Text

_BEGINNING = ("apiVersion", "kind")
_LONGEST_NAME = 253


@dataclass(frozen=True, slots=True)
class Document:
    """A document of a file: its JSON value, and the line of each value by path."""

    file: str
    value: Any
    lines: Mapping[Path, int] = field(default_factory=dict)
    #: Path of the value in ``lines``; not empty for an item of a List.
    prefix: Path = ()


@dataclass(frozen=True, slots=True)
class Place:
    document: Document
    resource: str = ""

    def line(self, path: Path) -> int:
        """Return the line of the value at ``path`` or the nearest around it; 0: unknown."""
        full = (*self.document.prefix, *path)
        lines = self.document.lines
        return next(
            (lines[full[:end]] for end in range(len(full), -1, -1) if full[:end] in lines), 0
        )

    def problem(self, reason: str, path: Path, value: object, message: str, remedy: str) -> Problem:
        return Problem(
            reason=reason,
            message=message,
            remedy=remedy,
            file=self.document.file,
            line=self.line(path),
            resource=self.resource,
            field=dotted(path),
            value=show(value),
        )

    def __str__(self) -> str:
        line = self.line(())
        return f"{self.document.file}:{line}" if line else self.document.file


@dataclass(frozen=True, slots=True, kw_only=True)
class Resource:
    """A resource with a valid name and defaults filled in. An invalid one is kept, so that further
    problems with it and with references to it are reported too."""

    kind: Kind
    name: str
    namespace: str | None
    uid: str | None
    #: Seconds since the epoch.
    created_at: float | None
    spec: Mapping[str, Any]
    valid: bool
    flawed: frozenset[str]
    place: Place

    def sound(self, field: str) -> bool:
        return field in self.spec and field not in self.flawed


@dataclass(frozen=True, slots=True, kw_only=True)
class Secret:
    name: str
    namespace: str | None
    permitted: bool
    data: Mapping[str, bytes]
    place: Place

    def __repr__(self) -> str:
        return f"Secret({self.name!r})"


_R = TypeVar("_R", Resource, Secret)


@dataclass(slots=True)
class Resources:
    by_kind: dict[str, dict[str, Resource]] = field(
        default_factory=lambda: {kind.name: {} for kind in KINDS}
    )
    secrets: dict[str, Secret] = field(default_factory=dict)
    mof: dict[str, str] = field(default_factory=dict)
    #: Documents of other APIs with one of our kinds: (kind, name) to position.
    ignored: dict[tuple[str, str], str] = field(default_factory=dict)
    #: Whether a document without a usable name may be the target of references.
    unidentified: bool = False
    problems: list[Problem] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def complain(
        self,
        place: Place,
        path: Path,
        value: object,
        message: str,
        remedy: str,
        reason: str = "Invalid",
    ) -> None:
        self.problems.append(place.problem(reason, path, value, message, remedy))


def parse_documents(documents: Iterable[Document]) -> Resources:
    """Check each document. Never raises: see ``problems``."""
    resources = Resources()
    for document in _items(documents):
        _parse(document, resources)
    return resources


def _items(documents: Iterable[Document]) -> Iterator[Document]:
    for document in documents:
        value = document.value
        items = value.get("items") if isinstance(value, dict) else None
        if isinstance(items, list) and value.get("kind") == "List":
            for number, item in enumerate(items):
                prefix = (*document.prefix, "items", number)
                yield Document(document.file, item, document.lines, prefix)
        else:
            yield document


def _parse(document: Document, resources: Resources) -> None:
    value = document.value
    if not isinstance(value, dict) or all(value.get(key) is None for key in _BEGINNING):
        missing = "" if not isinstance(value, dict) else ": apiVersion and kind are missing"
        remedy = f"Begin with apiVersion: {API_VERSION} and kind: {', '.join(_kind_names())}."
        resources.unidentified = True
        resources.complain(Place(document), (), value, f"is not a resource{missing}", remedy)
        return
    version, name = value.get("apiVersion"), value.get("kind")
    kind = next((kind for kind in KINDS if kind.name == name), None)
    is_secret = name == "Secret" and version in (None, "v1")
    is_ours = kind is not None or is_secret
    if isinstance(version, str) and isinstance(name, str) and not is_secret:
        if version.partition("/")[0] != GROUP:
            _ignore(document, resources)
            return
        is_ours = kind is not None and version == API_VERSION
    _check_beginning(document, "v1" if name == "Secret" else API_VERSION, resources)
    if not is_ours:
        resources.unidentified = True
    elif kind is None:
        _add_secret(document, resources)
    else:
        _add_resource(document, kind, resources)


def _kind_names() -> list[str]:
    return [kind.name for kind in KINDS]


def _ignore(document: Document, resources: Resources) -> None:
    """Warn of a document of another API that may have been meant for this one."""
    place, value = Place(document), document.value
    metadata = value.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    hint = ""
    if value["kind"] in _kind_names():
        hint = f". Write apiVersion: {API_VERSION} if it is meant for Pillion"
        if isinstance(name, str):
            resources.ignored[value["kind"], name] = str(place)
    told = f"{show(value['kind'])} of {show(value['apiVersion'])} is ignored{hint}"
    resources.warnings.append(f"{place}: {told}")


def _check_beginning(document: Document, version: str, resources: Resources) -> None:
    remedies = {
        "apiVersion": f"Write {version}.",
        "kind": f"Write one of {', '.join(_kind_names())}.",
    }
    collect = _collector(resources, Place(document))
    for key, remedy in remedies.items():
        given = document.value.get(key)
        if given is None:
            collect("Required", (key,), None, "is missing", remedy)
        elif not isinstance(given, str):
            collect("Invalid", (key,), given, "is not a text", remedy)
        elif key == "apiVersion" and given != version:
            message = "is not a version that this program reads"
            collect("Invalid", (key,), given, message, remedy)
        elif key == "kind" and version == API_VERSION and given not in _kind_names():
            remedy = suggestion(given, _kind_names())
            collect("Invalid", (key,), given, f"is no kind of {GROUP}", remedy)


def _add_resource(document: Document, kind: Kind, resources: Resources) -> None:
    value = document.value
    metadata = value.get("metadata")
    place = Place(document, _named(kind.name, metadata))
    collect = _collector(resources, place)
    beside = beside_spec(kind, value)
    complaints = Complaints(_in_its_place(kind, beside, collect))
    for name in value:
        if name not in TOP_FIELDS:
            message = "stands outside spec" if name in beside else "is not known"
            remedy = top_field_remedy(kind, name)
            complaints.add((name,), None, message, remedy, "UnknownField")
    _check_metadata(metadata, object_name(kind.name_length, rules=kind.name_rules), complaints)
    created_at = _created_at(metadata, complaints)
    named_well = "name" not in complaints.flawed
    complaints.flawed.clear()
    given = value.get("spec")
    if beside and (given is None or isinstance(given, dict)):
        given = {**beside, **(given or {})}
    spec = _check_spec(kind, given, complaints)
    if named_well:
        resource = Resource(
            kind=kind,
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            uid=metadata.get("uid"),
            created_at=created_at,
            spec=spec,
            valid=complaints.count == 0,
            flawed=frozenset(complaints.flawed),
            place=place,
        )
        _add(resources.by_kind[kind.name], resource, resources)


def _named(kind: str, metadata: object) -> str:
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return f"{kind}/{name[:_LONGEST_NAME] if isinstance(name, str) else '?'}"


_Collect = Callable[[str, Path, object, str, str], None]


def _in_its_place(kind: Kind, beside: Mapping[str, Any], collect: _Collect) -> _Collect:
    """Report fields beside ``spec`` at their own position."""

    def located(reason: str, path: Path, value: object, message: str, remedy: str) -> None:
        if reason == "UnknownField" and len(path) > 1:
            remedy = misplaced_remedy(kind, path) or remedy
        if len(path) > 1 and path[0] == "spec" and path[1] in beside:
            path = path[1:]
        collect(reason, path, value, message, remedy)

    return located


def _collector(resources: Resources, place: Place) -> _Collect:
    def collect(reason: str, path: Path, value: object, message: str, remedy: str) -> None:
        resources.problems.append(place.problem(reason, path, value, message, remedy))

    return collect


def _add(known: dict[str, _R], resource: _R, resources: Resources) -> None:
    first = known.setdefault(resource.name, resource)
    if first is not resource:
        resources.complain(
            resource.place,
            ("metadata", "name"),
            resource.name,
            f"is already used at {first.place}",
            "Rename or remove one of the two.",
            reason="Duplicate",
        )


def _check_metadata(metadata: Any, name: Text, complaints: Complaints) -> None:
    path: Path = ("metadata",)
    if not isinstance(metadata, dict) or metadata.get("name") is None:
        complaints.add((*path, "name"), None, "is missing", "Write a name.", "Required")
        return
    check(name, metadata["name"], (*path, "name"), complaints)
    for key in ("namespace", "uid"):
        if metadata.get(key) is not None:
            check(object_name(), metadata[key], (*path, key), complaints)


def _check_spec(kind: Kind, spec: Any, complaints: Complaints) -> Mapping[str, Any]:
    if spec is None and not kind.spec_optional:
        complaints.add(("spec",), None, "is missing", "Write it.", "Required")
        return {}
    checked = check(kind.spec, {} if spec is None else spec, ("spec",), complaints)
    return checked if isinstance(checked, dict) else {}


def _created_at(metadata: Any, complaints: Complaints) -> float | None:
    text = metadata.get("creationTimestamp") if isinstance(metadata, dict) else None
    if text is None:
        return None
    try:
        moment = datetime.fromisoformat(text)
        if moment.tzinfo is not None:
            return moment.timestamp()
    except (TypeError, ValueError, OverflowError):
        pass
    path = ("metadata", "creationTimestamp")
    complaints.add(path, text, "is not a time", "Write it like 2026-01-31T12:00:00Z, or remove it.")
    return None


def _add_secret(document: Document, resources: Resources) -> None:
    value = document.value
    metadata = value.get("metadata")
    place = Place(document, _named("Secret", metadata))
    complaints = Complaints(_collector(resources, place))
    _check_metadata(metadata, object_name(), complaints)
    data = _secret_data(value, complaints)
    if complaints.count == 0:
        labels = metadata.get("labels")
        secret = Secret(
            name=metadata["name"],
            namespace=metadata.get("namespace"),
            permitted=isinstance(labels, dict) and labels.get(CREDENTIALS_LABEL) == "true",
            data=data,
            place=place,
        )
        _add(resources.secrets, secret, resources)


def _secret_data(value: Mapping[str, Any], complaints: Complaints) -> dict[str, bytes]:
    data: dict[str, bytes] = {}
    # stringData wins over data, as in the API server.
    for section, decode in (("data", _decoded), ("stringData", str.encode)):
        given = value.get(section) or {}
        if not isinstance(given, dict):
            complaints.add((section,), None, "is not an object", "Write keys and texts.")
            continue
        for key, text in given.items():
            try:
                data[key] = decode(text)
            except (TypeError, ValueError):
                what = "base64" if section == "data" else "a text"
                remedy = "Plain texts go under stringData." if section == "data" else "Quote it."
                complaints.add((section, key), None, f"is not {what}", remedy)
    return data


def _decoded(text: Any) -> bytes:
    if not isinstance(text, str):
        raise TypeError("not a text")
    try:
        return base64.b64decode("".join(text.split()), validate=True)
    except binascii.Error as error:
        raise ValueError(str(error)) from None
