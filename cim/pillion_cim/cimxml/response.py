"""Writes export responses, and checks a listener's strictly. A delivery counts only on a valid
response without an error (S0.1). The checks are those of OpenPegasus's exporter; each kind of
failure is distinguished (D.1)."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pillion_cim import CIMDataError
from pillion_cim.cimxml.export import escape_lossy
from pillion_cim.cimxml.reader import (
    DoctypeRefusedError,
    Element,
    StructureError,
    XMLRefusedError,
    attribute,
    children,
    declared_encoding,
    only_child,
    parse_xml,
)

#: A longer response is refused unread; real ones have some 300 bytes.
MAX_RESPONSE: Final = 65_536
_BEGIN: Final = (
    '<?xml version="1.0" encoding="utf-8"?>\n<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="'
)
_RESPONSE: Final = (
    '" PROTOCOLVERSION="1.0"><SIMPLEEXPRSP><EXPMETHODRESPONSE NAME="ExportIndication"'
)
_CLOSE: Final = "</SIMPLEEXPRSP></MESSAGE></CIM>\n"
_MAX_KEPT: Final = 4096
_MAX_IDENTIFIER: Final = 200
#: For status 200.
RESPONSE_HEADERS: Final = (
    ("Content-Type", "application/xml; charset=utf-8"),
    ("CIMExport", "MethodResponse"),
)


def find_header(headers: Mapping[str, str], name: str) -> str | None:
    """Return a header's stripped value, case-insensitively and without an extension prefix of RFC
    2774 (``73-CIMExport``); None if it is missing."""
    value = headers.get(name)
    if value is None:
        wanted = name.casefold()
        value = headers.get(wanted)
        if value is None:
            value = next((v for k, v in headers.items() if _plain(k) == wanted), None)
    return value.strip() if value is not None else None


def _plain(name: str) -> str:
    folded = name.casefold()
    return folded[3:] if folded[:2].isdigit() and folded[2:3] == "-" else folded


class ResponseFailure(StrEnum):
    """Why an export response is no success (D.1)."""

    HTTP_STATUS = "http-status"
    NO_CIM_EXPORT = "no-cim-export-header"
    WRONG_CIM_EXPORT = "wrong-cim-export-header"
    NO_CONTENT_TYPE = "no-content-type"
    EMPTY_BODY = "empty-body"
    BODY_TOO_LARGE = "body-too-large"
    NOT_WELL_FORMED = "not-well-formed"
    DOCTYPE = "doctype"
    #: XML, but not an export response by DSP0203.
    NOT_VALID = "not-valid"
    CIM_VERSION = "unsupported-cim-version"
    DTD_VERSION = "unsupported-dtd-version"
    PROTOCOL_VERSION = "unsupported-protocol-version"
    WRONG_METHOD = "wrong-method"
    WRONG_MESSAGE_ID = "wrong-message-id"
    #: The listener answers with an ERROR element; ``code`` says which.
    CIM_ERROR = "cim-error"


class ExportResponseError(CIMDataError):
    def __init__(self, kind: ResponseFailure, detail: str, *, code: int | None = None) -> None:
        self.kind = kind
        #: One bounded line for people.
        self.detail = detail
        #: The CIM status code of an ERROR element.
        self.code = code
        super().__init__(detail)


def render_export_response(message_id: str) -> bytes:
    return f"{_BEGIN}{escape_lossy(message_id)}{_RESPONSE}/>{_CLOSE}".encode()


def render_export_error(message_id: str, code: int, description: str) -> bytes:
    error = f'<ERROR CODE="{code}" DESCRIPTION="{escape_lossy(description)}"/>'
    begin = f"{_BEGIN}{escape_lossy(message_id)}{_RESPONSE}"
    return f"{begin}>{error}</EXPMETHODRESPONSE>{_CLOSE}".encode()


def check_response_head(*, status: int, headers: Mapping[str, str]) -> None:
    """Raises ExportResponseError for a status or header that is no success."""
    if status != 200:
        cim_error = find_header(headers, "CIMError")
        told = f" ({_line(cim_error)})" if cim_error else ""
        raise ExportResponseError(ResponseFailure.HTTP_STATUS, f"HTTP status {status}{told}")
    export = find_header(headers, "CIMExport")
    if export is None:
        raise ExportResponseError(ResponseFailure.NO_CIM_EXPORT, "there is no CIMExport header")
    if export.casefold() != "methodresponse":
        detail = f"CIMExport is {_line(export)!r}, not MethodResponse"
        raise ExportResponseError(ResponseFailure.WRONG_CIM_EXPORT, detail)
    if find_header(headers, "Content-Type") is None:
        raise ExportResponseError(ResponseFailure.NO_CONTENT_TYPE, "there is no Content-Type")


def check_response_body(body: bytes, *, message_id: str) -> None:
    """Check the body of a response with a valid head. Raises ExportResponseError."""
    if len(body) > MAX_RESPONSE:
        detail = f"the response has more than {MAX_RESPONSE} bytes"
        raise ExportResponseError(ResponseFailure.BODY_TOO_LARGE, detail)
    if not body.strip():
        raise ExportResponseError(ResponseFailure.EMPTY_BODY, "the response has no body")
    try:
        _check_document(parse_xml(body), message_id)
    except DoctypeRefusedError as error:
        raise ExportResponseError(ResponseFailure.DOCTYPE, str(error)) from None
    except XMLRefusedError as error:
        raise ExportResponseError(ResponseFailure.NOT_WELL_FORMED, _line(str(error))) from None
    except StructureError as error:
        raise ExportResponseError(ResponseFailure.NOT_VALID, _line(str(error))) from None


def _check_document(root: Element, message_id: str) -> None:
    if root.tag != "CIM":
        raise StructureError(f"the document is a {str(root.tag)[:80]}, not a CIM")
    _check_major(attribute(root, "CIMVERSION"), "2.", ResponseFailure.CIM_VERSION)
    _check_major(attribute(root, "DTDVERSION"), "2.", ResponseFailure.DTD_VERSION)
    message = only_child(root, "MESSAGE")
    _check_major(attribute(message, "PROTOCOLVERSION"), "1.", ResponseFailure.PROTOCOL_VERSION)
    answered = attribute(message, "ID")
    response = only_child(only_child(message, "SIMPLEEXPRSP"), "EXPMETHODRESPONSE")
    method = attribute(response, "NAME")
    if method.casefold() != "exportindication":
        detail = f"the response is to the method {_line(method)!r}"
        raise ExportResponseError(ResponseFailure.WRONG_METHOD, detail)
    if answered != message_id:
        detail = f"the response is to the message {_line(answered)!r}, not {_line(message_id)!r}"
        raise ExportResponseError(ResponseFailure.WRONG_MESSAGE_ID, detail)
    _check_outcome(response)


def _check_outcome(response: Element) -> None:
    outcome = children(response)
    if not outcome:
        return
    if len(outcome) == 1 and outcome[0].tag == "IRETURNVALUE":
        return
    error = only_child(response, "ERROR", among=outcome)
    text = attribute(error, "CODE").strip()
    if not (text.isascii() and text.isdigit() and len(text) <= 10):
        raise StructureError(f"ERROR has the CODE {text[:20]!r}")
    code = int(text)
    if code != 0:
        detail = f"CIM error {code}: {_line(error.get('DESCRIPTION', ''))}"
        raise ExportResponseError(ResponseFailure.CIM_ERROR, detail, code=code)


def _check_major(text: str, major: str, kind: ResponseFailure) -> None:
    if not text.startswith(major):
        raise ExportResponseError(kind, f"version {_line(text)!r} is not {major}x")


def _line(text: str) -> str:
    """One line of at most 200 characters."""
    return " ".join(text[:200].split())


class ResponseChecker:
    """Checks the responses of one listener.

    It keeps a short accepted body, split at the message identifier, and accepts an equal body
    around the next identifier without parsing. The verdict is the same: a kept body is UTF-8
    without ``&`` and ``<!`` and has the identifier exactly once, so it is the value of the ID
    attribute. An identifier has only ASCII letters, digits and hyphens.
    """

    __slots__ = ("_after", "_before")

    def __init__(self) -> None:
        self._before = b""
        self._after = b""

    def check(
        self, *, status: int, headers: Mapping[str, str], body: bytes, message_id: str
    ) -> None:
        """Raises ExportResponseError if the listener has not confirmed the message."""
        check_response_head(status=status, headers=headers)
        identifier = message_id.encode() if _is_plain(message_id) else b""
        if identifier and self._before and body == self._before + identifier + self._after:
            return
        check_response_body(body, message_id=message_id)
        if identifier and body.count(identifier) == 1 and _is_transparent(body):
            self._before, _, self._after = body.partition(identifier)


def _is_plain(message_id: str) -> bool:
    return (
        len(message_id) <= _MAX_IDENTIFIER
        and message_id.isascii()
        and message_id.replace("-", "").isalnum()
    )


def _is_transparent(body: bytes) -> bool:
    """Whether the bytes have no indirections (entities, other encodings)."""
    if len(body) > _MAX_KEPT or b"&" in body or b"<!" in body:
        return False
    return declared_encoding(body) in (None, b"utf-8")
