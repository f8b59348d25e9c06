"""Polls every deliverer for its queues: often during a rollout, rarely while it does not answer.
The caller names the pods and revisions, gets change notifications, and reads the answers. Nothing
is kept of pods that are gone."""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Protocol
from weakref import WeakValueDictionary

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.polling.client import MOST_CONNECTIONS
from pillion_operator.polling.reports import (
    Answer,
    Change,
    DelivererReport,
    QueueReport,
    Unreachable,
    change,
    last_report,
)
from pillion_operator.polling.schedule import INTERVAL, RATE, Turns, fair_share, poll_interval
from pillion_operator.store import uid_of

#: Maximum concurrent polls of one namespace, of deliverers that answered last time and of the
#: others each, so that no namespace takes all connections.
MOST_AT_ONCE = MOST_CONNECTIONS // 4
#: Seconds between two polls of a deliverer that lags behind a configuration: at first, at most, and
#: for how long.
ROLLOUT_FIRST = 0.25
ROLLOUT_MOST = 1.0
ROLLOUT_FOR = 120.0
#: Seconds to the next poll after failures: at first, and at most.
RETRY_FIRST = 1.0
RETRY_MOST = 60.0
#: Maximum share by which a wait is randomly shortened.
JITTER = 0.2
#: Seconds between two calls of ``on_change`` for one service.
_GAPS = {Change.STATE: 1.0, Change.NUMBERS: 10.0}
_SECONDS_AT_REST = 3600.0


