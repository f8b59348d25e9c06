"""Destination queues for the tests of those who only look at them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any

from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination, RetryPolicy
from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.delivery.health import AttemptRecord, ListenerHealth, QueueStatistics
from pillion_sidecar.delivery.redrive import Redriver
from pillion_sidecar.delivery.throughput import Throughput
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.pacing import Pace
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.testing import FakeTime


def attempt_record(**values: Any) -> AttemptRecord:
    """An attempt that succeeded, but for ``values``."""
    return AttemptRecord(
        **{
            "at": 1_700_000_000.5,
            "identifier": "id-1",
            "sequence_number": 0,
            "attempt": 1,
            "result": DeliveryResult.SUCCESS,
            "detail": "",
            "status": 200,
            "seconds": 0.25,
            **values,
        }
    )


class StillStatistics(QueueStatistics):
    """Statistics with attempts that a test names."""

    def __init__(self, recent: Sequence[AttemptRecord], **values: Any) -> None:
        super().__init__()
        self._named = list(recent)
        for name, value in values.items():
            setattr(self, name, value)

    @property
    def recent(self) -> list[AttemptRecord]:
        return self._named


class StillHealth(ListenerHealth):
    """A health that a test names."""

    def __init__(self, **values: Any) -> None:
        super().__init__()
        for name, value in values.items():
            setattr(self, name, value)


class Nothing:
    """A backlog without entries."""

    count = 0

    def first(self) -> None:
        return None


_HEALTH = {"next_attempt_at", "failing_since", "hold"}
_STATISTICS = {
    "high_water",
    "delivered",
    "suppressed",
    "handed_over",
    "last_success_at",
    "last_discard_at",
    "last_attempt_at",
    "last_outcome",
}


@dataclass
class Still:
    """The values of a :class:`StillQueue`."""

    name: str = "siem"
    uid: str = "0c5f"
    protocol: str = "CIM-XML"
    depth: int = 0
    held: int = 0
    capacity: int = 10_000
    in_flight_count: int = 0
    oldest_accepted_at: float | None = None
    relay_to: str | None = None
    created_at: float = 1_700_000_000.0
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    lifetime: float = 0.0
    suspended: bool = False
    draining: bool = False
    pace: Pace | None = None
    sequence_context: str | None = None
    next_sequence_number: int = 0
    in_flight: tuple[QueueEntry, ...] = ()
    waiting: Nothing = field(default_factory=Nothing)
    throughput: Throughput = field(default_factory=Throughput)

    @property
    def front_identifiers(self) -> list[str | None]:
        return [f"{self.name}-first"]

    @property
    def free_places(self) -> int:
        return self.capacity - self.depth

    @property
    def destination(self) -> ListenerDestination:
        return ListenerDestination(
            name=self.name,
            uid=self.uid,
            destination="https://listener.example.com/",
            protocol="CIM-XML",
            queue_full_policy=QueueFullPolicy.REJECT,
        )

    def evicts_oldest(self, *, now: float) -> bool:
        return False


class StillQueue(Still):
    """A destination queue in which nothing moves unless a test moves it. It loses something only
    at the end of a ``lifetime``."""

    def __init__(
        self,
        *,
        recent: Sequence[AttemptRecord] = (),
        slow_since: float | None = None,
        **values: Any,
    ) -> None:
        health = {name: values.pop(name) for name in _HEALTH & values.keys()}
        statistics = {name: values.pop(name) for name in _STATISTICS & values.keys()}
        super().__init__(**values)
        self.health = StillHealth(**health)
        self.statistics = StillStatistics(recent, **statistics)
        self.throughput.behind_since = slow_since
        self.throughput.is_slow = slow_since is not None


class StillDelivery:
    """A destination queue table over some queues."""

    def __init__(self, *queues: StillQueue) -> None:
        self.all = queues
        self.table = {queue.name: queue for queue in queues}
        self.ended: list[Subscription] = []

    def queues(self) -> Iterable[StillQueue]:
        return self.table.values()

    def all_queues(self) -> Iterable[StillQueue]:
        return self.all

    def ended_subscriptions(self) -> Sequence[Subscription]:
        return self.ended

    def queue(self, name: str) -> StillQueue | None:
        return self.table.get(name)

    def retry(self, name: str) -> bool:
        return self.table[name].health.bring_forward()

    def skip(self, name: str) -> bool:
        return self._discard(name, at_most=1) == 1

    def purge(self, name: str) -> int:
        return self._discard(name, at_most=self.table[name].depth)

    def _discard(self, name: str, *, at_most: int) -> int:
        queue = self.table[name]
        count = min(at_most, queue.depth)
        queue.depth -= count
        queue.statistics.discarded[DiscardReason.PURGED] += count
        return count


def redriver_of(history: History, targets: Any, time: FakeTime) -> Redriver:
    """What redrives over still queues."""
    return Redriver(
        history=history,
        targets=targets,
        identities=DuplicateMemory(clock=time, window_seconds=3600, capacity=1000),
        clock=time,
        is_durable=lambda: False,
    )
