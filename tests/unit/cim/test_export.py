"""The export message: exact bytes, what each delivery splices in, and what others read in it."""

from typing import Any

import pytest
from hypothesis import given
from lxml import etree
from pywbem import _tupleparse, _tupletree

from pillion_cim.cimxml.export import EXPORT_HEADERS, ExportTemplate, escape
from pillion_cim.cimxml.response import find_header
from pillion_cim.datetimes import CIMDateTime
from pillion_cim.model import (
    CIMInstance,
    CIMInstanceName,
    CIMType,
    CIMValue,
    EmbeddedObject,
    PropertyType,
)
from pillion_cim.schema import load_schema
from support.cim import texts

SCHEMA = load_schema()


def render(instance: CIMInstance, **splice: Any) -> bytes:
    arguments: dict[str, Any] = {
        "message_id": "1001",
        "filter_name": None,
        "sequence_context": None,
        "sequence_number": None,
        "correlated": False,
    }
    return ExportTemplate(instance).render(**{**arguments, **splice})


def instance_of(**properties: tuple[CIMType | PropertyType, CIMValue]) -> CIMInstance:
    values = {name: value for name, (_, value) in properties.items()}
    types = {
        name: kind if isinstance(kind, PropertyType) else PropertyType(kind)
        for name, (kind, _) in properties.items()
    }
    return CIMInstance("CIM_AlertIndication", values, types)


ALL = instance_of(
    Flag=(CIMType.BOOLEAN, True),
    Text=(CIMType.STRING, 'a<b>&"c"\r\n\té😀'),
    Letter=(CIMType.CHAR16, "&"),
    Count=(CIMType.UINT64, 2**64 - 1),
    Debt=(CIMType.SINT64, -(2**63)),
    Tenth=(CIMType.REAL64, 0.1),
    Tiny=(CIMType.REAL64, 1e-05),
    When=(CIMType.DATETIME, CIMDateTime("20261121133000.000000+000")),
    Nothing=(CIMType.UINT8, None),
    Many=(PropertyType(CIMType.UINT8, is_array=True), (1, None, 3)),
    Empty=(PropertyType(CIMType.STRING, is_array=True), ()),
    NoArray=(PropertyType(CIMType.STRING, is_array=True), None),
    Part=(
        PropertyType(CIMType.STRING, embedded=EmbeddedObject.INSTANCE),
        CIMInstance("Acme_Part", {"N": "x<y"}, {"N": PropertyType(CIMType.STRING)}),
    ),
    Where=(
        CIMType.REFERENCE,
        CIMInstanceName("Acme_Part", {"Name": "a&b", "Slot": 3, "On": False}, "root/acme", "h"),
    ),
    Nowhere=(CIMType.REFERENCE, None),
)

