"""A journal's folder in memory, and what may be left of it when the power or the process goes.

``RecordingFiles`` keeps a list of all that was done to the folder; ``Disk`` is told the same again,
step by step, and draws folders that a crash may leave at that step. What was synced is there; what
was not is kept, dropped, torn, or done in another order.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from itertools import pairwise
from random import Random

from pillion_sidecar.journal.files import Buffer, File

#: What a disk writes whole, in bytes.
SECTOR = 512


class Kind(StrEnum):
    """What is done to a folder."""

    CREATE = "create"
    WRITE = "write"
    SYNC = "sync"
    ALLOCATE = "allocate"
    TRUNCATE = "truncate"
    RENAME = "rename"
    REMOVE = "remove"
    SYNC_FOLDER = "sync-folder"


#: What waits for the sync of its file, and what for that of the folder.
OF_FILE = frozenset((Kind.WRITE, Kind.ALLOCATE, Kind.TRUNCATE))
OF_FOLDER = frozenset((Kind.CREATE, Kind.RENAME, Kind.REMOVE))


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """One thing done to the folder."""

    kind: Kind
    #: Counts the files ever made; a name may belong to several, one after the other.
    file: int = -1
    name: str = ""
    new_name: str = ""
    offset: int = 0
    #: Bytes to allocate, or to truncate to.
    size: int = 0
    data: bytes = b""

    def __str__(self) -> str:
        where = f"{self.name or self.file} {self.new_name}".strip()
        return f"{self.kind} {where} at {self.offset}, {len(self.data) or self.size} bytes"


def apply(operation: Operation, content: bytearray) -> None:
    """Do to a file's content what an operation of ``OF_FILE`` does."""
    match operation.kind:
        case Kind.WRITE:
            _grow(content, operation.offset + len(operation.data))
            content[operation.offset : operation.offset + len(operation.data)] = operation.data
        case Kind.ALLOCATE:
            _grow(content, operation.offset + operation.size)
        case Kind.TRUNCATE:
            _grow(content, operation.size)
            del content[operation.size :]


def _grow(content: bytearray, size: int) -> None:
    if len(content) < size:
        content.extend(bytes(size - len(content)))


# ---------------------------------------------------------------------- the recording


#: Says, before an operation is done, how it fails; None where it does not.
Failing = Callable[[Operation], OSError | None]


class RecordingFiles:
    """Implements ``Files``. ``operations`` is all that was done; reads are not in it."""

    def __init__(
        self,
        image: dict[str, bytes] | None = None,
        *,
        failing: Failing | None = None,
        boots: int = 1,
    ) -> None:
        """``image``: what is in the folder, all of it synced. ``boots``: how often the machine was
        started, 0 where nobody knows."""
        self._boots = boots
        self.operations: list[Operation] = []
        #: How an operation that is about to be done fails; may be changed at any time.
        self.failing = failing
        self._contents: list[bytearray] = []
        self._names: dict[str, int] = {}
        for name, content in (image or {}).items():
            self._names[name] = self._new(content)

    def _new(self, content: bytes = b"") -> int:
        self._contents.append(bytearray(content))
        return len(self._contents) - 1

    def image(self) -> dict[str, bytes]:
        """The folder as a process sees it."""
        return {name: bytes(self._contents[file]) for name, file in self._names.items()}

    def do(self, operation: Operation) -> None:
        """Do and record an operation, or fail it."""
        error = self.failing(operation) if self.failing is not None else None
        if error is not None:
            raise error
        if operation.kind in OF_FILE:
            apply(operation, self._contents[operation.file])
        elif operation.kind in OF_FOLDER:
            _change_names(operation, self._names)
        self.operations.append(operation)

    def read(self, file: int, offset: int, size: int) -> bytes:
        return bytes(self._contents[file][offset : offset + size])

    def names(self) -> list[str]:
        return sorted(self._names)

    def size(self, name: str) -> int:
        return len(self._contents[self._find(name)])

    def create(self, name: str) -> File:
        if name in self._names:
            raise FileExistsError(17, "File exists", name)
        file = self._new()
        self.do(Operation(kind=Kind.CREATE, file=file, name=name))
        return RecordingFile(self, file, name, writable=True)

    def open(self, name: str, *, writable: bool = False) -> File:
        return RecordingFile(self, self._find(name), name, writable=writable)

    def rename(self, name: str, new_name: str) -> None:
        file = self._find(name)
        self.do(Operation(kind=Kind.RENAME, file=file, name=name, new_name=new_name))

    def remove(self, name: str) -> None:
        self.do(Operation(kind=Kind.REMOVE, file=self._find(name), name=name))

    def has(self, name: str, file: int) -> bool:
        return self._names.get(name) == file

    def sync_folder(self) -> None:
        self.do(Operation(kind=Kind.SYNC_FOLDER))

    def boot_id(self) -> bytes:
        return self._boots.to_bytes(16, "little") if self._boots else b""

    def _find(self, name: str) -> int:
        if name not in self._names:
            raise FileNotFoundError(2, "No such file or directory", name)
        return self._names[name]


