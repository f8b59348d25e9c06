"""Adoptions: a gateway takes over what a deliverer that is gone left pending at its stores (S3.7).

Nothing is remembered over a restart: the operator orders again what is not done, and what was taken
before is a duplicate. A few have a turn at once (see ``adoption_turns``); in the same run, another
attempt goes on where the one before has stopped.
"""

import asyncio
import logging
import socket
from collections import Counter
from collections.abc import Callable, Coroutine, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from pillion_sidecar.adoption_attempts import ANSWER_SECONDS, Attempts, Gateway
from pillion_sidecar.adoption_status import ENDED, Adoption, State
from pillion_sidecar.adoption_turns import NoRoomError
from pillion_sidecar.clock import Timers
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import DeliverThrough
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.config.schema.stores import Between, Within
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.intake.adoption import (
    StoppedError,
    UnknownSubscriptionsError,
)
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.intake.limits import IntakeLimits
from pillion_sidecar.intake.server import RELAYED_GROWTH
from pillion_sidecar.journal.files import JournalError
from pillion_sidecar.stores.copies import StoreError
from pillion_sidecar.stores.ports import ClosableTransport
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.stores.store import UnknownError
from pillion_sidecar.wire.adoptions import (
    MOST_DESTINATIONS,
    AdoptionOrder,
    AdoptionStatus,
    OrderError,
)

logger = logging.getLogger("pillion.journal")

#: Adoptions that are not done, and done ones that are remembered.
MOST_KNOWN = 1000
MOST_DONE = 100
#: Destinations in a list of all.
MOST_LISTED = 500


