"""Stores in memory, and a log that is shipped to them."""

from collections.abc import Callable
from dataclasses import dataclass, field, replace

from pillion_sidecar.journal.identities import identities_name, identities_numbers
from pillion_sidecar.journal.records import FRAME, Kind, seal
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    encode_header,
    position_of,
    read_header,
    segment_name,
    segment_of,
    walk,
)
from pillion_sidecar.stores.copies import (
    Copy,
    Cut,
    Epoch,
    Extent,
    FencedError,
    Keep,
    Piece,
    Removal,
    StoreError,
    next_change,
    next_piece,
)
from pillion_sidecar.stores.lease import Lease
from pillion_sidecar.stores.messages import AppendRequest, Request
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.sessions import perform
from pillion_sidecar.stores.shipping import Shipper, ShippingLimits
from pillion_sidecar.stores.stability import Stability
from pillion_sidecar.stores.store import Store, StoreLimits
from pillion_sidecar.stores.tail import whole_records
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Failing, RecordingFiles

SESSION = bytes(range(16)).hex()
OTHER = bytes(range(16, 32)).hex()
#: Three stores, of which two make a position stable.
NAMES = ("a", "b", "c")
FIRST = Epoch(1, "x")
MEMBERSHIP = Membership(groups=(StoreGroup(name="g", members=NAMES),))


class RecordingFolders:
    """Implements ``Folders``, each folder recorded by itself."""

    def __init__(self, files: dict[str, RecordingFiles] | None = None) -> None:
        self.files = files or {}
        self.own = RecordingFiles()
        #: What a start takes for the time of the last write.
        self.changed: dict[str, float] = {}
        #: Of folders that are created.
        self.failing: Failing | None = None

    def names(self) -> list[str]:
        return sorted(self.files)

    def create(self, name: str) -> None:
        self.files.setdefault(name, RecordingFiles(failing=self.failing))

    def open(self, name: str) -> RecordingFiles:
        return self.files[name]

    def remove(self, name: str) -> None:
        for one in self.files[name].names():
            self.files[name].remove(one)
        del self.files[name]

    def changed_at(self, name: str) -> float:
        return self.changed.get(name, 0.0)

    def own_files(self) -> RecordingFiles:
        return self.own


def identities_file(number: int, *, session: str = SESSION) -> bytes:
    header = encode_header(Header(number, bytes.fromhex(session), 1.0))
    return header + seal(Kind.IDENTITIES, b"%d" % number)


@dataclass(slots=True)
class ShippedLog:
    """The segments of a writer, of records that say nothing."""

    session: str = SESSION
    fill: bytes = b"x"
    #: By number.
    segments: dict[int, bytes] = field(default_factory=dict)
    #: Files, by the number of a removed segment.
    identities: dict[int, bytes] = field(default_factory=dict)

    def begin(self, number: int, *, created: float) -> None:
        header = Header(number, bytes.fromhex(self.session), created)
        self.segments[number] = encode_header(header)

    def write(self, size: int) -> None:
        """Append a record of about ``size`` bytes to the last segment."""
        self.add(self.fill * size)

    def add(self, payload: bytes) -> None:
        """Append a record to the last segment."""
        self.segments[max(self.segments)] += seal(Kind.FILLER, payload)

    def payloads(self, *numbers: int) -> list[bytes]:
        """Return what the records of these segments say; of all by default."""
        return [
            data[at + FRAME.size : at + size]
            for number, data in self.segments.items()
            if not numbers or number in numbers
            for at, _, _, size, *_ in walk(data, HEADER_SIZE, len(data))
        ]

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
        """Bring a store to the end of the log."""
        while (change := next_change(copy, epoch, self.extents)) is not None:
            copy = self.change(store, change, epoch, base=base)
        return copy

    def change(
        self, store: Store, change: Cut | Keep | Removal | Piece, epoch: Epoch, *, base: int = 0
    ) -> Copy:
        match change:
            case Cut(position):
                return store.cut(self.session, epoch, position)
            case Removal():
                return store.remove(self.session, epoch, change)
            case Keep(number):
                data = self.identities[number]
                return store.keep(self.session, epoch, number, data, first=0)
        number, offset = segment_of(change.position)
        data = self.segments[number][offset : offset + change.size]
        return store.append(self.session, epoch, change, data, base=base)


