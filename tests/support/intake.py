"""Doubles of what stands behind intake, for tests of intake alone."""

import asyncio
import json
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Sequence
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

from aiohttp import ClientSession, TCPConnector, web

from pillion_cim.schema import Schema, load_schema
from pillion_sidecar.auth.token_middleware import TokenMiddleware
from pillion_sidecar.connections import Connection
from pillion_sidecar.history.outcome import NoHistory, Outcome, OutcomeSink
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, Indication, InstanceSource, Refusal, Target
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.limits import IntakeGate, IntakeLimits
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.server import create_intake
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.stores.namespaces import NamespaceStores
from pillion_sidecar.telemetry.metrics import IntakeOutcome
from pillion_sidecar.testing import FakeTime

if TYPE_CHECKING:
    from pillion_sidecar.telemetry.spans import Spans

SCHEMA: Schema = load_schema()


def target(destination: str = "siem", subscription: str = "all") -> Target:
    return Target(subscription=subscription, filter_name="every", destination=destination)


class ScriptedRoutes:
    """Sends everything to the same targets, or by class."""

    def __init__(self, *targets: Target) -> None:
        self.targets: Sequence[Target] = targets
        self.by_class: dict[str, Sequence[Target]] = {}
        self.namespaces: list[str | None] = []
        #: Whether this is a gateway, and the targets of what is relayed, by the subscription's uid.
        self.takes_relayed = False
        self.by_uid: dict[str, Target] = {}
        self.schema = SCHEMA

    def relayed(self, subscription: str, instance: InstanceSource) -> Target | None:
        return self.by_uid.get(subscription)

    def knows(self, subscription: str) -> bool:
        return subscription in self.by_uid

    def route(
        self, class_name: str, instance: InstanceSource, source_namespace: str | None
    ) -> Sequence[Target]:
        self.namespaces.append(source_namespace)
        return self.by_class.get(class_name, self.targets)


class HeldQueues:
    """Takes indications over and settles them when a test says so."""

    def __init__(self) -> None:
        self.taken: list[Indication] = []
        self.places: list[list[str]] = []
        self.arrived = asyncio.Event()
        #: Destinations that refuse.
        self.full: set[str] = set()
        #: Subscriptions that suppress what comes.
        self.suppressed: set[str] = set()
        #: Groups that end at a destination which has lost a member's original.
        self.lost: list[tuple[int, str]] = []
        #: Subscriptions that have ended.
        self.ended: set[str] = set()
        #: What nothing is taken for, such as a full journal.
        self.refusal: Refusal | None = None
        #: Indications that are held, and those that were discarded when they had been.
        self.held: dict[int, tuple[Indication, list[str]]] = {}
        self.out_of_order: list[Indication] = []
        #: What waits for the disk; None where nobody has to.
        self.barriers: list[Callable[[], None]] | None = None
        self.barrier_asked = asyncio.Event()
        #: Gets an outcome for each settlement.
        self.history: OutcomeSink = NoHistory()

    def barrier(self, done: Callable[[], None]) -> None:
        if self.barriers is None:
            done()
        else:
            self.barriers.append(done)
        self.barrier_asked.set()

    def secure(self) -> None:
        """All that was taken is on disk."""
        assert self.barriers is not None
        barriers, self.barriers = self.barriers, []
        for done in barriers:
            done()

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        refusal = self._refusal(targets)
        if refusal is None:
            queued = [
                one.destination
                for one in targets
                if one.subscription not in self.suppressed | self.ended
            ]
            indication.unsettled = len(queued)
            self._take(indication, queued)
        return refusal

    def offer_all(
        self, indications: Sequence[Indication], targets: Sequence[Sequence[Target]]
    ) -> bool:
        """Let each be offered."""
        return False

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        refusal = self._refusal(targets)
        if refusal is None:
            indication.unsettled = len(targets)
            self.held[id(indication)] = indication, [one.destination for one in targets]
        return refusal

    def have_ended(self, targets: Sequence[Target]) -> bool:
        return all(one.subscription in self.ended for one in targets)

    def release(self, indication: Indication) -> None:
        self._take(*self.held.pop(id(indication)))

    def lose(self, indication: Indication, destination: str) -> None:
        self.lost.append((indication.group_run, destination))

    def end_group(self, run: int) -> None: ...

    def end_other_groups(self, runs: Container[int]) -> None: ...

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        _, queued = self.held.pop(id(indication))
        self.out_of_order.append(indication)
        for name in queued:
            indication.unsettled -= 1
            for tracker in indication.trackers:
                tracker.settled(indication, name, reason)

    def _refusal(self, targets: Sequence[Target]) -> Refusal | None:
        for one in targets:
            if one.destination in self.full:
                return Refusal(
                    2.0, f"the queue of destination {one.destination} is full", one.destination
                )
        return self.refusal

    def _take(self, indication: Indication, queued: list[str]) -> None:
        self.taken.append(indication)
        indication.id = len(self.taken)
        self.places.append(queued)
        self.arrived.set()

    def settle(
        self,
        index: int,
        *,
        discarded: DiscardReason | None = None,
        destination: str | None = None,
    ) -> None:
        """Settle one target of the indication taken as number ``index``; by default the first."""
        indication, queued = self.taken[index], self.places[index]
        name = queued[0] if destination is None else destination
        queued.remove(name)
        indication.unsettled -= 1
        self.history.add(settled_outcome(indication, name, discarded))
        for tracker in indication.trackers:
            tracker.settled(indication, name, discarded)

    def settle_all(self) -> None:
        """Deliver whatever is pending."""
        for index, queued in enumerate(self.places):
            for _ in range(len(queued)):
                self.settle(index)

    @property
    def identifiers(self) -> list[str | None]:
        return [indication.identifier for indication in self.taken]


