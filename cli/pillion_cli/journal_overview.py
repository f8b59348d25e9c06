"""A summary of a journal, and the export of its indications."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.indications import membership
from pillion_cli.journal_reader import JournalReader, Judged, Outcome, State, rfc_3339
from pillion_sidecar.journal.ports import QueueState
from pillion_sidecar.journal.records import (
    FRAME,
    INDICATION,
    Flag,
    IndicationRecord,
    decode_envelope,
    decode_indication,
)
from pillion_sidecar.journal.segments import VERSION, segment_name, segment_of


@dataclass(slots=True)
class Waiting:
    pending: int = 0
    #: Journal time of the oldest acceptance.
    oldest: float = float("inf")
    #: Greater than the number of each place.
    above: int = 0

    def add(self, accepted_at: float, number: int = 0) -> None:
        self.pending += 1
        self.oldest = min(self.oldest, accepted_at)
        self.above = max(self.above, number + 1)

    def times(self) -> dict[str, Any]:
        oldest = rfc_3339(self.oldest) if self.pending else None
        return {"pending": self.pending, "oldestAcceptedAt": oldest}


@dataclass(slots=True)
class _Segment:
    records: int = 0
    live_records: int = 0
    live_bytes: int = 0


@dataclass(slots=True)
class Overview:
    reader: JournalReader
    queues: dict[int, Waiting] = field(default_factory=dict)
    #: By source and group: held indications, and the lowest held sequence.
    groups: dict[tuple[str | None, str | None], Waiting] = field(default_factory=dict)
    sequences: dict[tuple[str | None, str | None], int] = field(default_factory=dict)
    segments: dict[int, _Segment] = field(default_factory=dict)
    identities: int = 0
    lost: int = 0

    def take_all(self) -> "Overview":
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
                waiting = self.queues.setdefault(place.destination, Waiting())
                waiting.add(accepted_at, place.number)
                is_live = True
            elif state is State.LOST:
                self.lost += 1
        if one.is_held:
            self._hold(one, accepted_at)
        if is_live:
            # The copy is read back instead of the record.
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
                **_state(
                    account.states.get(index),
                    next_number=max(account.next_number.get(index, 0), waiting.above),
                ),
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


def _state(state: QueueState | None, *, next_number: int) -> dict[str, Any]:
    """``next_number`` is what the next start gives; the state's own is as old as the state."""
    if state is None:
        return {"nextAttemptTime": None, "failures": 0, "paused": False, "context": None}
    due = state.next_attempt_at
    return {
        "nextAttemptTime": None if due is None else rfc_3339(due),
        "failures": state.failures,
        "paused": state.paused_since is not None,
        "context": {
            "epoch": state.epoch,
            "nextSequenceNumber": next_number - state.base,
            "sent": state.sends_identifiers,
        },
    }


@dataclass(slots=True, kw_only=True)
class Export:
    #: Also settled indications.
    all: bool = False
    #: Only indications for this destination.
    destination: str | None = None
    envelope: bool = False
    bodiless: int = field(default=0, init=False)

    def lines(self, reader: JournalReader) -> Iterator[bytes]:
        for one in reader.indications():
            if not self._is_wanted(reader, one):
                continue
            record = decode_indication(one.data, one.offset, one.frame)
            if one.frame.flags & Flag.BODILESS:
                self.bodiless += 1
                if not self.envelope:
                    continue
            line = b"null" if one.frame.flags & Flag.BODILESS else line_of(record)
            yield _enveloped(reader, one, record, line) if self.envelope else line

    def _is_wanted(self, reader: JournalReader, one: Judged) -> bool:
        if self.destination is None and (self.all or one.is_held):
            return True
        return any(
            (self.all or outcome.is_open) and self._is_for(reader, outcome)
            for outcome in one.outcomes
        )

    def _is_for(self, reader: JournalReader, outcome: Outcome) -> bool:
        if self.destination is None:
            return True
        return reader.destination(outcome.place.destination) == self.destination


def line_of(record: IndicationRecord) -> bytes:
    """The indication as a publisher sends it."""
    members: dict[str, Any] = {}
    envelope = record.envelope
    if envelope.source is not None:
        members["source"] = envelope.source
    if envelope.group is not None:
        members["group"] = envelope.group
    if envelope.member is not None:
        member = envelope.member
        members |= membership(
            sequence=member.sequence,
            last=member.last,
            ordered=member.ordered,
            expires=member.expires,
            max_idle_seconds=member.max_idle_seconds,
        )
    if record.expires:
        members["expires"] = rfc_3339(record.expires)
    body = record.body.strip()
    if not members:
        return body
    # The body is an object with members, so its last character closes it.
    return body[:-1] + b"," + _json(members)[1:]


def _enveloped(reader: JournalReader, one: Judged, record: IndicationRecord, line: bytes) -> bytes:
    around: dict[str, Any] = {
        "id": one.frame.id,
        "acceptedAt": rfc_3339(record.accepted_at),
        "places": [_place(reader, outcome) for outcome in one.outcomes],
    }
    if record.envelope.languages:
        around["contentLanguages"] = list(record.envelope.languages)
    return _json(around)[:-1] + b',"indication":' + line + b"}"


def _place(reader: JournalReader, outcome: Outcome) -> dict[str, Any]:
    place, state, reason = outcome
    subscription = reader.account.subscriptions.get(place.subscription)
    told: dict[str, Any] = {
        "destination": reader.destination(place.destination),
        "subscription": None if subscription is None else subscription.name,
        "filter": None if subscription is None else subscription.filter_name,
        "state": state.value,
    }
    if reason is not None:
        told["reason"] = reason.value
    return told


def _json(value: object) -> bytes:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":")).encode()
