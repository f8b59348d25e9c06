"""Destination queues for the tests of those who only look at them."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from pillion_sidecar.config.resources import RetryPolicy
from pillion_sidecar.delivery.entries import Subscription
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Hold
from pillion_sidecar.indication import DiscardReason


@dataclass(frozen=True)
class StillAttempt:
    """An attempt record."""

    at: float = 1_700_000_000.5
    identifier: str | None = "id-1"
    sequence_number: int | None = 0
    attempt: int = 1
    result: DeliveryResult = DeliveryResult.SUCCESS
    detail: str = ""
    status: int | None = 200
    seconds: float = 0.25


@dataclass
class StillQueue:
    """A destination queue in which nothing moves unless a test moves it."""

    name: str = "siem"
    uid: str = "0c5f"
    protocol: str = "CIM-XML"
    depth: int = 0
    held: int = 0
    capacity: int = 10_000
    high_water: int = 0
    in_flight: int = 0
    oldest_accepted_at: float | None = None
    delivered: int = 0
    suppressed: int = 0
    relay_to: str | None = None
    handed_over: int = 0
    attempts: dict[DeliveryResult, int] = field(
        default_factory=lambda: dict.fromkeys(DeliveryResult, 0)
    )
    discarded: dict[DiscardReason, int] = field(
        default_factory=lambda: dict.fromkeys(DiscardReason, 0)
    )
    next_attempt_at: float | None = None
    last_success_at: float | None = None
    last_discard_at: float | None = None
    last_attempt_at: float | None = None
    last_outcome: DeliveryOutcome | None = None
    created_at: float = 1_700_000_000.0
    failing_since: float | None = None
    loss_due: float | None = None
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    lifetime: float = 900.0
    suspended: bool = False
    hold: Hold | None = None
    draining: bool = False
    sequence_context: str | None = None
    next_sequence_number: int = 0
    recent: tuple[StillAttempt, ...] = ()

    @property
    def front_identifiers(self) -> list[str | None]:
        return [f"{self.name}-first"]

    def first_loss_due(self, now: float) -> float | None:
        return self.loss_due


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

    def skip(self, name: str) -> bool:
        return self._discard(name, at_most=1) == 1

    def purge(self, name: str) -> int:
        return self._discard(name, at_most=self.table[name].depth)

    def _discard(self, name: str, *, at_most: int) -> int:
        queue = self.table[name]
        count = min(at_most, queue.depth)
        queue.depth -= count
        queue.discarded[DiscardReason.PURGED] += count
        return count
