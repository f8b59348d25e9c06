"""``pillion sidecar`` with a log file of its own (S3.12)."""

import json
import signal
from pathlib import Path

import aiohttp
from prometheus_client.parser import text_string_to_metric_families

from support.listening import listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar


async def dropped(process: Sidecar) -> float:
    """How many log records the deliverer says it has dropped."""
    url = f"{process.telemetry}/metrics"
    async with aiohttp.ClientSession() as session, session.get(url) as answer:
        text = await answer.text()
    return sum(
        sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
        if sample.name == "pillion_log_records_dropped_total"
    )


async def test_the_log_is_appended_to_the_file_by_one_run_after_the_other(tmp_path: Path) -> None:
    log, folder = tmp_path / "pillion.log", tmp_path / "resources"
    folder.mkdir()
    write(folder, *resources())
    for _ in range(2):
        async with sidecar(folder, "--log-file", str(log)) as process:
            process.process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
        assert (process.log, process.said) == ([], [])
    events = [json.loads(line)["event"] for line in log.read_text().splitlines()]
    assert events.count("deliverer-started") == events.count("deliverer-stopping") == 2


async def test_a_log_that_takes_nothing_never_stops_delivery(tmp_path: Path) -> None:
    async with listening() as ops:
        write(tmp_path, *resources(listener("ops", ops.url)))
        async with sidecar(tmp_path, "--log-file", "/dev/full") as process:
            await process.publish(*alerts(0, 3), query="ack=delivered")
            assert ops.identifiers == ["0", "1", "2"]
            while not await dropped(process):
                # The thread that writes may be behind what was logged at the start.
                await process.publish(*alerts(0, 1))
            process.process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
        assert process.said == ["the log file /dev/full is in trouble: No space left on device\n"]


async def test_a_file_in_a_folder_that_is_missing_is_an_error_at_the_start(tmp_path: Path) -> None:
    write(tmp_path, *resources())
    async with sidecar(tmp_path, "--log-file", str(tmp_path / "none" / "log")) as process:
        assert await process.ended() == 1
    (said,) = process.said
    assert "No such file or directory; name a file in an existing folder that is writable" in said
