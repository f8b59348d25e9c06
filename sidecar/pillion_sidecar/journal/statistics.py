"""What there is to know of a journal, for those who watch it."""

from dataclasses import dataclass


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
    #: Records that could not be read back since the start.
    damaged: int
    #: Whether the disk is full.
    is_full: bool
    #: How many wait for a commit.
    pending_barriers: int
