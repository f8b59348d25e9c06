"""The listener of a check, in the same process."""

import asyncio
from collections import defaultdict

from pillion_cli.listener.arrival import Arrival
from pillion_cli.listener.report import Summary
from pillion_cli.listener.sequence import Outcome


class Arrived:
    """What has arrived: a listener's reporter, whom one can ask."""

    def __init__(self) -> None:
        # A check publishes a few indications, and whoever else sends here is told nothing.
        self._events: defaultdict[str, asyncio.Event] = defaultdict(asyncio.Event)

    async def arrived(self, identifier: str) -> None:
        """Wait until the indication has arrived."""
        await self._events[identifier].wait()

    def started(self, url: str) -> None:
        """Nothing: the check knows the URL."""

    def happened(self, outcome: Outcome[Arrival]) -> None:
        """An indication has come."""
        identifier = outcome.item.text("IndicationIdentifier")
        if identifier is not None:
            self._events[identifier].set()

    def answered(self, what: str, *, path: str) -> None:
        """Nothing: the gateway says what it was answered."""

    def ended(self, summary: Summary) -> None:
        """Nothing: the check has ended before."""
