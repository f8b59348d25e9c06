"""The deliverer's metrics and the scrape. Counting takes 0.25 us on the delivery path; the rest is
read at a scrape. Queues' samples come in bounded pieces, between which the event loop can run."""

from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from enum import StrEnum
from functools import partial
from itertools import accumulate
from operator import attrgetter
from typing import TYPE_CHECKING, TypeAlias

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import RELAY, DeliveryResult
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.delivery.retry import first_loss_due, next_attempt_at, slow_since
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason, Unreached
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.exposition import Metric, all_escaped, number, quoted
from pillion_sidecar.telemetry.gateway import ConnectionMetrics, GatewayMetrics

if TYPE_CHECKING:
    from pillion_sidecar.journal.disk import DiskJournal
    from pillion_sidecar.stores.namespaces import NamespaceStores

    # They import OpenTelemetry, which is an extra.
    from pillion_sidecar.telemetry.spans import SpanExports
    from pillion_sidecar.telemetry.stores import WrittenStores


class IntakeOutcome(StrEnum):
    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    #: Permanent: answered 400.
    INVALID = "invalid"
    #: Temporary: answered 429 or 503.
    REFUSED = "refused"


#: Ended adoptions, and the indications of all, by result.
Adopted: TypeAlias = tuple[Mapping[str, int], Mapping[str, int]]
FormerDiscards: TypeAlias = Mapping[str, Mapping[DiscardReason, int]]


class Histogram:
    """A histogram with one label. Values that are not ``known`` count as ``other``, so the label is
    bounded. An observation takes 0.6 us."""

    def __init__(self, metric: Metric, *, known: Sequence[str]) -> None:
        self.metric = metric
        self._bounds = metric.bounds
        self._rows = {value: [0] * (len(metric.bounds) + 1) for value in known}
        self._sums = dict.fromkeys(known, 0.0)

    def observe(self, value: str, amount: float) -> None:
        row = self._rows.get(value)
        if row is None:
            value = "other"
            self._sums.setdefault(value, 0.0)
            row = self._rows.setdefault(value, [0] * (len(self.metric.bounds) + 1))
        row[bisect_left(self._bounds, amount)] += 1
        self._sums[value] += amount

    def lines(self, used: Container[str]) -> Iterator[str]:
        """Yield the rows of the values that are ``used`` or were observed: a row has some 15
        series."""
        name, (label,) = self.metric.name, self.metric.labels
        edges = [*(number(bound) for bound in self.metric.bounds), "+Inf"]
        yield self.metric.header
        for value, row in self._rows.items():
            if value not in used and not any(row):
                continue
            pair = f"{label}={quoted(value)}"
            for edge, count in zip(edges, accumulate(row), strict=True):
                yield f'{name}_bucket{{{pair},le="{edge}"}} {count}\n'
            yield f"{name}_sum{{{pair}}} {number(self._sums[value])}\n"
            yield f"{name}_count{{{pair}}} {sum(row)}\n"


