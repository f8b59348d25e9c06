"""The metrics of the journal, exported where there is one."""

from collections.abc import Iterator

from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.histogram import Histogram
from pillion_sidecar.telemetry.ports import Journal

#: Seconds. From a disk that only pretends to one that is shared with too many.
COMMIT_BOUNDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5)


class JournalMetrics:
    """What is counted of a journal, and read from it."""

    def __init__(self) -> None:
        self.journal: Journal | None = None
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
