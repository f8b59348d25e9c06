"""Renders the MOF of the ConfigMaps that a service names as its own ``mof``. Pure."""

from collections.abc import Iterator, Mapping
from typing import Any

from pillion_cim.mof import MOFError, parse_mof
from pillion_operator.cluster.types import Object, labels_of
from pillion_operator.evaluation.namespace import Namespace, Parsed
from pillion_operator.evaluation.references import CONFIG_MAP, SERVICE
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import uid_of, version_of
from pillion_sidecar.config.schema import CLASSES_LABEL
from pillion_sidecar.config.schema.service import MOST_MOF


class MOFRefused(Exception):
    """``verdict`` is that on the service."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.verdict = Verdict(False, reason, message)


def with_mof(service: str, spec: Mapping[str, Any], *, namespace: Namespace) -> Parsed:
    """Return a service with the MOF of the ConfigMaps in its validated ``spec``.

    Raises:
        MOFRefused: a ConfigMap or its key is missing, its MOF is wrong, or all are too large.
    """
    found = list(_texts(spec, namespace))
    versions = [version for _, _, version in found]
    texts = [(where, text) for where, text, _ in found]
    parsed = namespace.parsed(
        SERVICE, service, "with MOF", lambda body: _rendered(body, texts), versions=versions
    )
    assert parsed is not None
    return parsed


def rendered(body: Object, spec: Mapping[str, Any], *, namespace: Namespace) -> Object:
    """Like ``with_mof``, for a service that need not be stored."""
    return _rendered(body, [(where, text) for where, text, _ in _texts(spec, namespace)])


def with_sources(message: str, spec: Mapping[str, Any]) -> str:
    """Add the names of the ConfigMaps to a message about ``spec.mof``: any may have the problem."""
    names = ", ".join(dict.fromkeys(one["configMapRef"]["name"] for one in spec["mofFrom"]))
    own = "spec.mof and " if spec.get("mof") else ""
    return message.replace("spec.mof: ", f"{own}spec.mofFrom (ConfigMap {names}): ")


def without_mof_from(body: Object) -> Object:
    spec = {field: value for field, value in body["spec"].items() if field != "mofFrom"}
    return {**body, "spec": spec}


def _rendered(body: Object, texts: list[tuple[str, str]]) -> Object:
    for where, text in texts:
        _check(where, text)
    own = without_mof_from(body)
    whole = "\n".join([*filter(None, [own["spec"].get("mof")]), *(text for _, text in texts)])
    if len(whole) > MOST_MOF:
        raise MOFRefused(
            "ClassesTooLarge",
            f"spec.mof and the ConfigMaps of spec.mofFrom have {len(whole):,} characters in "
            f"all; {MOST_MOF:,} are allowed. Leave out the classes that are not published.",
        )
    return {**own, "spec": {**own["spec"], "mof": whole}}


def _texts(spec: Mapping[str, Any], namespace: Namespace) -> Iterator[tuple[str, str, str]]:
    """Yield the field, text and version of each named ConfigMap."""
    for number, one in enumerate(spec["mofFrom"]):
        name, key = one["configMapRef"]["name"], one["configMapRef"]["key"]
        where = f"spec.mofFrom[{number}]: ConfigMap {name}"
        body = namespace.body(CONFIG_MAP, name)
        if body is None or labels_of(body).get(CLASSES_LABEL) != "true":
            raise MOFRefused(
                "ConfigMapNotFound",
                f'{where}: no ConfigMap of this name has the label {CLASSES_LABEL}: "true". '
                "Create it, or label it.",
            )
        data = body.get("data", {})
        if data is None:
            message = f"{where} is larger than 512 KiB. Remove everything that is not MOF."
            raise MOFRefused("ClassesTooLarge", message)
        if key not in data:
            listed = ", ".join(sorted(data)[:5]) or "no key with text"
            message = f"{where} has no key {key}. It has: {listed}."
            raise MOFRefused("ConfigMapKeyNotFound", message)
        yield f"{where}, key {key}", data[key], f"{uid_of(body)} {version_of(body)} {key}"


def _check(where: str, text: str) -> None:
    try:
        parse_mof(text)
    except MOFError as error:
        message = f"{where}: line {error.line}: {error.message}. {error.remedy}".rstrip()
        raise MOFRefused("Invalid", message) from None
