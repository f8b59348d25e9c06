"""Acknowledgement and faults by response, poll and callback (S1.4, S1.9, S1.10), over real
processes with a journal."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from aiohttp import web
from aiohttp.test_utils import TestServer

from pillion_cli.exits import Exit
from pillion_cli.main import main
from support.listening import listening
from support.resources import JSON, write
from support.running import alert, alerts, listener, resources
from support.sidecar import Sidecar, sidecar


@asynccontextmanager
async def deliverer(folder: Path, *documents: JSON) -> AsyncIterator[Sidecar]:
    """Run a deliverer with a journal beside its resources."""
    config = folder / "resources"
    config.mkdir(exist_ok=True)
    write(config, *documents)
    async with sidecar(config, "--journal", str(folder / "journal")) as process:
        assert process.intake, process.said
        yield process


async def test_what_was_durable_is_delivered_after_a_kill_and_known_as_a_duplicate(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), durability="Disk")
        async with deliverer(tmp_path, *documents) as process:
            answer = await process.publish(*alerts(0, 50), query="ack=durable")
            assert (answer.status, answer.document["durable"]) == (200, True)
            process.process.kill()
            await process.ended()
        ops.behave()
        async with deliverer(tmp_path, *documents) as process:
            answer = await process.publish(*alerts(0, 50), query="ack=durable")
            assert (answer.status, answer.document["duplicate"]) == (200, 50)
            await ops.delivered(50)
        assert ops.identifiers == [str(number) for number in range(50)]


async def test_without_a_disk_durable_is_refused(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), durability="Memory")
        async with deliverer(tmp_path, *documents) as process:
            answer = await process.publish(alert("1"), query="ack=durable")
            assert answer.status == 400
            assert "durability Disk" in answer.document["reason"]


async def test_a_publisher_is_called_back_with_what_became_of_each_line(tmp_path: Path) -> None:
    called: asyncio.Queue[dict[str, Any]] = asyncio.Queue()
    answers = [503, 200]

    async def called_back(request: web.Request) -> web.Response:
        status = answers.pop(0)
        await called.put(await request.json())
        return web.Response(status=status)

    app = web.Application()
    app.router.add_post("/hooks/{job}", called_back)
    async with TestServer(app) as hooks, listening() as ops:
        prefix = str(hooks.make_url("/hooks"))
        documents = resources(listener("ops", ops.url), durability="Disk", callbacks=[prefix])
        async with deliverer(tmp_path, *documents) as process:
            elsewhere = await process.publish(alert("1"), query=f"callback={hooks.make_url('/')}")
            assert elsewhere.status == 400
            answer = await process.publish(*alerts(0, 3), query=f"callback={prefix}/7&ack=durable")
            assert answer.status == 202
            for _ in range(2):
                told = await called.get()
                assert told == {
                    "receipt": answer.document["receipt"],
                    "complete": True,
                    "delivered": 3,
                    "discarded": [],
                    "pending": 0,
                    "durable": True,
                }


async def test_a_group_that_fails_is_stopped_at_its_sender(tmp_path: Path, capsys: Any) -> None:
    """The second line is wrong, so the third can never be delivered."""
    steps = tmp_path / "steps.ndjson"
    lines = [alert("0"), {"class": "CIM_AlertIndication"}, alert("2"), alert("3")]
    steps.write_text("".join(json.dumps(line) + "\n" for line in lines))
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), durability="Disk")
        async with deliverer(tmp_path, *documents) as process:
            code = await asyncio.to_thread(
                main,
                [
                    *("publish", str(steps), "--to", process.intake, "--source", "plant"),
                    *("--group", "g", "--ordered", "--group-max-idle", "1", "--batch", "3"),
                    *("--output", "json"),
                ],
            )
            document = json.loads(capsys.readouterr().out)
            await ops.delivered(1)
        assert code == Exit.PARTLY
        assert ops.identifiers == ["0"]
        assert document["faults"] == [{"line": 3, "destination": "ops", "reason": "out-of-order"}]
        assert document["unsettledFrom"] == 4
        assert document["group"]["termination"] == "failed"


async def test_a_group_whose_lines_are_all_right_is_delivered_in_its_order(
    tmp_path: Path, capsys: Any
) -> None:
    steps = tmp_path / "steps.ndjson"
    steps.write_text("".join(json.dumps(line) + "\n" for line in alerts(0, 25)))
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), durability="Disk")
        async with deliverer(tmp_path, *documents) as process:
            arguments = ("publish", str(steps), "--to", process.intake, "--source", "plant")
            code = await asyncio.to_thread(
                main,
                [*arguments, "--group", "g", "--ordered", "--batch", "10", "--ack", "durable"],
            )
            await ops.delivered(25)
        assert code == Exit.OK
        assert ops.identifiers == [str(number) for number in range(25)]
