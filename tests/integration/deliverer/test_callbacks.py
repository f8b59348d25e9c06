"""A publisher is called back (S1.9): once, with what became of each line, or is left to poll."""

import asyncio
import json
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
from aiohttp import web

from support.listening import listening
from support.resources import JSON
from support.running import Running, alert, alerts, listener, resources, running


class Publisher:
    """What a publisher is called back with."""

    def __init__(self) -> None:
        self.url = ""
        self.calls: list[JSON] = []
        #: What the next calls are answered with; then 200.
        self.statuses: list[int] = []
        self._called = asyncio.Event()

    async def called(self, times: int = 1) -> None:
        """Wait until it has been called so often."""
        while len(self.calls) < times:
            self._called.clear()
            await self._called.wait()

    async def take(self, request: web.Request) -> web.Response:
        self.calls.append(json.loads(await request.read()))
        self._called.set()
        return web.Response(status=self.statuses.pop(0) if self.statuses else 200)


@asynccontextmanager
async def publisher() -> AsyncIterator[Publisher]:
    made = Publisher()
    app = web.Application()
    app.router.add_post("/jobs/{job}", made.take)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    host, port = runner.addresses[0][:2]
    made.url = f"http://{host}:{port}/jobs/"
    try:
        yield made
    finally:
        await runner.cleanup()


@pytest.fixture(params=["Memory", "Disk"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "journal" if request.param == "Disk" else None


async def test_it_is_called_once_all_is_settled(config: Path, journal: Path | None) -> None:
    async with publisher() as job, listening() as good, listening(status=503) as bad:
        documents = resources(
            listener("good", good.url),
            listener("bad", bad.url, retry={"attempts": 1}),
            callbacks=[job.url],
        )
        async with running(config, *documents, journal=journal) as run:
            answer = await run.publish(
                alert("0"), callback=f"{job.url}7", timeout="600", ack="accepted"
            )
            assert (answer.status, answer.document["accepted"]) == (202, 1)
            await run.failed("bad", 1)
            assert job.calls == []
            run.retry("bad")
            await called_again(run, job, 1)
            assert job.calls == [
                {
                    "receipt": answer.document["receipt"],
                    "complete": True,
                    "delivered": 0,
                    "discarded": [{"line": 0, "destination": "bad", "reason": "attempts-exceeded"}],
                    "pending": 0,
                }
            ]
    assert good.identifiers == ["0"]


async def test_a_held_member_that_is_given_up_is_told(config: Path, journal: Path | None) -> None:
    async with publisher() as job, listening() as ops:
        documents = resources(listener("ops", ops.url), callbacks=[job.url])
        async with running(config, *documents, journal=journal) as run:
            line = alert("2") | {"group": "g", "ordered": True, "sequence": 2}
            await run.publish(
                line | {"groupMaxIdleSeconds": 60}, callback=f"{job.url}8", timeout="600"
            )
            run.time.advance(60.0)
            await job.called()
            (call,) = job.calls
            assert call["complete"] is True
            assert call["discarded"] == [
                {"line": 0, "destination": "ops", "reason": "out-of-order"}
            ]


async def test_it_is_called_after_its_timeout_at_the_latest(
    config: Path, journal: Path | None
) -> None:
    async with publisher() as job, listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), callbacks=[job.url])
        async with running(config, *documents, journal=journal) as run:
            answer = await run.publish(*alerts(0, 2), callback=f"{job.url}9", timeout="5")
            await run.failed("ops", 1)
            run.time.advance(5.0)
            await job.called()
            (call,) = job.calls
            assert (call["complete"], call["pending"]) == (False, 2)
            # Before time goes on: an answer that has not been read by then counts as none.
            while not await run.metric("pillion_callbacks_total", outcome="delivered"):
                pass
            # The rest is told by the receipt.
            ops.behave()
            run.retry("ops")
            await run.settled()
            receipt = await run.get(f"/v1/receipts/{answer.document['receipt']}?timeout=0")
            assert (receipt.status, receipt.document["delivered"]) == (200, 2)
            assert len(job.calls) == 1


async def test_one_that_fails_is_called_again_and_then_left_to_poll(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with publisher() as job, listening() as ops:
        documents = resources(listener("ops", ops.url), callbacks=[job.url])
        async with running(config, *documents) as run:
            job.statuses = [503, 302]
            await run.publish(alert("0"), callback=f"{job.url}1")
            await called_again(run, job, 3)
            assert job.calls[0] == job.calls[1] == job.calls[2]
            job.statuses = [500] * 5
            answer = await run.publish(alert("1"), callback=f"{job.url}2")
            await called_again(run, job, 8)
            while not (dropped := _dropped(caplog)):
                await run.get("/v1/queues")
            # What is behind the address may be a secret.
            address = job.url.removesuffix("/jobs/")
            assert dropped == [(answer.document["receipt"], address)]
            told = await run.get(f"/v1/receipts/{answer.document['receipt']}?timeout=0")
            assert (told.status, told.document["delivered"]) == (200, 1)


def _dropped(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [
        (record.__dict__["receipt"], record.__dict__["url"])
        for record in caplog.records
        if record.__dict__.get("event") == "callback-dropped"
    ]


async def called_again(run: Running, job: Publisher, times: int) -> None:
    """Let time pass until it has been called so often."""
    while len(job.calls) < times:
        due = run.time.next_due()
        if due is not None:
            run.time.advance(min(1.0, max(0.0, due - run.time.monotonic())))
        await run.get("/v1/queues")


async def test_whom_the_service_does_not_allow_is_not_called(
    config: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with publisher() as job, listening() as ops:
        to_ops = listener("ops", ops.url)
        async with running(config, *resources(to_ops, callbacks=[job.url])) as run:
            for url in (f"{job.url}../other", job.url.replace("/jobs/", "/job"), "ftp://x/"):
                answer = await run.publish(alert("0"), callback=url)
                assert answer.status == 400
                assert "callback" in answer.document["reason"]
            await run.reload(*resources(to_ops))
            answer = await run.publish(alert("0"), callback=f"{job.url}1")
            assert answer.status == 400
            assert run.deliverer.delivery.pending == 0
    assert job.calls == []
    assert ops.identifiers == []
