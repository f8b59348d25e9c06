"""Claims a journal at its stores, and brings a folder to the latest copy, for ``recover``.

The folder is one of the copies that are compared, before it is repaired. It is labelled with the
claimed epoch once it has the whole base, like a store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial

from pillion_sidecar.clock import Timers
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.identities import identities_name, identities_numbers
from pillion_sidecar.journal.marks import MARKS_NAME
from pillion_sidecar.journal.scan import Finding, FindingKind
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    position_of,
    read_header,
    segment_name,
    segment_numbers,
    segment_of,
)
from pillion_sidecar.stores.copies import (
    NO_EPOCH,
    Copy,
    Cut,
    Epoch,
    FencedError,
    Piece,
    Removal,
    bytes_between,
    common_end,
    cut_extents,
    end_of,
    next_change,
)
from pillion_sidecar.stores.damage import (
    Filling,
    Hole,
    find_holes,
    first_needed,
    known_end,
    set_aside,
)
from pillion_sidecar.stores.fetching import Fetcher, LostError, Waiting, problem_of, wait_of
from pillion_sidecar.stores.messages import (
    ClaimRequest,
)
from pillion_sidecar.stores.ports import Answer, Transport
from pillion_sidecar.stores.quorum import (
    Membership,
    completed,
    is_enough,
    is_viable,
    latest,
    missing,
    preceding,
)
from pillion_sidecar.stores.store import StoredCopy

#: How much later than the own one a claim may be that a store tells of.
_MOST_EPOCHS = 1 << 32
#: How often a store is asked again at once.
_MOST_FENCES = 3
#: The name of the folder among the copies; no store has it.
_FOLDER = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claimed:
    epoch: Epoch
    #: The copies of the stores that were asked in time.
    answers: Mapping[str, Copy]
    #: The store whose copy the folder was brought to; None: the folder was the latest copy.
    source: str | None
    #: Whether the folder lacked a part of what the writer before had, and has had no counters
    #: beyond that since. Listeners and others may know numbers that no copy has, so every counter
    #: goes on under a new epoch.
    lacked: bool
    #: Whether it is known that no other has claimed the session since the last run on this folder.
    is_ours: bool
    #: What was damaged in the folder and sound at a store.
    mended: Sequence[Hole] = ()
    #: What the folder has lost for good.
    findings: Sequence[Finding] = ()
    #: Bytes that were cut from the folder, since its log went another way.
    cut: int = 0


def session_of(files: Files) -> str | None:
    """Return the session of a journal's folder; None if it has none yet. Blocks."""
    names = files.names()
    begun = [segment_name(one) for one in segment_numbers(names)]
    known = [identities_name(one) for one in identities_numbers(names)]
    for name in [*begun, *known, *([MARKS_NAME] if MARKS_NAME in names else [])]:
        file = files.open(name)
        try:
            header = read_header(file.read(0, HEADER_SIZE))
        finally:
            file.close()
        if header is not None:
            return header.journal_id.hex()
    return None


async def claim_folder(
    files: Files,
    *,
    session: str,
    claimant: str,
    membership: Membership,
    transport: Transport,
    timers: Timers,
    waiting: Waiting,
    admit: Callable[[Copy], Awaitable[None]] | None = None,
) -> Claimed:
    """Fence the writers before, and make the folder the latest copy; its lock is held.

    Waits until enough stores have answered. ``claimant`` differs for each process, and for each of
    its claims. ``admit`` gets the latest copy before anything of the folder is changed; the rest
    waits for it. Raises StoreError and OSError: the folder itself cannot be used.
    """
    own = await asyncio.to_thread(StoredCopy, session, files, is_own=True)
    first = own.copy.promised.number + 1
    claimer = _Claimer(
        first=first,
        claimant=claimant,
        membership=membership,
        transport=transport,
        timers=timers,
        waiting=waiting,
    )
    epoch, answers = await claimer.run()
    if admit is not None:
        copies = completed({_FOLDER: own.copy, **answers})
        await admit(copies[latest(copies)])
    fetcher = Fetcher(
        answers,
        membership.stores,
        session=session,
        transport=transport,
        timers=timers,
        waiting=waiting,
    )
    mended, findings = await _mend(files, own, answers, fetcher)
    own, source, lost, cut = await _go_on(files, epoch, answers, fetcher)
    return Claimed(
        epoch=epoch,
        answers=answers,
        source=None if source == _FOLDER else source,
        lacked=own.lacks_end,
        # Such answers meet each set of stores that may have promised something to another.
        is_ours=source == _FOLDER and epoch.number == first and is_viable(membership, answers),
        mended=mended,
        findings=[*findings, *lost],
        cut=cut,
    )


