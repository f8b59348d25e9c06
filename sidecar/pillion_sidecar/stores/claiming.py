"""Claims a journal at its stores, and brings a folder to the latest copy, for ``recover``.

The folder is one of the copies that are compared, before it is repaired. It is labelled with the
claimed epoch once it has the whole base, like a store.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Timers
from pillion_sidecar.journal.files import Files
from pillion_sidecar.journal.identities import identities_name, identities_numbers
from pillion_sidecar.journal.marks import MARKS_NAME
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
    StoreError,
    common_end,
    end_of,
    next_change,
)
from pillion_sidecar.stores.messages import (
    MAXIMUM_READ,
    ClaimRequest,
    IdentitiesRequest,
    ReadRequest,
    decode_identities,
)
from pillion_sidecar.stores.ports import Answer, Transport, Unanswered
from pillion_sidecar.stores.quorum import Membership, is_enough, is_viable, latest, missing
from pillion_sidecar.stores.shipping import RETRY_SECONDS
from pillion_sidecar.stores.store import MalformedError, StoredCopy, check_records
from pillion_sidecar.stores.tail import whole_records

#: Seconds before a store is asked again at most: a start waits for it.
MOST_WAIT_SECONDS = 5.0
#: The name of the folder among the copies; no store has it.
_FOLDER = ""


class Waiting(Protocol):
    def __call__(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        """The start waits for the stores ``missed``. ``problems``: by store, why it gave no
        answer."""


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
) -> Claimed:
    """Fence the writers before, and make the folder the latest copy; its lock is held.

    Waits until enough stores have answered. ``claimant`` differs for each process, and for each of
    its claims. Raises StoreError and OSError: the folder itself cannot be used.
    """
    own = await asyncio.to_thread(StoredCopy, session, files)
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
    source = latest({_FOLDER: own.copy, **answers})
    chosen = own.copy if source == _FOLDER else answers[source]
    lacked = own.lacks_end or (
        source != _FOLDER
        and (
            own.copy.written != chosen.written
            or common_end(own.copy.extents, chosen.extents) < own.copy.end
        )
    )
    # Before anything of it is changed: after a crash the folder may be the latest copy.
    own.lacks_end = lacked
    await asyncio.to_thread(own.claim, epoch)
    if source != _FOLDER:
        await _prepare(own, epoch, chosen)
    fetcher = _Fetcher(
        chosen, answers, session=session, transport=transport, timers=timers, waiting=waiting
    )
    await _bring(files, own, epoch, chosen, fetcher, is_other=source != _FOLDER)
    return Claimed(
        epoch=epoch,
        answers=answers,
        source=None if source == _FOLDER else source,
        lacked=lacked,
        # Such answers meet each set of stores that may have promised something to another.
        is_ours=source == _FOLDER and epoch.number == first and is_viable(membership, answers),
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
    fetcher: "_Fetcher",
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
            await _restore_identities(own, epoch, chosen.extents[0].number, fetcher)
            lacks_identities = False
        data = await fetcher.fetch(change)
        piece = change._replace(size=len(data))
        await asyncio.to_thread(own.append, epoch, piece, data, base=base)
    # An empty log has no piece.
    await asyncio.to_thread(own.label, epoch)


async def _restore_identities(
    own: StoredCopy, epoch: Epoch, first: int, fetcher: "_Fetcher"
) -> None:
    """Take the files of identities of segments before ``first`` that the folder lacks."""

    async def keep(number: int, data: bytes) -> None:
        await asyncio.to_thread(own.keep, epoch, number, data, first=0)

    await fetcher.identities(lambda number: number < first and number not in own.identities, keep)


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
        if isinstance(answer, FencedError) and answer.promised is not None:
            self._raise(answer.promised.number + 1)
            self._ask(store)
        elif isinstance(answer, Copy) and number < self._number:
            self._ask(store)
        elif isinstance(answer, Copy):
            self._problems.pop(store, None)
            self._answers[store] = answer
            if is_enough(self._membership, self._answers):
                self._done.set_result(None)
            elif self._problems:
                self._tell()
        else:
            self._failed(store, answer)

    def _raise(self, number: int) -> None:
        """All stores must have promised one number."""
        if number <= self._number:
            return
        self._number = number
        again, self._answers = list(self._answers), {}
        for store in again:
            self._ask(store)

    def _failed(self, store: str, answer: Answer) -> None:
        self._problems[store] = _problem(answer)
        self._failures[store] += 1
        wait = _wait(answer, self._failures[store])
        self._timers.call_later(wait, partial(self._ask, store))
        self._tell()

    def _tell(self) -> None:
        self._waiting(missing(self._membership, self._answers), self._problems)


class _Fetcher:
    """Reads the chosen log from any store that has it."""

    def __init__(
        self,
        chosen: Copy,
        answers: Mapping[str, Copy],
        *,
        session: str,
        transport: Transport,
        timers: Timers,
        waiting: Waiting,
    ) -> None:
        # Copies with one label are beginnings of one log.
        self._copies = {
            name: copy for name, copy in answers.items() if copy.written == chosen.written
        }
        self._session = session
        self._transport, self._timers, self._waiting = transport, timers, waiting
        #: Requests by store. One that has failed is asked when all others have, too.
        self._reads = dict.fromkeys(self._copies, 0)
        self._failing: set[str] = set()

    async def fetch(self, piece: Piece) -> bytes:
        """Return whole records from the beginning of a piece: of the store that was asked least."""
        if not piece.size:
            return b""
        sources = [name for name, copy in self._copies.items() if _has(copy, piece)]
        problems: dict[str, str] = {}
        failures = 0
        while True:
            left = [one for one in sources if one not in problems]
            source = min(left, key=lambda one: (one in self._failing, self._reads[one]))
            self._reads[source] += 1
            found = await self._read(source, piece)
            if isinstance(found, bytes):
                self._failing.discard(source)
                return found
            self._failing.add(source)
            problems[source] = _problem(found)
            if len(problems) == len(sources):
                failures += 1
                self._waiting(sources, problems)
                await _sleep(self._timers, _wait(found, failures))
                problems = {}

    async def identities(
        self,
        is_wanted: Callable[[int], bool],
        keep: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        """Read the files of identities of one store: of that which has most, if it answers."""
        sources = sorted(self._copies, key=lambda name: -self._copies[name].identities)
        failures = 0
        while sources:
            problems: dict[str, str] = {}
            waits = 0.0
            for source in list(sources):
                found = await self._identities(source, is_wanted, keep)
                if found is None:
                    return
                if isinstance(found, StoreError):
                    # It keeps none.
                    sources.remove(source)
                else:
                    problems[source] = _problem(found)
                    waits = max(waits, _wait(found, failures + 1))
            if problems:
                failures += 1
                self._waiting(sources, problems)
                await _sleep(self._timers, waits)

    async def _identities(
        self,
        source: str,
        is_wanted: Callable[[int], bool],
        keep: Callable[[int, bytes], Awaitable[None]],
    ) -> Answer | None:
        """Return None, or what the store has answered instead."""
        listed = await _ask(self._transport, source, IdentitiesRequest())
        if not isinstance(listed, bytes):
            return listed
        for number, size in decode_identities(listed):
            data = b""
            while is_wanted(number) and len(data) < size:
                request = ReadRequest(
                    identities=True,
                    position=position_of(number, len(data)),
                    size=min(MAXIMUM_READ, size - len(data)),
                )
                answer = await _ask(self._transport, source, request)
                if not isinstance(answer, bytes):
                    return answer
                if not answer:
                    return Unanswered(reason=f"its identities of segment {number:x} end early")
                data += answer
            if data:
                await keep(number, data)
        return None

    def _checked(self, piece: Piece, data: bytes) -> Answer:
        try:
            check_records(self._session, piece._replace(size=len(data)), data)
        except MalformedError as error:
            return Unanswered(reason=f"its copy is damaged: {error}")
        return data

    async def _read(self, source: str, piece: Piece) -> Answer:
        """A record may be longer than what a store returns at once."""
        data = b""
        while len(data) < piece.size:
            request = ReadRequest(
                position=piece.position + len(data),
                size=min(MAXIMUM_READ, piece.size - len(data)),
            )
            answer = await _ask(self._transport, source, request)
            if not isinstance(answer, bytes):
                return answer
            if not answer:
                return Unanswered(reason=f"its copy ends at {piece.position + len(data):x}")
            data += answer
            end = whole_records(piece.position, data, len(data))
            if end:
                return self._checked(piece, data[:end])
        return Unanswered(reason=f"its copy is damaged at {piece.position:x}")


def _has(copy: Copy, piece: Piece) -> bool:
    number, offset = segment_of(piece.position)
    return any(
        one[:2] == (number, piece.created) and one.size >= offset + piece.size
        for one in copy.extents
    )


async def _ask(
    transport: Transport, store: str, request: ReadRequest | IdentitiesRequest
) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def take(answer: Answer) -> None:
        if not answered.cancelled():
            answered.set_result(answer)

    transport.send(store, request, take)
    return await answered


async def _sleep(timers: Timers, seconds: float) -> None:
    due = asyncio.Event()
    timer = timers.call_later(seconds, due.set)
    try:
        await due.wait()
    finally:
        timer.cancel()


def _problem(answer: Answer) -> str:
    match answer:
        case Unanswered(reason=reason):
            return reason
        case StoreError():
            return str(answer)
    return "its answer is none to this request"


def _wait(answer: Answer, failures: int) -> float:
    """``failures``: without a success, at least 1."""
    asked = answer.retry_after if isinstance(answer, Unanswered) else 0.0
    return max(asked, min(MOST_WAIT_SECONDS, RETRY_SECONDS * 2.0 ** min(failures - 1, 10)))
