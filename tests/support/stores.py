"""Folders of a store in memory, and a log that is shipped to it."""

from dataclasses import dataclass, field

from pillion_sidecar.journal.records import Kind, seal
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    encode_header,
    position_of,
    read_header,
    segment_of,
)
from pillion_sidecar.stores.copies import Copy, Epoch, Extent, Piece, common_end, next_piece
from pillion_sidecar.stores.store import Store
from support.crashing_files import RecordingFiles

SESSION = bytes(range(16)).hex()
OTHER = bytes(range(16, 32)).hex()


class RecordingFolders:
    """Implements ``Folders``, each folder recorded by itself."""

    def __init__(self, files: dict[str, RecordingFiles] | None = None) -> None:
        self.files = files or {}

    def names(self) -> list[str]:
        return sorted(self.files)

    def create(self, name: str) -> None:
        self.files.setdefault(name, RecordingFiles())

    def open(self, name: str) -> RecordingFiles:
        return self.files[name]


@dataclass(slots=True)
class ShippedLog:
    """The segments of a writer, of records that say nothing."""

    session: str = SESSION
    fill: bytes = b"x"
    #: By number.
    segments: dict[int, bytes] = field(default_factory=dict)

    def begin(self, number: int, *, created: float) -> None:
        header = Header(number, bytes.fromhex(self.session), created)
        self.segments[number] = encode_header(header)

    def write(self, size: int) -> None:
        """Append a record of about ``size`` bytes to the last segment."""
        self.segments[max(self.segments)] += seal(Kind.FILLER, self.fill * size)

    @property
    def extents(self) -> tuple[Extent, ...]:
        return tuple(
            Extent(number, _created(data), len(data)) for number, data in self.segments.items()
        )

    @property
    def end(self) -> int:
        number, data = max(self.segments.items())
        return position_of(number, len(data))

    def content(self) -> bytes:
        return b"".join(self.segments.values())

    def next(self, end: int) -> tuple[Piece, bytes]:
        """Return what follows ``end``, to the end of its segment."""
        piece = next_piece(self.extents, end)
        assert piece is not None, "nothing follows"
        number, offset = segment_of(piece.position)
        return piece, self.segments[number][offset : offset + piece.size]

    def ship(self, store: Store, copy: Copy, epoch: Epoch, *, base: int = 0) -> Copy:
        """Send all that a store does not have."""
        while copy.end < self.end:
            piece, data = self.next(common_end(copy.extents, self.extents))
            copy = store.append(self.session, epoch, piece, data, base=base)
        return copy


def _created(data: bytes) -> float:
    header = read_header(data[:HEADER_SIZE])
    assert header is not None
    return header.created


class RecordingNamespaces:
    """Implements ``NamespaceFolders``."""

    def __init__(self) -> None:
        self.folders: dict[str, RecordingFolders] = {}

    def open(self, namespace: str, *, creates: bool) -> RecordingFolders | None:
        if creates:
            self.folders.setdefault(namespace, RecordingFolders())
        return self.folders.get(namespace)