async def _go_on(
    files: Files, epoch: Epoch, answers: Mapping[str, Copy], fetcher: Fetcher
) -> tuple[StoredCopy, str, list[Finding], int]:
    """Make the folder the latest copy of which a store has all. Return that store, what the
    folder loses by damage, and the bytes that it loses since its log went another way."""
    findings: list[Finding] = []
    while True:
        own = await asyncio.to_thread(StoredCopy, fetcher.session, files, is_own=True)
        if findings:
            await asyncio.to_thread(own.note_lack)
            await asyncio.to_thread(own.drop_run)
        copies = completed({_FOLDER: own.copy, **answers})
        source = latest(copies)
        try:
            if source == _FOLDER:
                # What it lacks yet, its repair tells of.
                await asyncio.to_thread(own.claim, epoch)
                await _bring(files, own, epoch, own.copy, fetcher, is_other=False)
                return own, source, findings, 0
            # Nobody may know all of what the store has lost.
            own.lacks_end |= copies[source].extents != answers[source].extents
            lost, cut = await _replace(files, own, epoch, copies[source], fetcher)
            return own, source, [*findings, *lost], cut
        except LostError as error:
            answers = {name: _ended(copy, error.piece) for name, copy in answers.items()}
            findings.append(_lost_behind(error.piece))


def _ended(copy: Copy, piece: Piece) -> Copy:
    """Return a copy up to a piece that no store has, if it said to go so far."""
    number, offset = segment_of(piece.position)
    if not any(one[:2] == (number, piece.created) and one.size > offset for one in copy.kept):
        return copy
    extents = cut_extents(copy.extents, piece.position)
    if end_of(extents) < copy.through:
        extents = ()
    # It may lack a part of the base.
    return replace(copy, written=NO_EPOCH, extents=extents, renewed=None, replaced=())


def _lost_behind(piece: Piece) -> Finding:
    number, offset = segment_of(piece.position)
    return Finding(
        kind=FindingKind.DAMAGED,
        file=segment_name(number),
        begin=offset,
        end=offset,
        lost="what one store said to have behind that, and has not",
    )


async def _replace(
    files: Files, own: StoredCopy, epoch: Epoch, chosen: Copy, fetcher: Fetcher
) -> tuple[list[Finding], int]:
    """Bring the folder to a store's copy; return what it loses by damage, and the bytes that it
    loses since its log went another way."""
    copy = own.copy
    agreed = common_end(copy.extents, chosen.extents)
    # What went another way is told of as that.
    known = await asyncio.to_thread(known_end, files, fetcher.session) if agreed == copy.end else 0
    is_short = chosen.end < known
    own.lacks_end |= copy.written != chosen.written or agreed < copy.end or is_short
    is_same = copy.written == chosen.written
    aside = partial(
        set_aside,
        files,
        fetcher.session,
        end=copy.end,
        known=known if is_short else 0,
        restored={one.number: one.size for one in chosen.extents} if is_same else {},
    )
    findings = await asyncio.to_thread(aside)
    # Before anything of it is changed: after a crash the folder may be the latest copy.
    await asyncio.to_thread(own.claim, epoch)
    await _prepare(own, epoch, chosen)
    await _bring(files, own, epoch, chosen, fetcher, is_other=True)
    return findings, bytes_between(copy.extents, agreed, copy.end)


