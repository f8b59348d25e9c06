"""What telemetry reads from the rooms it reports on.

Telemetry only looks: it keeps no second copy of a number that another room counts.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Protocol

from pillion_sidecar.config.resources import RetryPolicy
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import Discard, DiscardQuery


class AttemptRecord(Protocol):
    """One attempt, as a destination queue remembers it."""

    @property
    def at(self) -> float:
        """When it ended, seconds since the epoch."""

    @property
    def identifier(self) -> str | None:
        """IndicationIdentifier."""

    @property
    def sequence_number(self) -> int | None:
        """SequenceNumber (D.2)."""

    @property
    def attempt(self) -> int:
        """1 for the original attempt."""

    @property
    def result(self) -> DeliveryResult:
        """How it ended."""

    @property
    def detail(self) -> str:
        """One line for people."""

    @property
    def status(self) -> int | None:
        """The status of the HTTP answer."""

    @property
    def seconds(self) -> float:
        """How long it took."""


class Hold(Protocol):
    """Why a destination is held."""

    @property
    def cause(self) -> HoldCause: ...
    @property
    def message(self) -> str:
        """One line for people."""

    @property
    def since(self) -> float:
        """``Clock.monotonic()``."""


class DestinationQueue(Protocol):
    """What an administrator may know of one destination queue (S0.12)."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str:
        """That of its ListenerDestination."""

    @property
    def protocol(self) -> str: ...
    @property
    def depth(self) -> int:
        """Pending indications, those in flight among them."""

    @property
    def held(self) -> int:
        """Places of members of incomplete groups, which are not pending in it yet (S1.5)."""

    @property
    def capacity(self) -> int: ...
    @property
    def high_water(self) -> int:
        """The greatest depth since the queue was made."""

    @property
    def in_flight(self) -> int: ...
    @property
    def oldest_accepted_at(self) -> float | None:
        """``Clock.monotonic()`` at the acceptance of the oldest pending indication."""

    @property
    def relay_to(self) -> str | None:
        """The service whose gateway gets what is for it; None: its listener does."""

    @property
    def delivered(self) -> int: ...
    @property
    def suppressed(self) -> int:
        """Indications that a repeat notification policy kept from it."""

    @property
    def handed_over(self) -> int:
        """What a gateway took when the deliverer ended."""

    @property
    def attempts(self) -> Mapping[DeliveryResult, int]:
        """Every result, in the order of the enumeration."""

    @property
    def discarded(self) -> Mapping[DiscardReason, int]:
        """Every reason, in the order of the enumeration."""

    @property
    def last_discard_at(self) -> float | None:
        """``Clock.monotonic()`` of the latest discard; None: none since the start."""

    @property
    def next_attempt_at(self) -> float | None:
        """``Clock.monotonic()`` of the attempt that is scheduled; None without one."""

    @property
    def last_success_at(self) -> float | None:
        """``Clock.monotonic()``."""

    @property
    def last_attempt_at(self) -> float | None:
        """``Clock.monotonic()``."""

    @property
    def last_outcome(self) -> DeliveryOutcome | None: ...
    @property
    def failing_since(self) -> float | None:
        """``Clock.monotonic()`` of the first failure since the last success."""

    def first_loss_due(self, now: float) -> float | None:
        """``Clock.monotonic()`` of the first discard if nothing more is delivered; None: none is
        due."""

    @property
    def retry(self) -> RetryPolicy:
        """The retry in force."""

    @property
    def lifetime(self) -> float:
        """Seconds that an indication may wait; 0: as long as it takes."""

    @property
    def created_at(self) -> float:
        """Seconds since the epoch."""

    @property
    def suspended(self) -> bool: ...
    @property
    def hold(self) -> Hold | None:
        """What is wrong with the destination, where it is held for that."""

    @property
    def draining(self) -> bool:
        """Whether its destination was removed, and it delivers what it still holds."""

    @property
    def sequence_context(self) -> str | None: ...
    @property
    def next_sequence_number(self) -> int: ...
    @property
    def front_identifiers(self) -> Sequence[str | None]:
        """The identifiers of what a skip would give up now."""

    @property
    def recent(self) -> Iterable[AttemptRecord]:
        """The last attempts, oldest first."""


class SubscribedResource(Protocol):
    """The resource of a subscription."""

    @property
    def name(self) -> str: ...
    @property
    def uid(self) -> str: ...


class EndedSubscription(Protocol):
    """A subscription that is no longer active."""

    @property
    def resource(self) -> SubscribedResource: ...
    @property
    def end(self) -> str | None:
        """Disabled, Removed or Expired, or what disabled it."""

    @property
    def cause(self) -> str | None:
        """What ended it: FatalError, RemovalAction or Expired."""


class DeliveryService(Protocol):
    """The destination queue table, as an administrator meets it."""

    def all_queues(self) -> Iterable[DestinationQueue]:
        """All of them; one that drains may have the name of another."""

    def ended_subscriptions(self) -> Sequence[EndedSubscription]:
        """Those that ended while their own resources stayed as they were."""

    def queue(self, name: str) -> DestinationQueue | None: ...

    def skip(self, name: str) -> bool:
        """Discard the indication at the front; whether there was one."""

    def purge(self, name: str) -> int | None:
        """Discard everything that waits; how much that was, None without such a queue."""


class DiscardFinder(Protocol):
    """The list of discards, as an administrator asks it."""

    @property
    def unlisted(self) -> int:
        """Discards that are not in the list any more, or never were: since the folder has one, or,
        without a folder, since the start."""

    def find(self, query: DiscardQuery, *, limit: int) -> Callable[[], Sequence[Discard]]:
        """Return what finds the latest discards of a query, oldest first. That blocks, and may be
        called in any thread; raises OSError."""


class DuplicateMemory(Protocol):
    """The memory of identities (S1.8), as far as it is counted."""

    @property
    def entries(self) -> int: ...
    @property
    def evictions(self) -> int:
        """Identities forgotten before their time, because the memory was full."""


class MessageGroups(Protocol):
    """The message groups (S1), as far as they are counted."""

    @property
    def active(self) -> int:
        """Those that go on."""

    @property
    def remembered(self) -> int:
        """Those that have ended and are asked for duplicates."""

    @property
    def held(self) -> int:
        """Members that wait for their predecessors."""

    @property
    def held_bytes(self) -> int:
        """The bytes of their bodies."""

    @property
    def terminations(self) -> Mapping[str, int]:
        """How many ended, by how; every way."""

    @property
    def hold_refusals(self) -> Mapping[str, int]:
        """How many members could not be held, by what had no room; all of these."""


class JournalFigures(Protocol):
    """What there is to know of a journal. Bytes, unless said otherwise."""

    @property
    def total_bytes(self) -> int: ...
    @property
    def live_bytes(self) -> int:
        """Of records with something pending."""

    @property
    def live_bound(self) -> int:
        """What those may take at most."""

    @property
    def identity_bytes(self) -> int: ...
    @property
    def segments(self) -> int:
        """How many there are."""

    @property
    def appended_bytes(self) -> int:
        """Written since the start."""

    @property
    def damaged(self) -> int:
        """Records that could not be read back since the start."""

    @property
    def torn(self) -> int:
        """Last writes that the start cut off."""

    @property
    def is_full(self) -> bool: ...
    @property
    def pending_barriers(self) -> int:
        """How many wait for a commit."""


class Journal(Protocol):
    """The journal, where there is one on disk."""

    @property
    def durability(self) -> str: ...
    @property
    def statistics(self) -> JournalFigures: ...
