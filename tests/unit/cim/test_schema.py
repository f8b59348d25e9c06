"""The packaged schema."""

import json
from pathlib import Path

import pytest

import make_cim_schema
from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import CIMType, EmbeddedObject, PropertyType, check_scalar
from pillion_cim.schema import Schema, build_schema, load_schema


@pytest.fixture(scope="module")
def schema() -> Schema:
    return load_schema()


def test_every_indication_class_of_2_49_is_there(schema: Schema) -> None:
    concrete = {found.name for found in schema if schema.is_a(found.name, "CIM_Indication")}
    assert len(concrete) == 11
    assert {"CIM_AlertIndication", "CIM_ThresholdIndication", "CIM_InstModification"} <= concrete


def test_names_are_found_in_any_case_and_given_back_as_the_schema_spells_them(
    schema: Schema,
) -> None:
    found = schema.get("cim_ALERTindication")
    assert found is not None
    assert found.name == "CIM_AlertIndication"
    assert found.spelling("PROBABLEcause") == "ProbableCause"
    assert found.spelling("Nonsense") is None
    assert schema.spelling("sourceinstance") == "SourceInstance"
    assert schema.get("CIM_Nonsense") is None


def test_descent_is_told_without_regard_to_case(schema: Schema) -> None:
    assert schema.is_a("cim_thresholdindication", "CIM_INDICATION")
    assert schema.is_a("Acme_Alert", "acme_alert")
    assert not schema.is_a("CIM_Indication", "CIM_AlertIndication")
    assert not schema.is_a("Acme_Alert", "CIM_Indication")


def test_an_alert_has_its_own_and_inherited_properties(schema: Schema) -> None:
    alert = schema.get("CIM_AlertIndication")
    assert alert is not None
    assert alert.required == {"AlertType", "PerceivedSeverity", "ProbableCause"}
    assert not alert.abstract
    assert alert.types["SequenceNumber"] == PropertyType(CIMType.SINT64)
    assert alert.types["MessageArguments"] == PropertyType(CIMType.STRING, is_array=True)
    assert alert.value_names["ProbableCause"]["52"] == "Threshold Crossed"
    assert len(alert.value_names["ProbableCause"]) == 131


def test_embedded_objects_and_abstract_classes_are_told(schema: Schema) -> None:
    created = schema.get("CIM_InstCreation")
    assert created is not None
    expected = PropertyType(CIMType.STRING, embedded=EmbeddedObject.OBJECT)
    assert created.types["SourceInstance"] == expected
    assert {found.name for found in schema if found.abstract} == {
        "CIM_Indication",
        "CIM_ProcessIndication",
        "CIM_InstIndication",
    }


LISTING = """
## CIM_Indication : None version=2.24.0 quals=['Indication', 'Abstract']
- Level : uint16 default=None origin=CIM_Indication [] {0=Unknown, 1=Low, or lower, ..=Reserved}

## CIM_Odd : CIM_Indication version=1.0.0 quals=['Indication']
- Level : uint16 default=None origin=CIM_Indication ['Required', 'Override'] {0=Unknown}
- Part : string[] default=None origin=CIM_Odd ['EmbeddedObject'] maxlen=64

## CIM_Other : CIM_Thing version=1.0.0 quals=[]
- Name : string default=None origin=CIM_Other ['Key'] maxlen=256
"""


def test_the_tool_reads_a_listing_and_keeps_what_differs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    listing = tmp_path / "listing.txt"
    listing.write_text(LISTING)
    make_cim_schema.main(str(listing))
    schema = build_schema(json.loads(capsys.readouterr().out))
    odd, base = schema.get("CIM_Odd"), schema.get("CIM_Indication")
    assert odd is not None
    assert base is not None
    assert schema.get("CIM_Other") is None
    assert base.value_names["Level"]["1"] == "Low, or lower"
    assert odd.required == {"Level"}
    assert odd.types["Part"].embedded is EmbeddedObject.OBJECT


@pytest.mark.parametrize(
    ("value", "property_type"),
    [
        (256, PropertyType(CIMType.UINT8)),
        (-1, PropertyType(CIMType.UINT64)),
        (2**63, PropertyType(CIMType.SINT64)),
        (True, PropertyType(CIMType.UINT16)),
        (1, PropertyType(CIMType.BOOLEAN)),
        (1, PropertyType(CIMType.REAL64)),
        (1e39, PropertyType(CIMType.REAL32)),
        ("\x00", PropertyType(CIMType.STRING)),
        ("\ud800", PropertyType(CIMType.STRING)),
        ("\uffff", PropertyType(CIMType.STRING)),
        (3, PropertyType(CIMType.STRING)),
        ("ab", PropertyType(CIMType.CHAR16)),
        ("😀", PropertyType(CIMType.CHAR16)),
        ("20261121133000.000000+000", PropertyType(CIMType.DATETIME)),
        ("x", PropertyType(CIMType.REFERENCE)),
        ("x", PropertyType(CIMType.STRING, embedded=EmbeddedObject.OBJECT)),
    ],
)
def test_a_value_of_another_type_is_refused(value: object, property_type: PropertyType) -> None:
    with pytest.raises(ValueError, match=r"."):
        check_scalar(value, property_type)  # type: ignore[arg-type]


def test_null_and_values_at_the_ends_of_a_range_are_valid() -> None:
    check_scalar(None, PropertyType(CIMType.UINT8))
    check_scalar("a\tb\r\n", PropertyType(CIMType.STRING))
    check_scalar(2**64 - 1, PropertyType(CIMType.UINT64))
    check_scalar(-(2**63), PropertyType(CIMType.SINT64))
    check_scalar(CIMDateTime("00000001060000.000000:000"), PropertyType(CIMType.DATETIME))
