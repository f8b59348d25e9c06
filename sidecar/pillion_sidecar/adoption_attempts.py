"""Attempts of a gateway to adopt a session: it claims the session at its stores, takes the latest
copy, sends what is pending, and releases the session."""

import asyncio
import logging
import secrets
import shutil
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Protocol, TypeVar

from pillion_sidecar.adopted_journal import AdoptedJournal, recover_copy
from pillion_sidecar.adoption_status import NOTHING, Adoption, LogEnd, State, Unfinished
from pillion_sidecar.adoption_turns import Room, Turns
from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.intake.adoption import AdoptionSender, GaveUpError, UnknownSubscriptionsError
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.journal.files import SystemFiles
from pillion_sidecar.journal_runtime import ADOPTING_NAME, groups_as_before
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.stores.asking import sleep
from pillion_sidecar.stores.claiming import claim_folder
from pillion_sidecar.stores.copies import Copy, Epoch
from pillion_sidecar.stores.fetching import find
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.ports import Answer, ClosableTransport, Transport, Unanswered
from pillion_sidecar.stores.quorum import is_enough, missing
from pillion_sidecar.stores.releasing import release
from pillion_sidecar.stores.store import UnknownError
from pillion_sidecar.wire.adoptions import ADOPTER, AdoptionStatus, OrderError

logger = logging.getLogger("pillion.journal")

#: Seconds in which a store answers.
ANSWER_SECONDS = 10.0
#: Attempts at once.
MOST_AT_ONCE = 8
#: Reasons of refused lines that are told, of one adoption.
MOST_TOLD = 100
#: Seconds for which an attempt keeps its turn although others want it: while it waits for stores,
#: and while its destinations take nothing, since the next one needs the copy again.
CLAIMING_PATIENCE = ANSWER_SECONDS
SENDING_PATIENCE = 120.0
#: Seconds between two looks at whether it waits.
LOOK_SECONDS = 1.0
#: Seconds until stores are asked again whether they have a session.
FIND_SECONDS = 5.0
_T = TypeVar("_T")


