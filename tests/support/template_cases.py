"""Cases of the rules on ``IndicationService.spec.deliverer.template``."""

from collections.abc import Callable, Iterator
from typing import Any

from support.resource_rules import Case
from support.resources import JSON

Wrap = Callable[[Any], JSON]

_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_HOST = "kubernetes.io/hostname"
_PLACES: tuple[tuple[str, Wrap], ...] = (
    *(
        (
            f"affinity.{way}.{_REQUIRED}[0]",
            lambda term, way=way: {"affinity": {way: {_REQUIRED: [term]}}},
        )
        for way in ("podAffinity", "podAntiAffinity")
    ),
    *(
        (
            f"affinity.{way}.{_PREFERRED}[0].podAffinityTerm",
            lambda term, way=way: {
                "affinity": {way: {_PREFERRED: [{"weight": 1, "podAffinityTerm": term}]}}
            },
        )
        for way in ("podAffinity", "podAntiAffinity")
    ),
    (
        "topologySpreadConstraints[0]",
        lambda term: {
            "topologySpreadConstraints": [
                {"maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", **term}
            ]
        },
    ),
)


def _template(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="IndicationService",
        field=f"spec.deliverer.template.{path}",
        says=says,
        refused={"deliverer": {"mode": "Gateway", "template": refused}},
        mended={"deliverer": {"mode": "Gateway", "template": mended}},
    )


_SELECTORS: tuple[tuple[str, str, JSON, JSON], ...] = (
    ("", "is empty, and would select", {}, {"matchLabels": {"app": "web"}}),
    (".matchLabels", "holds a key", {"matchLabels": {"a/": ""}}, {"matchLabels": {"a": ""}}),
    (
        ".matchLabels[app]",
        "is not the value",
        {"matchLabels": {"app": "-"}},
        {"matchLabels": {"app": "a"}},
    ),
)
_REQUIREMENTS: tuple[tuple[str, str, JSON, JSON], ...] = (
    (
        "key",
        "is not the key",
        {"key": "a b", "operator": "Exists"},
        {"key": "a", "operator": "Exists"},
    ),
    (
        "values[0]",
        "is not the value",
        {"key": "a", "operator": "In", "values": ["-"]},
        {"key": "a", "operator": "In", "values": ["b"]},
    ),
    (
        "values",
        "is empty",
        {"key": "a", "operator": "In"},
        {"key": "a", "operator": "In", "values": ["b"]},
    ),
    (
        "values",
        "is set",
        {"key": "a", "operator": "Exists", "values": ["b"]},
        {"key": "a", "operator": "Exists"},
    ),
)


def _of_selectors() -> Iterator[Case]:
    for path, wrap in _PLACES:
        for below, says, bad, good in _SELECTORS:
            terms = [{"topologyKey": _HOST, "labelSelector": one} for one in (bad, good)]
            yield _template(f"{path}.labelSelector{below}", says, wrap(terms[0]), wrap(terms[1]))
        for below, says, bad, good in _REQUIREMENTS:
            terms = [
                {"topologyKey": _HOST, "labelSelector": {"matchExpressions": [one]}}
                for one in (bad, good)
            ]
            yield _template(
                f"{path}.labelSelector.matchExpressions[0].{below}",
                says,
                wrap(terms[0]),
                wrap(terms[1]),
            )
        yield _template(
            f"{path}.topologyKey",
            "is not the key",
            wrap({"topologyKey": "host name"}),
            wrap({"topologyKey": _HOST}),
        )
        if "spread" not in path.lower():
            yield _template(
                f"{path}.namespaces[0]",
                "is not the name of an object",
                wrap({"topologyKey": _HOST, "namespaces": ["A"]}),
                wrap({"topologyKey": _HOST, "namespaces": ["a"]}),
            )


def _of_nodes() -> Iterator[Case]:
    good = {"key": "size", "operator": "Gt", "values": ["4"]}
    wraps: tuple[tuple[str, Wrap], ...] = (
        (
            f"{_REQUIRED}.nodeSelectorTerms[0]",
            lambda term: {_REQUIRED: {"nodeSelectorTerms": [term]}},
        ),
        (
            f"{_PREFERRED}[0].preference",
            lambda term: {_PREFERRED: [{"weight": 1, "preference": term}]},
        ),
    )
    for path, wrap in wraps:
        for below, says, bad in (
            ("key", "is not the key", {**good, "key": "a b"}),
            ("values", "does not fit", {**good, "values": ["four"]}),
            ("values", "does not fit", {"key": "a", "operator": "In"}),
            ("values", "does not fit", {**good, "operator": "Exists"}),
        ):
            made = [
                {"affinity": {"nodeAffinity": wrap({"matchExpressions": [one]})}}
                for one in (bad, good)
            ]
            field = f"affinity.nodeAffinity.{path}.matchExpressions[0].{below}"
            yield _template(field, says, *made)
    yield _template(
        f"affinity.nodeAffinity.{_REQUIRED}.nodeSelectorTerms",
        "is empty",
        {"affinity": {"nodeAffinity": {_REQUIRED: {"nodeSelectorTerms": []}}}},
        {"affinity": {"nodeAffinity": {}}},
    )


