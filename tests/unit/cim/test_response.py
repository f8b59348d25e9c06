"""The strict response check: what real listeners answer, and everything that is no success."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.cimxml.response import (
    ExportResponseError,
    ResponseChecker,
    ResponseFailure,
    render_export_error,
    render_export_response,
)

HEADERS = {"Content-Type": "application/xml; charset=utf-8", "CIMExport": "MethodResponse"}


def document(inner: str, *, cim: str = "2.0", dtd: str = "2.0", protocol: str = "1.0") -> str:
    return (
        f'<?xml version="1.0" encoding="utf-8" ?>\n<CIM CIMVERSION="{cim}" DTDVERSION="{dtd}">\n'
        f'<MESSAGE ID="1009" PROTOCOLVERSION="{protocol}">\n<SIMPLEEXPRSP>\n{inner}\n'
        "</SIMPLEEXPRSP>\n</MESSAGE>\n</CIM>\n"
    )


def response(outcome: str) -> str:
    return document(f'<EXPMETHODRESPONSE NAME="ExportIndication">\n{outcome}</EXPMETHODRESPONSE>')


OK = response("")
EMPTY_ELEMENT = '<EXPMETHODRESPONSE NAME="ExportIndication"/>'


def check(body: str | bytes, *, status: int = 200, headers: dict[str, str] | None = None) -> None:
    raw = body.encode() if isinstance(body, str) else body
    ResponseChecker().check(
        status=status,
        headers=HEADERS if headers is None else headers,
        body=raw,
        message_id="1009",
    )


@pytest.mark.parametrize(
    "body",
    [
        OK,
        document(EMPTY_ELEMENT),
        document(EMPTY_ELEMENT, dtd="2.4", protocol="1.4"),
        document(EMPTY_ELEMENT, cim="2.9"),
        response("<IRETURNVALUE/>"),
        response("<IRETURNVALUE></IRETURNVALUE>"),
        response('<ERROR CODE="0"/>'),
        document("<!-- delivered -->" + EMPTY_ELEMENT),
        OK.replace('encoding="utf-8"', "encoding='UTF-8'"),
        OK.split("?>", 1)[1].strip(),
        OK.replace("\n", ""),
        OK.replace('"ExportIndication"', '"exportindication"'),
    ],
)
def test_every_form_of_success_that_real_listeners_send_is_taken(body: str) -> None:
    check(body)


@pytest.mark.parametrize(
    "headers",
    [
        {"content-type": "text/xml", "cimexport": "MethodResponse"},
        {"Content-Type": "text/html", "CIMExport": "methodresponse "},
        {"Content-Type": "application/xml", "55-CIMExport": "MethodResponse"},
    ],
)
def test_headers_of_success_are_taken_as_real_listeners_spell_them(headers: dict[str, str]) -> None:
    check(OK, headers=headers)


F = ResponseFailure


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ("", F.EMPTY_BODY),
        (" \r\n", F.EMPTY_BODY),
        ("x" * 70_000, F.BODY_TOO_LARGE),
        ("garbage", F.NOT_WELL_FORMED),
        (OK[:-9], F.NOT_WELL_FORMED),
        (b"\xff\xfe\x00", F.NOT_WELL_FORMED),
        (OK.replace("<CIM ", "<!DOCTYPE CIM><CIM "), F.DOCTYPE),
        ("<html><body>OK</body></html>", F.NOT_VALID),
        ("<CIM/>", F.NOT_VALID),
        (OK.replace("SIMPLEEXPRSP", "SIMPLERSP"), F.NOT_VALID),
        (OK.replace("SIMPLEEXPRSP", "MULTIEXPRSP"), F.NOT_VALID),
        (OK.replace("EXPMETHODRESPONSE", "IMETHODRESPONSE"), F.NOT_VALID),
        (OK.replace("EXPMETHODRESPONSE", "METHODRESPONSE"), F.NOT_VALID),
        (document(""), F.NOT_VALID),
        (document(EMPTY_ELEMENT * 2), F.NOT_VALID),
        (response("<VALUE/>"), F.NOT_VALID),
        (response("<IRETURNVALUE/><IRETURNVALUE/>"), F.NOT_VALID),
        (response("text"), F.NOT_VALID),
        (response("<ERROR/>"), F.NOT_VALID),
        (response('<ERROR CODE="one"/>'), F.NOT_VALID),
        (response('<ERROR CODE="-1"/>'), F.NOT_VALID),
        (response('<ERROR CODE="0"/><ERROR CODE="1"/>'), F.NOT_VALID),
        (OK.replace(' NAME="ExportIndication"', ""), F.NOT_VALID),
        (OK.replace(' ID="1009"', ""), F.NOT_VALID),
        (OK.replace('CIMVERSION="2.0"', 'CIMVERSION="3.0"'), F.CIM_VERSION),
        (OK.replace('DTDVERSION="2.0"', 'DTDVERSION="1.0"'), F.DTD_VERSION),
        (document(EMPTY_ELEMENT, protocol="2.0"), F.PROTOCOL_VERSION),
        (OK.replace("ExportIndication", "DeliverIndication"), F.WRONG_METHOD),
        (OK.replace("1009", "1008"), F.WRONG_MESSAGE_ID),
        (OK.replace("1009", "01009"), F.WRONG_MESSAGE_ID),
        (response('<ERROR CODE="1" DESCRIPTION="full"/>'), F.CIM_ERROR),
        (response('<ERROR CODE="99"/>'), F.CIM_ERROR),
    ],
)
def test_every_failure_of_the_body_is_told_apart(body: str | bytes, kind: ResponseFailure) -> None:
    with pytest.raises(ExportResponseError) as failure:
        check(body)
    assert failure.value.kind is kind
    assert 0 < len(failure.value.detail) < 500


@pytest.mark.parametrize(
    ("headers", "kind"),
    [
        ({"Content-Type": "application/xml"}, F.NO_CIM_EXPORT),
        ({**HEADERS, "CIMExport": "MethodRequest"}, F.WRONG_CIM_EXPORT),
        ({"CIMExport": "MethodResponse"}, F.NO_CONTENT_TYPE),
    ],
)
def test_every_failure_of_the_headers_is_told_apart(
    headers: dict[str, str], kind: ResponseFailure
) -> None:
    with pytest.raises(ExportResponseError) as failure:
        check(OK, headers=headers)
    assert failure.value.kind is kind


@pytest.mark.parametrize("status", [201, 202, 204, 302, 400, 401, 404, 500, 503])
def test_only_status_200_can_be_a_success(status: int) -> None:
    with pytest.raises(ExportResponseError, match=str(status)) as failure:
        check(OK, status=status)
    assert failure.value.kind is F.HTTP_STATUS


def test_the_listener_s_own_words_are_passed_on_in_one_bounded_line() -> None:
    with pytest.raises(ExportResponseError) as failure:
        check(b"", status=400, headers={"CIMError": "header-mismatch\n" + "x" * 9999})
    assert failure.value.detail.startswith("HTTP status 400 (header-mismatch xxx")
    assert len(failure.value.detail) < 300
    with pytest.raises(ExportResponseError) as failure:
        check(response('<ERROR CODE="1" DESCRIPTION="Indication queue&#10;is full"/>'))
    assert failure.value.code == 1
    assert failure.value.detail == "CIM error 1: Indication queue is full"


def test_our_own_responses_are_what_we_ask_of_others() -> None:
    ResponseChecker().check(
        status=200, headers=HEADERS, body=render_export_response('a"<1'), message_id='a"<1'
    )
    body = render_export_error("7", 7, "no <such> method\x00")
    with pytest.raises(ExportResponseError, match="CIM error 7: no <such> method") as failure:
        ResponseChecker().check(status=200, headers=HEADERS, body=body, message_id="7")
    assert failure.value.code == 7


SUCCESS = "{}".join(OK.split("1009"))
BODIES = st.sampled_from(
    [
        SUCCESS,
        SUCCESS.replace("<SIMPLEEXPRSP>", "<!-- {} --><SIMPLEEXPRSP>"),
        SUCCESS.replace('ID="{}"', 'ID="&#55;&#55;"').replace("<CIM ", '<!-- {} --><CIM X="{}" '),
        SUCCESS.replace('ID="{}"', 'ID="&#55;&#55;" X="{}"'),
        SUCCESS.replace('"ExportIndication"', '"ExportIndication" X="{}"'),
        SUCCESS.replace('ID="{}"', 'ID="77"').replace("<CIM ", "<?x {}?><CIM "),
        response('<ERROR CODE="{}"/>').replace("1009", "{}"),
        response('<ERROR CODE="1"/>').replace("1009", "{}"),
        SUCCESS.replace('encoding="utf-8"', 'encoding="utf-7"').replace('ID="{}"', 'ID="+{}-"'),
        document(EMPTY_ELEMENT).replace("1009", "{}"),
    ]
)
IDENTIFIERS = st.sampled_from(["77", "7", "0", "2", "E", "1.0", "a-b", '"', "é", "", "77 ", "1009"])


@given(st.lists(st.tuples(BODIES, IDENTIFIERS, IDENTIFIERS), max_size=8))
def test_recognised_responses_get_the_same_verdict_as_parsed_ones(
    answers: list[tuple[str, str, str]],
) -> None:
    checker = ResponseChecker()
    for template, answered, asked in answers:
        body = template.replace("{}", answered).encode()
        verdicts = []
        for judge in (checker.check, ResponseChecker().check):
            try:
                judge(status=200, headers=HEADERS, body=body, message_id=asked)
                verdicts.append("success")
            except ExportResponseError as failure:
                verdicts.append(f"{failure.kind} {failure.code}")
        assert verdicts[0] == verdicts[1]


def test_a_recognised_body_is_accepted_for_its_own_message_alone() -> None:
    checker = ResponseChecker()
    for number in range(3):
        body = OK.replace("1009", f"msg-{number}").encode()
        checker.check(status=200, headers=HEADERS, body=body, message_id=f"msg-{number}")
    with pytest.raises(ExportResponseError) as failure:
        checker.check(status=200, headers=HEADERS, body=body, message_id="msg-9")
    assert failure.value.kind is F.WRONG_MESSAGE_ID
    with pytest.raises(ExportResponseError) as failure:
        checker.check(status=503, headers=HEADERS, body=body, message_id="msg-2")
    assert failure.value.kind is F.HTTP_STATUS


@given(st.binary(max_size=200), st.integers(100, 599), st.text(max_size=5))
def test_any_answer_is_success_or_an_export_response_error(
    body: bytes, status: int, message_id: str
) -> None:
    with pytest.raises(ExportResponseError):
        ResponseChecker().check(status=status, headers=HEADERS, body=body, message_id=message_id)


@given(st.integers(0, len(OK)), st.integers(0, 30), st.text(max_size=4))
def test_mutated_answers_raise_nothing_unexpected(start: int, length: int, text: str) -> None:
    body = (OK[:start] + text + OK[start + length :]).encode("utf-8", "surrogatepass")
    try:
        check(body)
    except ExportResponseError:
        return
    assert b"1009" in body
