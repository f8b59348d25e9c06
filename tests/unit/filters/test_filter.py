"""What the two query languages mean, by tables (D.4)."""

import pytest

from pillion_cim.datetimes import CIMDateTime
from pillion_cim.filters import Filter, compile_filter, without_list
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMValue
from pillion_cim.schema import load_schema
from support.filter_schema import small_schema

SCHEMA = small_schema()
SYSTEM = CIMInstance("CIM_ComputerSystem", {"Name": "db1", "HealthState": 25, "Caption": None})


def alert(**values: CIMValue) -> CIMInstance:
    types = SCHEMA.get("CIM_AlertIndication")
    assert types is not None
    return CIMInstance("CIM_AlertIndication", values, types.types)


ALERT = alert(
    EventID="disk-1",
    AlertType=5,
    PerceivedSeverity=6,
    Message="it's a C:\\ disk",
    CorrelatedIndications=("a", None, "c"),
    Numbers=(),
    Total=18446744073709551615,
    SequenceNumber=-1,
    Reading=1.5,
    Active=True,
    Source=CIMInstanceName("CIM_ComputerSystem", {"Name": "db1"}),
    IndicationTime=CIMDateTime("20260301120000.000000+060"),
)
MODIFICATION = CIMInstance("CIM_InstModification", {"SourceInstance": SYSTEM})


def compiled(where: str, *, language: str = "DMTF:CQL", of: str = "CIM_AlertIndication") -> Filter:
    return compile_filter(f"SELECT * FROM {of} WHERE {where}", language=language, schema=SCHEMA)


BOTH = [
    ("AlertType = 5", True),
    ("5 = AlertType", True),
    ("AlertType <> 5", False),
    ("AlertType != 5", False),
    ("AlertType < 6", True),
    ("6 > AlertType", True),
    ("6 < AlertType", False),
    ("AlertType >= 5 AND AlertType <= 5", True),
    ("5 <= AlertType AND 5 >= AlertType", True),
    ("alerttype = 5 and ALERTTYPE = 5", True),
    ("AlertType = PerceivedSeverity", False),
    ("AlertType = 1 OR AlertType = 2 OR AlertType = 5", True),
    ("NOT AlertType = 5", False),
    ("NOT NOT AlertType = 5", True),
    ("AlertType = 1 AND AlertType = 2 OR AlertType = 5", True),
    ("AlertType = 1 AND (AlertType = 2 OR AlertType = 5)", False),
    ("NOT AlertType = 1 AND AlertType = 2", False),
    ("NOT (AlertType = 1 AND AlertType = 2)", True),
    ("Total > SequenceNumber", True),
    ("Total = 18446744073709551615", True),
    ("Total = 18446744073709551615.0", False),
    ("SequenceNumber = -1", True),
    ("Reading = 1.5", True),
    ("Reading > 1", True),
    ("Reading < 15e-1", False),
    ("AlertType < 5.5", True),
    ("Active = TRUE", True),
    ("Active <> true", False),
    ("Active", True),
    ("NOT Active", False),
    ("Active IS TRUE", True),
    ("Active IS NOT TRUE", False),
    ("(AlertType = 1) IS FALSE", True),
    ("AlertType = 1 IS NOT FALSE", False),
    ("EventID = 'disk-1'", True),
    ("EventID = 'DISK-1'", False),
    ("EventID < 'disk-2'", True),
    ("Message = 'it''s a C:\\\\ disk'", None),
    ("EventID IS NULL", False),
    ("EventID IS NOT NULL", True),
    ("IndicationIdentifier IS NULL", True),
    ("IndicationIdentifier = 'x'", None),
    ("IndicationIdentifier <> 'x'", None),
    ("NOT IndicationIdentifier = 'x'", None),
    ("IndicationIdentifier = IndicationIdentifier", None),
    ("IndicationIdentifier = 'x' IS TRUE", False),
    ("IndicationIdentifier = 'x' IS NOT TRUE", True),
    ("IndicationIdentifier = 'x' OR AlertType = 5", True),
    ("IndicationIdentifier = 'x' OR AlertType = 1", None),
    ("IndicationIdentifier = 'x' AND AlertType = 5", None),
    ("IndicationIdentifier = 'x' AND AlertType = 1", False),
    ("IndicationIdentifier LIKE 'x'", None),
    ("EventID LIKE 'disk-.*'", True),
    ("EventID LIKE 'disk'", False),
    ("EventID NOT LIKE 'disk'", True),
    ("EventID LIKE 'cpu-1|disk-1'", True),
    ("CIM_AlertIndication ISA CIM_Indication", True),
    ("CIM_AlertIndication ISA CIM_ThresholdIndication", False),
    ("CIM_AlertIndication.AlertType = 5", True),
    ("Source ISA CIM_ManagedElement", True),
    ("Source IS NOT NULL", True),
    ("1 = 1", True),
    ("TRUE = FALSE", False),
    ("'a' < 'b'", True),
    ("TRUE", True),
]


