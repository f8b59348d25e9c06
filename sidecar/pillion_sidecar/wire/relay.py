"""The lines of ``POST /v1/relay``. A deliverer writes them and its gateway reads them: lines of
``POST /v1/indications`` with ``languages`` and ``relay``."""

from typing import Annotated

import msgspec

RELAY_PATH = "/v1/relay"
#: The acknowledgement level that a deliverer asks for.
RELAY_QUERY = "ack=durable"
#: Maximum content languages of an indication.
MAXIMUM_LANGUAGES = 16
#: Maximum characters.
MAXIMUM_UID = 256
MAXIMUM_CONTEXT = 1024
GREATEST_NUMBER = (1 << 63) - 1


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


#: A line: the body without its last brace, the members beside it, and a RelayOrigin, whose texts
#: are JSON. A format, since an encoder would copy the body.
RELAYED_LINE = b'%b%b,"relay":{"subscription":%b,"acceptedAt":%.6f,"context":%b,"number":%d}}\n'
