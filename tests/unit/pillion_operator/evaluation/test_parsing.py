"""Objects are checked once for each state, and rendered without what no deliverer reads."""

import json
from typing import Any

import pytest

from pillion_operator.evaluation.namespace import Parsing, describe, parse
from pillion_operator.store import Change
from pillion_sidecar.config.problems import Problem
from support.operator_objects import (
    FILTER,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    changed,
    destination,
    filter_of,
    made,
    secret,
    service,
    subscription,
    with_status,
)


def rendered(body: dict[str, Any]) -> dict[str, Any]:
    item = json.loads(parse(body).item)
    assert isinstance(item, dict)
    return item


def test_a_sound_object_is_a_resource_without_problems() -> None:
    parsed = parse(subscription(service="x"))
    assert parsed.problems == ()
    assert parsed.secret is None
    assert parsed.resource is not None
    assert (parsed.resource.kind.name, parsed.resource.name) == (SUBSCRIPTION.kind, "s")
    assert parsed.resource.spec["serviceRef"] == {"name": "x"}


def test_a_flawed_object_comes_with_all_its_problems() -> None:
    body = destination(protocol="Pigeon", nonsense=1)
    parsed = parse(body)
    assert {problem.field for problem in parsed.problems} == {"spec.protocol", "spec.nonsense"}
    assert {problem.resource for problem in parsed.problems} == {"ListenerDestination/d"}
    assert parsed.resource is not None


def test_a_name_that_is_none_makes_no_resource() -> None:
    parsed = parse(changed(filter_of(), name="Not A Name"))
    assert parsed.resource is None
    assert [problem.field for problem in parsed.problems] == ["metadata.name"]


def test_a_secret_is_decoded_and_shows_nothing() -> None:
    parsed = parse(secret(token="b25l"))
    assert parsed.resource is None
    assert parsed.secret is not None
    assert parsed.secret.permitted
    assert parsed.secret.data == {"token": b"one"}
    for hidden in ("b25l", "one'"):
        assert hidden not in repr(parsed)


def test_a_secret_that_is_no_base64_is_no_secret() -> None:
    parsed = parse(secret(token="!"))
    assert parsed.secret is None
    assert [problem.field for problem in parsed.problems] == ["data.token"]


# ---------------------------------------------------------------- rendering


def test_what_is_rendered_is_one_line_with_what_a_deliverer_reads() -> None:
    body = changed(
        with_status(filter_of(), observedGeneration=1),
        creationTimestamp="2026-01-31T12:00:00Z",
        labels={"team": "a"},
        annotations={"note": "b"},
        finalizers=["pillion.dev/drain"],
        deletionTimestamp="2026-02-01T12:00:00Z",
    )
    assert "\n" not in parse(body).item
    assert rendered(body) == {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationFilter",
        "metadata": {
            "namespace": "shop",
            "name": "f",
            "uid": "uid-indicationfilter-f",
            "creationTimestamp": "2026-01-31T12:00:00Z",
            # By which a status says which one is in force.
            "generation": 1,
        },
        "spec": {"query": "SELECT * FROM CIM_AlertIndication"},
    }


@pytest.mark.parametrize("spec", [{}, None])
def test_a_spec_that_is_not_there_is_an_empty_one(spec: dict[str, Any] | None) -> None:
    assert rendered({**made(SERVICE), "spec": spec})["spec"] == {}
    assert rendered(made(SERVICE))["spec"] == {}


def test_how_deliverers_are_run_is_left_out_of_what_they_get() -> None:
    body = service(deliveryRetryAttempts=3, deliverer={"replicas": 3})
    assert rendered(body)["spec"] == {"deliveryRetryAttempts": 3}
    assert parse(body).resource is not None
    assert parse(body).item == parse(service(deliveryRetryAttempts=3)).item


def test_only_a_service_has_a_deliverer_to_leave_out() -> None:
    body = filter_of()
    body["spec"]["deliverer"] = {}
    assert "deliverer" in rendered(body)["spec"]


def test_of_a_secret_the_label_and_the_data_are_rendered() -> None:
    body = changed(secret(token="b25l"), labels={"pillion.dev/credentials": "true", "team": "a"})
    assert rendered({**body, "type": "Opaque"}) == {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": "shop",
            "name": "token",
            "uid": "uid-secret-token",
            "labels": {"pillion.dev/credentials": "true"},
        },
        "data": {"token": "b25l"},
    }


def test_a_secret_without_labels_or_data_is_rendered_as_not_permitted() -> None:
    body = changed(made(SECRET), labels=None)
    assert rendered(body)["data"] == {}
    parsed = parse(body).secret
    assert parsed is not None
    assert not parsed.permitted


# ---------------------------------------------------------------- remembering


def test_an_object_is_parsed_once_until_its_spec_changes() -> None:
    parsing = Parsing()
    first = parsing.parse(filter_of())
    # A status that was written is a new version of the same generation.
    again = changed(with_status(filter_of(), observedGeneration=1), resourceVersion="2")
    assert parsing.parse(again) is first

    second = parsing.parse(changed(filter_of(query="SELECT * FROM x"), generation=2))
    assert second is not first
    assert "FROM x" in second.item


def test_another_object_of_the_same_name_and_generation_is_parsed_anew() -> None:
    parsing = Parsing()
    first = parsing.parse(filter_of())
    second = parsing.parse(changed(filter_of(query="SELECT * FROM x"), uid="another"))
    assert second is not first
    assert "another" in second.item


def test_objects_of_other_kinds_or_namespaces_are_not_mixed_up() -> None:
    parsing = Parsing()
    bodies = [
        changed(body, uid="same")
        for body in (
            filter_of("x"),
            filter_of("y"),
            destination("x"),
            changed(filter_of("x"), namespace="elsewhere"),
        )
    ]
    assert len({parsing.parse(body).item for body in [*bodies, *bodies]}) == len(bodies)


def test_a_secret_is_parsed_anew_with_each_version() -> None:
    """It has no generation."""
    parsing = Parsing()
    first = parsing.parse(secret(token="b25l"))
    assert parsing.parse(secret(token="b25l")) is first

    second = parsing.parse(changed(secret(token="dHdv"), resourceVersion="2"))
    assert second.secret is not None
    assert second.secret.data == {"token": b"two"}


def test_what_is_gone_is_forgotten_and_what_changed_is_not() -> None:
    parsing = Parsing()
    body = filter_of()
    first = parsing.parse(body)
    for change in (Change(SERVICE, service(), None), Change(FILTER, body, body)):
        parsing.follow(change)
    assert parsing.parse(body) is first

    parsing.follow(Change(FILTER, body, None))
    assert parsing._known == {}
    assert parsing.parse(body) is not first


# ---------------------------------------------------------------- telling


def problem(*, field: str = "", value: str = "") -> Problem:
    return Problem(reason="Invalid", message="is odd", remedy="Even it.", field=field, value=value)


def test_a_problem_is_told_with_its_field_value_and_remedy() -> None:
    told = describe([problem(field="spec.a", value="3")])
    assert told == "spec.a: is odd (value 3). Even it."


def test_what_is_not_known_of_a_problem_leaves_no_trace() -> None:
    assert describe([problem()]) == "is odd. Even it."


def test_several_problems_are_told_one_after_the_other() -> None:
    told = describe([problem(field="spec.a"), problem(value="3")])
    assert told == "spec.a: is odd. Even it. is odd (value 3). Even it."
    assert describe([]) == ""


def test_no_problem_of_a_secret_shows_what_it_holds() -> None:
    assert "b25l" not in describe(parse(secret(token="!b25l")).problems)
