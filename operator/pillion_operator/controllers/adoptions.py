"""Has gateways adopt the sessions of pods that are gone (S3.7).

Each round begins anew: it lists the copies at all gateways that keep any, proves which pods are
gone, and orders what is not adopted.

A pod is gone if no pod of the namespace has its uid, or if that pod has ended, in two rounds and in
a listing of the API server. What does not answer proves nothing.
"""

import asyncio
import logging
from collections import OrderedDict, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import islice
from typing import NoReturn, TypeVar

from pillion_operator.cluster.api import succeeds
from pillion_operator.cluster.types import POD, Object, being_deleted, has_ended
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import status_of
from pillion_operator.desired.configuration import operator_token
from pillion_operator.evaluation.adopting import (
    Session,
    keeps_copies,
    sessions_of,
    stores_to_ask,
)
from pillion_operator.evaluation.references import (
    HAND_OVER_TO,
    SERVICE,
    gateway_named,
)
from pillion_operator.evaluation.relaying import gateways_named
from pillion_operator.polling.adoptions import (
    AskError,
    Asking,
    GatewayAdoptions,
    Refused,
    Waits,
)
from pillion_operator.status.adoption import (
    NO_ADOPTER,
    PendingSessions,
    adopted_note,
    waits_note,
)
from pillion_operator.status.conditions import seconds_of
from pillion_operator.store import Key, uid_of
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.wire.adoptions import AdoptionOrder, AdoptionStatus, OrderedStores
from pillion_sidecar.wire.journals import JournalCopy

logger = logging.getLogger("pillion.operator")

#: The part of the time between two rounds after which the next comes while something happens.
BUSY_PART = 0.25
#: Concurrent requests to gateways.
MOST_AT_ONCE = 4
#: Adoptions of one gateway that are not done, and new orders to it in one round.
MOST_UNDER_WAY = 32
MOST_ORDERS = 8
#: Events in one round.
MOST_EVENTS = 20
#: Uids of pods that are proven to be gone, which need no further listing.
MOST_PROVEN = 10_000
#: Seconds for which the API server is not asked again whether a pod is alive.
ALIVE_SECONDS = 60.0
#: Seconds until an adoption that has failed is ordered again: at first, and at most.
RETRY_FIRST = 10.0
RETRY_MOST = 300.0
#: Seconds that a pod may take to end beyond its grace.
UNRESPONSIVE_AFTER = 60.0
#: Seconds for which an adoption that was done before this operator led is told.
TOLD_FOR = 60.0
_ENDED = ("Done", "Failed")
T = TypeVar("T")


@dataclass(slots=True)
class _Retry:
    at: float
    wait: float


@dataclass(slots=True)
class _Adopter:
    """One gateway pod, in one round."""

    name: str
    gateway: GatewayAdoptions
    statuses: dict[str, AdoptionStatus] = field(default_factory=dict)
    #: Why it cannot be asked.
    problem: str | None = None

    @property
    def under_way(self) -> int:
        return sum(one.state not in _ENDED for one in self.statuses.values())


