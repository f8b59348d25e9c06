"""Batches of deliveries: several in one request, one request at a time, in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult

#: Maximum bytes of a batch; a longer delivery goes alone.
MOST_BYTES = 1024 * 1024
_FAILED = (DeliveryResult.ERROR, DeliveryResult.POST_DELIVERY_ERROR)


class Waiting(NamedTuple):
    body: bytes
    #: Gets the outcome.
    done: Callable[[DeliveryOutcome], None]


def unsent(failure: DeliveryOutcome) -> DeliveryOutcome:
    """Return the outcome of what comes after a failed delivery: not sent, so no attempt."""
    return replace(
        failure,
        result=DeliveryResult.ERROR,
        spends_attempt=False,
        preempted=True,
        refuses_indication=False,
    )


class Batches:
    """Collects deliveries, and sends a batch when the previous one is concluded.

    The first delivery goes at once; those that arrive while a batch is under way go with the next,
    so a slow listener causes longer batches.
    """

    def __init__(
        self, send: Callable[[list[Waiting]], None], *, most: int, gathers: bool = False
    ) -> None:
        """``send`` gets at most ``most`` deliveries; :meth:`conclude` follows once. ``gathers``:
        the first delivery goes with those that are added in the same turn of the event loop."""
        self.most = most
        self._gathers = gathers
        self._send = send
        self._waiting: deque[Waiting] = deque()
        # A batch is under way, or its outcomes are being reported.
        self._busy = False
        self._closed = False

    def add(self, body: bytes, done: Callable[[DeliveryOutcome], None]) -> None:
        self._waiting.append(Waiting(body, done))
        if self._busy:
            return
        self._busy = True
        if self._gathers:
            asyncio.get_running_loop().call_soon(self._send_first)
        else:
            self._send_next()

    def conclude(self, batch: list[Waiting], outcomes: Sequence[DeliveryOutcome]) -> None:
        """Report outcomes in order. What delivery hands over meanwhile waits. If the last failed,
        it comes back too, to keep the order."""
        for waiting, outcome in zip(batch, outcomes, strict=True):
            if self._closed:
                return
            waiting.done(outcome)
        last = outcomes[-1]
        if last.result in _FAILED:
            while self._waiting:
                self._waiting.popleft().done(unsent(last))
        if self._waiting and not self._closed:
            self._send_next()
        else:
            self._busy = False

    def close(self) -> None:
        """Nothing more is sent or reported."""
        self._closed = True
        self._waiting.clear()

    def _send_first(self) -> None:
        if not self._closed:
            self._send_next()

    def _send_next(self) -> None:
        self._send(self._take())

    def _take(self) -> list[Waiting]:
        waiting = self._waiting
        batch = [waiting.popleft()]
        size = len(batch[0].body)
        while waiting and len(batch) < self.most:
            size += len(waiting[0].body)
            if size > MOST_BYTES:
                break
            batch.append(waiting.popleft())
        return batch
