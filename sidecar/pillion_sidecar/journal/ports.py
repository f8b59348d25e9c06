"""The interfaces between the journal and the other packages.

All calls are made on the event loop, and none blocks. *Journal time* is in seconds since the epoch
and never goes back, not even over restarts. The times of the other packages are
``Clock.monotonic()``: ``Journal.offset`` added to one gives the journal time.
"""

from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import NamedTuple, Protocol

import msgspec

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication

#: The number of what is in no queue yet.
NO_NUMBER = 2**64 - 1


class Place(NamedTuple):
    """One target of an indication: a destination queue, a subscription, its number there."""

    #: ``Journal.destination``'s and ``Journal.subscription``'s.
    destination: int
    subscription: int
    #: Counts the entries of the destination queue and never begins anew; a SequenceNumber is this
    #: less the ``base`` of the queue's context. In a place of a held indication ``NO_NUMBER``.
    number: int


class QueueState(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What of a destination queue must be known after a restart, beside its entries. The times are
    journal time."""

    destination: int
    #: Protocol and URL: another listener needs another sequence context.
    listener: str
    sends_identifiers: bool
    #: Part of the sequence context; never used twice in one journal.
    epoch: int
    #: The ``Place.number`` that is SequenceNumber 0 of the context.
    base: int
    next_number: int
    failures: int = 0
    next_attempt_at: float | None = None
    failing_since: float | None = None
    paused_since: float | None = None
    #: Spells of suspension: begin, end.
    pauses: tuple[tuple[float, float], ...] = ()
    #: Entries with failed attempts: number, attempts.
    attempts: tuple[tuple[int, int], ...] = ()
    #: Ordered groups that have ended here: run, first lost sequence, end of its numbers or -1. The
    #: first release passes over it.
    gaps: tuple[tuple[int, int, int], ...] = ()
    #: When it began to fail or was held, without a success since.
    troubled_since: float | None = None
    #: Why the destination is held, as cause and message, and since when.
    hold: tuple[str, str, float] | None = None


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """What of a subscription must be known after a restart. It replaces the one before of the same
    ``uid``; with the uid alone it forgets that."""

    uid: str
    #: When its duration began, in seconds since the epoch.
    began_at: float | None = None
    #: Stands for what its resource said: what ended stays so until that changes.
    resource: bytes = b""
    #: How it ended, and what led to that, where its resource stayed as it was.
    end: str | None = None
    cause: str | None = None


class Discard(msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel"):
    """One accepted indication that was discarded for one destination, as the list has it."""

    time: datetime
    destination: str
    subscription: str
    #: A ``DiscardReason``; a later version may know others.
    reason: str
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    sequence_context: str | None = None
    sequence_number: int | None = None
    #: Failed attempts.
    attempts: int = 0
    #: ``Place.destination`` and ``Place.number``; None where it had no number yet.
    queue: int
    number: int | None = None
    #: The journal sequence.
    id: int


class DiscardList(Protocol):
    """Lists what was discarded."""

    def add(self, discard: Discard) -> None:
        """List a discard. Does not block."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DiscardQuery:
    """Which discards are asked for; None: all."""

    destination: str | None = None
    reason: str | None = None
    since: datetime | None = None

    def matches(self, discard: Discard) -> bool:
        """Whether a discard is asked for."""
        return (
            self.destination in (None, discard.destination)
            and self.reason in (None, discard.reason)
            and (self.since is None or discard.time >= self.since)
        )


class Journal(Protocol):
    """Keeps accepted indications until they are settled (S3.1)."""

    @property
    def id(self) -> str:
        """Random; part of every sequence context (D.2)."""

    @property
    def durability(self) -> Durability:
        """What it can promise."""

    @property
    def offset(self) -> float:
        """Journal time less ``Clock.monotonic()``."""

    def attach(self, owner: "JournalOwner") -> None:
        """Name those whom the journal asks and tells, once what was recovered is restored: what
        they say of queues and groups begins the log of this run."""

    # ------------------------------------------------------------------ names

    def destination(self, *, uid: str, name: str) -> int:
        """Return the index of a destination, the same in each run."""

    def subscription(self, *, uid: str, name: str, filter_name: str) -> int:
        """Return the index of a subscription, the same in each run."""

    # ------------------------------------------------------------------ what is accepted

    def refusal(self, size: int) -> str | None:
        """Return why nothing with a body of ``size`` bytes can be taken now; None where it can."""

    def is_over_bytes(self, size: int) -> bool:
        """Whether another body of ``size`` bytes exceeds the journal's byte bound, so that the
        destination that holds most must meet its full-queue policy first."""

    def append(self, indication: Indication, places: Sequence[Place], *, held: int = 0) -> None:
        """Take an accepted indication; set its ``id``, ``position`` and ``size``.

        ``held``: the id under which it was held (S1.5); that record is settled by this one.
        Without places only its identity and group are remembered.
        """

    def hold(self, indication: Indication, places: Sequence[Place]) -> None:
        """Take an indication that waits for its predecessors; its places have no numbers yet."""

    def end_hold(self, indication: Indication, reason: DiscardReason) -> None:
        """A held indication was discarded."""

    def barrier(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was taken before this call is as safe as the journal can
        make it: at once where it is already."""

    # ------------------------------------------------------------------ what becomes of it

    def settle(
        self, place: Place, indication: Indication, reason: DiscardReason | None, *, through: bool
    ) -> int:
        """A place of an indication is delivered (``reason`` None) or discarded; return how many of
        its places are still unsettled.

        ``through``: nothing older waits at that destination.
        """

    def note(self, state: QueueState) -> None:
        """The state of a queue has changed."""

    def note_subscription(self, record: SubscriptionRecord) -> None:
        """What must be known of a subscription has changed."""

    def load(
        self,
        positions: Sequence[int],
        done: Callable[[Sequence[Indication | None]], None],
    ) -> None:
        """Read indications back, None for one that is damaged; ``done`` is called later."""

    def close(self) -> None:
        """Commit what was taken, and release the folder. Blocks until that is done."""


class JournalOwner(Protocol):
    """Those whom a journal asks and tells."""

    def committed(self, through: int) -> None:
        """All indications with an id up to ``through`` are on disk."""

    def unsettled(self, indication_id: int, places: Sequence[Place]) -> Sequence[Place]:
        """Return those of an indication's places that are not settled; for a held one all."""

    def moved(self, indication_id: int, places: Sequence[Place], position: int, size: int) -> None:
        """A pending indication lies somewhere else from now on; the owner notes so in every
        ``Indication`` of this id that it has, since ``settle`` and ``load`` go by it."""

    def queue_states(self) -> Sequence[QueueState]:
        """Return the states of all queues."""

    def subscription_records(self) -> Sequence[SubscriptionRecord]:
        """Return what must be known of all subscriptions."""

    def groups(self) -> bytes:
        """Return the state of all message groups, to be given back after a restart."""

    def identity(self, digest: bytes) -> tuple[DiscardReason | None, str] | None:
        """Return how a remembered identity ended: None or the reason, and the destination of that
        reason, else ""; None for one that is no longer remembered."""

    def failed(self, error: OSError) -> None:
        """The disk failed for good; the deliverer must stop."""


@dataclass(slots=True)
class RecoveredQueue:
    """The pending entries of one destination, in the order of acceptance, as columns."""

    uid: str
    name: str
    index: int
    state: QueueState | None = None
    #: Greater than every number that was ever given, to what is settled by now too.
    next_number: int = 0
    ids: "array[int]" = field(default_factory=lambda: array("Q"))
    positions: "array[int]" = field(default_factory=lambda: array("Q"))
    numbers: "array[int]" = field(default_factory=lambda: array("Q"))
    subscriptions: "array[int]" = field(default_factory=lambda: array("I"))


@dataclass(frozen=True, slots=True)
class RecoveredSubscription:
    """A subscription that the journal's entries name."""

    uid: str
    name: str
    filter_name: str


@dataclass(frozen=True, slots=True)
class GroupRecord:
    """One accepted member of a message group, in the order of acceptance."""

    id: int
    source: str | None
    group: str
    member: GroupMember
    #: ``Clock.monotonic()`` at acceptance: in the past, and negative where it was long ago.
    accepted_at: float
    #: The member's own ``expires``, in seconds since the epoch.
    expires: float | None
    #: ``Clock.monotonic()`` when a sidecar relayed it, which had accepted it before; None where its
    #: publisher gave it to this deliverer.
    relayed_at: float | None = None
    #: Whether it had to wait for its predecessors.
    held: bool = False
    #: ``Indication.group_run``.
    run: int = 0


@dataclass(slots=True)
class Recovered:
    """What a journal found of the runs before."""

    #: By index, as :class:`Place` has them.
    queues: dict[int, RecoveredQueue] = field(default_factory=dict)
    subscriptions: dict[int, RecoveredSubscription] = field(default_factory=dict)
    #: By uid: how subscriptions were, of those of which something must be known.
    subscription_records: dict[str, SubscriptionRecord] = field(default_factory=dict)
    #: Held indications with their places, in the order of acceptance.
    held: list[tuple[Indication, tuple[Place, ...]]] = field(default_factory=list)
    #: What ``JournalOwner.groups`` last gave, and the members accepted since.
    groups: bytes | None = None
    members: list[GroupRecord] = field(default_factory=list)
    #: Epochs below this one have been used.
    next_epoch: int = 0
    #: Whether records were lost, so that every context must end (D.2).
    damaged: bool = False
    #: ``state-only``: what was pending, by destination name; it is lost.
    lost: dict[str, int] = field(default_factory=dict)


class IdentitySink(Protocol):
    """Takes the identities that a journal remembers (``DuplicateMemory``)."""

    def restore(
        self,
        digest: bytes,
        *,
        accepted_at: float,
        expires: float | None,
        pending: bool,
        reason: DiscardReason | None,
        destination: str,
        delivered: bool = False,
    ) -> None:
        """Remember an identity of a run before. ``accepted_at`` is ``Clock.monotonic()``,
        ``expires`` seconds since the epoch. ``pending``, ``reason``, ``delivered``: whether any
        target is pending, was discarded, has it, or may have it."""
