"""One message group: received members, decisions on new ones, and its end (S1.5 to S1.8). No I/O
and no clock."""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pillion_sidecar.indication import GroupMember
from pillion_sidecar.reliability.intervals import Intervals
from pillion_sidecar.reliability.states import Guard, State, Transition, step


class Moment(NamedTuple):
    """A moment on two clocks: monotonic for idle times and the window, wall for publishers'
    dates."""

    #: ``Clock.monotonic()``.
    monotonic: float
    #: ``Clock.time()``.
    wall: float

    def of_date(self, date: float) -> float:
        """Return ``Clock.monotonic()`` of a date in seconds since the epoch."""
        return self.monotonic + (date - self.wall)


#: Seconds that a group of relayed members continues after its time and its last arrival: others,
#: accepted in time, may be on their way. A relay retries after at most 30 s.
RELAY_SECONDS = 120.0


class Termination(StrEnum):
    """S1.6, S1.7."""

    #: GroupExpiryTime is over; d1 with members still held.
    EXPIRED = "t1"
    #: GroupMaxIdleTime is over; d2 with members still held.
    IDLE = "t2"
    #: ``last`` arrived, and nothing is missing.
    ENDED = "t3.1"
    #: The same, with neither GroupExpiryTime nor GroupMaxIdleTime.
    ENDED_UNTIMED = "t4.1"
    #: As before, but something is missing.
    CUT_SHORT = "t4.2"
    #: An ordered group with neither of the two got a member out of order.
    OUT_OF_ORDER = "d3"


@dataclass(slots=True, kw_only=True)
class GroupState:
    """One group from its first member to its termination. GroupExpiryTime overrides
    GroupMaxIdleTime (d1, d2)."""

    #: Distinguishes groups of one name.
    generation: int
    ordered: bool
    #: GroupExpiryTime, seconds since the epoch.
    expires: float | None
    #: GroupMaxIdleTime.
    max_idle_seconds: float | None
    received: Intervals = field(default_factory=Intervals)
    #: Members that only gateways got past a gap: nothing is held for them.
    passed: Intervals = field(default_factory=Intervals)
    last: int | None = None
    #: ``Clock.monotonic()`` at the acceptance of the latest member.
    received_at: float = 0.0
    #: ``Clock.monotonic()`` at the arrival of the last relayed member, or None. If set, all times
    #: above are those of the sidecars' acceptance.
    relayed_at: float | None = None
    #: The largest ``expires`` of its members, seconds since the epoch; 0 for none.
    remembered_until: float = 0.0
    #: ``Clock.monotonic()``: end of the duplicate window of members without ``expires``; -infinity
    #: for none, since moments of an earlier run may be negative.
    window_until: float = -math.inf
    terminated: Termination | None = None

    @property
    def next_expected(self) -> int:
        """The first missing sequence: in an ordered group the next to deliver."""
        return self.received.first_missing

    @property
    def complete(self) -> bool:
        """Whether its last member is known, and nothing before it is missing."""
        return self.last is not None and self.next_expected > self.last

    @property
    def timed(self) -> bool:
        """Whether it has a termination criterion."""
        return self.expires is not None or self.max_idle_seconds is not None

    def missing(self, *, maximum: int) -> list[tuple[int, int]]:
        """Return the first gaps up to the last member known."""
        through = self.received.highest if self.last is None else self.last
        return [gap for gap, _ in zip(self.received.gaps(through), range(maximum), strict=False)]


@dataclass(frozen=True, slots=True)
class Decision:
    #: The guard in state ``ready``.
    ready: Guard
    #: The guard in state ``in-process``; None if that is not reached.
    process: Guard | None = None
    #: The reason and the field of a refusal.
    reason: str = ""
    field: str | None = None
    #: The group that it repeats a member of.
    original: GroupState | None = None


def decide(
    live: GroupState | None,
    past: list[GroupState],
    member: GroupMember,
    *,
    passes_gaps: bool = False,
) -> Decision:
    """Decide on a member, after everything due before it was done. ``past``: terminated groups of
    its name with state (S1.7). ``passes_gaps``: only gateways get it, which order it."""
    sequence = member.sequence
    for state in past:
        if sequence in state.received:
            return Decision(Guard.DUPLICATE, original=state)
    if live is None:
        expected = 0
    else:
        # Before the duplicates: another run under the same name must not count as one.
        found = contradiction(live, member)
        if found is not None:
            name, reason = found
            return Decision(Guard.INVALID, reason=f"{name}: {reason}", field=name)
        if sequence in live.received:
            return Decision(Guard.DUPLICATE, original=live)
        expected = live.next_expected
    if not member.ordered or sequence == expected or passes_gaps:
        return Decision(Guard.ACCEPTABLE, Guard.IN_SEQUENCE)
    if member.expires is None and member.max_idle_seconds is None:
        return Decision(Guard.ACCEPTABLE, Guard.HOPELESS)
    return Decision(Guard.ACCEPTABLE, Guard.PREDECESSORS_MISSING)


