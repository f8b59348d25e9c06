"""What works with the history of a running deliverer: redrives, replays, redeliveries, receipts,
and the histories of ending sidecars."""

import socket

from pillion_sidecar.clock import Clock, Timers
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.redrive import Redriver
from pillion_sidecar.delivery.replay import Replays
from pillion_sidecar.delivery.service import DeliveryService
from pillion_sidecar.delivery.shutdown import LEAST_TIMEOUT
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.history.handing_over import HistoryHandOver
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history.taking_over import TakenHistories
from pillion_sidecar.intake.redelivery import Redeliveries
from pillion_sidecar.journal_runtime import JournalFolder
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.kept_receipts import KeptReceipts


class HistoryRuntime:
    def __init__(
        self,
        *,
        history: History,
        delivery: DeliveryService,
        folder: JournalFolder,
        memory: DuplicateMemory,
        clock: Clock,
        timers: Timers,
    ) -> None:
        self.history = history
        self._clock = clock
        self._timers = timers

        def is_durable() -> bool:
            return folder.durability is Durability.DISK

        self.redriver = Redriver(
            history=history,
            targets=delivery,
            identities=memory,
            clock=clock,
            is_durable=is_durable,
        )
        self.replays = Replays(
            history=history,
            targets=delivery,
            identities=memory,
            clock=clock,
            timers=timers,
            is_durable=is_durable,
        )
        delivery.follow_replays(self.replays.settled)
        self.redeliveries = Redeliveries(memory=memory, clock=clock, redelivery=self.redriver)
        self.taken = TakenHistories(history=history, clock=clock)
        self.receipts = KeptReceipts(
            history=history,
            memory=memory,
            clock=clock,
            timers=timers,
            barrier=lambda done: delivery.barrier(done),
            journal=lambda: folder.keeps,
            stable=lambda: folder.stable,
        )

    async def hand_over(self, gateway: str, *, handlers: HandlerRegistry, until: float) -> None:
        """Hand over what has become of everything, until ``until`` (``Clock.monotonic()``)."""
        hand_over = HistoryHandOver(
            history=self.history,
            pod=socket.gethostname(),
            clock=self._clock,
            timers=self._timers,
        )
        left = max(LEAST_TIMEOUT, until - self._clock.monotonic())
        post = handlers.post_history(gateway, timeout=left)
        try:
            await hand_over.run(post, gateway=gateway, until=until)
        finally:
            post.close()
