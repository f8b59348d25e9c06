"""The SMTP handler: one message for each batch of deliveries."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from urllib.parse import urlsplit

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
    HoldCause,
)
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.batches import Batches, Waiting
from pillion_sidecar.handlers.content import UNSAYABLE
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.smtp.message import MessageFormat
from pillion_sidecar.handlers.smtp.wire import Envelope, SMTPWire
from pillion_sidecar.handlers.transport.exchange import (
    Failure,
    Headers,
    Sender,
    failure_outcome,
    later,
)
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.smtp import PROTOCOL, SMTPOptions
from pillion_sidecar.templates import TemplateError

#: Seconds without a connection after a refused user name or password: servers lock accounts for
#: repeated ones. Changed credentials have a new handler, which tries at once.
REFUSED_SECONDS = 300.0
_SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


class SMTPHandler:
    """Delivers to one mail server. Success: it has taken charge of the message (250)."""

    def __init__(self, *, sender: Sender, message_format: MessageFormat, clock: Clock) -> None:
        self._sender = sender
        self._format = message_format
        self._clock = clock
        self._batches = Batches(
            self._send,
            most=PROTOCOL.most_at_once,
            most_bytes=message_format.most_bytes,
            # A retry of a batch is the same message.
            gathers=True,
        )
        #: Credentials were refused, and until when (``Clock.monotonic()``) nothing is sent.
        self._refusal: tuple[Failure, float] | None = None

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        refusal = self._refusal
        if refusal is not None and self._clock.monotonic() < refusal[1]:
            failure = refusal[0]
            later(done, failure.result, failure.detail, hold=failure.hold)
            return
        try:
            body = self._format.item(delivery)
        except UNSAYABLE as error:
            later(done, DeliveryResult.FATAL_ERROR, f"a message cannot express this: {error}")
            return
        self._batches.add(body, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        """Nothing: items are rendered at once."""

    def close(self) -> None:
        self._batches.close()
        self._sender.close()

    def _send(self, batch: list[Waiting]) -> None:
        message = self._format.message([waiting.body for waiting in batch])
        self._sender.send(message, _Attempt(partial(self._conclude, batch)))

    def _conclude(self, batch: list[Waiting], ended: DeliveryOutcome | Failure) -> None:
        if isinstance(ended, Failure):
            if ended.hold in (HoldCause.REFUSED, HoldCause.CREDENTIALS):
                detail = f"{ended.detail}; they are tried again after {REFUSED_SECONDS:.0f} s"
                ended = replace(ended, detail=detail)
                self._refusal = ended, self._clock.monotonic() + REFUSED_SECONDS
            ended = failure_outcome(ended)
        self._batches.conclude_as_one(batch, ended)


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    options, credentials = destination.options, destination.credentials
    if not isinstance(options, SMTPOptions):
        raise InvalidDestinationError("smtp has no sender and no recipients")
    # What could not be sent as HTTP's Basic is no user name and password here either.
    authorization(credentials)
    named = parse_network_target(destination.destination, PROTOCOL)
    target = replace(named, tls=urlsplit(destination.destination).scheme == "smtps")
    envelope = Envelope(
        sender=options.sender,
        recipients=options.recipients,
        start_tls=options.start_tls,
        upgrade=None if target.tls else context.upgrade(destination, target),
        credentials=credentials,
        discreet=destination.url_is_secret,
    )
    clock = context.parts.clock
    try:
        message_format = MessageFormat(
            options, uid=destination.uid, clock=clock, service_name=context.service_name
        )
    except TemplateError as error:
        raise InvalidDestinationError(f"smtp.subject: {error}. {error.remedy}") from None
    return SMTPHandler(
        sender=context.sender(destination, target, new_wire=partial(_new_wire, envelope)),
        message_format=message_format,
        clock=clock,
    )


def _new_wire(envelope: Envelope, owner: WireOwner) -> RequestWire:
    return SMTPWire(owner=owner, envelope=envelope)


@dataclass(slots=True, eq=False)
class _Attempt:
    _done: Callable[[DeliveryOutcome | Failure], None]

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        """``status``: of SMTP, for the content; it is none of HTTP for an outcome."""
        if status < 300:
            self._done(_SUCCESS)
            return
        refuses = status >= 500
        self._done(DeliveryOutcome(DeliveryResult.ERROR, body.decode(), refuses_indication=refuses))

    def failed(self, failure: Failure) -> None:
        self._done(failure)
