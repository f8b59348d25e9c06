"""What there is to know of a journal, for those who watch it."""

from dataclasses import dataclass

from pillion_sidecar.journal.log import Log


@dataclass(frozen=True, slots=True, kw_only=True)
class JournalStatistics:
    """Bytes, unless said otherwise."""

    #: All segments, and what of them is records with something pending.
    total_bytes: int
    live_bytes: int
    #: What pending records may take at most.
    live_bound: int
    #: Files of identities.
    identity_bytes: int
    #: How many there are.
    segments: int
    #: Written since the start: bytes, commits.
    appended_bytes: int
    commits: int
    #: How many seconds the last commit took.
    last_commit: float
    #: Damaged stretches that the start found, and damaged records read back since.
    damaged: int
    #: Last writes that the start cut off.
    torn: int
    #: Whether the disk is full.
    is_full: bool
    #: How many wait for a commit.
    pending_barriers: int


def statistics_of(
    log: Log,
    *,
    identity_bytes: int,
    live_bound: int,
    last_commit: float,
    damaged: int,
    torn: int,
) -> JournalStatistics:
    """Return the statistics of a journal with this log."""
    return JournalStatistics(
        total_bytes=log.total,
        live_bytes=log.live,
        live_bound=live_bound,
        identity_bytes=identity_bytes,
        segments=len(log.segments),
        appended_bytes=log.appended_bytes,
        commits=log.commits,
        last_commit=last_commit,
        damaged=damaged,
        torn=torn,
        is_full=log.room.is_full,
        pending_barriers=log.pending_barriers,
    )
