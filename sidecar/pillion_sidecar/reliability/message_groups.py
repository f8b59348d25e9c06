"""The message groups: which member is delivered, held or discarded, and when a group ends (S1.5 to
S1.8). Decisions are in :mod:`pillion_sidecar.reliability.group_rules`."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.indication import GroupMember, Indication, Queues, Refusal, Target
from pillion_sidecar.journal.ports import GroupRecord
from pillion_sidecar.reliability.duplicates import Original
from pillion_sidecar.reliability.group_index import (
    GroupLimits,
    GroupTimes,
    HeldMembers,
    HoldShare,
    Key,
    Name,
    Names,
)
from pillion_sidecar.reliability.group_rules import (
    Decision,
    GroupState,
    Moment,
    Taken,
    decide,
    due,
    outlived,
    take,
)
from pillion_sidecar.reliability.group_snapshots import decode_groups, encode_groups
from pillion_sidecar.reliability.identity import member_digest
from pillion_sidecar.reliability.intervals import Intervals
from pillion_sidecar.reliability.states import Guard, State, Transition, step

#: Seconds that a publisher waits when the limits are reached.
FULL_RETRY_AFTER = 1.0


@dataclass(slots=True)
class Examined:
    """A member during acceptance: the decision, then the result."""

    name: Name
    member: GroupMember
    moment: Moment
    decision: Decision
    #: Its identity by place in the group; for a duplicate the original's.
    digest: bytes
    begins: bool
    #: ``Indication.group_run``.
    run: int
    indication: Indication | None = None
    taken: Taken | None = None


class Groups:
    """All message groups of the deliverer, by (source, group). Bounded."""

    def __init__(
        self,
        *,
        clock: Clock,
        timers: Timers,
        queues: Queues,
        window_seconds: float,
        limits: GroupLimits | None = None,
    ) -> None:
        """``window_seconds``: for members without ``expires``."""
        limits = limits or GroupLimits()
        self._queues = queues
        self._window = window_seconds
        self._names = Names(limits, given_up=self._tell_end)
        self._held = HeldMembers(queues=queues, timers=timers, limits=limits)
        self._times = GroupTimes(
            clock=clock, timers=timers, names=self._names, held=self._held, ended=self._tell_end
        )
        self._generation = 0
        # Journal time less Clock.monotonic().
        self._offset = 0.0
        # What :meth:`resume` releases or discards.
        self._overdue: list[tuple[Indication, Guard]] = []

    def _tell_end(self, state: GroupState) -> None:
        self._queues.end_group(state.generation)

    def configure(self, *, window_seconds: float) -> None:
        """Change the window for members from now on."""
        self._window = window_seconds

    @property
    def active(self) -> int:
        return self._names.live

    @property
    def remembered(self) -> int:
        """Terminated groups whose members still count as duplicates."""
        return self._names.groups - self._names.live

    @property
    def held(self) -> int:
        return self._held.count

    @property
    def held_bytes(self) -> int:
        return self._held.bytes

    @property
    def terminations(self) -> Mapping[str, int]:
        """Ended groups by cause, all causes in the order of the enumeration."""
        return self._times.terminations

    @property
    def hold_refusals(self) -> Mapping[str, int]:
        """Members that could not be held, by exceeded limit, all included."""
        return self._held.refusals

    # Acceptance.

    def examine(
        self,
        *,
        source: str | None,
        group: str,
        member: GroupMember,
        size: int,
        moment: Moment,
        accepted: Moment | None = None,
        passes_gaps: bool = False,
        namespace: str | None = None,
    ) -> Examined:
        """Decide on a member with a body of ``size`` bytes, ready at ``moment``. ``accepted``: by
        the sidecar that relays it. ``passes_gaps``: only gateways get it. ``namespace``: of its
        publisher's token."""
        self._times.follow_clock(moment)
        name = self._names.find((source, group))
        # A timer may be late.
        self._times.lapse(name, moment)
        if not name.held:
            name.owner = namespace or source or ""
        decision = self._decide(name, member, accepted, moment, passes_gaps=passes_gaps)
        if decision.ready is Guard.ACCEPTABLE:
            reason = None
            if decision.process is Guard.PREDECESSORS_MISSING:
                reason = self._held.reason_to_wait(name, size)
            reason = reason or self._names.reason_to_wait(name, member, moment)
            if reason is not None:
                decision = Decision(Guard.NO_ROOM, reason=reason)
        state = decision.original or name.live
        generation = self._generation + 1 if state is None else state.generation
        digest = member_digest(source, group, generation, member.sequence)
        return Examined(
            name, member, moment, decision, digest, begins=state is None, run=generation
        )

    def _decide(
        self,
        name: Name,
        member: GroupMember,
        accepted: Moment | None,
        moment: Moment,
        *,
        passes_gaps: bool,
    ) -> Decision:
        decision = decide(name.live, name.past, member, passes_gaps=passes_gaps)
        if decision.ready is Guard.ACCEPTABLE or accepted is None or name.live is None:
            return decision
        how = outlived(name.live, accepted)
        if how is None:
            return decision
        self._times.terminate(name, how, moment)
        return decide(name.live, name.past, member, passes_gaps=passes_gaps)

    def original_digest(self, examined: Examined) -> bytes:
        """Return the identity of a duplicate's original, as far as known."""
        held = examined.name.held.get(examined.member.sequence)
        if held is not None and held.digest is not None:
            return held.digest
        return examined.digest

    def take(
        self, examined: Examined, indication: Indication, targets: Sequence[Target]
    ) -> Refusal | None:
        """Queue or hold an acceptable member, and note it; a Refusal notes nothing. The
        consequences wait for :meth:`proceed`, once the member is remembered."""
        decision = examined.decision
        assert decision.process is not None
        row = step(State.IN_PROCESS, decision.process)
        if row.transition is Transition.DELIVER:
            completes = examined.member.sequence + 1 in examined.name.held
            refusal = self._queues.offer(indication, targets, completes=completes)
        else:
            refusal = self._queues.hold(indication, targets)
            if refusal is not None:
                self._held.refusals[HoldShare.DESTINATION] += 1
        if refusal is not None:
            return refusal
        examined.indication = indication
        examined.taken = self._note(
            examined.name,
            examined.member,
            decision,
            at=indication.accepted_at,
            expires=indication.expires,
            relayed_at=None if indication.relayed is None else indication.relayed.at,
        )
        if row.to is State.OUT_OF_ORDER:
            self._held.hold(examined.name, examined.member.sequence, indication)
        return None

    def proceed(self, examined: Examined) -> None:
        """Perform the consequences of an accepted member: discard it, release its successors, end
        its group."""
        taken, indication = examined.taken, examined.indication
        assert taken is not None
        assert indication is not None
        assert examined.decision.process is not None
        row = step(State.IN_PROCESS, examined.decision.process)
        if row.transition is Transition.DISCARD:
            self._held.discard(indication)
        for sequence in taken.released:
            self._held.complete(examined.name, sequence)
        if taken.termination is not None:
            discarded = int(row.transition is Transition.DISCARD)
            self._times.terminate(
                examined.name, taken.termination, examined.moment, discarded=discarded
            )
        timer = examined.name.timer
        if examined.begins or taken.termination is not None or timer is None or timer.cancelled:
            self._times.arm(examined.name, examined.moment)

    def take_repeat(
        self,
        *,
        source: str | None,
        group: str,
        member: GroupMember,
        class_name: str,
        expires: float | None,
        moment: Moment,
        original: Original,
    ) -> Refusal | None:
        """Note the place of a duplicate by identity, so that it is no gap; do nothing if the group
        has the place or contradicts it.

        A destination that lost the original does not get what follows it (S1.5).
        """
        if member.expires is not None and member.expires <= moment.wall:
            # A sidecar relays it again; its group is over.
            return None
        examined = self.examine(
            source=source, group=group, member=member, size=0, moment=moment, passes_gaps=True
        )
        if examined.decision.ready is Guard.NO_ROOM:
            return Refusal(FULL_RETRY_AFTER, examined.decision.reason)
        if examined.decision.ready is not Guard.ACCEPTABLE:
            return None
        indication = Indication(
            body=b"",
            class_name=class_name,
            accepted_at=moment.monotonic,
            source=source,
            group=group,
            member=member,
            group_run=examined.run,
            expires=expires,
        )
        refusal = self.take(examined, indication, ())
        if refusal is not None:
            return refusal
        if original.destination is not None and member.ordered:
            self._queues.lose(indication, original.destination)
        self.proceed(examined)
        return None

    def next_expected(self, source: str | None, group: str) -> int:
        """Return the first missing sequence of a live group; 0 if there is none."""
        live = self._names.find((source, group)).live
        return 0 if live is None else live.next_expected

    def note_before(
        self,
        *,
        source: str | None,
        group: str,
        member: GroupMember,
        through: int,
        moment: Moment,
        accepted_at: float,
    ) -> Refusal | None:
        """Note that all members below ``through`` were queued elsewhere, by the deliverer whose
        held ``member`` follows; ``accepted_at``: there (``Clock.monotonic()``)."""
        self._times.follow_clock(moment)
        name = self._names.find((source, group))
        self._times.lapse(name, moment)
        if decide(name.live, name.past, member).ready is not Guard.ACCEPTABLE:
            # The member itself tells why.
            return None
        if name.live is None:
            reason = self._names.reason_to_wait(name, member, moment)
            if reason is not None:
                return Refusal(FULL_RETRY_AFTER, reason)
            self._begin_after(name, member, through, moment, accepted_at)
            return None
        live = name.live
        expected, intervals = live.next_expected, len(live.received)
        live.received.merge(Intervals((0, through) if through else ()))
        self._names.lengthened(len(live.received) - intervals)
        for sequence in sorted(name.held):
            if expected <= sequence < live.next_expected:
                self._held.complete(name, sequence)
        return None

    def _begin_after(
        self, name: Name, member: GroupMember, through: int, moment: Moment, accepted_at: float
    ) -> None:
        self._names.leave(name)
        self._generation += 1
        name.live = GroupState(
            generation=self._generation,
            ordered=member.ordered,
            expires=member.expires,
            max_idle_seconds=member.max_idle_seconds,
            received=Intervals((0, through) if through else ()),
            received_at=accepted_at,
            relayed_at=moment.monotonic,
            window_until=accepted_at + self._window,
        )
        self._names.enter(name)
        self._times.arm(name, moment)

    def _note(
        self,
        name: Name,
        member: GroupMember,
        decision: Decision,
        *,
        at: float,
        expires: float | None,
        relayed_at: float | None,
    ) -> Taken:
        live = name.live
        if live is None:
            self._names.leave(name)
            self._generation += 1
        before = 0 if live is None else len(live.received) + len(live.passed)
        taken = take(
            live,
            member,
            decision,
            generation=self._generation,
            at=at,
            expires=expires,
            window=self._window,
            relayed_at=relayed_at,
        )
        if live is None:
            name.live = taken.state
            self._names.enter(name)
        else:
            self._names.lengthened(len(live.received) + len(live.passed) - before)
        return taken

    # Restart.

    def snapshot(self) -> bytes:
        """Return the state of all groups without held members (``JournalOwner.groups``)."""
        return encode_groups(
            self._generation,
            ((*name.key, name.states) for name in self._names),
            offset=self._offset,
        )

    def restore(
        self,
        snapshot: bytes | None,
        members: Sequence[GroupRecord],
        held: Sequence[Indication],
        *,
        offset: float,
    ) -> None:
        """Restore the groups of earlier runs as they would be now.

        ``members``: accepted since the snapshot; ``held``: in order of acceptance; ``offset``:
        ``Journal.offset``. Call it once, first, and :meth:`resume` afterwards: the journal takes a
        complete snapshot in between.
        """
        self._offset = offset
        if snapshot:
            self._generation, names = decode_groups(snapshot, offset=offset)
            for source, group, states in names:
                self._restore_name((source, group), states)
        # The run that accepted the later member has logged what ended before it.
        self._times.quiet = True
        for record in members:
            self._replay(record)
        self._times.quiet = False
        self._restore_held(held)
        moment = self._times.now()
        for name in list(self._names):
            self._names.leave(name)
            _forget_lost(name, moment)
            self._names.enter(name)

    def resume(self) -> None:
        """Do what was due when the earlier run ended, and what has become due since. Call it after
        :meth:`restore`, when the queues can release and discard."""
        overdue, self._overdue = self._overdue, []
        for indication, found in overdue:
            if found is Guard.COMPLETED:
                self._held.move_on(indication, found)
        self._held.discard_overdue(
            indication for indication, found in overdue if found is Guard.TERMINATED
        )
        self._queues.end_other_groups(
            {name.live.generation for name in self._names if name.live is not None}
        )
        self._times.catch_up()

    def _restore_name(self, key: Key, states: list[GroupState]) -> None:
        name = Name(key, past=[state for state in states if state.terminated is not None])
        name.live = next((state for state in states if state.terminated is None), None)
        self._names.enter(name)

    def _replay(self, record: GroupRecord) -> None:
        member = record.member
        wall = record.accepted_at + self._offset
        if member.expires is not None:
            # It was accepted, so its group had not expired, whatever the clocks say now.
            wall = min(wall, math.nextafter(member.expires, 0.0))
        moment, accepted = Moment(record.accepted_at, wall), None
        if record.relayed_at is not None:
            accepted = moment
            moment = Moment(record.relayed_at, record.relayed_at + self._offset)
        name = self._names.find((record.source, record.group))
        self._times.lapse(name, moment)
        # Only gateways got what was queued past a gap.
        passes_gaps = not record.held
        decision = self._decide(name, member, accepted, moment, passes_gaps=passes_gaps)
        if decision.ready is not Guard.ACCEPTABLE:
            # Damaged records have changed the group.
            return
        # Queue entries use the group's number of that time.
        self._generation = max(self._generation, record.run - 1)
        taken = self._note(
            name,
            member,
            decision,
            at=record.accepted_at,
            expires=record.expires,
            relayed_at=record.relayed_at,
        )
        if taken.termination is not None:
            self._times.terminate(name, taken.termination, moment)

    def _restore_held(self, held: Sequence[Indication]) -> None:
        """Hold again what still waits; move on what was completed or terminated but not settled."""
        completed: dict[Key, dict[int, Indication]] = {}
        for indication in held:
            member, group = indication.member, indication.group
            if member is None or group is None:
                self._overdue.append((indication, Guard.TERMINATED))
                continue
            name = self._names.find((indication.source, group))
            state = name.holder(member.sequence)
            if state is None:
                self._overdue.append((indication, Guard.TERMINATED))
            elif member.sequence < state.next_expected:
                completed.setdefault(name.key, {})[member.sequence] = indication
            elif state is name.live:
                self._held.hold(name, member.sequence, indication)
            else:
                self._overdue.append((indication, Guard.TERMINATED))
        for of_group in completed.values():
            for sequence in sorted(of_group):
                self._overdue.append((of_group[sequence], Guard.COMPLETED))


def _forget_lost(name: Name, moment: Moment) -> None:
    """Remove held members that are damaged or were never on disk: nothing is delivered past
    them."""
    live = name.live
    if live is not None and live.relayed_at is not None:
        # While this gateway was away nothing could arrive.
        live.relayed_at = moment.monotonic
    if live is None or not live.ordered:
        return
    following = due(live, moment)
    if following is not None and following.at <= moment.monotonic:
        # Its held members were discarded in the earlier run.
        return
    expected = live.next_expected
    received = Intervals((0, expected) if expected else ())
    for sequence in sorted(name.held):
        received.add(sequence)
    received.merge(live.passed)
    live.received = received
