"""A folder that is claimed, and stores that answer at once."""

import asyncio
from collections.abc import Callable, Mapping, Sequence

from pillion_sidecar.config.schema.stores import (
    StoreGroupMembers,
    StoreMember,
    StoresPolicy,
    StreamMember,
)
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.stores.claiming import Claimed, claim_folder
from pillion_sidecar.stores.copies import Epoch, StoreError
from pillion_sidecar.stores.messages import IdentitiesRequest, ReadRequest, Request
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.stores.quorum import Membership
from pillion_sidecar.stores.sessions import perform
from pillion_sidecar.stores.store import MalformedError, Store, StoredCopy, StoreLimits
from pillion_sidecar.stores_runtime import JournalStores
from pillion_sidecar.testing import FakeTime
from support.crashing_files import RecordingFiles
from support.stores import FIRST, MEMBERSHIP, NAMES, SESSION, RecordingFolders, ShippedLog

LIMITS = StoreLimits(maximum_bytes=64 << 20, maximum_sessions=3)


class LiveStores:
    """A ``Transport`` to stores in memory, each of which answers at once or is away."""

    def __init__(self) -> None:
        self.folders = {name: RecordingFolders() for name in NAMES}
        self.stores = {name: Store(self.folders[name], LIMITS) for name in NAMES}
        self.away: set[str] = set()
        #: Stores that claim, and do not let themselves be read.
        self.unread: set[str] = set()
        #: Stores that are read and give other bytes, by where these begin to differ.
        self.garbage: dict[str, int] = {}
        #: Stores that keep no identities.
        self.forgetful: set[str] = set()
        self.asked: list[tuple[str, Request]] = []

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None:
        self.asked.append((store, request))
        asyncio.get_running_loop().call_soon(lambda: answered(self.answer(store, request)))

    def answer(self, store: str, request: Request) -> Answer:
        is_read = isinstance(request, ReadRequest | IdentitiesRequest)
        if store in self.away or (is_read and store in self.unread):
            return Unanswered(reason=f"{store} is away")
        if isinstance(request, IdentitiesRequest) and store in self.forgetful:
            return MalformedError("it takes no such request")
        try:
            answer = perform(self.stores[store], SESSION, request)
            if isinstance(request, ReadRequest) and isinstance(answer, bytes):
                at = self.garbage.get(store, len(answer))
                return answer[:at] + b"garbage"[: len(answer) - at] + answer[at + 7 :]
            return answer
        except StoreError as error:
            return error

    def renew(self, streams: Sequence[StreamMember], /) -> None:
        """None of them is a stream."""

    def close(self) -> None:
        self.away = set(NAMES)

    def reads_of(self, store: str) -> int:
        return sum(isinstance(one, ReadRequest) for name, one in self.asked if name == store)

    def reads(self) -> set[str]:
        return {store for store, request in self.asked if isinstance(request, ReadRequest)}


class World:
    def __init__(self, files: RecordingFiles | None = None) -> None:
        self.stores = LiveStores()
        self.files = files or RecordingFiles()
        self.time = FakeTime()
        self.waits: list[tuple[tuple[str, ...], dict[str, str]]] = []
        self._waited = asyncio.Event()

    def has_shipped(self, log: ShippedLog, *names: str, epoch: Epoch = FIRST) -> None:
        for name in names:
            store = self.stores.stores[name]
            log.ship(store, store.claim(SESSION, epoch), epoch)

    def waiting(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        self.waits.append((tuple(missed), dict(problems)))
        self._waited.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a wait was told that meets the condition."""
        while not self.waits or not condition():
            self._waited.clear()
            await self._waited.wait()

    async def claim(self, claimant: str = "new", membership: Membership = MEMBERSHIP) -> Claimed:
        return await claim_folder(
            self.files,
            session=SESSION,
            claimant=claimant,
            membership=membership,
            transport=self.stores,
            timers=self.time,
            waiting=self.waiting,
        )

    def content(self) -> dict[str, bytes]:
        image = self.files.image()
        return {name: image[name] for name in image if name.endswith(".segment")}

    def label(self) -> Epoch:
        return StoredCopy(SESSION, RecordingFiles(self.files.image())).copy.written


def log_of(*sizes: int, created: float = 1.0) -> ShippedLog:
    """One segment for each size, of three records."""
    log = ShippedLog()
    for number, size in enumerate(sizes, 1):
        log.begin(number, created=created)
        for _ in range(3):
            log.write(size)
    return log


def since(log: ShippedLog, first: int) -> ShippedLog:
    """Remove the segments before ``first``."""
    for number in [one for one in log.segments if one < first]:
        del log.segments[number]
    return log


def begun_with(log: ShippedLog, created: float) -> ShippedLog:
    """The log goes on with a segment of another writer."""
    log.begin(max(log.segments) + 1, created=created)
    log.write(7)
    return log


def files_of(log: ShippedLog) -> dict[str, bytes]:
    return {segment_name(number): data for number, data in log.segments.items()}


def group(name: str, *members: str, backups: tuple[str, ...] = ()) -> StoreGroupMembers:
    return StoreGroupMembers(
        name=name,
        members=tuple(StoreMember(gateway=one) for one in members),
        backups=tuple(StoreMember(gateway=one) for one in backups),
    )


def stores_of(
    world: World, *, session_name: str | None = None, pod_uid: str | None = None
) -> JournalStores:
    return JournalStores(
        StoresPolicy(groups=(group("g", *NAMES),)),
        service="default",
        session_name=session_name,
        pod_uid=pod_uid,
        connect=lambda *_, **__: world.stores,
        clock=world.time,
        timers=world.time,
    )
