"""Ends a session at its stores, once nothing of it is pending any more."""

import asyncio
from collections.abc import Mapping

from pillion_sidecar.clock import Timers
from pillion_sidecar.stores.copies import Epoch, FencedError, StoreError
from pillion_sidecar.stores.messages import ReleaseRequest
from pillion_sidecar.stores.ports import Answer, Transport, Unanswered
from pillion_sidecar.stores.store import UnknownError

#: How often a store is asked that does not answer, and seconds before the second time; each wait is
#: twice the one before.
TRIES = 5
WAIT_SECONDS = 1.0


async def release(
    epoch: Epoch, stores: tuple[str, ...], *, transport: Transport, timers: Timers
) -> Mapping[str, str]:
    """Have each store forget the session; return why some could not be asked.

    Raises FencedError: somebody else has claimed it.
    """
    number, claimant = epoch
    request = ReleaseRequest(number=number, claimant=claimant)
    left = dict.fromkeys(stores, "")
    for attempt in range(TRIES):
        if attempt:
            await _sleep(timers, WAIT_SECONDS * 2.0 ** (attempt - 1))
        asked = list(left)
        answers = await asyncio.gather(*(_ask(transport, store, request) for store in asked))
        for store, answer in zip(asked, answers, strict=True):
            if isinstance(answer, FencedError):
                raise answer
            if isinstance(answer, Unanswered):
                left[store] = answer.reason
            elif isinstance(answer, StoreError) and not isinstance(answer, UnknownError):
                left[store] = str(answer)
            else:
                # Stores of earlier versions do not know what they have forgotten.
                del left[store]
        if not left:
            break
    return left


async def _ask(transport: Transport, store: str, request: ReleaseRequest) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

    def take(answer: Answer) -> None:
        if not answered.done():
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
