"""Filters and vendors' classes: declared, named in the line, or known to nobody (D.4)."""

import pytest

from pillion_cim.filters import Filter, FilterError, compile_filter
from pillion_cim.jsonform import InstanceError, decode_instance, encode_instance
from pillion_cim.model import CIMInstance
from pillion_cim.mof import parse_mof
from pillion_cim.schema import ClassDeclaration, Schema, extend, load_schema

SCHEMA = load_schema()
VENDOR = "HP_AlertIndication"
DECLARED = extend(
    SCHEMA,
    [
        ClassDeclaration(VENDOR, "CIM_AlertIndication"),
        ClassDeclaration("CIM_LogicalDevice", None),
        ClassDeclaration("CIM_Fan", "CIM_LogicalDevice"),
        *parse_mof("class ACME_Alert : CIM_AlertIndication { uint16 Bay; string Rooms[]; };"),
    ],
)
VALUES = {"AlertType": 5, "PerceivedSeverity": 6, "ProbableCause": 1}


def compiled(query: str, schema: Schema = DECLARED) -> Filter:
    return compile_filter(query, language="DMTF:CQL", schema=schema)


def alert(class_name: str = VENDOR, *, schema: Schema = DECLARED, **more: object) -> CIMInstance:
    line = {"class": class_name, "properties": VALUES, **more}
    return decode_instance(line, schema=schema)


@pytest.mark.parametrize("name", ["CIM_AlertIndication", "CIM_ProcessIndication", VENDOR])
def test_a_declared_class_is_selected_by_the_classes_above_it(name: str) -> None:
    assert compiled(f"SELECT * FROM {name}").matches(alert())
    assert not compiled("SELECT * FROM CIM_InstIndication").matches(alert())


@pytest.mark.parametrize("schema", [SCHEMA, DECLARED])
def test_every_class_is_an_indication(schema: Schema) -> None:
    every = compiled("SELECT * FROM cim_indication WHERE IndicationIdentifier = 'x'", schema)
    nobodys = CIMInstance("ZZ_Nobodys", {"IndicationIdentifier": "x"})
    assert every.selects("ZZ_Nobodys")
    assert every.matches(nobodys)
    assert every.evaluate(nobodys) is True
    assert not every.matches(CIMInstance("ZZ_Nobodys", {"IndicationIdentifier": 3}))


def test_an_embedded_instance_of_any_class_is_no_indication() -> None:
    query = "SELECT * FROM CIM_InstModification WHERE SourceInstance ISA CIM_Indication"
    held = CIMInstance("CIM_InstModification", {"SourceInstance": CIMInstance("ZZ_Disk")})
    assert not compiled(query).matches(held)


def test_isa_knows_declared_classes_and_superclasses_in_a_line() -> None:
    query = "SELECT * FROM CIM_InstModification WHERE SourceInstance ISA CIM_LogicalDevice"
    fan = {"class": "CIM_Fan", "properties": {}}
    named = {"class": "ZZ_Disk", "superclass": "CIM_LogicalDevice", "properties": {}}
    other = {"class": "ZZ_Disk", "properties": {}}
    for source, wanted in ((fan, True), (named, True), (other, False)):
        properties = {"SourceInstance": source, "PreviousInstance": other}
        line = {"class": "CIM_InstModification", "properties": properties}
        assert compiled(query).matches(decode_instance(line, schema=DECLARED)) is wanted


def test_a_superclass_in_a_line_gives_types_and_the_classes_above() -> None:
    instance = alert("ZZ_Alert", schema=SCHEMA, superclass="cim_alertindication")
    assert compiled("SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > 5").matches(
        instance
    )
    assert compiled("SELECT * FROM ZZ_Alert").matches(instance)
    assert not compiled("SELECT * FROM CIM_InstIndication").matches(instance)
    scoped = "SELECT * FROM CIM_Indication WHERE CIM_AlertIndication::PerceivedSeverity = 6"
    assert compiled(scoped).matches(instance)


def test_where_the_service_declares_the_class_it_wins_over_the_line() -> None:
    instance = alert(superclass="CIM_InstIndication")
    assert compiled("SELECT * FROM CIM_AlertIndication").matches(instance)
    assert not compiled("SELECT * FROM CIM_InstIndication").matches(instance)


