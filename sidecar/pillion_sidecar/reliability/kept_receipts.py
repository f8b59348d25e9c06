"""Keeps receipts and callbacks over a restart, as notes in the history."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Collection, Iterable, Sequence
from errno import EAGAIN
from functools import partial
from typing import TypeAlias

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.history.outcome import (
    NoteResult,
    Numbered,
    OutcomeQuery,
    called_back_note,
    receipt_note,
)
from pillion_sidecar.history.recorder import History
from pillion_sidecar.reliability.callbacks import (
    MAXIMUM_AWAITED,
    BadCallback,
    Callbacks,
    check_callback,
)
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.receipt_notes import (
    EarlierReceipt,
    Followed,
    ReceiptNote,
    encode_note,
    note_of,
    read_note,
)
from pillion_sidecar.reliability.receipts import (
    MAXIMUM_RECEIPTS,
    Receipt,
    ReceiptView,
    Signal,
)

#: Seconds that an answer waits for the note of its receipt; later it is written without the answer.
NOTE_SECONDS = 1.0
#: Seconds that a note waits for the disk.
LONGEST_NOTING = 3600.0
#: Notes that wait for the disk at a time; receipts beyond live in this process alone.
MOST_NOTING = 1_000
#: Bytes of a note.
MOST_NOTE_BYTES = 1 << 20
#: Receipts of earlier runs that are followed because somebody asked.
MOST_EARLIER = 1_000
#: Seconds between two looks for the outcomes that callbacks of an earlier run wait for.
LOOK_SECONDS = 1.0


#: Calls back once what was taken before is safe.
Barrier: TypeAlias = Callable[[Callable[[], None]], None]
#: Makes the body of a callback.
Render: TypeAlias = Callable[[ReceiptView], bytes]
logger = logging.getLogger("pillion.reliability")


class ReceiptGone(Exception):
    """Outcomes of the lines of a receipt have left the history."""


class KeptReceipts:
    def __init__(
        self,
        *,
        history: History,
        memory: DuplicateMemory,
        clock: Clock,
        timers: Timers,
        barrier: Barrier,
        journal: Callable[[], str | None] = lambda: None,
        stable: Callable[[], Barrier | None] = lambda: None,
    ) -> None:
        """``barrier``: see ``Queues``. ``journal`` returns the ID of the journal that keeps
        indications over a restart; None without one. ``stable`` returns the barrier of its stores;
        None without any."""
        self._history = history
        self._memory = memory
        self._clock = clock
        self._timers = timers
        self._barrier = barrier
        self._journal, self._stable = journal, stable
        self._noting = 0
        self._tasks: set[asyncio.Task[None]] = set()
        self._reading = asyncio.Lock()
        # The numbers of the notes, by the IDs of their receipts; None before they were read.
        self._numbers: dict[str, int] | None = None
        self._earlier: OrderedDict[str, EarlierReceipt] = OrderedDict()

    # ------------------------------------------------------------------ what is kept

    async def keep(
        self, receipt: Receipt, *, publisher: str | None, callback: str | None, seconds: float
    ) -> None:
        """Note a receipt, and wait for a while until the note is on disk, unless its request has
        waited for the disk in vain. ``callback``: a URL that is to be called within ``seconds``."""
        journal = self._journal()
        if journal is None or self._noting >= MOST_NOTING:
            return
        called = None if callback is None else (callback, self._clock.time() + seconds)
        noted = Signal(self._timers)
        task = asyncio.create_task(self._note(receipt, journal, publisher, called, noted))
        self._noting += 1
        self._tasks.add(task)
        task.add_done_callback(self._noted)
        if callback is not None or not receipt.is_for_durable:
            await noted.wait(NOTE_SECONDS)

    def _noted(self, task: "asyncio.Task[None]") -> None:
        self._noting -= 1
        self._tasks.discard(task)

    async def _note(
        self,
        receipt: Receipt,
        journal: str,
        publisher: str | None,
        callback: tuple[str, float] | None,
        noted: Signal,
    ) -> None:
        history = self._history
        # At one moment: the outcomes up to this number, and the lines that are pending.
        after = history.last
        note, pending = note_of(receipt, journal=journal, after=after, callback=callback)
        # A crash takes back what is not committed, lines and outcomes: the note must not know of
        # them.
        secured = asyncio.Event()
        self._barrier(secured.set)
        await secured.wait()
        await history.show(after, seconds=LONGEST_NOTING)
        data = await asyncio.to_thread(encode_note, note, pending)
        if data is not None and len(data) <= MOST_NOTE_BYTES:
            now = self._clock.time()
            history.add(receipt_note(receipt.id, data, publisher=publisher, at=now))
            await history.show(history.last, seconds=LONGEST_NOTING)
        noted.give()

    def called_back(self, receipt_id: str) -> None:
        """The callback of a receipt was sent, or given up: no later run sends it."""
        if self._journal() is None:
            return
        self._history.add(called_back_note(receipt_id, at=self._clock.time()))
        self._history.commit()

    # ------------------------------------------------------------------ what is asked

    async def find(self, receipt_id: str, *, namespace: str | None) -> EarlierReceipt | None:
        """Return a receipt of an earlier run of a publisher of ``namespace``, or None. Raises
        OSError if the history cannot be read."""
        receipt = self._earlier.get(receipt_id)
        if receipt is None and self._journal() is not None:
            async with self._reading:
                receipt = self._earlier.get(receipt_id) or await self._restore(receipt_id)
        if receipt is None or receipt.namespace != namespace:
            return None
        self._earlier[receipt_id] = receipt
        self._earlier.move_to_end(receipt_id)
        if len(self._earlier) > MOST_EARLIER:
            self._earlier.popitem(last=False)
        return receipt

    async def _restore(self, receipt_id: str) -> EarlierReceipt | None:
        numbers = await self._index(NOTE_SECONDS)
        number = numbers.get(receipt_id)
        if number is None:
            return None
        query = OutcomeQuery(result=NoteResult.RECEIPT, identifier=receipt_id)
        page = await asyncio.to_thread(self._history.page(query, after=number - 1, limit=1))
        for one in page.found:
            note = read_note(one.outcome)
            if note is not None:
                return self._made(note)
        return None

    def _made(self, note: ReceiptNote) -> EarlierReceipt:
        """All that the journal had before this run is stable once what it has now is."""
        receipt = EarlierReceipt(note, memory=self._memory, timers=self._timers)
        barrier = self._stable()
        if receipt.is_for_stable and barrier is not None:
            barrier(receipt.stable.give)
        return receipt

    async def _index(self, seconds: float) -> dict[str, int]:
        """Return the numbers of the notes, by receipt. Raises OSError."""
        if self._numbers is None:
            history = self._history
            # With the note of this start.
            if self._stable() and not await history.show(history.last, seconds=seconds):
                raise OSError(EAGAIN, "its last outcomes are not on disk yet")
            every = history.every_settled(OutcomeQuery(result=NoteResult.RECEIPT), after=0)
            lacked = history.every_settled(OutcomeQuery(result=NoteResult.LACKED), after=0)

            def read() -> dict[str, int]:
                begin = max((one.number for one in lacked()), default=0)
                return _newest(one for one in every() if one.number > begin)

            self._numbers = await asyncio.to_thread(read)
        return self._numbers

    async def follow(self, receipt: EarlierReceipt, seconds: float) -> bool:
        """Wait until all lines of a receipt are settled, for at most ``seconds``; return whether
        they are. Raises ReceiptGone, and OSError if the history cannot be read."""
        until = self._clock.monotonic() + seconds
        while True:
            await self._refresh((receipt,))
            left = until - self._clock.monotonic()
            if receipt.is_gone and not receipt.settled_all.given:
                raise ReceiptGone
            if receipt.settled_all.given or left <= 0:
                return receipt.settled_all.given
            await self._news(receipt.through, left)

    async def _news(self, through: int, seconds: float) -> None:
        """Wait for an outcome above a number, and a little longer: each look reads files."""
        until = self._clock.monotonic() + seconds
        await self._history.wait(through, seconds)
        left = until - self._clock.monotonic()
        await Signal(self._timers).wait(min(LOOK_SECONDS, left))

    async def _refresh(self, receipts: Sequence[EarlierReceipt]) -> None:
        # Not ended with the request: what is read must be read once.
        task = asyncio.create_task(self._read(receipts))
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        await asyncio.shield(task)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._tasks.discard(task)
        if not task.cancelled():
            # Who asked may have left without it.
            task.exception()

    async def _read(self, receipts: Sequence[EarlierReceipt]) -> None:
        async with self._reading:
            waiting = [one for one in receipts if one.waits_for_outcomes]
            if waiting:
                history = self._history
                begin, through = min(one.through for one in waiting), history.settled
                read = partial(
                    _feed,
                    waiting,
                    history.every_settled(OutcomeQuery(), after=begin),
                    through=through,
                )
                oldest, begins = history.first_kept(), [(one, one.through) for one in waiting]
                await asyncio.to_thread(read)
                # Asked afterwards: segments may be removed meanwhile.
                kept_from = await asyncio.to_thread(oldest)
                for one, seen in begins:
                    one.is_gone = one.is_gone or kept_from > seen + 1
        for one in receipts:
            one.look()

    # ------------------------------------------------------------------ callbacks

    def resume(
        self, callbacks: Callbacks, *, prefixes: Callable[[], Sequence[str]], render: Render
    ) -> None:
        """Send the callbacks that earlier runs have not sent, where the service still allows
        them."""
        if self._journal() is not None:
            through = self._history.settled
            task = asyncio.create_task(self._try_to_resume(callbacks, through, prefixes, render))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _try_to_resume(
        self,
        callbacks: Callbacks,
        through: int,
        prefixes: Callable[[], Sequence[str]],
        render: Render,
    ) -> None:
        try:
            await self._resume(callbacks, through, prefixes, render)
        except OSError as error:
            logger.warning(
                "the history cannot be read: %s; callbacks of earlier runs may not be sent",
                error.strerror or error,
                extra={"event": "callbacks-not-resumed"},
            )

    async def _resume(
        self,
        callbacks: Callbacks,
        through: int,
        prefixes: Callable[[], Sequence[str]],
        render: Render,
    ) -> None:
        if not prefixes():
            return
        async with self._reading:
            known = await self._index(LONGEST_NOTING)
            waiting = await self._unsent(through, known)
        await self._refresh(waiting)
        for receipt in waiting:
            assert receipt.note.callback is not None
            url, until = receipt.note.callback
            done = partial(self.called_back, receipt.id)
            try:
                check_callback(url, prefixes())
            except BadCallback:
                callbacks.refuse(receipt.id, url, "the service does not allow it any more", done)
                continue
            seconds = max(0.0, until - self._clock.time())
            callbacks.expect(receipt, url=url, seconds=seconds, render=render, done=done)
        while waiting:
            await self._news(max(one.through for one in waiting), LONGEST_NOTING)
            await self._refresh(waiting)
            waiting = [one for one in waiting if not (one.settled_all.given or one.is_gone)]

    async def _unsent(self, through: int, known: Collection[str]) -> list[EarlierReceipt]:
        """``known``: the receipts whose lines the journal has."""
        history = self._history
        every = history.every_settled(OutcomeQuery(result=NoteResult.RECEIPT), after=0)
        ended = history.every_settled(OutcomeQuery(result=NoteResult.CALLED_BACK), after=0)

        def read() -> list[ReceiptNote]:
            notes = [read_note(one.outcome) for one in every() if one.number <= through]
            expected = {note.id: note for note in notes if note is not None and note.callback}
            for one in ended() if expected else ():
                expected.pop(one.outcome.identifier or "", None)
            return list(expected.values())[-MAXIMUM_AWAITED:]

        notes = await asyncio.to_thread(read)
        return [
            self._made(one)
            if one.id in known
            else EarlierReceipt(one, memory=self._memory, timers=self._timers)
            for one in notes
        ]

    def close(self) -> None:
        for task in self._tasks:
            task.cancel()


def _newest(notes: Iterable[Numbered]) -> dict[str, int]:
    """Return the numbers of the last notes, by the IDs of their receipts."""
    numbers: OrderedDict[str, int] = OrderedDict()
    for number, outcome in notes:
        numbers[outcome.identifier or ""] = number
        if len(numbers) > MAXIMUM_RECEIPTS:
            numbers.popitem(last=False)
    return numbers


def _feed(
    receipts: Sequence[EarlierReceipt], every: Callable[[], Iterable[Numbered]], *, through: int
) -> None:
    Followed(receipts).feed(every(), through=through)
