"""Adoptions: a gateway takes over what a deliverer that is gone left pending at its stores (S3.7).

Nothing is remembered over a restart: the operator orders again what is not done, and what was taken
before is a duplicate.
"""

import asyncio
import logging
import secrets
import shutil
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Protocol

from pillion_sidecar.adopted_journal import AdoptedJournal, recover_copy
from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.config.schema.stores import Between, Within
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
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.releasing import release
from pillion_sidecar.stores.shipping import Answer
from pillion_sidecar.wire.adoptions import (
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
#: Begins the claimant of an adopter; no pod has this uid.
CLAIMANT = "adopter/"
#: Adoptions that are under way at once; the others wait.
MOST_AT_ONCE = 8
#: Ended ones that are remembered.
MOST_ENDED = 100


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

    def wait(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        self.missing = tuple(missed)
        told = "; ".join(f"{name}: {problem}" for name, problem in sorted(problems.items()))
        self.problem = f"it waits for stores: {told}"

    def go_on(self, state: State) -> None:
        self.state, self.problem, self.missing = state, None, ()

    @property
    def status(self) -> AdoptionStatus:
        progress = self.progress
        left = sorted(
            (-one.pending, name, one.problem) for name, one in progress.items() if one.pending
        )
        return AdoptionStatus(
            session=self.order.session,
            service=self.order.service,
            state=self.state.value,
            problem=self.problem or next((why for *_, why in left if why is not None), None),
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
        """Adopt a session, unless that is done or under way; one that has failed begins anew.

        Raises OrderError: nothing can be adopted.
        """
        known = self._adoptions.get(order.session)
        if known is not None and known.state is not State.FAILED:
            return known.status
        problem = self._gateway.problem()
        if problem is not None:
            raise OrderError(problem)
        adoption = _Adoption(order, _membership(order))
        self._forget_ended()
        self._adoptions[order.session] = adoption
        task = asyncio.get_running_loop().create_task(self._adopt(adoption))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return adoption.status

    @property
    def statuses(self) -> list[AdoptionStatus]:
        return [adoption.status for adoption in self._adoptions.values()]

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
            adoption.state, adoption.problem = State.FAILED, "a defect; see the gateway's log"

    def _failed(self, adoption: _Adoption, reason: str) -> None:
        adoption.state, adoption.problem = State.FAILED, reason
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
            stores.close()
            with suppress(OSError):
                await asyncio.to_thread(shutil.rmtree, folder)

    async def _take_copy(self, adoption: _Adoption, folder: Path, stores: Stores) -> Epoch:
        adoption.go_on(State.CLAIMING)
        claimed = await claim_folder(
            SystemFiles(folder),
            session=adoption.order.session,
            claimant=f"{CLAIMANT}{self._name}/{secrets.token_hex(4)}",
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
            _tell_begin(adoption)
            await sender.send()
        finally:
            journal.close()

    def _done(self, adoption: _Adoption, left: Mapping[str, str]) -> None:
        adoption.go_on(State.DONE)
        status = adoption.status
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
        if left:
            named = "; ".join(f"{name}: {reason}" for name, reason in sorted(left.items()))
            adoption.problem = f"stores keep the session, since they could not be asked: {named}"


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


def _tell_begin(adoption: _Adoption) -> None:
    status = adoption.status
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


def open_adoptions(
    *,
    context: IntakeContext,
    timers: Timers,
    observer: IntakeObserver,
    folder: Path | None,
    namespace: Callable[[], str | None],
    configuration: Callable[[], Configuration | None],
    handlers: Callable[[], HandlerRegistry | None],
) -> Adoptions:
    """``folder``: of the journal; None without one. The rest changes with the configuration.

    Raises OrderError: this deliverer has no folder for it.
    """
    if folder is None:
        raise OrderError("this deliverer has no journal to adopt into")

    def problem() -> str | None:
        if not context.routes.takes_relayed:
            return "this deliverer is no gateway, or has no configuration yet"
        if context.durability is not Durability.DISK:
            return f"it needs durability Disk, and this gateway has {context.durability.value}"
        return None

    def is_relayed(uid: str) -> bool:
        revision = configuration()
        return revision is not None and any(
            one.uid == uid and one.deliver_through is DeliverThrough.GATEWAY
            for one in revision.destinations.values()
        )

    def connect(services: Sequence[str], *, session: str) -> Stores:
        registry = handlers()
        if registry is None or not registry.reaches_gateways:
            raise OrderError("this gateway was started without --gateway, so it reaches no store")
        return registry.stores(services, session=session, timeout=ANSWER_SECONDS)

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
        problem=problem,
    )
    return Adoptions(folder, gateway, name=socket.gethostname())
