"""CIM-XML export messages as the listener takes and answers them (DSP0200 3.3)."""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import quote

from aiohttp import web

from pillion_cim.cimxml.headers import RESPONSE_HEADERS
from pillion_cim.cimxml.request import ExportMethodError, ExportRequestError, parse_export_request
from pillion_cim.cimxml.response import render_export_error, render_export_response
from pillion_cim.jsonform import encode_instance
from pillion_cim.schema import Schema
from pillion_cli.listener.arrival import Arrival, read_document


class ExportRefusedError(Exception):
    """A request that is no export request; ``answer`` says so to its sender."""

    def __init__(self, answer: web.Response, detail: str) -> None:
        super().__init__(detail)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Export:
    """An export request, and the answers to it."""

    message_id: str
    arrival: Arrival

    def success(self) -> web.Response:
        """It has succeeded."""
        return _answer(render_export_response(self.message_id))

    def failure(self, code: int, description: str) -> web.Response:
        """It has failed, with a CIM status code; the status of HTTP is 200."""
        return _answer(render_export_error(self.message_id, code, description))


def read_export(headers: Mapping[str, str], body: bytes, *, schema: Schema, path: str) -> Export:
    """Read an export request.

    Raises:
        ExportRefusedError: it is none.
        ArrivalError: what is in it is no indication that can be put in order.
    """
    try:
        request = parse_export_request(headers, body, schema=schema)
    except ExportRequestError as error:
        raise ExportRefusedError(_http_failure(error), str(error)) from error
    except ExportMethodError as error:
        answer = _answer(render_export_error(error.message_id, error.code, error.description))
        raise ExportRefusedError(answer, str(error)) from error
    document = encode_instance(request.instance, schema=schema)
    return Export(request.message_id, read_document(document, protocol="CIM-XML", path=path))


def _http_failure(error: ExportRequestError) -> web.Response:
    # Encoded, since what a stranger sent may be quoted in it.
    headers = {"CIMErrorDetails": quote(error.detail, safe=" ,.:;()'/=")}
    if error.cim_error is not None:
        headers["CIMError"] = error.cim_error
    return web.Response(status=error.status, headers=headers)


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers=dict(RESPONSE_HEADERS))
