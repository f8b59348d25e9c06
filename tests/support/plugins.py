"""Plug-ins for tests: a wire that sends nothing, and small programs."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from pillion_cim.schema import load_schema
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.delivery.handler import (
    Delivery,
    DeliveryOutcome,
    DeliveryResult,
    Handler,
)
from pillion_sidecar.handlers.plugin.lines import LinkNames, PluginLog
from pillion_sidecar.handlers.plugin.link import Link
from pillion_sidecar.handlers.plugin.messages import initialize_params
from pillion_sidecar.handlers.plugin.replies import Command
from pillion_sidecar.handlers.plugin.wire import WireOwner
from pillion_sidecar.handlers.plugin_slots import LinkSlots
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.settings import PluginEndpoint
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery

JSON = dict[str, Any]
#: Not on an event loop, which it would block.
SCHEMA = load_schema()
#: Turns of the event loop in which a link has begun to open, and outcomes are told.
TURNS = 5
#: Seconds of a link's deliveries.
TIMEOUT = 30.0


async def turns() -> None:
    for _ in range(TURNS):
        await asyncio.sleep(0)


class FakeWire:
    """Keeps what is written; the test acts as the plug-in."""

    def __init__(self, owner: WireOwner, gone: Callable[[], None]) -> None:
        self.owner = owner
        self.lines: list[JSON] = []
        self.unsent = 0
        #: Nothing can be sent any more.
        self.is_closed = False
        #: ``at_once``, once it is ended.
        self.ended: bool | None = None
        #: Its process lives on after its end, until the test calls ``goes``.
        self.ends_slowly = False
        self._gone = gone

    def write(self, line: bytes) -> bool:
        if self.is_closed:
            return False
        assert line.endswith(b"\n")
        assert line.count(b"\n") == 1
        self.lines.append(json.loads(line))
        return True

    def end(self, *, at_once: bool) -> None:
        self.ended = at_once
        if not self.ends_slowly:
            self._gone()

    def goes(self) -> None:
        self._gone()

    @property
    def delivered(self) -> list[int]:
        """The ids of the commands so far."""
        return [line["id"] for line in self.lines if line.get("method") == "deliver"]

    def says(self, message: JSON | bytes) -> None:
        line = message if isinstance(message, bytes) else json.dumps(message).encode()
        self.owner.wire_received(self, line)

    def answers(self, number: Any, **result: Any) -> None:
        self.says({"jsonrpc": "2.0", "id": number, "result": result})

    def greets(self, **more: Any) -> None:
        self.answers(0, protocolVersion=1, name="test", version="1", **more)

    def succeeds(self, number: int) -> None:
        self.answers(number, outcome="success")

    def breaks(self, reason: str = "it closed the connection") -> None:
        self.owner.wire_lost(self, reason)


class FakeOpener:
    """Opens a :class:`FakeWire`, unless ``failure`` says why not; with ``waits`` it waits until the
    test calls ``proceed``."""

    def __init__(self) -> None:
        self.wires: list[FakeWire] = []
        self.failure: Exception | None = None
        self.waits = False
        self.begun = 0
        self.gone = 0
        self._may_open: asyncio.Future[None] | None = None

    def proceed(self) -> None:
        assert self._may_open is not None
        self._may_open.set_result(None)

    async def open(self, owner: WireOwner, gone: Callable[[], None]) -> None:
        def counted() -> None:
            self.gone += 1
            gone()

        self.begun += 1
        try:
            if self.waits:
                self._may_open = asyncio.get_running_loop().create_future()
                await self._may_open
            if self.failure is not None:
                raise self.failure
        except BaseException:
            counted()
            raise
        wire = FakeWire(owner, counted)
        self.wires.append(wire)
        owner.wire_opened(wire)

    @property
    def wire(self) -> FakeWire:
        """The newest."""
        return self.wires[-1]


#: The beginning of each program: one that follows the protocol is ``greet(); serve()``.
PREAMBLE = """\
import json, os, signal, sys, time

def read():
    line = sys.stdin.readline()
    return json.loads(line) if line else None

def send(**message):
    print(json.dumps({"jsonrpc": "2.0", **message}), flush=True)

def answer(message, **result):
    send(id=message["id"], result=result)

def greet(**more):
    answer(read(), protocolVersion=1, name="test", version="1", **more)

def commands():
    while (message := read()) is not None and message["method"] != "shutdown":
        yield message

