"""The journal's stores at run time: the claim at a start, shipping, and the end of the run when
another deliverer has claimed the session."""

import asyncio
import logging
import socket
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from hashlib import sha256
from pathlib import Path
from secrets import token_hex
from typing import TYPE_CHECKING, NoReturn, Protocol

from pillion_sidecar.clock import Timer, Timers
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.stores import (
    StoreMember,
    StoresPolicy,
    StreamMember,
    WithoutQuorum,
)
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.journal.files import Files, FolderError, JournalError, path_error
from pillion_sidecar.journal.ports import Worker
from pillion_sidecar.stores.claiming import Claimed, claim_folder, session_of
from pillion_sidecar.stores.copies import NO_EPOCH, FencedError, StoreError
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.reading import FolderReader
from pillion_sidecar.stores.releasing import release
from pillion_sidecar.stores.shipping import NO_ANSWER, MemberStatus, Shipper, Transport
from pillion_sidecar.stores.store import EPOCHS_NAME, StoredCopy, note_whole
from pillion_sidecar.supervision import PartFailed

if TYPE_CHECKING:
    from pillion_sidecar.journal.disk import DiskJournal

logger = logging.getLogger("pillion.stores")

#: Stands for the name of a gateway in ``--gateway``.
SERVICE_IN_URL = "{service}"
#: Seconds in which a store answers.
ANSWER_SECONDS = 10.0
#: Seconds until missed stores are told of: a store that is restarted is back before.
STALL_SECONDS = 10.0
#: Seconds between looks at the configuration while a start waits for streams.
READ_SECONDS = 5.0


class SessionClaimed(PartFailed): ...


class ClosableTransport(Transport, Protocol):
    def renew(self, streams: Sequence[StreamMember], /) -> None:
        """Use what a later configuration says of the same streams. Raises
        InvalidDestinationError."""

    def close(self) -> None: ...


class Connect(Protocol):
    def __call__(
        self,
        services: Sequence[str],
        /,
        *,
        session: str,
        timeout: float,
        streams: Sequence[StreamMember],
    ) -> ClosableTransport:
        """``services``: those whose gateways are stores. Raises InvalidDestinationError."""


def membership_of(policy: StoresPolicy) -> Membership:
    """Raises ValueError."""
    return Membership(
        groups=tuple(
            StoreGroup(
                name=group.name, members=_names(group.members), backups=_names(group.backups)
            )
            for group in policy.groups
        ),
        within=policy.within,
        between=policy.between,
    )


def _names(members: Sequence[StoreMember]) -> tuple[str, ...]:
    return tuple(member.store for member in members)


def streams_of(policy: StoresPolicy) -> list[StreamMember]:
    """The stores that are streams."""
    return [one.stream for one in _members(policy) if one.stream is not None]


def _members(policy: StoresPolicy) -> list[StoreMember]:
    return [store for group in policy.groups for store in group.members + group.backups]


def session_id(service: str, name: str) -> str:
    """Return the id of the journal of a session with a given name."""
    return sha256(f"pillion session\0{service}\0{name}".encode()).hexdigest()[:32]


def new_claimant(service: str, *, pod_uid: str | None) -> str:
    """Return the name of this process at the stores. With a pod's UID it begins with UID and
    service, so that the operator finds the pod: its name may be that of a later one."""
    process = f"{socket.gethostname()}-{token_hex(4)}"
    return process if pod_uid is None else f"{pod_uid}/{service}/{process}"


def check_access(policy: StoresPolicy, *, service: str, gateway: str | None) -> None:
    """``gateway``: the URL of gateways. Raises ConfigurationError: the deliverer does not know how
    to reach each store that is a gateway."""
    names = [one.gateway for one in _members(policy) if one.gateway is not None]
    if not names:
        return
    if gateway is None:
        message = "needs gateways, and this deliverer was not told how to reach any"
    elif len(names) > 1 and SERVICE_IN_URL not in gateway:
        # One gateway would count as all of them.
        message = f"names {len(names)} gateways, and --gateway {gateway} leads to one gateway"
    else:
        return
    raise ConfigurationError(
        [
            Problem(
                reason="Invalid",
                message=message,
                remedy=f"Start it with --gateway URL, where {SERVICE_IN_URL} in the URL stands for"
                " the name of a gateway, or remove stores.",
                resource=f"IndicationService/{service}",
                field="spec.stores",
                value=", ".join(group.name for group in policy.groups),
            )
        ]
    )


