"""What a gateway is sent of one indication: a line of ``POST /v1/relay`` (the design's "The
relay").

An ordinary line of ``POST /v1/indications``, and ``relay`` beside it: the subscription's uid, when
the indication was accepted first (seconds since the epoch), and the relay queue's context and
number, which are the identity of what has no other. The body's bytes are spliced in as they are.
"""

from datetime import UTC, datetime
from functools import lru_cache
from typing import Any

import msgspec

from pillion_sidecar.delivery.handler import Delivery
from pillion_sidecar.indication import Indication

#: Content languages that a gateway takes.
MOST_LANGUAGES = 16
#: The last that RFC 3339 can say, in seconds since the epoch: with an offset a publisher says an
#: hour of the year 10000. A group expires later than its members, still.
LATEST_EXPIRES = 253_402_300_798.0
LATEST_GROUP_EXPIRES = 253_402_300_799.0

_encode = msgspec.json.encode


def render_line(delivery: Delivery, *, epoch: float, in_group: bool) -> bytes:
    """Return the line of a delivery, with its end.

    ``epoch`` is ``Clock.time()`` less ``Clock.monotonic()``; ``in_group`` whether its place in its
    message group goes with it.

    Raises:
        ValueError: a text that UTF-8 cannot carry.
    """
    indication = delivery.indication
    return b'%b%b,"relay":{"subscription":%b,"acceptedAt":%.6f,"context":%b,"number":%d}}\n' % (
        indication.body[:-1],
        _envelope(indication, in_group=in_group),
        _text(delivery.subscription),
        indication.accepted_at + epoch,
        _text(delivery.sequence_context or ""),
        delivery.sequence_number or 0,
    )


def _envelope(indication: Indication, *, in_group: bool) -> bytes:
    """The members beside class and properties, each with a comma before it."""
    given = _source(indication.source)
    if indication.group is not None:
        given += b',"group":' + _encode(indication.group)
    if indication.member is not None and in_group:
        given += _membership(indication)
    if indication.expires is not None:
        given += b',"expires":"%b"' % _rfc3339(min(indication.expires, LATEST_EXPIRES))
    if indication.languages:
        given += b',"languages":' + _encode(indication.languages[:MOST_LANGUAGES])
    return given


# Neighbours mostly have the same source, and all of one queue the same context.
@lru_cache(maxsize=64)
def _source(source: str | None) -> bytes:
    return b"" if source is None else b',"source":' + _encode(source)


@lru_cache(maxsize=64)
def _text(text: str) -> bytes:
    return _encode(text)


def _membership(indication: Indication) -> bytes:
    member = indication.member
    assert member is not None
    given: dict[str, Any] = {"sequence": member.sequence}
    if member.last:
        given["last"] = True
    if member.ordered:
        given["ordered"] = True
    if member.expires is not None:
        given["groupExpires"] = _rfc3339(min(member.expires, LATEST_GROUP_EXPIRES)).decode()
    if member.max_idle_seconds is not None:
        given["groupMaxIdleSeconds"] = member.max_idle_seconds
    return b"," + _encode(given)[1:-1]


def _rfc3339(seconds: float) -> bytes:
    return datetime.fromtimestamp(seconds, UTC).isoformat().replace("+00:00", "Z").encode()