def settled_outcome(
    indication: Indication, destination: str, discarded: DiscardReason | None
) -> Outcome:
    """Return what the delivery records of a settlement."""
    member = indication.member
    return Outcome(
        time=0.0,
        result="delivered" if discarded is None else "discarded",
        destination=destination,
        subscription="all",
        class_name=indication.class_name,
        source=indication.source,
        identifier=indication.identifier,
        reason=None if discarded is None else discarded.value,
        accepted=0.0,
        sequence_context="default#journal-1#siem#1",
        group=indication.group,
        group_sequence=None if member is None else member.sequence,
        queue=0,
        number=indication.id,
        id=indication.id,
        publisher=indication.publisher,
    )


class FakePoster:
    """A ``CallbackPoster`` that posts nothing; a test answers."""

    def __init__(self) -> None:
        self.posted: list[tuple[str, dict[str, Any]]] = []
        self.answers: list[Callable[[str | None], None]] = []

    def post(self, url: str, body: bytes, done: Callable[[str | None], None]) -> None:
        self.posted.append((url, json.loads(body)))
        self.answers.append(done)

    def answer(self, why: str | None = None) -> None:
        """Answer the oldest that is not answered."""
        self.answers.pop(0)(why)


class Counted:
    """An ``IntakeObserver`` and ``CallbackObserver``."""

    def __init__(self) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        self.callbacks: Counter[bool] = Counter()

    def called_back(self, *, delivered: bool) -> None:
        self.callbacks[delivered] += 1

    def received(self, kind: str, outcome: IntakeOutcome, indications: int = 1) -> None:
        self.counts[kind, outcome.value] += indications


