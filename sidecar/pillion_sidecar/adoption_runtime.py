"""Adoptions: a gateway takes over what a deliverer that is gone left pending at its stores (S3.7).

Nothing is remembered over a restart: the operator orders again what is not done, and what was taken
before is a duplicate.
"""

import asyncio
import logging
import secrets
import shutil
import socket
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from pathlib import Path
from typing import Protocol

from pillion_sidecar.adopted_journal import AdoptedJournal, recover_copy
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.config.schema.stores import Between, Within
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.intake.adoption import AdoptionSender, Progress, StoppedError
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.intake.limits import IntakeLimits
from pillion_sidecar.intake.server import RELAYED_GROWTH
from pillion_sidecar.journal.files import JournalError, SystemFiles
from pillion_sidecar.journal_runtime import restore_groups
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.stores.claiming import claim_folder
from pillion_sidecar.stores.copies import Epoch, StoreError
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.ports import Answer
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.releasing import release
from pillion_sidecar.wire.adoptions import (
    ADOPTER,
    MOST_DESTINATIONS,
    AdoptedPlace,
    AdoptionOrder,
    AdoptionStatus,
    OrderError,
)

logger = logging.getLogger("pillion.journal")

#: Seconds in which a store answers.
ANSWER_SECONDS = 10.0
#: Within the journal's folder.
FOLDER_NAME = "adopting"
#: Adoptions that are under way at once; the others wait.
MOST_AT_ONCE = 8
#: Ended ones that are remembered.
MOST_ENDED = 100
#: Seconds without progress after which an adoption gives way to those that wait.
GIVE_WAY_SECONDS = 300.0


class State(StrEnum):
    WAITING = "Waiting"
    CLAIMING = "Claiming"
    READING = "Reading"
    SENDING = "Sending"
    RELEASING = "Releasing"
    DONE = "Done"
    FAILED = "Failed"


_ENDED = (State.DONE, State.FAILED)


class Stores(Protocol):
    """A ``Transport`` that can be closed."""

    def send(self, store: str, request: Request, answered: Callable[[Answer], None]) -> None: ...

    def close(self) -> None: ...


class ConnectStores(Protocol):
    def __call__(self, services: Sequence[str], *, session: str) -> Stores:
        """Return the way to the stores of a session. Raises OrderError: there is none."""


