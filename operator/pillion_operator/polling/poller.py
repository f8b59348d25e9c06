"""Polls every deliverer for its queues: often while a configuration rolls out, seldom where no
answer comes.

The caller names the pods and the rendered revisions, is notified of changes, and reads the reports.
Nothing is kept of pods that are gone.
"""

import asyncio
import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Protocol
from weakref import WeakValueDictionary

from pillion_operator.clock import Clock, within
from pillion_operator.cluster.types import Object
from pillion_operator.polling.client import MOST_CONNECTIONS
from pillion_operator.polling.news import News, news
from pillion_operator.polling.pace import (
    CALM,
    HURRY_FOR,
    HURRY_MOST,
    RATE,
    Pace,
    calm,
    fair_share,
    jittered,
)
from pillion_operator.polling.reports import DelivererReport, QueueReport, Unreachable
from pillion_operator.polling.schedule import Turns
from pillion_operator.polling.targets import Target, targets_of

#: The port of a deliverer's /v1/queues on its pod's address.
TELEMETRY_PORT = 8289
#: Askings of one namespace under way at once, of those that were silent last time and of the others
#: each: no namespace has all the connections to itself.
MOST_AT_ONCE = MOST_CONNECTIONS // 4
#: Seconds between two calls of ``on_change`` for one service, by what there is to tell.
_GAPS = {News.TURNED: 1.0, News.MOVED: 10.0}


@dataclass(frozen=True, slots=True, kw_only=True)
class Departure:
    """A deliverer that is gone, and what it was last seen to hold."""

    pod: str
    uid: str
    #: What waited when it last answered, by destination; those with nothing are left out.
    pending: Mapping[str, int]
    #: When that was, in seconds since the epoch; None: it never answered.
    heard: float | None


class Deliverer:
    __slots__ = ("asking", "ending", "gone", "pace", "report", "service", "target")

    def __init__(self, service: "Service", target: Target, *, now: float) -> None:
        self.service = service
        self.target = target
        self.pace = Pace(now + HURRY_FOR)
        self.report: DelivererReport | Unreachable | None = None
        self.asking = False
        #: It has been told to end: it is asked to its last, for what it then still holds.
        self.ending = False
        #: No longer there, or replaced: an answer that is still to come is nobody's.
        self.gone = False

    def departure(self) -> Departure:
        pending, heard = last_seen(self.report)
        return Departure(pod=self.target.name, uid=self.target.uid, pending=pending, heard=heard)


class Service:
    __slots__ = ("_queues", "deliverers", "ending", "gathered", "key", "revision", "told_at")

    def __init__(self, key: tuple[str, str]) -> None:
        self.key = key
        #: By name.
        self.deliverers: dict[str, Deliverer] = {}
        #: Those that have been told to end, by uid.
        self.ending: dict[str, Deliverer] = {}
        self.revision: str | None = None
        self.told_at = -math.inf
        #: Whether every deliverer has been asked once.
        self.gathered = False
        #: What some deliverer says of each queue, as long as a report holds it.
        self._queues: WeakValueDictionary[str, QueueReport] = WeakValueDictionary()

    @property
    def unused(self) -> bool:
        """Whether nobody has anything to do with it any more."""
        return not self.deliverers and not self.ending and self.revision is None

    def shared(self, queue: QueueReport) -> QueueReport:
        """The same, as one object for all deliverers that say just that. Most queues are idle, and
        many queues of many deliverers would fill the memory with copies."""
        known = self._queues.get(queue.name)
        if known == queue:
            return known
        if queue.last_attempt_time is None:
            self._queues[queue.name] = queue
        return queue


def last_seen(
    report: DelivererReport | Unreachable | None,
) -> tuple[Mapping[str, int], float | None]:
    """What waited when a deliverer last answered, and when that was."""
    if report is None:
        return {}, None
    if isinstance(report, Unreachable):
        return report.pending, report.heard
    return {name: queue.depth for name, queue in report.queues.items() if queue.depth}, report.at


