"""A small class hierarchy to compile filters against."""

from pillion_cim.schema import Schema, build_schema

_CLASSES: tuple[tuple[str, str | None, dict[str, str]], ...] = (
    (
        "CIM_Indication",
        None,
        {
            "IndicationIdentifier": "string",
            "CorrelatedIndications": "string[]",
            "IndicationTime": "datetime",
            "PerceivedSeverity": "uint16",
            "SequenceNumber": "sint64",
        },
    ),
    (
        "CIM_AlertIndication",
        "CIM_Indication",
        {
            "EventID": "string",
            "AlertType": "uint16",
            "Message": "string",
            "Numbers": "uint32[]",
            "Total": "uint64",
            "Reading": "real64",
            "Active": "boolean",
            "Source": "reference",
        },
    ),
    ("CIM_ThresholdIndication", "CIM_AlertIndication", {}),
    ("CIM_InstIndication", "CIM_Indication", {"SourceInstance": "instance"}),
    ("CIM_InstModification", "CIM_InstIndication", {}),
    ("CIM_ManagedElement", None, {"Caption": "string"}),
    ("CIM_ComputerSystem", "CIM_ManagedElement", {"Name": "string", "HealthState": "uint16"}),
)


def small_schema() -> Schema:
    """CIM_Indication, two branches below it, and something to embed."""
    return build_schema(
        {
            "classes": [
                {
                    "name": name,
                    "superclass": superclass,
                    "properties": {key: {"type": text} for key, text in properties.items()},
                }
                for name, superclass, properties in _CLASSES
            ]
        }
    )
