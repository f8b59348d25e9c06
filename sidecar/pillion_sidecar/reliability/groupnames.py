"""The message groups by name, (source, group): how much there is of them, and what is due next."""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field

from pillion_sidecar.clock import Timer
from pillion_sidecar.indication import GroupMember, Indication
from pillion_sidecar.reliability.groups import Due, GroupState, Moment, due, removal
from pillion_sidecar.reliability.groupstate import INTERVAL_BYTES, NAME_BYTES, STATE_BYTES

#: Groups of one name that are over and still remembered apart; beyond, the oldest two become one.
MAXIMUM_PAST = 8
#: Seconds between two searches for groups that can be given up.
_SEARCH_SECONDS = 10.0

Key = tuple[str | None, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLimits:
    """How much the groups may keep. Beyond it a member is refused for now."""

    #: Groups whose state is kept, those that are over among them.
    groups: int = 10_000
    #: Indications that wait for their predecessors, and the bytes of their bodies.
    held: int = 10_000
    held_bytes: int = 32 << 20
    #: Bytes of the state of all groups: it stands in each of the journal's snapshots, which is one
    #: record.
    state_bytes: int = 3 << 19


@dataclass(slots=True, eq=False)
class Name:
    """The groups of one name, with what is not part of their state."""

    key: Key
    live: GroupState | None = None
    #: Terminated, oldest first.
    past: list[GroupState] = field(default_factory=list)
    held: dict[int, Indication] = field(default_factory=dict)
    #: Who publishes it, for the share of all that is held: a principal's namespace, else the
    #: source; None where that is not known since a restart.
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
        """The bytes that it takes in a snapshot, at most."""
        return self.key_bytes + sum(
            STATE_BYTES + INTERVAL_BYTES * (len(state.received) + len(state.passed))
            for state in self.states
        )

    def next_due(self, moment: Moment) -> tuple[Due, GroupState] | None:
        """Return what is due next, and to which group; None where only members are awaited."""
        if not self.past:
            state = self.live
            found = None if state is None else due(state, moment)
            return None if found is None or state is None else (found, state)
        following = [
            (found, state) for state in self.states if (found := due(state, moment)) is not None
        ]
        return min(following, key=lambda one: one[0].at, default=None)

    def remember(self, state: GroupState) -> None:
        """Keep a terminated group for the duplicates."""
        self.past.append(state)
        if len(self.past) > MAXIMUM_PAST:
            oldest, following = self.past[:2]
            following.received.merge(oldest.received)
            following.remembered_until = max(following.remembered_until, oldest.remembered_until)
            following.window_until = max(following.window_until, oldest.window_until)
            del self.past[0]

    def holder(self, sequence: int) -> GroupState | None:
        """Return the youngest of its groups that has received a sequence."""
        return next((one for one in reversed(self.states) if sequence in one.received), None)


class Names:
    """All names that have a group; counts what they keep."""

    def __init__(self, limits: GroupLimits, *, given_up: Callable[[GroupState], None]) -> None:
        """``given_up`` is told of a group that is forgotten though nothing has ended it."""
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
        """Return a name, a new one where nothing is kept of it."""
        return self._names.get(key) or Name(key)

    def leave(self, name: Name) -> None:
        """Count a name no more, for as long as its groups are changed."""
        if self._names.pop(name.key, None) is not None:
            self.groups -= len(name.states)
            self.live -= name.live is not None
            self._weight -= name.weight

    def enter(self, name: Name) -> None:
        """Count a name, if it has groups."""
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
        """A live group has so many intervals more."""
        self._weight += INTERVAL_BYTES * intervals

    def reason_to_wait(self, name: Name, member: GroupMember, moment: Moment) -> str | None:
        """Return why nothing can be noted of a new member for now; None where it can."""
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
        """Forget the groups that nothing will ever end, and whose members need not be remembered
        any more."""
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
