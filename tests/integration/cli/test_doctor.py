"""``pillion doctor`` against a deliverer's process and bad listeners (S0.12)."""

import asyncio
import json
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.in_terminal import in_terminal
from support.listening import listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar


async def run(process: Sidecar, *arguments: str) -> int:
    return await asyncio.to_thread(main, ["doctor", *arguments, "--server", process.intake])


async def test_every_problem_is_named(
    tmp_path: Path, unused_tcp_port: int, capsys: pytest.CaptureFixture[str]
) -> None:
    retry = {"attempts": 9, "intervalSeconds": 600}
    config = tmp_path / "config"
    config.mkdir()
    async with listening() as good, listening(status=503) as bad:
        documents = resources(
            listener("good", good.url),
            listener("bad", bad.url, retry=retry),
            listener("asleep", good.url, suspended=True),
            listener("dead", f"http://127.0.0.1:{unused_tcp_port}/", retry=retry),
        )
        write(config, *documents)
        async with sidecar(config, "--journal", str(tmp_path / "journal")) as process:
            await process.publish(*alerts(0, 1))
            await process.logged("delivery-failing", 2)
            assert await run(process, "--destination", "good") == Exit.OK
            # How much is free of the journal's volume is the machine's affair.
            _, *found, last = capsys.readouterr().out.splitlines()
            levels = [one.split()[0] for one in found if " journal: " not in one]
            assert (levels, last.split(",")[0]) == (["ok"] * 6, "0 problems")
            assert await run(process, "--output", "json") == Exit.FAILED
            document = json.loads(capsys.readouterr().out)
            told = {one["check"]: one["level"] for one in document["findings"]}
            assert {check for check, level in told.items() if level == "problem"} == {
                "queue of bad",
                "queue of dead",
                "way to dead",
            }
            assert told["queue of asleep"] == "warning"
            assert document["counts"]["problem"] == 3
            assert document["server"] == process.intake
            for columns in (40, 80):
                arguments = ("doctor", "--server", process.intake)
                with in_terminal(*arguments, columns=columns) as terminal:
                    assert await asyncio.to_thread(terminal.end) == Exit.FAILED
                assert max(map(len, terminal.shown.splitlines())) <= columns
                assert "\x1b[1;31mproblem" in terminal.raw
            write(config, *documents, listener("wrong", "no URL"))
            await process.logged("configuration-refused")
            assert await run(process) == Exit.FAILED
            assert "it is not accepted, so revision" in capsys.readouterr().out
            assert await run(process, "--destination", "nope") == Exit.USAGE
            assert "`pillion queues` lists them" in capsys.readouterr().err


def test_no_deliverer_is_a_problem(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["doctor", "--server", "http://127.0.0.1:1", "--output", "json"]) == Exit.FAILED
    (found,) = json.loads(capsys.readouterr().out)["findings"]
    assert (found["check"], found["level"]) == ("server", "problem")
    assert "start one with `pillion sidecar`" in found["text"]
