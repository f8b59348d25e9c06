"""The deliverer's journal at run time: its choice, folder, threads and owner."""

import asyncio
import logging
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.durability import assumed_acknowledgement, assumed_durability
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.service import Acknowledgement, Durability, IndicationService
from pillion_sidecar.config.schema.stores import StoresPolicy
from pillion_sidecar.delivery import events
from pillion_sidecar.fields import amount
from pillion_sidecar.history.files import HistoryFiles
from pillion_sidecar.history.outcome import Outcome, lacked_note
from pillion_sidecar.history.pending import pending_in
from pillion_sidecar.history.recorder import History
from pillion_sidecar.journal.files import FolderLock, SystemFiles, open_folder, path_error
from pillion_sidecar.journal.limits import MINIMUM_BYTES, JournalSettings
from pillion_sidecar.journal.ports import IdentitySink, Recovered
from pillion_sidecar.journal.workers import ThreadWorker
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.settings import Settings
from pillion_sidecar.supervision import PartFailed

if TYPE_CHECKING:
    from pillion_sidecar.copies_runtime import CopiesFolder
    from pillion_sidecar.journal.disk import CommitObserver, DiskJournal, JournalStatistics
    from pillion_sidecar.stores.namespaces import NamespaceStores

    # It imports what only a journal with stores needs.
    from pillion_sidecar.stores_runtime import Connect, JournalStores
    from pillion_sidecar.telemetry.metrics import Metrics

logger = logging.getLogger("pillion.journal")

#: Fraction of the volume for the journal: a full emptyDir causes an eviction.
VOLUME_SHARE = 0.8
#: Bytes of the folder if the volume's size is unknown.
DEFAULT_BYTES = 1 << 30
#: Fraction of the volume for the history, and its bytes if the volume's size is unknown.
HISTORY_SHARE = 0.1
DEFAULT_HISTORY_BYTES = 128 << 20
#: In the folder: copies of journals that this gateway adopts, each only while it does.
ADOPTING_NAME = "adopting"
#: Seconds after which the deliverer listens although its stores have not answered.
SLOW_SECONDS = 1.0


def _give_back_memory() -> None:
    """Make the C library release free memory, if it can: reading a million records, and narrowing
    their columns, leaves about 70 MB."""
    import ctypes  # of no use without a journal

    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)


class JournalFailed(PartFailed): ...


