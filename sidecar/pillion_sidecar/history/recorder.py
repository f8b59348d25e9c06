"""The history of a running deliverer, on the event loop: in memory until it has files."""

import asyncio
import logging
import secrets
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path

import msgspec

from pillion_sidecar.clock import Clock, Timer, Timers
from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.history.blocks import HEADER_BYTES, decode, encode_blocks, header_of
from pillion_sidecar.history.damage import Damage, damage_in
from pillion_sidecar.history.discards import read_discards
from pillion_sidecar.history.files import (
    AGE_PARTS,
    HistoryFiles,
    NotKept,
    Opened,
    Segment,
    outlasts,
    segments_of,
)
from pillion_sidecar.history.missed import REACHED, Digest, missed_by
from pillion_sidecar.history.outcome import (
    FAULTS,
    Discard,
    Numbered,
    Outcome,
    OutcomeQuery,
    OutcomeResult,
)
from pillion_sidecar.history.reading import (
    Kept,
    Oldest,
    Page,
    count,
    last_in,
    read_all,
    read_last_page,
    read_oldest,
    read_page,
)
from pillion_sidecar.journal.ports import Worker

logger = logging.getLogger("pillion.history")

#: Bytes kept in memory without a folder.
MEMORY_BYTES = 4 << 20
#: Bytes that may wait to be written; outcomes beyond are only counted.
WAITING_BYTES = 4 << 20
#: Bytes of an outcome without body, for the bound of what waits.
OUTCOME_BYTES = 500
#: Outcomes in memory that are encoded together.
TOGETHER = 64
#: Publishers whose removed faults are counted; beyond these all discards are.
MOST_COUNTED = 10_000
#: Seconds after which outcomes are written if there is no journal.
WRITE_SECONDS = 0.05
#: Seconds after which what the disk did not take is written again.
RETRY_SECONDS = 1.0
#: Seconds between two removals of what is too old.
EXPIRY_SECONDS = 600.0
_WITH_BODY = {
    HistoryBodies.ALL: frozenset(OutcomeResult),
    HistoryBodies.DISCARDED: frozenset((OutcomeResult.DISCARDED,)),
    HistoryBodies.NONE: frozenset[OutcomeResult](),
}