class StallNotice:
    """Tells once that nothing becomes stable, and once that it does again."""

    def __init__(self, *, timers: Timers) -> None:
        self._timers = timers
        self._timer: Timer | None = None
        self._is_told = False

    def change(self, stalled: Callable[[], Mapping[str, str]]) -> None:
        """``stalled``: the stores that are missed, and why; it has begun or ended."""
        self.close()
        if stalled():
            self._timer = self._timers.call_later(STALL_SECONDS, partial(self._tell, stalled))
        elif self._is_told:
            self._is_told = False
            logger.info("enough stores take the journal again", extra={"event": "stores-back"})

    def _tell(self, stalled: Callable[[], Mapping[str, str]]) -> None:
        self._timer, self._is_told = None, True
        missed = stalled()
        logger.warning(
            "too few stores take the journal, so nothing becomes stable; missed are: %s",
            _reasons(missed, missed),
            extra={"event": "stores-missed", "stores": list(missed)},
        )

    def close(self) -> None:
        if self._timer is not None:
            self._timer.cancel()


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
        timers: Timers,
        load: Callable[[], StoresPolicy | None] = lambda: None,
    ) -> None:
        """``session_name``: finds the journal again when its folder is lost. ``pod_uid``: None
        outside a cluster. ``connect`` gets the stores and the session. ``load`` reads the stores of
        the present configuration, while the start waits; blocks, and raises ConfigurationError and
        OSError."""
        self._membership = membership_of(policy)
        self._policy = policy
        self._service, self._session_name = service, session_name
        self._pod_uid = pod_uid
        self._connect = connect
        self._timers = timers
        self._transport: ClosableTransport | None = None
        self._journal: DiskJournal | None = None
        self._shipper: Shipper | None = None
        #: Set if the folder lacked something.
        self._note_whole: Callable[[], None] | None = None
        self._claimed: Claimed | None = None
        #: The stores that the start waits for, and the problems of all.
        self._awaited: tuple[Sequence[str], Mapping[str, str]] = self._membership.stores, {}
        self._stall = StallNotice(timers=timers)
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
                [one.gateway for one in _members(self._policy) if one.gateway is not None],
                session=session,
                timeout=ANSWER_SECONDS,
                streams=streams_of(self._policy),
            )
            self._claimed = claimed = await claim_folder(
                files,
                session=session,
                claimant=new_claimant(self._service, pod_uid=self._pod_uid),
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
        _tell_claim(session, claimed)
        return bytes.fromhex(session), claimed.lacked

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
        logger.warning(
            "the start waits for stores of the journal: %s",
            _reasons(missed, problems),
            extra={"event": "stores-awaited", "stores": list(missed)},
        )

    async def follow(self, journal: "DiskJournal", files: Files, *, worker: Worker) -> None:
        """Ship the journal from now on; before ``attach``. ``worker``: the one that reads."""
        assert self._claimed is not None
        assert self._transport is not None
        claimed, self._claimed = self._claimed, None
        self._epoch = claimed.epoch
        # As it is after its repair.
        stored = await asyncio.to_thread(StoredCopy, self._session, files)
        log = stored.copy.extents
        # That of a segment which is still there has the same.
        removed = sorted(stored.identities.keys() - {extent.number for extent in log})
        continues = self._policy.without_quorum is WithoutQuorum.CONTINUE
        self._journal = journal
        if claimed.lacked:
            work = partial(note_whole, files, self._session)
            self._note_whole = partial(worker.submit, work, _do_nothing, _tell_unnoted)
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
        )
        journal.follow(self._shipper)
        self._shipper.start()

    def begun(self) -> None:
        """The journal is attached: once its first segment is on disk, the folder lacks nothing that
        others know."""
        note, self._note_whole = self._note_whole, None
        if note is not None and self._journal is not None:
            # The header of a segment alone has no barrier.
            self._journal.commit()
            self._journal.barrier(note)

    def stable(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that the journal has taken is in enough stores."""
        journal, shipper = self._journal, self._shipper
        assert journal is not None
        assert shipper is not None
        journal.barrier(lambda: shipper.barrier(journal.written, done))

    @property
    def flight_size(self) -> int:
        return self._policy.flight_size

    @property
    def unstable(self) -> int:
        """Bytes of the journal that are in too few stores."""
        return 0 if self._shipper is None else self._shipper.unstable

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
        self._stop_reading()
        if self._shipper is not None:
            self._shipper.close()
        if self._transport is not None:
            self._transport.close()


def _reasons(missed: Iterable[str], problems: Mapping[str, str]) -> str:
    return "; ".join(f"{name} ({problems.get(name, NO_ANSWER)})" for name in missed)


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


def _tell_claim(session: str, claimed: Claimed) -> None:
    logger.info(
        "the stores of the journal were claimed; the latest copy is that of %s",
        claimed.source or "the journal's own folder",
        extra={
            "event": "session-claimed",
            "session": session,
            "epoch": claimed.epoch.number,
            "stores": sorted(claimed.answers),
            "restored": claimed.lacked,
        },
    )
