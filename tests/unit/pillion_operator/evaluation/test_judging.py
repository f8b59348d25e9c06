import tracemalloc
from collections.abc import Iterable
from typing import Any

import pytest

from pillion_cim.schema import Schema, load_schema
from pillion_operator.evaluation import judging
from pillion_operator.evaluation.judging import Judge, remembering
from pillion_operator.evaluation.namespace import parse
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.parsing import Resource
from pillion_sidecar.config.problems import Problem
from pillion_sidecar.config.queries import CheckQuery, FilterProblem
from support.operator_objects import (
    bearer,
    destination,
    filter_of,
    secret,
    service,
    subscription,
)


def test_each_query_is_checked_once_for_each_language() -> None:
    asked: list[tuple[str, str]] = []

    def check(query: str, language: str) -> None:
        asked.append((query, language))

    remembered = remembering(check)
    for query, language in (("a", "WQL"), ("a", "DMTF:CQL"), ("b", "WQL"), ("a", "WQL")):
        assert remembered(query, language) is None

    assert asked == [("a", "WQL"), ("a", "DMTF:CQL"), ("b", "WQL")]


def test_queries_that_nobody_has_any_more_take_no_memory() -> None:
    remembered = remembering(lambda query, language: None)
    tracemalloc.start()
    try:
        for number in range(2000):
            remembered(f"{number:8192}", "WQL")
        taken, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()

    # Their texts are 16 MB.
    assert taken < 2_000_000
    assert judging.MOST_QUERIES > 2000


def odd(query: str) -> FilterProblem:
    return FilterProblem(message=query, remedy="Mend it.", line=1, column=2)


def asking(monkeypatch: pytest.MonkeyPatch, *, most: int) -> tuple[list[str], CheckQuery]:
    """What is asked, and a memory of so many queries."""
    monkeypatch.setattr(judging, "MOST_QUERIES", most)
    asked: list[str] = []

    def check(query: str, language: str) -> FilterProblem | None:
        asked.append(query)
        return odd(query) if query.startswith("bad") else None

    return asked, remembering(check)


def test_what_was_wrong_with_a_query_is_remembered_too(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, remembered = asking(monkeypatch, most=9)
    first = remembered("bad", "WQL")
    assert first == odd("bad")
    assert remembered("bad", "WQL") == first
    assert remembered("bad one", "WQL") != first
    assert asked == ["bad", "bad one"]


def test_the_query_that_nobody_asked_for_longest_is_forgotten_first(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked, remembered = asking(monkeypatch, most=3)
    for query in "abcad":
        remembered(query, "WQL")
    assert asked == ["a", "b", "c", "d"]

    # One too many: b went, which was asked for before a was once more.
    for query in "acd":
        remembered(query, "WQL")
    assert asked == ["a", "b", "c", "d"]
    remembered("b", "WQL")
    assert asked == ["a", "b", "c", "d", "b"]


def test_as_many_queries_are_remembered_as_may_be(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, remembered = asking(monkeypatch, most=3)
    for query in "abcabcabc":
        remembered(query, "WQL")
    assert asked == ["a", "b", "c"]


def test_language_and_query_do_not_run_into_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    asked, remembered = asking(monkeypatch, most=9)
    remembered("LA", "CQ")
    remembered("A", "CQL")
    remembered("\ud800", "CQL")
    assert asked == ["LA", "A", "\ud800"]


# ---------------------------------------------------------------- the judge


def judge(policy: AddressPolicy | None = None) -> Judge:
    return Judge(addresses=policy or AddressPolicy(), schema=load_schema())


def resources(*bodies: dict[str, Any]) -> list[Resource]:
    parsed = [parse(body) for body in bodies]
    assert not any(one.problems for one in parsed)
    return [one.resource for one in parsed if one.resource is not None]


def fields(problems: Iterable[Problem]) -> set[tuple[str, str, str]]:
    return {(problem.resource, problem.field, problem.reason) for problem in problems}


def test_what_fits_together_has_no_problems() -> None:
    found = resources(service(), filter_of(), destination(), subscription())
    assert judge().judge(found, service="default").problems == ()
    assert judge().judge([]).problems == ()


def test_everything_that_a_deliverer_would_complain_of_is_told_at_once() -> None:
    found = resources(
        service(),
        filter_of(query="SELECT nonsense"),
        destination(destination="https://127.0.0.1/"),
        subscription(filter="g"),
    )
    assert fields(judge().judge(found, service="default").problems) == {
        ("IndicationFilter/f", "spec.query", "Invalid"),
        ("ListenerDestination/d", "spec.destination", "AddressNotPermitted"),
        ("IndicationSubscription/s", "spec.filterRef.name", "NotFound"),
    }


def test_the_service_is_the_one_that_the_deliverer_runs_as() -> None:
    slow, quick = service("slow", deliveryRetryIntervalSeconds=60), service("quick")
    found = resources(slow, quick, destination(retry={"maximumIntervalSeconds": 40}))
    judged = judge()
    assert fields(judged.judge(found, service="slow").problems) == {
        ("ListenerDestination/d", "spec.retry.maximumIntervalSeconds", "Invalid")
    }
    assert judged.judge(found, service="quick").problems == ()
    assert judged.judge(found, service="absent").problems != ()


def test_addresses_are_those_that_deliverers_are_started_with() -> None:
    found = resources(service(), destination(destination="https://127.0.0.1/"))
    allowing = judge(AddressPolicy(allow_loopback=True))
    assert allowing.judge(found).problems == ()
    assert judge().judge(found).problems != ()


def test_secrets_are_those_that_are_handed_over() -> None:
    found = resources(service(), destination(credentials=bearer("token")))
    held = parse(secret()).secret
    assert held is not None
    assert judge().judge([*found, held]).problems == ()
    assert fields(judge().judge(found).problems) == {
        ("ListenerDestination/d", "spec.credentials.bearer.secretRef.name", "NotFound")
    }


def test_a_query_is_understood_once_however_often_it_is_judged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def checker(_schema: Schema) -> CheckQuery:
        def check(query: str, _language: str) -> None:
            asked.append(query)

        return check

    monkeypatch.setattr(judging, "query_checker", checker)
    judged, found = judge(), resources(service(), filter_of("f"), filter_of("g"))
    for _ in range(2):
        judged.judge(found)
    assert len(asked) == 1
