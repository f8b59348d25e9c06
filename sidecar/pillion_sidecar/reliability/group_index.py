"""Message groups by source and name: counts, held members, and timers."""

import heapq
import logging
import math
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from enum import StrEnum

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.indication import DiscardReason, GroupMember, Indication, Queues
from pillion_sidecar.reliability.group_rules import (
    Due,
    GroupState,
    Moment,
    Termination,
    due,
    removal,
)
from pillion_sidecar.reliability.group_snapshots import INTERVAL_BYTES, NAME_BYTES, STATE_BYTES
from pillion_sidecar.reliability.states import Guard, State, Transition, step

#: Remembered past groups of one name; beyond, the oldest two are merged.
MAXIMUM_PAST = 8
#: Seconds between two searches for abandoned groups.
_SEARCH_SECONDS = 10.0
Key = tuple[str | None, str]
#: Discards, each with its log line, before the event loop runs.
DISCARDS_PER_TURN = 128
#: The share of one group, and of one publisher, in all that may be held.
HELD_OF_ONE_GROUP = 4
HELD_OF_ONE_PUBLISHER = 2
logger = logging.getLogger("pillion.reliability")
#: Gaps in a log record.
_GAPS_TOLD = 8
#: Seconds of drift between the clocks after which all timers are set anew.
_CLOCK_STEP = 1.0
#: Minimum seconds of a timer that is set again.
_LEAST_WAIT = 0.001


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """Limits; beyond them a member is temporarily refused."""

    #: Groups with state, terminated ones included.
    groups: int = 10_000
    #: Held indications, and the bytes of their bodies.
    held: int = 10_000
    held_bytes: int = 32 << 20
    #: Bytes of all groups' state: each journal snapshot holds it in one record.
    state_bytes: int = 3 << 19


@dataclass(slots=True, eq=False)
class Name:
    """The groups of one name, with what is not part of their state."""

    key: Key
    live: GroupState | None = None
    past: list[GroupState] = field(default_factory=list)
    held: dict[int, Indication] = field(default_factory=dict)
    #: The publisher for shares of held members: a principal's namespace, else the source; None if
    #: unknown since a restart.
    owner: str | None = None
    held_bytes: int = 0
    timer: Timer | None = None
    key_bytes: int = field(init=False)

    def __post_init__(self) -> None:
        source, group = self.key
        self.key_bytes = NAME_BYTES + len(((source or "") + group).encode("utf-8", "surrogatepass"))

    @property
    def states(self) -> list[GroupState]:
        """Its groups, oldest first, the live one last."""
        return self.past if self.live is None else [*self.past, self.live]

    @property
    def weight(self) -> int:
        """Maximum bytes in a snapshot."""
        return self.key_bytes + sum(
            STATE_BYTES + INTERVAL_BYTES * (len(state.received) + len(state.passed))
            for state in self.states
        )

    def next_due(self, moment: Moment) -> tuple[Due, GroupState] | None:
        """Return what is due next, and to which group; None if only members are awaited."""
        if not self.past:
            state = self.live
            found = None if state is None else due(state, moment)
            return None if found is None or state is None else (found, state)
        following = [
            (found, state) for state in self.states if (found := due(state, moment)) is not None
        ]
        return min(following, key=lambda one: one[0].at, default=None)

    def remember(self, state: GroupState) -> None:
        """Keep a terminated group, to recognize duplicates."""
        self.past.append(state)
        if len(self.past) > MAXIMUM_PAST:
            oldest, following = self.past[:2]
            following.received.merge(oldest.received)
            following.remembered_until = max(following.remembered_until, oldest.remembered_until)
            following.window_until = max(following.window_until, oldest.window_until)
            del self.past[0]

    def holder(self, sequence: int) -> GroupState | None:
        """Return the youngest group that has received a sequence."""
        return next((one for one in reversed(self.states) if sequence in one.received), None)


