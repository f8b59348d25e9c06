"""Reads export requests as a listener does (D.6, DSP0200 3.3). Refusals follow OpenPegasus's
listener. Versions count by their major number. A batch (MULTIEXPREQ) is refused, as by every known
listener."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pillion_cim import CIMDataError
from pillion_cim.cimxml.reader import (
    Element,
    StructureError,
    XMLRefusedError,
    attribute,
    children,
    declared_encoding,
    only_child,
    parse_xml,
    read_instance,
)
from pillion_cim.cimxml.response import find_header
from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema

#: CIM status codes (DSP0200) of an export response.
CIM_ERR_FAILED: Final = 1
CIM_ERR_INVALID_PARAMETER: Final = 4
CIM_ERR_NOT_SUPPORTED: Final = 7

_CONTENT_TYPE: Final = re.compile(
    r"(?:application|text)/xml\s*(?:;\s*charset\s*=\s*(?:utf-8|\"utf-8\")\s*)?;?", re.IGNORECASE
)
_VERSION: Final = re.compile(r"([0-9]{1,4})\.[0-9]{1,4}(?:\.[0-9]{1,4})?")


@dataclass(frozen=True, slots=True)
class ExportRequest:
    message_id: str
    instance: CIMInstance
    #: As the request spells it; equals "ExportIndication" without regard to case.
    method: str


class ExportRequestError(CIMDataError):
    """Fails at the level of HTTP: answer ``status`` and, if given, ``CIMError``."""

    def __init__(self, status: int, cim_error: str | None, detail: str) -> None:
        self.status = status
        #: None if the standard has none for it.
        self.cim_error = cim_error
        self.detail = detail
        super().__init__(f"{status} {cim_error or ''}: {detail}")


class ExportMethodError(CIMDataError):
    """Fails at the level of CIM: answer 200 with an ERROR element."""

    def __init__(self, code: int, description: str, message_id: str) -> None:
        self.code = code
        self.description = description
        self.message_id = message_id
        super().__init__(f"CIM error {code}: {description}")


def parse_export_request(
    headers: Mapping[str, str], body: bytes, *, schema: Schema
) -> ExportRequest:
    """Read an export request; the caller has checked the HTTP method and the size. Raises
    ExportRequestError or ExportMethodError, nothing else."""
    method = _check_headers(headers)
    root = _parse(body)
    try:
        message_id, call = _find_call(root, headers)
        return _read_call(call, message_id, method, schema)
    except StructureError as error:
        raise ExportRequestError(400, "request-not-valid", str(error)) from None


def _check_headers(headers: Mapping[str, str]) -> str | None:
    """Return the CIMExportMethod header."""
    export = find_header(headers, "CIMExport")
    if export is None:
        raise ExportRequestError(400, "unsupported-operation", "there is no CIMExport header")
    if export.casefold() != "methodrequest":
        detail = f"CIMExport is {export[:80]!r}, not MethodRequest"
        raise ExportRequestError(400, "unsupported-operation", detail)
    if find_header(headers, "CIMExportBatch") is not None:
        detail = "send one export request in each message"
        raise ExportRequestError(501, "multiple-requests-unsupported", detail)
    content_type = find_header(headers, "Content-Type")
    if content_type is None or _CONTENT_TYPE.fullmatch(content_type) is None:
        detail = "Content-Type must be application/xml or text/xml, in utf-8"
        raise ExportRequestError(400, None, detail)
    return find_header(headers, "CIMExportMethod")


def _parse(body: bytes) -> Element:
    if not body.strip():
        raise ExportRequestError(400, "request-not-valid", "the body is empty")
    if body.startswith(b"\xef\xbb\xbf"):
        detail = "the body begins with a byte order mark"
        raise ExportRequestError(400, "request-not-well-formed", detail)
    try:
        body.decode()
    except UnicodeDecodeError as error:
        detail = f"the body is not UTF-8 at byte {error.start}"
        raise ExportRequestError(400, "request-not-valid", detail) from None
    if declared_encoding(body) not in (None, b"utf-8"):
        detail = "the XML declaration names an encoding other than utf-8"
        raise ExportRequestError(400, "request-not-valid", detail)
    try:
        return parse_xml(body)
    except XMLRefusedError as error:
        raise ExportRequestError(400, "request-not-well-formed", str(error)) from None


def _find_call(root: Element, headers: Mapping[str, str]) -> tuple[str, Element]:
    """Find EXPMETHODCALL, checking the versions on the way."""
    if root.tag != "CIM":
        raise StructureError(f"the document is a {str(root.tag)[:80]}, not a CIM")
    _check_version(attribute(root, "CIMVERSION"), "2", "unsupported-cim-version")
    _check_version(attribute(root, "DTDVERSION"), "2", "unsupported-dtd-version")
    message = only_child(root, "MESSAGE")
    message_id = attribute(message, "ID")
    protocol = attribute(message, "PROTOCOLVERSION")
    declared = find_header(headers, "CIMProtocolVersion") or "1.0"
    if declared != protocol:
        detail = f"CIMProtocolVersion is {declared[:20]!r}, PROTOCOLVERSION {protocol[:20]!r}"
        raise ExportRequestError(400, "header-mismatch", detail)
    _check_version(protocol, "1", "unsupported-protocol-version")
    found = children(message)
    if [child.tag for child in found] == ["MULTIEXPREQ"]:
        detail = "a MULTIEXPREQ without the CIMExportBatch header"
        raise ExportRequestError(400, "header-mismatch", detail)
    request = only_child(message, "SIMPLEEXPREQ", among=found)
    calls = [child for child in children(request) if child.tag != "CORRELATOR"]
    return message_id, only_child(request, "EXPMETHODCALL", among=calls)


def _check_version(text: str, major: str, cim_error: str) -> None:
    found = _VERSION.fullmatch(text)
    if found is None or found.group(1) != major:
        raise ExportRequestError(501, cim_error, f"version {text[:20]!r} is not {major}.x")


def _read_call(
    call: Element, message_id: str, declared: str | None, schema: Schema
) -> ExportRequest:
    method = attribute(call, "NAME")
    if declared is None or declared.casefold() != method.casefold():
        detail = f"CIMExportMethod does not name the method {method[:80]!r}"
        raise ExportRequestError(400, "header-mismatch", detail)
    parameters = children(call)
    names = []
    for parameter in parameters:
        if parameter.tag != "EXPPARAMVALUE":
            raise StructureError(f"{str(parameter.tag)[:80]} cannot stand in an EXPMETHODCALL")
        names.append(attribute(parameter, "NAME"))
    if method.casefold() != "exportindication":
        description = f"there is no export method {method[:80]}"
        raise ExportMethodError(CIM_ERR_NOT_SUPPORTED, description, message_id)
    for name in names:
        if name.casefold() != "newindication":
            description = f"ExportIndication has no parameter {name[:80]}"
            raise ExportMethodError(CIM_ERR_NOT_SUPPORTED, description, message_id)
    if len(parameters) != 1 or len(parameters[0]) == 0:
        description = "ExportIndication needs the parameter NewIndication, once, with an instance"
        raise ExportMethodError(CIM_ERR_INVALID_PARAMETER, description, message_id)
    instance = read_instance(only_child(parameters[0], "INSTANCE"), schema=schema)
    return ExportRequest(message_id, instance, method)
