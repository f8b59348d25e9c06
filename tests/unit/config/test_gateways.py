"""What a configuration says of gateways: what is relayed or handed over, and to whom."""

from pathlib import Path

import pytest

from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.service import AllowedPublisher
from support.resources import JSON, alert_filter, destination, service, subscription, write

GATEWAY = service("shared", deliverer={"mode": "Gateway"})
RELAYED = destination("relayed", deliverThrough="Gateway")
FOR_RELAYED = subscription("to-relayed", to="relayed")


def loaded(folder: Path, *documents: JSON, by: str = "default") -> Configuration:
    return load_folder(write(folder, alert_filter(), GATEWAY, *documents), service=by)


def folder_of_both(tmp_path: Path, **spec: object) -> tuple[JSON, ...]:
    return (
        service("default", **spec),
        RELAYED,
        destination(),
        FOR_RELAYED,
        subscription(),
        subscription("own", to="ops", serviceRef={"name": "shared"}),
    )


def test_a_sidecar_relays_what_is_delivered_through_its_gateway(tmp_path: Path) -> None:
    documents = folder_of_both(tmp_path, gatewayRef={"name": "shared"})
    found = loaded(tmp_path, *documents)
    assert {name: one.relay_to for name, one in found.destinations.items()} == {
        "relayed": "shared",
        "ops": None,
    }
    assert sorted(found.subscriptions) == ["alerts-to-ops", "to-relayed"]
    assert found.relayed == {}


def test_a_gateway_delivers_what_is_relayed_to_it_and_selects_its_own(tmp_path: Path) -> None:
    documents = folder_of_both(tmp_path, gatewayRef={"name": "shared"})
    found = loaded(tmp_path, *documents, by="shared")
    assert sorted(found.subscriptions) == ["own"]
    assert sorted(found.relayed) == ["to-relayed"]
    assert sorted(found.all_subscriptions) == ["own", "to-relayed"]
    assert [one.relay_to for one in found.destinations.values()] == [None, None]


def test_everything_may_be_handed_over(tmp_path: Path) -> None:
    documents = (
        service("default", handOverTo={"name": "shared"}),
        destination(),
        subscription(),
    )
    found = loaded(tmp_path, *documents)
    assert found.service.hand_over_to == "shared"
    assert found.destinations["ops"].relay_to is None
    assert sorted(loaded(tmp_path, *documents, by="shared").relayed) == ["alerts-to-ops"]


def test_without_a_gateway_nothing_can_be_relayed(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError) as caught:
        loaded(tmp_path, service(), RELAYED, FOR_RELAYED)
    (problem,) = caught.value.problems
    assert problem.reason == "GatewayMissing"
    assert problem.resource == "IndicationSubscription/to-relayed"
    assert "has no gatewayRef" in problem.message


def test_a_gateway_needs_no_other_one(tmp_path: Path) -> None:
    mine = subscription("mine", to="relayed", serviceRef={"name": "shared"})
    found = loaded(tmp_path, RELAYED, mine, by="shared")
    assert found.destinations["relayed"].relay_to is None
    assert sorted(found.subscriptions) == ["mine"]


def test_publishers_are_namespaces_or_accounts(tmp_path: Path) -> None:
    publishers = [{"namespace": "jobs"}, {"namespace": "etl", "serviceAccount": "spark"}]
    named = service("door", deliverer={"mode": "Gateway"}, publishers=publishers)
    assert loaded(tmp_path, named, by="door").service.publishers == (
        AllowedPublisher(namespace="jobs"),
        AllowedPublisher(namespace="etl", service_account="spark"),
    )
