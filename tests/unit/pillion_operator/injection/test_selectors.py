"""Label selectors."""

from typing import Any

import pytest

from pillion_operator.injection.selectors import covers, rendered, selects

LABELS = {"app": "web", "tier": "front"}


def expression(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("selector", "expected"),
    [
        ({"matchLabels": {"app": "web"}}, True),
        ({"matchLabels": {"app": "web", "tier": "back"}}, False),
        ({"matchLabels": {"other": ""}}, False),
        (expression("app", "In", "api", "web"), True),
        (expression("app", "In", "api"), False),
        (expression("other", "In", "web"), False),
        (expression("app", "NotIn", "web"), False),
        (expression("app", "NotIn", "api"), True),
        (expression("other", "NotIn", "web"), True),
        (expression("app", "Exists"), True),
        (expression("other", "Exists"), False),
        (expression("app", "DoesNotExist"), False),
        (expression("other", "DoesNotExist"), True),
        ({"matchLabels": {"app": "web"}, **expression("tier", "In", "back")}, False),
    ],
)
def test_a_pod_is_selected_when_all_requirements_hold(
    selector: dict[str, Any], expected: bool
) -> None:
    assert selects(selector, LABELS) is expected


@pytest.mark.parametrize(
    "selector",
    [None, {}, {"matchLabels": {}, "matchExpressions": []}, expression("app", "Like", "w*")],
)
def test_what_asks_for_nothing_or_cannot_be_understood_selects_nothing(
    selector: dict[str, Any] | None,
) -> None:
    assert not selects(selector, LABELS)
    assert rendered(selector) is None


def test_a_selector_is_rendered_as_the_api_server_reads_it() -> None:
    selector = {
        "matchLabels": {"app": "web", "example.com/empty": ""},
        "matchExpressions": [
            {"key": "tier", "operator": "In", "values": ["a", "b"]},
            {"key": "stage", "operator": "NotIn", "values": ["test"]},
            {"key": "team", "operator": "Exists"},
            {"key": "old", "operator": "DoesNotExist"},
        ],
    }
    assert rendered(selector) == (
        "app=web,example.com/empty=,tier in (a,b),stage notin (test),team,!old"
    )


A, B = {"matchLabels": {"app": "a"}}, {"matchLabels": {"app": "b"}}
A_AND_B = {"matchLabels": {"app": "a", "tier": "b"}}


@pytest.mark.parametrize(
    ("wide", "narrow", "covered"),
    [
        (A, A, True),
        ({}, A, False),
        (A, {}, False),
        (A, A_AND_B, True),
        (A_AND_B, A, False),
        (A, B, False),
        (expression("app", "In", "a", "b"), A, True),
        (A, expression("app", "In", "a", "b"), False),
        (expression("app", "NotIn", "b"), A, True),
        (expression("app", "NotIn", "a"), A, False),
        (expression("app", "NotIn", "a"), expression("app", "NotIn", "a", "b"), True),
        (expression("app", "NotIn", "a"), expression("app", "DoesNotExist"), True),
        (expression("app", "NotIn", "a"), expression("app", "Exists"), False),
        (expression("app", "Exists"), A, True),
        (expression("app", "Exists"), B | expression("tier", "Exists"), True),
        (expression("app", "DoesNotExist"), expression("app", "DoesNotExist"), True),
        (expression("app", "DoesNotExist"), {}, False),
        # What selects no pod overlaps with nothing.
        (A, A | expression("app", "In", "b"), False),
    ],
)
def test_a_selector_covers_another_by_what_it_says(
    wide: dict[str, Any], narrow: dict[str, Any], covered: bool
) -> None:
    assert covers(wide, narrow) is covered