class JournalFolder:
    def __init__(
        self,
        settings: Settings,
        *,
        clock: Clock,
        timers: Timers,
        identities: IdentitySink,
        history: History,
        observer: "CommitObserver | None" = None,
        waiting: Callable[[str], None] = lambda _: None,
    ) -> None:
        """``history`` gets files in the folder once it is opened. ``waiting`` gets what the start
        waits for, as a sentence for publishers."""
        self._settings = settings
        self._folder = settings.journal
        self._session_name = settings.session
        self._gateway = None if settings.gateway is None else settings.gateway.url
        self._pod_uid = settings.pod_uid
        self._clock = clock
        self._timers = timers
        self._identities = identities
        self._history = history
        self._observer = observer
        self._waiting = waiting
        self._lock: FolderLock | None = None
        self._workers: list[ThreadWorker] = []
        self._journal: DiskJournal | None = None
        self._maximum_bytes = 0
        self._stores: JournalStores | None = None
        #: Set once the start waits for the stores of the journal.
        self.waits = asyncio.Event()
        #: None without a journal on disk.
        self._copies: CopiesFolder | None = None
        #: Whether durability and folder are decided.
        self.opened = False
        self.durability = Durability.MEMORY

    async def open(
        self,
        service: IndicationService,
        *,
        identity_seconds: float,
        connect: "Connect | None" = None,
    ) -> "tuple[DiskJournal, Recovered] | None":
        """Lock, repair and recover the folder; None for durability ``Memory``.

        ``identity_seconds``: memory of an identity without ``expires``. ``connect``: how to reach
        the stores of the service, which have what the folder may lack; the start waits for them.

        Raises ConfigurationError: the service needs what the deliverer does not have.
        JournalError: the folder cannot be used.
        """
        durability = wanted_durability(service, folder=self._folder)
        check_copies(service, folder=self._folder)
        if durability is Durability.MEMORY or self._folder is None:
            await asyncio.to_thread(_warn_of_unused_journal, self._folder)
            if self._folder is not None:
                await self._keep_history_alone(self._folder, service)
            self.opened = True
            return None
        settings = journal_settings(service, durability, identity_seconds=identity_seconds)
        journal, recovered = await self._open(self._folder, settings, service, connect)
        self._journal, self._maximum_bytes = journal, settings.maximum_bytes
        _tell_what_is_lost(recovered)
        if durability is Durability.DISK:
            await self._open_copies(self._folder, service)
        self.opened, self.durability = True, durability
        return journal, recovered

    async def _open_copies(self, folder: Path, service: IndicationService) -> None:
        # Late: a deliverer without a journal on disk has no use for it.
        from pillion_sidecar.copies_runtime import CopiesFolder

        self._copies = CopiesFolder(clock=self._clock)
        await self._copies.open(folder, service)

    async def _open(
        self,
        folder: Path,
        settings: JournalSettings,
        service: IndicationService,
        connect: "Connect | None",
    ) -> "tuple[DiskJournal, Recovered]":
        # Late: a deliverer without a journal has no use for it.
        from pillion_sidecar.journal.disk import open_journal

        loop = asyncio.get_running_loop()
        self._lock = await asyncio.to_thread(open_folder, folder)
        await asyncio.to_thread(_remove_adopting, folder)
        committing, reading = (
            ThreadWorker(name=name, call_soon_threadsafe=loop.call_soon_threadsafe)
            for name in ("journal-commit", "journal-read")
        )
        self._workers = [committing, reading]
        files = SystemFiles(folder)
        stores = self._stores = self._stores_of(service, connect)
        journal_id, lacks_end = None, False
        if stores is not None:
            slow = self._timers.call_later(SLOW_SECONDS, self._tell_slow)
            journal_id, lacks_end = await stores.claim(files, folder)
            slow.cancel()
            if self.waits.is_set():
                self._waiting("the start reads the journal; publish again in a moment")
        try:
            opened = await asyncio.to_thread(
                open_journal,
                files,
                clock=self._clock,
                worker=committing,
                reader=reading,
                call_soon=loop.call_soon,
                timers=self._timers,
                settings=settings,
                identities=self._identities,
                observer=self._observer,
                journal_id=journal_id,
                outcomes=self._history,
                lacks_end=lacks_end,
                is_copied=stores is not None,
            )
        except OSError as error:
            raise path_error(str(folder), error) from error
        journal, recovered = opened
        if stores is not None:
            await stores.follow(journal, files, worker=reading)
        await self._keep_history(
            folder,
            service,
            worker=committing,
            commit=journal.commit,
            is_pending=pending_in(recovered, journal_id=journal.id),
        )
        return opened

    def _tell_slow(self) -> None:
        self.waits.set()
        if self._stores is not None:
            self._waiting(self._stores.wait_reason())

    def _stores_of(
        self, service: IndicationService, connect: "Connect | None"
    ) -> "JournalStores | None":
        """Raises ConfigurationError."""
        if service.stores is None or connect is None:
            return None
        # Late: a journal without stores has no use for it.
        from pillion_sidecar.stores_access import check_access
        from pillion_sidecar.stores_runtime import JournalStores

        check_access(service.stores, service=service.name, gateway=self._gateway)
        return JournalStores(
            service.stores,
            service=service.name,
            session_name=self._session_name,
            pod_uid=self._pod_uid,
            connect=connect,
            clock=self._clock,
            timers=self._timers,
            waiting=self._waiting,
            load=self._load_stores,
        )

    def _load_stores(self) -> StoresPolicy | None:
        """Blocks; raises ConfigurationError and OSError."""
        settings = self._settings
        loaded = load_folder(
            settings.resources,
            service=settings.service,
            addresses=settings.addresses,
            may_be_held=None,
        )
        return loaded.service.stores

    @property
    def stable(self) -> Callable[[Callable[[], None]], None] | None:
        """Calls back once all that the journal has taken is in enough stores; None without any."""
        return None if self._stores is None else self._stores.stable

    async def shipped(self, until: float) -> None:
        """Wait until enough stores have all that the journal has, and end the session there if
        nothing is pending; ``until``: at most."""
        if self._stores is None or self._journal is None:
            return
        done = asyncio.Event()
        timer = self._timers.call_at(until, done.set)
        # With what was settled last.
        self._journal.commit()
        self._stores.stable(done.set)
        await done.wait()
        timer.cancel()
        if self._clock.monotonic() < until and not self._journal.statistics.live_bytes:
            await self._stores.release(until)

    def acknowledgement(self, service: IndicationService) -> Acknowledgement:
        """Return the default level, as far as it can be given."""
        has_stores = self._stores is not None
        return assumed_acknowledgement(service, self.durability, has_stores=has_stores)

    async def _keep_history_alone(self, folder: Path, service: IndicationService) -> None:
        if not await asyncio.to_thread(folder.is_dir):
            return
        loop = asyncio.get_running_loop()
        worker = ThreadWorker(name="history", call_soon_threadsafe=loop.call_soon_threadsafe)
        self._workers = [worker]
        await self._keep_history(folder, service, worker=worker)

    async def _keep_history(
        self,
        folder: Path,
        service: IndicationService,
        *,
        worker: ThreadWorker,
        commit: Callable[[], None] | None = None,
        is_pending: Callable[[Outcome], bool] = lambda _: False,
    ) -> None:
        files = HistoryFiles(
            folder,
            size=history_bytes(service),
            seconds=service.history.maximum_age_seconds,
        )
        try:
            opened = await asyncio.to_thread(files.open, is_pending)
        except OSError as error:
            files.close()
            logger.warning(
                "the history cannot be kept in %s: %s; the latest outcomes are kept in memory",
                error.filename or folder,
                error.strerror or error,
                extra={"event": "discards-not-listed"},
            )
            return
        self._history.use(files, opened, folder, worker=worker, commit=commit)
        events.discards_counted(
            Counter((one.destination, one.reason or "") for one in opened.told), earlier=True
        )

    @property
    def keeps(self) -> str | None:
        """The ID of the journal that keeps indications over a restart, with a history on disk;
        None without one of them."""
        is_kept = self.durability is Durability.DISK and self._history.is_on_disk
        return self._journal.id if self._journal is not None and is_kept else None

    @property
    def statistics(self) -> "JournalStatistics | None":
        """None without a journal on disk."""
        return None if self._journal is None else self._journal.statistics

    @property
    def path(self) -> Path | None:
        """None: the deliverer was given none."""
        return self._folder

    @property
    def room(self) -> int:
        """Bytes that the journal may still take."""
        found = self.statistics
        if found is None:
            return 0
        return max(0, self._maximum_bytes - found.total_bytes - found.identity_bytes)

    @property
    def stores(self) -> "NamespaceStores | None":
        """The copies of other journals; None: none are kept."""
        return None if self._copies is None else self._copies.stores

    @property
    def written_stores(self) -> "JournalStores | None":
        """The stores of the journal itself; None without any."""
        return self._stores

    @property
    def is_awaited(self) -> bool:
        """Whether there is a folder that nobody has read yet."""
        return self._folder is not None and not self.opened

    def begun(self, metrics: "Metrics") -> None:
        """The journal is attached: let the metrics read from what is open."""
        if self._stores is not None:
            if self._stores.lacked:
                # Before the folder's own note of it goes.
                self._history.add(lacked_note(at=self._clock.time()))
                self._history.commit()
            self._stores.begun()
        metrics.watch(journal=self._journal, stores=self.stores, written_stores=self.written_stores)

    def warn_of_change(self, service: IndicationService) -> None:
        """Warn of a revision that asks for another durability or other copies than at the start."""
        if self._copies is not None:
            self._copies.warn_of_change(service)
        if self._stores is not None:
            self._stores.warn_of_change(service.stores)
            self._stores.renew(service.stores)
        wanted = assumed_durability(service, has_journal=self._folder is not None)
        if wanted is not self.durability:
            logger.warning(
                "durability stays %s until the deliverer is started again; the service asks for %s",
                self.durability.value,
                wanted.value,
                extra={"event": "configuration-warning"},
            )

    def close(self) -> None:
        """Commit, and unlock the folder. Idempotent."""
        journal, self._journal = self._journal, None
        if self._stores is not None:
            self._stores.close()
        workers, self._workers = self._workers, []
        lock, self._lock = self._lock, None
        try:
            if self._copies is not None:
                self._copies.close()
            if journal is not None:
                journal.close()
            self._history.close()
        finally:
            for worker in workers:
                worker.close()
            if lock is not None:
                lock.release()


