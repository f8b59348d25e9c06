"""Reads a journal: a snapshot of its folder, and the outcome of each indication.

Every file is opened before anything is read, so what a running deliverer removes stays readable. At
most one segment is in memory.
"""

from collections.abc import Iterator
from contextlib import ExitStack, closing
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import NamedTuple

from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.files import (
    File,
    ReadableFile,
    ReadableFiles,
    SystemFiles,
    folder_error,
    unreadable_error,
)
from pillion_sidecar.journal.identities import identities_name as name_of_identities
from pillion_sidecar.journal.identities import identities_numbers
from pillion_sidecar.journal.marks import MARKS_NAME, MARKS_SIZE, SEGMENT_MARKS_SIZE
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
from pillion_sidecar.journal.segments import segment_name, segment_numbers, walk

_LISTINGS = 20


class Snapshot:
    """The open segments and identity files of a folder. Raises :class:`CommandError`."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._files = SystemFiles(folder)
        self._open: dict[str, tuple[File, int]] = {}
        self._others: dict[str, int] = {}
        self._marks = b""
        with ExitStack() as self._stack:
            self._take()
            # Complete; the caller closes it.
            self._stack = self._stack.pop_all()

    def __enter__(self) -> "Snapshot":
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # ------------------------------------------------------------------ queries

    def names(self) -> list[str]:
        return sorted([*self._open, *([MARKS_NAME] if self._marks else [])])

    def others(self) -> dict[str, int]:
        return self._others

    def is_folder(self, name: str) -> bool:
        return (self.folder / name).is_dir()

    def size(self, name: str) -> int:
        """In bytes, when it was opened."""
        return len(self._marks) if name == MARKS_NAME else self._open[name][1]

    def open(self, name: str) -> ReadableFile:
        if name == MARKS_NAME:
            return _MarksFile(self._marks)
        return _OpenFile(*self._open[name])

    def boot_id(self) -> bytes:
        return self._files.boot_id()

    # ------------------------------------------------------------------ taking it

    def _take(self) -> None:
        for _ in range(_LISTINGS):
            marks = self._read_marks()
            names = self._list()
            wanted = [segment_name(number) for number in segment_numbers(names)]
            wanted += [name_of_identities(number) for number in identities_numbers(names)]
            try:
                self._open = {name: self._open_one(name) for name in wanted}
                self._others = {name: self._files.size(name) for name in set(names) - set(wanted)}
            except FileNotFoundError:
                # Other files may be gone too; their pending indications were copied forward.
                self._stack.close()
                continue
            if self._read_marks()[:SEGMENT_MARKS_SIZE] == marks[:SEGMENT_MARKS_SIZE]:
                self._marks = marks
                return
            # Segments were begun or removed.
            self._stack.close()
        raise CommandError(f"{self.folder} changes faster than it can be read; try again")

    def _read_marks(self) -> bytes:
        try:
            with closing(self._files.open(MARKS_NAME)) as file:
                return file.read(0, MARKS_SIZE)
        except OSError:
            # A version without marks, a folder of that name, or an unreadable journal, which is
            # reported below.
            return b""

    def _list(self) -> list[str]:
        try:
            names = self._files.names()
        except FileNotFoundError as error:
            raise CommandError(
                f"there is no folder {self.folder}; name the folder of pillion sidecar --journal",
                code=Exit.USAGE,
            ) from error
        except OSError as error:
            failure = folder_error(str(self.folder), error)
            raise CommandError(str(failure), code=Exit.USAGE) from error
        if not segment_numbers(names) and MARKS_NAME not in names:
            raise CommandError(
                f"{self.folder} is no journal: it has no segment; name the folder of "
                "pillion sidecar --journal",
                code=Exit.USAGE,
            )
        return names

    def _open_one(self, name: str) -> tuple[File, int]:
        try:
            file = self._files.open(name)
            self._stack.callback(file.close)
            return file, self._files.size(name)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise CommandError(str(unreadable_error(name, error)), code=Exit.USAGE) from error


class _OpenFile:
    def __init__(self, file: File, size: int) -> None:
        self._file = file
        self._size = size

    def read(self, offset: int, size: int) -> bytes:
        return self._file.read(offset, max(0, min(size, self._size - offset)))

    def close(self) -> None:
        pass


class _MarksFile(_OpenFile):
    def __init__(self, data: bytes) -> None:
        self._data = data

    def read(self, offset: int, size: int) -> bytes:
        return self._data[offset : offset + size]


_LOOKS = 5
_INDICATION = int(Kind.INDICATION)


def rfc_3339(seconds: float) -> str:
    """Format seconds since the epoch as 2026-11-21T13:30:00.25Z."""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"


class State(StrEnum):
    PENDING = "pending"
    #: Waits for its predecessors.
    HELD = "held"
    DELIVERED = "delivered"
    DISCARDED = "discarded"
    #: The body was in the memory of a deliverer that has ended.
    LOST = "lost"


class Outcome(NamedTuple):
    place: Place
    state: State
    reason: DiscardReason | None = None

    @property
    def is_open(self) -> bool:
        return self.state in (State.PENDING, State.HELD)


@dataclass(frozen=True, slots=True)
class Judged:
    segment: int
    #: The bytes of the segment, and the offset of the record.
    data: bytes
    offset: int
    frame: Frame
    outcomes: tuple[Outcome, ...]
    #: Whether it waits for its predecessors. Such an indication may have no place.
    is_held: bool


class JournalReader:
    """Reads a journal once when constructed, and once more for its indications.

    Raises :class:`~pillion_sidecar.journal.files.JournalError`, as a deliverer's start does.
    """

    def __init__(self, files: ReadableFiles) -> None:
        self._opening = examine(files)
        for _ in range(_LOOKS):
            if not self._opening.findings:
                break
            # With a running deliverer a hole may be a write in progress.
            before, self._opening = self._opening.findings, examine(files)
            if self._opening.findings == before:
                break

    @property
    def account(self) -> ScanState:
        return self._opening.account

    @property
    def journal_id(self) -> str:
        """In hexadecimal; "" without a sound header."""
        found = self._opening.journal_id
        return "" if found is None else found.hex()

    @property
    def segments(self) -> list[Surveyed]:
        return self._opening.surveyed

    @property
    def stored_identities(self) -> int:
        """The number of identities that outlive their segments."""
        return sum(file.entries for file in self._opening.identities)

    def damage(self) -> list[Finding]:
        """Oldest segment first."""
        ends = (FindingKind.TORN, FindingKind.UNFINISHED)
        return [one for one in self._opening.findings if one.kind not in ends]

    def torn(self) -> list[Finding]:
        """Return the truncated end of the log: a crash interrupted the write, or it is damaged and
        may have been acknowledged."""
        return [one for one in self._opening.findings if one.kind is FindingKind.TORN]

    def unfinished(self) -> list[Finding]:
        """Nothing of it was acknowledged."""
        return [one for one in self._opening.findings if one.kind is FindingKind.UNFINISHED]

    def indications(self) -> Iterator[Judged]:
        """Yield each indication once, in the order of the records."""
        account = self.account
        #: Indications with a copy that were yielded.
        given: set[int] = set()
        for number, data, at, frame in self._records():
            if frame.flags & Flag.HELD and frame.id in account.released:
                # The releasing record, with its own id, stands for it.
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
        """Return the progress of each destination when the body was lost; None if it was not lost.
        Later deliveries are no evidence."""
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
        """The outcome code, as in SETTLEMENT; None if it is open."""
        how = self.account.settled.get(place.destination, {}).get(place.number)
        if how is None and place.number <= through.get(place.destination, -1):
            return DELIVERED
        return how
