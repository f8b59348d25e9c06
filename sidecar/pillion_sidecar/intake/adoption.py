"""What a deliverer that is gone left pending, sent through this gateway's own relay door, as that
deliverer's hand-over would have sent it.

Order, identity, lifetime and subscriptions are so judged as for any sidecar. A line may repeat what
its listener has, and says so.
"""

import asyncio
from array import array
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import NamedTuple, Protocol, TypeAlias

from pillion_sidecar.clock import Timers
from pillion_sidecar.handlers.relay import MOST_LINES
from pillion_sidecar.indication import Indication, Refusal
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext, IntakeObserver
from pillion_sidecar.intake.parameters import RelayMarks
from pillion_sidecar.intake.relay import RelaySubmission, relayed_group
from pillion_sidecar.intake.submission import WRONG
from pillion_sidecar.reliability.group_rules import Moment
from pillion_sidecar.trace_context import TraceContext

#: Seconds before refused lines are offered again, at least.
RETRY_SECONDS = 1.0
#: Seconds for which a destination waits for a subscription that the gateway does not know.
UNKNOWN_SECONDS = 60.0
#: Seconds between two attempts for what is left of such subscriptions, and how many there are.
LEFT_SECONDS = 30.0
MOST_ROUNDS = 3
#: Subscriptions that a reason names.
_MOST_NAMED = 10
#: The kind under which intake counts the lines.
KIND = "relay"
#: Reads lines away from the event loop.
InThread: TypeAlias = Callable[[Callable[[], list["Line"]]], Awaitable[list["Line"]]]
#: Of lines that are not sent.
NOTHING = b""


class StoppedError(Exception):
    """The gateway stops; its next run begins anew."""


class GaveUpError(Exception):
    """What is left waits, and others want the turn."""


class UnknownSubscriptions(NamedTuple):
    """All that is left is for subscriptions that this gateway does not know."""

    reason: str
    #: Their uids.
    subscriptions: frozenset[str]


class UnknownSubscriptionsError(Exception):
    def __init__(self, unknown: UnknownSubscriptions) -> None:
        super().__init__(unknown.reason)
        self.unknown = unknown


class HeldMember(NamedTuple):
    """What waits for members of its group."""

    indication: Indication
    #: All members of the group below it were queued.
    through: int
    #: Seconds since the epoch.
    accepted_at: float


class Line(NamedTuple):
    #: Empty: it is not sent.
    text: bytes
    #: Uid and name of the subscription.
    subscription: str
    name: str
    trace: TraceContext | None = None
    held: HeldMember | None = None


@dataclass(slots=True, kw_only=True)
class Progress:
    """Of the queue of one destination. A destination that was made again has two."""

    #: Of the destination.
    name: str
    pending: int
    taken: int = 0
    #: Those that the gateway had already.
    duplicate: int = 0
    #: Refused for good, unreadable, or behind a lost member of their group.
    refused: int = 0
    #: Why the rest waits.
    problem: str | None = None
    _told: dict[str, int] = field(default_factory=dict)

    def news(self) -> Mapping[str, int]:
        """Return what came since the last call, by result."""
        now = {"taken": self.taken, "duplicate": self.duplicate, "refused": self.refused}
        before, self._told = self._told, now
        return {result: count - before.get(result, 0) for result, count in now.items()}


class Unsent(NamedTuple):
    """What an attempt has left of one queue."""

    #: Of the queue.
    size: int
    #: In order.
    entries: Sequence[int]
    progress: Progress


class AdoptedQueue(Protocol):
    """The pending indications of one destination, in order."""

    @property
    def name(self) -> str: ...

    @property
    def size(self) -> int: ...

    def lines(self, entries: Sequence[int]) -> list[Line]:
        """Blocks; raises OSError."""


