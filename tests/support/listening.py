"""What ``pillion listen`` is made of, inside a test: a listener that follows the sequence rules,
behaves as badly as it is told to, and says whatever it has seen."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from pillion_cim.schema import load_schema
from pillion_cli.listener.arrivals import Arrival, Summary
from pillion_cli.listener.sequence import Outcome, Sequencer
from pillion_cli.listener.server import Behaviour, Listener, serve
from pillion_sidecar.testing import FakeTime

SCHEMA = load_schema()


class Listening:
    """A listener and its record; a ``Reporter``."""

    def __init__(self, time: FakeTime, behaviour: Behaviour) -> None:
        self.url = ""
        #: The listener's own: a deliverer's is another, unless it was given the same.
        self.time = time
        self.outcomes: list[Outcome[Arrival]] = []
        self.bad_answers: list[str] = []
        self._happened = asyncio.Event()
        self.listener = Listener(
            schema=SCHEMA,
            clock=time,
            timers=time,
            reporter=self,
            sequencer=Sequencer(lifetime=900.0),
            behaviour=behaviour,
        )

    # ------------------------------------------------------------------ for a test

    @property
    def summary(self) -> Summary:
        return self.listener.summary

    @property
    def identifiers(self) -> list[str | None]:
        """The identifiers of what was delivered, in order."""
        return [arrival.text("IndicationIdentifier") for arrival in self.arrivals]

    @property
    def arrivals(self) -> list[Arrival]:
        return [outcome.item for outcome in self.outcomes if outcome.verdict == "delivered"]

    @property
    def filters(self) -> list[str | None]:
        """The filter names of what was delivered, in order."""
        return [arrival.text("IndicationFilterName") for arrival in self.arrivals]

    def behave(self, **changes: Any) -> None:
        """Behave so from the next request on; without changes, well."""
        self.listener.behaviour = Behaviour(**changes)

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; each request has it looked at again."""
        while not condition():
            self._happened.clear()
            await self._happened.wait()

    async def delivered(self, count: int) -> None:
        """Wait until so many are delivered."""
        await self.until(lambda: len(self.arrivals) >= count)

    async def treated_badly(self, count: int = 1) -> None:
        """Wait until so many requests have been treated badly."""
        await self.until(lambda: len(self.bad_answers) >= count)

    # ------------------------------------------------------------------ for the listener

    def started(self, url: str) -> None:
        """Nothing: whoever serves it knows."""

    def happened(self, outcome: Outcome[Arrival]) -> None:
        self.outcomes.append(outcome)
        self._happened.set()

    def answered(self, what: str, *, path: str) -> None:
        self.bad_answers.append(what)
        self._happened.set()

    def ended(self, summary: Summary) -> None:
        """Nothing."""


@asynccontextmanager
async def listening(time: FakeTime | None = None, **behaviour: Any) -> AsyncIterator[Listening]:
    """Listen on a port of loopback while the context lasts."""
    made = Listening(time or FakeTime(), Behaviour(**behaviour))
    async with serve(made.listener, address="127.0.0.1", port=0) as url:
        made.url = f"{url}/"
        yield made
