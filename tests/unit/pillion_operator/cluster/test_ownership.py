"""Which objects are a service's own."""

from typing import Any

import pytest

from pillion_operator.cluster.ownership import belongs, managed, selector
from pillion_operator.cluster.types import SECRET
from support.desired import indication_service

OWNER = indication_service("alerts")


def with_metadata(**changes: Any) -> dict[str, Any]:
    body = managed(SECRET, "a", service=OWNER)
    return {**body, "metadata": {**body["metadata"], **changes}}


def test_what_was_made_for_a_service_belongs_to_it_alone() -> None:
    body = managed(SECRET, "a", service=OWNER)
    assert belongs(body, OWNER)
    assert not belongs(body, indication_service("other"))


@pytest.mark.parametrize(
    "body",
    [
        with_metadata(labels=None),
        with_metadata(labels={"pillion.dev/service": "alerts"}),
        with_metadata(ownerReferences=None),
        with_metadata(ownerReferences=[{"uid": "earlier", "controller": True}]),
        with_metadata(ownerReferences=[{"uid": OWNER["metadata"]["uid"]}]),
    ],
)
def test_what_lacks_a_label_or_the_controller_is_somebody_else_s(body: dict[str, Any]) -> None:
    assert not belongs(body, OWNER)


def test_the_selector_finds_what_was_made() -> None:
    labels = managed(SECRET, "a", service=OWNER)["metadata"]["labels"]
    assert selector(OWNER) == ",".join(f"{key}={value}" for key, value in labels.items())
