"""A journal's folder in memory, and a hand that writes segments into it record by record, keeping
the books of what must be found there again."""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Relayed
from pillion_sidecar.journal.files import Buffer, File
from pillion_sidecar.journal.ports import NO_NUMBER, Place, QueueState
from pillion_sidecar.journal.records import (
    DELIVERED,
    REASONS,
    THROUGH,
    Flag,
    Names,
    Settlement,
    Snapshot,
    encode_commit,
    encode_holds_ended,
    encode_indication,
    encode_names,
    encode_queue,
    encode_settlements,
    encode_snapshot,
)
from pillion_sidecar.journal.segments import Header, encode_header, position_of, segment_name

JOURNAL_ID = bytes(range(16))
#: Of the machine's only start.
BOOT_ID = bytes(range(16, 32))


class MemoryFile:
    """A file of ``MemoryFiles``."""

    def __init__(
        self,
        contents: dict[str, bytearray],
        content: bytearray,
        *,
        writable: bool,
        changed: Callable[[], None],
    ) -> None:
        self._contents = contents
        self._content = content
        self._writable = writable
        self._changed = changed

    def _change(self) -> bytearray:
        if not self._writable:
            raise PermissionError("the file was opened for reading")
        self._changed()
        return self._content

    def write(self, offset: int, data: Buffer) -> None:
        content = self._change()
        if len(content) < offset:
            content.extend(bytes(offset - len(content)))
        content[offset : offset + len(data)] = data

    def write_through(self, offset: int, data: Buffer) -> None:
        self.write(offset, data)
        self.sync()

    def read(self, offset: int, size: int) -> bytes:
        return bytes(self._content[offset : offset + size])

    def read_cached(self, offset: int, buffer: bytearray) -> int:
        """Leave it to the thread that reads."""
        return 0

    def sync(self) -> None:
        """Memory is as safe as it gets."""

    def allocate(self, offset: int, size: int) -> None:
        content = self._change()
        content.extend(bytes(max(0, offset + size - len(content))))

    def truncate(self, size: int) -> None:
        content = self._change()
        content.extend(bytes(max(0, size - len(content))))
        del content[size:]

    def is_named(self, name: str) -> bool:
        return self._contents.get(name) is self._content

    def close(self) -> None:
        """Nothing is held."""


class MemoryFiles:
    """A ``Files`` that counts its changes."""

    def __init__(self, contents: dict[str, bytes] | None = None) -> None:
        self.contents = {name: bytearray(data) for name, data in (contents or {}).items()}
        self.changes = 0

    def copy(self) -> "MemoryFiles":
        """Return another folder with the same content."""
        return MemoryFiles({name: bytes(data) for name, data in self.contents.items()})

    def _changed(self) -> None:
        self.changes += 1

    def _of(self, name: str) -> bytearray:
        if name not in self.contents:
            raise FileNotFoundError(2, "No such file or directory", name)
        return self.contents[name]

    def names(self) -> list[str]:
        return sorted(self.contents)

    def size(self, name: str) -> int:
        return len(self._of(name))

    def create(self, name: str) -> File:
        if name in self.contents:
            raise FileExistsError(17, "File exists", name)
        self._changed()
        self.contents[name] = bytearray()
        return self.open(name, writable=True)

    def open(self, name: str, *, writable: bool = False) -> File:
        return MemoryFile(self.contents, self._of(name), writable=writable, changed=self._changed)

    def rename(self, name: str, new_name: str) -> None:
        self._changed()
        self.contents[new_name] = self._of(name)
        del self.contents[name]

    def remove(self, name: str) -> None:
        self._changed()
        self._of(name)
        del self.contents[name]

    def sync_folder(self) -> None:
        """Memory is as safe as it gets."""

    def boot_id(self) -> bytes:
        return BOOT_ID


@dataclass(frozen=True, slots=True)
class Written:
    """One record: where it lies, and what it says."""

    segment: int
    begin: int
    end: int
    kind: str
    id: int = 0
    places: tuple[Place, ...] = ()
    settlements: tuple[tuple[int, int, int], ...] = ()
    digest: bytes | None = None
    held: int = 0
    member: bool = False

    @property
    def position(self) -> int:
        """As the journal has it."""
        return position_of(self.segment, self.begin)


