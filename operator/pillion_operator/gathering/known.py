"""What the gatherer keeps of each deliverer, and of each service."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from weakref import WeakValueDictionary

from pillion_operator.gathering.pace import HURRY_FOR, Pace
from pillion_operator.gathering.reports import DelivererReport, QueueReport, Unreachable
from pillion_operator.gathering.targets import Target


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
    """One pod."""

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
        """What is known of it at its end."""
        pending, heard = last_seen(self.report)
        return Departure(pod=self.target.name, uid=self.target.uid, pending=pending, heard=heard)


class Service:
    """One service."""

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
