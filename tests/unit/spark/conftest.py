"""What the publisher's tests share: a fake deliverer, and a pace that is moved by hand."""

from collections.abc import Callable, Iterator, Sequence

import pytest

from pyspark_pillion.deliverer import Deliverer
from pyspark_pillion.rejects import FailAtCommit, Rejects
from pyspark_pillion.sending import Sender
from support.fake_deliverer import FakeDeliverer
from support.publisher import FakePace, make_options


@pytest.fixture
def pace() -> FakePace:
    return FakePace()


@pytest.fixture
def deliverer() -> Iterator[FakeDeliverer]:
    with FakeDeliverer() as fake:
        yield fake


MakeSender = Callable[..., Sender]


@pytest.fixture
def make_sender(deliverer: FakeDeliverer, pace: FakePace) -> Iterator[MakeSender]:
    connections: list[Deliverer] = []

    def make(
        *,
        rejects: Rejects | None = None,
        publisher: str = "spark/test/1",
        earlier: Sequence[str] = (),
        speculative: Sequence[str] = (),
        **given: str,
    ) -> Sender:
        options = make_options(deliverer, **given)
        connection = Deliverer(options.address({}), timeout=options.timeout)
        connections.append(connection)
        return Sender(
            connection,
            options=options,
            publisher=publisher,
            rejects=rejects or FailAtCommit(),
            pace=pace,
            earlier=earlier,
            speculative=speculative,
        )

    yield make
    for connection in connections:
        connection.close()
