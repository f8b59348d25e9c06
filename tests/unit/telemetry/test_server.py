"""The telemetry listener."""

from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

from aiohttp.test_utils import TestClient, TestServer
from prometheus_client.parser import text_string_to_metric_families

from pillion_sidecar.telemetry.metrics import Metrics
from pillion_sidecar.telemetry.server import MOST_SCRAPES, Check, telemetry_app
from pillion_sidecar.testing import FakeTime
from support.queues import StillQueue


@asynccontextmanager
async def _client(
    metrics: Metrics,
    readiness: Mapping[str, Check] | None = None,
    startup: Mapping[str, Check] | None = None,
) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    app = telemetry_app(
        exposition=metrics.exposition, startup=startup or {}, readiness=readiness or {}
    )
    async with TestClient(TestServer(app)) as client:
        yield client


async def test_a_scrape_has_the_queues_and_the_process(fake_time: FakeTime) -> None:
    queues = [StillQueue(name=f"listener-{index}", depth=index) for index in range(3)]
    metrics = Metrics(clock=fake_time, version="0.1.0", queues=lambda: queues)
    async with _client(metrics) as client:
        response = await client.get("/metrics")
        text = await response.text()
    assert response.status == 200
    assert response.headers["Content-Type"].startswith("text/plain; version=0.0.4")
    families = {family.name: family for family in text_string_to_metric_families(text)}
    depths = families["pillion_destination_queue_depth"].samples
    assert [sample.value for sample in depths] == [0, 1, 2]
    assert families["process_resident_memory_bytes"].samples[0].value > 0


async def test_scrapes_that_nobody_reads_are_bounded_and_give_back_their_places() -> None:
    app = telemetry_app(exposition=lambda: iter(["x" * (1 << 20)] * 64), startup={}, readiness={})
    async with TestClient(TestServer(app)) as client:
        unread = [await client.get("/metrics") for _ in range(MOST_SCRAPES)]
        assert [one.status for one in unread] == [200] * MOST_SCRAPES
        beyond = await client.get("/metrics")
        assert (beyond.status, await beyond.text()) == (503, "too many scrapes at a time\n")
        assert (await client.get("/livez")).status == 200
        unread.pop().close()
        while (again := await client.get("/metrics")).status == 503:
            pass
        assert again.status == 200
        for one in (*unread, again):
            one.close()


async def test_a_queue_removed_during_a_scrape_does_not_break_it(fake_time: FakeTime) -> None:
    table = {f"listener-{index}": StillQueue(name=f"listener-{index}") for index in range(5)}
    metrics = Metrics(clock=fake_time, version="0.1.0", queues=table.values)
    pieces = metrics.exposition()
    taken = [next(pieces) for _ in range(4)]
    table.clear()
    text = "".join([*taken, *pieces])
    assert text.count('pillion_indications_delivered_total{destination="listener-') == 5


async def test_readiness_names_what_is_missing_and_liveness_does_not_care(
    fake_time: FakeTime,
) -> None:
    problems: dict[str, str | None] = {"configuration": "none loaded yet", "intake": None}
    readiness: dict[str, Check] = {
        "configuration": lambda: problems["configuration"],
        "intake": lambda: problems["intake"],
    }
    async with _client(Metrics(clock=fake_time, version="0.1.0"), readiness) as client:
        refused = await client.get("/readyz")
        assert refused.status == 503
        assert "configuration: none loaded yet" in await refused.text()
        for probe in ("/livez", "/startupz"):
            assert (await client.get(probe)).status == 200
        problems["configuration"] = None
        assert (await client.get("/readyz")).status == 200


async def test_a_start_is_over_once_intake_listens(fake_time: FakeTime) -> None:
    problem: list[str | None] = ["it does not listen yet"]
    startup: dict[str, Check] = {"intake": lambda: problem[0]}
    async with _client(Metrics(clock=fake_time, version="0.1.0"), startup=startup) as client:
        refused = await client.get("/startupz")
        assert (refused.status, await refused.text()) == (503, "intake: it does not listen yet\n")
        assert (await client.get("/livez")).status == 200
        problem[0] = None
        assert (await client.get("/startupz")).status == 200


async def test_a_verbose_probe_answers_every_check_in_json(fake_time: FakeTime) -> None:
    readiness: dict[str, Check] = {"configuration": lambda: None, "intake": lambda: "closed"}
    async with _client(Metrics(clock=fake_time, version="0.1.0"), readiness) as client:
        answer = await (await client.get("/readyz?verbose")).json()
    assert answer == {
        "healthy": False,
        "checks": {
            "configuration": {"healthy": True, "detail": "ok"},
            "intake": {"healthy": False, "detail": "closed"},
        },
    }
