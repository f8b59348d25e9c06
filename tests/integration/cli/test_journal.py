"""``pillion journal`` beside a deliverer that runs, and on what kill -9 left of one."""

import asyncio
import json
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.resources import JSON, alert_filter, destination, service, subscription, write
from support.sidecar import Sidecar, sidecar

LINES = [
    {
        "class": "CIM_AlertIndication",
        "properties": {
            "IndicationIdentifier": f"alert-{number}",
            "AlertType": 5,
            "PerceivedSeverity": 6,
            "ProbableCause": 1,
        },
        "source": "weather",
        "group": "gusts",
    }
    for number in range(3)
]


@pytest.fixture
def resources(tmp_path: Path) -> Path:
    """One destination at which everything waits."""
    folder = tmp_path / "resources"
    folder.mkdir()
    waiting = destination(destination="http://127.0.0.1:9/", suspended=True)
    return write(folder, service(), waiting, alert_filter(), subscription())


async def run(*arguments: str) -> int:
    return await asyncio.to_thread(main, ["journal", *arguments])


async def exported(folder: Path, capsys: pytest.CaptureFixture[str]) -> list[JSON]:
    assert await run("export", str(folder)) == Exit.OK
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


async def depth(deliverer: Sidecar) -> int:
    found: int = (await deliverer.get("/v1/queues/ops")).document["depth"]
    return found


async def test_what_waits_is_exported_and_can_be_published_elsewhere(
    resources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "journal"
    async with sidecar(resources, "--journal", str(folder)) as deliverer:
        answer = await deliverer.publish(*LINES, query="ack=durable")
        assert answer.document["accepted"] == 3
        assert await run("verify", str(folder)) == Exit.OK
        assert capsys.readouterr().out.startswith("sound: ")
        lines = await exported(folder, capsys)
        assert lines == LINES
    # The context's end killed it.
    assert await exported(folder, capsys) == LINES
    async with sidecar(resources, "--journal", str(tmp_path / "other")) as other:
        await other.publish(*lines, query="ack=durable")
        assert await depth(other) == 3
        assert await exported(tmp_path / "other", capsys) == LINES


async def test_a_flipped_byte_is_told_and_the_rest_is_there(
    resources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "journal"
    async with sidecar(resources, "--journal", str(folder)) as deliverer:
        for line in LINES:
            await deliverer.publish(line, query="ack=durable")
    (segment,) = folder.glob("*.segment")
    content = bytearray(segment.read_bytes())
    content[content.index(b"alert-1")] ^= 1
    segment.write_bytes(content)

    assert await run("verify", str(folder), "--output", "json") == Exit.FAILED
    (finding,) = json.loads(capsys.readouterr().out)["findings"]
    assert finding["file"] == segment.name
    assert finding["begin"] < content.index(b"class", finding["begin"]) < finding["end"]
    assert finding["lost"].startswith("INDICATION 2")

    async with sidecar(resources, "--journal", str(folder)) as deliverer:
        await deliverer.logged("journal-damaged")
        assert await depth(deliverer) == 2
        assert await exported(folder, capsys) == [LINES[0], LINES[2]]
        assert await run("verify", str(folder)) == Exit.OK
        assert "damaged bytes, quarantined by a deliverer" in capsys.readouterr().out


async def test_what_was_discarded_is_listed_beside_a_deliverer_and_after_kill_9(
    resources: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "journal"
    async with sidecar(resources, "--journal", str(folder)) as deliverer:
        await deliverer.publish(*LINES, query="ack=durable")
        purge = ["queues", "--purge", "ops", "--yes", "--at", deliverer.intake]
        assert await asyncio.to_thread(main, purge) == Exit.OK
        # A commit behind it: what was discarded is written by then.
        last = {
            **LINES[0],
            "properties": {**LINES[0]["properties"], "IndicationIdentifier": "last"},
        }
        await deliverer.publish(last, query="ack=durable")
        capsys.readouterr()
        assert await run("discards", str(folder), "--output", "json") == Exit.OK
        listed = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        assert [one["identifier"] for one in listed] == ["alert-0", "alert-1", "alert-2"]
        deliverer.process.kill()
    assert await run("discards", str(folder), "--destination", "ops", "--reason", "purged") == 0
    table = capsys.readouterr().out
    assert all(f"alert-{number}" in table for number in range(3))
    for nothing in (["--destination", "other"], ["--since", "2100-01-01T00:00:00Z"]):
        assert await run("discards", str(folder), *nothing) == Exit.OK
        assert "alert-" not in capsys.readouterr().out
    with pytest.raises(SystemExit):
        await run("discards", str(folder), "--since", "yesterday")
    assert await run("inspect", str(folder), "--reason", "purged") == Exit.USAGE
    assert await run("discards", str(tmp_path / "nowhere")) == Exit.USAGE