def _remove_adopting(folder: Path) -> None:
    """Remove what a run that was killed has left: its adoptions begin anew, maybe elsewhere."""
    left = folder / ADOPTING_NAME
    if left.is_dir():
        # Late: it is there after a crash alone.
        import shutil

        # What the disk refuses to remove is tried again by its adoption.
        shutil.rmtree(left, ignore_errors=True)


def wanted_durability(service: IndicationService, *, folder: Path | None) -> Durability:
    """Return the durability in force.

    Raises ConfigurationError: the service asks for a disk that the deliverer does not have.
    """
    durability = assumed_durability(service, has_journal=folder is not None)
    if durability is Durability.MEMORY or folder is not None:
        return durability
    raise ConfigurationError(
        [
            Problem(
                reason="Invalid",
                message="needs a journal, and this deliverer was not given a folder for one",
                remedy="Start it with --journal DIR, or write Memory.",
                resource=f"IndicationService/{service.name}",
                field="spec.durability",
                value=durability.value,
            )
        ]
    )


def check_copies(service: IndicationService, *, folder: Path | None) -> None:
    """Raises ConfigurationError: there is no folder for copies of journals."""
    if service.journal_copies is not None and folder is None:
        raise ConfigurationError(
            [
                Problem(
                    reason="Invalid",
                    message="needs a folder, and this deliverer was given none",
                    remedy="Start it with --journal DIR, or remove journalCopies.",
                    resource=f"IndicationService/{service.name}",
                    field="spec.journalCopies",
                )
            ]
        )


