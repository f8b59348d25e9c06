"""The typed JSON form: what is taken, and what is said of what is not."""

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.jsonform import InstanceError, decode_instance, encode_instance
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMType, EmbeddedObject, PropertyType
from pillion_cim.schema import load_schema
from support.cim import ALERT, instances

SCHEMA = load_schema()


def alert(**properties: Any) -> dict[str, Any]:
    return {"class": "CIM_AlertIndication", "properties": {**ALERT, **properties}}


def problems(obj: dict[str, Any], *, complete: bool = True) -> dict[str, str]:
    """Every problem's message and remedy, by field."""
    with pytest.raises(InstanceError) as refusal:
        decode_instance(obj, schema=SCHEMA, complete=complete)
    found = {one.field: f"{one.message}; {one.remedy}" for one in refusal.value.problems}
    assert len(found) == len(refusal.value.problems)
    return found


def test_types_come_from_the_class() -> None:
    instance = decode_instance(
        alert(Message="gust", EventTime="20130101060000.000000+000", MessageArguments=["a", "b"]),
        schema=SCHEMA,
    )
    assert instance.class_name == "CIM_AlertIndication"
    assert instance.get("alerttype") == 5
    assert instance.get("EventTime") == CIMDateTime("20130101060000.000000+000")
    assert instance.get("MessageArguments") == ("a", "b")
    known = SCHEMA.get("CIM_AlertIndication")
    assert known is not None
    assert instance.types is known.types


def test_names_are_spelled_as_the_schema_spells_them() -> None:
    obj = {
        "class": "cim_alertINDICATION",
        "properties": {"ALERTTYPE": 1, "perceivedseverity": 2, "probablecause": 3},
    }
    instance = decode_instance(obj, schema=SCHEMA)
    assert instance.class_name == "CIM_AlertIndication"
    assert set(instance.values) == {"AlertType", "PerceivedSeverity", "ProbableCause"}


def test_the_given_object_is_not_shared_with_the_instance() -> None:
    obj = alert(Message="before")
    instance = decode_instance(obj, schema=SCHEMA)
    obj["properties"]["Message"] = "after"
    assert instance.get("Message") == "before"


def test_a_type_can_be_stated() -> None:
    instance = decode_instance(
        alert(
            Gust={"type": "real32", "value": 41.5},
            Station={"type": "string", "value": "JFK"},
            Readings={"type": "uint16", "value": [1, None, 3]},
            Nothing={"type": "uint8", "array": True, "value": None},
            Empty={"type": "string", "array": True, "value": []},
            AlertType={"type": "uint16", "value": 2},
        ),
        schema=SCHEMA,
    )
    assert instance.get("Gust") == 41.5
    assert instance.get("Readings") == (1, None, 3)
    assert instance.get("Empty") == ()
    assert instance.types["Nothing"] == PropertyType(CIMType.UINT8, is_array=True)
    assert instance.types["Station"] == PropertyType(CIMType.STRING)
    assert instance.get("AlertType") == 2


def test_an_unknown_class_travels_with_stated_types() -> None:
    obj = {"class": "Acme_Alert", "properties": {"Level": {"type": "sint8", "value": -3}}}
    instance = decode_instance(obj, schema=SCHEMA)
    assert instance.values == {"Level": -3}
    assert encode_instance(instance, schema=SCHEMA) == obj


def test_rfc_3339_is_taken_for_a_datetime() -> None:
    instance = decode_instance(alert(EventTime="2013-01-01T06:00:00.000Z"), schema=SCHEMA)
    assert instance.get("EventTime") == CIMDateTime("20130101060000.000000+000")
    instance = decode_instance(alert(EventTime="2013-01-01T06:00:00+01:00"), schema=SCHEMA)
    assert instance.get("EventTime") == CIMDateTime("20130101060000.000000+060")


@pytest.mark.parametrize(("text", "value"), [("18446744073709551615", 2**64 - 1), ("0", 0)])
def test_64_bits_are_also_taken_as_decimal_text(text: str, value: int) -> None:
    instance = decode_instance(alert(N={"type": "uint64", "value": text}), schema=SCHEMA)
    assert instance.get("N") == value


def test_the_reals_that_json_lacks_are_text() -> None:
    stated = {"type": "real64", "value": ["NaN", "INF", "-INF", 1]}
    instance = decode_instance(alert(R=stated), schema=SCHEMA)
    value = instance.get("R")
    assert isinstance(value, tuple)
    assert math.isnan(value[0])  # type: ignore[arg-type]
    assert value[1:] == (math.inf, -math.inf, 1.0)
    encoded = encode_instance(instance, schema=SCHEMA)
    assert json.loads(json.dumps(encoded, allow_nan=False))["properties"]["R"]["value"][:3] == [
        "NaN",
        "INF",
        "-INF",
    ]


