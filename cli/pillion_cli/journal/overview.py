"""What is in a journal, summed up. What indications say, and the URLs of listeners, are no part of
it."""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.journal.reading import JournalReader, Judged, State
from pillion_cli.journal.times import rfc_3339
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.journal.records import FRAME, INDICATION, Flag, decode_envelope
from pillion_sidecar.journal.segments import VERSION, segment_name, segment_of


@dataclass(slots=True)
class Waiting:
    """What waits for one reason: for a destination, in a group."""

    pending: int = 0
    #: Journal time of the oldest acceptance.
    oldest: float = float("inf")

    def add(self, accepted_at: float) -> None:
        """Count one."""
        self.pending += 1
        self.oldest = min(self.oldest, accepted_at)

    def times(self) -> dict[str, Any]:
        """As JSON."""
        oldest = rfc_3339(self.oldest) if self.pending else None
        return {"pending": self.pending, "oldestAcceptedAt": oldest}


@dataclass(slots=True)
class _Segment:
    records: int = 0
    live_records: int = 0
    live_bytes: int = 0


@dataclass(slots=True)
class Overview:
    """Sums up a journal, record by record."""

    reader: JournalReader
    queues: dict[int, Waiting] = field(default_factory=dict)
    #: By source and group: held indications, and the least sequence that waits.
    groups: dict[tuple[str | None, str | None], Waiting] = field(default_factory=dict)
    sequences: dict[tuple[str | None, str | None], int] = field(default_factory=dict)
    segments: dict[int, _Segment] = field(default_factory=dict)
    identities: int = 0
    lost: int = 0

    def take_all(self) -> "Overview":
        """Read all records."""
        for one in self.reader.indications():
            self._take(one)
        return self

    def _take(self, one: Judged) -> None:
        self._segment(one.segment).records += 1
        self.identities += bool(one.frame.flags & Flag.IDENTITY)
        accepted_at: float = INDICATION.unpack_from(one.data, one.offset + FRAME.size)[0]
        is_live = one.is_held
        for place, state, _ in one.outcomes:
            if state is State.PENDING:
                self.queues.setdefault(place.destination, Waiting()).add(accepted_at)
                is_live = True
            elif state is State.LOST:
                self.lost += 1
        if one.is_held:
            self._hold(one, accepted_at)
        if is_live:
            # A copy stands for the record that was given: it is what is read back.
            copied_to = self.reader.account.copies.get(one.frame.id)
            home = one.segment if copied_to is None else segment_of(copied_to)[0]
            self._segment(home).live_records += 1
            self._segment(home).live_bytes += one.frame.size

    def _segment(self, number: int) -> _Segment:
        return self.segments.setdefault(number, _Segment())

    def _hold(self, one: Judged, accepted_at: float) -> None:
        envelope = decode_envelope(one.data, one.offset, one.frame)
        key = envelope.source, envelope.group
        self.groups.setdefault(key, Waiting()).add(accepted_at)
        if envelope.member is not None:
            sequence = envelope.member.sequence
            self.sequences[key] = min(sequence, self.sequences.get(key, sequence))

    # ------------------------------------------------------------------ as JSON

    def document(self) -> dict[str, Any]:
        """Return all of it as JSON."""
        reader = self.reader
        return {
            "journal": reader.journal_id,
            "version": VERSION,
            "lastTime": rfc_3339(reader.account.last_time),
            "segments": list(self._segments()),
            "destinations": list(self._destinations()),
            "heldGroups": list(self._held_groups()),
            "identities": self.identities + reader.stored_identities,
            "lost": self.lost,
        }

    def _segments(self) -> Iterator[dict[str, Any]]:
        for surveyed in self.reader.segments:
            counted = self.segments.get(surveyed.number, _Segment())
            yield {
                "name": segment_name(surveyed.number),
                "bytes": surveyed.size,
                "liveBytes": counted.live_bytes,
                "records": counted.records,
                "liveRecords": counted.live_records,
            }

    def _destinations(self) -> Iterator[dict[str, Any]]:
        account = self.reader.account
        known = {*account.destinations, *account.states, *self.queues}
        for index in sorted(known, key=self.reader.destination):
            uid, _ = account.destinations.get(index, ("", ""))
            waiting = self.queues.get(index, Waiting())
            yield {
                "name": self.reader.destination(index),
                "uid": uid,
                **waiting.times(),
                **_state(account.states.get(index)),
            }

    def _held_groups(self) -> Iterator[dict[str, Any]]:
        for key, waiting in self.groups.items():
            source, group = key
            yield {
                "source": source,
                "group": group,
                **waiting.times(),
                "leastSequence": self.sequences.get(key),
            }


def _state(state: QueueState | None) -> dict[str, Any]:
    if state is None:
        return {"nextAttemptTime": None, "failures": 0, "paused": False, "context": None}
    due = state.next_attempt_at
    return {
        "nextAttemptTime": None if due is None else rfc_3339(due),
        "failures": state.failures,
        "paused": state.paused_since is not None,
        "context": {
            "epoch": state.epoch,
            "nextSequenceNumber": state.next_number - state.base,
            "sent": state.sends_identifiers,
        },
    }