class Adoptions:
    def __init__(
        self, context: Context, *, client: Asking, metrics: Metrics, interval: float
    ) -> None:
        """``interval``: seconds between two rounds."""
        self._context = context
        self._client = client
        self._gauge = metrics.sessions_pending
        self._interval = interval
        self._slots = asyncio.Semaphore(MOST_AT_ONCE)
        #: The pods that the last round missed, by namespace and uid.
        self._missed: set[tuple[str, str]] = set()
        self._proven: OrderedDict[tuple[str, str], None] = OrderedDict()
        #: Those of them that run, as those without the label do, and until when that is believed.
        self._alive: dict[tuple[str, str], float] = {}
        #: Failed adoptions, by session.
        self._retries: dict[str, _Retry] = {}
        #: The sessions that each gateway pod has said to be done.
        self._done: dict[str, set[str]] = {}
        #: Why the sessions of services wait, and since when (monotonic).
        self._problems: dict[Key, tuple[Waits, float]] = {}
        #: What Events tell of it.
        self._told: dict[Key, Waits] = {}
        #: Why gateways do not list their copies.
        self._unlisted: dict[Key, str] = {}
        self._events = 0

    async def run(self) -> NoReturn:
        while True:
            await self._context.clock.sleep(self._pause())
            what = "cannot look for journals of pods that are gone"
            await succeeds(self.round(), what, extra={"event": "adoption-round-failed"})

    def _pause(self) -> float:
        """Shorter while somebody may turn out to be gone, or is being adopted."""
        known = self._context.sessions.values()
        is_busy = self._missed - self._proven.keys() - self._alive.keys() or any(
            one.sessions and one.waits is None for one in known
        )
        return self._interval * BUSY_PART if is_busy else self._interval

    async def round(self) -> None:
        self._events = 0
        gateways = self._gateways()
        writers = set[Key]().union(*map(self._context.references.writers, gateways))
        lists = await self._each(filter(self._keeps_copies, gateways), self._copies)
        self._unlisted = {key: why for key, why in self._unlisted.items() if key in lists}
        unheard = {key for key, copies in lists.items() if copies is None}
        by_namespace: dict[str, list[JournalCopy]] = defaultdict(list)
        for key, copies in lists.items():
            by_namespace[key.namespace] += copies or ()
        dead = await self._dead(
            {name: list(sessions_of(copies)) for name, copies in by_namespace.items()}
        )
        adopters = await self._adopters(writers)
        under = {one.id for sessions in dead.values() for one in sessions}
        self._retries = {name: retry for name, retry in self._retries.items() if name in under}
        # Any pod may claim a session in the name of a service that does not exist.
        missing = sorted(key for key in dead if self._context.store.get(key) is None)[MOST_EVENTS:]
        found: dict[Key, PendingSessions] = {}
        for key in sorted(writers.union(dead).difference(missing)):
            sessions = sorted(dead.get(key, ()))
            before = self._context.sessions.get(key)
            if not sessions and before and before.sessions and self._stores(key) & unheard:
                # A store that does not answer may be the only one that has the sessions.
                found[key] = before
                continue
            found[key] = await self._pending(key, sessions, adopters)
        self._tell_done(adopters)
        self._take(found)

    # ------------------------------------------------------------------ what there is

    def _gateways(self) -> list[Key]:
        """By an index: most services are none."""
        namespaces = self._context.store.namespaces(SERVICE)
        return sorted(frozenset[Key]().union(*map(self._context.references.gateways, namespaces)))

    def _keeps_copies(self, gateway: Key) -> bool:
        body = self._context.store.get(gateway)
        return body is not None and keeps_copies(body)

    def _stores(self, service: Key) -> frozenset[Key]:
        return self._context.references.stores_of(service)

    async def _each(self, keys: Iterable[Key], ask: Callable[[Key], Awaitable[T]]) -> dict[Key, T]:
        async def one(key: Key) -> T:
            async with self._slots:
                return await ask(key)

        named = list(keys)
        return dict(zip(named, await asyncio.gather(*map(one, named)), strict=True))

    def _gateway(self, key: Key) -> tuple[GatewayAdoptions, str] | None:
        """A gateway's pod, and its uid; None: none runs."""
        for pod in self._context.pods(key):
            status = pod.get("status") or {}
            if status.get("phase") == "Running" and status.get("podIP"):
                token = operator_token(self._context.token_key, key.namespace, key.name)
                asked = GatewayAdoptions(self._client, address=status["podIP"], token=token)
                return asked, uid_of(pod)
        return None

    async def _copies(self, key: Key) -> list[JournalCopy] | None:
        """None: it does not tell."""
        found = self._gateway(key)
        if found is None:
            return None
        problem = None
        try:
            return await found[0].copies()
        except Refused as error:
            problem = str(error)
            return None
        except AskError:
            # GatewayReady tells of it.
            return None
        finally:
            self._note_unlisted(key, problem)

    def _note_unlisted(self, key: Key, problem: str | None) -> None:
        """Log once that a gateway tells nothing of its copies."""
        if self._unlisted.get(key) == problem:
            return
        if problem is None:
            del self._unlisted[key]
            return
        self._unlisted[key] = problem
        logger.warning(
            "%s does not list its copies of journals, so what only it has is not adopted: %s",
            key,
            problem,
            extra={"event": "copies-unlisted", "namespace": key.namespace, "service": key.name},
        )

    # ------------------------------------------------------------------ who is gone

    async def _dead(self, sessions: Mapping[str, Sequence[Session]]) -> dict[Key, list[Session]]:
        """The sessions of pods that are gone, by service."""
        missed = {
            (namespace, one.uid)
            for namespace, found in sessions.items()
            for one, living in zip(found, self._living(namespace, found), strict=True)
            if one.uid is not None and not living
        }
        twice = missed & self._missed
        self._missed = missed
        await self._prove(twice)
        dead: dict[Key, list[Session]] = defaultdict(list)
        for namespace, found in sessions.items():
            for one in found:
                gone = (namespace, one.uid) in twice and (namespace, one.uid) in self._proven
                if one.uid is None or gone:
                    dead[Key(SERVICE, namespace, one.service)].append(one)
        return dead

    def _living(self, namespace: str, sessions: Sequence[Session]) -> Iterator[bool]:
        pods = self._context.store.all(POD.kind, namespace).values()
        living = {uid_of(pod) for pod in pods if not has_ended(pod)}
        return (one.uid in living for one in sessions)

    async def _prove(self, missed: set[tuple[str, str]]) -> None:
        """Have the API server say it. A watch may lag, and brings only pods that have the label of
        deliverers."""
        now = self._context.clock.monotonic()
        self._alive = {one: until for one, until in self._alive.items() if until > now}
        unproven = missed - self._proven.keys() - self._alive.keys()
        for namespace in sorted({namespace for namespace, _ in unproven}):
            pods = await self._context.api.list(POD, namespace)
            living = {uid_of(pod) for pod in pods if not has_ended(pod)}
            for one in sorted(one for one in unproven if one[0] == namespace):
                if one[1] not in living:
                    self._proven[one] = None
                else:
                    self._alive[one] = now + ALIVE_SECONDS
        while len(self._proven) > MOST_PROVEN:
            self._proven.popitem(last=False)

    def _unresponsive(self, service: Key) -> tuple[str, ...]:
        """The pods that should have ended long ago."""
        now = self._context.clock.time()
        pods = self._context.pods(service, terminating=True)
        late = (
            pod["metadata"]["name"]
            for pod in pods
            if being_deleted(pod)
            and now > (seconds_of(pod["metadata"]["deletionTimestamp"]) or now) + UNRESPONSIVE_AFTER
        )
        return tuple(sorted(late))

    # ------------------------------------------------------------------ orders

    async def _adopters(self, writers: Iterable[Key]) -> dict[Key, _Adopter]:
        """The gateways that may adopt, with what they say of it; without those that do not run."""
        bodies = [(key, self._context.store.get(key)) for key in writers]
        adopters = {
            Key(SERVICE, key.namespace, gateway_named(body, HAND_OVER_TO))
            for key, body in bodies
            if body is not None
        }
        named = sorted(adopters)
        found = await self._each(named, self._adopter)
        uids = {self._uid(key) for key in named}
        self._done = {uid: done for uid, done in self._done.items() if uid in uids}
        return {key: one for key, one in found.items() if one is not None}

    def _uid(self, gateway: Key) -> str:
        found = self._gateway(gateway)
        return "" if found is None else found[1]

    async def _adopter(self, key: Key) -> _Adopter | None:
        found = self._gateway(key)
        if found is None:
            return None
        adopter = _Adopter(key.name, found[0])
        try:
            statuses = await found[0].statuses()
            adopter.statuses = {one.session: one for one in statuses}
        except Refused as error:
            adopter.problem = str(error)
            if error.status == 404:
                adopter.problem = "its image is of a version that adopts nothing. Update the image"
        except AskError as error:
            adopter.problem = str(error)
        return adopter

    async def _pending(
        self, key: Key, sessions: Sequence[Session], adopters: Mapping[Key, _Adopter]
    ) -> PendingSessions:
        body = self._context.store.get(key)
        if body is None:
            waits = Waits(
                "ServiceNotFound",
                f"IndicationService {key.name} does not exist any more, so it is unknown who gets "
                "them. Create it again until they are adopted, or let journalCopies drop them "
                "after maximumAgeSeconds.",
            )
            return PendingSessions(sessions=len(sessions), waits=waits)
        name = gateway_named(body, HAND_OVER_TO)
        gone = PendingSessions(
            sessions=len(sessions), adopter=name, unresponsive=self._unresponsive(key)
        )
        if not sessions:
            return gone
        stores = stores_to_ask(body)
        adopter = adopters.get(Key(SERVICE, key.namespace, name))
        if isinstance(stores, Waits):
            return _waiting(gone, stores)
        problem = self._problem(key, body, name, adopter)
        if problem is not None or adopter is None:
            return _waiting(gone, problem)
        return await self._ordered(gone, key, sessions, stores, adopter)

    def _problem(self, key: Key, body: Object, name: str, adopter: _Adopter | None) -> Waits | None:
        if not name:
            return NO_ADOPTER
        verdict = gateways_named(body, namespace=self._context.namespace(key.namespace))[
            HAND_OVER_TO
        ]
        if not verdict.accepted:
            return Waits(verdict.reason, verdict.message)
        if adopter is None:
            return Waits("GatewayNotRunning", f"no pod of the gateway {name} runs.")
        if adopter.problem is not None:
            return Waits("GatewayRefuses", f"the gateway {name}: {adopter.problem}.")
        return None

    async def _ordered(
        self,
        gone: PendingSessions,
        key: Key,
        sessions: Sequence[Session],
        stores: OrderedStores,
        adopter: _Adopter,
    ) -> PendingSessions:
        """Order what is not under way, within bounds; return how far all is."""
        now = self._context.clock.monotonic()
        room = min(MOST_ORDERS, MOST_UNDER_WAY - adopter.under_way)
        due = (one for one in sessions if self._is_due(one, adopter, now))
        waits: Waits | None = None
        for one in list(islice(due, max(0, room))):
            order = AdoptionOrder(session=one.id, service=key.name, stores=stores)
            try:
                adopter.statuses[one.id] = await adopter.gateway.order(order)
            except AskError as error:
                adopter.problem = str(error)
                waits = Waits("GatewayRefuses", f"the gateway {adopter.name}: {error}.")
                break
        statuses = [adopter.statuses[one.id] for one in sessions if one.id in adopter.statuses]
        problem = next((one for one in statuses if one.problem and one.state != "Done"), None)
        if waits is None and problem is not None:
            waits = Waits(
                "AdoptionFailed" if problem.state == "Failed" else "AdoptionWaits",
                f"the gateway {adopter.name}: {problem.problem}.",
            )
        pending = sum(one.pending for one in statuses)
        return _waiting(gone, waits, pending=pending)

    def _is_due(self, session: Session, adopter: _Adopter, now: float) -> bool:
        status = adopter.statuses.get(session.id)
        if status is None:
            return True
        if status.state == "Done":
            # A store that was away at the release has it still.
            return status.problem is not None
        if status.state != "Failed":
            return False
        retry = self._retries.setdefault(session.id, _Retry(now + RETRY_FIRST, RETRY_FIRST))
        if now < retry.at:
            return False
        retry.wait = min(RETRY_MOST, 2 * retry.wait)
        retry.at = now + retry.wait
        return True

    # ------------------------------------------------------------------ what is told

    def _tell_done(self, adopters: Mapping[Key, _Adopter]) -> None:
        for key, adopter in sorted(adopters.items()):
            if adopter.problem is not None:
                continue
            done = {one.session: one for one in adopter.statuses.values() if one.state == "Done"}
            uid = self._uid(key)
            known = self._done.get(uid)
            news = [
                one
                for session, one in done.items()
                if (session not in known if known is not None else _is_recent(one))
            ]
            self._done[uid] = set(done)
            for session in done:
                self._retries.pop(session, None)
            by_service: dict[str, list[AdoptionStatus]] = defaultdict(list)
            for one in news:
                by_service[one.service].append(one)
            for name, of_service in sorted(by_service.items()):
                service = Key(SERVICE, key.namespace, name)
                self._publish(
                    service,
                    type="Normal",
                    reason="SessionAdopted",
                    note=adopted_note(key.name, of_service),
                )

    def _take(self, found: Mapping[Key, PendingSessions]) -> None:
        """Tell statuses, metrics and Events what has changed."""
        before = self._context.sessions
        for key in before.keys() - found.keys():
            del before[key]
            self._gauge.remove(key.namespace, key.name)
            self._context.queue.add(status_of(key))
        for key, now in found.items():
            if before.get(key) != now:
                before[key] = now
                self._gauge.labels(key.namespace, key.name).set(now.sessions)
                self._context.queue.add(status_of(key))
        self._tell_waiting(found)

    def _tell_waiting(self, found: Mapping[Key, PendingSessions]) -> None:
        now, before = self._context.clock.monotonic(), self._problems
        waiting = {key: one.waits for key, one in found.items() if one.waits is not None}
        self._problems = {}
        for key, waits in waiting.items():
            known, since = before.get(key, (None, now))
            since = since if known == waits else now
            self._problems[key] = waits, since
            # What is soon over is not told.
            is_news = now - since >= self._interval and self._told.get(key) != waits
            if is_news and self._publish(
                key,
                type="Warning",
                reason="AdoptionWaits",
                note=waits_note(found[key]),
            ):
                self._told[key] = waits
        self._told = {key: waits for key, waits in self._told.items() if key in waiting}

    def _publish(self, service: Key, *, type: str, reason: str, note: str) -> bool:
        """About the service, or about a gateway of its namespace if it does not exist any more.
        Return False if there are too many."""
        body = self._context.store.get(service)
        if body is None:
            services = self._context.store.all(SERVICE, service.namespace).values()
            body = next((one for one in services if keeps_copies(one)), None)
        if body is None or self._events >= MOST_EVENTS:
            return False
        self._events += 1
        self._context.recorder.publish(body, type=type, reason=reason, note=note, action="Adopt")
        return True


def _waiting(gone: PendingSessions, waits: Waits | None, *, pending: int = 0) -> PendingSessions:
    return PendingSessions(
        sessions=gone.sessions,
        pending=pending,
        adopter=gone.adopter,
        waits=waits,
        unresponsive=gone.unresponsive,
    )


def _is_recent(done: AdoptionStatus) -> bool:
    return done.ended_seconds is not None and done.ended_seconds <= TOLD_FOR
