"""Every rule says the same twice: in CEL, as the API server asks it, and in Python."""

import re
import sys
from collections.abc import Iterator
from functools import cache
from typing import Any
from urllib.parse import urlsplit

import celpy
import pytest
from celpy.adapter import json_to_cel
from celpy.celtypes import IntType, StringType
from celpy.evaluation import CELFunction
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pillion_sidecar.config.parsing import Document, parse_documents
from pillion_sidecar.config.schema import KINDS
from pillion_sidecar.config.schema.urls import PREFIX, URL
from pillion_sidecar.config.validation import Complaints, check
from pillion_sidecar.fields import (
    RULED,
    FieldType,
    ListOf,
    MapOf,
    Rule,
    Struct,
    Text,
    amount,
)
from pillion_sidecar.reliability.callbacks import check_callback
from support.resource_cases import CASES
from support.resource_rules import Case, Placed, every_rule, nodes, schema
from support.resource_values import URL_PIECES, values

WITH_RULES = [
    (path, kind)
    for resource in KINDS
    for path, kind in nodes(resource.spec, resource.name)
    if isinstance(kind, RULED) and kind.rules
]


@pytest.fixture(scope="module", autouse=True)
def _compiled() -> Iterator[None]:
    """All rules compiled, and celpy's recursion limit in force, before any test runs."""
    limit = sys.getrecursionlimit()
    for _, kind in WITH_RULES:
        for rule in kind.rules:
            program(rule.cel)
    yield
    sys.setrecursionlimit(limit)


@cache
def program(cel: str) -> celpy.Runner:
    environment = celpy.Environment()
    return environment.program(environment.compile(cel), functions=QUANTITIES)


def quantity(text: StringType) -> StringType:
    return text


def compare_to(one: StringType, other: StringType) -> IntType:
    """Kubernetes' own function, which celpy does not have."""
    return IntType(amount(one).compare(amount(other)))


def add(left: StringType, right: StringType) -> StringType:
    return StringType(f"{amount(left) + amount(right):f}")


QUANTITIES: dict[str, CELFunction] = {"quantity": quantity, "compareTo": compare_to, "add": add}


def cel_holds(rule: Rule, value: Any) -> bool:
    return bool(program(rule.cel).evaluate({"self": json_to_cel(escaped(value))}))


def escaped(value: Any) -> Any:
    """``value`` with the one field whose name CEL spells otherwise so spelled."""
    if not isinstance(value, dict):
        return value
    return {
        "ephemeral__dash__storage" if key == "ephemeral-storage" else key: escaped(below)
        for key, below in value.items()
    }


def defaulted(kind: FieldType, value: Any) -> Any:
    return check(kind, value, (), Complaints(lambda *_: None))


@pytest.mark.parametrize(("path", "kind"), WITH_RULES, ids=[path for path, _ in WITH_RULES])
@pytest.mark.timeout(300)
@settings(max_examples=60, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_both_forms_of_a_rule_agree(
    path: str, kind: Text | MapOf | Struct, data: st.DataObject
) -> None:
    value = defaulted(kind, data.draw(values(kind)))
    for rule in kind.rules:
        assert rule.holds(value) == cel_holds(rule, value), (path, rule.cel, value)


def verdicts(kind: Text | MapOf | Struct, value: Any) -> list[bool]:
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
        ("http://[1.2.3.4]/", "names no host"),
        ("http://[:]/", "names no host"),
        ("http://a..b/", "names no host"),
        ("http://.a/", "names no host"),
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


@given(st.lists(st.sampled_from([*URL_PIECES, "/.", "/..", "%2e", "%2F"]), max_size=8).map("".join))
def test_below_a_prefix_that_passes_lie_others(prefix: str) -> None:
    if all(rule.holds(prefix) for rule in PREFIX.rules):
        check_callback(prefix.removesuffix("/") + "/below", [prefix])


@pytest.mark.parametrize("placed", every_rule(), ids=lambda p: f"{p.field}-{p.rule.message}")
def test_every_rule_has_a_case(placed: Placed) -> None:
    assert any(case.breaks(placed) for case in CASES)


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_case_breaks_one_rule(case: Case) -> None:
    assert sum(case.breaks(placed) for placed in every_rule()) == 1


def complaints(resource: dict[str, Any]) -> list[tuple[str, str]]:
    """What is complained of: field and message."""
    found = parse_documents([Document("x.yaml", resource)]).problems
    return [(problem.field, problem.message) for problem in found]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_each_rule_refuses_what_it_is_for_and_its_remedy_helps(case: Case) -> None:
    refused, mended = case.resources()
    assert complaints(mended) == []
    if case.before is not None:
        # Only the API server knows what was before.
        assert complaints(refused) == []
        return
    [(field, message)] = complaints(refused)
    assert message.startswith(case.says)
    keyed = re.sub(r"\b(matchLabels|labels|nodeSelector)\.(\w+)$", r"\1[\2]", field)
    assert keyed == case.field


def broken(kind: FieldType, value: Any) -> Iterator[Rule]:
    """Rules that a value and all below it break, having made sure that both forms agree."""
    if isinstance(kind, RULED):
        found = zip(kind.rules, verdicts(kind, value), strict=True)
        yield from (rule for rule, holds in found if not holds)
    match kind:
        case Struct():
            for field in kind.fields:
                if field.name in value:
                    yield from broken(field.type, value[field.name])
        case ListOf():
            for item in value:
                yield from broken(kind.item, item)
        case MapOf():
            for item in value.values():
                yield from broken(kind.value, item)


@pytest.mark.parametrize("case", [case for case in CASES if case.before is None], ids=str)
def test_both_forms_of_every_rule_agree_on_every_case(case: Case) -> None:
    spec = schema(case.kind).spec
    by_name = case.field == "metadata.name"
    assert len(list(broken(spec, defaulted(spec, case.refused)))) == (not by_name)
    assert list(broken(spec, defaulted(spec, case.mended))) == []
    rules = schema(case.kind).name_rules if by_name else ()
    for holds in (cel_holds, lambda rule, name: rule.holds(name)):
        broken_by = [sum(not holds(rule, name) for rule in rules) for name in case.names]
        assert broken_by == [int(by_name), 0]
