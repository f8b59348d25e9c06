"""Starts on a journal's folder, and holds what is found against the books."""

from collections import Counter
from collections.abc import Sequence

from pillion_sidecar.clock import Clock
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.journal.ports import PlainIdentity
from pillion_sidecar.journal.recovery import Recovery, recover
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.testing import FakeTime
from support.journal_files import MemoryFiles, Written, books_of
from support.journal_owner import restore_each


class Identities:
    """Takes the identities that a journal remembers."""

    def __init__(self) -> None:
        self.found: dict[bytes, tuple[bool, DiscardReason | None]] = {}
        self.times: dict[bytes, tuple[float, float | None, str]] = {}

    def restore_all(self, identities: Sequence[PlainIdentity], *, offset: float) -> None:
        restore_each(self.restore, identities, offset=offset)

    def restore(
        self,
        digest: bytes,
        *,
        accepted_at: float,
        expires: float | None,
        pending: bool,
        reason: DiscardReason | None,
        destination: str,
        delivered: bool = False,
        repeat: bool = False,
    ) -> None:
        assert digest not in self.found, "restored twice"
        # What was discarded somewhere has ended so, whatever is pending elsewhere.
        self.found[digest] = (pending and reason is None, reason)
        self.times[digest] = (accepted_at, expires, destination)


def open_again(
    files: MemoryFiles, sink: Identities | None = None, *, clock: Clock | None = None
) -> Recovery:
    """Start on a folder."""
    return recover(
        files, clock=clock or FakeTime(), identities=sink or Identities(), new_journal_id=b"n" * 16
    )


def columns(recovery: Recovery) -> dict[int, list[tuple[int, int, int, int]]]:
    """Return number, id, position and subscription of what is pending, as ``Books`` has them."""
    return {
        index: list(
            zip(queue.numbers, queue.ids, queue.positions, queue.subscriptions, strict=True)
        )
        for index, queue in recovery.recovered.queues.items()
        if queue.ids
    }


def check(files: MemoryFiles, written: Sequence[Written]) -> Recovery:
    """Open the folder; hold what is found against the books."""
    sink = Identities()
    recovery = open_again(files, sink)
    books = books_of(written)
    assert columns(recovery) == books.columns
    assert {held.id: held.position for held, _ in recovery.recovered.held} == books.held
    assert sink.found == books.identities
    counts = Counter(entry[0] for entry in books.pending.values())
    assert recovery.shared == {one: count for one, count in counts.items() if count > 1}
    assert recovery.next_id > max((one.id for one in written), default=0)
    for index, queue in recovery.recovered.queues.items():
        used = [p.number for one in written for p in one.places if p.destination == index]
        assert queue.next_number > max([-1, *(n for n in used if n < 2**63)])
    needed = {entry[1] for entry in books.pending.values()} | set(books.held.values())
    for segment in recovery.segments:
        assert segment.size == files.size(segment_name(segment.number))
        live = [one.end - one.begin for one in written if one.position in needed]
        mine = [one for one in written if one.segment == segment.number]
        assert segment.live == sum(one.end - one.begin for one in mine if one.position in needed), (
            live
        )
    return recovery
