"""What intake and the message groups ask of the rooms behind them. The deliverer's own are
``Router`` and ``DeliveryService``; tests stand in others."""

from collections.abc import Callable, Hashable, Sequence, Set
from dataclasses import dataclass
from typing import Protocol

from pillion_cim.model import CIMInstance
from pillion_cim.schema import Schema
from pillion_sidecar.delivery.reasons import DiscardReason
from pillion_sidecar.indication import Indication


@dataclass(frozen=True, slots=True)
class Target:
    """One (subscription, destination) that an indication goes to."""

    subscription: str
    filter_name: str
    destination: str
    #: What makes two indications repeats of each other, where the subscription has a
    #: RepeatNotificationPolicy.
    event: Hashable = None
    #: Whether a gateway gets it for that destination. It holds and orders the members of groups,
    #: those that others publish too, so they are relayed past gaps (S1.5).
    relayed: bool = False


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an indication cannot be accepted now."""

    #: Seconds after which it is worth trying again.
    retry_after: float
    reason: str
    #: The destination whose queue is full; None where it is not for one destination alone.
    destination: str | None = None
    #: Whether it is for one message group alone.
    is_of_group: bool = False


class Routes(Protocol):
    """Works out who is subscribed to an indication."""

    def route(
        self, class_name: str, instance: "InstanceSource", source_namespace: str | None
    ) -> Sequence[Target]:
        """Return the targets of an indication; none where nobody has subscribed to it.

        ``instance`` is called at most once, and only where a filter has a condition to evaluate.
        """

    @property
    def schema(self) -> Schema:
        """The classes by which filters select: the packaged ones, and those that are declared."""

    @property
    def takes_relayed(self) -> bool:
        """Whether sidecars may relay to this deliverer: whether it is a gateway."""

    def relayed(self, subscription: str, instance: "InstanceSource") -> Target | None:
        """Return the target of what a sidecar relays for a subscription, given by its uid; None
        where no enabled one is known.

        ``instance`` is called only where repeats are suppressed or delayed.
        """


class InstanceSource(Protocol):
    """Gives the decoded instance when it is asked for."""

    def __call__(self) -> CIMInstance: ...


class Queues(Protocol):
    """Takes indications over for delivery."""

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        """Queue an indication for all its targets or, with a Refusal, for none.

        Sets ``indication.id`` and ``unsettled``; each target's settlement is told to
        ``indication.trackers`` later, never from within this call unless a full queue discards an
        older indication, or the subscription that it was relayed for has ended. Without targets
        only its identity and its group are kept. What ``completes`` a group, members of which are
        held, is refused by no full queue.
        """

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        """Keep an indication for all its targets or, with a Refusal, for none, and deliver it only
        when it is released (S1.5): its places in the queues are reserved. To the targets that are
        relayed it goes at once.

        Sets ``indication.id`` and ``unsettled``.
        """

    def release(self, indication: Indication) -> None:
        """Queue a held indication; a target whose subscription has ended is discarded."""

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        """Discard a held indication for all its targets."""

    def lose(self, indication: Indication, destination: str) -> None:
        """A destination has lost what a member of an ordered group repeats: the group ends
        there (S1.5)."""

    def end_group(self, run: int) -> None:
        """No further member of a message group will be offered or released (``group_run``)."""

    def end_other_groups(self, runs: Set[int]) -> None:
        """Nor will one of any group but these: after a restart."""

    def have_ended(self, targets: Sequence[Target]) -> bool:
        """Whether the subscriptions of all targets are disabled or have ended."""

    def barrier(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was taken before this call is as safe as the journal can
        make it: at once where it is already."""