@dataclass(frozen=True, slots=True)
class Target:
    """A running pod. A change of any field discards an answer on its way and polls at once."""

    name: str
    uid: str
    address: str
    #: Whether the kubelet reports it Ready.
    ready: bool
    #: It terminates, and is polled until it is gone: what it holds then goes with its volume.
    ending: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A deliverer that is gone, and its last report."""

    pod: str
    uid: str
    #: None: it never answered.
    last: DelivererReport | None


@dataclass(slots=True, eq=False)
class Deliverer:
    service: "Service"
    target: Target
    rollout_until: float
    answer: Answer | None = None
    polling: bool = False
    #: Its pod is gone or has changed.
    gone: bool = False
    #: The last wait during a rollout or failures.
    _wait: float = 0.0

    def rollout(self, now: float) -> None:
        self.rollout_until = now + ROLLOUT_FOR
        self._wait = 0.0

    def next_wait(self, *, interval: float, now: float) -> float:
        if not isinstance(self.answer, DelivererReport):
            self._wait = min(max(RETRY_MOST, interval), max(RETRY_FIRST, 2 * self._wait))
            return self._wait
        rolling_out = now < self.rollout_until
        behind = self.service.revision not in (None, self.answer.revision)
        if behind and rolling_out:
            wait = self._wait = min(ROLLOUT_MOST, max(ROLLOUT_FIRST, 2 * self._wait))
        else:
            wait, self._wait = interval, 0.0
        # A pod that is not ready any more may be about to end by itself, as executors do.
        leaving = rolling_out and not self.target.ready and self.answer.pending
        return min(wait, ROLLOUT_MOST) if self.target.ending or leaving else wait


@dataclass(slots=True, eq=False)
class Service:
    key: tuple[str, str]
    deliverers: dict[str, Deliverer] = field(default_factory=dict)
    revision: str | None = None
    notified_at: float = -math.inf
    #: Whether every deliverer has been polled once.
    has_synced: bool = False
    _queues: WeakValueDictionary[str, QueueReport] = field(default_factory=WeakValueDictionary)

    def serving(self) -> Iterator[Deliverer]:
        return (one for one in self.deliverers.values() if not one.target.ending)

    def shared(self, queue: QueueReport) -> QueueReport:
        """One object for equal idle queues of all deliverers: copies would fill the memory."""
        known = self._queues.get(queue.name)
        if known == queue:
            return known
        if queue.last_attempt_time is None:
            self._queues[queue.name] = queue
        return queue


class Client(Protocol):
    async def poll(self, pod: str, *, address: str, token: str) -> Answer: ...


class Poller:
    """Keeps the last answer of every deliverer.

    It polls at most ``rate`` deliverers a second, and namespaces take turns. Those that did not
    answer last time have separate connections, so that they delay none of the others.
    """

    def __init__(
        self,
        client: Client,
        *,
        clock: Clock,
        token: Callable[[str, str], str],
        on_change: Callable[[str, str], None],
        known: Callable[[str, str, str], bool],
        polled: Callable[[bool, float], None],
        draw: Callable[[], float],
        rate: float = RATE,
        interval: float = INTERVAL,
    ) -> None:
        """``token`` and ``on_change`` take a namespace and a service. ``known`` returns whether a
        resource exists (kind, namespace, name): reports of others are dropped, or any pod could
        fill the operator's memory. ``polled`` gets whether a deliverer answered, and the seconds.
        ``draw`` returns random numbers in [0, 1). ``interval`` is the seconds between two polls of
        a deliverer while they are few."""
        self._client = client
        self._clock = clock
        self._token = token
        self._on_change = on_change
        self._known = known
        self._polled = polled
        self._draw = draw
        self._rate = rate
        self._interval = interval
        self._services: dict[tuple[str, str], Service] = {}
        self._turns: Turns[Deliverer] = Turns(most=MOST_AT_ONCE)
        #: Deliverers by namespace, and their ``fair_share``; None after a change.
        self._pods: Counter[str] = Counter()
        self._share: float | None = None
        #: Changed services, and when (monotonic) to call ``on_change``.
        self._changes: dict[tuple[str, str], float] = {}
        #: Earliest next poll (monotonic), by the rate.
        self._next_slot = -math.inf
        self._woken = asyncio.Event()
        self._lanes = {failed: asyncio.Semaphore(MOST_CONNECTIONS // 2) for failed in (False, True)}

    def pods_changed(self, namespace: str, service: str, pods: Sequence[Object]) -> list[Departure]:
        """Set the pods of a service's deliverers, with terminating ones; return the deliverers that
        are gone."""
        known = self._service(namespace, service)
        targets, now = _targets(pods), self._clock.monotonic()
        # A pod may lack an address for a moment.
        staying = {uid_of(pod) for pod in pods if not being_deleted(pod)}
        changed = False
        departed: list[Departure] = []
        for uid, deliverer in list(known.deliverers.items()):
            target = targets.get(uid)
            if not deliverer.target.ending and (target is None or target.ending):
                changed = changed or deliverer.answer is not None or not known.has_synced
            if target is None:
                self._drop(deliverer)
                del known.deliverers[uid]
                if uid not in staying:
                    last = last_report(deliverer.answer)
                    departed.append(Departure(pod=deliverer.target.name, uid=uid, last=last))
        for target in targets.values():
            self._add(known, target, now)
        if changed:
            self._note(known, Change.STATE, now)
        self._forget_unused(known)
        self._woken.set()
        return departed

    def rendered(self, namespace: str, service: str, revision: str) -> None:
        """Poll deliverers that do not report the new revision at once, and often."""
        known = self._service(namespace, service)
        if known.revision == revision:
            return
        known.revision = revision
        now = self._clock.monotonic()
        for deliverer in known.serving():
            if isinstance(deliverer.answer, DelivererReport):
                deliverer.rollout(now)
                self._put(deliverer, now)
        self._woken.set()

    def service_gone(self, namespace: str, service: str) -> None:
        """Its deliverers are polled as long as they run: they still hold indications, and the
        service may come again."""
        known = self._services.get((namespace, service))
        if known is not None:
            known.revision = None
            self._forget_unused(known)

    def reports(self, namespace: str, service: str) -> tuple[Answer, ...]:
        """The last answer of each polled deliverer, by pod."""
        known = self._services.get((namespace, service))
        serving = sorted(known.serving(), key=lambda one: one.target.name) if known else ()
        return tuple(one.answer for one in serving if one.answer is not None)

    def services(self) -> Iterator[tuple[str, str]]:
        """The namespace and name of each service with pods or a configuration."""
        return iter(self._services)

    def find(self, namespace: str, pod: str) -> tuple[str, str] | None:
        """Return the address of a deliverer and the token for it; None: there is none."""
        for key, service in self._services.items():
            if key[0] != namespace:
                continue
            for one in service.deliverers.values():
                if one.target.name == pod:
                    return one.target.address, self._token(*key)
        return None

    @property
    def unreachable(self) -> int:
        """Deliverers without a usable last answer, over all services."""
        return sum(
            isinstance(deliverer.answer, Unreachable)
            for service in self._services.values()
            for deliverer in service.serving()
        )

    def has_synced(self, namespace: str, service: str) -> bool:
        """Whether every deliverer of the start has been polled. Until then the live status is
        nearer to the truth than the answers."""
        known = self._services.get((namespace, service))
        return known is None or known.has_synced or not any(known.serving())

    async def run(self) -> None:
        async with asyncio.TaskGroup() as polls:
            while True:
                now = self._clock.monotonic()
                self._notify(now)
                due = max(self._turns.next_due(), self._next_slot)
                if due <= now:
                    self._next_slot = max(self._next_slot, now) + 1 / self._rate
                    deliverer, group = self._turns.pop(now)
                    deliverer.polling = True
                    polls.create_task(self._poll(deliverer, group))
                    continue
                self._woken.clear()
                rest = min(due, *self._changes.values(), now + _SECONDS_AT_REST) - now
                with suppress(TimeoutError):
                    await within(self._clock, rest, self._woken.wait())

    async def _poll(self, deliverer: Deliverer, group: Hashable) -> None:
        try:
            async with self._lanes[isinstance(deliverer.answer, Unreachable)]:
                if deliverer.gone:
                    return
                began = self._clock.monotonic()
                answer = await self._client.poll(
                    deliverer.target.name,
                    address=deliverer.target.address,
                    token=self._token(*deliverer.service.key),
                )
            now = self._clock.monotonic()
            self._polled(isinstance(answer, DelivererReport), now - began)
            if not deliverer.gone:
                self._take(deliverer, answer, now)
        finally:
            self._turns.done(group)
            self._woken.set()

    def _take(self, deliverer: Deliverer, answer: Answer, now: float) -> None:
        deliverer.polling = False
        service, before = deliverer.service, deliverer.answer
        if isinstance(answer, DelivererReport):
            answer = self._of_known_resources(service, answer)
        else:
            since = before.since if isinstance(before, Unreachable) else answer.since
            answer = replace(answer, since=since, last=last_report(before))
        deliverer.answer = answer
        if not deliverer.target.ending:
            self._note(service, change(before, answer), now)
        if self._share is None:
            self._share = fair_share(self._pods.values(), rate=self._rate, least=self._interval)
        interval = poll_interval(
            self._pods[service.key[0]], share=self._share, least=self._interval
        )
        wait = deliverer.next_wait(interval=interval, now=now)
        self._put(deliverer, now + wait * (1 - JITTER * self._draw()))

    def _of_known_resources(self, service: Service, report: DelivererReport) -> DelivererReport:
        namespace, _ = service.key
        queues = {
            name: service.shared(queue)
            for name, queue in report.queues.items()
            if self._known("ListenerDestination", namespace, name)
        }
        ended = (
            one
            for one in report.ended
            if self._known("IndicationSubscription", namespace, one.name)
        )
        replays = {
            name: one
            for name, one in report.replays.items()
            if self._known("IndicationReplay", namespace, name)
        }
        return replace(report, queues=queues, ended=tuple(ended), replays=replays)

    def _service(self, namespace: str, service: str) -> Service:
        key = (namespace, service)
        return self._services.setdefault(key, Service(key))

    def _forget_unused(self, service: Service) -> None:
        used = service.deliverers or service.revision is not None or service.key in self._changes
        if not used:
            del self._services[service.key]

    def _add(self, service: Service, target: Target, now: float) -> None:
        before = service.deliverers.get(target.uid)
        if before is not None and before.target == target:
            return
        deliverer = Deliverer(service, target, now + ROLLOUT_FOR)
        if before is not None:
            self._drop(before)
            deliverer.answer = before.answer
        service.deliverers[target.uid] = deliverer
        self._count(service, 1)
        self._put(deliverer, now)

    def _drop(self, deliverer: Deliverer) -> None:
        deliverer.gone = True
        self._count(deliverer.service, -1)
        self._turns.drop(deliverer)

    def _put(self, deliverer: Deliverer, due: float) -> None:
        """Schedule its next poll, or let the poll in flight do so."""
        if not deliverer.polling:
            failed = isinstance(deliverer.answer, Unreachable)
            self._turns.put(deliverer, due, group=(deliverer.service.key[0], failed))

    def _count(self, service: Service, more: int) -> None:
        namespace, _ = service.key
        self._pods[namespace] += more
        if not self._pods[namespace]:
            del self._pods[namespace]
        self._share = None

    def _note(self, service: Service, change: Change, now: float) -> None:
        if not service.has_synced:
            # One notification for all of the first round: a thousand pods would cause a thousand.
            service.has_synced = all(one.answer is not None for one in service.serving())
            change = Change.STATE if service.has_synced else Change.NONE
        if change is not Change.NONE:
            due = max(now, service.notified_at + _GAPS[change])
            self._changes[service.key] = min(due, self._changes.get(service.key, math.inf))

    def _notify(self, now: float) -> None:
        for key in [key for key, due in self._changes.items() if due <= now]:
            del self._changes[key]
            service = self._services[key]
            service.notified_at = now
            self._on_change(*key)
            self._forget_unused(service)


def _targets(pods: Iterable[Object]) -> dict[str, Target]:
    found = {}
    for pod in pods:
        status = pod.get("status") or {}
        if status.get("phase") != "Running" or not status.get("podIP"):
            continue
        ready = any(
            condition.get("type") == "Ready" and condition.get("status") == "True"
            for condition in status.get("conditions") or ()
        )
        uid, name = uid_of(pod), pod["metadata"]["name"]
        found[uid] = Target(name, uid, status["podIP"], ready=ready, ending=being_deleted(pod))
    return found
