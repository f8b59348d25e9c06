"""The copies that a store keeps on disk, one folder for each session.

A folder has the journal's own segments, so that a start on it is a start on the journal, and one
file that says which epochs the copy knows. Nothing is told before it is on disk.

After a crash a copy ends before the first unsound record of its last segment: all that was told is
before that, and the writer sends the rest again.
"""

import re
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import msgspec
from msgspec import structs

from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.identities import identities_name, identities_numbers
from pillion_sidecar.journal.repair import write_whole
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    MAXIMUM_NUMBER,
    UNSOUND,
    read_header,
    segment_name,
    segment_numbers,
    segment_of,
    walk,
)
from pillion_sidecar.stores import copies
from pillion_sidecar.stores.copies import (
    NO_EPOCH,
    NO_RUN,
    ConflictError,
    Copy,
    Epoch,
    Extent,
    Piece,
    Removal,
    Run,
    StoreError,
    end_of,
)
from pillion_sidecar.stores.extents import load_extents, read_whole, split_runs
from pillion_sidecar.stores.folders import Folders

EPOCHS_NAME = "epochs.json"
#: A claim beyond the last one by more would leave the session no numbers.
MOST_EPOCHS_AHEAD = 1 << 32
#: The id of a journal, in hexadecimal.
_SESSION = re.compile(r"[0-9a-f]{32}")


class MalformedError(StoreError):
    """The request is none that a writer sends."""


class UnknownError(StoreError):
    """There is no copy of the session."""


class QuotaError(StoreError):
    """The store may not keep more bytes."""


class SessionsError(StoreError):
    """The store may not keep more sessions."""


class ForbiddenError(StoreError):
    """The session is another service account's."""


class BrokenError(StoreError):
    """The copy cannot be used until somebody has seen to the disk."""


#: Segments of a copy that may be smaller than this, about: each request looks at all.
MOST_SMALL_SEGMENTS = 1000
SMALL_SEGMENT = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreLimits:
    #: Of all copies together.
    maximum_bytes: int
    maximum_sessions: int
    #: Seconds after which a session that nobody has written to gives way to others.
    maximum_age: float = inf