@dataclass(slots=True)
class Books:
    """What must be found of some records, taken one after the other."""

    #: By destination and number: id, position, subscription.
    pending: dict[tuple[int, int], tuple[int, int, int]] = field(default_factory=dict)
    #: By id: position.
    held: dict[int, int] = field(default_factory=dict)
    #: By digest: pending, reason.
    identities: dict[bytes, tuple[bool, DiscardReason | None]] = field(default_factory=dict)

    @property
    def columns(self) -> dict[int, list[tuple[int, int, int, int]]]:
        """By destination, where something is pending: number, id, position, subscription."""
        found: dict[int, list[tuple[int, int, int, int]]] = {}
        for (destination, number), entry in sorted(self.pending.items()):
            found.setdefault(destination, []).append((number, *entry))
        return found


def books_of(written: Iterable[Written]) -> Books:
    """Take records in the order in which they were written."""
    books = Books()
    hows: dict[tuple[int, int], int] = {}
    of_identity: dict[bytes, tuple[Written, int | None]] = {}
    digests: dict[int, bytes] = {}
    for record in written:
        if record.digest is not None and (
            not record.kind.endswith("copy") or record.digest not in of_identity
        ):
            of_identity[record.digest] = (record, None)
            digests[record.id] = record.digest
        match record.kind:
            case "indication" | "copy":
                _take(books, record)
            case "hold" | "held-copy":
                books.held[record.id] = record.position
            case "hold-ended":
                for _, how, held in record.settlements:
                    books.held.pop(held, None)
                    if held in digests:
                        of_identity[digests[held]] = (of_identity[digests[held]][0], how)
            case "settled":
                _settle(books, hows, record.settlements)
    for digest, (record, hold_ended) in of_identity.items():
        books.identities[digest] = _ended(books, hows, record, hold_ended)
    return books


def _take(books: Books, record: Written) -> None:
    books.held.pop(record.held, None)
    for place in record.places:
        key = (place.destination, place.number)
        books.pending[key] = (record.id, record.position, place.subscription)


def _settle(
    books: Books, hows: dict[tuple[int, int], int], settlements: Sequence[tuple[int, int, int]]
) -> None:
    for destination, how, number in settlements:
        if how != THROUGH:
            hows[destination, number] = how
            books.pending.pop((destination, number), None)
            continue
        for place in [key for key in books.pending if key[0] == destination and key[1] <= number]:
            del books.pending[place]


def _ended(
    books: Books, hows: dict[tuple[int, int], int], record: Written, how: int | None
) -> tuple[bool, DiscardReason | None]:
    if record.kind in ("hold", "held-copy"):
        return (True, None) if how is None else (False, REASONS[how])
    keys = [(place.destination, place.number) for place in record.places]
    for key in keys:
        if hows.get(key, DELIVERED) != DELIVERED:
            return False, REASONS[hows[key]]
    return any(key in books.pending for key in keys), None


