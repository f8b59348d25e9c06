"""An edited filter that is wrong keeps its last good version, over a restart too."""

import json
import logging
from pathlib import Path

import pytest

from pillion_sidecar.app import StartFailed
from pillion_sidecar.lastgood import FILE_NAME
from support.listening import listening
from support.resources import JSON, alert_filter, subscription, write
from support.running import alerts, later, listener, running

WRONG = alert_filter(query="SELECT FROM nowhere (")


def folder_of(tmp_path: Path) -> Path:
    folder = tmp_path / "resources"
    folder.mkdir(exist_ok=True)
    return folder


def documents(url: str, wanted: JSON, *more: JSON) -> tuple[JSON, ...]:
    return (listener("ops", url), wanted, subscription(), *more)


async def test_the_last_good_version_delivers_over_a_restart_until_the_edit_is_mended(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, journal = folder_of(tmp_path), tmp_path / "journal"
    async with listening() as ops, listening() as second:
        async with running(folder, *documents(ops.url, alert_filter()), journal=journal) as run:
            await run.publish(*alerts(0, 1))
            await run.delivered("ops", 1)
            # All else of the same revision is taken over.
            more = (listener("more", second.url), subscription("to-more", to="more"))
            with caplog.at_level(logging.ERROR):
                await run.reload(*documents(ops.url, WRONG, *more))
            await run.publish(*alerts(1, 1))
            await run.delivered("ops", 2)
            await run.delivered("more", 1)
            (told,) = [one for one in caplog.records if one.__dict__["event"] == "filter-kept"]
            assert told.__dict__["filter"] == "alerts"
            assert "spec.query" in told.__dict__["problem"]
            (kept,) = (await run.get("/v1/queues")).document["keptFilters"]
            assert kept == {"name": "alerts", "problem": told.__dict__["problem"]}
            assert await run.metric("pillion_configuration_last_reload_successful") == 0.0
            time = later(run.time, seconds=5.0)
        async with running(folder, journal=journal, time=time) as run:
            assert (await run.get("/v1/queues")).document["keptFilters"] == [kept]
            assert await run.probe("/readyz") == 200
            await run.publish(*alerts(2, 1))
            await run.delivered("ops", 1)
            await run.reload(*documents(ops.url, alert_filter()))
            assert (await run.get("/v1/queues")).document["keptFilters"] == []
            assert await run.metric("pillion_configuration_last_reload_successful") == 1.0


async def test_an_edit_that_alone_is_wrong_is_told_each_time_and_by_the_metric(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    good, worse = alert_filter(), alert_filter(query="SELECT")
    folder, successful = folder_of(tmp_path), "pillion_configuration_last_reload_successful"
    async with running(folder, *documents("http://127.0.0.1:1/", good)) as run:
        for wrong in (WRONG, worse):
            await run.reload(*documents("http://127.0.0.1:1/", wrong))
            assert await run.metric(successful) == 0.0
        told = [one.__dict__["problem"] for one in caplog.records]
        assert len(told) == len(set(told)) == 2
        await run.reload(*documents("http://127.0.0.1:1/", good))
        assert await run.metric(successful) == 1.0


async def test_a_filter_that_was_never_good_refuses_the_start(tmp_path: Path) -> None:
    folder, journal = folder_of(tmp_path), tmp_path / "journal"
    write(folder, *documents("http://127.0.0.1:1/", WRONG))
    with pytest.raises(StartFailed, match=r"spec\.query"):
        async with running(folder, journal=journal):
            pytest.fail("it started")


async def test_where_anything_else_is_wrong_the_whole_revision_is_refused(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder, journal = folder_of(tmp_path), tmp_path / "journal"
    good = documents("http://127.0.0.1:1/", alert_filter())
    async with running(folder, *good, journal=journal) as run:
        await run.reload(*documents("ftp://ops.example/", WRONG))
        assert (await run.get("/v1/queues")).document["keptFilters"] == []
        assert "configuration-refused" in [one.__dict__.get("event") for one in caplog.records]


@pytest.mark.parametrize("content", ["", "[]", "{", '{"alerts": 5}'])
async def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    folder, journal = folder_of(tmp_path), tmp_path / "journal"
    async with listening() as ops:
        async with running(folder, *documents(ops.url, alert_filter()), journal=journal):
            pass
        stored = json.loads((journal / FILE_NAME).read_text())
        # As every file of the journal's folder, it is the deliverer's user's alone.
        assert (journal / FILE_NAME).stat().st_mode & 0o777 == 0o600
        assert stored["alerts"]["kind"] == "IndicationFilter"
        (journal / FILE_NAME).write_text(content)
        write(folder, *documents(ops.url, WRONG))
        with pytest.raises(StartFailed):
            async with running(folder, journal=journal):
                pytest.fail("it started")