class Adoptions:
    def __init__(self, folder: Path, gateway: Gateway, *, name: str) -> None:
        """``folder``: of the journal; the caller holds its lock. ``name``: of this process."""
        self._gateway = gateway
        self._attempts = Attempts(folder, gateway, name=name)
        self._adoptions: dict[str, Adoption] = {}
        #: Done ones for which the stores are asked again.
        self._asked_again: set[str] = set()
        self._tasks: set[asyncio.Task[None]] = set()

    def order(self, order: AdoptionOrder) -> AdoptionStatus:
        """Adopt a session, unless that is under way. One that has failed begins anew; so does one
        that is done, if a store has it: again, or since it was away at the release.

        Raises OrderError: nothing can be adopted.
        """
        now, known = self._gateway.clock.monotonic(), self._adoptions.get(order.session)
        if known is not None and (known.state not in ENDED or order.session in self._asked_again):
            return known.status(now)
        problem = self._gateway.problem()
        if problem is not None:
            raise OrderError(problem)
        adoption = Adoption(order, _membership(order))
        if known is not None and known.state is State.DONE:
            self._asked_again.add(order.session)
            self._start(self._adopt_again(known, adoption))
            return known.status(now)
        if known is not None:
            adoption.unfinished, adoption.progress = known.unfinished, known.progress
        self._take_up(adoption)
        self._start(self._adopt(adoption))
        return adoption.status(now)

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _take_up(self, adoption: Adoption) -> None:
        """Remember it as the last one. Raises OrderError: there are too many."""
        known, session = self._adoptions, adoption.order.session
        if session not in known and len(known) >= MOST_KNOWN:
            pending = [name for name, one in known.items() if one.state is not State.DONE]
            failed = next((name for name in pending if known[name].state is State.FAILED), None)
            if len(pending) >= MOST_KNOWN and failed is None:
                raise OrderError(
                    f"{len(pending)} adoptions are under way; order it again once some are done"
                )
            if len(pending) >= MOST_KNOWN and failed is not None:
                del known[failed]
        known.pop(session, None)
        known[session] = adoption

    @property
    def statuses(self) -> list[AdoptionStatus]:
        now, most, found = self._gateway.clock.monotonic(), MOST_LISTED, []
        for adoption in self._adoptions.values():
            found.append(adoption.status(now, most=min(most, MOST_DESTINATIONS)))
            most -= len(found[-1].destinations)
        return found

    async def close(self) -> None:
        """End what is under way."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _adopt_again(self, done: Adoption, adoption: Adoption) -> None:
        try:
            answers = await self._attempts.ask(adoption)
            is_found = any(isinstance(one, bytes) for one in answers.values())
            if is_found:
                self._take_up(adoption)
        except OrderError:
            # Nothing is known anew.
            return
        finally:
            self._asked_again.discard(adoption.order.session)
        if is_found:
            await self._adopt(adoption)
            return
        done.left = {
            name: reason
            for name, reason in done.left.items()
            if not isinstance(answers.get(name), UnknownError)
        }

    async def _adopt(self, adoption: Adoption) -> None:
        try:
            while (left := await self._attempts.make(adoption)) is None:
                pass
            # Its folder is gone: the next order may begin it anew.
            self._done(adoption, left)
        except StoppedError as error:
            adoption.problem = str(error)
        except OSError as error:
            self._failed(adoption, f"the disk refuses: {error.strerror or error}")
        except (
            StoreError,
            JournalError,
            NoRoomError,
            OrderError,
            UnknownSubscriptionsError,
        ) as error:
            self._failed(adoption, str(error))
        except Exception:
            # A copy has what its writer sent: it must not end the gateway.
            logger.exception(
                "the adoption of session %s failed, since a part of it did",
                adoption.order.session,
                extra={"event": "adoption-defect", "session": adoption.order.session},
            )
            self._ended(adoption, State.FAILED, "a defect; see the gateway's log")

    def _ended(self, adoption: Adoption, state: State, problem: str | None) -> None:
        adoption.go_on(state)
        adoption.problem = problem
        adoption.ended_at = self._gateway.clock.monotonic()
        self._gateway.ended["done" if state is State.DONE else "failed"] += 1
        if state is State.DONE:
            done = [name for name, one in self._adoptions.items() if one.state is State.DONE]
            for name in done[: max(0, len(done) - MOST_DONE)]:
                del self._adoptions[name]

    def _failed(self, adoption: Adoption, reason: str) -> None:
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

    def _done(self, adoption: Adoption, left: Mapping[str, str]) -> None:
        adoption.left, adoption.unfinished = left, None
        self._ended(adoption, State.DONE, None)
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


def _problem_of(context: IntakeContext) -> str | None:
    if not context.routes.takes_relayed:
        return "this deliverer is no gateway, or has no configuration yet"
    if context.durability is not Durability.DISK:
        return f"it needs durability Disk, and this gateway has {context.durability.value}"
    return None


def _decoder_of(context: IntakeContext) -> LineDecoder:
    return LineDecoder(
        context.routes.schema,
        maximum_line_bytes=RELAYED_GROWTH * IntakeLimits().line_bytes,
        is_relayed=True,
        in_force=lambda: context.routes.schema,
    )


def open_adoptions(
    *,
    context: IntakeContext,
    timers: Timers,
    observer: IntakeObserver,
    folder: Path | None,
    journal_room: Callable[[], int],
    namespace: Callable[[], str | None],
    configuration: Callable[[], Configuration | None],
    handlers: Callable[[], HandlerRegistry | None],
    ended: Counter[str],
    indications: Counter[str],
) -> Adoptions:
    """``folder``: of the journal; None without one. ``journal_room``, ``ended``, ``indications``:
    see ``Gateway``. The rest changes with the configuration.

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

    def connect(services: Sequence[str], *, session: str) -> ClosableTransport:
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

    gateway = Gateway(
        context=context,
        clock=context.clock,
        timers=timers,
        observer=observer,
        decoder=partial(_decoder_of, context),
        namespace=namespace,
        is_relayed=is_relayed,
        connect=connect,
        problem=partial(_problem_of, context),
        journal_room=journal_room,
        ended=ended,
        indications=indications,
    )
    return Adoptions(folder, gateway, name=socket.gethostname())