class Hand:
    """Writes segments; begins the first at once."""

    def __init__(self, files: MemoryFiles, *, number: int = 1) -> None:
        self.files = files
        self.written: list[Written] = []
        self.number = number - 1
        self.commits = 0
        self.last_id = 0
        self.time = 1000.0
        self.numbers: dict[int, int] = {}
        self.states: dict[int, QueueState] = {}
        self.names = Names(
            tuple((index, f"uid-{index}", f"destination-{index}") for index in range(4)),
            tuple((index, f"sub-{index}", f"s{index}", f"f{index}") for index in range(4)),
        )
        self.roll()

    def _file(self) -> bytearray:
        return self.files.contents[segment_name(self.number)]

    def _put(self, record: bytes, kind: str, **fields: object) -> Written:
        content = self._file()
        begin = len(content)
        content += record
        written = Written(self.number, begin, len(content), kind, **fields)  # type: ignore[arg-type]
        self.written.append(written)
        return written

    def roll(self, *, groups: bytes = b"") -> None:
        """Begin a segment."""
        self.number += 1
        header = encode_header(Header(self.number, JOURNAL_ID, self.time))
        self.files.contents[segment_name(self.number)] = bytearray(header)
        snapshot = Snapshot(
            self.time,
            self.last_id + 1,
            7,
            self.commits,
            self.names,
            tuple(self.states.values()),
            groups,
        )
        self._put(encode_snapshot(snapshot), "snapshot")

    def commit(self) -> None:
        """Begin what is written at once."""
        self.commits += 1
        self.time += 1
        self._put(encode_commit(self.commits, self.time), "commit")

    def place(self, destination: int, subscription: int = 0) -> Place:
        """Give a number in a queue."""
        number = self.numbers.get(destination, 0)
        self.numbers[destination] = number + 1
        return Place(destination, subscription, number)

    def indication(
        self,
        places: Sequence[Place],
        *,
        digest: bytes | None = None,
        member: GroupMember | None = None,
        flags: int = 0,
        origin: int = 0,
        record_id: int | None = None,
        kind: str = "indication",
        relayed: Relayed | None = None,
        expires: float | None = None,
    ) -> Written:
        """Write any INDICATION; its body says its id. It was accepted now; a ``relayed`` one came
        ``at`` seconds later."""
        if record_id is None:
            self.last_id += 1
            record_id = self.last_id
        indication = Indication(
            body=b"body of %d" % record_id,
            class_name="CIM_AlertIndication",
            accepted_at=0.0,
            source="source",
            identifier=f"identifier-{record_id}",
            group="group" if member else None,
            member=member,
            digest=digest,
            id=record_id,
            relayed=relayed,
            expires=expires,
        )
        record = encode_indication(
            indication, places, accepted_at=self.time, flags=flags, origin=origin
        )
        return self._put(
            record,
            kind,
            id=record_id,
            places=tuple(places),
            digest=digest,
            held=0 if flags & Flag.COPY else origin,
            member=member is not None and not flags & Flag.COPY and not origin,
        )

    def hold(
        self, places: Sequence[Place], *, digest: bytes | None = None, flags: int = 0
    ) -> Written:
        """Write an INDICATION that waits."""
        places = [place._replace(number=NO_NUMBER) for place in places]
        return self.indication(places, digest=digest, flags=Flag.HELD | flags, kind="hold")

    def settle(self, *settlements: tuple[int, int, int]) -> None:
        """Write settlements."""
        record = encode_settlements([Settlement(*one) for one in settlements])
        self._put(record, "settled", settlements=settlements)

    def end_hold(self, record_id: int, how: int) -> None:
        """Write the end of a hold."""
        record = encode_holds_ended([(how, record_id)])
        self._put(record, "hold-ended", settlements=((0, how, record_id),))

    def name(self) -> None:
        """Write all names."""
        self._put(encode_names(self.names), "names")

    def state(self, state: QueueState) -> None:
        """Write the state of a queue."""
        self.states[state.destination] = state
        self._put(encode_queue(state), "queue")

    def copy_forward(self) -> int:
        """Write again what of the oldest segment is pending; return its number."""
        books = books_of(self.written)
        oldest = self.written[0].segment
        self.commit()
        for record in [one for one in self.written if one.segment == oldest]:
            if books.held.get(record.id) == record.position:
                flags = int(Flag.COPY | Flag.HELD)
                self._copy(record, record.places, flags=flags, kind="held-copy")
                continue
            left = tuple(
                place
                for place in record.places
                if books.pending.get((place.destination, place.number), (0, -1, 0))[1]
                == record.position
            )
            if left:
                self._copy(record, left, flags=int(Flag.COPY), kind="copy")
        return oldest

    def _copy(self, record: Written, places: Sequence[Place], *, flags: int, kind: str) -> None:
        self.indication(
            places,
            digest=record.digest,
            flags=flags,
            origin=record.segment,
            record_id=record.id,
            kind=kind,
        )

    def remove(self, number: int) -> None:
        """Remove a segment."""
        self.files.remove(segment_name(number))
        self.written = [one for one in self.written if one.segment != number]


def queue_state(destination: int, *, epoch: int = 1, next_number: int = 0) -> QueueState:
    """Return the state of a queue."""
    return QueueState(
        destination=destination,
        listener="http://listener",
        sends_identifiers=True,
        epoch=epoch,
        base=0,
        next_number=next_number,
    )
