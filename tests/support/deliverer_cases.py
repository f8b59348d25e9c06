"""Cases of the rules on ``IndicationService.spec.deliverer``."""

from support.resource_rules import Case
from support.resources import JSON


def _deliverer(
    path: str, says: str, refused: JSON, mended: JSON, before: JSON | None = None
) -> Case:
    return Case(
        kind="IndicationService",
        field=f"spec.deliverer.{path}",
        says=says,
        refused={"deliverer": refused},
        mended={"deliverer": mended},
        before=None if before is None else {"deliverer": before},
    )


def _selector(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return _deliverer(f"podSelector{path}", says, {"podSelector": refused}, {"podSelector": mended})


def _expression(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return _selector(
        f".matchExpressions[0].{path}",
        says,
        {"matchExpressions": [refused]},
        {"matchExpressions": [mended]},
    )


def _more_than_limit(name: str, request: str | int, limit: str | int, mended: str | int) -> Case:
    limits = {name: limit}
    return _deliverer(
        "resources.requests",
        f"asks for more {name}",
        {"resources": {"requests": {name: request}, "limits": limits}},
        {"resources": {"requests": {name: mended}, "limits": limits}},
    )


def _plugin(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    def listed(changes: JSON) -> JSON:
        return {**_GATEWAY, "plugins": [{"name": "pager", "image": "pager:1", **changes}]}

    return _deliverer(f"plugins[0].{path}", says, listed(refused), listed(mended))


def _tracing(says: str, refused: str, mended: str) -> Case:
    given, instead = ({"tracing": {"endpoint": one}} for one in (refused, mended))
    return _deliverer("tracing.endpoint", says, given, instead)


_GATEWAY = {"mode": "Gateway"}
_PAGER = {"plugins": [{"name": "pager", "image": "pager:1"}]}
_SELECTS = {"podSelector": {"matchLabels": {"app": "web"}}}

DELIVERER_CASES = (
    _selector(
        ".matchLabels",
        "holds a key",
        {"matchLabels": {"app/": "web"}},
        {"matchLabels": {"shop.example/app": "web"}},
    ),
    _selector(
        ".matchLabels",
        "holds a key",
        {"matchLabels": {"a" * 64: "web"}},
        {"matchLabels": {"a" * 63: "web"}},
    ),
    _selector(
        ".matchLabels[app]",
        "is not the value",
        {"matchLabels": {"app": "-web"}},
        {"matchLabels": {"app": ""}},
    ),
    _selector("", "is empty, and would select", {}, {"matchLabels": {"app": "web"}}),
    _selector(
        "",
        "is empty, and would select",
        {"matchLabels": {}, "matchExpressions": []},
        {"matchLabels": {}, "matchExpressions": [{"key": "app", "operator": "Exists"}]},
    ),
    _expression(
        "key",
        "is not the key",
        {"key": "app web", "operator": "Exists"},
        {"key": "app.web", "operator": "Exists"},
    ),
    _expression(
        "values[0]",
        "is not the value",
        {"key": "app", "operator": "In", "values": ["w b"]},
        {"key": "app", "operator": "In", "values": ["w_b"]},
    ),
    _expression(
        "values",
        "is empty",
        {"key": "app", "operator": "NotIn", "values": []},
        {"key": "app", "operator": "NotIn", "values": ["web"]},
    ),
    _expression(
        "values",
        "is set, but Exists and DoesNotExist take no values",
        {"key": "app", "operator": "DoesNotExist", "values": ["web"]},
        {"key": "app", "operator": "DoesNotExist", "values": []},
    ),
    _deliverer(
        "image",
        "is not the name of an image",
        {"image": "my image"},
        {"image": "registry.example:5000/pillion@sha256:0123"},
    ),
    _more_than_limit("cpu", 2, "1500m", "1.5"),
    _more_than_limit("memory", "1Gi", "1G", "1e9"),
    _more_than_limit("ephemeral-storage", "2Gi", "1Gi", "1024Mi"),
    _deliverer(
        "storage.storageClassName",
        "is not the name of an object",
        {**_GATEWAY, "storage": {"storageClassName": "Fast"}},
        {**_GATEWAY, "storage": {"storageClassName": "fast"}},
    ),
    _deliverer("podSelector", "has no effect", {**_GATEWAY, **_SELECTS}, _SELECTS),
    _deliverer(
        "injectSparkDriver",
        "has no effect",
        {**_GATEWAY, "injectSparkDriver": True},
        {"injectSparkDriver": True},
    ),
    _deliverer(
        "onMissedInjection",
        "has no effect",
        {**_GATEWAY, "onMissedInjection": "Evict"},
        {"onMissedInjection": "Evict"},
    ),
    _deliverer("plugins", "has no effect unless mode is Gateway", _PAGER, {**_GATEWAY, **_PAGER}),
    _plugin("name", "is not the name of a plug-in", {"name": "Pager"}, {"name": "pager-2"}),
    _plugin("image", "is not the name of an image", {"image": "my image"}, {"image": "my/image"}),
    _plugin(
        "environmentSecretRef.name",
        "is not the name of an object",
        {"environmentSecretRef": {"name": "A_b"}},
        {"environmentSecretRef": {"name": "a-b"}},
    ),
    *(
        _plugin(
            "resources.requests",
            f"asks for more {name}",
            {"resources": {"requests": {name: 2}, "limits": {name: 1}}},
            {"resources": {"requests": {name: 1}, "limits": {name: 1}}},
        )
        for name in ("cpu", "memory", "ephemeral-storage")
    ),
    _deliverer("replicas", "is more than 1", {"replicas": 2}, {**_GATEWAY, "replicas": 2}),
    _deliverer(
        "storage",
        "names a storageClassName",
        {"storage": {"storageClassName": "fast"}},
        {"storage": {"sizeLimit": "1Gi"}},
    ),
    _deliverer("mode", "cannot be changed", _GATEWAY, {"mode": "Sidecar"}, before={}),
    _deliverer(
        "storage",
        "cannot be changed",
        {"storage": {"sizeLimit": "2Gi"}},
        {"storage": {"sizeLimit": "1Gi"}, "replicas": 1},
        before={"storage": {"sizeLimit": "1Gi"}},
    ),
    _deliverer("storage", "cannot be changed", {"storage": {"sizeLimit": "1Gi"}}, {}, before={}),
    _deliverer(
        "storage.sizeLimit",
        "is too small",
        {"storage": {"sizeLimit": "9.9Mi"}},
        {"storage": {"sizeLimit": "10Mi"}},
    ),
    _deliverer(
        "storage.sizeLimit",
        "is too small",
        {"storage": {"sizeLimit": 10_485_759}},
        {"storage": {"sizeLimit": 10_485_760}},
    ),
    _tracing("holds a character", "http://host/a b", "http://host/a"),
    _tracing("does not begin with", "collector:4318", "http://collector:4318"),
    _tracing("holds a user name", "http://user:pw@host:4318", "http://host:4318"),
    _tracing("holds a fragment", "http://host#x", "http://host"),
    _tracing("names no host", "https://:4318/", "https://[fd00::1]:4318/"),
    _tracing("names a port", "http://host:65536", "http://host:65535"),
    _tracing("holds a query", "http://host?token=x", "http://host/collector"),
)
