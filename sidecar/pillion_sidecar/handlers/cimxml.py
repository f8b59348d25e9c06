"""The CIM-XML handler: export messages over HTTP, with a strict check of the answer (D.1, S0.1). An
indication is rendered once; an attempt fills in what differs."""

import contextlib
import itertools
import json
from collections.abc import Callable
from dataclasses import dataclass

import msgspec

from pillion_cim.cimxml.export import EXPORT_HEADERS, ExportTemplate
from pillion_cim.cimxml.response import ExportResponseError, ResponseChecker
from pillion_cim.jsonform import decode_instance
from pillion_cim.schema import Schema
from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    FailureCause,
    Handler,
)
from pillion_sidecar.handlers.authorization import Authorizer
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.http.answers import status_outcome
from pillion_sidecar.handlers.http.requests import AuthorizedRequests, common_fields
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.cim_xml import PROTOCOL

#: CIM status codes about the instance (DSP0200 5.4.2.1): invalid parameter, invalid class, no such
#: property, type mismatch.
INSTANCE_REFUSED = frozenset((4, 5, 12, 13))

_RENDERED = "CIM-XML"
_UNSAYABLE = (ValueError, RecursionError)
_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS, "", 200)


def export_head(target: HTTPTarget) -> bytes:
    lines = "".join(f"{name}: {value}\r\n" for name, value in EXPORT_HEADERS)
    return target.post + lines.encode("ascii")


class CIMXMLHandler:
    """Delivers export messages to one listener destination."""

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        schema: Schema,
    ) -> None:
        self._requests = AuthorizedRequests(
            sender=sender, head=export_head(target), authorizer=authorizer, clock=clock
        )
        self._clock = clock
        self._schema = schema
        self._message_ids = itertools.count(1)
        self._checker = ResponseChecker()

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        indication = delivery.indication
        message_id = str(next(self._message_ids))
        try:
            fields = common_fields(delivery)
            body = self._template(indication, delivery.selection).render(
                message_id=message_id,
                filter_name=delivery.filter_name,
                sequence_context=delivery.sequence_context,
                sequence_number=delivery.sequence_number,
                correlated=delivery.correlated,
            )
        except _UNSAYABLE as error:
            later(done, DeliveryResult.FATAL_ERROR, f"CIM-XML cannot express this: {error}")
            return
        attempt = _Attempt(self._requests, message_id, done, self._clock, self._checker)
        self._requests.send(fields, body, attempt, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        with contextlib.suppress(*_UNSAYABLE):
            self._template(indication, selection)

    def close(self) -> None:
        self._requests.close()

    def _template(self, indication: Indication, selection: Selection | None) -> ExportTemplate:
        return indication.form(_RENDERED, selection, self._make_template)

    def _make_template(self, body: bytes) -> ExportTemplate:
        try:
            document = msgspec.json.decode(body)
        except msgspec.DecodeError:
            # It refuses numbers that are no double.
            document = json.loads(body)
        return ExportTemplate(decode_instance(document, schema=self._schema, complete=False))


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    target = context.target(destination, PROTOCOL)
    return CIMXMLHandler(
        sender=context.sender(destination, target),
        target=target,
        authorizer=context.authorizer(destination),
        clock=context.parts.clock,
        schema=context.schema,
    )


@dataclass(slots=True, eq=False)
class _Attempt:
    _requests: AuthorizedRequests
    _message_id: str
    _done: Callable[[DeliveryOutcome], None]
    _clock: Clock
    _checker: ResponseChecker

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        if not 200 <= status < 300:
            self._done(self._requests.heed(status_outcome(status, headers, self._clock)))
            return
        named = {name.decode("latin-1"): value.decode("latin-1") for name, value in headers}
        try:
            self._checker.check(
                status=status, headers=named, body=body, message_id=self._message_id
            )
        except ExportResponseError as error:
            outcome = DeliveryOutcome(
                DeliveryResult.ERROR,
                str(error),
                status,
                refuses_indication=error.code in INSTANCE_REFUSED,
                cause=None if error.code is None else FailureCause.CIM_ERROR,
            )
            self._done(outcome)
        else:
            self._done(_SUCCESS)

    def failed(self, failure: Failure) -> None:
        self._done(failure_outcome(failure))
