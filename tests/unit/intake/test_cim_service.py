"""The service and its capabilities as CIM instances: the schema's properties, true values (D.3)."""

from typing import Any

import pytest

from pillion_cim.jsonform import decode_instance
from pillion_cim.mof import parse_mof
from pillion_cim.schema import extend, load_schema
from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.intake.cim_service import service_document

SCHEMA = load_schema()
#: The properties that are used here, as the CIM schema 2.49 declares them, with their origins.
MOF = """
class CIM_ManagedElement { string ElementName; };
class CIM_ManagedSystemElement : CIM_ManagedElement { string Name; };
class CIM_Service : CIM_ManagedSystemElement {
  string SystemCreationClassName; string SystemName; string CreationClassName;
};
class CIM_IndicationService : CIM_Service {
  boolean FilterCreationEnabled; uint16 DeliveryRetryAttempts; uint32 DeliveryRetryInterval;
  uint16 SubscriptionRemovalAction; uint32 SubscriptionRemovalTimeInterval;
};
class CIM_Capabilities : CIM_ManagedElement { string InstanceID; };
class CIM_IndicationServiceCapabilities : CIM_Capabilities {
  boolean FilterCreationEnabledIsSettable; boolean DeliveryRetryAttemptsIsSettable;
  boolean DeliveryRetryIntervalIsSettable; boolean SubscriptionRemovalActionIsSettable;
  boolean SubscriptionRemovalTimeIntervalIsSettable; uint32 MaxListenerDestinations;
  uint32 MaxActiveSubscriptions; boolean SubscriptionsPersisted;
};
"""


def described(
    *, durability: Durability = Durability.MEMORY, destinations: int = 10_000, **service: Any
) -> dict[str, Any]:
    return service_document(
        IndicationService(**service),
        durability=durability,
        maximum_destinations=destinations,
        system="node-1",
        schema=SCHEMA,
    )


def values(instance: dict[str, Any]) -> dict[str, Any]:
    return {name: stated["value"] for name, stated in instance["properties"].items()}


def test_a_service_without_settings_has_those_of_dsp1054() -> None:
    assert values(described()["service"]) == {
        "SystemCreationClassName": "CIM_ComputerSystem",
        "SystemName": "node-1",
        "CreationClassName": "CIM_IndicationService",
        "Name": "default",
        "ElementName": "default",
        "FilterCreationEnabled": False,
        "DeliveryRetryAttempts": 3,
        "DeliveryRetryInterval": 30,
        "SubscriptionRemovalAction": 4,
        "SubscriptionRemovalTimeInterval": 2_592_000,
    }


def test_the_capabilities_are_the_limits_of_this_deliverer() -> None:
    assert values(described(destinations=50, name="roof")["capabilities"]) == {
        "InstanceID": "Pillion:CIM_IndicationServiceCapabilities:node-1:roof",
        "ElementName": "roof",
        "FilterCreationEnabledIsSettable": False,
        "DeliveryRetryAttemptsIsSettable": False,
        "DeliveryRetryIntervalIsSettable": False,
        "SubscriptionRemovalActionIsSettable": False,
        "SubscriptionRemovalTimeIntervalIsSettable": False,
        "MaxListenerDestinations": 50,
        "MaxActiveSubscriptions": None,
        "SubscriptionsPersisted": True,
    }


@pytest.mark.parametrize(
    ("durability", "written", "attempts", "interval"),
    [
        (Durability.DISK, {}, None, 30),
        (Durability.STATE_ONLY, {}, 3, 30),
        (Durability.DISK, {"delivery_retry_interval_seconds": 5.0}, 3, 5),
        (Durability.MEMORY, {"delivery_retry_attempts": 0}, 0, 30),
    ],
)
def test_the_retry_is_that_of_destinations_that_write_none(
    durability: Durability, written: dict[str, Any], attempts: int | None, interval: int
) -> None:
    found = values(described(durability=durability, **written)["service"])
    assert found["DeliveryRetryAttempts"] == attempts
    assert found["DeliveryRetryInterval"] == interval


@pytest.mark.parametrize(
    ("action", "number"),
    [(RemovalAction.REMOVE, 2), (RemovalAction.DISABLE, 3), (RemovalAction.IGNORE, 4)],
)
def test_the_removal_action_is_a_number_of_the_schema(action: RemovalAction, number: int) -> None:
    found = values(
        described(
            subscription_removal_action=action,
            subscription_removal_time_interval_seconds=60.0,
        )["service"]
    )
    assert found["SubscriptionRemovalAction"] == number
    assert found["SubscriptionRemovalTimeInterval"] == 60


@pytest.mark.parametrize("name", ["service", "capabilities"])
def test_the_properties_and_their_types_are_the_schemas(name: str) -> None:
    instance = described()[name]
    assert set(instance) == {"class", "properties"}
    declared = extend(SCHEMA, parse_mof(MOF))
    own = declared.get(instance["class"])
    assert own is not None
    # Every one that this page of the schema has, and a type that agrees with it.
    assert set(instance["properties"]) == set(own.types)
    read = decode_instance(instance, schema=declared)
    assert {name: own.types[name] for name in read.values} == dict(read.types)


@pytest.mark.parametrize("name", ["service", "capabilities"])
def test_the_instances_can_be_read_without_a_declaration(name: str) -> None:
    instance = described()[name]
    read = decode_instance(instance, schema=SCHEMA)
    assert read.class_name == instance["class"]
    assert dict(read.values) == values(instance)
