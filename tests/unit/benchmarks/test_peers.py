"""The harness of the benchmark against peers: what it counts, and how it tells it."""

import importlib
import math
from collections.abc import Sequence
from pathlib import Path

import pytest

from benchmarks.peers import tables
from benchmarks.peers.__main__ import all_peers
from benchmarks.peers.events import EVENT_BYTES, HUNG, Event, event, read_mark
from benchmarks.peers.listeners import Arrival
from benchmarks.peers.publisher import Order, events_of, publish
from benchmarks.peers.scenarios import Figures
from benchmarks.peers.tables import BEGIN, END, Row
from benchmarks.peers.tally import Tally, delays, percentile, tally


def arrival(number: int, *, listener: int = 0, sent: int = 0, arrived: int = 0) -> Arrival:
    return Arrival(listener, number, sent, arrived)


def test_an_event_has_its_size_and_tells_which_it_is() -> None:
    body = event(17, "healthy-03", 123_456_789).body
    assert len(body) == EVENT_BYTES
    assert read_mark(b'{"data":' + body + b"}") == (17, 123_456_789)
    assert read_mark(b"something else") is None


def test_lost_doubled_and_overtaken_are_counted_by_identity() -> None:
    numbers = [0, 1, 3, 2, 3, 3, 5]
    counted = tally(range(5), [arrival(number) for number in numbers])
    # 4 is lost; 3 came three times; 2 came behind 3; 5 arrived though its publisher was not told.
    assert counted == Tally(arrived=5, lost=1, doubled=2, overtaken=1)


def test_an_event_is_overtaken_at_its_own_listener_only() -> None:
    assert tally(range(2), [arrival(1, listener=1), arrival(0, listener=0)]).overtaken == 0


@pytest.mark.parametrize(
    ("share", "value"), [(0.5, 50), (0.99, 99), (0.991, 100), (1.0, 100), (0.0, 1)]
)
def test_a_percentile_is_one_of_the_values(share: float, value: float) -> None:
    assert percentile([*range(100, 0, -1)], share) == value


def test_a_delay_is_that_of_the_first_arrival() -> None:
    twice = [arrival(1, sent=1_000_000, arrived=3_500_000), arrival(1, arrived=9_000_000)]
    assert delays(twice) == [2.5]


def test_healthy_listeners_take_turns_and_some_events_go_to_hung_ones() -> None:
    order = Order(first=4, count=4, rate=0, seconds=1, healthy=3, hung=2, hung_every=2)
    assert [*events_of(order)] == [
        (4, "healthy-01"),
        (HUNG + 4, "hung-00"),
        (5, "healthy-02"),
        (6, "healthy-00"),
        (HUNG + 6, "hung-01"),
        (7, "healthy-01"),
    ]


class Forgetful:
    """Takes two events at a time, but refuses the second batch at first."""

    batch = 2

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.tries = 0
        self.closed = 0

    async def send(self, events: Sequence[Event]) -> None:
        self.tries += 1
        if self.tries == 2:
            raise ConnectionError
        self.taken += [one.number for one in events]

    async def close(self) -> None:
        self.closed += 1


async def test_what_was_not_taken_is_sent_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.peers.publisher.PAUSE", 0)
    sender = Forgetful()
    published = await publish(sender, Order(first=0, count=5, rate=0, seconds=60, healthy=1))
    assert (published.count, published.again) == (5, 1)
    assert (sender.taken, sender.closed) == ([0, 1, 2, 3, 4], 1)


async def test_without_time_nothing_is_published() -> None:
    sender = Forgetful()
    published = await publish(sender, Order(first=0, count=5, rate=0, seconds=0, healthy=1))
    assert (published.count, sender.taken) == (0, [])


def figures(**changed: float) -> Figures:
    counts = {"offered": 1000, "taken": 1000, "arrived": 800}
    values = {**counts, "seconds": 0.5, "cpu": 0.04, "resident_bytes": 48e6, **changed}
    return Figures(**values)  # type: ignore[arg-type]


def test_a_table_has_a_row_for_each_peer_and_says_what_is_missing() -> None:
    measured = {"burst-1": figures(), "steady-1": figures(median=1.25, p99=math.inf)}
    rows = [Row("Pillion", None, measured), Row("another", "no another: get it", {})]
    assert tables.tables(rows).splitlines() == [
        "### One listener",
        "",
        "| | events/s | CPU of 1,000 | p50 at 500/s | p99 at 500/s | CPU of 1,000 at 500/s "
        "| resident |",
        "| --- | --- | --- | --- | --- | --- | --- |",
        "| Pillion | 1,600 | 0.050 s | 1.2 ms | not in time | 0.050 s | 48 MB |",
        "| another | not on this machine | | | | | |",
    ]


def test_the_tables_replace_those_of_the_page(tmp_path: Path) -> None:
    page = tmp_path / "peers.md"
    page.write_text(f"before\n\n{BEGIN}\nold\n{END}\n\nafter\n", encoding="utf-8")
    tables.write(page, "new", "an interpreter")
    text = page.read_text(encoding="utf-8")
    plot = "![Rate, CPU, p99 and loss of all peers](assets/peers.png)"
    assert text == f"before\n\n{BEGIN}\n\nan interpreter\n\n{plot}\n\nnew\n{END}\n\nafter\n"
    page.write_text("no marks", encoding="utf-8")
    with pytest.raises(ValueError, match="no marks"):
        tables.write(page, "new", "an interpreter")


def test_every_peer_has_a_sender_that_its_publisher_finds() -> None:
    for peer in all_peers():
        module, _ = peer.publisher
        assert importlib.import_module(module).Sender("0").batch > 0
