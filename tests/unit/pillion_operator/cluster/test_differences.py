"""What counts as drift."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.cluster.differences import differences, digest, same_quantity

JSON = st.recursive(
    st.none() | st.booleans() | st.integers(0, 9) | st.text("ab.", max_size=2),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["name", "uid", "limits", "b"]), inner, max_size=3)
    ),
    max_leaves=8,
)
OBJECTS = st.dictionaries(st.sampled_from(["spec", "metadata", "data"]), JSON, max_size=3)


def paths(desired: Any, live: Any) -> list[str]:
    return list(differences(desired, live))


def test_what_is_not_mentioned_belongs_to_others() -> None:
    live = {"metadata": {"labels": {"a": "1", "b": "2"}, "uid": "x"}, "status": {"replicas": 1}}
    assert not differences({"metadata": {"labels": {"a": "1"}}}, live)


@pytest.mark.parametrize(
    ("desired", "live", "path"),
    [
        ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {"labels": {}}}, "metadata.labels.a"),
        ({"metadata": {"labels": {"a": "1"}}}, {"metadata": {}}, "metadata.labels"),
        (
            {"metadata": {"annotations": {"x.dev/y": "1"}}},
            {"metadata": {"annotations": {"x.dev/y": "2"}}},
            "metadata.annotations[x.dev/y]",
        ),
        ({"spec": {"replicas": 1}}, {"spec": {"replicas": 2}}, "spec.replicas"),
        ({"spec": {"mount": True}}, {"spec": {"mount": 1}}, "spec.mount"),
        ({"spec": {"mount": False}}, {"spec": {}}, "spec.mount"),
        ({"spec": {"args": ["a", "b"]}}, {"spec": {"args": ["b", "a"]}}, "spec.args[0]"),
        ({"spec": {"args": ["a"]}}, {"spec": {"args": ["a", "b"]}}, "spec.args"),
    ],
)
def test_a_field_with_another_value_is_named(desired: Any, live: Any, path: str) -> None:
    assert paths(desired, live)[0] == path


def test_what_is_listed_by_name_is_compared_by_name() -> None:
    desired = {"spec": {"env": [{"name": "ours", "image": "a"}]}}
    injected = {"spec": {"env": [{"name": "mesh"}, {"name": "ours", "image": "a"}]}}
    assert not differences(desired, injected)
    changed = {"spec": {"env": [{"name": "mesh"}, {"name": "ours", "image": "b"}]}}
    assert paths(desired, changed) == ["spec.env[ours].image"]
    assert paths(desired, {"spec": {"env": [{"name": "mesh"}]}}) == ["spec.env[ours]"]


def test_owners_are_compared_by_their_uids() -> None:
    ours = {"uid": "1", "name": "a", "controller": True}
    desired = {"metadata": {"ownerReferences": [ours]}}
    other = {"uid": "2", "name": "a"}
    assert not differences(desired, {"metadata": {"ownerReferences": [other, ours]}})
    assert differences(desired, {"metadata": {"ownerReferences": [other]}})


@pytest.mark.parametrize("empty", [None, [], {}])
def test_what_is_empty_may_be_left_out(empty: Any) -> None:
    assert not differences({"spec": {"field": empty}}, {"spec": {}})


def test_quantities_are_compared_by_value() -> None:
    desired = {"resources": {"requests": {"cpu": "1000m", "memory": "1Gi"}, "limits": {"cpu": 2}}}
    live = {"resources": {"requests": {"cpu": "1", "memory": "1024Mi"}, "limits": {"cpu": "2"}}}
    assert not differences(desired, live)
    assert not differences(
        {"emptyDir": {"sizeLimit": "0.5Gi"}}, {"emptyDir": {"sizeLimit": "512Mi"}}
    )
    extended = {"limits": {"example.com/gpu": "2k"}}
    assert not differences(extended, {"limits": {"example.com/gpu": "2000"}})
    live["resources"]["requests"]["cpu"] = "1001m"
    assert paths(desired, live) == ["resources.requests.cpu"]
    # Only there: elsewhere such strings are just strings.
    assert differences({"args": {"cpu": "1000m"}}, {"args": {"cpu": "1"}})


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("1e3", "1k", True),
        ("1E", "1000P", True),
        ("0.5", "500m", True),
        (1, "1", True),
        ("1G", "1Gi", False),
        ("1e999999999", "1", False),
        ("much", "more", False),
        ("0", "0", True),
        (None, "1", False),
    ],
)
def test_quantities(one: Any, other: Any, same: bool) -> None:
    assert same_quantity(one, other) is same
    assert same_quantity(other, one) is same


def test_what_else_lies_in_a_secret_is_drift() -> None:
    desired = {"kind": "Secret", "data": {"a": "eA=="}}
    live = {"kind": "Secret", "data": {"a": "eA==", "c": "eA==", "b": "eA=="}}
    assert paths(desired, live) == ["data[b]", "data[c]"]
    assert paths({**desired, "kind": "ConfigMap"}, {**live, "kind": "ConfigMap"}) == [
        "data[b]",
        "data[c]",
    ]


def test_a_difference_does_not_tell_what_is_secret() -> None:
    live = {"kind": "Secret", "data": {"a": "c2VjcmV0", "b": "c2VjcmV0"}}
    found = differences({"kind": "Secret", "data": {"a": "eA=="}}, live)
    assert "c2VjcmV0" not in repr(found)
    assert found == {"data.a": digest("c2VjcmV0"), "data[b]": digest("c2VjcmV0")}


def test_what_is_missing_is_told_from_what_is_other() -> None:
    assert differences({"a": 1}, {}) == {"a": ""}
    assert differences({"a": 1}, {"a": 2}) == {"a": digest(2)}


@given(OBJECTS)
def test_nothing_differs_from_itself(body: Any) -> None:
    assert differences(body, body) == {}


def test_the_order_of_keys_does_not_change_a_digest() -> None:
    assert digest({"a": 1, "b": 2}) == digest({"b": 2, "a": 1})
    assert digest({"a": 1}) != digest({"a": 2})


def test_what_has_no_word_for_a_name_is_compared_in_its_place() -> None:
    elements = [{"name": {"a": 1}}, {"name": []}]

    assert not differences({"spec": {"some": elements}}, {"spec": {"some": elements}})
    assert differences({"spec": {"some": elements}}, {"spec": {"some": [{"name": {"a": 2}}, {}]}})
