"""The process that publishes to a peer, as the peer's own client would.

It is told to by lines of JSON (:class:`Order`), and answers each by one line when it is done. What
a peer has not taken, since it is full or dead, is offered again until the time is over.
"""

import asyncio
import contextlib
import importlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Protocol

from benchmarks.peers.events import HUNG, Event, event, healthy_name, hung_name

SECOND = 1_000_000_000
#: Seconds until what was not taken is offered again.
PAUSE = 0.1


class Sender(Protocol):
    """How a peer is published to."""

    #: The most events that :meth:`send` is given at a time where as many as possible are sent.
    batch: int

    async def send(self, events: Sequence[Event]) -> None:
        """Return when the peer has taken all; whatever is raised, they are sent again."""

    async def close(self) -> None:
        """Close its connections; the next :meth:`send` makes new ones."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    #: The number of the first event.
    first: int
    count: int
    #: Events a second; 0: as many as possible.
    rate: float
    #: It ends then, however many were taken.
    seconds: float
    #: The healthy listeners, which take turns.
    healthy: int
    #: As many hung ones; each event of this many is followed by one for a hung one.
    hung: int = 0
    hung_every: int = 1


@dataclass(frozen=True, slots=True)
class Published:
    #: So many of the healthy listeners' events were taken, the first ones.
    count: int
    seconds: float
    #: How often a batch was sent again.
    again: int


def events_of(order: Order) -> Iterator[tuple[int, str]]:
    """The numbers of the events of an order, and their listeners."""
    sent_to_hung = 0
    for number in range(order.first, order.first + order.count):
        yield number, healthy_name(number % order.healthy)
        if order.hung and number % order.hung_every == 0:
            yield HUNG + number, hung_name(sent_to_hung % order.hung)
            sent_to_hung += 1


async def publish(sender: Sender, order: Order) -> Published:
    began = time.monotonic_ns()
    deadline = began + int(order.seconds * SECOND)
    waiting = events_of(order)
    size = 1 if order.rate else sender.batch
    count = again = place = 0
    while batch := [one for _, one in zip(range(size), waiting, strict=False)]:
        due = time.monotonic_ns()
        if order.rate:
            due = began + int(place * SECOND / order.rate)
            due = _wait_until(due)
        events = [event(number, listener, due) for number, listener in batch]
        place += sum(1 for number, _ in batch if number < HUNG)
        tries = await _send_until(sender, events, deadline)
        if tries is None:
            break
        again += tries
        count = place
    return Published(count, (time.monotonic_ns() - began) / SECOND, again)


def _wait_until(due: int) -> int:
    """Return from when an event counts: from when it was due, where the one before took long."""
    early = due - time.monotonic_ns()
    if early <= 0:
        return due
    # More exact than asyncio's clock, which knows milliseconds.
    time.sleep(early / SECOND)
    return time.monotonic_ns()


async def _send_until(sender: Sender, events: Sequence[Event], deadline: int) -> int | None:
    """Send them until they are taken; return how often again, or None: the time is over."""
    tries = 0
    while time.monotonic_ns() < deadline:
        try:
            left = (deadline - time.monotonic_ns()) / SECOND
            await asyncio.wait_for(sender.send(events), left)
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            if not tries:
                print(f"sent again: {error!r}", file=sys.stderr, flush=True)
            tries += 1
            with contextlib.suppress(Exception):
                await sender.close()
            await asyncio.sleep(PAUSE)
        else:
            return tries
    return None


async def obey(sender: Sender) -> None:
    """Publish whatever is ordered until the input ends."""
    print("ready", flush=True)
    while line := await asyncio.to_thread(sys.stdin.readline):
        published = await publish(sender, Order(**json.loads(line)))
        print(json.dumps(asdict(published)), flush=True)


# ---------------------------------------------------------------------- for whoever measures


class Publisher:
    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        assert self._answer() == "ready\n", "the publisher did not start"

    def start(self, order: Order) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(order)) + "\n")
        self._process.stdin.flush()

    def published(self) -> Published:
        """Wait until the order is done."""
        return Published(**json.loads(self._answer()))

    def _answer(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline()


@contextmanager
def publishing(module: str, address: str, *, python: str, log: Path) -> Iterator[Publisher]:
    """Run the sender of a peer's module in a process of its own while the context lasts."""
    with (
        log.open("ab") as errors,
        subprocess.Popen(
            [python, "-m", "benchmarks.peers.publisher", module, address],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=errors,
            text=True,
            env=os.environ | {"PYTHONPATH": str(Path(__file__).parents[2])},
        ) as process,
    ):
        try:
            yield Publisher(process)
        finally:
            process.kill()


if __name__ == "__main__":
    asyncio.run(obey(importlib.import_module(sys.argv[1]).Sender(sys.argv[2])))
