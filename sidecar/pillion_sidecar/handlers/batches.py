"""Batches of deliveries: several in one request, one request at a time, in order."""

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult

#: Maximum bytes of a batch; a longer delivery goes alone.
MOST_BYTES = 1024 * 1024
#: Full batches that are accepted before a batch grows again after a refusal.
FULL_BEFORE_GROWTH = 16
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
        self,
        send: Callable[[list[Waiting]], None],
        *,
        most: int,
        most_bytes: int = MOST_BYTES,
        gathers: bool = False,
    ) -> None:
        """``send`` gets at most ``most`` deliveries; :meth:`conclude` or :meth:`conclude_as_one`
        follows once. ``gathers``: the first delivery goes with those that are added in the same
        turn of the event loop."""
        self.most = most
        self._most_ever = most
        self._most_bytes = most_bytes
        self._gathers = gathers
        # Successes of full batches since a batch was refused or grew.
        self._full = 0
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
        if last.result in _FAILED or last.hold is not None:
            while self._waiting:
                self._waiting.popleft().done(unsent(last))
        if self._waiting and not self._closed:
            self._send_next()
        else:
            self._busy = False

    def conclude_as_one(self, batch: list[Waiting], outcome: DeliveryOutcome) -> None:
        """Report the one outcome of a batch. A refused batch is sent again in smaller ones."""
        if outcome.refuses_indication and len(batch) > 1:
            # Smaller batches show which delivery is refused, or were too large together.
            self.most = len(batch) // 2
            self._full = 0
            outcome = replace(
                outcome, spends_attempt=False, preempted=True, refuses_indication=False
            )
        elif outcome.result is DeliveryResult.SUCCESS and len(batch) == self.most:
            self._full += 1
            if self._full == FULL_BEFORE_GROWTH:
                self._full = 0
                self.most = min(self._most_ever, 2 * self.most)
        self.conclude(batch, [outcome] * len(batch))

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
            if size > self._most_bytes:
                break
            batch.append(waiting.popleft())
        return batch
