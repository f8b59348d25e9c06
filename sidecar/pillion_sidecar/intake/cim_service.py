"""The deliverer's IndicationService and its capabilities as CIM instances (DSP1054, D.3).

Names and types of the properties are those of the CIM schema 2.49. That schema's services are not
among the packaged classes, so each value states its type.
"""

from typing import Any

from pillion_cim.jsonform import encode_instance
from pillion_cim.model import CIMInstance, CIMType, CIMValue, PropertyType
from pillion_cim.schema import Schema
from pillion_sidecar.config.durability import assumed_retry
from pillion_sidecar.config.resolving import written_retry
from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.service import Durability, IndicationService

_STRING = PropertyType(CIMType.STRING)
_BOOLEAN = PropertyType(CIMType.BOOLEAN)
_UINT16 = PropertyType(CIMType.UINT16)
_UINT32 = PropertyType(CIMType.UINT32)

SERVICE = "CIM_IndicationService"
CAPABILITIES = "CIM_IndicationServiceCapabilities"
_SERVICE_TYPES = {
    "SystemCreationClassName": _STRING,
    "SystemName": _STRING,
    "CreationClassName": _STRING,
    "Name": _STRING,
    "ElementName": _STRING,
    "FilterCreationEnabled": _BOOLEAN,
    "DeliveryRetryAttempts": _UINT16,
    "DeliveryRetryInterval": _UINT32,
    "SubscriptionRemovalAction": _UINT16,
    "SubscriptionRemovalTimeInterval": _UINT32,
}
_CAPABILITIES_TYPES = {
    "InstanceID": _STRING,
    "ElementName": _STRING,
    "FilterCreationEnabledIsSettable": _BOOLEAN,
    "DeliveryRetryAttemptsIsSettable": _BOOLEAN,
    "DeliveryRetryIntervalIsSettable": _BOOLEAN,
    "SubscriptionRemovalActionIsSettable": _BOOLEAN,
    "SubscriptionRemovalTimeIntervalIsSettable": _BOOLEAN,
    "MaxListenerDestinations": _UINT32,
    "MaxActiveSubscriptions": _UINT32,
    "SubscriptionsPersisted": _BOOLEAN,
}
_REMOVAL_ACTIONS = {RemovalAction.REMOVE: 2, RemovalAction.DISABLE: 3, RemovalAction.IGNORE: 4}


def service_document(
    service: IndicationService,
    *,
    durability: Durability,
    maximum_destinations: int,
    system: str,
    schema: Schema,
) -> dict[str, Any]:
    """Return both instances in the JSON form. ``system`` is the name of the host."""
    instances = {
        "service": _service(service, durability=durability, system=system),
        "capabilities": _capabilities(
            service, maximum_destinations=maximum_destinations, system=system
        ),
    }
    return {name: encode_instance(one, schema=schema) for name, one in instances.items()}


def _service(service: IndicationService, *, durability: Durability, system: str) -> CIMInstance:
    written = written_retry(
        {},
        attempts=service.delivery_retry_attempts,
        interval_seconds=service.delivery_retry_interval_seconds,
    )
    retry = written or assumed_retry(durability)
    values: dict[str, CIMValue] = {
        "SystemCreationClassName": "CIM_ComputerSystem",
        "SystemName": system,
        "CreationClassName": SERVICE,
        "Name": service.name,
        "ElementName": service.name,
        # Filters are resources: no CIM client creates one.
        "FilterCreationEnabled": False,
        # NULL: no limit.
        "DeliveryRetryAttempts": retry.attempts,
        "DeliveryRetryInterval": int(retry.interval_seconds),
        "SubscriptionRemovalAction": _REMOVAL_ACTIONS[service.subscription_removal_action],
        "SubscriptionRemovalTimeInterval": int(service.subscription_removal_time_interval_seconds),
    }
    return CIMInstance(SERVICE, values, _SERVICE_TYPES)


def _capabilities(
    service: IndicationService, *, maximum_destinations: int, system: str
) -> CIMInstance:
    values: dict[str, CIMValue] = {
        "InstanceID": f"Pillion:{CAPABILITIES}:{system}:{service.name}",
        "ElementName": service.name,
        # Settings are resources: no CIM client sets one.
        "FilterCreationEnabledIsSettable": False,
        "DeliveryRetryAttemptsIsSettable": False,
        "DeliveryRetryIntervalIsSettable": False,
        "SubscriptionRemovalActionIsSettable": False,
        "SubscriptionRemovalTimeIntervalIsSettable": False,
        "MaxListenerDestinations": maximum_destinations,
        # NULL: no limit of their number.
        "MaxActiveSubscriptions": None,
        # They are resources, which outlive the deliverer.
        "SubscriptionsPersisted": True,
    }
    return CIMInstance(CAPABILITIES, values, _CAPABILITIES_TYPES)
