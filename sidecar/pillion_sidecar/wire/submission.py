"""The answers to ``POST /v1/indications`` and ``POST /v1/relay``, and receipts. Deliverers write
them; a sidecar reads its gateway's. Fields without a value are omitted, unknown ones ignored."""

from collections.abc import Mapping
from typing import Any

import msgspec
from msgspec import UNSET, UnsetType


class RefusedLine(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    #: From 0.
    line: int
    #: 400 (permanent) or 429 (temporary).
    status: int
    reason: str = ""
    field: str | None = None
    destination: str | None = None


class DiscardedLine(msgspec.Struct, frozen=True):
    """A line one of whose targets was discarded."""

    line: int
    destination: str
    #: A ``DiscardReason``.
    reason: str


class ReceiptAnswer(msgspec.Struct, rename="camel", kw_only=True):
    """The results of a request's accepted lines so far."""

    delivered: int | UnsetType = UNSET
    discarded: list[DiscardedLine] | UnsetType = UNSET
    #: Discards that are not listed.
    discarded_beyond: int | UnsetType = UNSET
    pending: int | UnsetType = UNSET
    #: Lines without listener, by reason.
    unrouted: int | UnsetType = UNSET
    ended: int | UnsetType = UNSET
    suppressed: int | UnsetType = UNSET
    #: Everything accepted is on disk.
    durable: bool | UnsetType = UNSET
    #: Enough stores outside the pod have it as well.
    stable: bool | UnsetType = UNSET
    #: The receipt's ID, while more is to come.
    receipt: str | UnsetType = UNSET
    #: In a callback: all lines are settled.
    complete: bool | UnsetType = UNSET


class SubmissionAnswer(ReceiptAnswer, kw_only=True):
    accepted: int = 0
    duplicate: int = 0
    refused: list[RefusedLine] = []
    #: Duplicates that were offered again to targets that missed them.
    redelivered: int | UnsetType = UNSET
    #: The first line that was not read.
    unread_from: int | UnsetType = UNSET
    #: The publisher's ``instance``.
    instance: str | UnsetType = UNSET
    #: Why not all was read.
    reason: str | UnsetType = UNSET


def read_submission(document: Mapping[str, Any]) -> SubmissionAnswer:
    """Raises ValueError."""
    try:
        return msgspec.convert(document, SubmissionAnswer)
    except msgspec.ValidationError as error:
        raise ValueError(str(error)) from None