ALL_BYTES = """<?xml version="1.0" encoding="utf-8"?>
<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="1001" PROTOCOLVERSION="1.0"><SIMPLEEXPREQ>\
<EXPMETHODCALL NAME="ExportIndication"><EXPPARAMVALUE NAME="NewIndication">\
<INSTANCE CLASSNAME="CIM_AlertIndication">\
<PROPERTY NAME="Flag" TYPE="boolean"><VALUE>TRUE</VALUE></PROPERTY>\
<PROPERTY NAME="Text" TYPE="string">\
<VALUE>a&lt;b&gt;&amp;&quot;c&quot;&#13;&#10;&#9;é😀</VALUE></PROPERTY>\
<PROPERTY NAME="Letter" TYPE="char16"><VALUE>&amp;</VALUE></PROPERTY>\
<PROPERTY NAME="Count" TYPE="uint64"><VALUE>18446744073709551615</VALUE></PROPERTY>\
<PROPERTY NAME="Debt" TYPE="sint64"><VALUE>-9223372036854775808</VALUE></PROPERTY>\
<PROPERTY NAME="Tenth" TYPE="real64"><VALUE>0.1</VALUE></PROPERTY>\
<PROPERTY NAME="Tiny" TYPE="real64"><VALUE>1.0e-05</VALUE></PROPERTY>\
<PROPERTY NAME="When" TYPE="datetime"><VALUE>20261121133000.000000+000</VALUE></PROPERTY>\
<PROPERTY NAME="Nothing" TYPE="uint8"/>\
<PROPERTY.ARRAY NAME="Many" TYPE="uint8">\
<VALUE.ARRAY><VALUE>1</VALUE><VALUE.NULL/><VALUE>3</VALUE></VALUE.ARRAY></PROPERTY.ARRAY>\
<PROPERTY.ARRAY NAME="Empty" TYPE="string"><VALUE.ARRAY></VALUE.ARRAY></PROPERTY.ARRAY>\
<PROPERTY.ARRAY NAME="NoArray" TYPE="string"/>\
<PROPERTY NAME="Part" TYPE="string" EmbeddedObject="instance"><VALUE>\
&lt;INSTANCE CLASSNAME="Acme_Part"&gt;&lt;PROPERTY NAME="N" TYPE="string"&gt;\
&lt;VALUE&gt;x&amp;lt;y&lt;/VALUE&gt;&lt;/PROPERTY&gt;&lt;/INSTANCE&gt;</VALUE></PROPERTY>\
<PROPERTY.REFERENCE NAME="Where"><VALUE.REFERENCE><INSTANCEPATH><NAMESPACEPATH><HOST>h</HOST>\
<LOCALNAMESPACEPATH><NAMESPACE NAME="root"/><NAMESPACE NAME="acme"/></LOCALNAMESPACEPATH>\
</NAMESPACEPATH><INSTANCENAME CLASSNAME="Acme_Part">\
<KEYBINDING NAME="Name"><KEYVALUE VALUETYPE="string">a&amp;b</KEYVALUE></KEYBINDING>\
<KEYBINDING NAME="Slot"><KEYVALUE VALUETYPE="numeric">3</KEYVALUE></KEYBINDING>\
<KEYBINDING NAME="On"><KEYVALUE VALUETYPE="boolean">FALSE</KEYVALUE></KEYBINDING>\
</INSTANCENAME></INSTANCEPATH></VALUE.REFERENCE></PROPERTY.REFERENCE>\
<PROPERTY.REFERENCE NAME="Nowhere"/>\
</INSTANCE></EXPPARAMVALUE></EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>
"""


def test_every_type_is_written_in_exactly_these_bytes() -> None:
    assert render(ALL) == ALL_BYTES.encode()


def test_pywbem_reads_in_it_what_was_meant() -> None:
    # pywbem fails on a null item of a numeric array; everything else it reads.
    values = {**ALL.values, "Many": (1, 3)}
    body = render(CIMInstance(ALL.class_name, values, ALL.types))
    tree = _tupletree.xml_to_tupletree_sax(body, "export request")
    found = find_instance(_tupleparse.TupleParser().parse_cim(tree))
    assert found.classname == "CIM_AlertIndication"
    assert found["Text"] == 'a<b>&"c"\r\n\té😀'
    assert found["Count"] == 2**64 - 1
    assert found["Debt"] == -(2**63)
    assert found["Tiny"] == 1e-05
    assert found["Flag"] is True
    assert found["Many"] == [1, 3]
    assert found["Empty"] == []
    assert found["NoArray"] is None
    assert found["Part"]["N"] == "x<y"
    assert found["Where"].namespace == "root/acme"
    assert dict(found["Where"].keybindings) == {"Name": "a&b", "Slot": 3, "On": False}
    assert str(found["When"]) == "20261121133000.000000+000"


def find_instance(parsed: Any) -> Any:
    """The one instance somewhere in what pywbem's parser returns."""
    if hasattr(parsed, "classname"):
        return parsed
    if isinstance(parsed, dict):
        parsed = tuple(parsed.values())
    if isinstance(parsed, tuple | list):
        return next((found for item in parsed if (found := find_instance(item))), None)
    return None


def properties_of(body: bytes) -> dict[str, str | None]:
    """The plain properties of the indication in a message, and how often each is there."""
    root = etree.fromstring(body)
    found: dict[str, str | None] = {}
    for element in root.iter("PROPERTY"):
        name = str(element.get("NAME"))
        assert name not in found
        found[name] = element.findtext("VALUE")
    return found