def _created(data: bytes) -> float:
    header = read_header(data[:HEADER_SIZE])
    assert header is not None
    return header.created


class RecordingNamespaces:
    """Implements ``NamespaceFolders``."""

    def __init__(self) -> None:
        self.folders: dict[str, RecordingFolders] = {}

    def names(self) -> list[str]:
        return sorted(self.folders)

    def open(self, namespace: str, *, creates: bool) -> RecordingFolders | None:
        if creates:
            self.folders.setdefault(namespace, RecordingFolders())
        return self.folders.get(namespace)


@dataclass(slots=True)
class Sent:
    """A request that is under way."""

    store: str
    request: Request
    answered: Callable[[Answer], None]


class ScriptedStores:
    """A ``Transport`` to stores in memory. A test says when a request is done and answered."""

    def __init__(self, *names: str, limits: StoreLimits | None = None) -> None:
        self._limits = limits or StoreLimits(maximum_bytes=1 << 20, maximum_sessions=3)
        self.folders = {name: RecordingFolders() for name in names}
        self.stores = {name: Store(folders, self._limits) for name, folders in self.folders.items()}
        self.waiting: list[Sent] = []
        #: What was sent, by store.
        self.sent: dict[str, list[Request]] = {name: [] for name in names}

    def send(
        self,
        store: str,
        request: Request,
        answered: Callable[[Answer], None],
    ) -> None:
        assert all(one.store != store for one in self.waiting), f"two requests to {store}"
        self.waiting.append(Sent(store, request, answered))
        self.sent[store].append(request)

    def restart(self, name: str, image: dict[str, bytes] | None = None) -> None:
        """``image``: what is in the session's folder then."""
        if image is not None:
            self.folders[name].files[SESSION] = RecordingFiles(image)
        self.stores[name] = Store(self.folders[name], self._limits)

    def perform(self, sent: Sent) -> Copy | StoreError:
        try:
            answer = perform(self.stores[sent.store], SESSION, sent.request)
        except StoreError as error:
            return error
        assert isinstance(answer, Copy)
        return answer

    def answer(self, store: str) -> None:
        """Do and answer the request to a store."""
        sent = self._take(store)
        sent.answered(self.perform(sent))

    def fail(self, store: str, *, retry_after: float = 0.0) -> Sent:
        """Answer nothing; return the request, which may be done later."""
        sent = self._take(store)
        sent.answered(Unanswered(reason=f"{store} is away", retry_after=retry_after))
        return sent

    def run(self, *only: str) -> None:
        """Do and answer all requests to these stores, and those that follow; all by default."""
        while found := [one.store for one in self.waiting if not only or one.store in only]:
            self.answer(found[0])

    def _take(self, store: str) -> Sent:
        sent = next(one for one in self.waiting if one.store == store)
        self.waiting.remove(sent)
        return sent

    def start_of(self, store: str, copy: Copy) -> dict[str, bytes]:
        """Return the folder of a start on what a store has answered."""
        names = [segment_name(one.number) for one in copy.extents]
        image = self.folders[store].files[SESSION].image()
        kept = [identities_name(one) for one in identities_numbers([*image])]
        return {name: image[name] for name in kept} | {
            name: image[name][: one.size] for name, one in zip(names, copy.extents, strict=True)
        }

    def content(self, store: str) -> bytes:
        """Return what a start of a store finds."""
        image = self.folders[store].files[SESSION].image()
        folders = RecordingFolders({SESSION: RecordingFiles(image)})
        copy = Store(folders, self._limits).claim(SESSION, Epoch(1 << 30, "x"))
        return b"".join(image[segment_name(one.number)][: one.size] for one in copy.extents)