@dataclass(slots=True, eq=False)
class _Adoption:
    order: AdoptionOrder
    membership: Membership
    state: State = State.WAITING
    problem: str | None = None
    missing: tuple[str, ...] = ()
    #: By destination.
    progress: Mapping[str, Progress] = field(default_factory=dict)
    #: Lines that were refused for good, by destination and reason.
    told: set[tuple[str, str]] = field(default_factory=set)
    #: Stores that may keep the session although it is done, and why.
    left: Mapping[str, str] = field(default_factory=dict)
    #: On the gateway's clock; None: it has not ended.
    ended_at: float | None = None
    task: asyncio.Task[None] | None = None
    gives_way: bool = False
    #: How far it was when it was last looked at, and since when (on the gateway's clock).
    _seen: tuple[State, int] = (State.WAITING, 0)
    _seen_since: float = 0.0

    def look(self, now: float) -> float:
        """Return for how many seconds it has made no progress; 0: it is not under way."""
        settled = (one.taken + one.duplicate + one.refused for one in self.progress.values())
        seen = self.state, sum(settled)
        if seen != self._seen or self.state in (State.WAITING, *_ENDED):
            self._seen, self._seen_since = seen, now
        return now - self._seen_since

    def wait(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        self.missing = tuple(missed)
        told = "; ".join(f"{name}: {problem}" for name, problem in sorted(problems.items()))
        self.problem = f"it waits for stores: {told}"

    def go_on(self, state: State) -> None:
        self.state, self.problem, self.missing = state, None, ()

    def status(self, now: float) -> AdoptionStatus:
        """``now``: on the gateway's clock."""
        progress, ended_at = self.progress, self.ended_at
        left = sorted(
            (-one.pending, name, one.problem) for name, one in progress.items() if one.pending
        )
        return AdoptionStatus(
            session=self.order.session,
            service=self.order.service,
            state=self.state.value,
            problem=self.problem or next((why for *_, why in left if why is not None), None),
            ended_seconds=None if ended_at is None else round(now - ended_at, 3),
            missing=list(self.missing),
            pending=-sum(pending for pending, *_ in left),
            taken=sum(one.taken for one in progress.values()),
            duplicate=sum(one.duplicate for one in progress.values()),
            refused=sum(one.refused for one in progress.values()),
            destinations=[
                AdoptedPlace(name=name, pending=-pending, problem=problem)
                for pending, name, problem in left[:MOST_DESTINATIONS]
            ],
        )


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
    #: Why nothing can be adopted; None: it can.
    problem: Callable[[], str | None] = lambda: None
    #: Ended adoptions, and the indications of all, by result.
    ended: Counter[str] = field(default_factory=Counter)
    indications: Counter[str] = field(default_factory=Counter)


class Adoptions:
    def __init__(self, folder: Path, gateway: Gateway, *, name: str) -> None:
        """``folder``: of the journal; the caller holds its lock. ``name``: of this process."""
        self._folder = folder / FOLDER_NAME
        self._gateway = gateway
        self._name = name
        self._adoptions: dict[str, _Adoption] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        # Each takes the memory of a segment.
        self._reading = asyncio.Lock()
        self._decoder: LineDecoder | None = None

    def order(self, order: AdoptionOrder) -> AdoptionStatus:
        """Adopt a session, unless that is done or under way; one that has failed begins anew, as
        one does that a store has kept.

        Raises OrderError: nothing can be adopted.
        """
        known = self._adoptions.get(order.session)
        if known is not None and known.state is not State.FAILED and not known.left:
            return known.status(self._gateway.clock.monotonic())
        problem = self._gateway.problem()
        if problem is not None:
            raise OrderError(problem)
        adoption = _Adoption(order, _membership(order))
        self._forget_ended()
        self._adoptions[order.session] = adoption
        task = asyncio.get_running_loop().create_task(self._adopt(adoption))
        adoption.task = task
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return adoption.status(self._gateway.clock.monotonic())

    def look(self) -> list[AdoptionStatus]:
        """Return how far all are. One that makes no progress gives way to those that wait."""
        now = self._gateway.clock.monotonic()
        known = list(self._adoptions.values())
        idle = [(one.look(now), at) for at, one in enumerate(known)]
        longest, at = max(idle, default=(0.0, 0))
        if longest >= GIVE_WAY_SECONDS and any(one.state is State.WAITING for one in known):
            victim = known[at]
            if victim.task is not None and not victim.gives_way:
                victim.gives_way = True
                victim.task.cancel()
        return [adoption.status(now) for adoption in known]

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget_ended(self) -> None:
        ended = [name for name, one in self._adoptions.items() if one.state in _ENDED]
        for name in ended[: max(0, len(ended) - MOST_ENDED)]:
            del self._adoptions[name]

    async def _adopt(self, adoption: _Adoption) -> None:
        try:
            async with self._slots:
                await self._carry_out(adoption)
        except asyncio.CancelledError:
            if not adoption.gives_way:
                raise
            problem = adoption.status(0.0).problem or "it makes no progress"
            self._failed(adoption, f"{problem}; it gives way to adoptions that wait")
        except StoppedError as error:
            adoption.problem = str(error)
        except OSError as error:
            self._failed(adoption, f"the disk refuses: {error.strerror or error}")
        except (StoreError, JournalError, OrderError) as error:
            self._failed(adoption, str(error))
        except Exception:
            # A copy has what its writer sent: it must not end the gateway.
            logger.exception(
                "the adoption of session %s failed, since a part of it did",
                adoption.order.session,
                extra={"event": "adoption-defect", "session": adoption.order.session},
            )
            self._ended(adoption, State.FAILED, "a defect; see the gateway's log")

    def _ended(self, adoption: _Adoption, state: State, problem: str | None) -> None:
        adoption.state, adoption.problem = state, problem
        adoption.ended_at = self._gateway.clock.monotonic()
        self._gateway.ended["done" if state is State.DONE else "failed"] += 1

    def _failed(self, adoption: _Adoption, reason: str) -> None:
        self._ended(adoption, State.FAILED, reason)
        logger.error(
            "the adoption of session %s of %s failed: %s; what it has pending stays at its stores",
            adoption.order.session,
            adoption.order.service,
            reason,
            extra={
                "event": "adoption-failed",
                "session": adoption.order.session,
                "service": adoption.order.service,
                "reason": reason,
            },
        )

    async def _carry_out(self, adoption: _Adoption) -> None:
        order = adoption.order
        folder = self._folder / order.session
        stores = self._gateway.connect(adoption.membership.stores, session=order.session)
        try:
            # What a crash left may be repaired, which no store is.
            await asyncio.to_thread(_make_empty, folder)
            epoch = await self._take_copy(adoption, folder, stores)
            await self._send(adoption, folder)
            adoption.go_on(State.RELEASING)
            left = await release(
                epoch,
                adoption.membership.stores,
                transport=stores,
                timers=self._gateway.timers,
            )
            self._done(adoption, left)
        finally:
            self._count(adoption)
            stores.close()
            with suppress(OSError):
                await asyncio.to_thread(shutil.rmtree, folder)

    async def _take_copy(self, adoption: _Adoption, folder: Path, stores: Stores) -> Epoch:
        adoption.go_on(State.CLAIMING)
        claimed = await claim_folder(
            SystemFiles(folder),
            session=adoption.order.session,
            # With the service: a restart of gateway and operator forgets the order.
            claimant=f"{ADOPTER}/{adoption.order.service}/{self._name}-{secrets.token_hex(4)}",
            membership=adoption.membership,
            transport=stores,
            timers=self._gateway.timers,
            waiting=adoption.wait,
        )
        if lease := adoption.order.stores.lease_seconds:
            adoption.problem = f"it waits {lease:g} s for the end of the deliverer's lease"
            ended = asyncio.Event()
            timer = self._gateway.timers.call_later(lease, ended.set)
            try:
                await ended.wait()
            finally:
                timer.cancel()
        return claimed.epoch

    async def _send(self, adoption: _Adoption, folder: Path) -> None:
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
        restore_groups(groups, recovery.recovered, offset=recovery.offset)
        journal = AdoptedJournal(
            files,
            recovery,
            service=adoption.order.service,
            is_relayed=gateway.is_relayed,
            next_expected=groups.next_expected,
        )
        try:
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
            )
            adoption.progress = sender.progress
            adoption.go_on(State.SENDING)
            _tell_begin(adoption.status(gateway.clock.monotonic()))
            await sender.send()
        finally:
            journal.close()

    def _done(self, adoption: _Adoption, left: Mapping[str, str]) -> None:
        problem = None
        if left:
            named = "; ".join(f"{name}: {reason}" for name, reason in sorted(left.items()))
            problem = f"stores keep the session, since they could not be asked: {named}"
        adoption.left = left
        self._ended(adoption, State.DONE, problem)
        status = adoption.status(self._gateway.clock.monotonic())
        logger.info(
            "adopted session %s of %s: %d indications were taken, %d were here already, %d were"
            " refused",
            status.session,
            status.service,
            status.taken,
            status.duplicate,
            status.refused,
            extra={
                "event": "adoption-done",
                "session": status.session,
                "service": status.service,
                "taken": status.taken,
                "duplicate": status.duplicate,
                "refused": status.refused,
            },
        )

    def _count(self, adoption: _Adoption) -> None:
        """Count what an attempt has sent, whether it was all or not."""
        counts = self._gateway.indications
        for one in adoption.progress.values():
            counts["taken"] += one.taken
            counts["duplicate"] += one.duplicate
            counts["refused"] += one.refused


