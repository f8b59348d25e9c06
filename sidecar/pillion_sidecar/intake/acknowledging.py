"""How far a request must have come before it is answered, and what is told later: by receipt or by
callback (S1.9)."""

import asyncio

from pillion_sidecar.clock import Timers
from pillion_sidecar.config.resources import Acknowledgement
from pillion_sidecar.intake.acceptance import Rooms
from pillion_sidecar.intake.answers import callback_body
from pillion_sidecar.intake.parameters import BadParameter, Parameters
from pillion_sidecar.reliability.callbacks import Callbacks
from pillion_sidecar.reliability.tracking import Receipt, Receipts, Signal


class Acknowledging:
    """Receipts, those who wait for them, and those who are called back."""

    def __init__(self, *, rooms: Rooms, timers: Timers, callbacks: Callbacks | None) -> None:
        """Without ``callbacks`` nobody can be called back."""
        self._rooms = rooms
        self._timers = timers
        self._callbacks = callbacks
        self._receipts = Receipts()

    def refusal(self, parameters: Parameters) -> str | None:
        """Return why a request cannot be taken up now; None where it can.

        Raises :class:`BadParameter` where it never can.
        """
        if parameters.callback is None:
            return None
        if self._callbacks is None:
            raise BadParameter("callback: this deliverer calls nobody back; poll the receipt")
        return self._callbacks.refusal

    def begin(self, parameters: Parameters, *, namespace: str | None) -> Receipt | None:
        """Return what follows the lines of a request of ``namespace``; None where it is answered
        once they are accepted, and nothing is told later."""
        level = parameters.acknowledgement
        if level is Acknowledgement.ACCEPTED and parameters.callback is None:
            return None
        receipt = Receipt(memory=self._rooms.memory, timers=self._timers, namespace=namespace)
        receipt.is_for_durable = level is Acknowledgement.DURABLE
        return receipt

    def find(self, receipt_id: str, *, namespace: str | None) -> Receipt | None:
        """Return the receipt with an ID; None where a publisher of ``namespace`` has none (any
        more)."""
        return self._receipts.find(receipt_id, namespace=namespace)

    # ------------------------------------------------------------------ once all lines are in

    async def reach(self, receipt: Receipt, parameters: Parameters) -> bool:
        """Wait until a request's lines have come as far as it asks; return whether they have."""
        self._complete(receipt)
        signal = receipt.secured if receipt.is_for_durable else receipt.settled_all
        try:
            reached = await signal.wait(parameters.timeout)
        except asyncio.CancelledError:
            # The client is gone without the receipt's ID: nobody can ever ask for it.
            self._receipts.drop(receipt)
            receipt.close()
            raise
        if reached:
            # The publisher is told all that it has asked for.
            self._receipts.drop(receipt)
            receipt.close()
        return reached

    def call_back(self, receipt: Receipt, parameters: Parameters) -> None:
        """See to it that a request's publisher is called back."""
        assert self._callbacks is not None
        assert parameters.callback is not None
        receipt.is_called_back = True
        self._complete(receipt)
        self._callbacks.expect(
            receipt, url=parameters.callback, seconds=parameters.timeout, render=callback_body
        )

    def _complete(self, receipt: Receipt) -> None:
        # Kept before any wait, so that a publisher who goes away meanwhile leaves it bounded.
        self._receipts.keep(receipt)
        receipt.completed()
        if receipt.is_for_durable:
            self._rooms.queues.barrier(receipt.secured.give)

    async def secured(self, seconds: float) -> bool:
        """Wait until all that has been taken is on disk, for at most ``seconds``; return whether
        it is."""
        signal = Signal(timers=self._timers)
        self._rooms.queues.barrier(signal.give)
        return await signal.wait(seconds)
