"""The history of a deliverer over HTTP: asked, followed, and the same over kill -9 (S0.11)."""

import asyncio
from pathlib import Path

from support.asking import asked, settled
from support.listening import listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import sidecar


async def test_faults_and_deliveries_are_the_same_before_and_after_kill_9(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with listening() as good, listening(status=400) as bad:
        folder = write(
            tmp_path,
            *resources(
                listener("good", good.url),
                listener("bad", bad.url, retry={"attempts": 0, "intervalSeconds": 1}),
            ),
        )
        async with sidecar(folder, "--journal", str(journal)) as process:
            await process.publish(*alerts(0, 5), query="ack=delivered&timeout=30")
            before, after = await settled(process, 10)
            process.process.kill()
            await process.ended()
        assert [one["number"] for one in before] == list(range(1, 11))
        lost = [one for one in before if one["result"] == "discarded"]
        assert {one["destination"] for one in lost} == {"bad"}
        assert [one["identifier"] for one in lost] == [str(number) for number in range(5)]
        assert {one["detail"] for one in lost} == {"HTTP 400"}
        assert all(one["indication"]["class"] == "CIM_AlertIndication" for one in lost)
        async with sidecar(folder, "--journal", str(journal)) as process:
            again, _ = await asked(process, "indication=true")
            assert again == before
            waiting = [
                asyncio.create_task(asked(process, f"after={after}&wait=30&{only}"))
                for only in ("destination=good&result=delivered", "destination=bad")
            ]
            await process.publish(*alerts(5, 1), query="ack=delivered&timeout=30")
            ((one,), _), _ = await asyncio.gather(*waiting)
            assert (one["identifier"], one["number"] > after) == ("5", True)
            named, _ = await asked(process, "identifier=3&destination=bad")
            assert [one["reason"] for one in named] == ["fatal-error"]
            last, through = await asked(process, "latest=true&limit=2&destination=bad")
            assert [one["identifier"] for one in last] == ["4", "5"]
            assert await asked(process, f"latest=true&after={through}") == ([], through)
