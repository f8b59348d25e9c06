"""``pillion explain`` against a deliverer's process (S0.12)."""

import asyncio
import io
import json
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.asking import settled
from support.in_terminal import in_terminal
from support.listening import listening
from support.resources import JSON, alert_filter, subscription, write
from support.running import alert, listener, resources
from support.sidecar import Sidecar, sidecar

HOSTILE = "\u202eb<script>"


@pytest_asyncio.fixture
async def deliverer(tmp_path: Path) -> AsyncIterator[Sidecar]:
    """One with a listener that answers, one that fails, and one that has refused for good."""
    async with listening() as good, listening(status=503) as bad, listening(status=400) as wrong:
        folder = tmp_path / "resources"
        folder.mkdir()
        write(
            folder,
            *resources(
                listener("good", good.url),
                listener("bad", bad.url, retry={"attempts": 9, "intervalSeconds": 600}),
                listener("wrong", wrong.url, retry={"attempts": 0, "intervalSeconds": 1}),
                filters=(
                    alert_filter(
                        "critical",
                        query="SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity = 6",
                    ),
                ),
                subscriptions=(
                    subscription("to-good", "good"),
                    subscription("to-bad", "bad"),
                    subscription("to-wrong", "wrong"),
                    subscription("critical-to-good", "good", "critical"),
                ),
                history={"bodies": "None"},
            ),
        )
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await process.publish(alert("a-1"), alert(HOSTILE))
            await settled(process, 2, "result=delivered")
            await settled(process, 2, "result=discarded")
            yield process


def creation(identifier: str) -> JSON:
    """A line that no subscription selects."""
    made = {"class": "CIM_AlertIndication", "properties": {}}
    properties = {"IndicationIdentifier": identifier, "SourceInstance": made}
    return {"class": "CIM_InstCreation", "properties": properties}


async def run(process: Sidecar, *arguments: str) -> int:
    command = ["explain", *arguments, "--server", process.intake]
    return await asyncio.to_thread(main, command)


async def test_one_indication_is_told_at_each_destination(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "a-1") == Exit.OK
    shown = capsys.readouterr().out
    lines = shown.splitlines()
    assert lines[0] == "a-1"
    assert lines[1].startswith("CIM_AlertIndication from test, accepted 20")
    for name, result in (("good", "delivered"), ("bad", "pending"), ("wrong", "discarded")):
        (at,) = [at for at, line in enumerate(lines) if line.split()[:2] == [name, result]]
        assert lines[at + 1].endswith(f"for to-{name}")
    assert "first in its queue; failing: status: HTTP 503" in shown
    assert "fatal-error: HTTP 400" in shown or "attempts-exceeded: HTTP 400" in shown
    assert [line.split()[1] for line in lines if line.endswith("error: HTTP 503")] == ["bad"]
    # It waits, so its body is known.
    assert "3 of 4 subscriptions select it" in shown
    assert "WHERE is false, since PerceivedSeverity is 5;" in shown


async def test_only_the_first_of_a_queue_has_a_next_attempt(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "a-1") == Exit.OK
    assert "next in " in capsys.readouterr().out
    assert await run(deliverer, HOSTILE) == Exit.OK
    shown = capsys.readouterr().out
    assert "1 before it, and the first of them is tried in " in shown
    assert "next in " not in shown


async def test_what_its_queue_has_discarded_is_not_told_of_one_that_waits(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    await deliverer.publish(*(alert(f"b-{number}") for number in range(3)), query="ack=accepted")
    assert (await deliverer.post("/v1/queues/bad/skip")).status == 200
    assert await run(deliverer, "b-2") == Exit.OK
    shown = capsys.readouterr().out
    assert "before it" in shown
    assert "1 discarded" not in shown


async def test_json_has_all_that_is_known(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "a-1", "--source", "test", "--output", "json") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["identifier"], document["source"]) == ("a-1", "test")
    assert [one["destination"] for one in document["pending"]] == ["bad"]
    assert {one["destination"] for one in document["outcomes"]} == {"good", "wrong"}
    assert {one["destination"] for one in document["attempts"]} == {"good", "bad", "wrong"}
    assert document["explanation"]["selected"] == 3
    assert document["remembered"] is True


async def test_what_is_not_known_is_told_as_such(
    deliverer: Sidecar, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run(deliverer, "no\x1b[31m", "--source", "test") == Exit.FAILED
    captured = capsys.readouterr()
    assert captured.out == ""
    assert captured.err.startswith("pillion explain: nothing is known of no\\u001b[31m: ")
    await deliverer.publish(creation("u"))
    # No subscription selects it, so it has no outcome.
    assert await run(deliverer, "u", "--source", "test") == Exit.OK
    assert "It was accepted, and nothing of it is pending" in capsys.readouterr().out


async def test_a_dry_run_says_who_would_get_it(
    deliverer: Sidecar,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    file = tmp_path / "alert.json"
    file.write_text(json.dumps(alert("new", PerceivedSeverity=6), indent=2))
    assert await run(deliverer, "--file", str(file)) == Exit.OK
    assert capsys.readouterr().out.startswith("4 of 4 subscriptions select it\n")
    stdin = io.TextIOWrapper(io.BytesIO(json.dumps(creation("v")).encode()))
    monkeypatch.setattr(sys, "stdin", stdin)
    assert await run(deliverer, "--file", "-", "--output", "json") == Exit.FAILED
    assert json.loads(capsys.readouterr().out)["selected"] == 0
    assert await run(deliverer, "new") == Exit.FAILED


@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        ((), Exit.USAGE, "give either IDENTIFIER or --file FILE"),
        (("a", "--file", "b"), Exit.USAGE, "give either IDENTIFIER or --file FILE"),
        (("--file", "b", "--source", "s"), Exit.USAGE, "--source: only with IDENTIFIER"),
        (("--file", "/no/such"), Exit.USAGE, "No such file or directory; name a file, or -"),
        (("",), Exit.USAGE, "the identifier is empty"),
        (("\udcff",), Exit.USAGE, "an argument is not UTF-8"),
        (("a", "--server", "http://127.0.0.1:1"), Exit.FAILED, "start one with `pillion sidecar`"),
    ],
)
def test_a_mistake_says_what_to_do(
    arguments: tuple[str, ...], code: Exit, message: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["explain", *arguments]) == code
    assert message in capsys.readouterr().err


@pytest.mark.parametrize("columns", [40, 80, 200])
async def test_it_fits_every_terminal_and_shows_nothing_hostile(
    deliverer: Sidecar, columns: int
) -> None:
    arguments = ("explain", HOSTILE, "--server", deliverer.intake)
    with in_terminal(*arguments, columns=columns) as terminal:
        assert await asyncio.to_thread(terminal.end) == Exit.OK
    shown = terminal.shown.splitlines()
    assert max(map(len, shown)) <= columns
    assert shown[0] == "\\u202eb<script>"
    assert "\u202e" not in terminal.raw
    assert "\x1b[32mdelivered" in terminal.raw
