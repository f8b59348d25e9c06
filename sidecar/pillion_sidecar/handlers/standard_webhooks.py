"""The handler of Standard Webhooks 1.0: signed JSON over HTTP.

The body has ``type`` and ``data`` of the CloudEvent of the same indication, and ``timestamp``:
IndicationTime, else the time of acceptance. It is signed with each secret, together with the
identifier and the time of the attempt.
"""

import base64
import hashlib
import hmac
from collections.abc import Callable, Sequence
from urllib.parse import quote

import msgspec

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.config.signing import SigningKey
from pillion_sidecar.delivery.handler import Delivery, Handler, HoldCause
from pillion_sidecar.handlers.authorization import Authorizer
from pillion_sidecar.handlers.cloudevents import TYPE_PREFIX
from pillion_sidecar.handlers.content import (
    Content,
    content_of,
    data_parts,
    identifier_of,
    occurred,
)
from pillion_sidecar.handlers.context import HandlerContext
from pillion_sidecar.handlers.dead_letters import header_lines
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.http.answers import STATUS
from pillion_sidecar.handlers.http.posting import PostHandler
from pillion_sidecar.handlers.transport.exchange import Sender
from pillion_sidecar.handlers.transport.target import HTTPTarget
from pillion_sidecar.indication import Indication, Selection
from pillion_sidecar.protocols.standard_webhooks import PROTOCOL

#: Characters of an identifier in a header; a longer one is sent as its digest.
LONGEST_IDENTIFIER = 255

_encode = msgspec.json.encode
#: Returns a signature with its version.
_Sign = Callable[[bytes], bytes]


class StandardWebhooksHandler(PostHandler):
    """Delivers to one listener destination. Any 2xx is success; 410 holds the destination."""

    what = "a webhook"
    heeds_gone = True

    def __init__(
        self,
        *,
        sender: Sender,
        target: HTTPTarget,
        authorizer: Authorizer,
        clock: Clock,
        keys: Sequence[SigningKey],
    ) -> None:
        super().__init__(
            sender=sender,
            target=target,
            content_type="application/json",
            authorizer=authorizer,
            clock=clock,
        )
        self._signers = [_signer(key) for key in keys]

    def read(self, indication: Indication, selection: Selection | None) -> Content:
        return content_of(indication, selection)

    def render(self, delivery: Delivery) -> tuple[bytes, bytes]:
        indication = delivery.indication
        content = self.read(indication, delivery.selection)
        parts = [
            b'{"type":',
            _encode(TYPE_PREFIX + indication.class_name),
            b',"timestamp":',
            _encode(occurred(content, indication, self._clock)),
            b',"data":',
            *data_parts(content, delivery),
            b"}",
        ]
        body = b"".join(parts)
        identifier = header_identifier(identifier_of(content, delivery)).encode("ascii")
        now = b"%d" % self._clock.time()
        signed = b"%b.%b.%b" % (identifier, now, body)
        signatures = b" ".join(sign(signed) for sign in self._signers)
        fields = b"webhook-id: %b\r\nwebhook-timestamp: %b\r\nwebhook-signature: %b\r\n" % (
            identifier,
            now,
            signatures,
        )
        return fields + header_lines(indication.dead_letter), body


def header_identifier(identifier: str) -> str:
    """``identifier`` in ASCII without spaces and full stops, which separate what is signed."""
    safe = quote(identifier, safe="/:?#[]@!$&'()*+,;=-_~", errors="replace").replace(".", "%2E")
    if len(safe) <= LONGEST_IDENTIFIER:
        return safe
    return hashlib.sha256(safe.encode("ascii")).hexdigest()


def _signer(key: SigningKey) -> _Sign:
    if not key.is_asymmetric:
        secret = key.secret
        return lambda signed: b"v1," + base64.b64encode(hmac.digest(secret, signed, "sha256"))
    # Loaded already, when the secret was read; see config.signing.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    private = Ed25519PrivateKey.from_private_bytes(key.secret)
    return lambda signed: b"v1a," + base64.b64encode(private.sign(signed))


def create_handler(destination: ListenerDestination, context: HandlerContext) -> Handler:
    """See :class:`pillion_sidecar.handlers.context.Factory`."""
    credentials = destination.credentials
    if credentials is None or not credentials.signing:
        raise InvalidDestinationError("it has no signing secret", cause=HoldCause.CREDENTIALS)
    target = context.target(destination, PROTOCOL)
    return StandardWebhooksHandler(
        sender=context.sender(destination, target, reading=STATUS),
        target=target,
        authorizer=context.authorizer(destination),
        clock=context.parts.clock,
        keys=credentials.signing,
    )
