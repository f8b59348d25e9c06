"""``pillion queues`` and ``pillion tail`` in terminals, against a deliverer's process (S0.12)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pillion_cli.exits import Exit
from support.asking import settled
from support.in_terminal import in_terminal
from support.listening import Listening, listening
from support.resources import write
from support.running import alert, alerts, listener, resources
from support.sidecar import Sidecar, sidecar


@pytest_asyncio.fixture
async def listeners() -> AsyncIterator[tuple[Listening, Listening]]:
    """One that fails, and one that does not."""
    async with listening(status=503) as bad, listening() as good:
        yield bad, good


@pytest.fixture
def folder(tmp_path: Path, listeners: tuple[Listening, Listening]) -> Path:
    bad, good = listeners
    retry = {"attempts": 1000, "intervalSeconds": 600}
    return write(
        tmp_path,
        *resources(listener("a-good-one", good.url), listener("siem", bad.url, retry=retry)),
    )


@pytest_asyncio.fixture
async def deliverer(folder: Path, unused_tcp_port: int) -> AsyncIterator[Sidecar]:
    """One with a listener that fails."""
    async with sidecar(folder, "--intake", f"127.0.0.1:{unused_tcp_port}") as process:
        await process.publish(*alerts(0, 3), query="ack=accepted")
        await settled(process, 3, "result=delivered")
        await process.logged("delivery-failing")
        yield process


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_queues_fit_every_terminal_the_worst_first(deliverer: Sidecar, columns: int) -> None:
    with in_terminal("queues", "--server", deliverer.intake, columns=columns) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    shown = terminal.shown.splitlines()
    assert max(map(len, shown)) <= columns
    assert " ".join(shown).startswith("1 of 2 destinations has trouble")
    names = [line.split()[0] for line in shown if line.startswith(("siem", "a-good-one"))]
    assert names == ["siem", "a-good-one"]
    assert "HTTP 503" in terminal.shown
    assert "\x1b[1;31mfailing" in terminal.raw


async def test_a_terminal_shows_no_colour_where_none_is_wanted(deliverer: Sidecar) -> None:
    with in_terminal("queues", "--server", deliverer.intake, NO_COLOR="1") as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    assert "failing" in terminal.raw
    assert "\x1b" not in terminal.raw


async def test_watching_outlives_the_deliverer_and_ends_at_ctrl_c(
    folder: Path, deliverer: Sidecar
) -> None:
    arguments = ("queues", "--server", deliverer.intake, "--watch=0.1", "--sort", "name")
    with in_terminal(*arguments) as terminal:
        await asyncio.to_thread(terminal.until, "1 of 2 destinations has trouble")
        deliverer.process.kill()
        await deliverer.ended()
        await asyncio.to_thread(terminal.until, "since then no deliverer listens at")
        at = deliverer.intake.rpartition("/")[2]
        async with sidecar(folder, "--intake", at):
            await asyncio.to_thread(terminal.until, "2 destinations without trouble")
        terminal.interrupt()
        assert await asyncio.to_thread(terminal.end) == Exit.INTERRUPTED
    # The usual screen, with the cursor and the last frame.
    _, left = terminal.raw.split("\x1b[?7h\x1b[?25h\x1b[?1049l")
    assert "a-good-one" in left
    assert "Traceback" not in terminal.raw


async def test_tail_shows_what_happens_from_then_on_in_one_line_each(
    deliverer: Sidecar,
) -> None:
    with in_terminal("tail", "--server", deliverer.intake, columns=60) as terminal:
        await asyncio.to_thread(terminal.until, "on, until Ctrl-C")
        await deliverer.publish(*alerts(7, 1))
        await asyncio.to_thread(terminal.until, "delivered")
        await deliverer.post("/v1/queues/siem/skip")
        await asyncio.to_thread(terminal.until, "purged")
        terminal.interrupt()
        assert await asyncio.to_thread(terminal.end) == Exit.INTERRUPTED
    told, head, delivered, discarded, *_ = terminal.shown.splitlines()
    assert told.startswith("pillion tail: from number 4 on")
    assert head.split() == ["time", "destination", "result", "identifier", "detail"]
    assert delivered.split()[1:4] == ["a-good-one", "delivered", "7"]
    assert discarded.split()[1:4] == ["siem", "discarded", "0"]
    assert "\x1b[32mdelivered" in terminal.raw
    assert "Traceback" not in terminal.raw


@pytest.mark.parametrize(
    ("given", "identifiers"),
    [
        (("--after", "0", "--limit", "3"), ["0", "1", "2"]),
        (("--since", "1h", "--identifier", "1", "--limit", "1"), ["1"]),
        (("--after", "1", "--destination", "a-good-one", "--limit", "2"), ["1", "2"]),
    ],
)
async def test_tail_selects_and_shows_earlier_ones(
    deliverer: Sidecar, given: tuple[str, ...], identifiers: list[str]
) -> None:
    with in_terminal("tail", "--server", deliverer.intake, "-o", "json", *given) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    found = [json.loads(line) for line in terminal.shown.splitlines()]
    assert [one["identifier"] for one in found] == identifiers


async def test_tail_warns_of_a_destination_that_is_not_there(deliverer: Sidecar) -> None:
    arguments = ("tail", "--destination", "a-god-one", "--server", deliverer.intake)
    with in_terminal(*arguments, columns=200) as terminal:
        shown = await asyncio.to_thread(terminal.until, "did you mean a-good-one?")
        assert "pillion tail: waiting all the same: HTTP 404: no destination queue" in shown
        terminal.interrupt()
        assert await asyncio.to_thread(terminal.end) == Exit.INTERRUPTED


HOSTILE = "a\x9b31m\u202eb" + "x" * 5000


@pytest.mark.parametrize("arguments", [("outcomes",), ("discarded", "list")])
async def test_texts_of_publishers_widen_no_table_and_reach_no_terminal(
    deliverer: Sidecar, arguments: tuple[str, ...]
) -> None:
    await deliverer.publish(alert(HOSTILE), query="ack=accepted")
    await settled(deliverer, 4, "result=delivered")
    await deliverer.post("/v1/queues/siem/purge")
    await settled(deliverer, 4, "result=discarded")
    with in_terminal(*arguments, "--server", deliverer.intake) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    assert "a\\u009b31m\\u202eb" in terminal.shown
    assert max(map(len, terminal.shown.splitlines())) < 200
    assert not {"\x9b", "\u202e"}.intersection(terminal.raw)


@pytest.mark.parametrize(
    "arguments",
    [
        ("discarded", "show", "{number}"),
        ("discarded", "show", "{number}", "-o", "json"),
        ("discarded", "export"),
        ("discarded", "list", "-o", "json"),
        ("outcomes", "-o", "json", "--indication"),
    ],
)
async def test_json_in_a_terminal_moves_no_cursor(
    deliverer: Sidecar, arguments: tuple[str, ...]
) -> None:
    await deliverer.publish(alert(HOSTILE[:9]), query="ack=accepted")
    await settled(deliverer, 4, "result=delivered")
    await deliverer.post("/v1/queues/siem/purge")
    discards, _ = await settled(deliverer, 4, "result=discarded")
    given = [one.format(number=discards[-1]["number"]) for one in arguments]
    with in_terminal(*given, "--server", deliverer.intake, columns=5000) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    assert "a\\u009b31m\\u202eb" in terminal.shown
    assert not {"\x9b", "\u202e"}.intersection(terminal.raw)