class Metrics:
    """Observes delivery, intake and configuration; reads the rest."""

    def __init__(
        self,
        *,
        clock: Clock,
        version: str,
        queues: Callable[[], Iterable[DestinationQueue]] = tuple,
        duplicates: DuplicateMemory | None = None,
        log_records_dropped: Callable[[], int] = int,
        intake_kinds: Iterable[str] = (),
    ) -> None:
        """``intake_kinds``: body formats, counted from 0."""
        self._clock = clock
        self._version = version
        self._started_at = clock.time()
        self._queues = queues
        self._former_discards: Callable[[], FormerDiscards] = dict
        self._duplicates = duplicates
        self._groups: Groups | None = None
        self._undeclared: Callable[[], int] = int
        self._history: History | None = None
        self._replayed: Mapping[str, int] = {}
        self._spans: SpanExports | None = None
        self._beyond_limit: Callable[[], int] = int
        self._unreached: Mapping[Unreached, int] = dict.fromkeys(Unreached, 0)
        self._journal: DiskJournal | None = None
        self._stores: NamespaceStores | None = None
        self._written_stores: WrittenStores | None = None
        self._adoptions: Adopted | None = None
        self._commits = Histogram(definitions.JOURNAL_COMMIT_DURATION, known=("Disk", "StateOnly"))
        self._log_records_dropped = log_records_dropped
        protocols = [*PROTOCOLS, RELAY]
        self._attempt_duration = Histogram(definitions.ATTEMPT_DURATION, known=protocols)
        self._end_to_end = Histogram(definitions.END_TO_END, known=protocols)
        self._intake = Counter(
            {(kind, outcome): 0 for kind in intake_kinds for outcome in IntakeOutcome}
        )
        self._reloads = Counter({"success": 0, "failure": 0})
        self._last_reload_successful = True
        self._awaited = False
        self._revision: tuple[str, float] | None = None
        self._operator_refused = 0
        self._callbacks = Counter({"delivered": 0, "dropped": 0})
        self.gateway = GatewayMetrics()
        self.connections = ConnectionMetrics()

    def attempted(self, protocol: str, seconds: float) -> None:
        self._attempt_duration.observe(protocol, seconds)

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None:
        self._end_to_end.observe(protocol, end_to_end_seconds)

    def watch(
        self,
        *,
        queues: Callable[[], Iterable[DestinationQueue]] | None = None,
        former_discards: Callable[[], FormerDiscards] | None = None,
        duplicates: DuplicateMemory | None = None,
        groups: Groups | None = None,
        journal: "DiskJournal | None" = None,
        unreached: Mapping[Unreached, int] | None = None,
        undeclared: Callable[[], int] | None = None,
        beyond_limit: Callable[[], int] | None = None,
        history: History | None = None,
        replayed: Mapping[str, int] | None = None,
        spans: "SpanExports | None" = None,
        stores: "NamespaceStores | None" = None,
        written_stores: "WrittenStores | None" = None,
        adoptions: Adopted | None = None,
    ) -> None:
        """Read from these objects, which are created after the metrics. ``stores``: of other
        journals; ``written_stores``: of the deliverer's own."""
        given = {
            "_queues": queues,
            "_former_discards": former_discards,
            "_duplicates": duplicates,
            "_groups": groups,
            "_journal": journal,
            "_unreached": unreached,
            "_undeclared": undeclared,
            "_beyond_limit": beyond_limit,
            "_history": history,
            "_replayed": replayed,
            "_spans": spans,
            "_stores": stores,
            "_written_stores": written_stores,
            "_adoptions": adoptions,
        }
        for name, source in given.items():
            if source is not None:
                setattr(self, name, source)

    def journal_committed(self, seconds: float) -> None:
        """Count a written and synced commit."""
        if self._journal is not None:
            self._commits.observe(str(self._journal.durability), seconds)

    def received(self, kind: str, outcome: IntakeOutcome, indications: int = 1) -> None:
        self._intake[kind, outcome] += indications

    def configuration_loaded(self, revision: str) -> None:
        self._reloads["success"] += 1
        self._last_reload_successful = True
        self._awaited = False
        self._revision = revision, self._clock.time()

    def configuration_refused(self) -> None:
        """The previous configuration stays in force."""
        self._reloads["failure"] += 1
        self._last_reload_successful = False
        self._awaited = False

    def configuration_awaited(self) -> None:
        self._awaited = True

    def operator_refused(self) -> None:
        """A request for the queues came without the operator's token."""
        self._operator_refused += 1

    def called_back(self, *, delivered: bool) -> None:
        self._callbacks["delivered" if delivered else "dropped"] += 1

    def exposition(self) -> Iterator[str]:
        """Yield the scrape in pieces of at most a millisecond of work."""
        yield "".join(self._own_samples())
        yield from destination_samples(
            list(self._queues()), former=self._former_discards(), clock=self._clock
        )

    def _own_samples(self) -> Iterator[str]:
        revision, loaded_at = self._revision or (None, None)
        yield definitions.BUILD.each({self._version: 1})
        yield definitions.START.one(round(self._started_at, 3))
        protocols = {queue.protocol for queue in self._queues()}
        yield from self._attempt_duration.lines(protocols)
        yield from self._end_to_end.lines(protocols)
        yield definitions.INTAKE.each(self._intake)
        yield definitions.UNREACHED.each(self._unreached)
        yield definitions.BEYOND_LIMIT.one(self._beyond_limit())
        yield definitions.UNDECLARED.one(self._undeclared())
        if self._history is not None:
            yield definitions.HISTORY_BYTES.one(self._history.bytes)
            yield definitions.HISTORY_UNKEPT.one(self._history.unkept_discards)
        yield definitions.REPLAYED.each(self._replayed)
        yield definitions.CONFIGURATION.each({revision: 1} if revision is not None else {})
        yield definitions.RELOADS.each(self._reloads)
        yield definitions.CONFIGURATION_AWAITED.one(int(self._awaited))
        yield definitions.LAST_RELOAD_SUCCESSFUL.one(int(self._last_reload_successful))
        yield definitions.LAST_RELOAD_SUCCESS.one(
            None if loaded_at is None else round(loaded_at, 3)
        )
        if self._duplicates is not None:
            yield definitions.DUPLICATE_ENTRIES.one(self._duplicates.entries)
            yield definitions.DUPLICATE_EVICTIONS.one(self._duplicates.evictions)
        if self._groups is not None:
            yield definitions.GROUPS_ACTIVE.one(self._groups.active)
            yield definitions.GROUPS_REMEMBERED.one(self._groups.remembered)
            yield definitions.GROUP_HELD.one(self._groups.held)
            yield definitions.GROUP_HELD_BYTES.one(self._groups.held_bytes)
            yield definitions.GROUP_TERMINATIONS.each(self._groups.terminations)
            yield definitions.GROUP_HOLD_REFUSALS.each(self._groups.hold_refusals)
        yield from self._journal_samples()
        yield from self._store_samples()
        yield definitions.OPERATOR_REFUSED.one(self._operator_refused)
        yield definitions.CALLBACKS.each(self._callbacks)
        yield from self.gateway.samples()
        yield from self.connections.samples()
        yield definitions.LOG_RECORDS_DROPPED.one(self._log_records_dropped())
        spans = self._spans
        yield definitions.SPANS.each(
            {} if spans is None else {"exported": spans.exported, "dropped": spans.dropped}
        )

    def _store_samples(self) -> Iterator[str]:
        # Late: few deliverers have them.
        if self._stores is not None:
            from pillion_sidecar.telemetry.copies import copies_samples

            yield from copies_samples(self._stores)
        if self._written_stores is not None:
            from pillion_sidecar.telemetry.stores import store_samples

            yield from store_samples(self._written_stores)
        if self._adoptions is not None:
            ended, indications = self._adoptions
            yield definitions.ADOPTIONS.each(ended)
            yield definitions.ADOPTED_INDICATIONS.each(indications)

    def _journal_samples(self) -> Iterator[str]:
        if self._journal is None:
            return
        now = self._journal.statistics
        yield definitions.JOURNAL_BYTES.one(now.total_bytes)
        yield definitions.JOURNAL_LIVE_BYTES.one(now.live_bytes)
        yield definitions.JOURNAL_LIVE_LIMIT_BYTES.one(now.live_bound)
        yield definitions.JOURNAL_IDENTITY_BYTES.one(now.identity_bytes)
        yield definitions.JOURNAL_SEGMENTS.one(now.segments)
        yield definitions.JOURNAL_WRITTEN_BYTES.one(now.appended_bytes)
        yield definitions.JOURNAL_DAMAGED_RECORDS.one(now.damaged)
        yield definitions.JOURNAL_TORN_WRITES.one(now.torn)
        yield definitions.JOURNAL_FULL.one(int(now.is_full))
        yield definitions.JOURNAL_WAITING.one(now.pending_barriers)
        yield from self._commits.lines({str(self._journal.durability)})


