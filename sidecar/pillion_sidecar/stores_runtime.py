"""The journal's stores at run time: the claim at a start, shipping, and the end of the run when
another deliverer has claimed the session."""

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NoReturn, Protocol

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.stores import (
    Fencing,
    StoresPolicy,
    StreamMember,
    WithoutQuorum,
)
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.journal.files import Files, FolderError, JournalError, path_error
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.journal.recovery import log_findings
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.stores.claiming import Claimed, claim_folder, session_of
from pillion_sidecar.stores.copies import NO_EPOCH, FencedError, StoreError, end_of
from pillion_sidecar.stores.lease import Lease
from pillion_sidecar.stores.members import NO_ANSWER, MemberStatus
from pillion_sidecar.stores.notices import ResponseNotices, StallNotice, reasons
from pillion_sidecar.stores.ports import ClosableTransport
from pillion_sidecar.stores.quorum import Membership, consensus_position, is_enough
from pillion_sidecar.stores.reading import FolderReader
from pillion_sidecar.stores.releasing import release
from pillion_sidecar.stores.shipping import Shipper
from pillion_sidecar.stores.stability import ForcedBy, Stability
from pillion_sidecar.stores.store import EPOCHS_NAME, StoredCopy, note_whole
from pillion_sidecar.stores_access import members_of, membership_of, streams_of
from pillion_sidecar.supervision import PartFailed

if TYPE_CHECKING:
    from pillion_sidecar.journal.disk import DiskJournal

logger = logging.getLogger("pillion.stores")

#: Seconds in which a store answers.
ANSWER_SECONDS = 10.0
#: Seconds between looks at the configuration while a start waits for streams.
READ_SECONDS = 5.0


class SessionClaimed(PartFailed): ...


class RenewableTransport(ClosableTransport, Protocol):
    def renew(self, streams: Sequence[StreamMember], /) -> None:
        """Use what a later configuration says of the same streams. Raises
        InvalidDestinationError."""


class Connect(Protocol):
    def __call__(
        self,
        services: Sequence[str],
        /,
        *,
        session: str,
        timeout: float,
        streams: Sequence[StreamMember],
    ) -> RenewableTransport:
        """``services``: those whose gateways are stores. Raises InvalidDestinationError."""


def session_id(service: str, name: str) -> str:
    """Return the id of the journal of a session with a given name."""
    return sha256(f"pillion session\0{service}\0{name}".encode()).hexdigest()[:32]


def new_claimant(service: str, *, pod_uid: str | None) -> str:
    """Return the name of this process at the stores. With a pod's UID it begins with UID and
    service, so that the operator finds the pod: its name may be that of a later one."""
    process = f"{socket.gethostname()}-{token_hex(4)}"
    return process if pod_uid is None else f"{pod_uid}/{service}/{process}"


