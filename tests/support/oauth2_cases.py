"""The cases of the rules of OAuth 2.0 credentials; see ``support.resource_cases``."""

from support.resource_rules import Case
from support.resources import JSON

_EVENTS: JSON = {"destination": "https://host/", "protocol": "CloudEvents"}
_CLIENT: JSON = {"tokenURL": "https://id.example/token", "secretRef": {"name": "a"}}
_BASIC: JSON = {"basic": {"secretRef": {"name": "a"}}}


def _case(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    return Case(
        kind="ListenerDestination",
        field=f"spec.{field}",
        says=says,
        refused=refused,
        mended=mended,
    )


def _client(field: str, says: str, refused: JSON, mended: JSON) -> Case:
    given, instead = (
        {**_EVENTS, "credentials": {"oauth2": {**_CLIENT, **one}}} for one in (refused, mended)
    )
    return _case(f"credentials.oauth2.{field}", says, given, instead)


def _url(says: str, refused: str, mended: str) -> Case:
    return _client("tokenURL", says, {"tokenURL": refused}, {"tokenURL": mended})


OAUTH2_CASES = (
    _case(
        "credentials",
        "holds more than one",
        {**_EVENTS, "credentials": {**_BASIC, "oauth2": _CLIENT}},
        {**_EVENTS, "credentials": {"oauth2": _CLIENT}},
    ),
    _case(
        "credentials",
        "would be sent unencrypted",
        {**_EVENTS, "destination": "http://host/", "credentials": {"oauth2": _CLIENT}},
        {**_EVENTS, "credentials": {"oauth2": _CLIENT}},
    ),
    _url("holds a character", "https://host/a b", "https://host/a%20b"),
    _url("does not begin with", "host/token", "https://host/token"),
    _url("holds a user name", "https://user:pw@host/", "https://host/"),
    _url("holds a fragment", "https://host/#x", "https://host/?x"),
    _url("names no host", "https://:80/", "https://[fd00::1]:80/"),
    _url("names a port", "https://host:65536/", "https://host:65535/"),
    _url("would be sent the client's", "http://host/token", "http://localhost:8080/token"),
    _client("secretRef.name", "is not the", {"secretRef": {"name": "A"}}, {}),
    _client("scopes[0]", "is no scope", {"scopes": ["a b"]}, {"scopes": ["a", "b"]}),
    _client("audience", "is no audience", {"audience": "a b"}, {"audience": "urn:a"}),
    _client(
        "caSecretRef.name",
        "is not the",
        {"caSecretRef": {"name": "CA"}},
        {"caSecretRef": {"name": "ca"}},
    ),
    _client(
        "caSecretRef.key",
        "is not a key",
        {"caSecretRef": {"name": "ca", "key": "a/b"}},
        {"caSecretRef": {"name": "ca", "key": "a.b"}},
    ),
)