async def _mend(
    files: Files, own: StoredCopy, answers: Mapping[str, Copy], fetcher: Fetcher
) -> tuple[list[Hole], list[Finding]]:
    """Take what is damaged before the folder's end from the stores that have it sound.

    Return what was mended, and what is lost although a part of it was.
    """
    # Nothing notes what the journal itself has removed.
    copy = replace(own.copy, through=own.copy.through or 1)
    is_known = any(one.extents for one in answers.values())
    if copy.replaced or copy.renewed or not copy.extents or not is_known:
        return [], []
    first = await asyncio.to_thread(first_needed, files, fetcher.session, copy.extents)
    before = preceding(copy, answers.values(), first)
    log = completed({_FOLDER: copy, **answers})[_FOLDER].extents
    holes = await asyncio.to_thread(find_holes, files, copy.extents, (*before, *log))
    mended, findings = [], []
    for hole in holes:
        end = max((_size_of(one, hole) for one in answers.values()), default=0)
        hole = hole._replace(end=min(hole.end, end))
        if hole.end <= hole.begin:
            continue
        is_part = hole.end > hole.size and not any(_has_all(one, hole) for one in answers.values())
        if is_part:
            # Listeners may know of what is behind it.
            await asyncio.to_thread(own.note_lack)
        filling = Filling(files, hole)
        while filling.at < hole.end:
            position = position_of(hole.number, filling.at)
            piece = Piece(position, position, hole.created, hole.end - filling.at)
            data = await fetcher.fetch_sound(piece)
            if data is None:
                break
            await asyncio.to_thread(filling.write, data)
        await asyncio.to_thread(filling.finish)
        if filling.at > hole.begin:
            mended.append(hole._replace(end=filling.at))
            if is_part:
                findings.append(_part_lost(hole))
    return mended, findings


def _size_of(copy: Copy, hole: Hole) -> int:
    """Return how much a copy has of the segment of a hole."""
    return next((one.size for one in copy.kept if one[:2] == hole[:2]), 0)


def _has_all(copy: Copy, hole: Hole) -> bool:
    """Whether a copy has all of the segment that ends with a hole, since another follows it."""
    return _size_of(copy, hole) == hole.end and hole.number < copy.kept[-1].number


def _part_lost(hole: Hole) -> Finding:
    return Finding(
        kind=FindingKind.MISSING,
        file=segment_name(hole.number),
        begin=hole.end,
        end=hole.end,
        lost="what the segment had behind that, if anything: no store has its end",
    )


async def _prepare(own: StoredCopy, epoch: Epoch, chosen: Copy) -> None:
    """Note where the folder is whole, so that it is cut to there or to nothing."""
    copy = own.copy
    if copy.end < copy.through:
        # A crash has left it of such a cut.
        await _cut(own, epoch, 0)
    elif copy.extents and chosen.extents and copy.extents[0].number > chosen.extents[0].number:
        # The journal notes no removal of its own.
        await asyncio.to_thread(own.rest)


async def _cut(own: StoredCopy, epoch: Epoch, position: int) -> None:
    if position < own.copy.through:
        # What a crash leaves of it is no copy to go on from.
        await asyncio.to_thread(own.label, NO_EPOCH)
    await asyncio.to_thread(own.cut, epoch, position)


async def _bring(
    files: Files,
    own: StoredCopy,
    epoch: Epoch,
    chosen: Copy,
    fetcher: Fetcher,
    *,
    is_other: bool,
) -> None:
    """``is_other``: the folder is not the latest copy."""
    is_marked, lacks_identities = True, is_other
    base = end_of(chosen.extents)
    # What the folder replaces goes at once: it is no store.
    while (change := next_change(own.copy, epoch, chosen.extents, stable=base)) is not None:
        if is_marked and not (isinstance(change, Piece) and not change.size):
            # They tell of an end that is another now.
            await asyncio.to_thread(_remove_marks, files)
            is_marked = False
        if isinstance(change, Cut):
            await _cut(own, epoch, change.position)
            continue
        if isinstance(change, Removal):
            await asyncio.to_thread(own.remove, epoch, change)
            continue
        # No identities were named.
        assert isinstance(change, Piece)
        if lacks_identities:
            # Before the folder can be the latest copy.
            await _restore_identities(own, epoch, chosen, fetcher)
            lacks_identities = False
        data = await fetcher.fetch(change)
        piece = change._replace(size=len(data))
        await asyncio.to_thread(own.append, epoch, piece, data, base=base)
    # An empty log has no piece.
    await asyncio.to_thread(own.label, epoch)


