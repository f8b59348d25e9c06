"""The cases of the rules of a journal's stores; see ``support.resource_cases``."""

from collections.abc import Iterator
from typing import Any

from support.resource_rules import Case
from support.resources import JSON

_WITHIN = "spec.stores.groups[0]"


def stores(*members: str, backups: tuple[str, ...] = (), name: str = "all") -> JSON:
    named, more = ([{"gatewayRef": {"name": one}} for one in names] for names in (members, backups))
    return {"groups": [{"name": name, "members": named} | ({"backups": more} if more else {})]}


def stream(**given: Any) -> JSON:
    """A member of ``nats``; without what is given as None."""
    nats = {
        "name": "zone-a",
        "servers": ["tls://nats.example.com"],
        "stream": "journals",
        "syncInterval": "Always",
        **given,
    }
    return {"nats": {name: value for name, value in nats.items() if value is not None}}


_NAME = "is not the name of an object"
_PLAIN = "nats://nats.example.com:4222"
_CREDENTIALS = {"basic": {"secretRef": {"name": "nats"}}}
_SECRET = {"name": "nats", "key": "token"}
#: Below ``nats``: the field, what is said, the refused and the mended fields.
_OF_STREAMS: tuple[tuple[str, str, dict[str, Any], dict[str, Any]], ...] = (
    ("name", _NAME, {"name": "Zone"}, {}),
    ("servers", "is empty", {"servers": []}, {}),
    *(
        (f"servers[{at}]", says, {"servers": [*good, refused]}, {"servers": [*good, mended]})
        for at, good in ((0, ()), (1, ("tls://one:4222",)))
        for says, refused, mended in (
            ("holds a character", "tls://host/ ", "tls://host/"),
            ("does not begin with", "https://host", "tls://host"),
            ("holds a user name", "tls://user:pw@host", "tls://host"),
            ("holds a fragment", "tls://host/#x", "tls://host/"),
            ("names no host", "tls://:4222", "tls://[2001:db8::1]:4222"),
            ("names a port outside", "tls://host:65536", "tls://host:65535"),
            ("has a path or a query", "tls://host/journals", "tls://host/"),
        )
        if not at or says == "names no host"
    ),
    ("servers", "names a server without TLS", {"servers": [_PLAIN], "tlsFirst": True}, {}),
    (
        "servers",
        "names a server without TLS",
        {"servers": ["tls://host", _PLAIN], "tls": {"serverName": "nats"}},
        {"tls": {"serverName": "nats"}},
    ),
    ("stream", "is not the name of a stream", {"stream": "a.b"}, {"stream": "a-b"}),
    ("subject", "is not the beginning", {"subject": "a.>"}, {"subject": "a.b"}),
    ("subject", "is not the beginning", {"subject": "$JS.API"}, {"subject": "JS.API"}),
    ("syncInterval", "is missing, and by default", {"syncInterval": None}, {}),
    (
        "tls.caSecretRef.name",
        _NAME,
        {"tls": {"caSecretRef": {"name": "A"}}},
        {"tls": {"caSecretRef": {"name": "a"}}},
    ),
    (
        "tls.caSecretRef.key",
        "is not a key of a Secret",
        {"tls": {"caSecretRef": {"name": "a", "key": "a/b"}}},
        {"tls": {"caSecretRef": {"name": "a", "key": "a.b"}}},
    ),
    (
        "tls.clientCertificateSecretRef.name",
        _NAME,
        {"tls": {"clientCertificateSecretRef": {"name": "A"}}},
        {"tls": {"clientCertificateSecretRef": {"name": "a"}}},
    ),
    (
        "tls.serverName",
        "is not a host name",
        {"tls": {"serverName": "a b"}},
        {"tls": {"serverName": "a.b"}},
    ),
    (
        "credentials",
        "would be sent unencrypted",
        {"servers": [_PLAIN], "credentials": _CREDENTIALS},
        {"servers": ["nats://127.0.0.1:4222"], "credentials": _CREDENTIALS},
    ),
    ("credentials", "holds none of", {"credentials": {}}, {"credentials": _CREDENTIALS}),
    (
        "credentials",
        "holds none of",
        {"credentials": _CREDENTIALS | {"bearer": {"secretRef": _SECRET}}},
        {"credentials": _CREDENTIALS},
    ),
    (
        "credentials.basic.secretRef.name",
        _NAME,
        {"credentials": {"basic": {"secretRef": {"name": "A"}}}},
        {"credentials": _CREDENTIALS},
    ),
    *(
        (
            f"credentials.bearer.secretRef.{field}",
            says,
            {"credentials": {"bearer": {"secretRef": _SECRET | {field: wrong}}}},
            {"credentials": {"bearer": {"secretRef": _SECRET}}},
        )
        for field, says, wrong in (
            ("name", _NAME, "A"),
            ("key", "is not a key of a Secret", "a/b"),
        )
    ),
)


def _case(path: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="IndicationService",
        field=path,
        says=says,
        refused={"stores": refused},
        mended={"stores": mended},
    )


def _with(field: str, member: JSON) -> JSON:
    """``member`` alone, or as the backup of another one."""
    lists = {"members": [stream(name="other")], field: [member]}
    return {"groups": [{"name": "all", **lists}]}


def _members(field: str) -> Iterator[Case]:
    at = f"{_WITHIN}.{field}[0]"
    for says, name in (
        (_NAME, "Shared"),
        ("holds a dot", "sha.red"),
        ("ends in -headless", "shared-headless"),
    ):
        refused, mended = ({"gatewayRef": {"name": one}} for one in (name, "shared"))
        path = f"{at}.gatewayRef.name"
        yield _case(path, says, _with(field, refused), _with(field, mended))
    both = stream() | {"gatewayRef": {"name": "shared"}}
    for wrong in ({}, both):
        yield _case(at, "names none of", _with(field, wrong), _with(field, stream()))
    for path, says, refused, mended in _OF_STREAMS:
        yield _case(
            f"{at}.nats.{path}",
            says,
            _with(field, stream(**refused)),
            _with(field, stream(**mended)),
        )


STORE_CASES = (
    _case("spec.stores.groups", "is empty", {"groups": []}, stores("a")),
    _case(f"{_WITHIN}.members", "is empty", stores(), stores("a")),
    _case(f"{_WITHIN}.name", "is not the name", stores("a", name="A"), stores("a")),
    _case(
        "spec.stores.flightSize",
        "is less than one byte",
        {**stores("a"), "flightSize": "100m"},
        {**stores("a"), "flightSize": "1"},
    ),
    *_members("members"),
    *_members("backups"),
)
