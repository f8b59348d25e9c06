"""Which sessions are whose, and which gateway adopts them."""

from typing import Any

import pytest

from pillion_operator.evaluation.adopting import (
    Session,
    is_adopter,
    keeps_copies,
    sessions_of,
    stores_to_ask,
)
from pillion_operator.polling.adoptions import Waits
from pillion_sidecar.stores_runtime import new_claimant
from pillion_sidecar.wire.adoptions import OrderedGroup, OrderedStores
from pillion_sidecar.wire.journals import JournalCopy
from support.adopting_gateways import session
from support.operator_objects import service

GROUP = {"name": "g", "members": [{"gatewayRef": {"name": "a"}}]}


def copy(claimant: str, *, number: int = 1, epoch: int = 1) -> JournalCopy:
    return JournalCopy(
        session=session(number),
        claimant=claimant,
        epoch=epoch,
        bytes=1,
        end="1",
        idle_seconds=0.0,
    )


def test_a_claimant_is_read_as_deliverers_write_it() -> None:
    found = sessions_of([copy(new_claimant("orders.eu", pod_uid="0f0f-1"))])
    assert list(found) == [Session(session(1), "orders.eu", "0f0f-1")]
    assert list(sessions_of([copy(new_claimant("orders", pod_uid=None))])) == []


@pytest.mark.parametrize(
    "claimant", ["", "a", "a/b", "a/B/c", "a/b/c/d", "/b/c", "a//c", "a b/c/d"]
)
def test_other_claimants_are_no_pods(claimant: str) -> None:
    assert list(sessions_of([copy(claimant)])) == []


def test_the_latest_claim_says_whose_it_is() -> None:
    claims = [copy("old/s/x", epoch=1), copy("adopter/s/x", epoch=3), copy("new/s/x", epoch=2)]
    assert list(sessions_of(claims)) == [Session(session(1), "s", None)]


def test_an_order_has_the_membership_of_the_service() -> None:
    groups = [{**GROUP, "backups": [{"gatewayRef": {"name": "b"}}]}]
    found = stores_to_ask(service(stores={"groups": groups, "between": "All"}))
    group = OrderedGroup(name="g", members=["a"], backups=["b"])
    assert found == OrderedStores(groups=[group], within="Quorum", between="All")


@pytest.mark.parametrize(
    ("spec", "reason"),
    [
        ({}, "StoresMissing"),
        ({"stores": {"groups": []}}, "StoresMissing"),
        (
            {"stores": {"groups": [{**GROUP, "backups": [{"nats": {"servers": []}}]}]}},
            "StoreNotAdoptable",
        ),
    ],
)
def test_why_there_is_no_order(spec: dict[str, Any], reason: str) -> None:
    found = stores_to_ask(service(**spec))
    assert isinstance(found, Waits)
    assert found.reason == reason


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({}, 0),
        ({"leaseSeconds": 60}, 0),
        ({"fencing": "Lease"}, 30),
        ({"fencing": "Lease", "leaseSeconds": 60}, 60),
    ],
)
def test_an_adopter_waits_for_the_lease_of_the_deliverer(
    fields: dict[str, Any], seconds: float
) -> None:
    found = stores_to_ask(service(stores={"groups": [GROUP], **fields}))
    assert isinstance(found, OrderedStores)
    assert found.lease_seconds == seconds


def test_the_gateway_of_the_hand_over_of_a_service_with_stores_adopts() -> None:
    stores = {"groups": [GROUP]}
    writer = service(stores=stores, handOverTo={"name": "hub"})
    assert is_adopter("hub", [service("other"), writer])
    assert not is_adopter("a", [writer])
    assert not is_adopter("hub", [service(handOverTo={"name": "hub"})])
    assert not is_adopter("hub", [service(stores=stores, gatewayRef={"name": "hub"})])


def test_a_gateway_with_copies_is_asked() -> None:
    copies = {"maximumBytes": "64Mi"}
    assert keeps_copies(service(deliverer={"mode": "Gateway"}, journalCopies=copies))
    assert not keeps_copies(service(deliverer={"mode": "Gateway"}))
    assert not keeps_copies(service(journalCopies=copies))