def restore_groups(groups: Groups, recovered: Recovered, *, offset: float) -> None:
    groups_as_before(groups, recovered, offset=offset)
    # The queues have taken over what was recovered.
    _give_back_memory()


def groups_as_before(groups: Groups, recovered: Recovered, *, offset: float) -> None:
    held = [indication for indication, _ in recovered.held]
    snapshot, members = recovered.groups, recovered.members
    if recovered.lost:
        # A lost member must be accepted again, even if more is forgotten with it (S3.9).
        snapshot, members = None, []
    groups.restore(snapshot, members, held, offset=offset)


def fail(folder: Path | None, error: OSError) -> NoReturn:
    """Raise :class:`JournalFailed`; ``folder`` is the journal's."""
    where = error.filename or folder
    # In a callback of the event loop, whose supervisor ends the run.
    raise JournalFailed(
        f"the journal's disk failed: {where}: {error.strerror or error}; see to the disk, and "
        "start the deliverer again"
    ) from error


def journal_settings(
    service: IndicationService, durability: Durability, *, identity_seconds: float
) -> JournalSettings:
    """Raises ConfigurationError: the volume is too small."""
    maximum = journal_bytes(service)
    if maximum < MINIMUM_BYTES:
        least = -(-MINIMUM_BYTES * 5 // 4 >> 20)
        raise ConfigurationError(
            [
                Problem(
                    reason="Invalid",
                    message="is too small for a journal",
                    remedy=f"Write at least {least}Mi.",
                    resource=f"IndicationService/{service.name}",
                    field="spec.deliverer.storage.sizeLimit",
                    value=str(service.storage_bytes),
                )
            ]
        )
    return JournalSettings(
        durability=durability,
        maximum_bytes=maximum,
        identities=service.duplicate_window_entries,
        identity_seconds=identity_seconds,
    )


def _reserved_bytes(service: IndicationService) -> int:
    """Of copies of other journals. Raises ConfigurationError."""
    if service.journal_copies is None:
        return 0
    from pillion_sidecar.copies_runtime import reserved_bytes

    return reserved_bytes(service)


def journal_bytes(service: IndicationService) -> int:
    """Raises ConfigurationError: copies of other journals leave too little."""
    copies = _reserved_bytes(service)
    if service.storage_bytes is None:
        return DEFAULT_BYTES
    left = service.storage_bytes - copies
    share = int(left * VOLUME_SHARE)
    if not copies or service.history.maximum_bytes is None:
        return share
    # What is neither's beside a history that is written.
    spare = int(service.storage_bytes * (1.0 - VOLUME_SHARE - HISTORY_SHARE) / 2)
    return min(share, left - history_bytes(service) - spare)


def history_bytes(service: IndicationService) -> int:
    if service.history.maximum_bytes is not None:
        return int(amount(service.history.maximum_bytes))
    if service.storage_bytes is not None:
        return int((service.storage_bytes - _reserved_bytes(service)) * HISTORY_SHARE)
    return DEFAULT_HISTORY_BYTES


def _tell_what_is_lost(recovered: Recovered) -> None:
    for name, count in sorted(recovered.lost.items()):
        logger.warning(
            "%d indications for %s are lost with the run before: durability was StateOnly",
            count,
            name,
            extra={"event": "lost-at-restart", "destination": name, "count": count},
        )


def _warn_of_unused_journal(folder: Path | None) -> None:
    """Warn of a journal in the folder of a service with durability Memory: its pending entries stay
    there."""
    if folder is None or not folder.is_dir():
        return
    from pillion_sidecar.journal.segments import segment_numbers

    if segment_numbers(SystemFiles(folder).names()):
        logger.warning(
            "the journal in %s is left alone, since durability is Memory; what is pending in it is"
            " not delivered",
            folder,
            extra={"event": "journal-unused", "folder": str(folder)},
        )