async def _restore_identities(
    own: StoredCopy, epoch: Epoch, chosen: Copy, fetcher: Fetcher
) -> None:
    """Take the files of identities of removed segments that the folder lacks."""
    first = chosen.extents[0].number

    async def keep(number: int, data: bytes) -> None:
        await asyncio.to_thread(own.keep, epoch, number, data, first=0)

    await fetcher.identities(
        chosen.written, lambda number: number < first and number not in own.identities, keep
    )


def _remove_marks(files: Files) -> None:
    if MARKS_NAME in files.names():
        files.remove(MARKS_NAME)
        files.sync_folder()


class _Claimer:
    """Asks each store until enough of them have promised one epoch."""

    def __init__(
        self,
        *,
        first: int,
        claimant: str,
        membership: Membership,
        transport: Transport,
        timers: Timers,
        waiting: Waiting,
    ) -> None:
        self._number = first
        self._claimant = claimant
        self._membership = membership
        self._transport, self._timers, self._waiting = transport, timers, waiting
        self._answers: dict[str, Copy] = {}
        self._problems: dict[str, str] = {}
        self._failures = dict.fromkeys(membership.stores, 0)
        #: How often each store has told of a later claim.
        self._fences = dict.fromkeys(membership.stores, 0)
        self._done = asyncio.get_running_loop().create_future()

    async def run(self) -> tuple[Epoch, Mapping[str, Copy]]:
        for store in self._membership.stores:
            self._ask(store)
        try:
            await self._done
        finally:
            # What comes late is not heard.
            self._done.cancel()
        return Epoch(self._number, self._claimant), self._answers

    def _ask(self, store: str) -> None:
        if self._done.done():
            return
        request = ClaimRequest(number=self._number, claimant=self._claimant)
        self._transport.send(store, request, partial(self._answered, store, self._number))

    def _answered(self, store: str, number: int, answer: Answer) -> None:
        if self._done.done():
            return
        asked = Epoch(number, self._claimant)
        if isinstance(answer, FencedError) and _is_above(answer.promised, asked):
            assert answer.promised is not None
            self._renew(answer.promised.number + 1)
            self._fences[store] += 1
            if self._fences[store] > _MOST_FENCES:
                # Another one claims as fast, or the store is wrong.
                self._failed(store, answer)
            else:
                self._ask(store)
        elif isinstance(answer, Copy) and number < self._number:
            self._ask(store)
        elif isinstance(answer, Copy) and answer.promised == asked and answer.written < asked:
            self._problems.pop(store, None)
            self._answers[store] = answer
            if is_enough(self._membership, self._answers):
                self._done.set_result(None)
            elif self._problems:
                self._tell()
        else:
            self._failed(store, answer)

    def _renew(self, number: int) -> None:
        """All stores must have promised one number."""
        if number <= self._number:
            return
        self._number = number
        again, self._answers = list(self._answers), {}
        for store in again:
            self._ask(store)

    def _failed(self, store: str, answer: Answer) -> None:
        self._problems[store] = problem_of(answer)
        self._failures[store] += 1
        wait = wait_of(answer, self._failures[store])
        self._timers.call_later(wait, partial(self._ask, store))
        self._tell()

    def _tell(self) -> None:
        self._waiting(missing(self._membership, self._answers), self._problems)


def _is_above(promised: Epoch | None, asked: Epoch) -> bool:
    """Whether a claim was refused by a later one, and not by a mistake."""
    return (
        promised is not None and asked < promised and promised.number <= asked.number + _MOST_EPOCHS
    )
