"""``pillion outcomes``, ``tail`` and ``discarded`` against a deliverer's process (S0.11)."""

import asyncio
import json
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest
import pytest_asyncio

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.asking import settled
from support.listening import Listening, listening
from support.resources import JSON, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

Run = Callable[..., Awaitable[int]]
COUNT = 30
ROOM = 10


@pytest_asyncio.fixture
async def ops() -> AsyncIterator[Listening]:
    """A listener that is down."""
    async with listening(status=503) as found:
        yield found


@pytest.fixture
def folder(tmp_path: Path, ops: Listening) -> Path:
    overflowing = listener(
        "ops",
        ops.url,
        queueSize=ROOM,
        queueFullPolicy="DiscardOldest",
        retry={"attempts": 1000, "intervalSeconds": 1},
    )
    return write(tmp_path, *resources(overflowing))


@pytest_asyncio.fixture
async def deliverer(folder: Path, tmp_path: Path) -> AsyncIterator[Sidecar]:
    """One whose queue has overflowed."""
    async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
        for first, count in ((0, COUNT - ROOM), (COUNT - ROOM, ROOM)):
            await process.publish(*alerts(first, count), query="ack=durable")
        await settled(process, COUNT - ROOM, "result=discarded")
        yield process


async def run(process: Sidecar, *arguments: str) -> int:
    command, *more = arguments
    return await asyncio.to_thread(main, [command, *more, "--to", process.intake])


async def test_outcomes_and_discards_are_shown(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "outcomes", "--identifier", "3") == Exit.OK
    head, row = capsys.readouterr().out.splitlines()
    assert head.split()[:4] == ["number", "time", "destination", "result"]
    assert row.split()[2:] == ["ops", "discarded", "test", "3", "0", "queue-full"]
    assert await run(deliverer, "discarded", "list", "--destination", "ops") == Exit.OK
    assert len(capsys.readouterr().out.splitlines()) == COUNT - ROOM + 1
    assert await run(deliverer, "outcomes", "--output", "json", "--limit", "2") == Exit.OK
    found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [one["identifier"] for one in found] == ["0", "1"]
    assert await run(deliverer, "outcomes", "--after", "999") == Exit.FAILED
    assert "ask from after=0" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["outcomes"], "no outcomes"),
        (["discarded", "list"], "no discards"),
        (["discarded", "redrive", "--dry-run"], None),
        (["discarded", "redrive", "--yes"], None),
    ],
)
async def test_a_selection_without_outcomes_is_told(
    arguments: list[str],
    told: str | None,
    deliverer: Sidecar,
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert await run(deliverer, *arguments, "--source", "nobody") == Exit.OK
    shown = capsys.readouterr()
    assert shown.err == (f"pillion {arguments[0]}: {told}\n" if told else "")
    assert shown.out == ("" if told else shown.out)
    assert await run(deliverer, *arguments, "--destination", "opss") == Exit.FAILED
    assert "did you mean ops?" in capsys.readouterr().err


async def test_one_discard_is_shown_with_its_content(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "discarded", "show", "3") == Exit.OK
    shown = capsys.readouterr().out
    assert "identifier       2\n" in shown
    indication = json.loads(shown[shown.index("{") :])
    assert indication["properties"]["IndicationIdentifier"] == "2"
    assert await run(deliverer, "discarded", "show", "3", "--output", "json") == Exit.OK
    assert json.loads(capsys.readouterr().out)["indication"] == indication
    assert await run(deliverer, "discarded", "show", "999") == Exit.FAILED
    assert "the history has no outcome 999" in capsys.readouterr().err


async def test_what_is_exported_can_be_published_elsewhere(
    deliverer: Sidecar, folder: Path, tmp_path: Path, capsysbinary: pytest.CaptureFixture[bytes]
) -> None:
    assert await run(deliverer, "discarded", "export") == Exit.OK
    exported = capsysbinary.readouterr().out
    first = alerts(0, 1)[0] | {"source": "test"}
    assert json.loads(exported.splitlines()[0]) == first
    assert await run(deliverer, "discarded", "export", "--envelope") == Exit.OK
    around = [json.loads(line) for line in capsysbinary.readouterr().out.splitlines()]
    assert [one["indication"]["class"] for one in around] == ["CIM_AlertIndication"] * 20
    file = tmp_path / "lost.ndjson"
    file.write_bytes(exported)
    async with sidecar(folder, "--journal", str(tmp_path / "other")) as other:
        assert await run(other, "publish", str(file)) == Exit.OK
    assert f"{COUNT - ROOM} accepted".encode() in capsysbinary.readouterr().out


async def test_what_is_redriven_arrives(
    deliverer: Sidecar, ops: Listening, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "discarded", "redrive", "--dry-run") == Exit.OK
    assert capsys.readouterr().out == "ops: 20 discarded\n20 can be redriven\n"
    assert await run(deliverer, "discarded", "redrive", "--yes", "--timeout", "0") == Exit.FAILED
    told = capsys.readouterr()
    assert told.out == "0 redriven\n"
    assert "the queue of destination ops is full; a later redrive goes on" in told.err
    ops.behave()
    await settled(deliverer, ROOM, "result=delivered")
    assert await run(deliverer, "discarded", "redrive", "--yes", "--output", "json") == Exit.OK
    totals = json.loads(capsys.readouterr().out)
    assert (totals["redriven"], totals["refusal"]) == (COUNT - ROOM, None)
    # Those that waited were published later.
    assert totals["newer"] == COUNT - ROOM
    await ops.delivered(COUNT)
    assert set(ops.identifiers) == {str(number) for number in range(COUNT)}
    assert await run(deliverer, "discarded", "redrive", "--yes") == Exit.OK
    assert capsys.readouterr().out == "0 redriven; 20 redriven already\n"


@pytest.mark.parametrize(("answer", "code"), [("n", Exit.FAILED), ("y", Exit.OK)])
async def test_a_terminal_is_asked_first(
    answer: str,
    code: Exit,
    deliverer: Sidecar,
    ops: Listening,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    asked: list[str] = []

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("builtins.input", reply)
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert await run(deliverer, "discarded", "redrive") == Exit.USAGE
    assert "needs --yes or --dry-run" in capsys.readouterr().err
    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    ops.behave()
    assert await run(deliverer, "discarded", "redrive") == code
    assert asked == ["Redrive 20? [y/N] "]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        (["show"], "NUMBER is missing"),
        (["list", "7"], "NUMBER: only for show"),
        (["show", "7", "--source", "a"], "show NUMBER needs no other selection"),
        (["list", "--yes"], "--yes: only for redrive"),
        (["list", "--envelope"], "--envelope: only for export"),
        (["export", "--output", "json"], "--output: not for export"),
    ],
)
def test_options_of_another_action_are_named(
    given: list[str], told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["discarded", *given]) == Exit.USAGE
    assert told in capsys.readouterr().err