class ConnectStores(Protocol):
    def __call__(self, services: Sequence[str], *, session: str) -> ClosableTransport:
        """Return the way to the stores of a session. Raises OrderError: there is none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Gateway:
    """What an adoption needs of the gateway."""

    context: IntakeContext
    clock: Clock
    timers: Timers
    observer: IntakeObserver
    decoder: Callable[[], LineDecoder]
    #: The gateway's own; None without tokens.
    namespace: Callable[[], str | None]
    #: Whether the destination with a uid is delivered through gateways.
    is_relayed: Callable[[str], bool]
    connect: ConnectStores
    #: Bytes that the journal may still take.
    journal_room: Callable[[], int]
    #: Why nothing can be adopted; None: it can.
    problem: Callable[[], str | None] = lambda: None
    #: Bytes that a folder's disk has free. It blocks.
    free: Callable[[Path], int] = lambda folder: shutil.disk_usage(folder).free
    #: Ended adoptions, and the indications of all, by result.
    ended: Counter[str] = field(default_factory=Counter)
    indications: Counter[str] = field(default_factory=Counter)


class Attempts:
    def __init__(self, folder: Path, gateway: Gateway, *, name: str) -> None:
        """``folder``: of the journal; the caller holds its lock. ``name``: of this process."""
        self._folder = folder / ADOPTING_NAME
        self._gateway = gateway
        self._name = name
        self._turns = Turns(MOST_AT_ONCE)
        self._room = Room(journal=gateway.journal_room, free=lambda: gateway.free(folder))
        # Each takes the memory of a segment.
        self._reading = asyncio.Lock()
        self._decoder: LineDecoder | None = None

    async def make(self, adoption: Adoption) -> Mapping[str, str] | None:
        """Return the stores that may keep the session although all is taken, and why. None: it has
        only waited, and others want the turn."""
        async with self._turns.turn():
            try:
                return await self._carry_out(adoption)
            except GaveUpError:
                adoption.state = State.WAITING
                return None

    async def ask(self, adoption: Adoption) -> Mapping[str, Answer]:
        """Ask the stores for a session, until one has it: it answers bytes. Raises OrderError."""
        names = adoption.membership.stores
        async with self._turns.turn():
            stores = self._gateway.connect(names, session=adoption.order.session)
            try:
                return await find(names, transport=stores)
            finally:
                stores.close()

    async def _carry_out(self, adoption: Adoption) -> Mapping[str, str]:
        names, session = adoption.membership.stores, adoption.order.session
        folder = self._folder / session
        stores = self._gateway.connect(names, session=session)
        try:
            # What a crash left may be repaired, which no store is.
            await _to_the_end(_make_empty, folder)
            adoption.state, adoption.log = State.CLAIMING, NOTHING
            await self._patiently(adoption, self._find(adoption, stores))
            epoch = await self._patiently(adoption, self._take_copy(adoption, folder, stores))
            await self._send(adoption, folder)
            adoption.go_on(State.RELEASING)
            return await release(epoch, names, transport=stores, timers=self._gateway.timers)
        finally:
            self._count(adoption)
            stores.close()
            await self._remove(adoption, folder)

    async def _remove(self, adoption: Adoption, folder: Path) -> None:
        try:
            await _to_the_end(shutil.rmtree, folder)
        except OSError:
            # The next attempt is told.
            pass
        finally:
            size, adoption.room = adoption.room, 0
            self._room.give_back(size)

    async def _patiently(self, adoption: Adoption, work: Coroutine[Any, Any, _T]) -> _T:
        """Do ``work`` unless it waits for stores, and others want the turn.

        Raises GaveUpError. Nothing of it is in a thread then: that is no waiting.
        """
        gateway, task = self._gateway, asyncio.ensure_future(work)
        gave_up = False
        timers: list[Timer] = []

        def look() -> None:
            nonlocal gave_up
            since, now = adoption.waits_since, gateway.clock.monotonic()
            is_long = since is not None and now - since >= CLAIMING_PATIENCE
            if is_long and self._is_wanted(adoption):
                gave_up = task.cancel()
            else:
                timers[:] = [gateway.timers.call_later(LOOK_SECONDS, look)]

        look()
        try:
            return await task
        except asyncio.CancelledError:
            current = asyncio.current_task()
            if gave_up and current is not None and not current.cancelling():
                adoption.waits_since = None
                raise GaveUpError from None
            raise
        finally:
            for timer in timers:
                timer.cancel()

    async def _find(self, adoption: Adoption, stores: Transport) -> None:
        """Wait until a store has the session: a claim would make it anew. Raises OrderError."""
        membership, timers = adoption.membership, self._gateway.timers
        while True:
            answers = await find(membership.stores, transport=stores)
            if any(isinstance(one, bytes) for one in answers.values()):
                adoption.hear()
                return
            lacking = [name for name, one in answers.items() if isinstance(one, UnknownError)]
            if is_enough(membership, lacking):
                raise OrderError(
                    f"none of the stores {', '.join(lacking)} has the session: it was adopted or"
                    " dropped, or stores of the service are not those that keep it"
                )
            problems = {
                name: one.reason if isinstance(one, Unanswered) else str(one)
                for name, one in answers.items()
                if name not in lacking
            }
            self._wait(adoption, missing(membership, lacking), problems)
            await sleep(timers, FIND_SECONDS)

    def _wait(self, adoption: Adoption, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        adoption.wait(missed, problems, now=self._gateway.clock.monotonic())

    async def _take_copy(self, adoption: Adoption, folder: Path, stores: Transport) -> Epoch:
        claimed = await claim_folder(
            SystemFiles(folder),
            session=adoption.order.session,
            # With the service: a restart of gateway and operator forgets the order.
            claimant=f"{ADOPTER}/{adoption.order.service}/{self._name}-{secrets.token_hex(4)}",
            membership=adoption.membership,
            transport=_Heard(stores, adoption.hear),
            timers=self._gateway.timers,
            waiting=partial(self._wait, adoption),
            admit=partial(self._admit, adoption),
        )
        if lease := adoption.order.stores.lease_seconds:
            adoption.problem = f"it waits {lease:g} s for the end of the deliverer's lease"
            await sleep(self._gateway.timers, lease)
        return claimed.epoch

    async def _admit(self, adoption: Adoption, copy: Copy) -> None:
        """Raises UnknownSubscriptionsError: as long as nothing has changed, the copy is of no
        use."""
        adoption.hear()
        adoption.log, before = LogEnd.of(copy), adoption.unfinished
        unknown = None if before is None or before.log != adoption.log else before.unknown
        routes = self._gateway.context.routes
        if unknown is not None and not any(map(routes.knows, unknown.subscriptions)):
            raise UnknownSubscriptionsError(unknown)
        size = sum(one.size for one in copy.extents)
        if not self._room.fits(size):
            adoption.problem = (
                f"it waits for room on the volume, since its copy has {size >> 20}Mi and others are"
                " being adopted"
            )
        await self._room.take(size)
        adoption.room, adoption.problem = size, None

    async def _send(self, adoption: Adoption, folder: Path) -> None:
        gateway, files = self._gateway, SystemFiles(folder)
        adoption.go_on(State.READING)
        async with self._reading:
            recovery = await asyncio.to_thread(recover_copy, files, clock=gateway.clock)
        # As they were at the deliverer; it is only read.
        groups = Groups(
            clock=gateway.clock,
            timers=gateway.timers,
            queues=gateway.context.queues,
            window_seconds=gateway.context.memory.window_seconds,
        )
        groups_as_before(groups, recovery.recovered, offset=recovery.offset)
        journal = AdoptedJournal(
            files,
            recovery,
            service=adoption.order.service,
            is_relayed=gateway.is_relayed,
            next_expected=groups.next_expected,
        )
        try:
            await self._send_all(adoption, journal)
        finally:
            journal.close()

    async def _send_all(self, adoption: Adoption, journal: AdoptedJournal) -> None:
        gateway, log = self._gateway, adoption.log
        if self._decoder is None:
            self._decoder = gateway.decoder()
        sender = AdoptionSender(
            journal.queues,
            context=gateway.context,
            decoder=self._decoder,
            namespace=gateway.namespace(),
            timers=gateway.timers,
            observer=gateway.observer,
            refused=lambda name, reason: _tell_refused(adoption, name, reason),
            unsent=adoption.unsent_of(log),
            gives_up=lambda idle: idle >= SENDING_PATIENCE and self._is_wanted(adoption),
        )
        adoption.progress, unknown = sender.progress, None
        adoption.go_on(State.SENDING)
        _tell_begin(adoption.status(gateway.clock.monotonic()))
        try:
            await sender.send()
        except UnknownSubscriptionsError as error:
            unknown = error.unknown
            raise
        finally:
            adoption.unfinished = Unfinished(log=log, unsent=sender.unsent, unknown=unknown)

    def _is_wanted(self, adoption: Adoption) -> bool:
        """Whether others want what it has."""
        return self._turns.is_wanted or (adoption.room > 0 and self._room.is_wanted)

    def _count(self, adoption: Adoption) -> None:
        """Count what an attempt has sent, whether it was all or not."""
        for one in adoption.progress:
            self._gateway.indications.update(one.news())


@dataclass(frozen=True, slots=True)
class _Heard:
    """A ``Transport`` that tells when bytes have come."""

    _stores: Transport
    _hear: Callable[[], None]

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None:
        def take(answer: Answer) -> None:
            if isinstance(answer, bytes):
                self._hear()
            answered(answer)

        self._stores.send(store, request, take)


async def _to_the_end(work: Callable[[Path], None], folder: Path) -> None:
    """Do ``work`` in a thread, which a cancel does not stop: it is waited for."""
    working = asyncio.ensure_future(asyncio.to_thread(work, folder))
    try:
        await asyncio.shield(working)
    except asyncio.CancelledError:
        await asyncio.wait([working])
        raise


def _make_empty(folder: Path) -> None:
    with suppress(FileNotFoundError):
        shutil.rmtree(folder)
    folder.mkdir(mode=0o700, parents=True)


def _tell_begin(status: AdoptionStatus) -> None:
    logger.info(
        "adopting session %s of %s, whose deliverer is gone: %d indications are pending",
        status.session,
        status.service,
        status.pending,
        extra={
            "event": "adoption-begun",
            "session": status.session,
            "service": status.service,
            "pending": status.pending,
        },
    )


def _tell_refused(adoption: Adoption, destination: str, reason: str) -> None:
    """Once for each destination and reason."""
    if (destination, reason) in adoption.told or len(adoption.told) >= MOST_TOLD:
        return
    adoption.told.add((destination, reason))
    logger.warning(
        "an indication for %s of the adopted session %s is refused for good: %s",
        destination,
        adoption.order.session,
        reason,
        extra={
            "event": "adoption-refused",
            "session": adoption.order.session,
            "destination": destination,
            "reason": reason,
        },
    )