def test_required_properties_of_the_superclass_are_asked_for() -> None:
    line = {"class": "ZZ_Alert", "superclass": "CIM_AlertIndication", "properties": {}}
    with pytest.raises(InstanceError, match="CIM_AlertIndication requires it"):
        decode_instance(line, schema=SCHEMA)
    abstract = {"class": "ZZ_Any", "superclass": "CIM_Indication", "properties": {}}
    assert decode_instance(abstract, schema=SCHEMA).class_name == "ZZ_Any"


@pytest.mark.parametrize("superclass", [None, 3, "", "no class"])
def test_a_superclass_that_is_no_name_is_refused(superclass: object) -> None:
    with pytest.raises(InstanceError, match="superclass"):
        alert("ZZ_Alert", superclass=superclass)


def test_an_unknown_superclass_is_named_where_types_are_missing() -> None:
    line = {"class": "ZZ_Alert", "superclass": "CIM_Fann", "properties": {"Speed": 3, "Bay": 1}}
    with pytest.raises(InstanceError) as refusal:
        decode_instance(line, schema=SCHEMA)
    # One problem, and not one more for each property.
    (problem,) = refusal.value.problems
    assert (problem.field, problem.value) == ("superclass", "'CIM_Fann'")
    assert problem.message == "no class of that name is known"
    assert problem.remedy.startswith("name one that is known, declare it in the service's classes")
    typed = {**line, "properties": {"Speed": {"type": "uint16", "value": 3}}}
    assert decode_instance(typed, schema=SCHEMA).class_name == "ZZ_Alert"


@pytest.mark.parametrize(
    ("superclass", "near"),
    [
        ("CIM_AlertIndicaton", "CIM_AlertIndication"),
        ("HP_StorageAlertIndication", "CIM_AlertIndication"),
        ("ACME_Alrt", "ACME_Alert"),
    ],
)
def test_the_known_class_nearest_to_an_unknown_superclass_is_named(
    superclass: str, near: str
) -> None:
    line = {"class": "ZZ_Alert", "superclass": superclass, "properties": {"Speed": 3}}
    with pytest.raises(InstanceError) as refusal:
        decode_instance(line, schema=DECLARED)
    (problem,) = refusal.value.problems
    assert problem.remedy.startswith(
        f"did you mean {near}? Else name one that is known, declare it"
    )


def test_a_body_says_the_same_to_whoever_has_no_declaration() -> None:
    for instance in (
        alert(),
        alert("ZZ_Alert", superclass="CIM_AlertIndication"),
        decode_instance(
            {"class": "ACME_Alert", "properties": {**VALUES, "bay": 3, "Rooms": ["a", None]}},
            schema=DECLARED,
        ),
    ):
        body = encode_instance(instance, schema=DECLARED.base)
        again = decode_instance(body, schema=SCHEMA, complete=False)
        assert again.values == instance.values
        assert {name: again.types[name] for name in again.values} == {
            name: instance.types[name] for name in instance.values
        }


def test_mof_gives_types_and_checks_names() -> None:
    line = {"class": "ACME_Alert", "properties": {**VALUES, "Bay": 65_536}}
    with pytest.raises(InstanceError, match="Bay"):
        decode_instance(line, schema=DECLARED)
    assert compiled("SELECT * FROM ACME_Alert WHERE Bay = 3").selects("ACME_Alert")
    with pytest.raises(FilterError, match="ACME_Alert has no property Bey"):
        compiled("SELECT * FROM ACME_Alert WHERE Bey = 3")


def test_a_class_without_declared_properties_may_have_any() -> None:
    query = compiled(f"SELECT * FROM {VENDOR} WHERE HPSerial = 'x' AND PerceivedSeverity = 6")
    line = {
        "class": VENDOR,
        "properties": {**VALUES, "HPSerial": {"type": "string", "value": "x"}},
    }
    assert query.matches(decode_instance(line, schema=DECLARED))
    untyped = {"class": VENDOR, "properties": {**VALUES, "HPSerial": "x"}}
    with pytest.raises(InstanceError, match="state its type"):
        decode_instance(untyped, schema=DECLARED)


def test_a_query_tells_which_of_its_classes_nobody_knows() -> None:
    query = "SELECT * FROM ZZ_Alert WHERE Disk ISA ZZ_Disk AND Disk.ZZ_Disk::Name = 'x'"
    assert compiled(query).unknown_classes == ("ZZ_Alert", "ZZ_Disk")
    assert compiled("SELECT * FROM CIM_AlertIndication").unknown_classes == ()


def test_who_publishes_an_unknown_class_is_told_of_the_superclass() -> None:
    with pytest.raises(InstanceError, match="name its superclass, declare it in the service"):
        alert("ZZ_Alert", schema=SCHEMA)