#: Destinations in a piece: some 0.3 ms of work.
PIECE = 250

Names: TypeAlias = Sequence[str]
Queues: TypeAlias = Sequence[DestinationQueue]
#: Makes samples from queues' escaped names and the queues.
Write: TypeAlias = Callable[[Names, Queues], str]


def destination_samples(queues: Queues, *, former: FormerDiscards, clock: Clock) -> Iterator[str]:
    """Yield for each metric its header, then pieces of at most ``PIECE`` destinations. ``former``:
    discards of removed destinations, by every reason in order."""
    # Two lists: ten thousand tuples would trigger the garbage collector.
    names = all_escaped([queue.name for queue in queues])
    pieces = [slice(start, start + PIECE) for start in range(0, len(queues), PIECE)]
    for metric, write in _writers(clock):
        yield metric.header
        for piece in pieces:
            yield write(names[piece], queues[piece])
        if metric is definitions.DISCARDED:
            rows = _Rows(metric, tuple(DiscardReason))
            discarded = zip(all_escaped(list(former)), former.values(), strict=True)
            yield "".join(
                [rows.text(name, one.values()) for name, one in discarded if any(one.values())]
            )


def _writers(clock: Clock) -> Iterator[tuple[Metric, Write]]:
    now = clock.monotonic()
    epoch = clock.time() - now
    for metric, value in (
        (definitions.QUEUE_DEPTH, attrgetter("depth")),
        (definitions.QUEUE_HELD, attrgetter("held")),
        (definitions.QUEUE_CAPACITY, attrgetter("capacity")),
        (definitions.QUEUE_HIGH_WATER, attrgetter("statistics.high_water")),
        (definitions.IN_FLIGHT, attrgetter("in_flight_count")),
        (definitions.SUSPENDED, lambda queue: 1 if queue.suspended else 0),
        (definitions.RELAYED, lambda queue: 0 if queue.relay_to is None else 1),
        (definitions.QUEUED, attrgetter("throughput.accepted")),
        (definitions.DELIVERED, attrgetter("statistics.delivered")),
        (definitions.SUPPRESSED, attrgetter("statistics.suppressed")),
        (definitions.HANDED_OVER, attrgetter("statistics.handed_over")),
    ):
        yield metric, _plain(metric, value)
    yield definitions.HELD, _stopped(definitions.HELD, is_pause=False)
    yield definitions.PAUSED, _stopped(definitions.PAUSED, is_pause=True)
    yield definitions.FAILING, _failing
    yield definitions.ATTEMPT_SECONDS, _attempt_seconds
    yield definitions.RATE_LIMITED, partial(_rate_limited, now)
    yield definitions.OLDEST_AGE, _ages(definitions.OLDEST_AGE, now)
    for metric, moment in (
        (definitions.NEXT_ATTEMPT, lambda queue: next_attempt_at(queue, now)),
        (definitions.LAST_SUCCESS, attrgetter("statistics.last_success_at")),
        (definitions.FAILING_SINCE, attrgetter("health.failing_since")),
        (definitions.SLOW_SINCE, slow_since),
        (definitions.FIRST_LOSS_DUE, lambda queue: first_loss_due(queue, now)),
    ):
        yield metric, _timestamps(metric, moment, epoch)
    attempts = attrgetter("statistics.attempts")
    discarded = attrgetter("statistics.discarded")
    yield definitions.ATTEMPTS, _counted(definitions.ATTEMPTS, tuple(DeliveryResult), attempts)
    yield definitions.DISCARDED, _counted(definitions.DISCARDED, tuple(DiscardReason), discarded)
    yield definitions.DEAD_LETTERS, _dead_letters


