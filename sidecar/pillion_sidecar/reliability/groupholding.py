"""The members of ordered groups that wait for their predecessors (S1.5), and their way on."""

from collections import Counter, deque
from collections.abc import Iterable
from enum import StrEnum

from pillion_sidecar.clock import Timers
from pillion_sidecar.indication import DiscardReason, Indication, Queues
from pillion_sidecar.reliability.groupnames import GroupLimits, Name
from pillion_sidecar.reliability.states import Guard, State, Transition, step

#: Discards, each with its log line, before the event loop gets its turn.
DISCARDS_PER_TURN = 128
#: Of all that may be held, the part of one group, and of one publisher.
HELD_OF_ONE_GROUP = 4
HELD_OF_ONE_PUBLISHER = 2


class HoldShare(StrEnum):
    """What had no room for a member that waits for its predecessors."""

    #: All that may be held.
    ALL = "all"
    #: The share of one group, and of one publisher.
    GROUP = "group"
    PUBLISHER = "publisher"
    #: The share of a destination's queue.
    DESTINATION = "destination"


class HeldMembers:
    """Holds members, and sends them on as the table of states has it."""

    def __init__(self, *, queues: Queues, timers: Timers, limits: GroupLimits) -> None:
        self._queues = queues
        self._timers = timers
        # Members of groups that have ended, which are still to be discarded, with their publisher.
        self._ended: deque[tuple[Indication, str | None]] = deque()
        self._limits = limits
        self.count = 0
        self.bytes = 0
        # By publisher.
        self._counts: Counter[str] = Counter()
        #: Members that could not be held, by what had no room.
        self.refusals: Counter[str] = Counter(dict.fromkeys(HoldShare, 0))
        self._bytes: Counter[str] = Counter()

    def reason_to_wait(self, name: Name, size: int) -> str | None:
        """Return why a body of ``size`` bytes cannot be held for a group now; None where it can.

        One group, and one publisher, always hold one member, however large.
        """
        found = self._excess(name, size)
        if found is None:
            return None
        share, reason = found
        self.refusals[share] += 1
        return reason

    def _excess(self, name: Name, size: int) -> tuple[HoldShare, str] | None:
        if self.count >= self._limits.held:
            reason = f"{self.count} members of groups wait for their predecessors already"
            return HoldShare.ALL, reason
        if self.bytes + size > self._limits.held_bytes:
            return HoldShare.ALL, (
                f"the members of groups that wait for their predecessors have {self.bytes} bytes"
                " already"
            )
        if self._is_beyond(HELD_OF_ONE_GROUP, len(name.held), name.held_bytes, size):
            return HoldShare.GROUP, (
                f"{len(name.held)} members of the group wait for their predecessors already, and"
                f" have {name.held_bytes} bytes: a quarter of what all groups may hold"
            )
        owner = name.owner
        if owner is None:
            return None
        count, held_bytes = self._counts[owner], self._bytes[owner]
        if self._is_beyond(HELD_OF_ONE_PUBLISHER, count, held_bytes, size):
            return HoldShare.PUBLISHER, (
                f"{count} members of this publisher's groups wait for their predecessors already,"
                f" and have {held_bytes} bytes: half of what all groups may hold"
            )
        return None

    def _is_beyond(self, share: int, count: int, held_bytes: int, size: int) -> bool:
        limits = self._limits
        return bool(count) and (
            count >= limits.held // share or held_bytes + size > limits.held_bytes // share
        )

    def hold(self, name: Name, sequence: int, indication: Indication) -> None:
        """Keep a member that the queues hold."""
        name.held[sequence] = indication
        self._count(indication, name.owner, 1)
        name.held_bytes += len(indication.body)

    def _count(self, indication: Indication, owner: str | None, by: int) -> None:
        size = by * len(indication.body)
        self.count += by
        self.bytes += size
        if owner is not None:
            self._counts[owner] += by
            self._bytes[owner] += size
            if not self._counts[owner]:
                del self._counts[owner], self._bytes[owner]

    def complete(self, name: Name, sequence: int) -> None:
        """Nothing is missing before a member any more."""
        indication = name.held.pop(sequence, None)
        if indication is not None:
            name.held_bytes -= len(indication.body)
            self._count(indication, name.owner, -1)
            self.move_on(indication, Guard.COMPLETED)

    def terminate(self, name: Name) -> int:
        """The live group of a name ends; return how many members that discards, in turns."""
        ended = [(name.held[sequence], name.owner) for sequence in sorted(name.held)]
        name.held.clear()
        name.held_bytes = 0
        self._discard_all(ended)
        return len(ended)

    def discard_overdue(self, indications: Iterable[Indication]) -> None:
        """Discard members of groups that ended in the run before, in turns."""
        overdue = [(indication, None) for indication in indications]
        for indication, _ in overdue:
            self._count(indication, None, 1)
        self._discard_all(overdue)

    def _discard_all(self, ended: Iterable[tuple[Indication, str | None]]) -> None:
        is_under_way = bool(self._ended)
        self._ended.extend(ended)
        if not is_under_way:
            self._discard_some()

    def _discard_some(self) -> None:
        for _ in range(min(DISCARDS_PER_TURN, len(self._ended))):
            indication, owner = self._ended.popleft()
            self._count(indication, owner, -1)
            self.move_on(indication, Guard.TERMINATED)
        if self._ended:
            self._timers.call_later(0.0, self._discard_some)

    def move_on(self, indication: Indication, found: Guard) -> None:
        """Let a member leave ``out-of-order``, completed or terminated."""
        state = step(State.OUT_OF_ORDER, found).to
        then = Guard.IN_SEQUENCE if found is Guard.COMPLETED else Guard.HOPELESS
        if step(state, then).transition is Transition.DELIVER:
            self._queues.release(indication)
        else:
            self.discard(indication)

    def discard(self, indication: Indication) -> None:
        """Discard a member that the queues hold."""
        self._queues.discard_held(indication, DiscardReason.OUT_OF_ORDER)