def test_embedded_instances_and_references_are_taken() -> None:
    disk = {"class": "Acme_Disk", "properties": {"Slot": {"type": "uint8", "value": 3}}}
    path = {"class": "Acme_Disk", "keys": {"Name": "sda", "Slot": 3}, "namespace": "root/acme"}
    obj = {
        "class": "CIM_InstDeletion",
        "properties": {
            "SourceInstance": disk,
            "Where": {"type": "reference", "value": path},
            "Other": {"type": "instance", "value": [disk, None]},
        },
    }
    instance = decode_instance(obj, schema=SCHEMA)
    source = instance.get("SourceInstance")
    assert isinstance(source, CIMInstance)
    assert source.values == {"Slot": 3}
    assert instance.get("Where") == CIMInstanceName(
        "Acme_Disk", {"Name": "sda", "Slot": 3}, "root/acme"
    )
    assert instance.types["Other"] == PropertyType(CIMType.STRING, True, EmbeddedObject.INSTANCE)
    again = decode_instance(encode_instance(instance, schema=SCHEMA), schema=SCHEMA)
    assert again == instance


BAD: list[tuple[dict[str, Any], str, str]] = [
    (alert(AlertType="5"), "properties.AlertType", "integer from 0 to 65535"),
    (alert(AlertType=65536), "properties.AlertType", "out of range"),
    (alert(AlertType=True), "properties.AlertType", "expected an integer"),
    (alert(AlertType=None), "properties.AlertType", "requires it"),
    (alert(AlertType=5.0), "properties.AlertType", "expected an integer"),
    (alert(Message=3), "properties.Message", "expected text"),
    (alert(Message="a\x00b"), "properties.Message", "U+0000 at 1"),
    (alert(Message="\ud800"), "properties.Message", "U+D800"),
    (alert(Message=["a"]), "properties.Message", "expected a string"),
    (alert(Message={"class": "x"}), "properties.Message", "expected a string"),
    (alert(MessageArguments="a"), "properties.MessageArguments", "put the value in [ ]"),
    (alert(MessageArguments=["a", 1]), "properties.MessageArguments[1]", "expected text"),
    (alert(EventTime="yesterday"), "properties.EventTime", "RFC 3339"),
    (alert(EventTime="2013-01-01T06:00:00"), "properties.EventTime", "not a datetime"),
    (alert(EventTime="20130230060000.000000+000"), "properties.EventTime", "datetime"),
    (alert(EventTime=1), "properties.EventTime", "not a datetime"),
    (alert(Gust=41), "properties.Gust", "no such property; state its type"),
    (alert(Gust={"type": "real", "value": 1}), "properties.Gust.type", "real32"),
    (alert(Gust={"type": ["real"], "value": 1}), "properties.Gust.type", "not a CIM type"),
    (alert(Gust={"type": "real32"}), "properties.Gust", "without a value"),
    (alert(Gust={"type": "real32", "value": 1e39}), "properties.Gust", "out of range"),
    (alert(Gust={"type": "real64", "value": 10**400}), "properties.Gust", "out of range"),
    (alert(Gust={"type": "real64", "value": math.nan}), "properties.Gust", '"NaN"'),
    (alert(Gust={"type": "uint8", "value": 1, "array": 1}), "properties.Gust.array", "true"),
    (alert(Gust={"type": "uint64", "value": "1e3"}), "properties.Gust", "decimal digits"),
    (alert(Gust={"type": "reference", "value": []}), "properties.Gust", "array of references"),
    (alert(Gust={"type": "instance", "value": "x"}), "properties.Gust", '"properties"'),
    (alert(AlertType={"type": "string", "value": "x"}), "properties.AlertType.type", "uint16"),
    (alert(alerttype=5), "properties.alerttype", "the same property as AlertType"),
    (alert(**{"a<b": 1}), "properties.a<b", "not the name of a property"),
    (alert(**{"": 1}), "properties.", "not the name of a property"),
    (
        alert(R={"type": "reference", "value": {"class": "A"}}),
        "properties.R.keys",
        "not an object",
    ),
    (
        alert(R={"type": "reference", "value": {"class": "A", "keys": {}, "host": "h"}}),
        "properties.R",
        "add the namespace",
    ),
    (
        alert(R={"type": "reference", "value": {"class": "A", "keys": {"k": [1]}}}),
        "properties.R.keys.k",
        "use text, a number",
    ),
    ({"class": "CIM_Indication", "properties": {}}, "class", "abstract"),
    ({"class": "CIM_AlertIndication"}, "properties", "not an object"),
    ({"class": "Acme_Alert", "properties": {"A": 1}}, "class", "name its superclass"),
    (
        {"class": "CIM_AlertIndicaton", "properties": {"AlertType": 5, "ProbableCause": 1}},
        "class",
        "did you mean CIM_AlertIndication? Else name its superclass",
    ),
    (alert(alerttyp=5), "properties.alerttyp", 'AlertType? Else state its type, as {"type": "uint'),
    (alert(Gust=4.5), "properties.Gust", 'state its type, as {"type": "real64", "value": 4.5}'),
    (alert(Gust="x" * 80), "properties.Gust", 'state its type, as {"type": "string", "value": …}'),
    ({"class": 3, "properties": {}}, "class", "not the name of a class"),
    ({"class": "a b", "properties": {}}, "class", "not the name of a class"),
    ({}, "class", "give the class"),
]


