"""Reads what a claim needs from the stores that have it; none of them is trusted."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from functools import partial
from typing import Protocol

from pillion_sidecar.clock import Timers
from pillion_sidecar.journal.segments import (
    HEADER_SIZE,
    Header,
    next_sound,
    position_of,
    read_header,
    segment_of,
)
from pillion_sidecar.stores.asking import ask, sleep
from pillion_sidecar.stores.copies import Copy, Epoch, FencedError, Piece, StoreError
from pillion_sidecar.stores.messages import (
    MAXIMUM_READ,
    IdentitiesRequest,
    ReadRequest,
    decode_identities,
)
from pillion_sidecar.stores.ports import Answer, Transport, Unanswered
from pillion_sidecar.stores.shipping import RETRY_SECONDS
from pillion_sidecar.stores.store import UnknownError
from pillion_sidecar.stores.tail import whole_records

#: Seconds before a store is asked again at most: a start waits for it.
MOST_WAIT_SECONDS = 5.0


class Waiting(Protocol):
    def __call__(self, missed: Sequence[str], problems: Mapping[str, str]) -> None:
        """The start waits for the stores ``missed``. ``problems``: by store, why it gave no
        answer."""


class LostError(Exception):
    """No store has a part of the log, although one said so."""

    def __init__(self, piece: Piece) -> None:
        super().__init__(piece.position)
        self.piece = piece


class _UnsoundError(StoreError):
    """A store has not what it says, or not sound."""


class Fetcher:
    """Reads the log from any store that has it."""

    def __init__(
        self,
        answers: Mapping[str, Copy],
        stores: Sequence[str],
        *,
        session: str,
        transport: Transport,
        timers: Timers,
        waiting: Waiting,
    ) -> None:
        """``stores``: all that the journal has."""
        self._copies = answers
        self._unheard = [name for name in stores if name not in answers]
        self.session = session
        self._transport, self._timers, self._waiting = transport, timers, waiting
        #: Requests by store. One that has failed is asked when all others have, too.
        self._reads = Counter[str]()
        self._failing: set[str] = set()

    async def fetch(self, piece: Piece) -> bytes:
        """Return the beginning of a piece: whole records, or what no store has sound. Raises
        LostError: no store has anything there."""
        if not piece.size:
            return b""
        found = await self._fetch(piece, waits=True)
        if found is None:
            raise LostError(piece)
        return found

    async def fetch_sound(self, piece: Piece) -> bytes | None:
        """Return whole records from the beginning of a piece; None if no store that answers has
        them sound."""
        return await self._fetch(piece, waits=False)

    async def _fetch(self, piece: Piece, *, waits: bool) -> bytes | None:
        # Whatever its label: a segment has one writer, and number and time tell which.
        heard = [name for name, copy in self._copies.items() if _has(copy, piece)]
        for sources in (list(heard), list(self._unheard)):
            problems: dict[str, str] = {}
            failures = 0
            while sources:
                left = [one for one in sources if one not in problems]
                source = min(left, key=lambda one: (one in self._failing, self._reads[one]))
                self._reads[source] += 1
                found = await self._read(source, piece)
                if isinstance(found, bytes):
                    self._failing.discard(source)
                    return found
                self._failing.add(source)
                if _is_final(found) or (not waits and self._gives_up(source, found)):
                    sources.remove(source)
                else:
                    problems[source] = problem_of(found)
                if sources and problems.keys() >= set(sources):
                    failures += 1
                    self._waiting(sources, problems)
                    await sleep(self._timers, wait_of(found, failures))
                    problems = {}
        return await self._read_damaged(heard, piece) if waits else None

    async def _read_damaged(self, names: Sequence[str], piece: Piece) -> bytes | None:
        """Return what comes before the next sound record of a piece, for a repair to tell of: what
        is behind it is not lost."""
        _, offset = segment_of(piece.position)
        request = ReadRequest(position=piece.position, size=min(MAXIMUM_READ, piece.size))
        for name in names:
            data = await ask(self._transport, name, request)
            if isinstance(data, bytes) and 0 < len(data) <= request.size:
                if not offset and not self._is_of(piece, data):
                    return data[:HEADER_SIZE]
                return data[: next_sound(data, 0 if offset else HEADER_SIZE, len(data))]
        return None

    def _gives_up(self, source: str, answer: Answer) -> bool:
        """Whether a start that can go on does not wait for a store."""
        return source not in self._copies or isinstance(answer, StoreError)

    async def identities(
        self,
        written: Epoch,
        is_wanted: Callable[[int], bool],
        keep: Callable[[int, bytes], Awaitable[None]],
    ) -> None:
        """Read the files of identities of one store with the label ``written``: of that which has
        most, if it answers."""
        # Copies with one label are beginnings of one log.
        sources = [name for name, copy in self._copies.items() if copy.written == written]
        sources.sort(key=lambda name: -self._copies[name].identities)
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
                    problems[source] = problem_of(found)
                    waits = max(waits, wait_of(found, failures + 1))
            if problems:
                failures += 1
                self._waiting(sources, problems)
                await sleep(self._timers, waits)

    async def _identities(
        self,
        source: str,
        is_wanted: Callable[[int], bool],
        keep: Callable[[int, bytes], Awaitable[None]],
    ) -> Answer | None:
        """Return None, or what the store has answered instead."""
        listed = await ask(self._transport, source, IdentitiesRequest())
        if not isinstance(listed, bytes):
            return listed
        try:
            sizes = decode_identities(listed)
        except ValueError as error:
            return Unanswered(reason=f"its list of identities is none: {error}")
        for number, size in sizes:
            data = b""
            while is_wanted(number) and len(data) < size:
                request = ReadRequest(
                    identities=True,
                    position=position_of(number, len(data)),
                    size=min(MAXIMUM_READ, size - len(data)),
                )
                answer = await ask(self._transport, source, request)
                if not isinstance(answer, bytes):
                    return answer
                if not 0 < len(answer) <= request.size:
                    return Unanswered(reason=f"its identities of segment {number:x} end early")
                data += answer
            header = read_header(data)
            if header is not None and header[:2] != (number, bytes.fromhex(self.session)):
                return Unanswered(reason=f"its identities of segment {number:x} are of another")
            if data:
                await keep(number, data)
        return None

    async def _read(self, source: str, piece: Piece) -> Answer:
        """A record may be longer than what a store returns at once."""
        number, offset = segment_of(piece.position)
        if offset and source not in self._copies:
            header = ReadRequest(position=position_of(number, 0), size=HEADER_SIZE)
            answer = await ask(self._transport, source, header)
            if not isinstance(answer, bytes):
                return answer
            if not self._is_of(piece, answer):
                return _UnsoundError(f"it has another segment {number:x}")
        data = b""
        while len(data) < piece.size:
            request = ReadRequest(
                position=piece.position + len(data),
                size=min(MAXIMUM_READ, piece.size - len(data)),
            )
            answer = await ask(self._transport, source, request)
            if not isinstance(answer, bytes):
                return answer
            if not 0 < len(answer) <= request.size:
                return _UnsoundError(f"its copy ends at {piece.position + len(data):x}")
            data += answer
            end = whole_records(piece.position, data, len(data))
            if end and (offset or self._is_of(piece, data)):
                return data[:end]
        return _UnsoundError(f"its copy is damaged at {piece.position:x}")

    def _is_of(self, piece: Piece, data: bytes) -> bool:
        """Whether bytes begin the segment of a piece."""
        number, _ = segment_of(piece.position)
        header = Header(number, bytes.fromhex(self.session), piece.created)
        return read_header(data) == header


def _is_final(answer: Answer) -> bool:
    """Whether a store will not have what it was asked for."""
    return isinstance(answer, _UnsoundError | UnknownError)


def _has(copy: Copy, piece: Piece) -> bool:
    number, offset = segment_of(piece.position)
    return any(
        one[:2] == (number, piece.created) and one.size >= offset + piece.size
        for one in copy.extents
    )


async def find(stores: Sequence[str], *, transport: Transport) -> Mapping[str, Answer]:
    """Ask stores whether they have a session, until one has it: it answers bytes. Nothing is
    changed."""
    found: asyncio.Future[None] = asyncio.get_running_loop().create_future()
    answers: dict[str, Answer] = {}

    def take(store: str, answer: Answer) -> None:
        if found.done():
            return
        answers[store] = answer
        if isinstance(answer, bytes) or len(answers) == len(stores):
            found.set_result(None)

    for store in stores:
        transport.send(store, IdentitiesRequest(), partial(take, store))
    await found
    return answers


def problem_of(answer: Answer) -> str:
    match answer:
        case Unanswered(reason=reason):
            return reason
        case FencedError(promised=Epoch(number=number)):
            return f"{answer} (epoch {number})"
        case StoreError():
            return str(answer)
        case Copy(promised=promised, written=written):
            told = f"epoch {written.number} under the claim of {promised.number}"
            return f"it tells of {told}, which is not this claim"
    return "its answer is none to this request"


def wait_of(answer: Answer, failures: int) -> float:
    """``failures``: without a success, at least 1."""
    asked = answer.retry_after if isinstance(answer, Unanswered) else 0.0
    return max(asked, min(MOST_WAIT_SECONDS, RETRY_SECONDS * 2.0 ** min(failures - 1, 10)))
