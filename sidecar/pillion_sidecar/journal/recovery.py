"""Opens what earlier runs left: finds what is pending, mends what a crash or the disk did to it.

Two looks at each segment, oldest first (:mod:`.survey` and :mod:`.account`, then :mod:`.rebuild`),
so that a restart takes little more memory than one segment and the columns of what is pending.
"""

import logging
from dataclasses import dataclass

from pillion_sidecar.clock import Clock
from pillion_sidecar.journal.damage import remove_partial
from pillion_sidecar.journal.errors import telling
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.identities import IdentitiesFile, StoredIdentity
from pillion_sidecar.journal.opening import Opening
from pillion_sidecar.journal.ports import IdentitySink, Recovered
from pillion_sidecar.journal.rebuild import Rebuild
from pillion_sidecar.journal.records import FRAME, REASONS
from pillion_sidecar.journal.segments import PARTIAL_SUFFIX, segment_name
from pillion_sidecar.journal.survey import Finding, FindingKind

logger = logging.getLogger("pillion.journal")

#: Between the clock and the last record, at which a start warns.
CLOCK_WARNING_SECONDS = 86_400.0
_LOSSES = (FindingKind.DAMAGED, FindingKind.MISSING, FindingKind.TORN)


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentState:
    """What of a segment must be known to decide when it is compacted."""

    number: int
    #: Bytes, and those of them that are records with something pending.
    size: int
    live: int
    #: Bytes of its header and its snapshot.
    overhead: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Recovery:
    """What a journal goes on with."""

    recovered: Recovered
    journal_id: bytes
    #: ``Journal.offset``.
    offset: float
    #: Greater than every id, segment number and commit number used before.
    next_id: int
    next_segment: int
    next_commit: int
    #: Greater than every index of a destination and of a subscription used before.
    next_destination: int
    next_subscription: int
    #: By index: uid and name.
    destinations: dict[int, tuple[str, str]]
    #: Oldest first.
    segments: tuple[SegmentState, ...]
    #: By id: pending places, of indications that have more than one.
    shared: dict[int, int]
    #: By id: the position of the copy that stands for a record which is still there as well.
    copies: dict[int, int]
    #: Oldest first.
    identities: tuple[IdentitiesFile, ...]
    #: To be written as a settlement ``(0, LOST, this)`` with the first commit, so that no later
    #: start tells the same loss again; 0 for nothing.
    lost_through: int
    #: The number of the oldest segment in the folder.
    oldest: int
    findings: tuple[Finding, ...]


def recover(
    files: Files, *, clock: Clock, identities: IdentitySink, new_journal_id: bytes
) -> Recovery:
    """Mend the folder, and return what is in it; the caller holds its lock.

    ``new_journal_id``: 16 random bytes, for a journal that has none yet.

    Raises:
        JournalError: a newer version, files of several journals, or a failing disk.
    """
    opening = Opening(files, repairs=True, new_journal_id=new_journal_id)
    opening.check_headers()
    with telling(f"*{PARTIAL_SUFFIX}"):
        remove_partial(files)
    opening.look_at_segments()
    account = opening.account
    _warn_of_clock(clock.time(), account.last_time)
    offset = max(clock.time(), account.last_time) - clock.monotonic()
    rebuild = Rebuild(account=account, offset=offset, sink=identities)
    for identity in opening.look_at_identities():
        _restore(identity, identities, offset=offset)
    segments = []
    for one in opening.surveyed:
        live = rebuild.add(one.number, opening.read(segment_name(one.number)), one.ranges)
        segments.append(
            SegmentState(number=one.number, size=one.size, live=live, overhead=one.overhead)
        )
    rebuild.finish()
    return _result(opening, rebuild, segments, now=offset + clock.monotonic())


def _warn_of_clock(now: float, last: float) -> None:
    """Say so where the clock is far from the last record: it was set, or the deliverer was stopped
    for so long."""
    if not last or abs(now - last) < CLOCK_WARNING_SECONDS:
        return
    days = abs(now - last) / 86_400
    if now > last:
        text = (
            "the clock is %.1f days ahead of the journal's last record: the deliverer was stopped "
            "for so long, or the clock was set; lifetimes and remembered identities count that time"
        )
    else:
        text = (
            "the clock is %.1f days behind the journal's last record: it was set back; the journal "
            "goes on from the time of that record"
        )
    logger.warning(text, days, extra={"event": "journal-clock", "seconds": round(now - last)})


def _restore(stored: StoredIdentity, sink: IdentitySink, *, offset: float) -> None:
    sink.restore(
        stored.digest,
        accepted_at=stored.accepted_at - offset,
        expires=stored.expires or None,
        pending=False,
        reason=REASONS.get(stored.how),
        destination=stored.destination,
        # What was discarded everywhere is in no such file.
        delivered=True,
    )


def _result(
    opening: Opening, rebuild: Rebuild, segments: list[SegmentState], *, now: float
) -> Recovery:
    account = opening.account
    newest = segments[-1].number if segments else 0
    lost_records = any(finding.kind in _LOSSES for finding in opening.findings)
    # An epoch that only a lost record named must not be used again, and each took a record.
    next_epoch = account.next_epoch + -(-opening.lost_bytes // FRAME.size)
    if any(finding.kind is FindingKind.MISSING for finding in opening.findings):
        # A missing segment may have said of a loss before it; journal time grows faster than both.
        next_epoch = max(next_epoch, int(1000 * now))
    recovered = Recovered(
        queues=rebuild.queues,
        subscriptions=account.subscriptions,
        subscription_records=account.subscription_records,
        held=rebuild.held,
        groups=account.groups,
        members=rebuild.members,
        next_epoch=next_epoch,
        damaged=lost_records or account.mended_until > newest or bool(rebuild.lost),
        lost=rebuild.lost,
    )
    _log(opening.findings)
    return Recovery(
        recovered=recovered,
        journal_id=opening.id,
        offset=rebuild.offset,
        next_id=account.last_id + 1,
        next_segment=opening.next_segment,
        next_commit=account.last_commit + 1,
        next_destination=max([-1, *account.destinations, *rebuild.queues, *account.next_number])
        + 1,
        next_subscription=rebuild.next_subscription(),
        destinations=account.destinations,
        segments=tuple(segments),
        shared=rebuild.shared,
        copies=account.copies,
        identities=tuple(opening.identities),
        lost_through=rebuild.lost_through,
        oldest=segments[0].number if segments else opening.next_segment,
        findings=tuple(opening.findings),
    )


def _log(findings: list[Finding]) -> None:
    for finding in findings:
        if finding.kind == FindingKind.UNFINISHED:
            logger.info(
                "cut off the last write of the journal, which the end of the process broke off; "
                "nothing of it was acknowledged",
                extra={
                    "event": "journal-unfinished",
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                },
            )
        elif finding.kind == FindingKind.TORN:
            logger.warning(
                "cut off the end of the journal, which is not what was written: a crash broke the "
                "last write off, or it is damaged and may have been acknowledged",
                extra={
                    "event": "journal-torn",
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                    "lost": finding.lost,
                },
            )
        else:
            logger.error(
                "the journal is damaged; what can be read of it is used",
                extra={
                    "event": "journal-damaged",
                    "damage": finding.kind.value,
                    "file": finding.file,
                    "begin": finding.begin,
                    "end": finding.end,
                    "lost": finding.lost,
                },
            )