async def test_following_goes_on_over_kill_9_with_the_same_numbers(
    folder: Path, tmp_path: Path, ops: Listening, unused_tcp_port: int
) -> None:
    ops.behave()
    options = ("--journal", str(tmp_path / "journal"), "--intake", f"127.0.0.1:{unused_tcp_port}")
    command = ("-m", "pillion_cli.main", "tail", "--after", "0", "-o", "json")
    async with sidecar(folder, *options) as process:
        to = ("--to", process.intake)
        follower = await asyncio.create_subprocess_exec(
            sys.executable, *command, *to, stdout=PIPE, stderr=PIPE
        )
        assert follower.stdout is not None
        assert follower.stderr is not None
        await process.publish(*alerts(0, 3), query="ack=delivered&timeout=30")
        before = [await line_of(follower.stdout) for _ in range(3)]
        process.process.kill()
        await process.ended()
    assert b"trying again until it answers" in await follower.stderr.readline()
    async with sidecar(folder, *options) as process:
        await process.publish(*alerts(3, 1), query="ack=delivered&timeout=30")
        after = await line_of(follower.stdout)
    follower.terminate()
    await follower.wait()
    assert [one["identifier"] for one in (*before, after)] == ["0", "1", "2", "3"]
    assert [one["number"] for one in before] == [1, 2, 3]
    assert after["number"] > 3


async def line_of(stream: asyncio.StreamReader) -> JSON:
    found: JSON = json.loads(await stream.readline())
    return found
