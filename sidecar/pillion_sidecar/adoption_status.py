"""How far one adoption is, and what its attempts leave to the next one."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from pillion_sidecar.config.problems import one_line
from pillion_sidecar.intake.adoption import Progress, UnknownSubscriptions, Unsent
from pillion_sidecar.stores.copies import Copy, Epoch
from pillion_sidecar.stores.quorum import Membership
from pillion_sidecar.wire.adoptions import (
    MOST_DESTINATIONS,
    MOST_MISSING,
    AdoptedPlace,
    AdoptionOrder,
    AdoptionStatus,
)

_LONGEST_PROBLEM = 300


class State(StrEnum):
    WAITING = "Waiting"
    CLAIMING = "Claiming"
    READING = "Reading"
    SENDING = "Sending"
    RELEASING = "Releasing"
    DONE = "Done"
    FAILED = "Failed"


ENDED = (State.DONE, State.FAILED)


class LogEnd(NamedTuple):
    """Tells one log from another: nobody writes it any more."""

    written: Epoch
    end: int

    @classmethod
    def of(cls, copy: Copy) -> "LogEnd":
        return cls(copy.written, copy.end)


NOTHING = LogEnd.of(Copy())


@dataclass(frozen=True, slots=True, kw_only=True)
class Unfinished:
    """What an attempt has left, so that the next one repeats nothing."""

    log: LogEnd
    unsent: Sequence[Unsent]
    #: None: other things are left, too.
    unknown: UnknownSubscriptions | None = None


@dataclass(slots=True, eq=False)
class Adoption:
    order: AdoptionOrder
    membership: Membership
    state: State = State.WAITING
    problem: str | None = None
    missing: tuple[str, ...] = ()
    #: Since when it waits for stores, on the gateway's clock; None: it does not.
    waits_since: float | None = None
    #: One for each queue.
    progress: Sequence[Progress] = ()
    unfinished: Unfinished | None = None
    #: The log that was claimed.
    log: LogEnd = NOTHING
    #: Bytes of its copy on this gateway's disk.
    room: int = 0
    #: Lines that were refused for good, by destination and reason.
    told: set[tuple[str, str]] = field(default_factory=set)
    #: Stores that may keep the session although it is done, and why.
    left: Mapping[str, str] = field(default_factory=dict)
    #: On the gateway's clock; None: it has not ended.
    ended_at: float | None = None

    def wait(self, missed: Sequence[str], problems: Mapping[str, str], *, now: float) -> None:
        self.missing = tuple(missed)
        told = "; ".join(f"{name}: {problem}" for name, problem in sorted(problems.items()))
        self.problem = f"it waits for stores: {told}"
        if self.waits_since is None:
            self.waits_since = now

    def hear(self) -> None:
        """A store has answered what it was waited for."""
        if self.waits_since is not None:
            self.problem, self.missing, self.waits_since = None, (), None

    def go_on(self, state: State) -> None:
        self.state, self.problem, self.missing, self.waits_since = state, None, (), None

    def unsent_of(self, log: LogEnd) -> Sequence[Unsent]:
        """What an earlier attempt has left of the same log."""
        before = self.unfinished
        return () if before is None or before.log != log else before.unsent

    def status(self, now: float, *, most: int = MOST_DESTINATIONS) -> AdoptionStatus:
        """``now``: on the gateway's clock; ``most``: destinations."""
        progress, ended_at = self.progress, self.ended_at
        left = _by_destination(progress)
        problem = self.problem or next((one.problem for one in left if one.problem), None)
        if self.state is State.DONE and self.left:
            problem = _kept(self.left)
        return AdoptionStatus(
            session=self.order.session,
            service=self.order.service,
            state=self.state.value,
            problem=None if problem is None else one_line(problem, _LONGEST_PROBLEM),
            ended_seconds=None if ended_at is None else round(now - ended_at, 3),
            missing=list(self.missing[:MOST_MISSING]),
            pending=sum(one.pending for one in left),
            taken=sum(one.taken for one in progress),
            duplicate=sum(one.duplicate for one in progress),
            refused=sum(one.refused for one in progress),
            destinations=left[:most],
        )


def _by_destination(progress: Iterable[Progress]) -> list[AdoptedPlace]:
    """Those with the most pending first."""
    found: dict[str, tuple[int, str | None]] = {}
    for one in progress:
        if one.pending:
            pending, problem = found.get(one.name, (0, None))
            found[one.name] = pending + one.pending, problem or one.problem
    return [
        AdoptedPlace(
            name=name,
            pending=pending,
            problem=None if problem is None else one_line(problem, _LONGEST_PROBLEM),
        )
        for name, (pending, problem) in sorted(found.items(), key=lambda one: (-one[1][0], one[0]))
    ]


def _kept(left: Mapping[str, str]) -> str:
    named = "; ".join(f"{name}: {reason}" for name, reason in sorted(left.items()))
    return f"stores keep the session, since they could not be asked: {named}"
