"""Ends a session at its stores, once nothing of it is pending any more."""

import asyncio
from collections.abc import Mapping

from pillion_sidecar.clock import Timers
from pillion_sidecar.stores.asking import ask, sleep
from pillion_sidecar.stores.copies import Epoch, FencedError, StoreError
from pillion_sidecar.stores.messages import ReleaseRequest
from pillion_sidecar.stores.ports import Transport, Unanswered
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
            await sleep(timers, WAIT_SECONDS * 2.0 ** (attempt - 1))
        asked = list(left)
        answers = await asyncio.gather(*(ask(transport, store, request) for store in asked))
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