class JournalStores:
    """Claims the journal, ships it, and tells what is stable."""

    def __init__(
        self,
        policy: StoresPolicy,
        *,
        service: str,
        session_name: str | None,
        pod_uid: str | None,
        connect: Connect,
        clock: Clock,
        timers: Timers,
        waiting: Callable[[str], None] = lambda _: None,
        load: Callable[[], StoresPolicy | None] = lambda: None,
    ) -> None:
        """``session_name``: finds the journal again when its folder is lost. ``pod_uid``: None
        outside a cluster. ``connect`` gets the stores and the session, ``waiting`` what a start
        waits for. ``load`` reads the stores of the present configuration, while the start waits;
        blocks, and raises ConfigurationError and OSError."""
        self._membership = membership_of(policy)
        self._policy = policy
        self._service, self._session_name = service, session_name
        self._pod_uid = pod_uid
        self._connect = connect
        self._clock, self._timers = clock, timers
        self._waiting = waiting
        #: Whether the service wants other stores since, at the next start.
        self.is_changed = False
        self._transport: RenewableTransport | None = None
        self._journal: DiskJournal | None = None
        self._shipper: Shipper | None = None
        self._stability: Stability | None = None
        #: The right to deliver; None: there is no need for one.
        self.lease: Lease | None = None
        #: Set if the folder lacked something.
        self._note_whole: Callable[[], None] | None = None
        self._claimed: Claimed | None = None
        #: The stores that the start waits for, and the problems of all.
        self._awaited: tuple[Sequence[str], Mapping[str, str]] = self._membership.stores, {}
        self._stall = StallNotice(timers=timers)
        self._responses = ResponseNotices(timers=timers)
        self._load = load
        #: While the start waits: when the configuration is read again, or that.
        self._reading: Timer | asyncio.Task[None] | None = None
        self._epoch = NO_EPOCH
        self._session = ""

    async def claim(self, files: Files, folder: Path) -> tuple[bytes, bool]:
        """Make the folder the latest copy; wait for the stores that are needed. Return the
        journal's id, and whether the folder lacked the end of what the run before had written.
        ``folder``: where the files are, for errors.

        Raises JournalError.
        """
        try:
            found = await asyncio.to_thread(session_of, files)
            self._session = session = self._session_of(found)
            self._transport = self._connect(
                [one.gateway for one in members_of(self._policy) if one.gateway is not None],
                session=session,
                timeout=ANSWER_SECONDS,
                streams=streams_of(self._policy),
            )
            self._claimed = claimed = await claim_folder(
                files,
                session=session,
                claimant=new_claimant(self._service, pod_uid=self._adoptable_uid),
                membership=self._membership,
                transport=self._transport,
                timers=self._timers,
                waiting=self._wait,
            )
        except StoreError as error:
            raise JournalError(f"journal folder {str(folder)!r}: {error}") from error
        except InvalidDestinationError as error:
            raise JournalError(f"spec.stores: {error}") from error
        except OSError as error:
            raise path_error(str(folder), error) from error
        finally:
            self._stop_reading()
        _tell_claim(session, claimed, self._membership)
        self._tell_lacking(session, claimed)
        return bytes.fromhex(session), claimed.lacked

    def _tell_lacking(self, session: str, claimed: Claimed) -> None:
        """Warn if what was stable may be at none of the stores that have answered."""
        having = [
            one for one, copy in claimed.answers.items() if copy.extents or copy.written != NO_EPOCH
        ]
        if claimed.source is None or is_enough(self._membership, having):
            return
        lacking = sorted(claimed.answers.keys() - having)
        logger.warning(
            "session %s of the journal goes on from the copy of %s, and %s had none: if stores was"
            " changed, or these have lost their disks, what was stable may be missing; stop the"
            " deliverer, and start it with the stores that had its journal, if there are any",
            session,
            claimed.source,
            ", ".join(lacking),
            extra={"event": "stores-lack-copy", "session": session, "stores": lacking},
        )

    @property
    def _adoptable_uid(self) -> str | None:
        """What a given name finds again needs no adopter, whether the pod is gone or not."""
        return None if self._session_name is not None else self._pod_uid

    def _session_of(self, found: str | None) -> str:
        if self._session_name is None:
            return found or token_hex(16)
        given = session_id(self._service, self._session_name)
        if found is not None and found != given:
            raise FolderError(
                f"the journal's folder has session {found}, and --session {self._session_name} is"
                f" session {given}; leave --session out, or name another folder"
            )
        return given

    def renew(self, policy: StoresPolicy | None) -> None:
        """Reach streams as a later configuration says. All else stays as at the start."""
        if policy is None or self._transport is None:
            return
        try:
            self._transport.renew(streams_of(policy))
        except InvalidDestinationError as error:
            logger.warning(
                "the stores are reached as before: %s",
                error,
                extra={"event": "configuration-warning"},
            )

    def _read_again(self) -> None:
        """A claim takes no revision, and servers or credentials may be wrong."""
        self._reading = asyncio.get_running_loop().create_task(self._reread())

    async def _reread(self) -> None:
        try:
            self.renew(await asyncio.to_thread(self._load))
        except (ConfigurationError, OSError) as error:
            logger.debug("the configuration cannot be used: %s", error)
        self._reading = self._timers.call_later(READ_SECONDS, self._read_again)

    def _stop_reading(self) -> None:
        if self._reading is not None:
            self._reading.cancel()

    def _wait(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        if self._reading is None and streams_of(self._policy):
            self._reading = self._timers.call_later(READ_SECONDS, self._read_again)
        awaited = tuple(missed), dict(problems)
        if awaited == self._awaited:
            return
        self._awaited = awaited
        self._waiting(self.wait_reason())
        logger.warning(
            "the start waits for stores of the journal: %s",
            reasons(missed, problems),
            extra={"event": "stores-awaited", "stores": list(missed)},
        )

    def wait_reason(self) -> str:
        """Return why nothing is taken before the stores have answered, and what to do."""
        missed, problems = self._awaited
        return (
            f"the start waits for stores of the journal: {reasons(missed, problems)}; it goes on"
            " by itself once they answer, so see to them and publish again"
        )

    def warn_of_change(self, policy: StoresPolicy | None) -> None:
        """Warn of a revision that wants other stores than the start."""
        if policy is not None and (
            membership_of(policy) == self._membership
            # How streams are reached may change.
            and replace(policy, groups=()) == replace(self._policy, groups=())
        ):
            self.is_changed = False
            return
        self.is_changed = True
        logger.warning(
            "stores stays as it was at the start; start the deliverer again to change it%s",
            "" if policy is None else self._overlap_hint(membership_of(policy)),
            extra={"event": "configuration-warning"},
        )

    def _overlap_hint(self, wanted: Membership) -> str:
        kept = [one for one in wanted.stores if one in self._membership.stores]
        if is_enough(self._membership, kept):
            return ""
        return (
            f", and only then, with its folder: of the stores that have its journal, {len(kept)}"
            " would be left, and these alone may lack what is stable. Without the folder, change"
            " stores in steps that leave more than half of each group"
        )

    async def follow(self, journal: "DiskJournal", files: Files, *, worker: Worker) -> None:
        """Ship the journal from now on; before ``attach``. ``worker``: the one that reads."""
        assert self._claimed is not None
        assert self._transport is not None
        claimed, self._claimed = self._claimed, None
        self._epoch = claimed.epoch
        # As it is after its repair.
        stored = await asyncio.to_thread(StoredCopy, self._session, files, is_own=True)
        log = stored.copy.extents
        # That of a segment which is still there has the same.
        removed = sorted(stored.identities.keys() - {extent.number for extent in log})
        continues = self._policy.without_quorum is WithoutQuorum.CONTINUE
        self._journal = journal
        if claimed.lacked:
            work = partial(note_whole, files, self._session)
            self._note_whole = partial(worker.submit, work, _do_nothing, _tell_unnoted)
        self._stability = Stability(
            clock=self._clock,
            timers=self._timers,
            lifetime=self._policy.stability_lifetime,
            flight_size=self._policy.flight_size,
            continues=continues,
            base=end_of(log),
            last_id=journal.last_id,
            released=partial(_call_soon, journal.reconsider),
        )
        if self._policy.fencing is Fencing.LEASE:
            self.lease = Lease(
                self._membership,
                seconds=self._policy.lease,
                delay=0.0 if claimed.is_ours else self._policy.lease,
                clock=self._clock,
                timers=self._timers,
            )
        self._shipper = Shipper(
            epoch=claimed.epoch,
            membership=self._membership,
            log=log,
            identities=removed,
            answers=claimed.answers,
            transport=self._transport,
            reader=FolderReader(files, worker=worker),
            timers=self._timers,
            fenced=self._fenced,
            flight_size=None if continues else self._policy.flight_size,
            stalls=self._change_stall,
            stability=self._stability,
            responds=self._responses.change,
            lease=self.lease,
        )
        journal.follow(self._shipper, lease=self.lease)
        self._shipper.start()

    def begun(self) -> None:
        """The journal is attached: once its first segment is on disk, the folder lacks nothing that
        others know."""
        note, self._note_whole = self._note_whole, None
        if note is not None and self._journal is not None:
            # The header of a segment alone has no barrier.
            self._journal.commit()
            self._journal.barrier(note)

    @property
    def lacked(self) -> bool:
        """Whether the folder lacked something of what was before this run; until ``begun``."""
        return self._note_whole is not None

    def stable(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that the journal has taken is in enough stores."""
        journal, shipper = self._journal, self._shipper
        assert journal is not None
        assert shipper is not None
        begin = shipper.expect(done)
        journal.barrier(lambda: begin(journal.written))

    @property
    def flight_size(self) -> int:
        return self._policy.flight_size

    @property
    def unstable(self) -> int:
        """Bytes of the journal that are in too few stores."""
        return 0 if self._shipper is None else self._shipper.unstable

    @property
    def unannounced(self) -> int:
        """Bytes of the journal behind the position that is announced for its stores."""
        return 0 if self._shipper is None else self._shipper.unannounced

    @property
    def lease_seconds(self) -> float | None:
        """Seconds for which deliveries may begin; None without a lease."""
        return None if self.lease is None else self.lease.left

    @property
    def consensus(self) -> str:
        return self._membership.consensus.value

    @property
    def unstable_seconds(self) -> float:
        """Since the oldest write that is in too few stores; 0 if all is in enough."""
        return 0.0 if self._stability is None else self._stability.age

    @property
    def forced_discards(self) -> Mapping[str, int]:
        """Discards of indications that were in too few stores, by reason."""
        return {} if self._stability is None else self._stability.discards

    @property
    def forced_segments(self) -> Mapping[ForcedBy, int]:
        """Segments that were removed while they were in too few stores, by cause."""
        return {} if self._stability is None else self._stability.segments

    @property
    def unprotected(self) -> int:
        """Indications that were accepted while more than ``flight_size`` was in too few stores."""
        return 0 if self._stability is None else self._stability.unprotected

    @property
    def stalled(self) -> Mapping[str, str]:
        """The stores that are missed, and why, while nothing becomes stable."""
        if self._shipper is not None:
            return self._shipper.stalled
        missed, problems = self._awaited
        return {name: problems.get(name, NO_ANSWER) for name in missed}

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """Answered requests, by verb and result."""
        return {} if self._shipper is None else self._shipper.requests

    def statuses(self) -> list[MemberStatus]:
        if self._shipper is not None:
            return self._shipper.statuses()
        missed, problems = self._awaited
        return [
            MemberStatus(
                store=name,
                is_up=name not in problems and name not in missed,
                behind=0,
                problem=problems.get(name),
            )
            for name in self._membership.stores
        ]

    def _change_stall(self) -> None:
        self._stall.change(lambda: self.stalled)

    async def release(self, until: float) -> None:
        """Have the stores forget a session of which nothing is pending, unless its name finds it
        again; ``until``: at most."""
        if self._session_name is not None or self._shipper is None or self._transport is None:
            return
        self._shipper.close()
        releasing = asyncio.ensure_future(
            release(
                self._epoch,
                self._membership.stores,
                transport=self._transport,
                timers=self._timers,
            )
        )
        late = asyncio.Event()
        timer = self._timers.call_at(until, late.set)
        waiting = asyncio.ensure_future(late.wait())
        try:
            await asyncio.wait([releasing, waiting], return_when=asyncio.FIRST_COMPLETED)
        finally:
            timer.cancel()
            waiting.cancel()
            releasing.cancel()
        # Stores that did not answer give it up once it was idle for long.
        is_told = releasing.done() and releasing.exception() is None
        logger.info(
            "nothing of session %s of the journal is pending, and its stores forget it%s",
            self._session,
            "" if is_told and not releasing.result() else ", but not all of them were asked",
            extra={"event": "session-released", "session": self._session},
        )

    def _fenced(self, error: FencedError) -> None:
        # In a turn of its own: here it would end a connection alone.
        asyncio.get_running_loop().call_soon(partial(_fail, self._session, error))

    def close(self) -> None:
        """Ship nothing more. Idempotent."""
        self._stall.close()
        self._responses.close()
        if self.lease is not None:
            self.lease.close()
        if self._stability is not None:
            self._stability.close()
        self._stop_reading()
        if self._shipper is not None:
            self._shipper.close()
        if self._transport is not None:
            self._transport.close()


def _call_soon(call: Callable[[], None]) -> None:
    # It may be within a call of what is called.
    asyncio.get_running_loop().call_soon(call)


def _do_nothing(_: None) -> None:
    """The next start goes on with the folder's counters."""


def _tell_unnoted(error: OSError) -> None:
    logger.warning(
        "%s of the journal cannot be written: %s; the next start begins new sequence contexts",
        EPOCHS_NAME,
        error.strerror or error,
        extra={"event": "contexts-not-noted"},
    )


def _fail(session: str, error: FencedError) -> NoReturn:
    raise SessionClaimed(
        f"session {session} of the journal is another deliverer's now: {error}; what this one"
        " would deliver, that one delivers"
    ) from error


def _tell_claim(session: str, claimed: Claimed, membership: Membership) -> None:
    ends = {name: copy.end for name, copy in claimed.answers.items()}
    logger.info(
        "the stores of the journal were claimed; the latest copy is that of %s",
        claimed.source or "the journal's own folder",
        extra={
            "event": "session-claimed",
            "session": session,
            "epoch": claimed.epoch.number,
            "stores": sorted(claimed.answers),
            "announced": f"{consensus_position(membership, ends):x}",
            "restored": claimed.lacked,
        },
    )
    for hole in claimed.mended:
        logger.warning(
            "a part of the journal was damaged or missing, and was taken from its stores",
            extra={
                "event": "journal-mended",
                "file": segment_name(hole.number),
                "begin": hole.begin,
                "end": hole.end,
            },
        )
    log_findings(claimed.findings)
    if claimed.cut:
        logger.warning(
            "%d bytes were cut from the journal's folder: another deliverer went on from before"
            " them, at stores that did not have them",
            claimed.cut,
            extra={"event": "journal-cut", "session": session, "bytes": claimed.cut},
        )
