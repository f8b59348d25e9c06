"""A publisher as Spark's tasks have it, without Spark, against a deliverer and a listener that are
real. Time passes by hand, on both sides."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from pyspark_pillion.deliverer import Address, Deliverer
from pyspark_pillion.options import parse_options
from pyspark_pillion.rejects import FailAtCommit, Rejects
from pyspark_pillion.sending import Sender
from support.between import Between
from support.processes import ListenerProcess, listener_process
from support.publisher import FakePace
from support.resources import JSON
from support.running import listener, resources
from support.threaded import Threaded, threaded


@dataclass
class Pace(FakePace):
    """Lets something happen whenever the publisher sleeps."""

    meanwhile: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        self.meanwhile()


class House:
    """One listener, a deliverer, and who stands between it and its publishers."""

    def __init__(self, stack: ExitStack, folder: Path, listener: ListenerProcess) -> None:
        self.pace = Pace()
        self._stack = stack
        self._folder = folder
        self._listener = listener
        self.deliverer: Threaded
        self.between: Between

    def destination(self, name: str, **spec: object) -> JSON:
        """A destination at a path of the listener that is this test's own."""
        return listener(name, f"{self._listener.url}{self._folder.name}/{name}", **spec)

    def start(self, *documents: JSON) -> Threaded:
        """Run a deliverer: the first one, or one in the place of the one before."""
        folder = self._folder / f"resources-{len(list(self._folder.iterdir()))}"
        folder.mkdir()
        self.deliverer = self._stack.enter_context(threaded(folder, *documents))
        return self.deliverer

    def deliver_to(self, **spec: object) -> Threaded:
        """Run a deliverer with the one destination ``siem``, and stand before it."""
        return self.stand_before(*resources(self.destination("siem", **spec)))

    def stand_before(self, *documents: JSON) -> Threaded:
        """Run a deliverer, and stand before it."""
        self.start(*documents)
        self.between = self._stack.enter_context(Between(self.deliverer.url))
        return self.deliverer

    def connection(self) -> Deliverer:
        """A publisher's connection, by way of who stands between."""
        host, _, port = self.between.url.removeprefix("http://").partition(":")
        connection = Deliverer(Address(host, int(port)), timeout=30)
        self._stack.callback(connection.close)
        return connection

    def sender(
        self,
        *,
        publisher: str = "spark/1",
        earlier: Sequence[str] = (),
        rejects: Rejects | None = None,
        **options: str,
    ) -> Sender:
        """What a task attempt publishes with."""
        return Sender(
            self.connection(),
            options=parse_options({"source": "test", **options}),
            publisher=publisher,
            rejects=rejects or FailAtCommit(),
            pace=self.pace,
            earlier=earlier,
        )

    def behave(self, **behaviour: object) -> None:
        """The listener behaves otherwise from now on."""
        self._listener.behave(**behaviour)

    def record(self, name: str = "siem") -> list[JSON]:
        """What has arrived at a destination of this test, in order."""
        path = f"/{self._folder.name}/{name}"
        return [line for line in self._listener.record() if line["path"] == path]

    def identifiers(self, name: str = "siem") -> list[str]:
        """The identities of what has arrived."""
        return [line["identifier"] for line in self.record(name)]


@pytest.fixture(scope="module")
def listener_of_all(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ListenerProcess]:
    with listener_process(tmp_path_factory.mktemp("listener")) as process:
        yield process


@pytest.fixture
def house(tmp_path: Path, listener_of_all: ListenerProcess) -> Iterator[House]:
    with ExitStack() as stack:
        yield House(stack, tmp_path, listener_of_all)
        listener_of_all.behave()
