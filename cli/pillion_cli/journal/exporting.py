"""A journal's indications as ``POST /v1/indications`` takes them, one to a line."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.journal.reading import JournalReader, Judged, Outcome
from pillion_cli.journal.times import rfc_3339
from pillion_sidecar.indication import GroupMember
from pillion_sidecar.journal.records import Flag, IndicationRecord, decode_indication


@dataclass(slots=True, kw_only=True)
class Export:
    """Which indications are exported, and how."""

    #: Those too of which every place is settled.
    all: bool = False
    #: Only those for this destination.
    destination: str | None = None
    envelope: bool = False
    #: Indications that were asked for and whose bodies were not kept.
    bodiless: int = field(default=0, init=False)

    def lines(self, reader: JournalReader) -> Iterator[bytes]:
        """Give the lines, without their ends."""
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
    """Return an indication in the form in which publishers send it."""
    members: dict[str, Any] = {}
    envelope = record.envelope
    if envelope.source is not None:
        members["source"] = envelope.source
    if envelope.group is not None:
        members["group"] = envelope.group
    if envelope.member is not None:
        members |= _group_members(envelope.member)
    if record.expires:
        members["expires"] = rfc_3339(record.expires)
    body = record.body.strip()
    if not members:
        return body
    # The body is an object with members, so what ends it is its last character.
    return body[:-1] + b"," + _json(members)[1:]


def _group_members(member: GroupMember) -> dict[str, Any]:
    members: dict[str, Any] = {"sequence": member.sequence}
    if member.last:
        members["last"] = True
    if member.ordered:
        members["ordered"] = True
    if member.expires is not None:
        members["groupExpires"] = rfc_3339(member.expires)
    if member.max_idle_seconds is not None:
        members["groupMaxIdleSeconds"] = member.max_idle_seconds
    return members


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
