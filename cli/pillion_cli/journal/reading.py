"""What is in a journal, and what became of each indication; at most one segment is in memory."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from typing import NamedTuple

from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.journal.records import (
    DELIVERED,
    REASONS,
    Flag,
    Frame,
    Kind,
    decode_places,
)
from pillion_sidecar.journal.recovery import Surveyed, examine
from pillion_sidecar.journal.scan import Finding, FindingKind, ScanState
from pillion_sidecar.journal.segments import segment_name, walk

#: How often a folder is looked at until what is wrong with it is the same twice.
_LOOKS = 5
_INDICATION = int(Kind.INDICATION)


def rfc_3339(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC: 2026-11-21T13:30:00.25Z."""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


class State(StrEnum):
    PENDING = "pending"
    #: It waits for its predecessors.
    HELD = "held"
    DELIVERED = "delivered"
    DISCARDED = "discarded"
    #: Its body was in the memory of a deliverer that has ended.
    LOST = "lost"


class Outcome(NamedTuple):
    place: Place
    state: State
    #: Why, where it was discarded.
    reason: DiscardReason | None = None

    @property
    def is_open(self) -> bool:
        return self.state in (State.PENDING, State.HELD)


@dataclass(frozen=True, slots=True)
class Judged:
    """An INDICATION with the outcomes of its places."""

    segment: int
    #: The bytes of the segment, and where the record lies in them.
    data: bytes
    offset: int
    frame: Frame
    outcomes: tuple[Outcome, ...]
    #: Whether it waits for its predecessors; then it may have no place.
    is_held: bool


class JournalReader:
    """Reads a journal: all of it once when made, and once more for its indications.

    Raises :class:`~pillion_sidecar.journal.files.JournalError` for what no deliverer would open.
    """

    def __init__(self, files: Files) -> None:
        self._opening = examine(files)
        for _ in range(_LOOKS):
            if not self._findings():
                break
            # Beside a running deliverer a hole may be a write that was under way.
            before, self._opening = self._findings(), examine(files)
            if self._findings() == before:
                break

    @property
    def account(self) -> ScanState:
        return self._opening.account

    @property
    def journal_id(self) -> str:
        """The journal's id in hexadecimal; "" where no sound header says it."""
        found = self._opening.journal_id
        return "" if found is None else found.hex()

    @property
    def segments(self) -> list[Surveyed]:
        return self._opening.surveyed

    @property
    def stored_identities(self) -> int:
        """How many identities outlive their segments."""
        return sum(file.entries for file in self._opening.identities)

    def _findings(self) -> list[Finding]:
        return self._opening.findings

    def damage(self) -> list[Finding]:
        """Return what is lost, oldest segment first."""
        ends = (FindingKind.TORN, FindingKind.UNFINISHED)
        return [one for one in self._opening.findings if one.kind not in ends]

    def torn(self) -> list[Finding]:
        """Return the end of the log that is not what was written: a crash broke it off, or it is
        damaged and may have been acknowledged."""
        return [one for one in self._opening.findings if one.kind is FindingKind.TORN]

    def unfinished(self) -> list[Finding]:
        """Return the last write, broken off, of which nothing was acknowledged."""
        return [one for one in self._opening.findings if one.kind is FindingKind.UNFINISHED]

    def indications(self) -> Iterator[Judged]:
        """Give every indication once, in the order of the records."""
        account = self.account
        #: Of those of which there is a copy as well, what has been given.
        given: set[int] = set()
        for number, data, at, frame in self._records():
            if frame.flags & Flag.HELD and frame.id in account.released:
                # The record that it was released by says the rest, under an id of its own.
                continue
            if frame.id in account.copies:
                if frame.id in given:
                    continue
                given.add(frame.id)
            outcomes = self._outcomes(data, at, frame)
            yield Judged(number, data, at, frame, outcomes, self._is_held(frame))

    def destination(self, index: int) -> str:
        _, name = self.account.destinations.get(index, ("", ""))
        return name or f"(destination {index}, whose name is lost)"

    # ------------------------------------------------------------------ inside

    def _records(self) -> Iterator[tuple[int, bytes, int, Frame]]:
        for segment in self.segments:
            data = self._opening.read(segment_name(segment.number))
            for begin, end in segment.ranges:
                for at, kind, flags, size, entries, record_id in walk(data, begin, end):
                    if kind == _INDICATION:
                        yield segment.number, data, at, Frame(kind, flags, size, entries, record_id)

    def _is_held(self, frame: Frame) -> bool:
        held = bool(frame.flags & Flag.HELD)
        ended = frame.id in self.account.holds_ended or self._through_at_loss(frame) is not None
        return held and not ended

    def _through_at_loss(self, frame: Frame) -> dict[int, int] | None:
        """Up to where each destination had been delivered when the body was lost; None where it
        was not. What is delivered later says nothing of it."""
        if not frame.flags & Flag.BODILESS:
            return None
        losses = self.account.losses
        return next((through for lost, through in losses if frame.id <= lost), None)

    def _outcomes(self, data: bytes, at: int, frame: Frame) -> tuple[Outcome, ...]:
        held = bool(frame.flags & Flag.HELD)
        waiting = State.HELD if held else State.PENDING
        through = self._through_at_loss(frame)
        if through is None:
            through = self.account.through
        else:
            waiting = State.LOST
        outcomes = []
        for place in decode_places(data, at, frame):
            how = self.account.holds_ended.get(frame.id) if held else self._how(place, through)
            if how is None:
                outcomes.append(Outcome(place, waiting))
            else:
                reason = REASONS.get(how)
                state = State.DELIVERED if reason is None else State.DISCARDED
                outcomes.append(Outcome(place, state, reason))
        return tuple(outcomes)

    def _how(self, place: Place, through: dict[int, int]) -> int | None:
        """How a place ended, as SETTLEMENT has it; None where it has not."""
        how = self.account.settled.get(place.destination, {}).get(place.number)
        if how is None and place.number <= through.get(place.destination, -1):
            return DELIVERED
        return how
