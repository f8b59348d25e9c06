"""Every rule says the same twice: in CEL, as the API server asks it, and in Python."""

import sys
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import celpy
import pytest
from celpy.adapter import json_to_cel
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.fields import (
    Boolean,
    FieldType,
    Integer,
    ListOf,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.config.schema.urls import URL
from pillion_sidecar.config.validation import Complaints, check

URL_PIECES = [
    *("http://", "https://", "HTTP://", "hTTps://", "ftp://", "http:/", "//", "http:"),
    *("host", "a.b-c_d", "localhost", "127.0.0.1", "127.1", "[::1]", "[fe80::1%25eth0]", "[", "]"),
    *(":", ":0", ":80", ":65535", ":65536", ":99999", ":080", ":x", "@", "user:pw@", "%40"),
    *("/", "/path", "?q=@", "#", "#f", " ", "\n", "ü", "\\", "\t", "'", '"', "LOCALHOST"),
]
TEXTS = st.one_of(
    st.text(max_size=20),
    st.from_regex(r"[a-z0-9.\-/_:A-Z]{1,12}", fullmatch=True),
    st.lists(st.sampled_from(URL_PIECES), max_size=7).map("".join),
)


def nodes(kind: FieldType, path: str) -> Iterator[tuple[str, FieldType]]:
    """Every node below a type, with its path."""
    yield path, kind
    if isinstance(kind, Struct):
        for field in kind.fields:
            yield from nodes(field.type, f"{path}.{field.name}")
    elif isinstance(kind, ListOf):
        yield from nodes(kind.item, f"{path}[]")


RULED = [
    (path, kind)
    for resource in KINDS
    for path, kind in nodes(resource.spec, resource.name)
    if isinstance(kind, Text | Struct) and kind.rules
]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    """All rules compiled, and celpy's recursion limit in force, before any test runs."""
    limit = sys.getrecursionlimit()
    for _, kind in RULED:
        for rule in kind.rules:
            program(rule.cel)
    yield
    sys.setrecursionlimit(limit)


@cache
def program(cel: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(cel))


def cel_holds(rule: Rule, value: Any) -> bool:
    return bool(program(rule.cel).evaluate({"self": json_to_cel(value)}))


def values(kind: FieldType) -> st.SearchStrategy[Any]:
    """Values of the right types, rules apart."""
    match kind:
        case Text(values=known) if known:
            return st.sampled_from(known)
        case Text():
            return TEXTS
        case Integer():
            # Few numbers, so that comparisons are equal now and then.
            return st.integers(kind.minimum, kind.minimum + 3)
        case Boolean():
            return st.booleans()
        case ListOf():
            return st.lists(values(kind.item), max_size=2)
        case Struct():
            required = {field.name: values(field.type) for field in kind.fields if field.required}
            optional = {
                field.name: values(field.type) for field in kind.fields if not field.required
            }
            return st.fixed_dictionaries(required, optional=optional)


def defaulted(kind: FieldType, value: Any) -> Any:
    return check(kind, value, (), Complaints(lambda *_: None))


@pytest.mark.parametrize(("path", "kind"), RULED, ids=[path for path, _ in RULED])
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_both_forms_of_a_rule_agree(path: str, kind: Text | Struct, data: st.DataObject) -> None:
    value = defaulted(kind, data.draw(values(kind)))
    for rule in kind.rules:
        assert rule.holds(value) == cel_holds(rule, value), (path, rule.cel, value)


def verdicts(kind: Text | Struct, value: Any) -> list[bool]:
    """Whether each rule holds, having made sure that its two forms agree."""
    value = defaulted(kind, value)
    found = [rule.holds(value) for rule in kind.rules]
    assert found == [cel_holds(rule, value) for rule in kind.rules]
    return found


@pytest.mark.parametrize(
    "url",
    [
        "http://host",
        "https://host/",
        "HTTP://Host:1/p",
        "http://host:65535?q=1",
        "http://a_b.c-d:5990/CIMListener/x?y=a@b",
        "https://[::1]:443/x",
        "http://10.0.0.1/%23",
    ],
)
def test_a_good_url_passes_every_rule(url: str) -> None:
    assert all(verdicts(URL, url))


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("host/path", "does not begin with"),
        ("ftp://host/", "does not begin with"),
        ("http:/host", "does not begin with"),
        ("http://", "names no host"),
        ("http:///path", "names no host"),
        ("http://:80/", "names no host"),
        ("http://[::1/", "names no host"),
        ("http://[fe80::1%25eth0]/", "names no host"),
        ("http://user@host/", "holds a user name"),
        ("http://user:pw@host/", "holds a user name"),
        ("http://host/#x", "holds a fragment"),
        ("http://host#x", "holds a fragment"),
        ("http://host:0/", "names a port"),
        ("http://host:65536/", "names a port"),
        ("http://host:/", "names a port"),
        ("http://host:abc", "names a port"),
        ("http://host/a b", "holds a character"),
        ("http://host/ü", "holds a character"),
        ("http://host/a\\b", "holds a character"),
    ],
)
def test_a_bad_url_breaks_exactly_the_rule_that_names_what_is_wrong(url: str, says: str) -> None:
    broken = [
        rule.message for rule, holds in zip(URL.rules, verdicts(URL, url), strict=True) if not holds
    ]
    assert len(broken) == 1, broken
    assert broken[0].startswith(says)


