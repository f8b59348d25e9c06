"""The intake as a CIM-XML listener (D.6): any CIM exporter can publish through a deliverer.

A queue that is full for now, or an indication that was discarded, is CIM error 1 (FAILED), as
pywbem's listener has it, so that an exporter which retries, retries.
"""

from urllib.parse import quote

from aiohttp import web

from pillion_cim.cimxml.request import (
    CIM_ERR_FAILED,
    CIM_ERR_INVALID_PARAMETER,
    ExportMethodError,
    ExportRequest,
    ExportRequestError,
    parse_export_request,
)
from pillion_cim.cimxml.response import (
    RESPONSE_HEADERS,
    render_export_error,
    render_export_response,
)
from pillion_cim.schema import Schema
from pillion_sidecar.config.problems import escape_controls
from pillion_sidecar.intake.decoding import decoded_instance
from pillion_sidecar.intake.submission import WRONG, Submission
from pillion_sidecar.reliability.receipts import Receipt

#: Why an exporter's indication goes to no listener: unrouted, ended or suppressed.
UNREACHED_HEADER = "Pillion-Unreached"

#: Characters of what is wrong with a request.
_MOST_DETAIL = 400
_READABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"})


def refuse_method(method: str) -> web.Response | None:
    """Answer what is not a POST: 405 for HTTP's own methods, 501 for others.

    Methods that the HTTP parser does not know, such as M-POST, do not get here;
    ``pillion_sidecar.connections`` answers them with 501.
    """
    if method == "POST":
        return None
    status = 405 if method in _READABLE_METHODS else 501
    answer = request_error(status, None, "an export message is sent by POST")
    answer.headers["Allow"] = "POST"
    return answer


def parse_export(
    request: web.BaseRequest, body: bytes, *, schema: Schema
) -> ExportRequest | web.Response:
    """Return an export request, or the answer to one that cannot be understood."""
    try:
        return parse_export_request(request.headers, body, schema=schema)
    except ExportRequestError as error:
        return request_error(error.status, error.cim_error, error.detail)
    except ExportMethodError as error:
        return method_error(error.message_id, error.code, error.description)


def submit_export(export: ExportRequest, submission: Submission, *, schema: Schema) -> None:
    """Submit the indication of an export request."""
    submission.accept(decoded_instance(export.instance, schema=schema), 0)


def export_answer(export: ExportRequest, submission: Submission) -> web.Response:
    """Answer an export request that was submitted."""
    if submission.refused:
        line = submission.refused[0]
        code = CIM_ERR_INVALID_PARAMETER if line.status == WRONG else CIM_ERR_FAILED
        return method_error(export.message_id, code, line.reason)
    return _success(export, submission)


def _success(export: ExportRequest, submission: Submission) -> web.Response:
    """Answer success. An export response has no place for more, so a header tells why the
    indication goes to no listener, where that is so."""
    answer = _answer(render_export_response(export.message_id))
    for reason in submission.unreached:
        answer.headers[UNREACHED_HEADER] = reason.value
    return answer


def delivered_answer(
    export: ExportRequest, submission: Submission, receipt: Receipt, *, timeout: float
) -> web.Response:
    """Answer an export request whose exporter asked for ``delivered`` and has waited for it."""
    if receipt.discarded:
        one = receipt.discarded[0]
        reason = f"discarded at destination {one.destination}: {one.reason}"
    elif receipt.pending:
        reason = f"accepted, but not delivered within {timeout:g} s"
    else:
        return _success(export, submission)
    return method_error(export.message_id, CIM_ERR_FAILED, reason)


def durable_answer(
    export: ExportRequest, submission: Submission, receipt: Receipt, *, timeout: float
) -> web.Response:
    """Answer an export request whose exporter asked for ``durable`` and has waited for it."""
    if receipt.secured.given:
        return _success(export, submission)
    reason = f"accepted, but not on disk within {timeout:g} s"
    return method_error(export.message_id, CIM_ERR_FAILED, reason)


def method_error(message_id: str, code: int, description: str) -> web.Response:
    """Answer 200 with a CIM error."""
    return _answer(render_export_error(message_id, code, description))


def request_error(status: int, cim_error: str | None, detail: str) -> web.Response:
    """Answer a failure at the level of HTTP; the detail is escaped as OpenPegasus does.

    The body says it again, for people: no header of DSP0200 is shown by curl alone.
    """
    detail = detail[:_MOST_DETAIL]
    headers = {"PGErrorDetail": quote(detail)}
    if cim_error is not None:
        headers["CIMError"] = cim_error
    said = detail if cim_error is None else f"{cim_error}: {detail}"
    return web.Response(status=status, headers=headers, text=f"{escape_controls(said)}\n")


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers=dict(RESPONSE_HEADERS))
