"""What the history knows of replays: which outcomes one selects, and how far it is."""

from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field

import msgspec

from pillion_sidecar.history.missed import REACHED
from pillion_sidecar.history.outcome import (
    NoteResult,
    Numbered,
    Outcome,
    OutcomeQuery,
    OutcomeResult,
)

#: The results by which an indication leaves its queue.
ENDS = frozenset((*REACHED, OutcomeResult.DISCARDED))
_PART_BITS = 16
_PART_BYTES = (1 << _PART_BITS) // 8


class NumberSet:
    """Numbers, at one bit each where they are dense."""

    __slots__ = ("_parts", "count")

    def __init__(self) -> None:
        self._parts: dict[int, bytearray] = {}
        self.count = 0

    def add(self, number: int) -> bool:
        """Return whether it is new."""
        part = self._parts.get(number >> _PART_BITS)
        if part is None:
            part = self._parts[number >> _PART_BITS] = bytearray(_PART_BYTES)
        at, bit = (number & ((1 << _PART_BITS) - 1)) >> 3, 1 << (number & 7)
        if part[at] & bit:
            return False
        part[at] |= bit
        self.count += 1
        return True

    def __contains__(self, number: int) -> bool:
        part = self._parts.get(number >> _PART_BITS)
        at = (number & ((1 << _PART_BITS) - 1)) >> 3
        return part is not None and bool(part[at] & (1 << (number & 7)))


class Seen:
    """Indications, by the journal that accepted them and their sequence there."""

    def __init__(self) -> None:
        self._of: dict[str, NumberSet] = {}

    def add(self, outcome: Outcome) -> bool:
        """Return whether it is new."""
        return self._of.setdefault(outcome.journal, NumberSet()).add(outcome.id)

    def __contains__(self, outcome: Outcome) -> bool:
        known = self._of.get(outcome.journal)
        return known is not None and outcome.id in known


class Settled:
    """Which replayed outcomes are settled, each once however often it came."""

    def __init__(self) -> None:
        self._delivered = NumberSet()
        self._discarded = NumberSet()
        #: Those that were delivered at last, too.
        self._later = 0

    @property
    def delivered(self) -> int:
        return self._delivered.count

    @property
    def discarded(self) -> int:
        return self._discarded.count - self._later

    def note(self, number: int, *, is_discarded: bool) -> None:
        """``number``: of the outcome that was repeated."""
        if is_discarded:
            if number not in self._delivered:
                self._discarded.add(number)
        elif self._delivered.add(number) and number in self._discarded:
            self._later += 1


class Progress(msgspec.Struct, kw_only=True, rename="camel", omit_defaults=True):
    """How far a replay is, as a note in the history. Times are in seconds since the epoch. A later
    version may add fields."""

    until: float | None = None
    #: The last number when it was first seen: it covers none above.
    last: int = 0
    started: float | None = None
    #: The number up to which outcomes were replayed or left out.
    through: int = 0
    replayed: int = 0
    left_out: dict[str, int] = {}
    #: Whether outcomes of its time had left the history before they were reached.
    misses_begin: bool = False
    oldest: float | None = None
    #: ``Complete`` or ``Failed``, once it is.
    ended: str = ""
    finished: float | None = None
    detail: str = ""

    @property
    def selected(self) -> int:
        return self.replayed + sum(self.left_out.values())


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(Progress).decode


def replay_note(uid: str, destination: str, progress: Progress, *, at: float) -> Outcome:
    """``at``: seconds since the epoch."""
    return Outcome(
        time=at,
        result=NoteResult.REPLAY,
        destination=destination,
        subscription="",
        class_name="",
        # Not the body, which gives way where the disk is slow.
        detail=_encode(progress).decode(),
        accepted=at,
        queue=0,
        id=0,
        replay=uid,
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayQuery(OutcomeQuery):
    """The outcomes that a replay selects: none of a repeated indication."""

    results: frozenset[str]
    #: Empty: all.
    destinations: frozenset[str] = frozenset()

    def matches(self, outcome: Outcome) -> bool:
        return (
            outcome.result in self.results
            and outcome.redrives is None
            and outcome.replay is None
            # A dead letter is of an indication that has an outcome itself.
            and (outcome.lost is None or outcome.destination in self.destinations)
            and (not self.destinations or outcome.destination in self.destinations)
            and OutcomeQuery.matches(self, outcome)
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class OfReplays(OutcomeQuery):
    """The outcomes and notes of some replays."""

    uids: frozenset[str]

    def matches(self, outcome: Outcome) -> bool:
        return outcome.replay in self.uids

    def may_be_in(self, data: bytes) -> bool:
        return any(uid.encode() in data for uid in self.uids)


@dataclass(slots=True)
class Kept:
    """What the history has of a replay."""

    settled: Settled = field(default_factory=Settled)
    #: The last note; None without one.
    progress: Progress | None = None
    number: int = 0
    time: float = 0.0


def read_replays(every: Callable[[], Iterable[Numbered]]) -> Mapping[str, Kept]:
    """Return them by uid; ``every`` yields what :class:`OfReplays` selects. Blocks; raises
    OSError."""
    found: defaultdict[str, Kept] = defaultdict(Kept)
    for number, outcome in every():
        kept = found[outcome.replay or ""]
        if outcome.result in ENDS:
            is_discarded = outcome.result == OutcomeResult.DISCARDED
            kept.settled.note(outcome.redrives or 0, is_discarded=is_discarded)
        if outcome.result != NoteResult.REPLAY:
            continue
        try:
            kept.progress = _decode(outcome.detail or "")
        except msgspec.MsgspecError:
            # Of a later version: an earlier note is right, too.
            continue
        kept.number, kept.time = number, outcome.time
    return found


def read_seen(every: Callable[[], Iterable[Numbered]], *, through: int) -> Seen:
    """Return the indications up to a number that a replay has dealt with. ``every`` yields what it
    selects. Blocks; raises OSError."""
    seen = Seen()
    for number, outcome in every():
        if number > through:
            break
        if outcome.body:
            seen.add(outcome)
    return seen
