"""The record of an outcome: what became of one indication at one destination (S0.11)."""

from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple, Protocol

import msgspec

from pillion_sidecar.indication import DeadLetter
from pillion_sidecar.trace_context import TraceContext


class OutcomeResult(StrEnum):
    DELIVERED = "delivered"
    DISCARDED = "discarded"
    #: A gateway has it, which delivers it.
    RELAYED = "relayed"
    #: The gateway that takes over the rest of an ending sidecar has it.
    HANDED_OVER = "handed-over"
    #: A discarded one was offered again; ``redrives`` says which.
    REDRIVEN = "redriven"


class Origin(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """Where an outcome was recorded that an ending sidecar has handed over."""

    #: The name of its pod.
    pod: str
    #: The ID of its history, and the number there.
    history: str
    number: int


class NoteResult(StrEnum):
    """The results of notes, which are no outcomes and are not listed."""

    #: The original of a duplicate was discarded; ``publisher`` is the duplicate's.
    REPEATED = "repeated-fault"
    #: A receipt that may be asked for again; ``identifier`` is its ID, ``note`` what it is.
    RECEIPT = "receipt"
    #: The callback of a receipt was sent, or given up; ``identifier`` is its ID.
    CALLED_BACK = "called-back"
    #: How far a replay is: ``detail``.
    REPLAY = "replay"
    #: The journal lacked a part of what was in it, or of what another writer had: what became of
    #: the receipts before is not known.
    LACKED = "journal-lacked"


NOTES = frozenset(NoteResult)
#: What a publisher is told as a fault.
FAULTS = frozenset((OutcomeResult.DISCARDED, NoteResult.REPEATED))


class Outcome(msgspec.Struct, frozen=True, array_like=True, kw_only=True, gc=False):
    """Times are in seconds since the epoch. A later version may add fields at the end."""

    time: float
    #: An ``OutcomeResult`` or ``NoteResult``; a later version may have others.
    result: str
    destination: str
    subscription: str
    class_name: str
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    #: A ``DiscardReason``; a later version may have others.
    reason: str | None = None
    #: A ``FailureCause`` of the last attempt; a later version may have others.
    cause: str | None = None
    #: One line of the last attempt, such as "HTTP 503".
    detail: str | None = None
    #: HTTP status of the last answer.
    status: int | None = None
    #: Attempts that count.
    attempts: int = 0
    #: None: not attempted, or before a restart.
    first_attempt: float | None = None
    last_attempt: float | None = None
    accepted: float
    sequence_context: str | None = None
    sequence_number: int | None = None
    group: str | None = None
    group_sequence: int | None = None
    languages: tuple[str, ...] = ()
    #: uid of the subscription.
    subscription_uid: str = ""
    #: ``Place.destination`` and ``Place.number``; None if it had no number yet.
    queue: int
    number: int | None = None
    #: The journal sequence.
    id: int
    #: The number of the outcome that it repeats.
    redrives: int | None = None
    #: The indication in its JSON form; None where the service keeps no body of such an outcome.
    body: bytes | None = None
    #: The destination that got the discarded indication as a dead letter.
    dead_letter: str | None = None
    #: ``Indication.dead_letter``.
    lost: DeadLetter | None = None
    #: Of a discard: the digest of its identity, by which a repeat of it is known; None without one.
    #: Earlier versions omit and ignore it.
    digest: bytes | None = None
    #: None: it was recorded here. Earlier versions omit and ignore it.
    origin: Origin | None = None
    #: uid of the IndicationReplay that it is of. Earlier versions omit and ignore it.
    replay: str | None = None
    #: ``Indication.publisher``.
    publisher: str | None = None
    #: The content of a note.
    note: bytes | None = None
    #: ``Indication.trace``. Earlier versions omit and ignore it.
    trace: TraceContext | None = None
    #: Of a discard: too few stores had the indication. Earlier versions omit and ignore it.
    forced: bool = False

    @property
    def journal(self) -> str:
        """The journal whose sequence ``id`` is: the context is the service, the journal, the
        destination and a count."""
        _, _, rest = (self.sequence_context or "").partition("#")
        return rest.partition("#")[0]


class Numbered(NamedTuple):
    #: Counts the outcomes of a history, from 1; it never restarts on one volume.
    number: int
    outcome: Outcome


class Discard(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One accepted indication that was discarded for one destination, as the list of discards shows
    it."""

    time: datetime
    destination: str
    subscription: str
    reason: str
    detail: str | None = None
    source: str | None = None
    identifier: str | None = None
    sequence_context: str | None = None
    sequence_number: int | None = None
    #: Failed attempts.
    attempts: int = 0
    queue: int
    number: int | None = None
    id: int


def discard_of(outcome: Outcome) -> Discard:
    return Discard(
        time=datetime.fromtimestamp(outcome.time, UTC),
        destination=outcome.destination,
        subscription=outcome.subscription,
        reason=outcome.reason or "",
        detail=outcome.detail,
        source=outcome.source,
        identifier=outcome.identifier,
        sequence_context=outcome.sequence_context,
        sequence_number=outcome.sequence_number,
        attempts=outcome.attempts,
        queue=outcome.queue,
        number=outcome.number,
        id=outcome.id,
    )


def redrive_note(outcome: Outcome, number: int, *, at: float) -> Outcome:
    """Return the outcome that says that the discard ``number`` was redriven, at seconds since the
    epoch."""
    return msgspec.structs.replace(
        outcome,
        time=at,
        result=OutcomeResult.REDRIVEN.value,
        number=None,
        # None of the journal's places: nothing takes it back.
        sequence_context=None,
        body=None,
        digest=None,
        redrives=number,
        # It is no end of a replayed indication.
        replay=None,
    )


def repeated_fault(publisher: str, *, destination: str, reason: str, at: float) -> Outcome:
    """Return the note that the original of a publisher's duplicate was discarded, first at
    ``destination``. ``at`` is in seconds since the epoch."""
    return _note(
        NoteResult.REPEATED, at=at, destination=destination, reason=reason, publisher=publisher
    )


def receipt_note(receipt: str, note: bytes, *, publisher: str | None, at: float) -> Outcome:
    """Return the note of a receipt, by its ID. ``at`` is in seconds since the epoch."""
    return _note(
        NoteResult.RECEIPT, at=at, destination="", receipt=receipt, publisher=publisher, note=note
    )


def called_back_note(receipt: str, *, at: float) -> Outcome:
    """Return the note that a receipt has no callback any more. ``at`` is in seconds since the
    epoch."""
    return _note(NoteResult.CALLED_BACK, at=at, destination="", receipt=receipt)


def lacked_note(*, at: float) -> Outcome:
    """Return the note that receipts before are not known any more. ``at`` is in seconds since the
    epoch."""
    return _note(NoteResult.LACKED, at=at, destination="")


def _note(
    result: NoteResult,
    *,
    at: float,
    destination: str,
    reason: str | None = None,
    receipt: str | None = None,
    publisher: str | None = None,
    note: bytes | None = None,
) -> Outcome:
    return Outcome(
        time=at,
        result=result.value,
        destination=destination,
        subscription="",
        class_name="",
        identifier=receipt,
        reason=reason,
        accepted=at,
        queue=0,
        # None of the journal's.
        id=0,
        publisher=publisher,
        note=note,
    )


class OutcomeSink(Protocol):
    def add(self, outcome: Outcome) -> None:
        """Does not block."""

    def keeps_body(self, result: OutcomeResult) -> bool: ...

    @property
    def is_behind(self) -> bool:
        """Whether so much waits to be written that more is to come only :meth:`once_written`."""

    def once_written(self, then: Callable[[], None]) -> None: ...


class NoHistory:
    is_behind = False

    def add(self, outcome: Outcome) -> None: ...

    def keeps_body(self, result: OutcomeResult) -> bool:
        return False

    def once_written(self, then: Callable[[], None]) -> None:
        raise AssertionError("it is never behind")


@dataclass(frozen=True, slots=True, kw_only=True)
class OutcomeQuery:
    """None: all."""

    source: str | None = None
    identifier: str | None = None
    destination: str | None = None
    result: str | None = None
    reason: str | None = None
    #: Seconds since the epoch.
    since: float | None = None
    until: float | None = None
    #: The ID of the history that handed it over.
    history: str | None = None
    publisher: str | None = None
    #: Only what a publisher is told as a fault, notes too.
    faults: bool = False

    def matches(self, outcome: Outcome) -> bool:
        return (
            self.destination in (None, outcome.destination)
            and self._wants(outcome.result)
            and self.publisher in (None, outcome.publisher)
            and self.reason in (None, outcome.reason)
            and self.source in (None, outcome.source)
            and self.identifier in (None, outcome.identifier)
            and (self.since is None or outcome.time >= self.since)
            and (self.until is None or outcome.time < self.until)
            and (self.history is None or _history_of(outcome) == self.history)
        )

    def _wants(self, result: str) -> bool:
        if self.faults:
            return result in FAULTS
        return result not in NOTES if self.result is None else result == self.result

    def may_be_in(self, data: bytes) -> bool:
        """Whether the bytes of a block may have a match."""
        given = (
            self.source,
            self.identifier,
            self.destination,
            self.reason,
            self.result,
            self.history,
            self.publisher,
        )
        # A surrogate alone is in no record.
        return all(word.encode(errors="replace") in data for word in given if word)


def _history_of(outcome: Outcome) -> str | None:
    return None if outcome.origin is None else outcome.origin.history