class History:
    """Numbers the outcomes, and keeps them for a while."""

    def __init__(self, *, clock: Clock, timers: Timers, memory_bytes: int = MEMORY_BYTES) -> None:
        self._clock = clock
        self._timers = timers
        self._memory_bytes = memory_bytes
        self._policy = HistoryPolicy()
        self._with_body = _WITH_BODY[self._policy.bodies]
        #: Changes where numbers begin anew.
        self.id = secrets.token_hex(8)
        #: The number of the last outcome that is settled: what is asked ends here.
        self.settled = self._committed = 0
        self._next = 1
        #: What waits to be written, or to be encoded, and the number of its first outcome.
        self._waiting: list[Outcome] = []
        #: What the worker was given and has not written, and the number of its first outcome.
        self._writing: list[Outcome] = []
        self._writing_first = 1
        self._writing_bytes = 0
        #: To be called once the worker has written.
        self._awaiting: list[Callable[[], None]] = []
        self._first = 1
        self._waiting_bytes = 0
        #: Blocks in memory.
        self._kept: deque[bytes] = deque()
        self._kept_bytes = 0
        self._files: HistoryFiles | None = None
        self._worker: Worker | None = None
        #: For the next removal of what is too old.
        self._expiry: Timer | None = None
        self._folder: Path | None = None
        self._is_due = self._is_retry_due = False
        #: Why the disk did not take the last outcomes; None: it did.
        self.trouble: str | None = None
        #: Outcomes that were never written, since the disk took none.
        self._left_out = 0
        #: Discards that are not kept: those that no file took, and those that were removed from
        #: memory.
        self._unkept_discards = self._unkept_through = 0
        #: By publisher those that were removed from memory, as long as no others are not kept.
        self._unkept_of: Counter[str] = Counter()
        self._is_unkept_known = True
        self._told = 0
        self._waiters: set[asyncio.Event] = set()
        # None without a journal.
        self._commit: Callable[[], None] | None = None

    def configure(self, policy: HistoryPolicy, *, size: int) -> None:
        """``size``: bytes of all files."""
        self._policy, self._with_body = policy, _WITH_BODY[policy.bodies]
        files, worker = self._files, self._worker
        if files is not None and worker is not None:
            worker.submit(partial(files.limit, size, policy.maximum_age_seconds), _done, _done)
            self._expire()

    def use(
        self,
        files: HistoryFiles,
        opened: Opened,
        folder: Path,
        *,
        worker: Worker,
        commit: Callable[[], None] | None,
    ) -> None:
        """Write into files from now on, in the thread of ``worker``.

        ``commit`` has the journal commit soon, which calls :meth:`write` first. Nothing else may be
        written before a commit, or a crash would leave more than a start checks. None without a
        journal.
        """
        self._files, self._folder, self._worker = files, folder, worker
        self._commit, self._told = commit, files.removed_discards
        self.id = opened.id
        self._next = self._first = opened.next_number
        self.settled = opened.next_number - 1
        self._expire()
        worker.submit(partial(segments_of, folder), self._look_for_damage, _done)

    def _look_for_damage(self, left: Sequence[Segment]) -> None:
        """Read one segment after the other; commits come in between."""
        if not left or self._worker is None:
            return
        segment, *others = left
        look = partial(damage_in, segment, is_newest=not others)
        # It may have been removed meanwhile.
        then = partial(self._look_for_damage, others)
        self._worker.submit(look, partial(self._found_damage, then), lambda _: then())

    def _found_damage(self, then: Callable[[], None], found: Sequence[Damage]) -> None:
        for one in found:
            if one.discards:
                self._unkept_discards += one.discards
                self._told += one.discards
                self._unkept_through = max(self._unkept_through, one.following - 1)
                self._is_unkept_known = False
            logger.warning(
                "the history is damaged: %s: %d bytes from byte %d on cannot be read; at most %d "
                "discards are lost with them",
                one.file,
                one.size,
                one.begin,
                one.discards,
                extra={
                    "event": "history-damaged",
                    "file": one.file,
                    "begin": one.begin,
                    "size": one.size,
                    "discards": one.discards,
                },
            )
        then()

    # ------------------------------------------------------------------ what is added

    @property
    def is_on_disk(self) -> bool:
        return self._files is not None

    def keeps_body(self, result: OutcomeResult) -> bool:
        return result in self._with_body

    @property
    def is_behind(self) -> bool:
        """Whether so much waits for the disk that more is to come only :meth:`once_written`."""
        # A disk in trouble is not waited for.
        is_written = self._files is not None and self.trouble is None
        return is_written and self._waiting_bytes + self._writing_bytes > WAITING_BYTES // 2

    def once_written(self, then: Callable[[], None]) -> None:
        self._awaiting.append(then)

    def commit(self) -> None:
        """Have what waits written soon."""
        if self._commit is not None:
            self._commit()

    async def wait_for_room(self) -> None:
        """Return once more may be added."""
        if self.is_behind:
            self.commit()
            written = asyncio.Event()
            self.once_written(written.set)
            await written.wait()

    def add(self, outcome: Outcome) -> None:
        size, waiting = _size(outcome), self._waiting_bytes + self._writing_bytes
        if self._files is not None and waiting + size > WAITING_BYTES:
            # The body first, and the outcome only if the disk does not take them for long.
            outcome, size = msgspec.structs.replace(outcome, body=None), OUTCOME_BYTES
            is_last = self.trouble is None or outlasts(outcome)
            if waiting + size > (2 if is_last else 1) * WAITING_BYTES:
                self._leave_out(outcome)
                return
        if not self._waiting:
            self._first = self._next
        self._next += 1
        self._waiting.append(outcome)
        self._waiting_bytes += size
        if self._files is None:
            self.settled = self._next - 1
            if len(self._waiting) >= TOGETHER or self._waiting_bytes > self._memory_bytes:
                self._keep_in_memory()
            if self._waiters:
                self._wake()
        elif self._commit is None and not self._is_due:
            self._is_due = True
            self._timers.call_later(WRITE_SECONDS, self._write_due)

    def _leave_out(self, outcome: Outcome) -> None:
        self._left_out += 1
        if outcome.result in FAULTS:
            self._unkept_discards += 1
            self._unkept_through = self._next
            self._is_unkept_known = False

    def _keep_in_memory(self) -> None:
        for block in encode_blocks(self._first, self._waiting):
            self._kept.append(block)
            self._kept_bytes += len(block)
        self._waiting, self._waiting_bytes = [], 0
        while self._kept_bytes > self._memory_bytes:
            oldest = self._kept.popleft()
            self._kept_bytes -= len(oldest)
            header = header_of(oldest)
            if header is not None and header.discards:
                self._unkept_discards += header.discards
                self._unkept_through = header.following - 1
                self._count_unkept(decode(header, oldest[HEADER_BYTES:]) or ())

    def _count_unkept(self, outcomes: Iterable[Numbered]) -> None:
        for _, one in outcomes:
            if one.publisher is not None and one.result in FAULTS:
                self._unkept_of[one.publisher] += 1
        if len(self._unkept_of) > MOST_COUNTED:
            self._is_unkept_known = False
            self._unkept_of.clear()

    def _write_due(self) -> None:
        self._is_due = False
        if self._writing:
            # One at a time, so that what waits is bounded.
            self._is_due = True
            self._timers.call_later(WRITE_SECONDS, self._write_due)
            return
        settled = self.write()
        if settled is not None and self._worker is not None:
            self._worker.submit(int, lambda _: settled(), _done)

    # ------------------------------------------------------------------ what is written

    def write(self) -> Callable[[], None] | None:
        """Submit what waits, before anything submitted to the worker later. Return what to call
        once it is settled; None if nothing waits."""
        if self._files is None or self._worker is None or not self._waiting:
            return None
        # While a retry is under way, they wait for the next.
        if not self._writing:
            self._submit(len(self._waiting))
        return partial(self._settle, self._next - 1)

    def _submit(self, most: int, *, displaces: bool = False) -> None:
        """Have the first ``most`` of what waits written."""
        assert self._files is not None
        assert self._worker is not None
        first, outcomes = self._first, self._waiting[:most]
        # What is in memory only has its bounds.
        is_much = self._waiting_bytes > WAITING_BYTES // 2
        self._writing, self._writing_first = outcomes, first
        self._writing_bytes = sum(map(_size, outcomes))
        self._waiting, self._first = self._waiting[most:], first + len(outcomes)
        self._waiting_bytes -= self._writing_bytes
        displaces = displaces or (self.trouble is not None and is_much)
        write = partial(self._files.append, first, outcomes, displaces=displaces)
        self._worker.submit(write, self._written, self._not_written)

    def _settle(self, number: int) -> None:
        self._committed = self.settled = max(self._committed, number)
        if self._waiting and self._first <= self._committed:
            self._retry_later()
        self._wake()

    def _retry_later(self) -> None:
        if not self._is_retry_due and self._files is not None:
            self._is_retry_due = True
            self._timers.call_later(RETRY_SECONDS, self._retry)

    def _retry(self) -> None:
        """Write what the journal has settled without the history; there may be no other commit."""
        self._is_retry_due = False
        if self._files is None or not self._waiting:
            return
        if settled := max(0, self._committed + 1 - self._first):
            if self._writing:
                self._retry_later()
            else:
                self._submit(settled)

    def _go_on(self) -> None:
        self._writing, self._writing_bytes = [], 0
        awaiting, self._awaiting = self._awaiting, []
        for then in awaiting:
            then()

    def _written(self, _: None) -> None:
        self.trouble = None
        self._go_on()
        if self.unkept_discards > self._told:
            self._told = self.unkept_discards
            logger.warning(
                "%d discards are not in the history any more",
                self.unkept_discards,
                extra={"event": "discards-not-listed", "unlisted": self.unkept_discards},
            )

    def _not_written(self, error: OSError) -> None:
        # The journal settles them without the history. A full disk may have space next time.
        if isinstance(error, NotKept):
            self._waiting[:0] = error.outcomes
            self._first = error.first
            self._waiting_bytes += sum(map(_size, error.outcomes))
        is_new, self.trouble = self.trouble is None, error.strerror or str(error)
        self._go_on()
        self._retry_later()
        if is_new:
            logger.warning(
                "the history cannot be written: %s; %d outcomes wait, %d discards are not in it",
                self.trouble,
                len(self._waiting),
                self.unkept_discards,
                extra={"event": "discards-not-listed", "unlisted": self.unkept_discards},
            )

    @property
    def waiting(self) -> int:
        """Outcomes that the disk has not taken, although it was given them or earlier ones."""
        return 0 if self.trouble is None else len(self._writing) + len(self._waiting)

    @property
    def given_way(self) -> int:
        """Outcomes that the history does not have since the disk was full, in this run."""
        return self._left_out + (0 if self._files is None else self._files.given_way)

    @property
    def last(self) -> int:
        """The number of the last outcome, settled or not."""
        return self._next - 1

    @property
    def unkept_discards(self) -> int:
        """Discards that the history has no more, in all runs."""
        removed = 0 if self._files is None else self._files.removed_discards
        return self._unkept_discards + removed

    def unkept_after(self, number: int, publisher: str) -> int:
        """Return at most how many faults of a publisher above a number the history has no more."""
        unkept, files = 0, self._files
        if number < self._unkept_through:
            is_known = self._is_unkept_known
            unkept = self._unkept_of[publisher] if is_known else self._unkept_discards
        if files is not None and number < files.removed_through:
            unkept += files.removed_discards
        return unkept

    @property
    def bytes(self) -> int:
        return self._kept_bytes if self._files is None else self._files.bytes

    def shed(self) -> None:
        """The disk is full: remove the oldest, so that what is pending has its room."""
        if self._files is not None and self._worker is not None:
            self._worker.submit(self._files.shed, self._shed, _done)

    def _shed(self, is_removed: bool) -> None:
        if is_removed:
            logger.warning(
                "the oldest outcomes were removed from the history, since the disk is full",
                extra={"event": "history-shortened"},
            )

    def _expire(self) -> None:
        if self._files is not None and self._worker is not None:
            self._worker.submit(partial(self._files.expire, self._clock.time()), _done, _done)
            seconds = min(EXPIRY_SECONDS, self._policy.maximum_age_seconds / AGE_PARTS)
            if self._expiry is not None:
                self._expiry.cancel()
            self._expiry = self._timers.call_later(seconds, self._expire)

    # ------------------------------------------------------------------ what is asked

    async def wait(self, after: int, seconds: float) -> None:
        """Return once an outcome above ``after`` is settled, or after ``seconds``."""
        if self.settled > after:
            return
        news = asyncio.Event()
        self._waiters.add(news)
        timer = self._timers.call_later(seconds, news.set)
        try:
            await news.wait()
        finally:
            timer.cancel()
            self._waiters.discard(news)

    async def show(self, number: int, *, seconds: float) -> bool:
        """Wait until all outcomes up to a number are settled, for at most ``seconds``; return
        whether they are."""
        until = self._clock.monotonic() + seconds
        while self.settled < number and (left := until - self._clock.monotonic()) > 0:
            self.commit()
            await self.wait(number - 1, left)
        return self.settled >= number

    def _wake(self) -> None:
        for waiter in self._waiters:
            waiter.set()

    def _kept_now(self) -> Kept:
        if self._folder is None:
            self._keep_in_memory()
            return Kept(blocks=list(self._kept))
        is_writing = bool(self._writing)
        return Kept(
            folder=self._folder,
            first=self._writing_first if is_writing else self._first,
            waiting=[*self._writing, *self._waiting],
        )

    def page(self, query: OutcomeQuery, *, after: int, limit: int) -> Callable[[], Page]:
        """Return a function that reads the first ``limit`` settled outcomes of a query above
        ``after``. It blocks, may be called in any thread, and raises OSError."""
        kept, through = self._kept_now(), self.settled
        return partial(read_page, kept, query, after=after, through=through, limit=limit)

    def last_page(self, query: OutcomeQuery, *, after: int, limit: int) -> Callable[[], Page]:
        """As :meth:`page`, of the last ``limit`` outcomes."""
        kept, through = self._kept_now(), self.settled
        return partial(read_last_page, kept, query, after=after, through=through, limit=limit)

    def count(self) -> Callable[[], tuple[int, int]]:
        """Return a function that counts the outcomes, and the discards among them. It blocks, and
        raises OSError."""
        return partial(count, self._kept_now())

    def last_in(self, query: OutcomeQuery, *, after: int) -> Callable[[], int | None]:
        """Return a function that finds the greatest settled number of a query above ``after``. It
        blocks, may be called in any thread, and raises OSError."""
        return partial(last_in, self._kept_now(), query, after=after, through=self.settled)

    def latest(self, query: OutcomeQuery, *, limit: int) -> Callable[[], Sequence[Discard]]:
        """Return a function that reads the latest discards of a query, oldest first. It blocks, may
        be called in any thread, and raises OSError."""
        kept, through = self._kept_now(), self.settled
        return lambda: deque(read_discards(kept, query, through=through), maxlen=limit)

    def redriven(self, numbers: Collection[int] | None = None) -> Callable[[], Collection[int]]:
        """Return a function that finds which of these discards, None: of all, were redriven. It
        blocks, and raises OSError."""
        query = OutcomeQuery(result=OutcomeResult.REDRIVEN)
        after = 0 if numbers is None else min(numbers, default=self._next)
        every = self.every(query, after=after)

        def find() -> Collection[int]:
            found = {one.outcome.redrives or 0 for one in every()}
            return found if numbers is None else found & set(numbers)

        return find

    def newer(self, outcomes: Sequence[Numbered]) -> Callable[[], Collection[int]]:
        """Return a function that finds the outcomes after whose indication a later one of the same
        source was delivered to the same destination. It blocks, and raises OSError."""
        every = self.every(
            OutcomeQuery(result=OutcomeResult.DELIVERED),
            after=min((one.number for one in outcomes), default=self._next),
        )

        def find() -> Collection[int]:
            latest: dict[tuple[str, str | None], float] = {
                (one.outcome.destination, one.outcome.source): 0.0 for one in outcomes
            }
            for one in every() if outcomes else ():
                key = one.outcome.destination, one.outcome.source
                # What was redriven was accepted anew, and is not newer.
                if key in latest and one.outcome.redrives is None:
                    latest[key] = max(latest[key], one.outcome.accepted)
            return {
                one.number
                for one in outcomes
                if latest[one.outcome.destination, one.outcome.source] > one.outcome.accepted
            }

        return find

    def every_settled(self, query: OutcomeQuery, *, after: int) -> Callable[[], Iterable[Numbered]]:
        """Return a function that yields the settled outcomes of a query above ``after``. It blocks,
        may be called in any thread, and raises OSError."""
        every, through = self.every(query, after=after), self.settled
        return lambda: (one for one in every() if one.number <= through)

    def first_kept(self) -> Callable[[], int]:
        """Return a function that returns a number below which the history has nothing any more. It
        blocks, may be called in any thread, and raises OSError."""
        oldest, empty = self.oldest(), self._next if self._folder is None else 1
        return lambda: empty if (found := oldest()) is None else found.number

    def missed(
        self, digests: Collection[Digest], *, since: float | None
    ) -> Callable[[], Mapping[Digest, Sequence[Numbered]]]:
        """Return a function that finds, in one pass, what the latest indication with each identity
        has missed: its discards since ``since`` (seconds since the epoch; None: all), oldest first
        and without bodies. It blocks, and raises OSError."""
        every = self.every(OutcomeQuery(result=OutcomeResult.DISCARDED, since=since), after=0)
        return lambda: missed_by(every(), digests)

    def repeated(self, numbers: Collection[int]) -> Callable[[], Collection[int]]:
        """Return a function that finds which of these discards came to their targets later. It
        blocks, and raises OSError."""
        every = self.every(OutcomeQuery(), after=min(numbers, default=self._next))
        return lambda: {
            one.outcome.redrives or 0
            for one in every()
            if one.outcome.redrives in numbers
            and one.outcome.result in REACHED
            # A replay may be to another destination.
            and one.outcome.replay is None
        }

    def every(self, query: OutcomeQuery, *, after: int = 0) -> Callable[[], Iterable[Numbered]]:
        """Return a function that reads all outcomes of a query above ``after``, also those that are
        not settled. It blocks, and raises OSError."""
        return partial(read_all, self._kept_now(), query, after=after)

    def oldest(self) -> Callable[[], Oldest | None]:
        """Return a function that finds where the history begins; None if it is empty. It blocks,
        and raises OSError."""
        return partial(read_oldest, self._kept_now())

    @property
    def maximum_age_seconds(self) -> float:
        return self._policy.maximum_age_seconds

    # ------------------------------------------------------------------ the end

    def close(self) -> None:
        """Write the rest. Blocks; idempotent. The caller closes the worker afterwards."""
        files, worker = self._files, self._worker
        if files is not None and worker is not None:
            worker.drain()
            if self._waiting:
                self._submit(len(self._waiting), displaces=True)
                worker.drain()
            files.removed_discards += sum(one.result in FAULTS for one in self._waiting)
            self._files = None
            worker.submit(files.end, _done, self._not_written)
            worker.drain()
            self._unkept_discards += files.removed_discards
        self._go_on()
        for waiter in self._waiters:
            waiter.set()


def _size(outcome: Outcome) -> int:
    return OUTCOME_BYTES + len(outcome.body or b"") + len(outcome.note or b"")


def _done(_: object) -> None:
    """A failure shows with the next write."""
