"""The lines of ``GET /v1/outcomes``, one outcome a line, and the answer to
``POST /v1/outcomes/redrive``. Unknown members are ignored. Times are RFC 3339 in UTC."""

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from pillion_sidecar.wire.queues import AnswerError, Count, Number

#: Headers of the answer: which history it is, the number to ask from next, and whether there is
#: more already.
HISTORY_HEADER = "Pillion-History"
NEXT_HEADER = "Pillion-Next-After"
MORE_HEADER = "Pillion-More"


class OutcomeLine(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True
):
    """What became of one indication at one destination. Times are in UTC."""

    #: Counts the outcomes of this deliverer's history.
    number: int
    time: datetime
    #: delivered, discarded, relayed, handed-over or redriven.
    result: str
    destination: str
    subscription: str
    #: CIM class of the indication.
    class_name: str = msgspec.field(name="class")
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    #: Why it was discarded.
    reason: str | None = None
    #: Why the last attempt failed, as `lastResult` of a queue has it.
    cause: str | None = None
    #: One line of the last attempt.
    detail: str | None = None
    #: HTTP status of the last answer.
    status: int | None = None
    attempts: int = 0
    first_attempt_time: datetime | None = None
    last_attempt_time: datetime | None = None
    accepted_time: datetime
    sequence_context: str | None = None
    sequence_number: int | None = None
    #: The message group, and its sequence there.
    group: str | None = None
    group_sequence: int | None = None
    #: The number of the outcome that it repeats.
    redrives: int | None = None
    #: The destination that got the discarded indication as a dead letter.
    dead_letter: str | None = None
    #: The pod of the ended sidecar that has handed it over.
    origin: str | None = None
    #: uid of the IndicationReplay that it is of.
    replay: str | None = None
    #: The trace that its publisher gave (W3C Trace Context).
    traceparent: str | None = None
    #: Whether it was discarded while too few stores had it.
    forced: bool = False
    #: The indication, if it is asked for and kept.
    indication: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class RedriveAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel", omit_defaults=True):
    """What became of one request to redrive."""

    #: Indications that were offered again; with dryRun those that would be.
    redriven: Count
    #: Discards that were not redriven, by reason: redriven, not-kept or not-subscribed.
    skipped: dict[str, Count]
    #: How many have newer indications of their source delivered before them.
    newer: Count
    #: The value of ``after`` for the next request.
    next: Count
    #: The last number that was looked at; with it later discards are left out.
    through: Count
    #: Whether there may be more.
    more: bool
    #: Why the next one was refused, and the seconds after which it is worth trying again.
    refusal: str | None = None
    retry_after: Number | None = None
    #: The ID of the history.
    history: str


_decode = msgspec.json.Decoder(OutcomeLine).decode


def read_outcome(line: bytes) -> OutcomeLine:
    """Raises only AnswerError."""
    try:
        return _decode(line)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise AnswerError("a line is no outcome") from None


def read_redrive(document: Mapping[str, Any]) -> RedriveAnswer:
    """Raises only AnswerError."""
    try:
        return msgspec.convert(document, RedriveAnswer)
    except msgspec.ValidationError:
        raise AnswerError("it is no answer about a redrive") from None