@pytest.mark.parametrize(("obj", "field", "words"), BAD)
def test_what_is_wrong_is_told_with_field_and_remedy(
    obj: dict[str, Any], field: str, words: str
) -> None:
    found = problems(obj)
    assert words in found[field]


@pytest.mark.parametrize("missing", ["AlertType", "PerceivedSeverity", "ProbableCause"])
def test_required_properties_must_be_given(missing: str) -> None:
    obj = alert()
    del obj["properties"][missing]
    assert list(problems(obj)) == [f"properties.{missing}"]


def test_all_problems_are_told_at_once() -> None:
    obj = {
        "class": "CIM_AlertIndication",
        "properties": {"AlertType": "x", "EventTime": "y", "Foo": 1},
    }
    assert set(problems(obj)) == {
        "properties.AlertType",
        "properties.EventTime",
        "properties.Foo",
        "properties.PerceivedSeverity",
        "properties.ProbableCause",
    }


def test_the_words_stay_few_however_much_is_wrong() -> None:
    obj = alert(**{f"p{i}" * 500: "x" * 100_000 for i in range(1000)})
    obj["properties"]["Message"] = 10**5000
    with pytest.raises(InstanceError) as refusal:
        decode_instance(obj, schema=SCHEMA)
    assert len(refusal.value.problems) <= 20
    assert len(str(refusal.value)) < 20_000


def test_nesting_is_bounded() -> None:
    inner: dict[str, Any] = {"class": "A", "properties": {}}
    for _ in range(100):
        inner = {"class": "A", "properties": {"P": {"type": "object", "value": inner}}}
    assert "nested deeper" in next(iter(problems(inner).values()))
    path: dict[str, Any] = {"class": "A", "keys": {}}
    for _ in range(100):
        path = {"class": "A", "keys": {"k": path}}
    found = problems(alert(R={"type": "reference", "value": path}))
    assert "nested deeper" in next(iter(found.values()))


def test_what_another_exporter_sent_need_not_be_complete() -> None:
    obj = {"class": "CIM_Indication", "properties": {"SequenceNumber": 3}}
    assert decode_instance(obj, schema=SCHEMA, complete=False).values == {"SequenceNumber": 3}


@given(instances())
def test_an_instance_survives_the_round_trip_through_json(instance: CIMInstance) -> None:
    text = json.dumps(encode_instance(instance, schema=SCHEMA), allow_nan=False)
    again = decode_instance(json.loads(text), schema=SCHEMA)
    assert again == instance
    assert again.types == instance.types


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=30),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(["class", "properties", "type", "value", "array", "keys", "host"])
            | st.text(max_size=5),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)
TYPED = st.fixed_dictionaries({"type": st.sampled_from([*CIMType, *EmbeddedObject]), "value": JSON})


@given(
    st.sampled_from(["CIM_AlertIndication", "CIM_InstCreation", "Acme_X"]),
    st.dictionaries(
        st.sampled_from(["AlertType", "EventTime", "MessageArguments", "SourceInstance", "x"]),
        JSON | TYPED,
    )
    | JSON,
)
def test_whatever_json_it_is_either_an_instance_or_an_instance_error(
    class_name: str, properties: Any
) -> None:
    obj = {"class": class_name, "properties": properties}
    try:
        instance = decode_instance(obj, schema=SCHEMA)
    except InstanceError:
        return
    encoded = encode_instance(instance, schema=SCHEMA)
    json.dumps(encoded, allow_nan=False).encode()