def _membership(order: AdoptionOrder) -> Membership:
    stores = order.stores
    try:
        return Membership(
            groups=tuple(
                StoreGroup(name=one.name, members=tuple(one.members), backups=tuple(one.backups))
                for one in stores.groups
            ),
            within=Within(stores.within),
            between=Between(stores.between),
        )
    except ValueError as error:
        raise OrderError(f"stores: {error}") from None


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


def _tell_refused(adoption: _Adoption, destination: str, reason: str) -> None:
    """Once for each destination and reason."""
    if (destination, reason) in adoption.told or len(adoption.told) >= MOST_ENDED:
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


def _problem_of(context: IntakeContext) -> str | None:
    if not context.routes.takes_relayed:
        return "this deliverer is no gateway, or has no configuration yet"
    if context.durability is not Durability.DISK:
        return f"it needs durability Disk, and this gateway has {context.durability.value}"
    return None


def open_adoptions(
    *,
    context: IntakeContext,
    timers: Timers,
    observer: IntakeObserver,
    folder: Path | None,
    namespace: Callable[[], str | None],
    configuration: Callable[[], Configuration | None],
    handlers: Callable[[], HandlerRegistry | None],
    ended: Counter[str],
    indications: Counter[str],
) -> Adoptions:
    """``folder``: of the journal; None without one. ``ended``, ``indications``: see ``Gateway``.
    The rest changes with the configuration.

    Raises OrderError: this deliverer has no folder for it.
    """
    if folder is None:
        raise OrderError("this deliverer has no journal to adopt into")

    def is_relayed(uid: str) -> bool:
        revision = configuration()
        return revision is not None and any(
            one.uid == uid and one.deliver_through is DeliverThrough.GATEWAY
            for one in revision.destinations.values()
        )

    def connect(services: Sequence[str], *, session: str) -> Stores:
        registry = handlers()
        if registry is None or not registry.reaches_gateways:
            raise OrderError(
                "this gateway was started without --gateway, so it reaches no store; start it again"
                " with --gateway URL, and with --gateway-ca and --gateway-token if stores need them"
            )
        try:
            return registry.stores(services, session=session, timeout=ANSWER_SECONDS)
        except InvalidDestinationError as error:
            raise OrderError(f"a store has no URL by --gateway of this gateway: {error}") from None

    def decoder() -> LineDecoder:
        return LineDecoder(
            context.routes.schema,
            maximum_line_bytes=RELAYED_GROWTH * IntakeLimits().line_bytes,
            is_relayed=True,
            in_force=lambda: context.routes.schema,
        )

    gateway = Gateway(
        context=context,
        clock=context.clock,
        timers=timers,
        observer=observer,
        decoder=decoder,
        namespace=namespace,
        is_relayed=is_relayed,
        connect=connect,
        problem=partial(_problem_of, context),
        ended=ended,
        indications=indications,
    )
    return Adoptions(folder, gateway, name=socket.gethostname())
