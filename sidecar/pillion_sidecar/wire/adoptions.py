"""``/v1/adoptions``: the operator tells a gateway that a deliverer is gone, and asks how far the
adoption is."""

from typing import Annotated

import msgspec
from msgspec import Meta

from pillion_sidecar.wire.queues import AnswerError

#: Bytes of an order.
MAXIMUM_ORDER = 64 << 10
#: Destinations in a status, those with the most pending first.
MOST_DESTINATIONS = 100
#: Missing stores in a status.
MOST_MISSING = 10
#: Begins the claimant of an adopter, before its service; no pod has this uid.
ADOPTER = "adopter"
_MOST_GROUPS = 100
_MOST_MEMBERS = 100

_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")]
#: Of the service of a gateway: its pod's host name begins with it.
_Gateway = Annotated[
    str,
    Meta(
        pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?(\.[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?)*\Z",
        max_length=253,
    ),
]
_Members = Annotated[list[_Gateway], Meta(max_length=_MOST_MEMBERS)]


class OrderError(Exception):
    """The order cannot be carried out. The message names the field."""


class _Record(msgspec.Struct, rename="camel", kw_only=True, frozen=True): ...


class OrderedGroup(_Record, kw_only=True, frozen=True):
    """A group of stores, by the names of their gateways' services."""

    name: _Name
    members: Annotated[list[_Gateway], Meta(min_length=1, max_length=_MOST_MEMBERS)]
    backups: _Members = []


class OrderedStores(_Record, kw_only=True, frozen=True):
    groups: Annotated[list[OrderedGroup], Meta(min_length=1, max_length=_MOST_GROUPS)]
    within: Annotated[str, Meta(pattern=r"^(Quorum|All)\Z")] = "Quorum"
    between: Annotated[str, Meta(pattern=r"^(Any|Majority|All|AllActive)\Z")] = "Any"
    #: With fencing Lease: as long as the deliverer may deliver after the claim; else 0.
    lease_seconds: Annotated[float, Meta(ge=0, le=600)] = 0


class AdoptionOrder(_Record, kw_only=True, frozen=True):
    """The deliverer of ``session`` is proven to be gone."""

    #: The id of its journal.
    session: Annotated[str, Meta(pattern=r"^[0-9a-f]{32}\Z")]
    #: Its IndicationService.
    service: _Name
    #: That keep its journal.
    stores: OrderedStores


class AdoptedPlace(_Record, kw_only=True, frozen=True):
    """What one destination had pending."""

    name: str
    pending: int
    problem: str | None = None


class AdoptionStatus(_Record, kw_only=True, frozen=True):
    session: str
    service: str
    #: Waiting, Claiming, Reading, Sending, Releasing, Done or Failed.
    state: str
    #: Why it waits or has failed.
    problem: str | None = None
    #: The stores without which it cannot be claimed; at most 10.
    missing: list[str] = []
    pending: int = 0
    #: Taken by this gateway; it had the duplicates already; refused for good.
    taken: int = 0
    duplicate: int = 0
    refused: int = 0
    #: Destinations with pending indications.
    destinations: list[AdoptedPlace] = []
    #: Seconds since it was Done or Failed; null before.
    ended_seconds: float | None = None


class AdoptionPage(_Record, kw_only=True, frozen=True):
    adoptions: list[AdoptionStatus]


encode = msgspec.json.Encoder().encode
_decode_page = msgspec.json.Decoder(AdoptionPage).decode
_decode_status = msgspec.json.Decoder(AdoptionStatus).decode
_decode = msgspec.json.Decoder(AdoptionOrder).decode


def read_order(body: bytes) -> AdoptionOrder:
    """Raises OrderError."""
    try:
        return _decode(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise OrderError(f"the order: {str(error)[:300]}") from None


def read_adoptions(body: bytes) -> list[AdoptionStatus]:
    """Read the list of an untrusted gateway. Raises AnswerError."""
    try:
        return _decode_page(body).adoptions
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AnswerError("the list of adoptions cannot be read") from None


def read_adoption(body: bytes) -> AdoptionStatus:
    """Read an untrusted gateway's answer to an order. Raises AnswerError."""
    try:
        return _decode_status(body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise AnswerError("the answer to an order cannot be read") from None
