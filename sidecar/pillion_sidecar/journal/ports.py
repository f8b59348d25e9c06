"""The interfaces between the journal and the other packages. All calls are on the event loop and do
not block, unless stated.

*Journal time* is in seconds since the epoch and never goes back, even over restarts. Elsewhere
times are ``Clock.monotonic()``; adding ``Journal.offset`` gives journal time.
"""

import errno
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import msgspec

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication

#: The number of a place that is in no queue yet.
NO_NUMBER = 2**64 - 1
_FULL = frozenset((errno.ENOSPC, errno.EDQUOT))
Result = TypeVar("Result")


def is_full(error: OSError) -> bool:
    return error.errno in _FULL


class Worker(Protocol):
    """Runs jobs in order, away from the event loop."""

    def submit(
        self,
        work: Callable[[], Result],
        done: Callable[[Result], None],
        failed: Callable[[OSError], None],
    ) -> None:
        """Do ``work`` after earlier jobs; then call ``done`` or ``failed`` on the event loop, in
        the order of submission and never from within this call."""

    def drain(self) -> None:
        """Wait until nothing is left to do, including jobs that callbacks submit. Blocks."""

    def close(self) -> None: ...


class Place(NamedTuple):
    #: From ``Journal.destination`` and ``Journal.subscription``.
    destination: int
    subscription: int
    #: Counts the entries of the queue and never restarts; SequenceNumber is this less the context's
    #: ``base``. ``NO_NUMBER`` while held.
    number: int


#: The same without its names, which take as long to make as all the rest.
PlainPlace: TypeAlias = tuple[int, int, int]


