"""Start and stop: the door closes, what can still be delivered is, the rest is told."""

import asyncio
import json
import logging
import signal
import socket
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from support.listening import listening
from support.resources import subscription, write
from support.running import alert, alerts, listener, resources, running
from support.sidecar import sidecar


async def test_the_door_is_closed_while_the_backlog_is_delivered(tmp_path: Path) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), shutdownGracePeriodSeconds=20)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 3))
            await run.failed("ops", 1)
            ops.behave(hang=True)
            run.stop.set()
            await ops.treated_badly(2)
            refused = await run.publish(*alerts(3, 1))
            assert refused.status == 503
            assert refused.document["reason"] == "the deliverer is shutting down"
            assert float(refused.headers["Retry-After"]) > 0
            # Who has published can still ask what became of it.
            assert (await run.get("/v1/queues/ops")).document["depth"] == 3
            assert not run.ended.done()
            assert await run.probe("/livez") == 200
            assert await run.probe("/readyz") == 503


async def test_the_end_does_not_wait_longer_than_there_is_something_to_deliver(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), shutdownGracePeriodSeconds=20)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 3))
            await run.failed("ops", 1)
            ops.behave()
            before = run.time.monotonic()
            run.stop.set()
            await run.ended
            assert run.time.monotonic() == before
    assert ops.identifiers == ["0", "1", "2"]
    events = [record.__dict__.get("event") for record in caplog.records]
    assert "indication-discarded" not in events
    assert "left-at-shutdown" not in events


async def test_what_is_left_after_the_grace_is_discarded_each_logged_and_told_to_who_asked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening() as healthy, listening(status=503) as one, listening(hang=True) as two:
        documents = resources(
            listener("healthy", healthy.url),
            listener("one", one.url),
            listener("two", two.url),
            shutdownGracePeriodSeconds=20,
        )
        async with running(tmp_path, *documents) as run:
            waiting = asyncio.create_task(run.publish(*alerts(0, 3), ack="delivered"))
            await run.failed("one", 1)
            await two.treated_badly()
            await run.delivered("healthy", 3)
            run.stop.set()
            # Tried once more, at once; and then the grace is over.
            await run.failed("one", 2)
            run.time.advance(20.0)
            await run.ended
            told = await waiting
    assert healthy.identifiers == ["0", "1", "2"]
    expected = Counter((str(n), name) for n in range(3) for name in ("one", "two"))
    discards = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "indication-discarded"]
    assert Counter((one["identifier"], one["destination"]) for one in discards) == expected
    assert {one["reason"] for one in discards} == {"shutdown"}
    left = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "left-at-shutdown"]
    assert {one["destination"]: one["count"] for one in left} == {"one": 3, "two": 3}
    assert len(left) == 2
    assert (told.document["delivered"], told.document["pending"]) == (0, 0)
    reasons = {
        (one["line"], one["destination"], one["reason"]) for one in told.document["discarded"]
    }
    assert reasons == {(n, name, "shutdown") for n in range(3) for name in ("one", "two")}


async def test_a_body_that_is_still_coming_is_answered_with_what_was_taken_of_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    more = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield json.dumps(alert("0")).encode() + b"\n"
        await more.wait()
        yield json.dumps(alert("1")).encode() + b"\n"

    async with listening() as ops, running(tmp_path, *resources(listener("ops", ops.url))) as run:
        publishing = asyncio.create_task(run.post("/v1/indications?source=test", body()))
        await run.delivered("ops", 1)
        run.stop.set()
        answer = await publishing
        more.set()
        assert answer.status == 503
        assert float(answer.headers["Retry-After"]) > 0
        assert answer.document == {
            "accepted": 1,
            "duplicate": 0,
            "refused": [],
            "unreadFrom": 1,
            "reason": "the deliverer is shutting down",
        }
        await run.ended
    assert ops.identifiers == ["0"]
    assert not [record for record in caplog.records if record.name == "aiohttp.server"]


# ---------------------------------------------------------------------- the process


@pytest.fixture
def not_ignored() -> Iterator[None]:
    """Under ``nohup`` tests are started with SIGHUP ignored, and processes inherit that."""
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    yield
    signal.signal(signal.SIGHUP, before)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP])
async def test_a_signal_closes_the_door_delivers_and_exits_with_0(
    tmp_path: Path, number: signal.Signals, not_ignored: None
) -> None:
    async with listening(hang=True) as stuck, listening() as healthy:
        documents = resources(
            listener("stuck", stuck.url),
            listener("healthy", healthy.url),
            shutdownGracePeriodSeconds=1,
        )
        async with sidecar(write(tmp_path, *documents)) as process:
            await process.publish(*alerts(0, 3))
            await healthy.delivered(3)
            process.process.send_signal(number)
            count = 3
            while (answer := await process.publish(*alerts(count, 1))).status != 503:
                count += 1
            assert "Retry-After" in answer.headers
            assert await process.ended() == 0
        assert healthy.identifiers == [str(n) for n in range(count)]
        discards = process.events("indication-discarded")
        told = [one["identifier"] for one in discards]
        told += [name for one in process.events("discards-counted") for name in one["identifiers"]]
        assert told == [str(n) for n in range(count)]
        assert {(one["destination"], one["reason"]) for one in discards} == {("stuck", "shutdown")}
        (left,) = process.events("left-at-shutdown")
        assert (left["destination"], left["count"]) == ("stuck", count)
        assert process.said == []


async def test_a_folder_that_is_wrong_is_told_in_full_and_exits_with_1(tmp_path: Path) -> None:
    write(
        tmp_path,
        *resources(
            listener("ops", "ftp://example.org/", queueSize=-1),
            subscriptions=(subscription("to-nobody", "nobody"),),
        ),
    )
    (tmp_path / "broken.yaml").write_text("kind: [")
    async with sidecar(tmp_path) as process:
        assert await process.ended() == 1
        said = "".join(process.said)
    for wrong in ("ftp://example.org/", "spec.queueSize", "broken.yaml"):
        assert wrong in said
    assert "could not start" in said
    assert "Traceback" not in said


@pytest.mark.parametrize("door", ["--intake", "--telemetry"])
async def test_an_address_that_is_taken_is_named(tmp_path: Path, door: str) -> None:
    write(tmp_path, *resources(listener("ops", "http://127.0.0.1:9/")))
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        async with sidecar(tmp_path, door, address) as process:
            assert await process.ended() == 1
            said = "".join(process.said)
    assert f"cannot listen on {address}: " in said
    assert "in use" in said.lower()
    assert f"choose another address by {door}" in said
    assert "Traceback" not in said


async def test_a_running_process_follows_its_folder(tmp_path: Path) -> None:
    async with listening() as first, listening() as second:
        write(tmp_path, *resources(listener("one", first.url)))
        async with sidecar(tmp_path) as process:
            both = resources(listener("one", first.url), listener("two", second.url))
            write(tmp_path, *both)
            await process.logged("configuration-loaded", 2)
            await process.publish(*alerts(0, 1))
            await first.delivered(1)
            await second.delivered(1)
            write(tmp_path, *resources(listener("one", "nonsense")))
            await process.logged("configuration-refused")
            await process.publish(*alerts(1, 1))
            await second.delivered(2)
            process.process.send_signal(signal.SIGINT)
            assert await process.ended() == 0