class Names:
    """All names that have a group, and their totals."""

    def __init__(self, limits: GroupLimits, *, given_up: Callable[[GroupState], None]) -> None:
        self._limits = limits
        self._given_up = given_up
        self._names: dict[Key, Name] = {}
        self._weight = 0
        self._search_at = -math.inf
        self.groups = 0
        self.live = 0

    def __iter__(self) -> Iterator[Name]:
        return iter(self._names.values())

    def find(self, key: Key) -> Name:
        return self._names.get(key) or Name(key)

    def leave(self, name: Name) -> None:
        """Subtract a name from the totals while its groups change."""
        if self._names.pop(name.key, None) is not None:
            self.groups -= len(name.states)
            self.live -= name.live is not None
            self._weight -= name.weight

    def enter(self, name: Name) -> None:
        """Add a name to the totals, if it has groups."""
        states = name.states
        if states:
            self._names[name.key] = name
            self.groups += len(states)
            self.live += name.live is not None
            self._weight += name.weight
        elif name.timer is not None:
            name.timer.cancel()
            name.timer = None

    def lengthened(self, intervals: int) -> None:
        self._weight += INTERVAL_BYTES * intervals

    def reason_to_wait(self, name: Name, member: GroupMember, moment: Moment) -> str | None:
        """Return why a new member must be refused for now, or None."""
        reason = self._excess(name, member)
        if reason is not None:
            self._give_up(name, moment)
            reason = self._excess(name, member)
        return reason

    def _excess(self, name: Name, member: GroupMember) -> str | None:
        live, more = name.live, 0
        if live is None:
            if self.groups >= self._limits.groups:
                return f"{self.groups} message groups are remembered already"
            more = STATE_BYTES + (0 if name.past else name.key_bytes)
        if live is None or not live.received.lengthens(member.sequence):
            more += INTERVAL_BYTES
        if self._weight + more > self._limits.state_bytes:
            return "the message groups have as many names and gaps as can be remembered"
        return None

    def _give_up(self, asking: Name, moment: Moment) -> None:
        """Drop groups that nothing will ever end, and whose members need not be remembered any
        more."""
        if moment.monotonic < self._search_at:
            return
        self._search_at = moment.monotonic + _SEARCH_SECONDS
        for name in list(self._names.values()):
            live = name.live
            if live is None or live.timed or name is asking:
                continue
            if removal(live, moment) <= moment.monotonic:
                self.leave(name)
                name.live = None
                self.enter(name)
                self._given_up(live)


class HoldShare(StrEnum):
    """The limit that a member to be held exceeded."""

    ALL = "all"
    #: Of one group or one publisher.
    GROUP = "group"
    PUBLISHER = "publisher"
    #: A destination's queue.
    DESTINATION = "destination"


class HeldMembers:
    def __init__(self, *, queues: Queues, timers: Timers, limits: GroupLimits) -> None:
        self._queues = queues
        self._timers = timers
        # Members of ended groups, still to be discarded, with their publisher.
        self._ended: deque[tuple[Indication, str | None]] = deque()
        self._limits = limits
        self.count = 0
        self.bytes = 0
        self._counts: Counter[str] = Counter()
        self.refusals: Counter[str] = Counter(dict.fromkeys(HoldShare, 0))
        self._bytes: Counter[str] = Counter()

    def reason_to_wait(self, name: Name, size: int) -> str | None:
        """Return why a body cannot be held now, or None. One group, and one publisher, can always
        hold one member of any size."""
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
        """Move on a member without gap before it."""
        indication = name.held.pop(sequence, None)
        if indication is not None:
            name.held_bytes -= len(indication.body)
            self._count(indication, name.owner, -1)
            self.move_on(indication, Guard.COMPLETED)

    def terminate(self, name: Name) -> int:
        """Discard, in turns, the members of the ended live group; return their number."""
        ended = [(name.held[sequence], name.owner) for sequence in sorted(name.held)]
        name.held.clear()
        name.held_bytes = 0
        self._discard_all(ended)
        return len(ended)

    def discard_overdue(self, indications: Iterable[Indication]) -> None:
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
        state = step(State.OUT_OF_ORDER, found).to
        then = Guard.IN_SEQUENCE if found is Guard.COMPLETED else Guard.HOPELESS
        if step(state, then).transition is Transition.DELIVER:
            self._queues.release(indication)
        else:
            self.discard(indication)

    def discard(self, indication: Indication) -> None:
        self._queues.discard_held(indication, DiscardReason.OUT_OF_ORDER)