def serve():
    for message in commands():
        answer(message, outcome="success")

def sleep():
    # Until it is ended.
    signal.pause()

"""


def program(folder: Path, text: str, name: str = "plugin.py") -> PluginEndpoint:
    """Write a program, and return how it is run."""
    path = folder / name
    path.write_text(PREAMBLE + text)
    return PluginEndpoint(command=(sys.executable, "-I", "-S", str(path)))


class Linked:
    """A link to a :class:`FakeWire`, its plug-in, and the outcomes of commands by number."""

    def __init__(
        self, time: FakeTime, *, slots: LinkSlots | None = None, is_hidden: bool = False
    ) -> None:
        self.time = time
        self.opener = FakeOpener()
        self.slots = slots or LinkSlots(timers=time)
        self.outcomes: dict[int, DeliveryOutcome] = {}
        self._sent = 0
        names = LinkNames(plugin="test", destination="a", is_hidden=is_hidden)
        self.link = Link(
            opener=self.opener,
            slots=self.slots,
            clock=time,
            timers=time,
            timeout=TIMEOUT,
            initialize=initialize_params(
                destination="a", url="plugin://test/", service="default", timeout=TIMEOUT
            ),
            names=names,
            log=PluginLog(names, clock=time),
        )

    async def send(self, count: int = 1) -> None:
        """Send commands; their numbers go on from 1."""
        for _ in range(count):
            self._sent += 1
            self.link.send(Command(b"{}", self.done(self._sent)))
        await turns()

    async def begin(self, count: int = 1, **greeting: Any) -> None:
        """Send the first commands, and let the plug-in answer ``initialize``."""
        await self.send(count)
        self.opener.wire.greets(**greeting)

    def done(self, number: int) -> Any:
        def done(outcome: DeliveryOutcome) -> None:
            assert number not in self.outcomes, "two outcomes of one command"
            self.outcomes[number] = outcome

        return done

    @property
    def results(self) -> dict[int, DeliveryResult]:
        return {number: outcome.result for number, outcome in self.outcomes.items()}


class NoResolver:
    async def resolve(self, host: str) -> list[str]:
        raise AssertionError(host)


class Deliveries:
    """A handler of a plug-in, and the outcomes of its deliveries."""

    def __init__(self, handler: Handler, slots: LinkSlots) -> None:
        self.handler = handler
        self.slots = slots
        self.outcomes: list[DeliveryOutcome] = []

    def send(self, given: Delivery | None = None) -> "asyncio.Future[DeliveryOutcome]":
        """Begin a delivery."""
        told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()

        def done(outcome: DeliveryOutcome) -> None:
            self.outcomes.append(outcome)
            # A second outcome of one delivery would raise.
            told.set_result(outcome)

        self.handler.deliver(given or delivery(), done)
        assert not told.done()
        return told

    async def outcome(self, given: Delivery | None = None) -> DeliveryOutcome:
        return await self.send(given)


def registry(
    plugins: Mapping[str, PluginEndpoint], *, time: FakeTime, slots: LinkSlots | None = None
) -> HandlerRegistry:
    return HandlerRegistry(
        clock=time,
        timers=time,
        resolver=NoResolver(),
        address_policy=AddressPolicy(),
        schema=SCHEMA,
        service_name="default",
        plugins=plugins,
        plugin_links=slots,
    )


def plugin_destination(name: str = "a", **given: Any) -> ListenerDestination:
    values: JSON = {
        "name": name,
        "uid": f"uid-{name}",
        "destination": "plugin://test/path?a=b",
        "protocol": "Plugin",
    }
    return ListenerDestination(**(values | given))


@asynccontextmanager
async def plugged(
    endpoint: PluginEndpoint, *, time: FakeTime, **given: Any
) -> AsyncIterator[Deliveries]:
    """A handler of this plug-in; at the end nothing of it is left."""
    slots = LinkSlots(timers=time)
    handlers = registry({"test": endpoint}, time=time, slots=slots)
    handler = handlers.create_handler(plugin_destination(**given))
    try:
        yield Deliveries(handler, slots)
    finally:
        handler.close()
        await all_gone(slots, time)


async def all_gone(slots: LinkSlots, time: FakeTime) -> None:
    """Wait for the ends of all links; signals that are due are sent."""
    closing = asyncio.create_task(slots.close())
    await turns()
    time.advance(2.0)
    await closing
    assert slots.taken == 0
