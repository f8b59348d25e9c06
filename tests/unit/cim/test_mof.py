"""Class declarations in MOF: what is read, what is skipped, what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim import mof
from pillion_cim.mof import MOFError, parse_mof
from pillion_cim.schema import ClassDeclaration, PropertyDeclaration

VENDOR = r"""
// Acme's alerts
#pragma locale ("en_US")
Qualifier Units : string = null, Scope(property, method), Flavor(Translatable);
/* A comment
   over lines: class CIM_No { }; */
[Indication, Version("2.1.0") : ToSubClass,
 Description("An \"alert\"; with { brackets ] "
             "in its text")]
class ACME_Alert : CIM_AlertIndication
{
    [Required, MaxLen(64)] string SerialNumber;
    [ValueMap {"1", "2"}, Values {"One", "Two"}] uint16 States[];
    uint8 Digits[4] = {1, 2, -3};
    boolean Urgent = true;
    real64 Load = 1.5e+3;
    datetime Since = "20261121133000.000000+000";
    char16 Grade = 'x';
    [EmbeddedObject] string Extra;
    [EmbeddedInstance("CIM_Fan")] string Fans[];
    CIM_ComputerSystem REF System;
    [Description("Stops it")] uint32 Stop([In, Required] string Why[], [In] CIM_Fan REF Fan);
};
[Abstract] class ACME_Root { };
"""


def test_a_vendors_classes_are_read() -> None:
    alert, root = parse_mof(VENDOR)
    assert (alert.name, alert.superclass, alert.abstract) == (
        "ACME_Alert",
        "CIM_AlertIndication",
        False,
    )
    assert alert.properties is not None
    assert {own.name: own.type for own in alert.properties} == {
        "SerialNumber": "string",
        "States": "uint16[]",
        "Digits": "uint8[]",
        "Urgent": "boolean",
        "Load": "real64",
        "Since": "datetime",
        "Grade": "char16",
        "Extra": "object",
        "Fans": "instance[]",
        "System": "reference",
    }
    assert [own.name for own in alert.properties if own.required] == ["SerialNumber"]
    assert root == ClassDeclaration("ACME_Root", None, (), abstract=True)


@pytest.mark.parametrize(
    "text", ["", " \n\t", "// nothing", "/* nothing */", '#pragma locale("a")']
)
def test_a_text_without_classes_declares_none(text: str) -> None:
    assert parse_mof(text) == ()


@pytest.mark.parametrize(
    ("text", "line", "message"),
    [
        ('\n#pragma include ("x.mof")', 2, "#pragma include is not followed"),
        ("instance of CIM_Fan { Name = 1; };", 1, "instance declarations are not read"),
        ("class A {\n uint17 B;\n};", 2, "uint17 is not a CIM type"),
        ("class A {\n string B;\n string b;\n};", 4, "declares b twice"),
        ("class A { string B }", 1, "; is missing before '}'"),
        ("class A { string B;", 1, "the name of a type is missing before the end"),
        ("class A { string B; }", 1, "; is missing before the end"),
        ("class A as b { };", 1, "$ is missing before 'b'"),
        ("class A as $ { };", 1, "the name of an alias is missing"),
        ("class A { };\n/* on and on", 2, "a comment is not closed"),
        ("class", 1, "the name of a class is missing"),
        ("class A : { };", 1, "the name of a superclass is missing"),
        ("class A { uint8 B = {1, 2; };", 1, "is missing"),
        ("[Abstract class A { };", 1, "] is missing"),
        ("class A { uint8 B(]; };", 1, "] closes nothing"),
        ("class A { };\n@", 2, "'@' is not expected here"),
        ('class A { string B = "open; };', 1, "a text is not closed"),
        ("class " + "A" * 257 + " { };", 1, "more than 256 characters"),
        ("hello", 1, "a class declaration is missing before 'hello'"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_line(text: str, line: int, message: str) -> None:
    with pytest.raises(MOFError) as caught:
        parse_mof(text)
    assert message in caught.value.message
    assert caught.value.line == line
    assert caught.value.remedy


def test_an_alias_and_a_byte_order_mark_are_skipped() -> None:
    (found,) = parse_mof("\ufeffclass A as $Alert : CIM_AlertIndication { uint8 B; };")
    assert (found.name, found.superclass) == ("A", "CIM_AlertIndication")


def test_text_classes_and_properties_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MOFError, match="more than"):
        parse_mof(" " * (mof.MOST_TEXT + 1))
    monkeypatch.setattr(mof, "MOST_CLASSES", 2)
    with pytest.raises(MOFError, match="more than 2 classes"):
        parse_mof("class A { }; class B { }; class C { };")
    monkeypatch.setattr(mof, "MOST_PROPERTIES", 2)
    with pytest.raises(MOFError, match="more than 2 properties"):
        parse_mof("class A { uint8 A; uint8 B; uint8 C; };")


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
BASES = ("boolean", "string", "char16", "uint8", "sint64", "real32", "datetime")
TYPES = st.builds(lambda base, end: base + end, st.sampled_from(BASES), st.sampled_from(("", "[]")))
PROPERTIES = st.lists(
    st.builds(PropertyDeclaration, NAMES, TYPES | st.just("reference"), st.booleans()),
    max_size=5,
    unique_by=lambda own: own.name.casefold(),
).filter(lambda found: all(own.name.lower() != "ref" for own in found))
CLASSES = st.lists(
    st.builds(
        ClassDeclaration,
        NAMES,
        st.none() | NAMES,
        PROPERTIES.map(tuple),
        st.booleans(),
    ),
    max_size=4,
)
JUNK = st.sampled_from((" ", "\n", "/* class X { }; */", "// ] } ;\n", "\t"))


def rendered(found: ClassDeclaration, junk: str) -> str:
    lines = []
    for own in found.properties or ():
        required = "[Required]" if own.required else '[Description("a ; b")]'
        base = "CIM_Fan REF" if own.type == "reference" else own.type.removesuffix("[]")
        array = "[]" if own.type.endswith("[]") else ""
        lines.append(f"{required}{junk}{base} {own.name}{junk}{array} = NULL;{junk}")
    above = f"{junk}:{junk}{found.superclass}" if found.superclass else ""
    head = "[Abstract]" if found.abstract else ""
    return f"{head}class {found.name}{above}{junk}{{{junk.join(lines)}}}{junk};{junk}"


@given(CLASSES, JUNK)
def test_what_is_written_is_read(classes: list[ClassDeclaration], junk: str) -> None:
    assert parse_mof("".join(rendered(one, junk) for one in classes)) == tuple(classes)


WORDS = "class |A|string |=|REF |#pragma |include|1.5|-"
SIGNS = '{|}|[|]|(|)|:|;|,|"x"|/*|*/|//|\n|"|\\|é'
PIECES = st.sampled_from(f"{WORDS}|{SIGNS}".split("|"))


@given(st.text() | st.lists(PIECES, max_size=40).map("".join))
def test_any_text_is_read_or_refused(text: str) -> None:
    line = 1
    try:
        parse_mof(text)
    except MOFError as error:
        line = error.line
    assert 1 <= line <= text.count("\n") + 1