class Door:
    """An intake over scripted doubles, and a client for it."""

    def __init__(
        self,
        *,
        limits: IntakeLimits | None = None,
        requests: int = 16,
        waiting: int = 16,
        guarding: Callable[[FakeTime], TokenMiddleware] | None = None,
        spans: "Spans | None" = None,
        stores: NamespaceStores | None = None,
    ) -> None:
        """``guarding`` makes what stands before it."""
        self.time = FakeTime()
        self.memory = DuplicateMemory(clock=self.time, window_seconds=3600, capacity=1000)
        self.routes = ScriptedRoutes(target())
        self.queues = HeldQueues()
        self.groups = Groups(
            clock=self.time, timers=self.time, queues=self.queues, window_seconds=3600
        )
        self.context = IntakeContext(
            clock=self.time,
            memory=self.memory,
            routes=self.routes,
            queues=self.queues,
            groups=self.groups,
            unreached=UnreachedIndications(timers=self.time),
            held_back=HeldBack(timers=self.time),
            undeclared=UndeclaredClasses(timers=self.time, schema=lambda: self.routes.schema),
            spans=spans,
            stores=stores,
        )
        self.history = self.queues.history = History(clock=self.time, timers=self.time)
        self.gate = IntakeGate(reading=requests, waiting=waiting)
        self.observer = Counted()
        self.poster = FakePoster()
        self.app = create_intake(
            context=self.context,
            schema=SCHEMA,
            timers=self.time,
            gate=self.gate,
            observer=self.observer,
            callbacks=Callbacks(poster=self.poster, timers=self.time, observer=self.observer),
            limits=limits,
            tokens=None if guarding is None else guarding(self.time),
            history=self.history,
        )
        self.host, self.port = "127.0.0.1", 0
        self._session: ClientSession | None = None

    @property
    def session(self) -> ClientSession:
        assert self._session is not None
        return self._session

    @property
    def url(self) -> str:
        return f"http://{self.host}:{self.port}"

    @asynccontextmanager
    async def open(self) -> AsyncIterator["Door"]:
        """Listen on loopback; the gate is open."""
        runner = web.AppRunner(
            self.app, auto_decompress=False, access_log=None, shutdown_timeout=0.1
        )
        await runner.setup()
        assert runner.server is not None
        server = await asyncio.get_running_loop().create_server(
            partial(Connection, runner.server), self.host, self.port
        )
        self.port = server.sockets[0].getsockname()[1]
        self.gate.open()
        self._session = ClientSession(connector=TCPConnector(force_close=True))
        try:
            yield self
        finally:
            await self._session.close()
            server.close()
            await runner.cleanup()

    async def post(
        self,
        body: Any,
        *,
        path: str = "/v1/indications",
        content_type: str = "application/x-ndjson",
        headers: dict[str, str] | None = None,
    ) -> tuple[int, Any, dict[str, str]]:
        """Return status, document and headers of the answer."""
        async with self.session.post(
            self.url + path, data=body, headers={"Content-Type": content_type, **(headers or {})}
        ) as response:
            text = await response.text()
            document: Any = (
                json.loads(text) if response.content_type == "application/json" else text
            )
            return response.status, document, dict(response.headers)

    async def get(
        self, path: str, headers: dict[str, str] | None = None
    ) -> tuple[int, dict[str, Any]]:
        async with self.session.get(self.url + path, headers=headers) as response:
            return response.status, await response.json()

    async def taken(self, count: int) -> None:
        """Wait until so many indications have been taken over."""
        while len(self.queues.taken) < count:
            self.queues.arrived.clear()
            await self.queues.arrived.wait()


def alert(identifier: str | None = None, **properties: Any) -> dict[str, Any]:
    """One line, valid unless ``properties`` make it otherwise."""
    given: dict[str, Any] = {"AlertType": 6, "PerceivedSeverity": 5, "ProbableCause": 52}
    if identifier is not None:
        given["IndicationIdentifier"] = identifier
    return {"class": "CIM_AlertIndication", "properties": given | properties}


def lines(*objects: Any) -> bytes:
    """NDJSON; bytes are taken as they are."""
    return b"".join(
        (one if isinstance(one, bytes) else json.dumps(one).encode()) + b"\n" for one in objects
    )
