"""Parses the indication in a request's body, as far as a listener needs it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

from aiohttp import web

from pillion_cim.cimxml.headers import RESPONSE_HEADERS
from pillion_cim.cimxml.request import ExportMethodError, ExportRequestError, parse_export_request
from pillion_cim.cimxml.response import render_export_error, render_export_response
from pillion_cim.jsonform import encode_instance
from pillion_cim.schema import Schema
from pillion_cli.exits import CLIError
from pillion_cli.listener.sequence import SequenceIdentifier

_SINT64 = range(-(2**63), 2**63)


class ArrivalError(CLIError, ValueError):
    """A body that is no indication, with the reason."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """One indication that has arrived. ``properties`` are in their JSON form."""

    class_name: str
    properties: Mapping[str, Any]
    #: ``CIM-XML`` or ``CloudEvents``.
    protocol: str
    path: str

    def text(self, name: str) -> str | None:
        value = self.value(name)
        return value if isinstance(value, str) else None

    def sequence(self) -> SequenceIdentifier | None:
        """SequenceContext and SequenceNumber; None where either is missing.

        Raises:
            ArrivalError: one that is of another type.
        """
        context, number = self.value("SequenceContext"), self.value("SequenceNumber")
        if context is None or number is None:
            return None
        if isinstance(number, str) and number.isdecimal() and number.isascii() and len(number) < 20:
            number = int(number)
        if not isinstance(context, str):
            raise ArrivalError(f"SequenceContext is no string: {context!r:.80}")
        if not isinstance(number, int) or isinstance(number, bool) or number not in _SINT64:
            raise ArrivalError(f"SequenceNumber is no sint64: {number!r:.80}")
        return SequenceIdentifier(context, number)

    def value(self, name: str) -> Any:
        """The value of a property, without its type; None where there is none."""
        value = self.properties.get(name)
        if value is None:
            wanted = name.lower()
            found = (key for key in self.properties if key.lower() == wanted)
            value = self.properties.get(next(found, ""))
        # A value may state its type: {"type": "sint64", "value": 7}.
        return value.get("value") if isinstance(value, dict) and "type" in value else value


def read_cloud_event(body: bytes, *, path: str) -> Arrival:
    """The indication in a CloudEvent in structured mode (JSON).

    Raises:
        ArrivalError: it is none.
    """
    try:
        event = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise ArrivalError(f"the body is not JSON: {error}") from None
    if not isinstance(event, dict):
        raise ArrivalError("the body is no JSON object")
    for attribute in ("specversion", "id", "source", "type"):
        if not isinstance(event.get(attribute), str) or not event[attribute]:
            raise ArrivalError(f"the CloudEvent has no {attribute}")
    if event["specversion"] != "1.0":
        raise ArrivalError(f"specversion is {event['specversion']!r:.40}, and only 1.0 is known")
    return read_document(event.get("data"), protocol="CloudEvents", path=path)


def read_document(document: object, *, protocol: str, path: str) -> Arrival:
    """The indication in ``{"class": …, "properties": {…}}``.

    Raises:
        ArrivalError: it is none.
    """
    given = document if isinstance(document, dict) else {}
    class_name, properties = given.get("class"), given.get("properties")
    if not isinstance(class_name, str) or not isinstance(properties, dict):
        raise ArrivalError('the data is no indication, which is {"class": …, "properties": {…}}')
    return Arrival(class_name=class_name, properties=properties, protocol=protocol, path=path)


class ExportRefusedError(CLIError):
    """A request that is no export request; ``answer`` says so to its sender."""

    def __init__(self, answer: web.Response, detail: str) -> None:
        super().__init__(detail)
        self.answer = answer


@dataclass(frozen=True, slots=True)
class Export:
    message_id: str
    arrival: Arrival

    def success(self) -> web.Response:
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
    # Encoded, since it may quote untrusted input.
    headers = {"CIMErrorDetails": quote(error.detail, safe=" ,.:;()'/=")}
    if error.cim_error is not None:
        headers["CIMError"] = error.cim_error
    return web.Response(status=error.status, headers=headers)


def _answer(body: bytes) -> web.Response:
    return web.Response(body=body, headers=dict(RESPONSE_HEADERS))