@dataclass(slots=True, eq=False)
class _Course:
    queue: AdoptedQueue
    progress: Progress
    #: Entries that are to be sent, in order.
    entries: Sequence[int]
    at: int = 0
    #: ``Clock.monotonic()``.
    due: float = 0.0
    #: Since when the gateway does not know the subscription of the next line, and seconds for
    #: which it waits for that.
    unknown_since: float | None = None
    patience: float = UNKNOWN_SECONDS
    #: How often what is left of such subscriptions was begun with.
    rounds: int = 0
    #: Uids and names of subscriptions that it does not know, and entries for them.
    unknown: dict[str, str] = field(default_factory=dict)
    left: list[int] = field(default_factory=list)
    #: Those of the round before.
    missed: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_done(self) -> bool:
        return self.at == len(self.entries)

    def unsent(self) -> Unsent:
        rest = self.entries[self.at :]
        # Most have a range alone.
        entries = array("I", sorted([*self.left, *rest])) if self.left else rest
        return Unsent(self.queue.size, entries, self.progress)


class AdoptionSender:
    """Sends until all is taken. Each destination keeps its order, and waits for no other."""

    def __init__(
        self,
        queues: Sequence[AdoptedQueue],
        *,
        context: IntakeContext,
        decoder: LineDecoder,
        namespace: str | None,
        timers: Timers,
        observer: IntakeObserver,
        refused: Callable[[str, str], None],
        unsent: Sequence[Unsent] = (),
        gives_up: Callable[[float], bool] = lambda _: False,
        in_thread: InThread = asyncio.to_thread,
    ) -> None:
        """``namespace``: the gateway's own; None without tokens. ``refused`` is told destination
        and reason of each line that is refused for good. ``unsent``: what an earlier attempt with
        these queues has left. ``gives_up`` gets the seconds for which nothing went on."""
        self._context = context
        self._decoder = decoder
        self._namespace = namespace
        self._timers = timers
        self._observer = observer
        self._refused = refused
        self._gives_up = gives_up
        self._in_thread = in_thread
        if [one.size for one in unsent] != [queue.size for queue in queues]:
            unsent = [_all_of(queue) for queue in queues]
        self._courses = [
            _Course(queue, one.progress, one.entries)
            for queue, one in zip(queues, unsent, strict=True)
        ]
        #: When something was taken or refused for good.
        self._went_on_at = context.clock.monotonic()
        self.progress: Sequence[Progress] = [course.progress for course in self._courses]

    @property
    def unsent(self) -> Sequence[Unsent]:
        """For another attempt."""
        return [course.unsent() for course in self._courses]

    async def send(self) -> None:
        """Return once all is taken, and on disk where the gateway has one.

        Raises StoppedError, GaveUpError, UnknownSubscriptionsError, and OSError: the copy cannot
        be read.
        """
        while left := [one for one in self._courses if not one.is_done]:
            if all(one.rounds > MOST_ROUNDS for one in left):
                raise _unknown(left)
            now = self._context.clock.monotonic()
            due = [one for one in left if one.due <= now]
            if not due:
                if self._gives_up(now - self._went_on_at):
                    raise GaveUpError
                await self._wait_until(min(one.due for one in left))
            for course in due:
                await self._advance(course)
        secured = asyncio.Event()
        self._context.queues.barrier(secured.set)
        await secured.wait()

    async def _wait_until(self, due: float) -> None:
        woken = asyncio.Event()
        timer = self._timers.call_at(due, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    async def _advance(self, course: _Course) -> None:
        entries = course.entries[course.at : course.at + MOST_LINES]
        lines = await self._in_thread(partial(course.queue.lines, entries))
        if self._context.closing is not None:
            raise StoppedError(self._context.closing)
        lines, full = self._begin_groups(lines)
        sent = [NOTHING if one.subscription in course.unknown else one.text for one in lines]
        submission = RelaySubmission(
            context=self._context,
            namespace=self._namespace,
            marks=RelayMarks(
                frozenset(range(len(lines))),
                {at: one.trace for at, one in enumerate(lines) if one.trace is not None},
            ),
        )
        try:
            self._decoder.submit(sent, first=0, submission=submission)
        finally:
            submission.close()
            submission.report(self._observer, KIND)
        self._note(course, entries, lines, submission)
        if full is not None and submission.misses_subscription is False:
            course.progress.problem = full.reason
            course.due = self._context.clock.monotonic() + max(RETRY_SECONDS, full.retry_after)

    def _begin_groups(self, lines: list[Line]) -> tuple[list[Line], Refusal | None]:
        """Note what the groups of held members had; return the lines before the first for whose
        group there is no room."""
        moment = Moment(self._context.clock.monotonic(), self._context.clock.time())
        for at, line in enumerate(lines):
            if line.held is None or not line.text:
                continue
            indication, through, accepted_at = line.held
            member, group = indication.member, indication.group
            if member is None or group is None:
                continue
            refusal = self._context.groups.note_before(
                source=indication.source,
                group=relayed_group(self._namespace, line.subscription, group),
                member=member,
                through=through,
                moment=moment,
                accepted_at=moment.of_date(accepted_at),
            )
            if refusal is not None:
                return lines[:at], refusal
        return lines, None

    def _note(
        self,
        course: _Course,
        entries: Sequence[int],
        lines: Sequence[Line],
        submission: RelaySubmission,
    ) -> None:
        progress, now = course.progress, self._context.clock.monotonic()
        wrong = [one for one in submission.refused if one.status == WRONG]
        stop = next((one for one in submission.refused if one.status != WRONG), None)
        through = len(lines) if stop is None else stop.line
        skipped = 0
        for entry, line in zip(entries[:through], lines, strict=False):
            if line.subscription in course.unknown:
                course.left.append(entry)
            elif not line.text:
                skipped += 1
        for one in wrong:
            self._refused(course.queue.name, one.reason)
        progress.taken += submission.accepted
        progress.duplicate += submission.duplicate
        progress.refused += len(wrong) + skipped
        settled = submission.accepted + submission.duplicate + len(wrong) + skipped
        progress.pending -= settled
        course.at += through
        if settled:
            self._went_on_at, course.rounds = now, 0
        if stop is None:
            course.unknown_since = progress.problem = None
        else:
            progress.problem = stop.reason
            course.due = now + max(RETRY_SECONDS, submission.retry_after)
            self._wait_for_subscription(course, lines[through], submission, now)
        if course.is_done and course.left:
            self._begin_with_left(course, now)

    def _wait_for_subscription(
        self, course: _Course, line: Line, submission: RelaySubmission, now: float
    ) -> None:
        """Its configuration may be on its way. If not, the other subscriptions do not wait."""
        if not submission.misses_subscription:
            course.unknown_since = None
            return
        if course.unknown_since is None:
            course.unknown_since = now
        if now - course.unknown_since >= course.patience:
            course.unknown[line.subscription] = line.name
            # What comes at all would be here by now.
            course.unknown_since, course.patience, course.due = None, 0.0, now

    def _begin_with_left(self, course: _Course, now: float) -> None:
        course.missed = dict(course.unknown)
        course.progress.problem = _unknown_reason(len(course.left), course.missed)
        course.entries, course.left, course.at = course.left, [], 0
        course.unknown.clear()
        course.rounds += 1
        course.due = now + LEFT_SECONDS


def _all_of(queue: AdoptedQueue) -> Unsent:
    return Unsent(queue.size, range(queue.size), Progress(name=queue.name, pending=queue.size))


def _unknown(courses: Sequence[_Course]) -> UnknownSubscriptionsError:
    missed = {uid: name for one in courses for uid, name in one.missed.items()}
    count = sum(len(one.entries) for one in courses)
    reason = f"{_unknown_reason(count, missed)}; create them again to have it delivered"
    return UnknownSubscriptionsError(UnknownSubscriptions(reason, frozenset(missed)))


def _unknown_reason(count: int, missed: Mapping[str, str]) -> str:
    names = sorted(missed.values())
    more = f" and {len(names) - _MOST_NAMED} more" if len(names) > _MOST_NAMED else ""
    return (
        f"{count} are for subscriptions that this gateway does not know:"
        f" {', '.join(names[:_MOST_NAMED])}{more}"
    )