class RecordingFile:
    """One open file of ``RecordingFiles``."""

    def __init__(self, files: RecordingFiles, file: int, name: str, *, writable: bool) -> None:
        self._files = files
        self._file = file
        self._name = name
        self._writable = writable
        self._open = True

    def _do(self, kind: Kind, *, offset: int = 0, size: int = 0, data: bytes = b"") -> None:
        assert self._open, f"{kind} of {self._name}, which is closed"
        assert self._writable, f"{kind} of {self._name}, which is open for reading"
        self._files.do(
            Operation(
                kind=kind, file=self._file, name=self._name, offset=offset, size=size, data=data
            )
        )

    def write(self, offset: int, data: Buffer) -> None:
        self._do(Kind.WRITE, offset=offset, data=bytes(data))

    def write_through(self, offset: int, data: Buffer) -> None:
        self.write(offset, data)
        self.sync()

    def read(self, offset: int, size: int) -> bytes:
        assert self._open, f"a read of {self._name}, which is closed"
        return self._files.read(self._file, offset, size)

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        data = self.read(offset, len(buffer))
        buffer[: len(data)] = data
        return len(data)

    def sync(self) -> None:
        self._do(Kind.SYNC)

    def allocate(self, offset: int, size: int) -> None:
        self._do(Kind.ALLOCATE, offset=offset, size=size)

    def truncate(self, size: int) -> None:
        self._do(Kind.TRUNCATE, size=size)

    def is_named(self, name: str) -> bool:
        return self._files.has(name, self._file)

    def close(self) -> None:
        self._open = False


def _change_names(operation: Operation, names: dict[str, int]) -> None:
    match operation.kind:
        case Kind.CREATE:
            names[operation.name] = operation.file
        case Kind.RENAME:
            names.pop(operation.name, None)
            names[operation.new_name] = operation.file
        case Kind.REMOVE:
            names.pop(operation.name, None)


# ---------------------------------------------------------------------- the crash


@dataclass(slots=True)
class _Stored:
    """A file as the disk has it, and what has not been synced yet."""

    content: bytearray = field(default_factory=bytearray)
    waiting: list[Operation] = field(default_factory=list)


