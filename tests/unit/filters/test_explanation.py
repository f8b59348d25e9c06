"""The values that a WHERE names, of an indication that it does not select."""

from typing import Any

import pytest

from pillion_cim.filters.explanation import compared_values
from pillion_cim.jsonform import decode_instance
from pillion_cim.schema import load_schema

SCHEMA = load_schema()


@pytest.mark.parametrize(
    ("where", "values"),
    [
        ("", {}),
        (" WHERE PerceivedSeverity >= 5", {"PerceivedSeverity": 4}),
        (
            " WHERE NOT (SystemName = 'x' OR 5 < PerceivedSeverity) AND Description LIKE 'a_'",
            {"SystemName": None, "PerceivedSeverity": 4, "Description": "fan"},
        ),
        (
            " WHERE UPPERCASE(Description) = 'FAN' AND SystemName IS NULL",
            {"Description": "fan", "SystemName": None},
        ),
        (
            " WHERE (PerceivedSeverity = 4) IS TRUE AND PerceivedSeverity > 4",
            {"PerceivedSeverity": 4},
        ),
    ],
)
def test_each_property_is_told_once_with_its_value(where: str, values: dict[str, Any]) -> None:
    properties = {"AlertType": 5, "PerceivedSeverity": 4, "ProbableCause": 1, "Description": "fan"}
    alert = {"class": "CIM_AlertIndication", "properties": properties}
    found = compared_values(
        f"SELECT * FROM CIM_AlertIndication{where}",
        language="DMTF:CQL",
        schema=SCHEMA,
        instance=decode_instance(alert, schema=SCHEMA),
    )
    assert found == values