@given(st.lists(st.sampled_from(URL_PIECES), max_size=8).map("".join))
def test_a_url_that_passes_has_what_a_client_needs(url: str) -> None:
    if all(rule.holds(url) for rule in URL.rules):
        parts = urlsplit(url)
        assert parts.scheme in ("http", "https")
        assert parts.hostname
        assert parts.username is None
        assert parts.fragment == ""
        assert parts.port is None or 1 <= parts.port <= 65535


CERTIFICATE = {"name": "certificates"}
BASIC = {"secretRef": {"name": "account"}}
HTTP = {"destination": "http://host/", "protocol": "CIM-XML"}
HTTPS = {"destination": "https://host/", "protocol": "CIM-XML"}
SUPPRESS = {"repeatNotificationIntervalSeconds": 60, "repeatNotificationCount": 3}
REFERENCES = {"filterRef": {"name": "f"}, "destinationRef": {"name": "d"}}

#: Kind, spec, and the start of the message of the one rule that it breaks; None: it breaks none.
CASES: list[tuple[str, dict[str, Any], str | None]] = [
    ("ListenerDestination", HTTP, None),
    ("ListenerDestination", {**HTTPS, "tls": {}}, None),
    ("ListenerDestination", {**HTTP, "tls": {}}, "has no effect on a destination"),
    ("ListenerDestination", {**HTTP, "maxInFlight": 2}, "is more than 1"),
    ("ListenerDestination", {**HTTP, "maxInFlight": 2, "ordering": "None"}, None),
    ("ListenerDestination", {**HTTP, "maxInFlight": 2, "ordering": "Group"}, None),
    ("ListenerDestination", {**HTTP, "sequenceIdentifiers": "Send"}, None),
    (
        "ListenerDestination",
        {**HTTP, "sequenceIdentifiers": "Send", "ordering": "None"},
        "is Send, but numbers mean nothing",
    ),
    ("ListenerDestination", {**HTTPS, "credentials": {"basic": BASIC}}, None),
    ("ListenerDestination", {**HTTP, "credentials": {"basic": BASIC}}, "would travel readable"),
    (
        "ListenerDestination",
        {**HTTP, "destination": "http://localhost:5990/x", "credentials": {"basic": BASIC}},
        None,
    ),
    (
        "ListenerDestination",
        {**HTTP, "destination": "http://127.0.0.1", "credentials": {"bearer": BASIC}},
        None,
    ),
    (
        "ListenerDestination",
        {**HTTP, "destination": "http://localhost.evil/", "credentials": {"basic": BASIC}},
        "would travel readable",
    ),
    ("IndicationService", {}, None),
    ("IndicationService", {"durability": "Memory", "acknowledgement": "Delivered"}, None),
    ("IndicationService", {"durability": "Disk"}, "is Disk"),
    ("IndicationService", {"acknowledgement": "Durable"}, "is Durable"),
    ("IndicationService", {"acknowledgement": "Stable"}, "is Stable"),
    ("IndicationSubscription", REFERENCES, None),
    (
        "IndicationSubscription",
        {**REFERENCES, **SUPPRESS, "repeatNotificationPolicy": "Suppress"},
        None,
    ),
    (
        "IndicationSubscription",
        {
            **REFERENCES,
            "repeatNotificationCount": 1,
            "repeatNotificationPolicy": "Suppress",
        },
        "is Suppress or Delay without repeatNotificationIntervalSeconds",
    ),
    (
        "IndicationSubscription",
        {
            **REFERENCES,
            "repeatNotificationIntervalSeconds": 1,
            "repeatNotificationPolicy": "Suppress",
        },
        "is Suppress or Delay without repeatNotificationCount",
    ),
    (
        "IndicationSubscription",
        {**REFERENCES, **SUPPRESS, "repeatNotificationPolicy": "Delay"},
        "is Delay without repeatNotificationGapSeconds",
    ),
]


@pytest.mark.parametrize(("kind", "spec", "says"), CASES)
def test_each_rule_over_several_fields_refuses_what_it_is_for(
    kind: str, spec: dict[str, Any], says: str | None
) -> None:
    struct = next(known.spec for known in KINDS if known.name == kind)
    broken = [
        rule.message
        for rule, holds in zip(struct.rules, verdicts(struct, spec), strict=True)
        if not holds
    ]
    assert len(broken) == (says is not None), broken
    assert says is None or broken[0].startswith(says)


def destination_block(name: str) -> Struct:
    spec = next(kind.spec for kind in KINDS if kind.name == "ListenerDestination")
    block = next(field.type for field in spec.fields if field.name == name)
    assert isinstance(block, Struct)
    return block


@pytest.mark.parametrize(
    ("block", "value", "good"),
    [
        ("credentials", {"basic": BASIC}, True),
        ("credentials", {"bearer": BASIC}, True),
        ("credentials", {}, False),
        ("credentials", {"basic": BASIC, "bearer": BASIC}, False),
        ("tls", {"caSecretRef": CERTIFICATE}, True),
        ("tls", {"insecureSkipVerify": True}, True),
        ("tls", {"insecureSkipVerify": True, "caSecretRef": CERTIFICATE}, False),
        ("retry", {"intervalSeconds": 60, "maximumIntervalSeconds": 60}, True),
        ("retry", {"intervalSeconds": 60}, True),
        ("retry", {"maximumIntervalSeconds": 1}, True),
        ("retry", {"intervalSeconds": 60, "maximumIntervalSeconds": 59}, False),
    ],
)
def test_each_block_of_a_destination_refuses_what_contradicts_itself(
    block: str, value: dict[str, Any], good: bool
) -> None:
    assert verdicts(destination_block(block), value) == [good]
