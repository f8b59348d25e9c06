"""What a writer knows of its stores: what each has, and which of them respond and count."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from pillion_sidecar.clock import Timer
from pillion_sidecar.stores.copies import (
    Copy,
    Epoch,
    Extent,
    FencedError,
    bytes_between,
    common_end,
    end_of,
    meeting_point,
)
from pillion_sidecar.stores.doubts import Doubts
from pillion_sidecar.stores.quorum import (
    Membership,
    consensus_position,
    is_viable,
    stable_end,
)

#: The reason of a store that was not heard of yet.
NO_ANSWER = "no answer yet"
#: Of one in doubt.
LOST = "it has lost its copy, and counts once the other stores have answered"


@dataclass(frozen=True, slots=True, kw_only=True)
class MemberStatus:
    store: str
    #: Whether it did what it was last asked for.
    is_up: bool
    #: Bytes of the log that it does not have.
    behind: int
    #: Why its last request failed.
    problem: str | None


@dataclass(slots=True, eq=False)
class Member:
    name: str
    #: What it had by its last answer.
    copy: Copy
    #: Whether it has claimed, and nothing went wrong since.
    is_known: bool
    is_fenced: bool = False
    is_asked: bool = False
    #: Whether it is asked, or was asked last, what it has.
    is_claimed: bool = False
    #: Whether it was asked something since the last probe.
    was_asked: bool = True
    #: Whether it was told of as one that does not respond.
    is_missing: bool = False
    #: When it was last asked (``Lease.now``).
    sent_at: float = 0.0
    failures: int = 0
    #: Why its last request failed.
    problem: str | None = None
    timer: Timer | None = None
    #: Runs since its last answer; bytes that come meanwhile are gathered.
    gathering: Timer | None = None


class Members:
    def __init__(
        self, membership: Membership, *, epoch: Epoch, answers: Mapping[str, Copy]
    ) -> None:
        """``answers``: the copies that the claim of ``epoch`` was told of."""
        self._membership, self._epoch = membership, epoch
        self._members = {
            name: Member(name, answers.get(name, Copy()), is_known=name in answers)
            for name in membership.stores
        }
        self._doubts = Doubts(membership)
        #: What the first fenced store said.
        self._fence: FencedError | None = None

    def __iter__(self) -> Iterator[Member]:
        return iter(self._members.values())

    # ------------------------------------------------------------------ answers

    def take_copy(self, member: Member, copy: Copy, log: Sequence[Extent]) -> None:
        member.copy, member.is_known = copy, True
        if not member.is_claimed or not self.lacks(member, log):
            # One without room takes claims, and refuses all that follows.
            member.failures, member.problem = 0, None
        self._doubts.take_answer(member.name)

    def drop_answer(self, member: Member) -> None:
        """It has refused its last request, or not answered it."""
        self._doubts.drop_answer(member.name)

    def forgets(self, member: Member, copy: Copy) -> bool:
        """Whether a copy that it tells of shows that it has lost what it had."""
        return member.copy.written == self._epoch != copy.written

    def doubt(self, member: Member) -> None:
        """It has forgotten who may write."""
        self._doubts.add(member.name, asked=[one.name for one in self if one.is_asked])

    def counts(self, member: Member) -> bool:
        return member.name not in self._doubts

    def fence(self, member: Member, error: FencedError) -> None:
        member.is_fenced, member.is_known = True, False
        member.problem = str(error)
        self._fence = self._fence or error

    @property
    def end(self) -> FencedError | None:
        """What ends the writer: the stores that still take its bytes are too few. A claim that too
        few stores have heard of ends nothing: it waits for more."""
        left = [one.name for one in self if not one.is_fenced and self.counts(one)]
        return None if is_viable(self._membership, left) else self._fence

    # ------------------------------------------------------------------ what is known

    @property
    def responsive(self) -> set[str]:
        return {one.name for one in self if one.is_known and self.counts(one)}

    @property
    def missed(self) -> tuple[str, ...]:
        """The stores without which nothing becomes stable; empty if enough respond."""
        responsive = self.responsive
        if is_viable(self._membership, responsive):
            return ()
        return tuple(one.name for one in self if one.name not in responsive)

    @property
    def stable_end(self) -> int:
        """The position below which all is stable."""
        copies = {
            one.name: one.copy
            for one in self
            if one.copy.written == self._epoch and self.counts(one)
        }
        return stable_end(self._membership, copies, self.responsive)

    @property
    def meeting_point(self) -> int:
        return meeting_point([one.copy for one in self], self._epoch)

    def lacks(self, member: Member, log: Sequence[Extent]) -> bool:
        """Whether it does not have all of the log."""
        return member.copy.written != self._epoch or member.copy.end < end_of(log)

    def unannounced(self, log: Sequence[Extent]) -> int:
        """Bytes of the log behind the position that is announced for the stores."""
        known = {one.name: self._shared_end(one.copy, log) for one in self if one.is_known}
        return bytes_between(log, consensus_position(self._membership, known), end_of(log))

    def _shared_end(self, copy: Copy, log: Sequence[Extent]) -> int:
        return copy.end if copy.written == self._epoch else common_end(copy.extents, log)

    # ------------------------------------------------------------------ what is told

    def problem(self, member: Member) -> str | None:
        return LOST if member.is_known and not self.counts(member) else member.problem

    @property
    def problems(self) -> Mapping[str, str]:
        """By store."""
        told = ((one.name, self.problem(one)) for one in self)
        return {name: problem for name, problem in told if problem is not None}

    def told(self, name: str) -> str:
        problem = self.problem(self._members[name])
        return name if problem is None else f"{name} ({problem})"

    def statuses(self, log: Sequence[Extent]) -> list[MemberStatus]:
        return [
            MemberStatus(
                store=one.name,
                is_up=one.is_known,
                behind=bytes_between(log, self._shared_end(one.copy, log), end_of(log)),
                problem=self.problem(one),
            )
            for one in self
        ]
