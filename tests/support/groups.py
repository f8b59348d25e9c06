"""Message groups over scripted queues, with what a journal would keep of them."""

from collections.abc import Callable, Container, Sequence
from dataclasses import dataclass, replace

from pillion_sidecar.indication import (
    DiscardReason,
    GroupMember,
    Indication,
    Refusal,
    Relayed,
    Target,
)
from pillion_sidecar.journal.ports import GroupRecord
from pillion_sidecar.reliability.group_index import GroupLimits
from pillion_sidecar.reliability.group_rules import Decision, Moment
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.reliability.states import Guard
from pillion_sidecar.testing import FakeTime

WINDOW = 1000.0


class NotingQueues:
    """Takes indications over and notes what becomes of them, in order."""

    def __init__(self) -> None:
        #: (group, sequence) in the order of delivery, and of discards.
        self.delivered: list[tuple[str, int]] = []
        self.discarded: list[tuple[str, int]] = []
        self.held: dict[int, Indication] = {}
        self.refusal: Refusal | None = None
        #: ``group_run`` of the groups that have ended, and of those that go on after a restart.
        self.ended: list[int] = []
        self.lost: list[tuple[int, str]] = []
        self.gone_on: Container[int] = ()
        self._next = 1

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        if self.refusal is None:
            self._number(indication)
            self.delivered.append(_place(indication))
        return self.refusal

    def offer_all(
        self, indications: Sequence[Indication], targets: Sequence[Sequence[Target]]
    ) -> bool:
        """Let each be offered."""
        return False

    def hold(self, indication: Indication, targets: Sequence[Target]) -> Refusal | None:
        if self.refusal is None:
            self._number(indication)
            self.held[indication.id] = indication
        return self.refusal

    def have_ended(self, targets: Sequence[Target]) -> bool:
        return False

    def release(self, indication: Indication) -> None:
        del self.held[indication.id]
        self.delivered.append(_place(indication))

    def discard_held(self, indication: Indication, reason: DiscardReason) -> None:
        assert reason is DiscardReason.OUT_OF_ORDER
        del self.held[indication.id]
        self.discarded.append(_place(indication))

    def lose(self, indication: Indication, destination: str) -> None:
        self.lost.append((indication.group_run, destination))

    def end_group(self, run: int) -> None:
        self.ended.append(run)

    def end_other_groups(self, runs: Container[int]) -> None:
        self.gone_on = runs

    def barrier(self, done: Callable[[], None]) -> None:
        done()

    def _number(self, indication: Indication) -> None:
        indication.id = self._next
        self._next += 1


def _place(indication: Indication) -> tuple[str, int]:
    assert indication.group is not None
    assert indication.member is not None
    return indication.group, indication.member.sequence


@dataclass(frozen=True, slots=True)
class Accepted:
    """A member that was accepted, as a journal keeps it: the times are journal time."""

    record: GroupRecord

    def at(self, offset: float) -> GroupRecord:
        relayed_at = self.record.relayed_at
        return replace(
            self.record,
            accepted_at=self.record.accepted_at - offset,
            relayed_at=None if relayed_at is None else relayed_at - offset,
        )


class Bed:
    """One run of the groups; ``restarted`` gives the next one."""

    def __init__(
        self,
        *,
        time: FakeTime | None = None,
        queues: NotingQueues | None = None,
        limits: GroupLimits | None = None,
        window: float = WINDOW,
    ) -> None:
        self.time = time or FakeTime()
        self.queues = queues or NotingQueues()
        self.limits = limits
        self.window = window
        self.groups = Groups(
            clock=self.time,
            timers=self.time,
            queues=self.queues,
            window_seconds=window,
            limits=limits,
        )
        #: Journal time less monotonic; the epoch's seconds, as in a first run.
        self.offset = self.time.time() - self.time.monotonic()
        self.groups.restore(None, (), (), offset=self.offset)
        self.groups.resume()
        self.accepted: list[Accepted] = []
        #: Of the member that was submitted last.
        self.decision: Decision | None = None

    def moment(self) -> Moment:
        return Moment(self.time.monotonic(), self.time.time())

    def submit(
        self,
        sequence: int,
        *,
        group: str = "g",
        last: bool = False,
        ordered: bool = False,
        expires_in: float | None = None,
        group_expires: float | None = None,
        idle: float | None = None,
        body: bytes = b"{}",
        relayed_after: float | None = None,
        passes_gaps: bool = False,
        source: str = "s",
        namespace: str | None = None,
    ) -> Guard:
        """Have a member accepted, as intake does; return what was found out about it.

        ``expires_in`` counts from its acceptance; ``group_expires`` is a date. ``relayed_after``:
        it is relayed now by a sidecar that accepted it so many seconds ago.
        """
        moment = accepted = self.moment()
        if relayed_after is not None:
            accepted = Moment(moment.monotonic - relayed_after, moment.wall - relayed_after)
        member = GroupMember(sequence, last, ordered, group_expires, idle)
        expires = None if expires_in is None else accepted.wall + expires_in
        examined = self.groups.examine(
            source=source,
            group=group,
            member=member,
            size=len(body),
            moment=moment,
            accepted=None if relayed_after is None else accepted,
            passes_gaps=passes_gaps,
            namespace=namespace,
        )
        self.decision = decision = examined.decision
        if decision.ready is not Guard.ACCEPTABLE:
            return decision.ready
        indication = Indication(
            body=body,
            class_name="C",
            accepted_at=accepted.monotonic,
            source=source,
            group=group,
            member=member,
            expires=expires,
            relayed=None
            if relayed_after is None
            else Relayed(moment.monotonic, moment.wall + self.window),
        )
        if self.groups.take(examined, indication, ()) is not None:
            return Guard.NO_ROOM
        self.accepted.append(
            Accepted(
                GroupRecord(
                    id=indication.id,
                    source=source,
                    group=group,
                    member=member,
                    accepted_at=accepted.monotonic + self.offset,
                    expires=expires,
                    relayed_at=None if relayed_after is None else moment.monotonic + self.offset,
                    held=decision.process is not Guard.IN_SEQUENCE,
                )
            )
        )
        self.groups.proceed(examined)
        assert decision.process is not None
        return decision.process

    def restarted(
        self, snapshot: bytes | None, members: Sequence[Accepted], *, down: float
    ) -> "Bed":
        """Return the run that follows after ``down`` seconds, on another monotonic clock."""
        now = self.time.time() + down
        following = Bed.__new__(Bed)
        following.time = FakeTime(now=50.0, epoch=now)
        following.queues = self.queues
        following.limits = self.limits
        following.window = self.window
        following.offset = now - 50.0
        following.accepted = list(self.accepted)
        following.decision = None
        following.groups = Groups(
            clock=following.time,
            timers=following.time,
            queues=self.queues,
            window_seconds=self.window,
            limits=self.limits,
        )
        following.groups.restore(
            snapshot,
            [member.at(following.offset) for member in members],
            list(self.queues.held.values()),
            offset=following.offset,
        )
        following.groups.resume()
        return following
