"""``pillion suspend`` and ``resume`` against a deliverer's process (S0.12)."""

import asyncio
import json
from pathlib import Path

import pytest

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.listening import listening
from support.resources import destination, write, write_rendered
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar


async def run(process: Sidecar, *arguments: str) -> int:
    return await asyncio.to_thread(main, [*arguments, "--server", process.intake])


async def test_a_destination_is_suspended_and_resumed_in_its_file(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    async with listening() as siem:
        folder = write(tmp_path, *resources(listener("siem", siem.url), destination("pager")))
        async with sidecar(folder) as process:
            assert await run(process, "suspend", "siem") == Exit.OK
            first, second = capsys.readouterr().out.splitlines()
            assert first == "siem is suspended now; 0 pending"
            assert second.startswith(f"changed: {tmp_path / 'resources.yaml'}, spec of line ")
            assert (await process.get("/v1/queues/siem")).document["suspended"] is True
            assert (await process.get("/v1/queues/pager")).document["suspended"] is False
            assert await run(process, "suspend", "siem", "--output", "json") == Exit.OK
            assert json.loads(capsys.readouterr().out)["changed"] is False
            await process.publish(*alerts(0, 3))
            assert await run(process, "resume", "siem", "--output", "json") == Exit.OK
            document = json.loads(capsys.readouterr().out)
            assert (document["suspended"], document["changed"]) == (False, True)
            await siem.delivered(3)
            assert await run(process, "resume", "siem") == Exit.OK
            assert capsys.readouterr().out.startswith("siem is not suspended already; ")


@pytest.mark.parametrize(
    ("policy", "told"),
    [
        ("Adaptive", "its queue is full: each new indication discards the oldest"),
        ("Reject", "its queue is full, so publishers are refused"),
    ],
)
async def test_a_full_queue_is_told_for_it_goes_on_losing_or_refusing(
    tmp_path: Path, policy: str, told: str, capsys: pytest.CaptureFixture[str]
) -> None:
    siem = destination("siem", suspended=True, queueSize=2, queueFullPolicy=policy)
    async with sidecar(write(tmp_path, *resources(siem))) as process:
        await process.publish(*alerts(0, 2), query="ack=accepted")
        await process.publish(*alerts(2, 1), query="ack=accepted")
        assert await run(process, "suspend", "siem") == Exit.OK
        first, second = capsys.readouterr().out.splitlines()
        assert first == "siem is suspended already; 2 pending"
        assert second.startswith(told)
        assert await run(process, "doctor", "--destination", "siem") == Exit.FAILED
        (line,) = [line for line in capsys.readouterr().out.splitlines() if "queue of siem" in line]
        assert line.startswith("problem")


async def test_what_cannot_take_effect_is_not_done(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder, other = tmp_path / "folder", tmp_path / "other"
    folder.mkdir()
    other.mkdir()
    documents = resources(destination("siem"))
    write(folder, *documents)
    write(other, *documents)
    before = (other / "resources.yaml").read_text()
    async with sidecar(folder) as process:
        arguments = ("suspend", "siem", "--resources", str(other), "--timeout", "1")
        assert await run(process, *arguments) == Exit.FAILED
        assert "changed back: the deliverer did not take it up" in capsys.readouterr().err
        assert (other / "resources.yaml").read_text() == before
        assert await run(process, "suspend", "sim") == Exit.FAILED
        assert "did you mean siem?" in capsys.readouterr().err
        assert await run(process, "suspend", "siem", "--resources", "/nope") == Exit.USAGE
        write(folder, *documents, destination("wrong", timeoutSeconds=-1))
        await process.logged("configuration-refused")
        assert await run(process, "suspend", "siem") == Exit.FAILED
        assert "correct it first; pillion validate" in capsys.readouterr().err


async def test_a_resource_in_kubernetes_is_for_kubectl(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rendered = write_rendered(tmp_path, *resources(destination("siem")))
    async with sidecar(tmp_path) as process:
        assert await run(process, "suspend", "siem") == Exit.FAILED
        captured = capsys.readouterr()
        assert captured.out.startswith("kubectl patch listenerdestination siem ")
        assert "nothing was changed: siem is a resource in Kubernetes" in captured.err
        assert await run(process, "resume", "siem", "--output", "json") == Exit.FAILED
        document = json.loads(capsys.readouterr().out)
        assert (document["changed"], '"suspended":false' in document["command"]) == (False, True)
    assert {name: (tmp_path / name).read_bytes() for name, _ in rendered.files} == dict(
        rendered.files
    )