@pytest.mark.parametrize("language", ["WQL", "DMTF:CQL"])
@pytest.mark.parametrize(("where", "expected"), BOTH)
def test_both_languages_agree(where: str, expected: bool | None, language: str) -> None:
    if where.startswith("Message"):  # the backslash is what they differ in
        expected = language == "DMTF:CQL"
    assert compiled(where, language=language).evaluate(ALERT) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ('EventID = "disk-1"', True),
        ('EventID = "disk-""1"', False),
        ('Message = "it\'s a C:\\ disk"', True),
        ("Message LIKE 'it''s a C:\\\\ .*'", True),
        ('CIM_AlertIndication ISA "CIM_Indication"', True),
    ],
)
def test_wql_alone(where: str, expected: bool | None) -> None:
    assert compiled(where, language="WQL").evaluate(ALERT) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("Message = 'it\\'s a C:\\\\ disk'", True),
        ("Message LIKE 'it\\'s a C:\\\\ .*'", True),
        ("Message LIKE 'it''s a C:\\\\ .*'", True),
        ("AlertType = 0x5", True),
        ("CIM_AlertIndication::AlertType = 5", True),
        ("CIM_ThresholdIndication::AlertType = 5", None),
        ("CorrelatedIndications[0] = 'a'", True),
        ("CorrelatedIndications[1] = 'a'", None),
        ("CorrelatedIndications[9] = 'a'", None),
        ("ANY CorrelatedIndications = 'c'", True),
        ("ANY CorrelatedIndications = 'b'", None),
        ("ANY CorrelatedIndications LIKE 'c|d'", True),
        ("EVERY CorrelatedIndications <> 'a'", False),
        ("EVERY CorrelatedIndications <> 'z'", None),
        ("ANY Numbers = 1", False),
        ("EVERY Numbers = 1", True),
        ("CLASSNAME(CIM_AlertIndication) = 'CIM_AlertIndication'", True),
        ("CLASSNAME(Source) = 'CIM_ComputerSystem'", True),
        ("UPPERCASE(EventID) = 'DISK-1'", True),
        ("lowercase(UPPERCASE(EventID)) LIKE 'disk.*'", True),
        ("UPPERCASE(IndicationIdentifier) = 'X'", None),
    ],
)
def test_cql_alone(where: str, expected: bool | None) -> None:
    assert compiled(where).evaluate(ALERT) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("IndicationTime = DATETIME('20260301110000.000000+000')", True),
        ("IndicationTime = '20260301110000.000000+000'", True),
        ("'20260301110000.000000+000' < IndicationTime", False),
        ("IndicationTime > '20260301105959.999999+000'", True),
        ("IndicationTime > '20260301115900.000000+000'", False),
        # An interval and a point in time have no order.
        ("IndicationTime > '00000001000000.000000:000'", None),
    ],
)
def test_datetimes_are_points_in_time(where: str, expected: bool | None) -> None:
    assert compiled(where).evaluate(ALERT) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("SourceInstance.Name = 'db1'", True),
        ("SourceInstance.NAME = 'db1'", True),
        ("SourceInstance.HealthState >= 20 AND SourceInstance.HealthState < 30", True),
        ("SourceInstance.Caption = 'x'", None),
        ("SourceInstance.Name.Deeper = 'x'", None),
        ("SourceInstance.Nothing IS NULL", True),
        # Its class is known only now, so types are compared now.
        ("SourceInstance.Name = 1", None),
        ("SourceInstance.HealthState = '25'", None),
        ("SourceInstance.HealthState = TRUE", None),
        ("SourceInstance ISA CIM_ManagedElement", True),
        ("SourceInstance ISA CIM_Indication", False),
        ("SourceInstance IS NULL", False),
        ("CIM_InstIndication.SourceInstance.Name = 'db1'", True),
    ],
)
@pytest.mark.parametrize("language", ["WQL", "DMTF:CQL"])
def test_dots_lead_into_embedded_instances(
    where: str, expected: bool | None, language: str
) -> None:
    made = compiled(where, language=language, of="CIM_InstIndication")
    assert made.evaluate(MODIFICATION) is expected


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        ("i.SourceInstance.CIM_ComputerSystem::HealthState = 25", True),
        ("i.SourceInstance.CIM_Indication::PerceivedSeverity = 25", None),
        ("i ISA CIM_InstModification", True),
        ("CLASSNAME(i.SourceInstance) = 'CIM_ComputerSystem'", True),
        ("i.SourceInstance.Name[0] = 'd'", None),
    ],
)
@pytest.mark.parametrize("word", ["", "AS"])
def test_an_alias_stands_for_the_indication(where: str, expected: bool | None, word: str) -> None:
    made = compiled(where, of=f"CIM_InstIndication {word} i")
    assert made.evaluate(MODIFICATION) is expected