class Disk:
    """What is certain about a folder, and what is not, after the operations told so far."""

    def __init__(self, image: dict[str, bytes] | None = None) -> None:
        """``image``: what ``RecordingFiles`` began with."""
        self._files: dict[int, _Stored] = {}
        self._names: dict[str, int] = {}
        self._waiting: list[Operation] = []
        for file, (name, content) in enumerate((image or {}).items()):
            self._files[file] = _Stored(bytearray(content))
            self._names[name] = file

    def tell(self, operation: Operation) -> None:
        """An operation has been done."""
        if operation.kind is Kind.SYNC:
            stored = self._stored(operation.file)
            for waiting in stored.waiting:
                apply(waiting, stored.content)
            stored.waiting.clear()
        elif operation.kind is Kind.SYNC_FOLDER:
            for waiting in self._waiting:
                _change_names(waiting, self._names)
            self._waiting.clear()
        elif operation.kind in OF_FILE:
            self._stored(operation.file).waiting.append(operation)
        else:
            self._waiting.append(operation)

    def _stored(self, file: int) -> _Stored:
        return self._files.setdefault(file, _Stored())

    # ------------------------------------------------------------------ kill -9

    def after_kill(self, begun: Operation | None, draw: Random) -> dict[str, bytes]:
        """The folder after a ``kill -9``: all that was done, and of ``begun`` only a part."""
        names = dict(self._names)
        for operation in self._waiting:
            _change_names(operation, names)
        part = None
        if begun is not None and begun.kind in OF_FILE:
            part = _beginning(begun, draw)
        elif begun is not None and begun.kind in OF_FOLDER and draw.random() < 0.5:
            _change_names(begun, names)
        image = {}
        for name, file in names.items():
            stored = self._stored(file)
            content = bytearray(stored.content)
            for operation in stored.waiting:
                apply(operation, content)
            if part is not None and part.file == file:
                apply(part, content)
            image[name] = bytes(content)
        return image

    # ------------------------------------------------------------------ power cut

    def after_power_cut(self, begun: Operation | None, draw: Random) -> dict[str, bytes]:
        """A folder that a power cut may leave, while ``begun`` was under way."""
        waiting = list(self._waiting)
        if begun is not None and begun.kind in OF_FOLDER:
            waiting.append(begun)
        names = dict(self._names)
        # A file system that journals its names does them in order.
        for operation in waiting[: draw.randint(0, len(waiting))]:
            _change_names(operation, names)
        image = {}
        for name, file in names.items():
            stored = self._stored(file)
            unsynced = list(stored.waiting)
            if begun is not None and begun.kind in OF_FILE and begun.file == file:
                unsynced.append(begun)
            content = bytearray(stored.content)
            for operation in draw.choice(_MANNERS)(unsynced, draw):
                apply(operation, content)
            image[name] = bytes(content)
        return image


def _beginning(operation: Operation, draw: Random) -> Operation | None:
    """A write that ended after any of its bytes; another operation, done or not."""
    if operation.kind is not Kind.WRITE:
        return operation if draw.random() < 0.5 else None
    return _part(operation, 0, draw.randint(0, len(operation.data)))


def _part(operation: Operation, begin: int, end: int) -> Operation:
    return Operation(
        kind=Kind.WRITE,
        file=operation.file,
        name=operation.name,
        offset=operation.offset + begin,
        data=operation.data[begin:end],
    )


def _sectors(operation: Operation) -> list[Operation]:
    """A write, cut where the sectors of the disk end; another operation whole."""
    if operation.kind is not Kind.WRITE:
        return [operation]
    size = len(operation.data)
    first = SECTOR - operation.offset % SECTOR
    cuts = [0, *range(first, size, SECTOR), size]
    return [_part(operation, begin, end) for begin, end in pairwise(cuts)]


# How what was not synced may have come about: each takes and returns operations of one file.


def _none(unsynced: Sequence[Operation], draw: Random) -> list[Operation]:
    return []


def _all(unsynced: Sequence[Operation], draw: Random) -> list[Operation]:
    return list(unsynced)


def _torn(unsynced: Sequence[Operation], draw: Random) -> list[Operation]:
    """In order, up to any byte."""
    if not unsynced:
        return []
    last = draw.randrange(len(unsynced))
    part = _beginning(unsynced[last], draw)
    return [*unsynced[:last], *([part] if part is not None else [])]


def _some(unsynced: Sequence[Operation], draw: Random) -> list[Operation]:
    """Any operations, whole."""
    return [operation for operation in unsynced if draw.random() < 0.5]


def _some_sectors(unsynced: Sequence[Operation], draw: Random) -> list[Operation]:
    """Any sectors, in order."""
    share = draw.choice((0.1, 0.5, 0.9))
    return [
        sector for operation in unsynced for sector in _sectors(operation) if draw.random() < share
    ]


# Of two writes to one sector, the earlier alone is what there would be in another order.
_MANNERS = (_none, _all, _torn, _some, _some_sectors)