def _plain(metric: Metric, value: Callable[[DestinationQueue], object]) -> Write:
    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(value, queues), strict=True)
        return _lines(metric, [f'{name}"}} {number}' for name, number in pairs])

    return write


def _stopped(metric: Metric, *, is_pause: bool) -> Write:
    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(attrgetter("health.hold"), queues), strict=True)
        rests = [
            f'{name}",cause="{hold.cause}"}} 1'
            for name, hold in pairs
            if hold is not None and hold.cause.is_pause is is_pause
        ]
        return _lines(metric, rests)

    return write


def _failing(names: Names, queues: Queues) -> str:
    failing = [
        (name, queue.statistics.last_outcome)
        for name, queue in zip(names, queues, strict=True)
        if queue.health.failing_since is not None
    ]
    rests = [
        f'{name}",cause="{outcome.failure_cause}"}} 1'
        for name, outcome in failing
        if outcome is not None and outcome.failure_cause is not None
    ]
    return _lines(definitions.FAILING, rests)


def _attempt_seconds(names: Names, queues: Queues) -> str:
    seconds = zip(names, map(attrgetter("statistics.attempt_seconds"), queues), strict=True)
    rests = [f'{name}"}} {value:.3f}' for name, value in seconds]
    return _lines(definitions.ATTEMPT_SECONDS, rests)


