"""Harm done to a journal's folder while no deliverer runs on it, and what it must cost.

Each harm is drawn from a seed. What it costs is worked out from the folder before and after: the
indications whose records cannot be read any more.
"""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal.marks import MARKS_NAME, read_marks
from pillion_sidecar.journal.records import Kind, decode_indication
from pillion_sidecar.journal.recovery import examine
from pillion_sidecar.journal.scan import FindingKind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Stretch,
    scan,
    segment_name,
    segment_numbers,
)


@dataclass(frozen=True, slots=True)
class Cost:
    """What a harm costs."""

    #: What was done, for people.
    what: str
    #: Identifiers whose records are gone.
    identifiers: frozenset[str] = frozenset()
    #: Whether the next start has to tell of it.
    told: bool = True
    #: Whether what is gone may have been acknowledged: then it is no write that a kill broke off.
    acknowledged: bool = False


@dataclass(frozen=True, slots=True)
class _Record:
    begin: int
    end: int
    kind: int
    identifier: str | None


def records_of(data: bytes) -> list[_Record]:
    """The sound records of a segment, in order."""
    found = []
    for at, frame in scan(data):
        if isinstance(frame, Stretch):
            continue
        identifier = None
        if frame.kind == Kind.INDICATION:
            identifier = decode_indication(data, at, frame).envelope.identifier
        found.append(_Record(at, at + frame.size, frame.kind, identifier))
    return found


def readable(folder: Path) -> frozenset[str]:
    """The identifiers of all indications that a start would read."""
    found: set[str] = set()
    opening = examine(SystemFiles(folder))
    for one in opening.surveyed:
        data = (folder / segment_name(one.number)).read_bytes()
        for record in records_of(data):
            inside = any(begin <= record.begin < end for begin, end in one.ranges)
            if record.identifier is not None and inside:
                found.add(record.identifier)
    return frozenset(found)


class Harm:
    """Does harm to one folder."""

    def __init__(self, folder: Path, draw: Random) -> None:
        self._folder = folder
        self._draw = draw

    def _numbers(self) -> list[int]:
        return segment_numbers([path.name for path in self._folder.iterdir()])

    def _path(self, number: int) -> Path:
        return self._folder / segment_name(number)

    def _costing(self, what: str, harm: Callable[[], bool], *, acknowledged: bool = True) -> Cost:
        before = readable(self._folder)
        told = harm()
        return Cost(what, before - readable(self._folder), told, told and acknowledged)

    def _is_acknowledged(self, path: Path, at: int) -> bool:
        """Whether the log is written up to a byte of the newest segment, as the marks say."""
        marks = read_marks((self._folder / MARKS_NAME).read_bytes())
        assert marks is not None
        assert marks.end is not None
        return self._path(marks.end.number) == path and at < marks.end.offset

    def flip(self) -> Cost:
        """Flip one bit of any record, or header, but not in the last write."""
        paths = [self._path(number) for number in self._numbers()]
        path = self._draw.choice(paths)
        end = len(path.read_bytes())
        if path == paths[-1]:
            end = self._last_commit(path)
        if end <= HEADER_SIZE:
            return Cost("nothing to flip", told=False)
        records = [one for one in records_of(path.read_bytes()) if one.end <= end]
        last = records[-1].end if records else HEADER_SIZE
        at = self._draw.randrange(last)
        cost = self._costing(f"flip {path.name}@{at}", lambda: self._flip(path, at))
        assert len(cost.identifiers) <= 1, f"one bit costs {cost}"
        return cost

    def flip_last(self) -> Cost:
        """Flip one bit of the last write."""
        path = self._path(self._numbers()[-1])
        begin = self._last_commit(path)
        records = [one for one in records_of(path.read_bytes()) if one.begin >= begin]
        if begin <= HEADER_SIZE or not records:
            return Cost("nothing to flip", told=False)
        at = self._draw.randrange(begin, records[-1].end)
        return self._costing(
            f"flip last {path.name}@{at}",
            lambda: self._flip(path, at),
            acknowledged=self._is_acknowledged(path, at),
        )

    def _last_commit(self, path: Path) -> int:
        commits = [one.begin for one in records_of(path.read_bytes()) if one.kind == Kind.COMMIT]
        return commits[-1] if commits else HEADER_SIZE

    def _flip(self, path: Path, at: int) -> bool:
        with path.open("r+b") as file:
            file.seek(at)
            (old,) = file.read(1)
            file.seek(at)
            file.write(bytes([old ^ 1 << self._draw.randrange(8)]))
        return True

    def remove(self) -> Cost:
        """Remove the first, the last, or one segment in the middle."""
        numbers = self._numbers()
        number = self._draw.choice((numbers[0], numbers[-1], self._draw.choice(numbers)))
        path = self._path(number)
        marks = read_marks((self._folder / MARKS_NAME).read_bytes())
        assert marks is not None
        inside = numbers[0] < number < numbers[-1]
        # What is not marked yet, or not needed any more, is no loss.
        told = inside or marks.oldest <= number <= marks.newest

        def harm() -> bool:
            path.unlink()
            return told

        if len(numbers) == 1:
            return Cost("only one segment", told=False)
        return self._costing(f"remove {path.name} of {len(numbers)}", harm)

    def tear(self) -> Cost:
        """Leave at the end of the log what a torn write may leave: garbage, a part of a stale
        record, or a part of the last one."""
        path = self._path(self._numbers()[-1])
        data = path.read_bytes()
        records = records_of(data)
        end = records[-1].end if records else HEADER_SIZE
        how, acknowledged = self._draw.choice(("garbage", "stale", "cut")), False
        if how == "cut" and records and self._last_commit(path) > HEADER_SIZE:
            keep = self._draw.randrange(records[-1].begin + 1, end)
            acknowledged = self._is_acknowledged(path, keep)
            left, told = data[:keep], acknowledged or any(data[records[-1].begin : keep])
        elif how == "stale" and records:
            one = self._draw.choice(records)
            stale = data[one.begin : self._draw.randrange(one.begin + 1, one.end)]
            left, told = data[:end] + stale, any(stale)
        else:
            left, told = data[:end] + self._draw.randbytes(self._draw.randrange(1, 4000)), True

        def harm() -> bool:
            path.write_bytes(left)
            return told

        what = f"tear {path.name}@{end}: {how}"
        return self._costing(what, harm, acknowledged=acknowledged)


def findings(folder: Path) -> list[FindingKind]:
    """What a start would find wrong."""
    return [one.kind for one in examine(SystemFiles(folder)).findings]
