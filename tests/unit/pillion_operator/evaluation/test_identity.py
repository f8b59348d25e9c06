"""Deliverers know an object that continues an earlier one by what that was."""

import base64
import json
from typing import Any

import pytest

from pillion_operator.evaluation.lastgood import (
    filters_in,
    last_good_filter,
    recall,
    rendered_objects,
)
from pillion_operator.evaluation.namespace import parse
from pillion_operator.names import RENDERED, SERVICE_LABEL
from pillion_operator.store import Store, key_of
from pillion_sidecar.config.rendered import item_text, pack, render_items
from pillion_sidecar.config.schema import CREDENTIALS_LABEL
from support.operator_objects import NAMESPACE, destination, filter_of

EARLIER = {"uid": "earlier", "creationTimestamp": "2026-01-01T00:00:00Z"}


def continuing(body: dict[str, Any]) -> tuple[Store, str]:
    """A store where an object continues an earlier one, and the text that is rendered of it."""
    store = Store()
    store.put(body)
    store.continues(key_of(body), EARLIER)
    found = store.get(key_of(body))
    assert found is not None
    return store, parse(found).item


def configuration(*items: str, service: str = "default") -> dict[str, Any]:
    """A Secret with a configuration, as the operator makes it."""
    files = pack(render_items(items)).files
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "namespace": NAMESPACE,
            "name": f"pillion-{service}-0",
            "resourceVersion": "9",
            "labels": {CREDENTIALS_LABEL: RENDERED, SERVICE_LABEL: service},
        },
        "data": {name: base64.b64encode(content).decode() for name, content in files},
    }


def test_it_is_rendered_with_the_uid_and_the_time_of_the_earlier_one() -> None:
    body = destination()
    _, text = continuing(body)
    metadata = json.loads(text)["metadata"]
    assert {name: metadata[name] for name in EARLIER} == EARLIER
    assert metadata["annotations"] == {"pillion.dev/uid": body["metadata"]["uid"]}
    assert "annotations" not in json.loads(parse(body).item)["metadata"]


async def test_an_operator_that_starts_finds_it_in_the_configuration() -> None:
    body = destination()
    _, text = continuing(body)
    later = Store()
    later.put(body)
    later.put(configuration(text))
    await recall(later)
    found = later.get(key_of(body))
    assert found is not None
    assert parse(found).item == text


async def test_an_object_that_was_made_anew_while_the_operator_was_away_continues_none() -> None:
    body = destination()
    _, text = continuing(body)
    later = Store()
    body["metadata"]["uid"] = "another"
    later.put(body)
    later.put(configuration(text))
    await recall(later)
    found = later.get(key_of(body))
    assert found is not None
    assert json.loads(parse(found).item)["metadata"]["uid"] == "another"


async def test_what_is_no_configuration_says_nothing() -> None:
    body = destination()
    broken = configuration(parse(body).item)
    broken["data"] = {name: "AAAA" for name in broken["data"]}
    later = Store()
    later.put(body)
    later.put(broken)
    await recall(later)
    found = later.get(key_of(body))
    assert found is not None
    assert parse(found).item == parse(body).item


@pytest.mark.parametrize(
    "item",
    [
        1,
        [],
        {"kind": "ListenerDestination"},
        {"kind": [], "metadata": {"name": "a"}},
        {"kind": "ListenerDestination", "metadata": {"name": {}, "annotations": {}}},
        {"kind": "ListenerDestination", "metadata": []},
        {"kind": "ListenerDestination", "metadata": {"name": "pillion.dev/uid", "annotations": 1}},
        {
            "kind": "ListenerDestination",
            "metadata": {"name": "a", "annotations": {"pillion.dev/uid": {}}},
        },
        {
            "kind": "ListenerDestination",
            "metadata": {"name": "a", "uid": 1, "annotations": {"pillion.dev/uid": "u"}},
        },
    ],
)
async def test_a_secret_that_somebody_else_wrote_harms_nothing(item: Any) -> None:
    body, other = destination(), destination("other")
    _, text = continuing(body)
    later = Store()
    later.put(body)
    later.put(other)
    later.put(configuration(item_text(item), text))
    await recall(later)
    found = later.get(key_of(body))
    assert found is not None
    assert parse(found).item == text
    assert filters_in(rendered_objects([configuration(item_text(item))]), namespace=NAMESPACE) == {}


def test_the_last_good_version_of_a_filter_is_that_of_the_one_that_it_continues() -> None:
    store, text = continuing(filter_of())
    edited = store.get(key_of(filter_of()))
    assert edited is not None
    kept = last_good_filter(
        edited, filters_in(rendered_objects([configuration(text)]), namespace=NAMESPACE)
    )
    assert kept is not None
    assert kept.item == text