class _Epochs(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    promised: tuple[int, str]
    written: tuple[int, str]
    #: By number: with which segment each run begins, and where it is whole.
    runs: tuple[tuple[int, int], ...] = ()
    #: Whether the last of them is not whole yet.
    is_renewing: bool = False
    #: See :class:`StoredCopy`. The first versions omit and ignore it.
    lacks_end: bool = False


_encode = msgspec.json.Encoder().encode
_decode = msgspec.json.Decoder(_Epochs).decode


class Store:
    """The copies of one namespace. Blocks; for one thread, which alone changes the folders.

    All calls raise StoreError, which changes nothing, and OSError.
    """

    def __init__(self, folders: Folders, limits: StoreLimits) -> None:
        """Blocks; may raise OSError. The caller holds the lock of the folders."""
        self._folders = folders
        self._limits = limits
        #: Bytes by session.
        self._sizes = {
            name: _size(folders.open(name))
            for name in folders.names()
            if _SESSION.fullmatch(name) is not None
        }
        self._total = sum(self._sizes.values())
        self._loaded: dict[str, StoredCopy] = {}

    def claim(self, session: str, epoch: Epoch) -> Copy:
        """Fence the session's writers of lower epochs; begin the session if there is none."""
        if _SESSION.fullmatch(session) is None:
            raise MalformedError("a session is the id of a journal: 32 hexadecimal digits")
        last = self.copy(session).promised.number if session in self._sizes else 0
        if epoch.number > last + MOST_EPOCHS_AHEAD:
            raise MalformedError(f"epoch {epoch.number} is too far beyond the last one, {last}")
        if session not in self._sizes:
            if len(self._sizes) >= self._limits.maximum_sessions:
                raise SessionsError(
                    f"the store keeps {len(self._sizes)} sessions of the namespace, and may keep no"
                    " more by journalCopies.maximumSessions"
                )
            self._folders.create(session)
            self._sizes[session] = 0
        copy = self._copy(session).claim(epoch)
        self._measure(session, copy)
        return copy

    def cut(self, session: str, epoch: Epoch, position: int) -> Copy:
        """Cut off what is not in the base of the epoch's log."""
        stored = self._copy(session)
        copy = stored.cut(epoch, position)
        self._measure(session, copy)
        return copy

    def append(self, session: str, epoch: Epoch, piece: Piece, data: bytes, *, base: int) -> Copy:
        """Take whole records that follow the copy; see :func:`copies.append`."""
        stored = self._copy(session)
        _check_records(session, piece, data)
        self._check_quota(len(data))
        if not segment_of(piece.position)[1]:
            self._check_segments(session, stored.copy)
        copy = stored.append(epoch, piece, data, base=base)
        self._measure(session, copy)
        return copy

    def remove(self, session: str, epoch: Epoch, removal: Removal) -> Copy:
        """Remove the segments that are not needed; see :func:`copies.remove`."""
        copy = self._copy(session).remove(epoch, removal)
        self._measure(session, copy)
        return copy

    def keep(self, session: str, epoch: Epoch, number: int, data: bytes, *, first: int) -> Copy:
        """Keep a file of identities, and remove those of segments before ``first``."""
        stored = self._copy(session)
        header = read_header(data)
        if header is None or header[:2] != (number, bytes.fromhex(session)):
            raise MalformedError(f"the bytes are no identities of segment {number:x}")
        if _sound_end(data) < len(data):
            raise MalformedError(f"the identities of segment {number:x} are damaged")
        self._check_quota(len(data))
        copy = stored.keep(epoch, number, data, first=first)
        self._measure(session, copy)
        return copy

    def identities(self, session: str) -> list[tuple[int, int]]:
        """Return the files of identities: by segment, its number and the size of the file."""
        return sorted(self._copy(session).identities.items())

    def read(self, session: str, position: int, size: int, *, identities: bool = False) -> bytes:
        """Return at most ``size`` bytes of one segment, or of a removed one's file of identities;
        fewer only at its end."""
        stored = self._copy(session)
        if identities:
            return stored.read_identities(position, size)
        return stored.read(position, size)

    def copy(self, session: str) -> Copy:
        return self._copy(session).copy

    def label(self, session: str, epoch: Epoch) -> Copy:
        """The copy has the whole base of an epoch."""
        return self._copy(session).label(epoch)

    def forget(self, session: str) -> None:
        """Remove a copy."""
        self._folders.remove(session)
        self._loaded.pop(session, None)
        self._total -= self._sizes.pop(session)

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes by session."""
        return self._sizes

    @property
    def total(self) -> int:
        """Bytes of all copies."""
        return self._total

    def _copy(self, session: str) -> "StoredCopy":
        if session not in self._sizes:
            raise UnknownError("the store has no copy of this session")
        stored = self._loaded.get(session)
        if stored is None:
            stored = self._loaded[session] = StoredCopy(session, self._folders.open(session))
        return stored

    def _check_quota(self, size: int) -> None:
        if self._total + size > self._limits.maximum_bytes:
            raise QuotaError(
                f"the copies of the namespace take {self._total} bytes, and {size} more would"
                f" exceed {self._limits.maximum_bytes}, journalCopies.maximumBytes"
            )

    def _check_segments(self, session: str, copy: Copy) -> None:
        segments, size = len(copy.kept), self._sizes[session]
        if segments >= MOST_SMALL_SEGMENTS + size // SMALL_SEGMENT:
            raise MalformedError(
                f"the copy has {segments} segments in {size} bytes, more than a writer makes"
            )

    def _measure(self, session: str, copy: Copy) -> None:
        size = sum(extent.size for extent in copy.kept)
        size += sum(self._copy(session).identities.values())
        self._total += size - self._sizes[session]
        self._sizes[session] = size


class StoredCopy:
    """A copy and its folder."""

    __slots__ = (
        "_copy", "_epochs", "_files", "_is_broken", "_is_clean", "_session", "identities",
        "lacks_end",
    )  # fmt: skip

    def __init__(self, session: str, files: Files, *, is_own: bool = False) -> None:
        """``is_own``: the folder is a writer's own. It may lack segments in the middle, which a
        claim takes from the stores or a repair tells of. A store's copy ends there. Blocks; raises
        BrokenError and OSError."""
        self._session = session
        self._files = files
        #: What is on disk beside the segments.
        self._epochs = _load_epochs(files, session)
        self._copy = _load(files, session, self._epochs, is_own=is_own)
        #: For a writer's own folder: it lacked a part of what the writer before had, and has no
        #: counters beyond that yet. Noted with the next change; see :func:`note_whole`.
        self.lacks_end = self._epochs.lacks_end
        #: Bytes of the files of identities, by the number of their segment.
        self.identities = {
            one: files.size(identities_name(one)) for one in identities_numbers(files.names())
        }
        kept = copies.known_identities(self._copy, max(self.identities, default=0))
        self._copy = replace(self._copy, identities=kept)
        #: Whether the files have nothing beyond the copy.
        self._is_clean = False
        self._is_broken = False

    @property
    def copy(self) -> Copy:
        return self._copy

    def claim(self, epoch: Epoch) -> Copy:
        changed = copies.claim(self._usable(), epoch)
        self._shorten(changed)
        return self._note(changed)

    def label(self, epoch: Epoch) -> Copy:
        """The copy has the whole base of the epoch, which was claimed."""
        return self._note(replace(self._usable(), written=epoch))

    def note_lack(self) -> None:
        """Note that the folder lacks something, before it is changed: after a crash it may be the
        latest copy."""
        self.lacks_end = True
        self._note(self._usable())

    def drop_run(self) -> None:
        """Forget a further run of segments, which cannot be whole any more."""
        changed = replace(self._usable(), renewed=None)
        self._shorten(changed)
        self._note(changed)

    def rest(self) -> Copy:
        """Segments before the copy were removed without a note: it is whole only at its end."""
        copy = self._usable()
        return self._note(replace(copy, through=max(copy.through, copy.end)))

    def cut(self, epoch: Epoch, position: int) -> Copy:
        changed = self._sound(copies.cut(self._usable(), epoch, position))
        self._shorten(changed)
        self._clean()
        for number in [one for one in self.identities if one > changed.identities]:
            self._remove_identities(number)
        return self._note(changed)

    def _sound(self, changed: Copy) -> Copy:
        """Return a copy that was cut, up to where it is sound: the rest of the log follows whole
        records, and a segment that was not the last may have been damaged."""
        if changed.extents == self._copy.extents or not changed.extents:
            return changed
        last = changed.extents[-1]
        size = _sound_end(read_whole(self._files, segment_name(last.number), last.size))
        return replace(changed, extents=(*changed.extents[:-1], last._replace(size=size)))

    def keep(self, epoch: Epoch, number: int, data: bytes, *, first: int) -> Copy:
        changed = copies.keep(self._usable(), epoch, number)
        write_whole(self._files, identities_name(number), data)
        self.identities[number] = len(data)
        for one in [one for one in self.identities if one < first]:
            self._remove_identities(one)
        self._copy = changed
        return changed

    def _remove_identities(self, number: int) -> None:
        self._files.remove(identities_name(number))
        del self.identities[number]

    def remove(self, epoch: Epoch, removal: Removal) -> Copy:
        changed = copies.remove(self._usable(), epoch, removal)
        self._shorten(changed)
        self._clean()
        return self._note(changed)

    def append(self, epoch: Epoch, piece: Piece, data: bytes, *, base: int) -> Copy:
        changed = copies.append(self._usable(), epoch, piece, base=base)
        if copies.has_piece(self._copy, piece):
            if self.read(piece.position, piece.size) != data:
                raise ConflictError(f"the copy has other bytes at {piece.position:x}")
        else:
            if not piece.after:
                self._shorten(replace(self._copy, renewed=None))
            self._clean()
            self._note_run(changed)
            try:
                self._write(piece, data)
            except OSError:
                self._is_clean = False
                # After a failed sync, what was read back might not be on the disk.
                with suppress(OSError):
                    self._clean()
                self._is_broken = not self._is_clean
                raise
        self._copy = replace(changed, written=self._copy.written)
        return self._note(changed)

    def read(self, position: int, size: int) -> bytes:
        number, offset = segment_of(position)
        for extent in self._copy.kept:
            if extent.number == number and offset < extent.size:
                file = self._files.open(segment_name(number))
                try:
                    return file.read(offset, min(size, extent.size - offset))
                finally:
                    file.close()
        return b""

    def read_identities(self, position: int, size: int) -> bytes:
        number, offset = segment_of(position)
        if number not in self.identities:
            return b""
        file = self._files.open(identities_name(number))
        try:
            return file.read(offset, size)
        finally:
            file.close()

    def _usable(self) -> Copy:
        if self._is_broken:
            raise BrokenError("the disk refuses the copy; see to the disk and restart the store")
        return self._copy

    def _shorten(self, changed: Copy) -> None:
        """Remove what is not in the changed copy, before its epochs are noted."""
        copy = self._copy
        if changed.kept != copy.kept:
            self._copy = replace(changed, promised=copy.promised, written=copy.written)
            self._is_clean = False
            self._clean()

    def _note(self, copy: Copy) -> Copy:
        """Keep the epochs on disk."""
        self._write_epochs(self._epochs_of(copy))
        self._copy = copy
        return copy

    def _note_run(self, changed: Copy) -> None:
        """Note where another run of segments begins, before there is any of it."""
        epochs = self._epochs_of(replace(changed, written=self._copy.written))
        if epochs.runs != self._epochs.runs:
            self._write_epochs(epochs)

    def _epochs_of(self, copy: Copy) -> _Epochs:
        return structs.replace(_epochs_of(copy), lacks_end=self.lacks_end)

    def _write_epochs(self, epochs: _Epochs) -> None:
        if epochs != self._epochs:
            write_whole(self._files, EPOCHS_NAME, _encode(epochs))
            self._epochs = epochs

    def _write(self, piece: Piece, data: bytes) -> None:
        number, offset = segment_of(piece.position)
        name = segment_name(number)
        file = self._files.open(name, writable=True) if offset else self._files.create(name)
        try:
            file.write_through(offset, data)
        finally:
            file.close()
        if not offset:
            self._files.sync_folder()

    def _clean(self) -> None:
        """Remove what is in the files beyond the copy."""
        if self._is_clean:
            return
        extents = self._copy.kept
        kept = {extent.number for extent in extents}
        surplus = [one for one in segment_numbers(self._files.names()) if one not in kept]
        first = extents[0].number if extents else 0
        # What is left by a crash in between is without a gap.
        removed = [one for one in surplus if one < first]
        removed += reversed([one for one in surplus if one > first or not extents])
        for number in removed:
            self._files.remove(segment_name(number))
        # Before the rest: a segment that is cut must be the last.
        self._files.sync_folder()
        if extents:
            last = extents[-1]
            file = self._files.open(segment_name(last.number), writable=True)
            try:
                file.truncate(last.size)
                file.sync()
            finally:
                file.close()
        self._is_clean = True


def _size(files: Files) -> int:
    names = files.names()
    kept = [segment_name(one) for one in segment_numbers(names)]
    kept += [identities_name(one) for one in identities_numbers(names)]
    return sum(map(files.size, kept))


def read_promised(files: Files, session: str) -> Epoch:
    """Return the last claim of a session."""
    return Epoch(*_load_epochs(files, session).promised)


def note_whole(files: Files, session: str) -> None:
    """Note that the folder's counters are beyond all that were used."""
    epochs = _load_epochs(files, session)
    write_whole(files, EPOCHS_NAME, _encode(structs.replace(epochs, lacks_end=False)))


def _epochs_of(copy: Copy) -> _Epochs:
    runs = [*copy.replaced, Run(copy.extents, copy.through)]
    if copy.renewed is not None:
        runs.append(copy.renewed)
    noted = tuple((run.extents[0].number, run.through) for run in runs if run.extents)
    return _Epochs(
        promised=copy.promised,
        written=copy.written,
        runs=noted if any(through for _, through in noted) else (),
        is_renewing=copy.renewed is not None,
    )


def _load_epochs(files: Files, session: str) -> _Epochs:
    if EPOCHS_NAME not in files.names():
        return _Epochs(promised=NO_EPOCH, written=NO_EPOCH)
    try:
        return _decode(read_whole(files, EPOCHS_NAME))
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise BrokenError(
            f"{EPOCHS_NAME} of session {session} cannot be read: {error}; see to the disk and"
            " move the session's folder away"
        ) from error


def _load(files: Files, session: str, epochs: _Epochs, *, is_own: bool) -> Copy:
    begins = {first for first, _ in epochs.runs}
    extents, is_damaged = load_extents(files, session, begins=begins, is_own=is_own)
    if extents:
        extents.append(_load_last(files, extents.pop()))
    runs = split_runs(extents, epochs.runs)
    renewed = None
    if runs and end_of(runs[-1].extents) < runs[-1].through:
        if epochs.is_renewing:
            renewed = runs.pop()
        elif len(runs) > 1:
            del runs[-1]
    last = runs.pop() if runs else NO_RUN
    return Copy(
        promised=Epoch(*epochs.promised),
        # It may lack a part of the base.
        written=NO_EPOCH if is_damaged else Epoch(*epochs.written),
        extents=last.extents,
        through=last.through,
        renewed=renewed,
        replaced=tuple(runs),
    )


def _load_last(files: Files, extent: Extent) -> Extent:
    """Return what a crash has left of the last segment; on disk when this returns."""
    name = segment_name(extent.number)
    # What a killed process wrote may be in memory alone.
    file = files.open(name, writable=True)
    try:
        file.sync()
    finally:
        file.close()
    files.sync_folder()
    return extent._replace(size=_sound_end(read_whole(files, name)))


def _sound_end(data: bytes, begin: int = HEADER_SIZE) -> int:
    for at, kind, *_ in walk(data, begin, len(data), searches=False):
        if kind == UNSOUND:
            return at
    return len(data)


def _check_records(session: str, piece: Piece, data: bytes) -> None:
    number, offset = segment_of(piece.position)
    last = offset + piece.size - 1
    if not 0 <= number < MAXIMUM_NUMBER or not 0 <= last < MAXIMUM_NUMBER:
        raise MalformedError(f"there is no position {piece.position:x}")
    if len(data) != piece.size:
        raise MalformedError(f"the request has {len(data)} bytes and names {piece.size}")
    begin = 0
    if not offset:
        header = read_header(data)
        if header is None or header.number != number or header.created != piece.created:
            raise MalformedError(f"the bytes do not begin segment {number:x}")
        if header.journal_id.hex() != session:
            raise MalformedError(f"the bytes are of journal {header.journal_id.hex()}")
        begin = HEADER_SIZE
    end = _sound_end(data, begin)
    if end < len(data):
        raise MalformedError(
            f"{len(data) - end} bytes from {piece.position + end:x} on are no sound records"
        )
