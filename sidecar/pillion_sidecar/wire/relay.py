"""The lines of ``POST /v1/relay``. A deliverer writes them and its gateway reads them: lines of
``POST /v1/indications`` with ``languages`` and ``relay``."""

from typing import Annotated

import msgspec

RELAY_PATH = "/v1/relay"
#: The history of an ending sidecar, in parts.
HISTORY_PATH = "/v1/relay/outcomes"
#: The acknowledgement level that a deliverer asks for.
RELAY_QUERY = "ack=durable"
#: The numbers of the lines, from 0, that repeat discarded indications. A header, since earlier
#: gateways refuse lines with unknown members.
REPEATED_HEADER = "Pillion-Repeated"
#: For each trace: ``traceparent``, the numbers of its lines, ``tracestate``, with spaces between.
TRACE_HEADER = "Pillion-Trace"
#: Bytes of those headers; the traces of further lines are left out.
MOST_TRACE_BYTES = 12 << 10
#: Maximum content languages of an indication.
MAXIMUM_LANGUAGES = 16
#: Maximum characters.
MAXIMUM_UID = 256
MAXIMUM_CONTEXT = 1024
MAXIMUM_NAME = 253
MAXIMUM_DETAIL = 1024
GREATEST_NUMBER = (1 << 63) - 1


class RelayedDiscard(
    msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """Why what a sidecar relays is a dead letter: ``indication.DeadLetter``."""

    destination: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_NAME)]
    reason: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_NAME)]
    detail: Annotated[str, msgspec.Meta(max_length=MAXIMUM_DETAIL)]
    attempts: Annotated[int, msgspec.Meta(ge=0, le=GREATEST_NUMBER)]
    #: Seconds since the epoch.
    at: Annotated[float, msgspec.Meta(ge=0)]


class RelayOrigin(
    msgspec.Struct, frozen=True, gc=False, rename="camel", forbid_unknown_fields=True
):
    """What a sidecar says of an indication that it relays."""

    #: uid of the subscription.
    subscription: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_UID)]
    #: By the sidecar; seconds since the epoch.
    accepted_at: Annotated[float, msgspec.Meta(ge=0)]
    #: Its place in the sidecar's queue.
    context: Annotated[str, msgspec.Meta(min_length=1, max_length=MAXIMUM_CONTEXT)]
    number: Annotated[int, msgspec.Meta(ge=0, le=GREATEST_NUMBER)]
    #: Of a dead letter; never null. Gateways of earlier versions refuse it.
    discard: RelayedDiscard | None = None


#: A line: the body without its last brace, the members beside it, and a RelayOrigin, whose texts
#: are JSON. A format, since an encoder would copy the body.
RELAYED_LINE = b'%b%b,"relay":{"subscription":%b,"acceptedAt":%.6f,"context":%b,"number":%d%b}}\n'