class QueueState(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The state of a destination queue that survives a restart, beside its entries. Journal
    time."""

    destination: int
    #: Protocol and URL: another listener needs another sequence context.
    listener: str
    sends_identifiers: bool
    #: Part of the sequence context; never reused in one journal.
    epoch: int
    #: The ``Place.number`` that is SequenceNumber 0 of the context.
    base: int
    next_number: int
    failures: int = 0
    next_attempt_at: float | None = None
    failing_since: float | None = None
    paused_since: float | None = None
    #: Begin and end of each suspension.
    pauses: tuple[tuple[float, float], ...] = ()
    #: Entries with failed attempts: number, attempts.
    attempts: tuple[tuple[int, int], ...] = ()
    #: Ordered groups that have ended here: run, first lost sequence, end of its numbers or -1. The
    #: first release ignores it.
    gaps: tuple[tuple[int, int, int], ...] = ()
    #: When it began to fail or was held, without a success since.
    troubled_since: float | None = None
    #: Cause, message and begin of a hold or a pause. A version without this cause ignores it.
    hold: tuple[str, str, float] | None = None
    #: The destination that gets what it holds when it is removed; None: none. Earlier versions
    #: omit and ignore it.
    dead_letter: str | None = None
    #: While it fails: result, cause, detail and HTTP status of the last attempt. Earlier versions
    #: omit and ignore it.
    last_failure: tuple[str, str, str, int | None] | None = None


class SubscriptionRecord(msgspec.Struct, frozen=True, array_like=True, kw_only=True):
    """The state of a subscription that survives a restart. It replaces the previous record of the
    ``uid``; the uid alone erases that."""

    uid: str
    #: Begin of its duration, in seconds since the epoch.
    began_at: float | None = None
    #: Digest of its resource: an end holds until that changes.
    resource: bytes = b""
    #: How it ended, and the cause, if its resource stayed unchanged.
    end: str | None = None
    cause: str | None = None


class OutcomeStore(Protocol):
    """Keeps what became of the indications that the journal settles."""

    def write(self) -> Callable[[], None] | None:
        """Submit the outcomes so far to the worker that commits, before their settlement. Return
        what to call once that is on disk; None if there are none."""

    def shed(self) -> None:
        """The disk is full: give up some of the oldest outcomes."""


class LogFollower(Protocol):
    """Learns of all bytes of the log, in order, while the disk writes them. They stay the same even
    if the disk refuses them for a while."""

    def begin(self, number: int, created: float, data: bytes) -> None:
        """A segment begins with ``data``."""

    def append(self, data: bytes) -> None:
        """Records follow in the last segment."""

    def on_disk(self, position: int, last_id: int, /) -> None:
        """All before ``position`` is on disk, with the ids up to ``last_id``."""

    def forces(self, indication_id: int, reason: str, /) -> bool:
        """Count a discard; return whether too few stores have the indication."""

    def keeps(self, number: int, /, *, is_crowded: bool) -> bool:
        """Whether the oldest segment waits for the stores. ``is_crowded``: the folder has no space
        for it."""

    def refusal(self) -> str | None:
        """Return why nothing new is to be accepted now."""

    def removed(self, number: int, through: int) -> None:
        """The oldest segment is about to be removed; all that is pending in it was copied forward,
        to before ``through``, and is on disk there."""

    def remembered(self, numbers: Sequence[int]) -> None:
        """The segment is removed; these removed ones have a file of identities, by number."""


class DeliveryLease(Protocol):
    """The right to deliver, while another may have claimed the journal."""

    def holds(self) -> bool:
        """Whether a delivery may begin now."""

    def follow(self, changed: Callable[[], None]) -> None:
        """Call ``changed`` whenever it holds again."""


class Journal(Protocol):
    """Keeps accepted indications until they are settled (S3.1)."""

    @property
    def lease(self) -> DeliveryLease | None:
        """None: deliveries need none."""

    @property
    def id(self) -> str:
        """Random; part of every sequence context (D.2)."""

    @property
    def durability(self) -> Durability: ...

    @property
    def offset(self) -> float:
        """Journal time less ``Clock.monotonic()``."""

    def attach(self, owner: "JournalOwner") -> None:
        """Set the owner, once what was recovered is restored: its queue states and groups begin the
        log of this run."""

    def destination(self, *, uid: str, name: str) -> int:
        """Return the index of a destination, the same in each run."""

    def subscription(self, *, uid: str, name: str, filter_name: str) -> int:
        """Return the index of a subscription, the same in each run."""

    # ------------------------------------------------------------------ what is accepted

    def refusal(self, size: int) -> str | None: ...

    def is_over_bytes(self, size: int) -> bool:
        """Whether a body of ``size`` bytes exceeds the byte bound, so that the fullest destination
        must apply its full-queue policy first."""

    @property
    def is_half_full(self) -> bool:
        """Whether replayed indications must leave the other half to new ones."""

    def append(self, indication: Indication, places: Sequence[Place], *, held: int = 0) -> None:
        """Take an accepted indication; set its ``id``, ``position`` and ``size``.

        ``held``: its id while it was held (S1.5); this record settles that one. Without places only
        its identity and group are remembered.
        """

    def append_all(
        self, indications: Sequence[Indication], places: Sequence[Sequence[PlainPlace]]
    ) -> bool:
        """Take indications with their places if there is room for all; return whether they were
        taken."""

    def hold(self, indication: Indication, places: Sequence[Place]) -> None:
        """Take an indication that waits for its predecessors; its places have no numbers yet."""

    def end_hold(self, indication: Indication, reason: DiscardReason) -> None: ...

    def barrier(self, done: Callable[[], None]) -> None:
        """Call ``done`` once all that was taken before is as safe as the journal can make it;
        immediately if it is."""

    # ------------------------------------------------------------------ what becomes of it

    def settle(
        self, place: Place, indication: Indication, reason: DiscardReason | None, *, through: bool
    ) -> int:
        """Settle a place as delivered (``reason`` None) or discarded; return how many places of the
        indication are unsettled.

        ``through``: nothing older waits at that destination.
        """

    def forces(self, indication: Indication, reason: DiscardReason) -> bool:
        """Count a discard; return whether stores that are to have the indication lack it."""

    def note(self, state: QueueState) -> None: ...

    def note_subscription(self, record: SubscriptionRecord) -> None: ...

    def load(
        self,
        positions: Sequence[int],
        done: Callable[[Sequence[Indication | None]], None],
    ) -> None:
        """Read indications back and pass them to ``done`` later, None for a damaged one."""

    def close(self) -> None:
        """Commit what was taken, and release the folder. Blocks."""


class JournalOwner(Protocol):
    def committed(self, through: int) -> None:
        """All indications with an id up to ``through`` are on disk."""

    def unsettled(self, indication_id: int, places: Sequence[Place]) -> Sequence[Place]:
        """Return the unsettled places of an indication; for a held one all."""

    def moved(self, indication_id: int, places: Sequence[Place], position: int, size: int) -> None:
        """A pending indication was relocated.

        The owner updates every ``Indication`` of this id, since ``settle`` and ``load`` use the
        position.
        """

    def queue_states(self) -> Sequence[QueueState]: ...

    def subscription_records(self) -> Sequence[SubscriptionRecord]: ...

    def groups(self) -> bytes:
        """Return the state of all message groups, to be returned after a restart."""

    def lowest_pending(self, destination: int) -> int:
        """Return a number below which every place of a destination is settled."""

    def identities(
        self, digests: Sequence[bytes]
    ) -> Sequence[tuple[DiscardReason | None, str] | None]:
        """Return how each remembered identity ended (None or the reason), and the reason's
        destination or ""; None if it is forgotten."""

    def failed(self, error: OSError) -> None:
        """The disk failed for good; the deliverer must stop."""


@dataclass(slots=True)
class RecoveredQueue:
    """The pending entries of one destination, in the order of acceptance, as columns."""

    uid: str
    name: str
    index: int
    state: QueueState | None = None
    #: Greater than every number ever given, settled ones too.
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
    #: ``Clock.monotonic()`` at acceptance; may be negative.
    accepted_at: float
    #: The member's own ``expires``, in seconds since the epoch.
    expires: float | None
    #: ``Clock.monotonic()`` of the relay by a sidecar that had accepted it before; None if a
    #: publisher sent it here.
    relayed_at: float | None = None
    #: Whether it had to wait for its predecessors.
    held: bool = False
    run: int = 0


@dataclass(slots=True)
class Recovered:
    """What a journal found of previous runs."""

    #: By index, as in :class:`Place`.
    queues: dict[int, RecoveredQueue] = field(default_factory=dict)
    subscriptions: dict[int, RecoveredSubscription] = field(default_factory=dict)
    #: By uid.
    subscription_records: dict[str, SubscriptionRecord] = field(default_factory=dict)
    #: Held indications with their places, in the order of acceptance.
    held: list[tuple[Indication, tuple[Place, ...]]] = field(default_factory=list)
    #: The last ``JournalOwner.groups``, and the members accepted since.
    groups: bytes | None = None
    members: list[GroupRecord] = field(default_factory=list)
    #: Epochs below this one have been used.
    next_epoch: int = 0
    #: Whether records were lost, so that every context must end (D.2).
    damaged: bool = False
    #: ``state-only``: lost pending entries, by destination name.
    lost: dict[str, int] = field(default_factory=dict)


#: The digest of an identity, journal time of the acceptance, its ``expires`` (0.0 for none), and
#: whether it is pending; if not, it is delivered.
PlainIdentity: TypeAlias = tuple[bytes, float, float, bool]


class IdentitySink(Protocol):
    """Takes the identities that a journal remembers (``DuplicateMemory``)."""

    def restore_all(self, identities: Sequence[PlainIdentity], *, offset: float) -> None:
        """Remember identities of a previous run; ``offset`` is ``Journal.offset``."""

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
        repeat: bool = False,
    ) -> None:
        """Remember an identity of a previous run. ``accepted_at`` is ``Clock.monotonic()``,
        ``expires`` seconds since the epoch. ``repeat``: of what was offered again to a target that
        had missed it.

        ``pending``, ``reason``, ``delivered``: whether any target is pending, was discarded, has
        it, or may have it.
        """


class NoIdentities:
    """An ``IdentitySink`` for a journal that is only read: nobody publishes to it."""

    def restore_all(self, identities: Sequence[PlainIdentity], *, offset: float) -> None: ...

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
        repeat: bool = False,
    ) -> None: ...
