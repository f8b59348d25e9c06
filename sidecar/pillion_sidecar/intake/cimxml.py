"""The intake as a CIM-XML listener (D.6): any CIM exporter can publish. A full queue or a discarded
indication is CIM error 1 (FAILED), as in pywbem's listener, so that an exporter that retries does
so."""

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

#: Reason without listener: unrouted, ended or suppressed.
UNREACHED_HEADER = "Pillion-Unreached"

#: Maximum characters of a problem.
_MOST_DETAIL = 400
_READABLE_METHODS = frozenset({"GET", "HEAD", "OPTIONS", "PUT", "DELETE", "PATCH", "TRACE"})


def refuse_method(method: str) -> web.Response | None:
    """Answer 405 to HTTP's own methods and 501 to others, None to POST.
    ``pillion_sidecar.connections`` answers methods that the parser does not know, such as
    M-POST."""
    if method == "POST":
        return None
    status = 405 if method in _READABLE_METHODS else 501
    answer = request_error(status, None, "an export message is sent by POST")
    answer.headers["Allow"] = "POST"
    return answer


def parse_export(
    request: web.BaseRequest, body: bytes, *, schema: Schema
) -> ExportRequest | web.Response:
    """Return an export request, or the error answer."""
    try:
        return parse_export_request(request.headers, body, schema=schema)
    except ExportRequestError as error:
        return request_error(error.status, error.cim_error, error.detail)
    except ExportMethodError as error:
        return method_error(error.message_id, error.code, error.description)


def submit_export(export: ExportRequest, submission: Submission, *, schema: Schema) -> None:
    submission.accept(decoded_instance(export.instance, schema=schema), 0)


def export_answer(export: ExportRequest, submission: Submission) -> web.Response:
    if submission.refused:
        line = submission.refused[0]
        code = CIM_ERR_INVALID_PARAMETER if line.status == WRONG else CIM_ERR_FAILED
        return method_error(export.message_id, code, line.reason)
    return _success(export, submission)


def _success(export: ExportRequest, submission: Submission) -> web.Response:
    """Answer success; a header has the reason without listener, since an export response has no
    place for it."""
    answer = _answer(render_export_response(export.message_id))
    for reason in submission.unreached:
        answer.headers[UNREACHED_HEADER] = reason.value
    return answer


def delivered_answer(
    export: ExportRequest, submission: Submission, receipt: Receipt, *, timeout: float
) -> web.Response:
    """Answer after a wait for ``delivered``."""
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
    """Answer after a wait for ``durable`` or ``stable``."""
    signal, where = receipt.secured, "on disk"
    if receipt.is_for_stable:
        signal, where = receipt.stable, "in enough stores"
    if signal.given:
        return _success(export, submission)
    reason = f"accepted, but not {where} within {timeout:g} s"
    return method_error(export.message_id, CIM_ERR_FAILED, reason)


def method_error(message_id: str, code: int, description: str) -> web.Response:
    return _answer(render_export_error(message_id, code, description))


def request_error(status: int, cim_error: str | None, detail: str) -> web.Response:
    """Answer an HTTP failure; the detail is escaped as in OpenPegasus. The body repeats it for
    people, since curl shows no headers."""
    detail = detail[:_MOST_DETAIL]
    headers = {"PGErrorDetail": quote(detail)}
    if cim_error is not None:
        headers["CIMError"] = cim_error
    said = detail if cim_error is None else f"{cim_error}: {detail}"
    return web.Response(status=status, headers=headers, text=f"{escape_controls(said)}\n")


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers=dict(RESPONSE_HEADERS))
