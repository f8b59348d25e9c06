"""Columns are judged on the driver, by name and type."""

import pytest
from pyspark.sql import types as T

from generate_spark_classes import FILE, classes_text
from pyspark_pillion.columns import column_problems, property_problems, required_problems

STATED = T.StructType([T.StructField("type", T.StringType()), T.StructField("value", T.LongType())])


def problem(name: str, kind: T.DataType, class_name: str = "CIM_AlertIndication") -> str:
    return "; ".join(property_problems(name, kind, class_name=class_name))


def schema(**fields: T.DataType) -> T.StructType:
    return T.StructType([T.StructField(name, kind) for name, kind in fields.items()])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("PerceivedSeverity", T.IntegerType()),
        ("PerceivedSeverity", T.DecimalType(5, 0)),
        ("SequenceNumber", T.LongType()),
        ("EventTime", T.TimestampType()),
        ("EventTime", T.StringType()),
        ("EventID", T.StringType()),
        ("RecommendedActions", T.ArrayType(T.StringType())),
        ("EventID", T.NullType()),
        ("perceivedseverity", T.IntegerType()),
        ("SomethingNew", STATED),
        ("AlertType", STATED),
        ("expires", T.TimestampType()),
        ("group", T.StringType()),
    ],
)
def test_types_that_fit_are_let_through(name: str, kind: T.DataType) -> None:
    assert problem(name, kind) == ""


@pytest.mark.parametrize(
    ("name", "kind", "remedy"),
    [
        ("PerceivedSeverity", T.DoubleType(), 'its CIM type uint16: use .cast("int")'),
        ("PerceivedSeverity", T.StringType(), '.cast("int")'),
        ("PerceivedSeverity", T.DecimalType(5, 1), '.cast("int")'),
        ("EventTime", T.LongType(), '.cast("timestamp")'),
        ("EventTime", T.DateType(), '.cast("timestamp")'),
        ("EventTime", T.TimestampNTZType(), "no time zone"),
        ("EventID", T.LongType(), '.cast("string")'),
        ("MessageArguments", T.StringType(), '.cast("array<string>")'),
        ("perceivedseverity", T.StringType(), '.cast("int")'),
        ("Anything", T.BinaryType(), "make it text"),
        ("Anything", T.MapType(T.StringType(), T.StringType()), "make it text"),
        ("Anything", T.ArrayType(T.TimestampType()), "plain values"),
        ("Anything", T.ArrayType(T.BinaryType()), "make it text"),
        ("A", T.StructType([T.StructField("t", T.TimestampType())]), "inside a struct"),
        ("A", T.StructType([T.StructField("t", T.BinaryType())]), "make it text"),
        ("expires", T.LongType(), "RFC 3339"),
        ("group", T.LongType(), "has to be text"),
    ],
)
def test_types_that_do_not_fit_are_refused_with_the_remedy(
    name: str, kind: T.DataType, remedy: str
) -> None:
    found = problem(name, kind)
    assert found.startswith(f"{name} is {kind.simpleString()}")
    assert remedy in found


def test_other_classes_are_left_to_the_deliverer() -> None:
    assert problem("PerceivedSeverity", T.DoubleType(), "ACME_Alert") == ""
    assert problem("EventTime", T.TimestampNTZType(), "ACME_Alert") != ""


def test_every_problem_of_the_columns_is_told() -> None:
    found = column_problems(
        schema(EventID=T.LongType(), eventid=T.StringType(), b=T.BinaryType()),
        class_name="CIM_AlertIndication",
        columns={"absent": "Trending"},
    )

    assert len(found) == 7
    assert "'absent'" in found[0]
    assert "two columns stand for 'eventid'" in found[1]
    assert found[-1] == "ProbableCause is missing: CIM_AlertIndication requires it, as uint16"


def test_a_property_is_judged_by_the_name_it_is_given() -> None:
    kinds = schema(gust=T.DoubleType())
    found = column_problems(kinds, class_name="CIM_AlertIndication", columns={"gust": "Trending"})

    assert found[0].startswith("Trending is double")


def test_rows_without_columns_are_refused() -> None:
    assert column_problems(schema(), class_name="C", columns={}) == ["the rows have no columns"]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("PercievedSeverity", "did you mean PerceivedSeverity? Else state its type"),
        ("Speed", "state its type"),
    ],
)
def test_a_property_that_the_class_does_not_have_is_refused(name: str, meant: str) -> None:
    found = problem(name, T.LongType())
    assert found.startswith(f"{name} is no property of CIM_AlertIndication: {meant}")


def test_types_of_every_class_of_the_schema_are_known() -> None:
    assert problem("PreviousInstance", T.StringType(), "CIM_InstModification") != ""
    made = T.StructType([T.StructField("class", T.StringType())])
    assert problem("PreviousInstance", made, "cim_instmodification") == ""


def test_required_properties_and_misspelt_classes_are_told() -> None:
    given = ["alerttype", "PerceivedSeverity"]
    (missing,) = required_problems(given, class_name="CIM_AlertIndication")
    assert missing.startswith("ProbableCause is missing")
    assert required_problems([], class_name="CIM_AlertIndicaton") == [
        "the class CIM_AlertIndicaton is not known: did you mean CIM_AlertIndication?"
    ]
    assert required_problems([], class_name="ACME_AlertIndication") == []


def test_the_classes_of_the_driver_are_those_of_the_deliverers_schema() -> None:
    assert FILE.read_text(encoding="utf-8") == classes_text()
