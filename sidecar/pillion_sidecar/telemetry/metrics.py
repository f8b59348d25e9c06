"""The deliverer's metrics: what it counts itself, what it reads from others, and the scrape.

The counting calls stand on the delivery path and cost a quarter of a microsecond; everything else
is worked out when Prometheus asks.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import StrEnum

from pillion_sidecar.clock import Clock
from pillion_sidecar.delivery.handler import RELAY
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import Unreached
from pillion_sidecar.journal.disk import DiskJournal
from pillion_sidecar.protocols import PROTOCOLS
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.destinations import destination_samples
from pillion_sidecar.telemetry.exposition import Histogram
from pillion_sidecar.telemetry.gateway import GatewayMetrics, GivenUp

#: Seconds. From a disk that only pretends to one that is shared with too many.
COMMIT_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)
#: Seconds. An attempt ends with its destination's time-out, 30 s unless a resource says otherwise.
ATTEMPT_BOUNDS = (
    0.0005,
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.05,
    0.1,
    0.25,
    0.5,
    1,
    2.5,
    10,
    30,
    60,
)
#: Seconds. From a listener beside us to one that was away for a day.
END_TO_END_BOUNDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.025,
    0.1,
    0.5,
    1,
    5,
    30,
    60,
    300,
    1800,
    7200,
    86400,
)


class ListenerConnections:
    """What one listener counts (``auth.acceptor.AcceptorObserver``)."""

    def __init__(self) -> None:
        self.given_up = Counter(dict.fromkeys(GivenUp, 0))
        self._connections: Callable[[], tuple[int, int, int]] | None = None

    @property
    def open(self) -> int:
        """How many connections there are."""
        return 0 if self._connections is None else sum(self._connections())

    def connection_given_up(self, reason: GivenUp) -> None:
        """A connection was closed, or not taken up."""
        self.given_up[reason] += 1

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Ask here how many connections are in each stage."""
        self._connections = connections


class ConnectionMetrics:
    """All plain listeners of a deliverer."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerConnections] = {}

    def listener(self, name: str) -> ListenerConnections:
        """Return where a listener counts."""
        return self._listeners.setdefault(name, ListenerConnections())

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text."""
        yield definitions.LISTENER_CONNECTIONS.header
        for name, listener in self._listeners.items():
            yield definitions.LISTENER_CONNECTIONS.sample(listener.open, name)
        yield definitions.LISTENER_CONNECTIONS_GIVEN_UP.header
        for name, listener in self._listeners.items():
            for reason, count in listener.given_up.items():
                yield definitions.LISTENER_CONNECTIONS_GIVEN_UP.sample(count, name, reason)


