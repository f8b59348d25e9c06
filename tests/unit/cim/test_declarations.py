"""Classes that a service declares beside the schema's (D.4, D.6)."""

import pytest

from pillion_cim.model import CIMType
from pillion_cim.schema import (
    MOST_CLASSES,
    MOST_LEVELS,
    ClassDeclaration,
    DeclarationError,
    PropertyDeclaration,
    extend,
    load_schema,
    nearest,
)

SCHEMA = load_schema()
ALERT = ClassDeclaration("HP_AlertIndication", "CIM_AlertIndication")


def test_a_declared_class_is_a_subclass_with_what_it_inherits() -> None:
    schema = extend(SCHEMA, [ALERT])
    found = schema.get("hp_alertindication")
    above = schema.get("CIM_AlertIndication")
    assert found is not None
    assert above is not None
    assert schema.is_a("HP_AlertIndication", "cim_indication")
    assert (found.types, found.required, found.open) == (above.types, above.required, True)
    assert schema.base is SCHEMA
    assert SCHEMA.get("HP_AlertIndication") is None


def test_classes_are_declared_in_any_order() -> None:
    last = ClassDeclaration("C_C", "b_b", (PropertyDeclaration("Three", "uint8[]"),))
    middle = ClassDeclaration("B_B", "A_A", (PropertyDeclaration("Two", "string", required=True),))
    first = ClassDeclaration("A_A", None, ())
    schema = extend(SCHEMA, [last, middle, first])
    found = schema.get("C_C")
    assert found is not None
    assert schema.is_a("C_C", "A_A")
    assert list(found.types) == ["Two", "Three"]
    assert found.types["Three"].cim_type is CIMType.UINT8
    assert found.types["Three"].is_array
    assert found.required == {"Two"}
    assert not found.open


def test_a_subclass_of_an_open_class_is_open() -> None:
    below = ClassDeclaration("HP_DiskAlert", "HP_AlertIndication", ())
    found = extend(SCHEMA, [below, ALERT]).get("HP_DiskAlert")
    assert found is not None
    assert found.open


@pytest.mark.parametrize(
    ("declarations", "message", "remedy"),
    [
        ([ClassDeclaration("CIM_InstRead", None)], "the CIM schema has this class", "Remove it"),
        ([ClassDeclaration("cim_instread", "X")], "the CIM schema has this class", "Remove it"),
        ([ALERT, ALERT], "it is declared twice", "Keep one"),
        ([ALERT, ClassDeclaration("hp_ALERTindication", "X")], "it is declared twice", "Keep one"),
        (
            [ClassDeclaration("HP_A", "CIM_AlertIndicaton")],
            "its superclass CIM_AlertIndicaton is not known",
            "Did you mean CIM_AlertIndication?",
        ),
        (
            [ClassDeclaration("A_A", "B_B"), ClassDeclaration("B_B", "A_A")],
            "it descends from itself: A_A : B_B : A_A",
            "Correct one superclass",
        ),
        ([ClassDeclaration("A_A", "a_a")], "it descends from itself: A_A : A_A", "Correct"),
        ([ClassDeclaration("1", None)], "'1' is no name", "Use letters"),
        ([ClassDeclaration("A_A", "CIM Indication")], "'CIM Indication' is no name", "Use letters"),
    ],
)
def test_what_cannot_be_declared_is_refused(
    declarations: list[ClassDeclaration], message: str, remedy: str
) -> None:
    with pytest.raises(DeclarationError) as caught:
        extend(SCHEMA, declarations)
    assert message in caught.value.message
    assert remedy in caught.value.remedy


def test_classes_and_their_levels_are_bounded() -> None:
    line = [ClassDeclaration(f"A_{n}", f"A_{n + 1}" if n < 4998 else None) for n in range(4999)]
    assert extend(SCHEMA, line[-MOST_LEVELS:]).get("A_4998") is not None
    with pytest.raises(DeclarationError, match=f"more than {MOST_LEVELS} declared classes"):
        extend(SCHEMA, line)
    with pytest.raises(DeclarationError, match="more than"):
        extend(SCHEMA, [ALERT] * (MOST_CLASSES + 1))


@pytest.mark.parametrize(
    ("name", "known"),
    [
        ("HP_AlertIndication", "CIM_AlertIndication"),
        ("IBM_StorageAlertIndication", "CIM_AlertIndication"),
        ("ACME_Indication", "CIM_Indication"),
        ("CIM_AlertIndicaton", "CIM_AlertIndication"),
        ("cim_instmodificaton", "CIM_InstModification"),
        ("Zzz", None),
        ("x" * 100_000, None),
    ],
)
def test_the_nearest_known_class(name: str, known: str | None) -> None:
    assert nearest(name, SCHEMA.names()) == known