def _toleration(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return _template(
        f"tolerations[0].{field}", says, {"tolerations": [refused]}, {"tolerations": [mended]}
    )


def _volume(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return _template(f"volumes[0]{path}", says, {"volumes": [refused]}, {"volumes": [mended]})


def _mount(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    volumes = [{"name": "ca", "emptyDir": {}}]
    made = [
        {"volumes": volumes, "volumeMounts": [{"name": "ca", "mountPath": "/mnt/ca", **mount}]}
        for mount in (refused, mended)
    ]
    return _template(f"volumeMounts{field}", says, *made)


def _metadata(section: str, says: str, refused: JSON, mended: JSON) -> Case:
    made = [{"metadata": {section.partition("[")[0]: keys}} for keys in (refused, mended)]
    return _template(f"metadata.{section}", says, *made)


_NAME = "is not the name of an object"
_SPREAD = {"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule"}
_OURS = ("/etc", "/etc/pillion", "/etc/pillion/tls", "/var", "/var/lib/pillion", "/var/run/secrets")

TEMPLATE_CASES = (
    Case(
        kind="IndicationService",
        field="spec.deliverer.template",
        says="has no effect unless mode is Gateway",
        refused={"deliverer": {"template": {"priorityClassName": "high"}}},
        mended={"deliverer": {"mode": "Gateway", "template": {"priorityClassName": "high"}}},
    ),
    _template(
        "topologySpreadConstraints",
        "has a topologyKey and whenUnsatisfiable twice",
        {"topologySpreadConstraints": [_SPREAD, {**_SPREAD, "maxSkew": 2}]},
        {"topologySpreadConstraints": [_SPREAD, {**_SPREAD, "topologyKey": "host"}]},
    ),
    _metadata("labels", "holds a key that no label", {"a/": ""}, {"a": ""}),
    _metadata("labels[a]", "is not the value", {"a": "-"}, {"a": "b"}),
    _metadata(
        "labels", "holds a key that is reserved", {"pillion.dev/inject": "false"}, {"inject": ""}
    ),
    _metadata("labels", "holds a key that is reserved", {"app.kubernetes.io/managed-by": "x"}, {}),
    _metadata("annotations", "holds a key that no annotation", {"a b": "x"}, {"a.b": "x y"}),
    _metadata("annotations", "holds a key that is reserved", {"pillion.dev/x": ""}, {"x": ""}),
    _template("nodeSelector", "holds a key", {"nodeSelector": {"/": ""}}, {"nodeSelector": {}}),
    _template(
        "nodeSelector[a]",
        "is not the value",
        {"nodeSelector": {"a": "b c"}},
        {"nodeSelector": {"a": "b.c"}},
    ),
    _toleration("key", "is not the key", {"key": "a b"}, {"key": "a"}),
    _toleration("key", "is missing", {"effect": "NoSchedule"}, {"operator": "Exists"}),
    _toleration("value", "is not the value", {"key": "a", "value": "-"}, {"key": "a"}),
    _toleration(
        "value",
        "is set",
        {"key": "a", "operator": "Exists", "value": "b"},
        {"key": "a", "value": "b"},
    ),
    _toleration(
        "tolerationSeconds",
        "has no effect",
        {"key": "a", "effect": "NoSchedule", "tolerationSeconds": 5},
        {"key": "a", "effect": "NoExecute", "tolerationSeconds": 5},
    ),
    *_of_nodes(),
    *_of_selectors(),
    _template("priorityClassName", _NAME, {"priorityClassName": "A"}, {"priorityClassName": "a"}),
    _template(
        "imagePullSecrets[0].name",
        _NAME,
        {"imagePullSecrets": [{"name": "a/b"}]},
        {"imagePullSecrets": [{"name": "a"}]},
    ),
    _volume(
        ".name", "is not the name", {"name": "A", "emptyDir": {}}, {"name": "a", "emptyDir": {}}
    ),
    _volume(
        ".name",
        "begins with pillion-",
        {"name": "pillion-data", "emptyDir": {}},
        {"name": "data", "emptyDir": {}},
    ),
    _volume("", "has no source", {"name": "a"}, {"name": "a", "emptyDir": {"sizeLimit": "1Gi"}}),
    _volume(
        "",
        "has no source, or more",
        {"name": "a", "emptyDir": {}, "configMap": {"name": "b"}},
        {"name": "a", "configMap": {"name": "b"}},
    ),
    *(
        _volume(
            f".{source}.{key}",
            _NAME,
            {"name": "a", source: {key: "A"}},
            {"name": "a", source: {key: "a"}},
        )
        for source, key in (
            ("secret", "secretName"),
            ("configMap", "name"),
            ("persistentVolumeClaim", "claimName"),
            ("csi", "driver"),
        )
    ),
    _mount("[0].mountPath", "is not an absolute", {"mountPath": "/mnt/../etc"}, {}),
    _mount("[0].mountPath", "is not an absolute", {"mountPath": "/mnt/"}, {}),
    *(_mount("[0].mountPath", "would hide", {"mountPath": path}, {}) for path in _OURS),
    _mount("[0].subPath", "is not a relative", {"subPath": "../x"}, {"subPath": "x/y.crt"}),
    _mount("", "names a volume", {"name": "other"}, {}),
)