def test_a_datetime_with_fields_that_nobody_knows_is_neither_before_nor_after() -> None:
    vague = alert(IndicationTime=CIMDateTime("20260301******.******+000"))
    assert compiled("IndicationTime > '20260228000000.000000+000'").evaluate(vague) is None


def test_an_embedded_instance_that_is_null_makes_everything_unknown() -> None:
    nothing = CIMInstance("CIM_InstModification", {"SourceInstance": None})
    for where in ("SourceInstance.Name = 'db1'", "SourceInstance ISA CIM_ComputerSystem"):
        assert compiled(where, of="CIM_InstIndication").evaluate(nothing) is None


@pytest.mark.parametrize(
    ("text", "pattern", "expected"),
    [
        # The golden answers of OpenPegasus's CQL.
        ("abcdefg", "abcd", False),
        ("abcdefg", ".*", True),
        ("abcdefg", "abcd.*", True),
        ("abcdefg", "ab*cdefg", True),
        ("acdefg", "ab*cdefg", True),
        ("abbbcdefg", "ab*cdefg", True),
        ("a.c", "a\\.c", True),
        ("abc", "a\\.c", False),
    ],
)
def test_like_matches_the_whole_text(text: str, pattern: str, expected: bool) -> None:
    assert compiled(f"'{text}' LIKE '{pattern}'").evaluate(ALERT) is expected


def test_only_true_matches() -> None:
    unknown = compiled("IndicationIdentifier = 'x'")
    assert unknown.evaluate(ALERT) is None
    assert not unknown.matches(ALERT)
    assert compiled("AlertType = 5").matches(ALERT)


def test_a_filter_selects_its_class_and_subclasses() -> None:
    made = compile_filter("SELECT * FROM cim_alertindication", language="WQL", schema=SCHEMA)
    assert made.class_names == ("cim_alertindication",)
    assert made.selects("CIM_AlertIndication")
    assert made.selects("CIM_THRESHOLDIndication")
    assert not made.selects("CIM_Indication")
    assert not made.selects("Acme_Unheard")
    assert not made.has_condition
    assert made.condition(MODIFICATION) is True
    assert made.evaluate(MODIFICATION) is False
    assert not made.matches(MODIFICATION)
    assert made.matches(ALERT)