def correlated_of(body: bytes) -> list[str | None] | None:
    """The items of CorrelatedIndications."""
    found = etree.fromstring(body).findall(".//PROPERTY.ARRAY[@NAME='CorrelatedIndications']")
    assert len(found) <= 1
    if not found or found[0].find("VALUE.ARRAY") is None:
        return None
    return [
        item.text if item.tag == "VALUE" else None for item in found[0].iter("VALUE", "VALUE.NULL")
    ]


def test_the_delivery_replaces_what_the_indication_carried() -> None:
    carried = instance_of(
        INDICATIONFILTERNAME=(CIMType.STRING, "theirs"),
        sequencecontext=(CIMType.STRING, "theirs"),
        SequenceNumber=(CIMType.SINT64, 99),
        Message=(CIMType.STRING, "m"),
    )
    body = render(carried, filter_name="f&1", sequence_context="c#1", sequence_number=0)
    assert properties_of(body) == {
        "Message": "m",
        "IndicationFilterName": "f&1",
        "SequenceContext": "c#1",
        "SequenceNumber": "0",
    }
    assert properties_of(render(carried)) == {"Message": "m"}


def test_the_message_identifier_is_spliced_and_escaped() -> None:
    assert etree.fromstring(render(ALL, message_id='7"<')).find("MESSAGE").get("ID") == '7"<'  # type: ignore[union-attr]


STRINGS = PropertyType(CIMType.STRING, is_array=True)


@pytest.mark.parametrize(
    ("properties", "unmarked", "marked"),
    [
        ({}, None, [None]),
        ({"IndicationIdentifier": (CIMType.STRING, "i<1")}, None, ["i<1"]),
        ({"IndicationIdentifier": (CIMType.STRING, None)}, None, [None]),
        (
            {
                "IndicationIdentifier": (CIMType.STRING, "i"),
                "CorrelatedIndications": (STRINGS, ("a", None)),
            },
            ["a", None],
            ["a", None, "i"],
        ),
        ({"CorrelatedIndications": (STRINGS, ())}, [], [None]),
        ({"CorrelatedIndications": (STRINGS, None)}, None, [None]),
    ],
)
def test_a_retry_is_marked_by_the_identifier_behind_what_was_correlated(
    properties: dict[str, Any], unmarked: list[str | None] | None, marked: list[str | None]
) -> None:
    carried = instance_of(**properties)
    assert correlated_of(render(carried)) == unmarked
    assert correlated_of(render(carried, correlated=True)) == marked


def test_one_template_serves_every_delivery() -> None:
    template = ExportTemplate(ALL)
    first = template.render(
        message_id="1",
        filter_name="f",
        sequence_context=None,
        sequence_number=None,
        correlated=True,
    )
    second = template.render(
        message_id="1",
        filter_name="f",
        sequence_context=None,
        sequence_number=None,
        correlated=True,
    )
    assert first == second


@pytest.mark.parametrize("text", ["\x00", "a\x1fb", "\ud800", "\ufffe"])
def test_what_xml_cannot_carry_is_refused_and_not_dropped(text: str) -> None:
    with pytest.raises(ValueError, match=r"U\+"):
        ExportTemplate(instance_of(Message=(CIMType.STRING, text)))
    with pytest.raises(ValueError, match=r"U\+"):
        render(ALL, filter_name=text)


@given(texts)
def test_escaped_text_reads_back_as_it_was(text: str) -> None:
    document = f'<a b="{escape(text)}">{escape(text)}</a>'
    root = etree.fromstring(document.encode())
    assert root.get("b") == text
    assert (root.text or "") == text


def test_the_headers_are_those_that_every_listener_takes() -> None:
    assert dict(EXPORT_HEADERS) == {
        "Content-Type": "application/xml; charset=utf-8",
        "Accept": "*/*",
        "CIMExport": "MethodRequest",
        "CIMExportMethod": "ExportIndication",
        "CIMProtocolVersion": "1.0",
    }


def test_headers_are_found_in_any_case_and_behind_an_extension_prefix() -> None:
    assert find_header({"cimexport": " MethodResponse "}, "CIMExport") == "MethodResponse"
    assert find_header({"CIMEXPORT": "x"}, "CIMExport") == "x"
    assert find_header({"73-CIMExport": "x"}, "CIMExport") == "x"
    assert find_header({"XCIMExport": "x"}, "CIMExport") is None