class Asks(Protocol):
    """``DelivererClient``, or what stands for it in a test."""

    async def ask(
        self, pod: str, *, address: str, port: int, token: str
    ) -> DelivererReport | Unreachable: ...


class GatheringMetrics(Protocol):
    """Counts what is asked."""

    def asked(self, *, reachable: bool, seconds: float) -> None:
        """A deliverer was asked: whether it answered, and how long that took."""


class Gatherer:
    """Keeps the last report of every deliverer.

    No more than ``rate`` deliverers are asked a second, of one namespace after the other; the calm
    interval of a namespace stretches with the number of its deliverers (``pace``). Those that were
    silent last time have connections of their own, so that they keep none of the others waiting.
    """

    def __init__(
        self,
        client: Asks,
        *,
        clock: Clock,
        token: Callable[[str, str], str],
        on_change: Callable[[str, str], None],
        known: Callable[[str, str, str], bool],
        metrics: GatheringMetrics,
        draw: Callable[[], float],
        port: int = TELEMETRY_PORT,
        rate: float = RATE,
        interval: float = CALM,
    ) -> None:
        """``token`` and ``on_change`` take a namespace and a service. ``known`` says whether a
        resource exists (kind, namespace, name): reports of others are dropped, or any pod could
        fill the operator's memory. ``draw`` gives random numbers in [0, 1). ``interval`` is the
        calm one, in seconds, while deliverers are few."""
        self._client = client
        self._clock = clock
        self._token = token
        self._on_change = on_change
        self._known = known
        self._metrics = metrics
        self._draw = draw
        self._port = port
        self._rate = rate
        self._interval = interval
        self._services: dict[tuple[str, str], Service] = {}
        self._turns: Turns[Deliverer] = Turns(most=MOST_AT_ONCE)
        #: The deliverers of each namespace, and what ``fair_share`` makes of them; None when they
        #: have changed since.
        self._pods: Counter[str] = Counter()
        self._share: float | None = None
        #: Services with news, and when (monotonic) to tell them.
        self._untold: dict[tuple[str, str], float] = {}
        #: No asking before it (monotonic), by the rate.
        self._next_slot = -math.inf
        self._woken = asyncio.Event()
        self._lanes = {lost: asyncio.Semaphore(MOST_CONNECTIONS // 2) for lost in (False, True)}

    def pods_changed(
        self, namespace: str, service: str, pods: Iterable[Object], *, ending: Iterable[Object] = ()
    ) -> list[Departure]:
        """Take all the pods that are labelled as deliverers of a service now.

        ``ending`` are the terminating ones. Returns what is known of those that are gone.
        """
        key = (namespace, service)
        known = self._services.setdefault(key, Service(key))
        present = list(pods)
        there = {pod["metadata"].get("uid") or "" for pod in present}
        targets, parting = targets_of(present), targets_of(ending, ending=True)
        told, departed = News.NONE, []
        for deliverer in list(known.deliverers.values()):
            uid = deliverer.target.uid
            if uid in targets:
                continue
            del known.deliverers[deliverer.target.name]
            if uid in parting:
                self._see_off(deliverer)
            else:
                self._drop(deliverer)
                departed += [] if uid in there else [deliverer.departure()]
            if deliverer.report is not None or not known.gathered:
                told = News.TURNED
        for uid in known.ending.keys() - parting.keys():
            gone = known.ending.pop(uid)
            self._drop(gone)
            departed.append(gone.departure())
        for uid in parting.keys() - known.ending.keys():
            # It was ending before anybody here knew it.
            self._count(known, 1)
            self._see_off(Deliverer(known, parting[uid], now=self._clock.monotonic()))
        for target in targets.values():
            self._take(known, target)
        if told is not News.NONE:
            self._note(known, told, self._clock.monotonic())
        self._forget_unused(known)
        self._woken.set()
        return departed

    def _see_off(self, deliverer: Deliverer) -> None:
        """Poll it until it ends: what it could not deliver then goes with its volume."""
        deliverer.ending = True
        deliverer.service.ending[deliverer.target.uid] = deliverer
        if not deliverer.asking:
            self._put(deliverer, self._clock.monotonic())

    def rendered(self, namespace: str, service: str, revision: str) -> None:
        """Poll deliverers that do not report the new revision at once, and often."""
        key = (namespace, service)
        known = self._services.setdefault(key, Service(key))
        if known.revision == revision:
            return
        known.revision = revision
        now = self._clock.monotonic()
        for deliverer in known.deliverers.values():
            if isinstance(deliverer.report, DelivererReport):
                deliverer.pace.hurry(now)
                if not deliverer.asking:
                    self._put(deliverer, now)
        self._woken.set()

    def service_gone(self, namespace: str, service: str) -> None:
        """The service is gone. Its deliverers are polled as long as they run: they still hold
        indications, and the service may come again."""
        known = self._services.get((namespace, service))
        if known is not None:
            known.revision = None
            self._forget_unused(known)

    def reports(self, namespace: str, service: str) -> tuple[DelivererReport | Unreachable, ...]:
        """The last answer of each deliverer that was asked, by pod."""
        known = self._services.get((namespace, service))
        deliverers = () if known is None else sorted(known.deliverers.items())
        return tuple(one.report for _, one in deliverers if one.report is not None)

    @property
    def unreachable(self) -> int:
        """The deliverers whose last answer could not be used, over all services."""
        return sum(
            isinstance(deliverer.report, Unreachable)
            for service in self._services.values()
            for deliverer in service.deliverers.values()
        )

    def gathered(self, namespace: str, service: str) -> bool:
        """Whether every deliverer of the start has been polled. Until then the live status is
        nearer to the truth than the reports."""
        known = self._services.get((namespace, service))
        return known is None or not known.deliverers or known.gathered

    async def run(self) -> None:
        async with asyncio.TaskGroup() as asking:
            while True:
                deliverer, turn = await self._next()
                asking.create_task(self._served(deliverer, turn))

    def _forget_unused(self, service: Service) -> None:
        if service.unused and service.key not in self._untold:
            del self._services[service.key]

    def _take(self, service: Service, target: Target) -> None:
        before = service.deliverers.get(target.name)
        if before is not None and before.target == target:
            return
        now = self._clock.monotonic()
        deliverer = Deliverer(service, target, now=now)
        if before is not None:
            self._drop(before)
            if before.target.uid == target.uid:
                deliverer.report = before.report
        service.deliverers[target.name] = deliverer
        self._count(service, 1)
        self._put(deliverer, now)

    def _drop(self, deliverer: Deliverer) -> None:
        deliverer.gone = True
        self._count(deliverer.service, -1)
        self._turns.drop(deliverer)

    def _put(self, deliverer: Deliverer, due: float) -> None:
        lost = isinstance(deliverer.report, Unreachable)
        self._turns.put(deliverer, due, group=(deliverer.service.key[0], lost))

    def _count(self, service: Service, more: int) -> None:
        namespace, _ = service.key
        self._pods[namespace] += more
        if not self._pods[namespace]:
            del self._pods[namespace]
        self._share = None

    def _calm(self, service: Service) -> float:
        if self._share is None:
            self._share = fair_share(self._pods.values(), rate=self._rate, least=self._interval)
        namespace, _ = service.key
        return calm(self._pods[namespace], share=self._share, least=self._interval)

    async def _next(self) -> tuple[Deliverer, Hashable]:
        """Wait until a deliverer is due, and notify of changes meanwhile."""
        while True:
            now = self._clock.monotonic()
            self._tell(now)
            due = max(self._turns.next_due(), self._next_slot)
            if due <= now:
                self._next_slot = max(self._next_slot, now) + 1 / self._rate
                deliverer, turn = self._turns.pop(now)
                deliverer.asking = True
                return deliverer, turn
            await self._rest(min(due, *self._untold.values(), math.inf) - now)

    async def _rest(self, seconds: float) -> None:
        self._woken.clear()
        if seconds == math.inf:
            await self._woken.wait()
            return
        with suppress(TimeoutError):
            await within(self._clock, seconds, self._woken.wait())

    async def _served(self, deliverer: Deliverer, turn: Hashable) -> None:
        try:
            await self._ask(deliverer)
        finally:
            self._turns.done(turn)
            self._woken.set()

    async def _ask(self, deliverer: Deliverer) -> None:
        async with self._lanes[isinstance(deliverer.report, Unreachable)]:
            if deliverer.gone:
                return
            began = self._clock.monotonic()
            answer = await self._client.ask(
                deliverer.target.name,
                address=deliverer.target.address,
                port=self._port,
                token=self._token(*deliverer.service.key),
            )
        now = self._clock.monotonic()
        reachable = isinstance(answer, DelivererReport)
        self._metrics.asked(reachable=reachable, seconds=now - began)
        if not deliverer.gone:
            self._take_in(deliverer, self._kept(deliverer, answer), now)

    def _kept(
        self, deliverer: Deliverer, answer: DelivererReport | Unreachable
    ) -> DelivererReport | Unreachable:
        before = deliverer.report
        if isinstance(answer, Unreachable):
            pending, heard = last_seen(before)
            since, held = answer.since, frozenset[str]()
            if isinstance(before, Unreachable):
                since, held = before.since, before.held
            elif before is not None:
                held = frozenset(before.queues)
            return replace(answer, since=since, held=held, pending=pending, heard=heard)
        service = deliverer.service
        namespace, _ = service.key
        queues = (
            service.shared(queue)
            for name, queue in answer.queues.items()
            if self._known("ListenerDestination", namespace, name)
        )
        return replace(
            answer,
            queues={queue.name: queue for queue in queues},
            ended=tuple(
                one
                for one in answer.ended
                if self._known("IndicationSubscription", namespace, one.name)
            ),
        )

    def _take_in(
        self, deliverer: Deliverer, answer: DelivererReport | Unreachable, now: float
    ) -> None:
        deliverer.asking = False
        service = deliverer.service
        told = news(deliverer.report, answer)
        deliverer.report = answer
        if not deliverer.ending:
            self._note(service, told, now)
        self._put(deliverer, now + jittered(self._wait(deliverer, answer, now), self._draw))

    def _wait(
        self, deliverer: Deliverer, answer: DelivererReport | Unreachable, now: float
    ) -> float:
        """Seconds until it is asked again."""
        service, pace = deliverer.service, deliverer.pace
        calm_wait = self._calm(service)
        if isinstance(answer, Unreachable):
            return pace.after_silence(calm=calm_wait)
        behind = service.revision is not None and answer.revision != service.revision
        wait = pace.after_report(behind=behind, now=now, calm=calm_wait)
        # One whose pod is no longer ready may be about to end by itself, as executors do.
        leaving = not deliverer.target.ready and now < pace.hurry_until and last_seen(answer)[0]
        return min(wait, HURRY_MOST) if deliverer.ending or leaving else wait

    def _note(self, service: Service, told: News, now: float) -> None:
        """Schedule a notification that a deliverer has answered, or is gone."""
        if not service.gathered:
            # One call for all of the first round: a thousand pods would make a thousand.
            service.gathered = all(one.report is not None for one in service.deliverers.values())
            told = News.TURNED if service.gathered else News.NONE
        if told is not News.NONE:
            due = max(now, service.told_at + _GAPS[told])
            self._untold[service.key] = min(due, self._untold.get(service.key, math.inf))

    def _tell(self, now: float) -> None:
        for key in [key for key, due in self._untold.items() if due <= now]:
            del self._untold[key]
            service = self._services[key]
            service.told_at = now
            self._on_change(*key)
            self._forget_unused(service)