@dataclass(slots=True)
class WaitingReader:
    """A ``LogReader``. A test says when it has read."""

    log: ShippedLog
    waiting: list[Callable[[], None]] = field(default_factory=list)
    refuses: bool = False
    reads: int = 0

    def read(self, position: int, size: int, done: Callable[[bytes], None]) -> None:
        self.reads += 1
        number, offset = segment_of(position)
        data = self.log.segments[number][offset:]
        found = data[: whole_records(position, data, size)]
        self.waiting.append(lambda: done(b"" if self.refuses else found))

    def identities(self, number: int, done: Callable[[bytes], None]) -> None:
        data = self.log.identities.get(number, b"")
        self.waiting.append(lambda: done(b"" if self.refuses else data))

    def run(self) -> None:
        while self.waiting:
            self.waiting.pop(0)()


def answers_of(stores: ScriptedStores, epoch: Epoch, *names: str) -> dict[str, Copy]:
    return {name: stores.stores[name].claim(SESSION, epoch) for name in names or NAMES}


@dataclass(slots=True)
class Writer:
    """A log and its shipper, and what that told."""

    stores: ScriptedStores = field(default_factory=lambda: ScriptedStores(*NAMES))
    epoch: Epoch = FIRST
    log: ShippedLog = field(default_factory=ShippedLog)
    membership: Membership = MEMBERSHIP
    limits: ShippingLimits = field(default_factory=ShippingLimits)
    answers: dict[str, Copy] | None = None
    #: Seconds in which a request gathers; these writers wait for none, unless told otherwise.
    gathers: float = 0.0
    flight_size: int | None = None
    time: FakeTime = field(default_factory=FakeTime)
    stable: list[int] = field(default_factory=list)
    fenced: list[FencedError] = field(default_factory=list)
    #: What was stalled when that began or ended.
    stalls: list[dict[str, str]] = field(default_factory=list)
    stability: Stability | None = None
    lease: Lease | None = None
    #: Stores that failed, and that take the journal again.
    responses: list[tuple[str, bool]] = field(default_factory=list)
    reader: WaitingReader = field(init=False)
    shipper: Shipper = field(init=False)

    def __post_init__(self) -> None:
        self.reader = WaitingReader(self.log)
        if self.answers is None:
            self.answers = answers_of(self.stores, self.epoch)
        self.shipper = Shipper(
            epoch=self.epoch,
            membership=self.membership,
            log=self.log.extents,
            answers=self.answers,
            transport=self.stores,
            reader=self.reader,
            timers=self.time,
            fenced=self.fenced.append,
            limits=replace(self.limits, gather_seconds=self.gathers),
            flight_size=self.flight_size,
            stalls=lambda: self.stalls.append(dict(self.shipper.stalled)),
            stability=self.stability,
            lease=self.lease,
            responds=lambda store, problem: self.responses.append((store, problem is None)),
        )

    def begin(self, number: int) -> None:
        created = float(self.epoch.number)
        self.log.begin(number, created=created)
        self.shipper.begin(number, created, self.log.segments[number])

    def write(self, size: int) -> None:
        self.add(self.log.fill * size)

    def add(self, payload: bytes) -> None:
        before = len(self.log.segments[max(self.log.segments)])
        self.log.add(payload)
        self.shipper.append(self.log.segments[max(self.log.segments)][before:])

    def remove(
        self, is_pending: Callable[[bytes], bool] = lambda _: True, *, remembers: bool = False
    ) -> None:
        """Copy forward what is pending in the oldest segment, and remove that."""
        oldest = min(self.log.segments)
        assert oldest < max(self.log.segments)
        for payload in self.log.payloads(oldest):
            if is_pending(payload):
                self.add(payload)
        self.shipper.removed(oldest, self.shipper.end)
        if remembers:
            self.log.identities[oldest] = identities_file(oldest)
        del self.log.segments[oldest]
        self.shipper.remembered(sorted(self.log.identities))

    def barrier(self) -> int:
        end = self.shipper.end
        self.shipper.barrier(end, lambda: self.stable.append(end))
        return end

    def last_data(self, store: str) -> bytes:
        request = self.stores.sent[store][-1]
        assert isinstance(request, AppendRequest)
        return request.data