class GroupTimes:
    """Ends groups and removes their state when that is due."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        names: Names,
        held: HeldMembers,
        ended: Callable[[GroupState], None],
    ) -> None:
        """``ended`` is called for each group that ends, after its members are discarded."""
        self._ended = ended
        self._clock = clock
        self._timers = timers
        self._names = names
        self._held = held
        # Wall clock less monotonic clock when the timers were set.
        self._drift = clock.time() - clock.monotonic()
        #: Groups end without a log line: an earlier run has logged it.
        self.quiet = False
        self.terminations: Counter[str] = Counter(dict.fromkeys(Termination, 0))

    def terminate(
        self, name: Name, how: Termination, moment: Moment, *, discarded: int = 0
    ) -> None:
        """End the live group; ``discarded``: its members discarded before those held."""
        state = name.live
        assert state is not None
        self._names.leave(name)
        name.live = None
        state.terminated = how
        if removal(state, moment) > moment.monotonic:
            name.remember(state)
        self._names.enter(name)
        discarded += self._held.terminate(name)
        if not self.quiet:
            self._ended(state)
            self.terminations[how] += 1
            _log_termination(name.key, state, discarded)

    def lapse(self, name: Name, moment: Moment) -> None:
        """Do everything that is due for a name."""
        while (following := name.next_due(moment)) is not None:
            found, state = following
            if found.at > moment.monotonic:
                return
            self._do(name, state, found, moment)

    def _do(self, name: Name, state: GroupState, found: Due, moment: Moment) -> None:
        if found.termination is not None:
            self.terminate(name, found.termination, moment)
            return
        self._names.leave(name)
        name.past.remove(state)
        self._names.enter(name)

    def arm(self, name: Name, moment: Moment, *, least_wait: float = 0.0) -> None:
        """Set a timer for the next due action."""
        following = name.next_due(moment)
        if following is None:
            return
        at = max(following[0].at, moment.monotonic + least_wait)
        timer = name.timer
        if timer is not None:
            # An earlier timer sets the next one, so an active group sets none per member.
            if not timer.cancelled and timer.due <= at:
                return
            timer.cancel()
        name.timer = self._timers.call_at(at, lambda: self._wake(name))

    def _wake(self, name: Name) -> None:
        moment = self.now()
        self.lapse(name, moment)
        self.arm(name, moment, least_wait=_LEAST_WAIT)

    def follow_clock(self, moment: Moment) -> None:
        """Check all names after the wall clock was set: their dates are nearer or farther."""
        drift = moment.wall - moment.monotonic
        if abs(drift - self._drift) > _CLOCK_STEP:
            self._drift = drift
            self.catch_up()

    def catch_up(self) -> None:
        """Do what is due to all names, oldest first, and set their timers."""
        moment = self.now()
        names = list(self._names)
        waiting = list(_all_due(enumerate(names), moment))
        heapq.heapify(waiting)
        while waiting and waiting[0][0] <= moment.monotonic:
            index = heapq.heappop(waiting)[1]
            following = names[index].next_due(moment)
            assert following is not None
            self._do(names[index], following[1], following[0], moment)
            for again in _all_due([(index, names[index])], moment):
                heapq.heappush(waiting, again)
        for name in list(self._names):
            self.arm(name, moment)

    def now(self) -> Moment:
        return Moment(self._clock.monotonic(), self._clock.time())


def _all_due(names: Iterable[tuple[int, Name]], moment: Moment) -> Iterator[tuple[float, int]]:
    for index, name in names:
        following = name.next_due(moment)
        if following is not None:
            yield following[0].at, index


def _log_termination(key: Key, state: GroupState, discarded: int) -> None:
    gaps = state.missing(maximum=_GAPS_TOLD + 1)
    told = [str(low) if low == high else f"{low}-{high}" for low, high in gaps[:_GAPS_TOLD]]
    if len(gaps) > _GAPS_TOLD:
        told.append("…")
    logger.log(
        logging.WARNING if gaps or discarded else logging.INFO,
        "a message group has ended (%s)",
        state.terminated,
        extra={
            "event": "group-terminated",
            "group": key[1],
            "source": key[0],
            "termination": str(state.terminated),
            "missing": ",".join(told) or None,
            "held_discarded": discarded,
        },
    )