class JournalMetrics:
    """What is counted of a journal, and read from it."""

    def __init__(self) -> None:
        self.journal: DiskJournal | None = None
        self._commits = Histogram(
            definitions.JOURNAL_COMMIT_DURATION,
            bounds=COMMIT_BOUNDS,
            known=("Disk", "StateOnly"),
        )

    def committed(self, seconds: float) -> None:
        """A commit, written and synced, took ``seconds``."""
        if self.journal is not None:
            self._commits.observe(str(self.journal.durability), seconds)

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text; nothing where there is no journal."""
        if self.journal is None:
            return
        now = self.journal.statistics
        for metric, value in (
            (definitions.JOURNAL_BYTES, now.total_bytes),
            (definitions.JOURNAL_LIVE_BYTES, now.live_bytes),
            (definitions.JOURNAL_LIVE_LIMIT_BYTES, now.live_bound),
            (definitions.JOURNAL_IDENTITY_BYTES, now.identity_bytes),
            (definitions.JOURNAL_SEGMENTS, now.segments),
            (definitions.JOURNAL_WRITTEN_BYTES, now.appended_bytes),
            (definitions.JOURNAL_DAMAGED_RECORDS, now.damaged),
            (definitions.JOURNAL_TORN_WRITES, now.torn),
            (definitions.JOURNAL_FULL, int(now.is_full)),
            (definitions.JOURNAL_WAITING, now.pending_barriers),
        ):
            yield metric.header
            yield metric.sample(value)
        yield self._commits.metric.header
        yield from self._commits.lines()


class IntakeOutcome(StrEnum):
    """What became of an indication at intake."""

    ACCEPTED = "accepted"
    DUPLICATE = "duplicate"
    #: Wrong, and will be wrong again: answered 400.
    INVALID = "invalid"
    #: Refused for now: answered 429 or 503.
    REFUSED = "refused"


class Metrics:
    """The metrics of one deliverer.

    An observer of delivery, intake and configuration, and a reader of all the rest.
    """

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
        """``intake_kinds``: the formats of bodies, counted from 0."""
        self._clock = clock
        self._version = version
        self._started_at = clock.time()
        self._queues = queues
        self._duplicates = duplicates
        self._groups: Groups | None = None
        self._undeclared: Callable[[], int] = int
        self._unreached: Mapping[Unreached, int] = dict.fromkeys(Unreached, 0)
        self._journal = JournalMetrics()
        self._log_records_dropped = log_records_dropped
        protocols = [*PROTOCOLS, RELAY]
        self._attempt_duration = Histogram(
            definitions.ATTEMPT_DURATION, bounds=ATTEMPT_BOUNDS, known=protocols
        )
        self._end_to_end = Histogram(
            definitions.END_TO_END, bounds=END_TO_END_BOUNDS, known=protocols
        )
        self._intake = Counter(
            {(kind, outcome): 0 for kind in intake_kinds for outcome in IntakeOutcome}
        )
        self._reloads = Counter({"success": 0, "failure": 0})
        self._last_reload_successful = True
        self._awaited = False
        self._revision: tuple[str, float] | None = None
        self._operator_refused = 0
        self._callbacks = Counter({"delivered": 0, "dropped": 0})
        #: Connections and tokens of a gateway.
        self.gateway = GatewayMetrics()
        #: Where plain listeners count.
        self.connections = ConnectionMetrics()

    def attempted(self, protocol: str, seconds: float) -> None:
        """An attempt to deliver has ended."""
        self._attempt_duration.observe(protocol, seconds)

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None:
        """An indication has arrived, so long after its acceptance."""
        self._end_to_end.observe(protocol, end_to_end_seconds)

    def watch(
        self,
        *,
        queues: Callable[[], Iterable[DestinationQueue]] | None = None,
        duplicates: DuplicateMemory | None = None,
        groups: Groups | None = None,
        journal: DiskJournal | None = None,
        unreached: Mapping[Unreached, int] | None = None,
        undeclared: Callable[[], int] | None = None,
    ) -> None:
        """Read from these objects, which were made after the metrics."""
        if queues is not None:
            self._queues = queues
        if duplicates is not None:
            self._duplicates = duplicates
        if groups is not None:
            self._groups = groups
        if journal is not None:
            self._journal.journal = journal
        if unreached is not None:
            self._unreached = unreached
        if undeclared is not None:
            self._undeclared = undeclared

    def journal_committed(self, seconds: float) -> None:
        """A commit of the journal took ``seconds``."""
        self._journal.committed(seconds)

    def received(self, kind: str, outcome: IntakeOutcome, indications: int = 1) -> None:
        """Count indications that a publisher sent."""
        self._intake[kind, outcome] += indications

    def configuration_loaded(self, revision: str) -> None:
        """A configuration has come into force."""
        self._reloads["success"] += 1
        self._last_reload_successful = True
        self._awaited = False
        self._revision = revision, self._clock.time()

    def configuration_refused(self) -> None:
        """A configuration could not be loaded; the one before it stays in force."""
        self._reloads["failure"] += 1
        self._last_reload_successful = False
        self._awaited = False

    def configuration_awaited(self) -> None:
        """A configuration has not come yet, or not all of it."""
        self._awaited = True

    def operator_refused(self) -> None:
        """Somebody asked for the queues as the operator does, without its token."""
        self._operator_refused += 1

    def called_back(self, *, delivered: bool) -> None:
        """A publisher was called back, or that was given up."""
        self._callbacks["delivered" if delivered else "dropped"] += 1

    def exposition(self) -> Iterator[str]:
        """Yield the scrape in the text format, in pieces of at most a millisecond of work."""
        yield "".join(self._own_samples())
        yield from destination_samples(list(self._queues()), clock=self._clock)

    def _own_samples(self) -> Iterator[str]:
        yield definitions.BUILD.header
        yield definitions.BUILD.sample(1, self._version)
        yield definitions.START.header
        yield definitions.START.sample(round(self._started_at, 3))
        for histogram in (self._attempt_duration, self._end_to_end):
            yield histogram.metric.header
            yield from histogram.lines()
        yield definitions.INTAKE.header
        for (kind, outcome), count in self._intake.items():
            yield definitions.INTAKE.sample(count, kind, outcome)
        yield definitions.UNREACHED.header
        for reason, count in self._unreached.items():
            yield definitions.UNREACHED.sample(count, reason)
        yield definitions.UNDECLARED.header
        yield definitions.UNDECLARED.sample(self._undeclared())
        yield from self._configuration_samples()
        if self._duplicates is not None:
            yield definitions.DUPLICATE_ENTRIES.header
            yield definitions.DUPLICATE_ENTRIES.sample(self._duplicates.entries)
            yield definitions.DUPLICATE_EVICTIONS.header
            yield definitions.DUPLICATE_EVICTIONS.sample(self._duplicates.evictions)
        if self._groups is not None:
            yield from _group_samples(self._groups)
        yield from self._journal.samples()
        yield definitions.OPERATOR_REFUSED.header
        yield definitions.OPERATOR_REFUSED.sample(self._operator_refused)
        yield definitions.CALLBACKS.header
        for ended, count in self._callbacks.items():
            yield definitions.CALLBACKS.sample(count, ended)
        yield from self.gateway.samples()
        yield from self.connections.samples()
        yield definitions.LOG_RECORDS_DROPPED.header
        yield definitions.LOG_RECORDS_DROPPED.sample(self._log_records_dropped())

    def _configuration_samples(self) -> Iterator[str]:
        yield definitions.CONFIGURATION.header
        if self._revision is not None:
            yield definitions.CONFIGURATION.sample(1, self._revision[0])
        yield definitions.RELOADS.header
        for outcome, count in self._reloads.items():
            yield definitions.RELOADS.sample(count, outcome)
        yield definitions.CONFIGURATION_AWAITED.header
        yield definitions.CONFIGURATION_AWAITED.sample(int(self._awaited))
        yield definitions.LAST_RELOAD_SUCCESSFUL.header
        yield definitions.LAST_RELOAD_SUCCESSFUL.sample(int(self._last_reload_successful))
        yield definitions.LAST_RELOAD_SUCCESS.header
        if self._revision is not None:
            yield definitions.LAST_RELOAD_SUCCESS.sample(round(self._revision[1], 3))


def _group_samples(groups: Groups) -> Iterator[str]:
    for metric, value in (
        (definitions.GROUPS_ACTIVE, groups.active),
        (definitions.GROUPS_REMEMBERED, groups.remembered),
        (definitions.GROUP_HELD, groups.held),
        (definitions.GROUP_HELD_BYTES, groups.held_bytes),
    ):
        yield metric.header
        yield metric.sample(value)
    yield definitions.GROUP_TERMINATIONS.header
    for termination, count in groups.terminations.items():
        yield definitions.GROUP_TERMINATIONS.sample(count, termination)
    yield definitions.GROUP_HOLD_REFUSALS.header
    for share, count in groups.hold_refusals.items():
        yield definitions.GROUP_HOLD_REFUSALS.sample(count, share)