def contradiction(live: GroupState, member: GroupMember) -> tuple[str, str] | None:
    """Return the field and the contradiction between a member and its group, or None."""
    agreed = "the members of a group must agree, and those before it"
    if member.ordered is not live.ordered:
        return "ordered", f"{agreed} are {'ordered' if live.ordered else 'not ordered'}"
    if member.expires != live.expires:
        have = "another" if live.expires is not None else "none"
        return "groupExpires", f"{agreed} have {have}"
    if member.max_idle_seconds != live.max_idle_seconds:
        have = "none" if live.max_idle_seconds is None else f"{live.max_idle_seconds:g}"
        return "groupMaxIdleSeconds", f"{agreed} have {have}"
    if live.last is not None and member.sequence > live.last:
        return "sequence", f"greater than {live.last}, the last one of the group"
    if member.last and live.received.highest > member.sequence:
        return "last", f"{live.received.highest} of the group has been accepted already"
    return None


@dataclass(frozen=True, slots=True)
class Taken:
    """The consequences of an accepted member."""

    state: GroupState
    #: Held sequences to deliver after it.
    released: range
    #: How the group ends with it; None: it does not.
    termination: Termination | None


def take(
    live: GroupState | None,
    member: GroupMember,
    decision: Decision,
    *,
    generation: int,
    at: float,
    expires: float | None,
    window: float,
    relayed_at: float | None = None,
) -> Taken:
    """Note an accepted member and return the consequences.

    ``at``: acceptance (``Clock.monotonic()``); ``generation`` of a new group; ``expires``: seconds
    since the epoch, else it is remembered for ``window``; ``relayed_at``: arrival, if a sidecar
    accepted it.
    """
    state = live or GroupState(
        generation=generation,
        ordered=member.ordered,
        expires=member.expires,
        max_idle_seconds=member.max_idle_seconds,
    )
    if state.ordered and decision.process is Guard.IN_SEQUENCE:
        _note_passed(state, member.sequence)
    state.received.add(member.sequence)
    # Several sidecars relay in no common order of acceptance.
    state.received_at = at if live is None else max(state.received_at, at)
    if relayed_at is not None:
        state.relayed_at = relayed_at
    if expires is not None:
        state.remembered_until = max(state.remembered_until, expires)
    else:
        state.window_until = max(state.window_until, at + window)
    if member.last:
        state.last = member.sequence
    released = range(0)
    if state.ordered and decision.process is Guard.IN_SEQUENCE:
        released = range(member.sequence + 1, state.next_expected)
    return Taken(state, released, _ending(state, member, decision))


def _note_passed(state: GroupState, sequence: int) -> None:
    """Note that a gap is passed; drop it once no gap is left below."""
    if sequence > state.next_expected:
        state.passed.add(sequence)
    elif state.passed.highest < state.next_expected:
        state.passed = Intervals()


def _ending(state: GroupState, member: GroupMember, decision: Decision) -> Termination | None:
    assert decision.process is not None
    hopeless = step(State.IN_PROCESS, decision.process).transition is Transition.DISCARD
    if not member.last:
        return Termination.OUT_OF_ORDER if hopeless else None
    if not state.timed:
        return Termination.ENDED_UNTIMED if state.complete else Termination.CUT_SHORT
    # t3.2: if incomplete, it ends by t1 or t2.
    return Termination.ENDED if state.complete else None


class Due(NamedTuple):
    """The next action that only time causes."""

    #: ``Clock.monotonic()``.
    at: float
    #: None: its state is removed.
    termination: Termination | None


def due(state: GroupState, moment: Moment) -> Due | None:
    """Return the next due action, or None if the group only waits for members. A live group has t1
    or t2 ahead, a terminated one its removal."""
    if state.terminated is not None:
        return Due(removal(state, moment), None)
    end = _end(state, moment)
    if end is None or state.relayed_at is None:
        return end
    # Indications accepted in time are not discarded because of a long transport (S1.3).
    return end._replace(at=max(end.at, state.relayed_at) + RELAY_SECONDS)


def _end(state: GroupState, moment: Moment) -> Due | None:
    """Return t1 or t2 by the members' times."""
    if state.expires is not None:
        return Due(moment.of_date(state.expires), Termination.EXPIRED)
    if state.max_idle_seconds is not None:
        return Due(state.received_at + state.max_idle_seconds, Termination.IDLE)
    return None


def outlived(live: GroupState, accepted: Moment) -> Termination | None:
    """Return how a relayed group had ended by its members' times, and been removed (S1.7), before a
    sidecar accepted another member of its name; None if it had not. That member belongs to a new
    run."""
    end = None if live.relayed_at is None else _end(live, accepted)
    if end is None or end.at > accepted.monotonic:
        return None
    # After t1 a group is removed at once.
    is_idle = end.termination is Termination.IDLE
    if is_idle and removal(live, accepted) > accepted.monotonic:
        return None
    return end.termination


def removal(state: GroupState, moment: Moment) -> float:
    """Return ``Clock.monotonic()`` of the removal of a terminated group's state (S1.7): at once
    after t1 and t4.2; by its criterion after t3.1; else by max(ExpiryTime), or the duplicate window
    for members without."""
    if state.terminated in (Termination.EXPIRED, Termination.CUT_SHORT):
        return moment.monotonic
    if state.terminated is Termination.ENDED and state.expires is not None:
        return moment.of_date(state.expires)
    until = state.window_until
    if state.remembered_until:
        until = max(until, moment.of_date(state.remembered_until))
    return until
