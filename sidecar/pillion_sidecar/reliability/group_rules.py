"""One message group: what it has received, what becomes of its next member, when it ends (S1.5 to
S1.8). No I/O, no clock: who asks says what the time is.
"""

import math
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pillion_sidecar.indication import GroupMember
from pillion_sidecar.reliability.intervals import Intervals
from pillion_sidecar.reliability.states import Guard, State, Transition, step


class Moment(NamedTuple):
    """One moment on two clocks: idle times and the window count by the first, which never goes
    back, and the dates that publishers give by the second."""

    #: ``Clock.monotonic()``.
    monotonic: float
    #: ``Clock.time()``.
    wall: float

    def of_date(self, date: float) -> float:
        """Return ``Clock.monotonic()`` of a date in seconds since the epoch."""
        return self.monotonic + (date - self.wall)


#: Seconds that a group of relayed members goes on after its time, and after the last one has come:
#: others, accepted in time, may be on their way. A relay tries again after 30 s at most, so these
#: are some attempts.
RELAY_SECONDS = 120.0


class Termination(StrEnum):
    """How a group ended (S1.6, S1.7)."""

    #: GroupExpiryTime is over; with members still held it is d1.
    EXPIRED = "t1"
    #: GroupMaxIdleTime is over; with members still held it is d2.
    IDLE = "t2"
    #: ``last`` came, and nothing was missing.
    ENDED = "t3.1"
    #: The same in a group with neither GroupExpiryTime nor GroupMaxIdleTime.
    ENDED_UNTIMED = "t4.1"
    #: ``last`` came there, and something was missing.
    CUT_SHORT = "t4.2"
    #: An ordered group with neither of the two got a member out of order.
    OUT_OF_ORDER = "d3"


@dataclass(slots=True, kw_only=True)
class GroupState:
    """One group: a run of members from its first one to its termination.

    Where a group has both, GroupExpiryTime counts and GroupMaxIdleTime does not (d1, d2).
    """

    #: Tells groups of one name apart.
    generation: int
    ordered: bool
    #: GroupExpiryTime, seconds since the epoch.
    expires: float | None
    #: GroupMaxIdleTime.
    max_idle_seconds: float | None
    received: Intervals = field(default_factory=Intervals)
    #: Those of them that gateways alone were given past a gap: nothing held stands for them.
    passed: Intervals = field(default_factory=Intervals)
    last: int | None = None
    #: ``Clock.monotonic()`` at the acceptance of the member that was accepted last.
    received_at: float = 0.0
    #: ``Clock.monotonic()`` when the last one came that a sidecar relayed; None where none was. All
    #: times and dates above are then those of the sidecars' acceptance.
    relayed_at: float | None = None
    #: The greatest ``expires`` of its members, seconds since the epoch; 0 for none.
    remembered_until: float = 0.0
    #: ``Clock.monotonic()``: the end of the duplicate window of its members without ``expires``;
    #: -infinity for none, since moments of a run before may be negative.
    window_until: float = -math.inf
    terminated: Termination | None = None

    @property
    def next_expected(self) -> int:
        """The first sequence that is missing: in an ordered group the next to be delivered."""
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
        """Return the first gaps, ``maximum`` at most, up to the last member as far as known."""
        through = self.received.highest if self.last is None else self.last
        return [gap for gap, _ in zip(self.received.gaps(through), range(maximum), strict=False)]


@dataclass(frozen=True, slots=True)
class Decision:
    """What becomes of a member."""

    #: Found out about it while it is ``ready``.
    ready: Guard
    #: Found out about it while it is ``in-process``; None for one that does not get there.
    process: Guard | None = None
    #: Why it is refused, and which of its members is wrong.
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
    """Decide on a member: ``past`` are the terminated groups of its name whose state is still
    there (S1.7), ``live`` the one that goes on. ``passes_gaps``: it goes to gateways alone, which
    put it in order.

    What was due before the member must have been done to both.
    """
    sequence = member.sequence
    for state in past:
        if sequence in state.received:
            return Decision(Guard.DUPLICATE, original=state)
    if live is None:
        expected = 0
    else:
        # Before the duplicates: another run under the same name is not to be swallowed as one.
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
    """Return the field in which a member contradicts its group, and how; None where it does not."""
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
    """What follows from a member that was taken."""

    state: GroupState
    #: The held sequences that are delivered after it.
    released: range
    #: How the group ends with it, if it does.
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
    """Note a member that was accepted at ``at`` (``Clock.monotonic()``), and say what follows.

    ``generation`` is that of a new group; ``expires`` the member's own, in seconds since the epoch,
    ``window`` how long it is remembered where it has none. ``relayed_at``: when it came, where its
    acceptance was that by a sidecar.
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
    # What several sidecars relay is not in the order of its acceptance.
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
    """Note where a gap is passed; forget what was once none is left below it."""
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
    # t3.2: incomplete, it ends by t1 or t2.
    return Termination.ENDED if state.complete else None


class Due(NamedTuple):
    """What time alone does to a group."""

    #: ``Clock.monotonic()``.
    at: float
    #: How it ends then; None where its state is removed.
    termination: Termination | None


def due(state: GroupState, moment: Moment) -> Due | None:
    """Return what is due next, as the clocks stand; None for a group that only waits for members.

    A group that is not terminated has t1 or t2 before it, a terminated one its removal.
    """
    if state.terminated is not None:
        return Due(removal(state, moment), None)
    end = _end(state, moment)
    if end is None or state.relayed_at is None:
        return end
    # What a sidecar accepted in time is not discarded because the way to here was long (S1.3).
    return end._replace(at=max(end.at, state.relayed_at) + RELAY_SECONDS)


def _end(state: GroupState, moment: Moment) -> Due | None:
    """Return t1 or t2 of a group as its members' times have it."""
    if state.expires is not None:
        return Due(moment.of_date(state.expires), Termination.EXPIRED)
    if state.max_idle_seconds is not None:
        return Due(state.received_at + state.max_idle_seconds, Termination.IDLE)
    return None


def outlived(live: GroupState, accepted: Moment) -> Termination | None:
    """Return how a group of relayed members had ended by its members' times, and been forgotten
    (S1.7), when a sidecar accepted another member of its name; None where it had not.

    That member then is of another run under the same name.
    """
    end = None if live.relayed_at is None else _end(live, accepted)
    if end is None or end.at > accepted.monotonic:
        return None
    # After t1 a group is forgotten at once.
    is_idle = end.termination is Termination.IDLE
    if is_idle and removal(live, accepted) > accepted.monotonic:
        return None
    return end.termination


def removal(state: GroupState, moment: Moment) -> float:
    """Return ``Clock.monotonic()`` of the removal of a group's state, were it terminated (S1.7).

    After t1, t4.2 at once; after t3.1 by the rule of its criterion; else by max(ExpiryTime), the
    duplicate window counting for members that had none.
    """
    if state.terminated in (Termination.EXPIRED, Termination.CUT_SHORT):
        return moment.monotonic
    if state.terminated is Termination.ENDED and state.expires is not None:
        return moment.of_date(state.expires)
    until = state.window_until
    if state.remembered_until:
        until = max(until, moment.of_date(state.remembered_until))
    return until