def test_another_class_does_not_match_whatever_its_properties() -> None:
    made = compiled("PerceivedSeverity = 6")
    other = CIMInstance("CIM_InstModification", {"PerceivedSeverity": 6})
    assert made.condition(other) is True
    assert made.evaluate(other) is False
    assert not made.matches(other)


def test_a_class_that_nobody_knows_is_only_itself_and_is_checked_as_it_comes() -> None:
    made = compiled("Speed > 3 AND name = 'x'", of="Acme_Fan")
    assert made.matches(CIMInstance("ACME_Fan", {"speed": 4, "NAME": "x"}))
    assert made.evaluate(CIMInstance("Acme_Fan", {"Speed": "4", "Name": "x"})) is None
    assert not made.matches(CIMInstance("Acme_FastFan", {"Speed": 4, "Name": "x"}))


def test_the_tests_of_classes_take_bounded_memory() -> None:
    made = compile_filter("SELECT * FROM CIM_AlertIndication", language="WQL", schema=SCHEMA)
    assert not any(made.selects(f"Acme_{number}") for number in range(3000))
    assert len(made._class_test) <= 1024


def test_a_value_of_another_type_than_the_class_says_is_unknown() -> None:
    assert compiled("AlertType > 1").evaluate(alert(AlertType="5")) is None
    assert compiled("AlertType = 1").evaluate(alert(AlertType=True)) is None
    assert compiled("Active = TRUE").evaluate(alert(Active=1)) is None
    assert compiled("EventID = '5'").evaluate(alert(EventID=5)) is None
    assert compiled("Active").evaluate(alert(Active=1)) is None


def test_a_property_spelled_otherwise_is_found() -> None:
    spelled = CIMInstance("CIM_AlertIndication", {"ALERTTYPE": 5})
    assert compiled("AlertType = 5").matches(spelled)


@pytest.mark.parametrize("language", ["WQL", "wql", "DMTF:CQL", "CIM:CQL", "dmtf:cql"])
def test_languages_go_by_the_names_that_peers_use(language: str) -> None:
    assert compiled("AlertType = 5", language=language).matches(ALERT)


@pytest.mark.parametrize(
    ("selected", "expected"),
    [
        ("*", None),
        ("CIM_AlertIndication.*", None),
        ("eventid, CIM_AlertIndication.AlertType", ("EventID", "AlertType")),
    ],
)
def test_the_properties_that_are_selected_are_told(
    selected: str, expected: tuple[str, ...] | None
) -> None:
    query = f"SELECT {selected} FROM CIM_AlertIndication"
    assert compile_filter(query, language="WQL", schema=SCHEMA).properties == expected


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("select EventID,AlertType from C where x = 1", "select * from C where x = 1"),
        ("SELECT a.EventID\nFROM C a", "SELECT * FROM C a"),
        ("SELECT * FROM C", "SELECT * FROM C"),
        ("SELECT a.* FROM C a", "SELECT a.* FROM C a"),
    ],
)
def test_a_list_is_taken_out_of_a_query(query: str, expected: str) -> None:
    assert without_list(query, language="DMTF:CQL") == expected


def test_the_packaged_classes_serve() -> None:
    made = compile_filter(
        "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity >= 5 AND ProbableCause <> 52",
        language="DMTF:CQL",
        schema=load_schema(),
    )
    assert made.selects("CIM_ThresholdIndication")
    assert made.matches(
        CIMInstance("CIM_AlertIndication", {"PerceivedSeverity": 6, "ProbableCause": 1})
    )


def test_a_long_chain_is_not_deep() -> None:
    where = " OR ".join(["AlertType=1"] * 500 + ["AlertType=5"])
    assert compiled(where).matches(ALERT)
