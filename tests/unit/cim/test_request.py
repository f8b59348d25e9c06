"""Reading an export request: what is taken, and how everything else is refused (D.6)."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.cimxml.export import ExportTemplate
from pillion_cim.cimxml.request import (
    ExportMethodError,
    ExportRequest,
    ExportRequestError,
    parse_export_request,
)
from pillion_cim.jsonform import decode_instance, encode_instance
from pillion_cim.model import CIMInstance, CIMInstanceName, CIMType, EmbeddedObject, PropertyType
from pillion_cim.schema import load_schema
from support.cim import REQUEST_HEADERS, instances

SCHEMA = load_schema()

#: As OpenPegasus's exporter sends it, with its line breaks and blanks.
PEGASUS = """<?xml version="1.0" encoding="utf-8" ?>
<CIM CIMVERSION="2.0" DTDVERSION="2.0">
<MESSAGE ID="1009" PROTOCOLVERSION="1.0">
<SIMPLEEXPREQ>
<EXPMETHODCALL NAME="ExportIndication">
<EXPPARAMVALUE NAME="NewIndication">
<INSTANCE CLASSNAME="DeliveryRetryTestClass" >
<PROPERTY NAME="IndicationTime"  TYPE="datetime">
<VALUE>20261121085141.579202+000</VALUE>
</PROPERTY>
<PROPERTY NAME="sequenceId"  TYPE="uint64">
<VALUE>1</VALUE>
</PROPERTY>
<PROPERTY NAME="Ratio"  TYPE="real32">
<VALUE>1.2500000e+00</VALUE>
</PROPERTY>
<PROPERTY NAME="SequenceNumber"  TYPE="sint64">
<VALUE>0</VALUE>
</PROPERTY>
</INSTANCE>
</EXPPARAMVALUE>
</EXPMETHODCALL>
</SIMPLEEXPREQ>
</MESSAGE>
</CIM>
"""


def parse(body: str | bytes, headers: dict[str, str] | None = None) -> ExportRequest:
    raw = body.encode() if isinstance(body, str) else body
    return parse_export_request(headers or REQUEST_HEADERS, raw, schema=SCHEMA)


def message(instance: str, **changes: str) -> str:
    """A message around an INSTANCE element."""
    parts = {"cim": "2.0", "dtd": "2.0", "protocol": "1.0", "method": "ExportIndication"} | changes
    parameters = changes.get(
        "parameters", f'<EXPPARAMVALUE NAME="NewIndication">{instance}</EXPPARAMVALUE>'
    )
    return (
        f'<?xml version="1.0" encoding="utf-8"?><CIM CIMVERSION="{parts["cim"]}"'
        f' DTDVERSION="{parts["dtd"]}"><MESSAGE ID="7" PROTOCOLVERSION="{parts["protocol"]}">'
        f'<SIMPLEEXPREQ><EXPMETHODCALL NAME="{parts["method"]}">{parameters}'
        "</EXPMETHODCALL></SIMPLEEXPREQ></MESSAGE></CIM>"
    )


def instance_with(properties: str) -> str:
    return message(f'<INSTANCE CLASSNAME="Acme_Alert">{properties}</INSTANCE>')


SIMPLE = instance_with('<PROPERTY NAME="A" TYPE="uint8"><VALUE>1</VALUE></PROPERTY>')


def test_the_request_of_openpegasus_is_understood() -> None:
    request = parse(PEGASUS)
    assert request.message_id == "1009"
    assert request.method == "ExportIndication"
    assert request.instance.class_name == "DeliveryRetryTestClass"
    assert request.instance.get("sequenceid") == 1
    assert request.instance.get("Ratio") == 1.25
    assert request.instance.types["sequenceId"] == PropertyType(CIMType.UINT64)


def test_names_of_known_classes_are_spelled_as_the_schema_spells_them() -> None:
    body = message(
        '<INSTANCE CLASSNAME="cim_alertindication">'
        '<PROPERTY NAME="ALERTTYPE" TYPE="uint16"><VALUE> 0x5 </VALUE></PROPERTY></INSTANCE>'
    )
    instance = parse(body).instance
    known = SCHEMA.get("CIM_AlertIndication")
    assert known is not None
    assert instance.class_name == "CIM_AlertIndication"
    assert instance.values == {"AlertType": 5}
    assert instance.types is known.types


def test_types_are_those_of_the_message_even_where_the_class_says_otherwise() -> None:
    body = message(
        '<INSTANCE CLASSNAME="CIM_AlertIndication">'
        '<PROPERTY NAME="AlertType" TYPE="uint32"><VALUE>5</VALUE></PROPERTY></INSTANCE>'
    )
    instance = parse(body).instance
    assert instance.types["AlertType"] == PropertyType(CIMType.UINT32)
    encoded = encode_instance(instance, schema=SCHEMA)
    assert decode_instance(encoded, schema=SCHEMA, complete=False) == instance


def test_embedded_instances_references_and_nulls_are_read() -> None:
    body = instance_with(
        '<QUALIFIER NAME="x" TYPE="string"/>'
        '<PROPERTY NAME="E" TYPE="string" EmbeddedObject="object" EMBEDDEDOBJECT="object"><VALUE>'
        "&lt;INSTANCE CLASSNAME=&quot;P&quot;/&gt;</VALUE></PROPERTY>"
        '<PROPERTY.REFERENCE NAME="R"><VALUE.REFERENCE><LOCALINSTANCEPATH><LOCALNAMESPACEPATH>'
        '<NAMESPACE NAME="root"/><NAMESPACE NAME="acme"/></LOCALNAMESPACEPATH>'
        '<INSTANCENAME CLASSNAME="P"><KEYBINDING NAME="k"><KEYVALUE VALUETYPE="numeric">1.5'
        "</KEYVALUE></KEYBINDING></INSTANCENAME></LOCALINSTANCEPATH></VALUE.REFERENCE>"
        "</PROPERTY.REFERENCE>"
        '<PROPERTY NAME="N" TYPE="boolean"/>'
        '<PROPERTY NAME="B" TYPE="boolean"><VALUE>tRUE</VALUE></PROPERTY>'
        '<PROPERTY.ARRAY NAME="A" TYPE="string"><VALUE.ARRAY><VALUE/><VALUE.NULL/>'
        "</VALUE.ARRAY></PROPERTY.ARRAY>"
    )
    instance = parse(body).instance
    assert instance.values == {
        "E": CIMInstance("P"),
        "R": CIMInstanceName("P", {"k": 1.5}, "root/acme"),
        "N": None,
        "B": True,
        "A": ("", None),
    }
    assert instance.types["E"].embedded is EmbeddedObject.OBJECT


@pytest.mark.parametrize(
    "headers",
    [
        {name.lower(): value for name, value in REQUEST_HEADERS.items()},
        {**REQUEST_HEADERS, "CIMProtocolVersion": "1.0"},
        {**REQUEST_HEADERS, "Content-Type": "text/xml"},
        {**REQUEST_HEADERS, "Content-Type": 'application/xml; charset="UTF-8"'},
        {
            "Man": "http://www.dmtf.org/cim/mapping/http/v1.0; ns=73",
            "73-CIMExport": "MethodRequest",
            "73-CIMExportMethod": "ExportIndication",
            "Content-Type": "application/xml",
        },
    ],
)
def test_headers_that_real_exporters_send_are_taken(headers: dict[str, str]) -> None:
    assert parse(SIMPLE, headers).message_id == "7"


@pytest.mark.parametrize(
    ("changes", "status", "cim_error"),
    [
        ({"CIMExport": None}, 400, "unsupported-operation"),
        ({"CIMExport": "MethodResponse"}, 400, "unsupported-operation"),
        ({"CIMExportMethod": None}, 400, "header-mismatch"),
        ({"CIMExportMethod": "Other"}, 400, "header-mismatch"),
        ({"CIMExportMethod": None, "CIMExportBatch": ""}, 501, "multiple-requests-unsupported"),
        ({"Content-Type": None}, 400, None),
        ({"Content-Type": "text/plain"}, 400, None),
        ({"Content-Type": "application/xml; charset=utf8"}, 400, None),
        ({"Content-Type": "application/xml; charset=iso-8859-1"}, 400, None),
        ({"CIMProtocolVersion": "1.4"}, 400, "header-mismatch"),
    ],
)
def test_wrong_headers_are_refused_as_openpegasus_does(
    changes: dict[str, str | None], status: int, cim_error: str | None
) -> None:
    merged: dict[str, str | None] = {**REQUEST_HEADERS, **changes}
    with pytest.raises(ExportRequestError) as refusal:
        parse(SIMPLE, {name: value for name, value in merged.items() if value is not None})
    assert (refusal.value.status, refusal.value.cim_error) == (status, cim_error)


@pytest.mark.parametrize(
    ("changes", "headers", "cim_error"),
    [
        ({"cim": "3.0"}, {}, "unsupported-cim-version"),
        ({"cim": "2.."}, {}, "unsupported-cim-version"),
        ({"dtd": "3.0"}, {}, "unsupported-dtd-version"),
        ({"protocol": "2.0"}, {"CIMProtocolVersion": "2.0"}, "unsupported-protocol-version"),
    ],
)
def test_other_major_versions_are_refused(
    changes: dict[str, str], headers: dict[str, str], cim_error: str
) -> None:
    body = message('<INSTANCE CLASSNAME="A"/>', **changes)
    with pytest.raises(ExportRequestError) as refusal:
        parse(body, {**REQUEST_HEADERS, **headers})
    assert (refusal.value.status, refusal.value.cim_error) == (501, cim_error)


def test_other_minor_versions_are_taken() -> None:
    body = message('<INSTANCE CLASSNAME="A"/>', cim="2.9", dtd="2.4", protocol="1.4")
    assert parse(body, {**REQUEST_HEADERS, "CIMProtocolVersion": "1.4"}).message_id == "7"


NOT_WELL_FORMED = "request-not-well-formed"
NOT_VALID = "request-not-valid"
BOMB = (
    '<?xml version="1.0" encoding="utf-8"?><!DOCTYPE CIM [<!ENTITY a "aaaaaaaaaa">'
    + "".join(
        f'<!ENTITY {c} "{"&" + p + ";" * 1}{("&" + p + ";") * 9}">'
        for p, c in zip("abcdefgh", "bcdefghi", strict=True)
    )
    + "]>"
)


@pytest.mark.parametrize(
    ("body", "cim_error"),
    [
        (b"", NOT_VALID),
        (b" \n", NOT_VALID),
        (b"\xef\xbb\xbf" + SIMPLE.encode(), NOT_WELL_FORMED),
        (SIMPLE.encode("utf-16"), NOT_VALID),
        (SIMPLE.replace("Acme", "Ümläut").encode("latin-1"), NOT_VALID),
        (SIMPLE.replace("utf-8", "iso-8859-1").encode(), NOT_VALID),
        (SIMPLE.replace("utf-8", "nonsense").encode(), NOT_VALID),
        (SIMPLE.encode().replace(b"Acme", b"\xed\xa0\x80"), NOT_VALID),
        (SIMPLE.replace("Acme", "a\x00b").encode(), NOT_WELL_FORMED),
        (SIMPLE.replace(">1<", ">&#1;<").encode(), NOT_WELL_FORMED),
        (SIMPLE.replace(">1<", ">&unknown;<").encode(), NOT_WELL_FORMED),
        (SIMPLE[:-3].encode(), NOT_WELL_FORMED),
        (SIMPLE.encode() * 2, NOT_WELL_FORMED),
        (b"\x1f\x8b\x08\x00", NOT_VALID),
        (b"not xml", NOT_WELL_FORMED),
        ((BOMB + SIMPLE.split("?>", 1)[1].replace(">1<", ">&i;<")).encode(), NOT_WELL_FORMED),
        (
            (
                '<!DOCTYPE CIM [<!ENTITY x SYSTEM "file:///etc/hostname">]>'
                + SIMPLE.split("?>", 1)[1].replace(">1<", ">&x;<")
            ).encode(),
            NOT_WELL_FORMED,
        ),
        (
            ('<!DOCTYPE CIM SYSTEM "http://127.0.0.1:1/x">' + SIMPLE.split("?>", 1)[1]).encode(),
            NOT_WELL_FORMED,
        ),
        (("<a>" * 5000 + "</a>" * 5000).encode(), NOT_WELL_FORMED),
        (b"<CIM/>", NOT_VALID),
        (b"<OTHER/>", NOT_VALID),
        (SIMPLE.replace("SIMPLEEXPREQ", "SIMPLEREQ").encode(), NOT_VALID),
        (SIMPLE.replace('<MESSAGE ID="7"', "<MESSAGE").encode(), NOT_VALID),
        (SIMPLE.replace("<SIMPLEEXPREQ>", "<SIMPLEEXPREQ>text").encode(), NOT_VALID),
        (SIMPLE.replace("<CIM ", '<CIM xmlns="urn:x" ').encode(), NOT_VALID),
    ],
)
def test_what_is_no_export_message_gets_a_clear_refusal(body: bytes, cim_error: str) -> None:
    with pytest.raises(ExportRequestError) as refusal:
        parse(body)
    assert (refusal.value.status, refusal.value.cim_error) == (400, cim_error)
    assert 0 < len(refusal.value.detail) < 500


def test_a_multiple_request_without_its_header_is_a_mismatch() -> None:
    inner = SIMPLE.split('PROTOCOLVERSION="1.0">')[1].split("</MESSAGE>")[0]
    body = SIMPLE.replace(inner, f"<MULTIEXPREQ>{inner}{inner}</MULTIEXPREQ>")
    with pytest.raises(ExportRequestError) as refusal:
        parse(body)
    assert (refusal.value.status, refusal.value.cim_error) == (400, "header-mismatch")


def prop(kind: str, value: str) -> str:
    return f'<PROPERTY NAME="A" TYPE="{kind}"><VALUE>{value}</VALUE></PROPERTY>'


REF = '<PROPERTY.REFERENCE NAME="A"><VALUE.REFERENCE>{}</VALUE.REFERENCE></PROPERTY.REFERENCE>'


@pytest.mark.parametrize(
    "properties",
    [
        prop("uint8", "1") + prop("uint8", "1").replace('"A"', '"a"'),
        prop("uint8", "256"),
        prop("uint8", ""),
        prop("uint8", "1.0"),
        prop("uint64", "9" * 5000),
        prop("sint8", "-129"),
        prop("boolean", "1"),
        prop("real32", "1e39"),
        prop("real64", "one"),
        prop("real64", "1" * 1000),
        prop("real64", "1e999"),
        prop("char16", "ab"),
        prop("datetime", "2026-11-21"),
        prop("reference", "x"),
        prop("nonsense", "x"),
        prop("string", "<B/>"),
        prop("string", "x").replace('NAME="A" ', ""),
        prop("string", "x").replace('"A"', '"1 A"'),
        prop("string", "x").replace("VALUE>", "OTHER>"),
        prop("string", "x").replace("</PROPERTY>", "<VALUE>y</VALUE></PROPERTY>"),
        prop("uint8", "1").replace("<PROPERTY ", '<PROPERTY EmbeddedObject="object" '),
        prop("string", "x").replace("<PROPERTY ", '<PROPERTY EmbeddedObject="object" '),
        prop("string", "&lt;CLASS NAME=&quot;c&quot;/&gt;").replace(
            "<PROPERTY ", '<PROPERTY EmbeddedObject="object" '
        ),
        prop("string", "x").replace("<PROPERTY ", '<PROPERTY EmbeddedObject="other" '),
        "<OTHER NAME='A'/>",
        '<PROPERTY.ARRAY NAME="A" TYPE="string"><VALUE>x</VALUE></PROPERTY.ARRAY>',
        '<PROPERTY.ARRAY NAME="A" TYPE="string"><VALUE.ARRAY><B/></VALUE.ARRAY></PROPERTY.ARRAY>',
        REF.format(""),
        REF.format("<INSTANCENAME/>"),
        REF.format('<CLASSNAME NAME="x"/>'),
        REF.format('<INSTANCENAME CLASSNAME="x"><KEYVALUE>1</KEYVALUE></INSTANCENAME>'),
        REF.format(
            '<INSTANCENAME CLASSNAME="x"><KEYBINDING NAME="k"><KEYVALUE VALUETYPE="numeric">x'
            "</KEYVALUE></KEYBINDING></INSTANCENAME>"
        ),
        REF.format('<LOCALINSTANCEPATH><INSTANCENAME CLASSNAME="x"/></LOCALINSTANCEPATH>'),
    ],
)
def test_properties_that_are_wrong_are_refused(properties: str) -> None:
    with pytest.raises(ExportRequestError) as refusal:
        parse(instance_with(properties))
    assert (refusal.value.status, refusal.value.cim_error) == (400, NOT_VALID)
    assert len(refusal.value.detail) < 500


def test_a_class_name_that_is_none_is_refused() -> None:
    with pytest.raises(ExportRequestError, match=r"\$x"):
        parse(message('<INSTANCE CLASSNAME="$x"/>'))


def test_embedding_is_bounded() -> None:
    inner = '<INSTANCE CLASSNAME="A"/>'
    for _ in range(12):
        escaped = inner.replace("&", "&amp;").replace("<", "&lt;")
        inner = (
            '<INSTANCE CLASSNAME="A"><PROPERTY NAME="P" TYPE="string" EmbeddedObject="object">'
            f"<VALUE>{escaped}</VALUE></PROPERTY></INSTANCE>"
        )
    with pytest.raises(ExportRequestError, match="deeper"):
        parse(message(inner))


@pytest.mark.parametrize(
    ("changes", "method", "code"),
    [
        ({"method": "Other"}, "Other", 7),
        ({"parameters": '<EXPPARAMVALUE NAME="Old"/>'}, "ExportIndication", 7),
        ({"parameters": ""}, "ExportIndication", 4),
        ({"parameters": '<EXPPARAMVALUE NAME="NewIndication"/>'}, "ExportIndication", 4),
        ({"parameters": '<EXPPARAMVALUE NAME="NewIndication"/>' * 2}, "ExportIndication", 4),
    ],
)
def test_a_wrong_call_is_an_error_of_cim(changes: dict[str, str], method: str, code: int) -> None:
    with pytest.raises(ExportMethodError) as refusal:
        parse(message("", **changes), {**REQUEST_HEADERS, "CIMExportMethod": method})
    assert (refusal.value.code, refusal.value.message_id) == (code, "7")


def export(instance: CIMInstance) -> bytes:
    return ExportTemplate(instance).render(
        message_id="7",
        filter_name=None,
        sequence_context=None,
        sequence_number=None,
        correlated=False,
    )


@given(instances())
def test_an_instance_survives_the_round_trip_through_cim_xml(instance: CIMInstance) -> None:
    again = parse(export(instance)).instance
    assert again == instance
    assert again.types == instance.types


@given(instances())
def test_what_came_as_xml_can_be_kept_as_json(instance: CIMInstance) -> None:
    read = parse(export(instance)).instance
    encoded = encode_instance(read, schema=SCHEMA)
    assert decode_instance(encoded, schema=SCHEMA, complete=False) == read


def attempt(headers: dict[str, str], body: bytes) -> None:
    try:
        request: Any = parse(body, headers)
    except (ExportRequestError, ExportMethodError):
        return
    assert isinstance(request, ExportRequest)


@given(st.binary(max_size=300))
def test_random_bytes_raise_nothing_unexpected(body: bytes) -> None:
    attempt(REQUEST_HEADERS, body)


FRAGMENTS = st.sampled_from(
    [
        "<VALUE>",
        "</VALUE>",
        "<![CDATA[",
        "]]>",
        "<!--",
        "-->",
        "&#0;",
        "&lt;",
        "<?x ?>",
        '"',
        "\x00",
    ]
)


@given(
    st.lists(
        st.tuples(
            st.integers(0, len(PEGASUS)), st.integers(0, 40), FRAGMENTS | st.text(max_size=4)
        ),
        min_size=1,
        max_size=3,
    )
)
def test_mutated_messages_raise_nothing_unexpected(edits: list[tuple[int, int, str]]) -> None:
    body = PEGASUS
    for start, length, replacement in edits:
        body = body[:start] + replacement + body[start + length :]
    attempt(REQUEST_HEADERS, body.encode("utf-8", "surrogatepass"))


@given(st.dictionaries(st.sampled_from([*REQUEST_HEADERS, "CIMExportBatch"]), st.text(max_size=9)))
def test_any_headers_raise_nothing_unexpected(headers: dict[str, str]) -> None:
    attempt(headers, SIMPLE.encode())