def _rate_limited(now: float, names: Names, queues: Queues) -> str:
    paces = zip(names, map(attrgetter("pace"), queues), strict=True)
    rests = [f'{name}"}} {pace.waited(now):.3f}' for name, pace in paces if pace is not None]
    return _lines(definitions.RATE_LIMITED, rests)


def _dead_letters(names: Names, queues: Queues) -> str:
    rests = []
    for name, queue in zip(names, queues, strict=True):
        if queue.destination.dead_letter is not None:
            statistics = queue.statistics
            rests.append(f'{name}",result="taken"}} {statistics.dead_letters_taken}')
            rests.append(f'{name}",result="refused"}} {statistics.dead_letters_refused}')
    return _lines(definitions.DEAD_LETTERS, rests)


def _ages(metric: Metric, now: float) -> Write:
    """The age of each queue's oldest indication; 0 if empty."""

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(attrgetter("oldest_accepted_at"), queues), strict=True)
        return _lines(
            metric,
            [f'{name}"}} 0' if at is None else f'{name}"}} {now - at:.3f}' for name, at in pairs],
        )

    return write


def _timestamps(
    metric: Metric, moment: Callable[[DestinationQueue], float | None], epoch: float
) -> Write:
    """Whole seconds since the epoch, for queues that have the moment."""

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(moment, queues), strict=True)
        return _lines(
            metric, [f'{name}"}} {int(epoch + at)}' for name, at in pairs if at is not None]
        )

    return write


def _lines(metric: Metric, rests: Sequence[str]) -> str:
    if not rests:
        return ""
    opening = f'{metric.name}{{destination="'
    return opening + f"\n{opening}".join(rests) + "\n"


def _counted(
    metric: Metric, members: Sequence[str], counts: Callable[[DestinationQueue], Mapping[str, int]]
) -> Write:
    """A sample for each queue and member of a closed set."""
    rows = _Rows(metric, members)

    def write(names: Names, queues: Queues) -> str:
        pairs = zip(names, map(counts, queues), strict=True)
        return "".join([rows.text(name, count.values()) for name, count in pairs])

    return write


class _Rows:
    """Samples of one destination over a closed set of labels. Every member has a sample from the
    start: a counter that first appears with 1 hides its first event from ``increase()``."""

    def __init__(self, metric: Metric, members: Sequence[str]) -> None:
        destination, label = metric.labels
        opening = f'{metric.name}{{{destination}="'
        closings = [f'",{label}="{member}"}} ' for member in members]
        tails = [f"\n{opening}"] * (len(members) - 1) + ["\n"]
        self._ends = list(zip(closings, tails, strict=True))
        #: Openings end before the name, so that joining by the name gives the text.
        self._zeros = [opening, *(f"{closing}0{tail}" for closing, tail in self._ends)]

    def text(self, name: str, counts: Collection[int]) -> str:
        """``counts`` are in the order of the members."""
        if not any(counts):
            return name.join(self._zeros)
        parts = self._zeros.copy()
        for index, count in enumerate(counts):
            if count:
                closing, tail = self._ends[index]
                parts[index + 1] = f"{closing}{count}{tail}"
        return name.join(parts)
