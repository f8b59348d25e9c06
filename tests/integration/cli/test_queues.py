"""``pillion queues`` against a deliverer's own routes."""

import asyncio
import json
import re
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import aiohttp
import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestServer

from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_sidecar.config.durability import RETRY_ON_DISK
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Hold, HoldCause
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.pacing import Pace
from pillion_sidecar.telemetry.administration import (
    Administration,
    AdministrationRoutes,
    add_administration_routes,
)
from pillion_sidecar.testing import FakeTime
from support.queues import StillDelivery, StillQueue, attempt_record, redriver_of
from support.resources import alert_filter, destination, service, subscription, write
from support.sidecar import sidecar

Run = Callable[..., Awaitable[int]]


@pytest.fixture
def queue(fake_time: FakeTime) -> StillQueue:
    queue = StillQueue(
        name="siem",
        depth=1200,
        high_water=4000,
        delivered=35,
        oldest_accepted_at=fake_time.monotonic() - 200,
        failing_since=fake_time.monotonic() - 190,
        next_attempt_at=fake_time.monotonic() + 30,
        lifetime=200.0 + 3 * 3600 + 5,
        last_outcome=DeliveryOutcome(DeliveryResult.ERROR, "connection [refused]\x1b"),
        recent=(attempt_record(identifier="id-9", attempt=2, status=503),),
    )
    queue.statistics.discarded[DiscardReason.QUEUE_FULL] = 17
    return queue


@pytest_asyncio.fixture
async def run(queue: StillQueue, fake_time: FakeTime) -> AsyncIterator[Run]:
    """Runs ``pillion queues`` with some arguments."""

    async def drain(seconds: float) -> int:
        raise NotImplementedError

    history = History(clock=fake_time, timers=fake_time)
    others = [StillQueue(name=f"z-{number:04}") for number in range(1500)]
    app = web.Application()
    add_administration_routes(
        app,
        AdministrationRoutes(
            Administration(
                delivery=(delivery := StillDelivery(queue, *others)),
                clock=fake_time,
                timers=fake_time,
                revision=lambda: "r1",
                durability=lambda: Durability.DISK,
                drain=drain,
                history=history,
                redriver=redriver_of(history, delivery, fake_time),
                kept_filters=lambda: {"mild": "no such property"},
            )
        ),
    )
    async with TestServer(app) as server:
        url = str(server.make_url("/"))

        async def run(*arguments: str) -> int:
            return await asyncio.to_thread(main, ["queues", "--server", url, *arguments])

        yield run


async def test_the_table_shows_every_queue(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run() == Exit.OK
    shown = capsys.readouterr().out
    (line,) = [line for line in shown.splitlines() if line.startswith("siem")]
    assert re.split("  +", line) == [
        *("siem", "failing", "1,200 / 10,000", "3 min", "3 min", "0.0", "0.0", "in 30 s"),
        *(
            "in 3 h: lifetime-expired",
            "in 24 min",
            "0",
            "35",
            "17",
            "4,000",
            "status: connection [refused]\\u001b",
        ),
    ]
    assert shown.count("z-") == 1500
    head = "1 of 1,501 destinations has trouble; the first loss is due in 3 h, at siem"
    assert shown.startswith(f"{head}\ndurability: Disk\n\nname  ")
    # The worst first.
    assert shown.splitlines().index(line) == 4


async def test_json_has_all_pages_of_queues(run: Run, capsys: pytest.CaptureFixture[str]) -> None:
    assert await run("--output", "json") == Exit.OK
    document = json.loads(capsys.readouterr().out)
    assert (document["revision"], document["durability"]) == ("r1", "Disk")
    assert len({queue["name"] for queue in document["queues"]}) == 1501
    assert (document["endedSubscriptions"], document["endedSubscriptionsCount"]) == ([], 0)
    assert document["keptFilters"] == [{"name": "mild", "problem": "no such property"}]
    assert "next" not in document


async def test_only_those_in_trouble_are_shown_in_the_order_that_is_asked_for(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("--failing") == Exit.OK
    assert len(capsys.readouterr().out.splitlines()) == 5
    assert await run("--failing", "--output", "json") == Exit.OK
    assert [one["name"] for one in json.loads(capsys.readouterr().out)["queues"]] == ["siem"]
    assert await run("--sort", "name") == Exit.OK
    assert capsys.readouterr().out.splitlines()[-1].startswith("z-1499")
    assert await run("--sort", "depth", "--output", "json") == Exit.OK
    assert json.loads(capsys.readouterr().out)["queues"][0]["name"] == "siem"


async def test_one_queue_shows_its_attempts(
    run: Run, queue: StillQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.lifetime = 900.0
    assert await run("siem") == Exit.OK
    shown = capsys.readouterr().out
    assert "retry: 3 retries, 30 s apart; lifetime 15 min\n" in shown
    (line,) = [line for line in shown.splitlines() if "id-9" in line]
    assert "250.0" in line
    assert "success" in line


async def test_a_queue_that_is_held_says_for_what(
    run: Run, queue: StillQueue, fake_time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.health.hold = Hold(HoldCause.CERTIFICATES, "no key\x1b", fake_time.monotonic())
    assert await run("siem") == Exit.OK
    shown = capsys.readouterr().out
    assert "  invalid-certificates: no key\\u001b" in shown
    assert "held since 2023-11-14T22:13:20.000Z: no key\\u001b\n" in shown


@pytest.mark.parametrize("waits", [True, False])
async def test_a_limited_queue_says_so(
    run: Run,
    queue: StillQueue,
    fake_time: FakeTime,
    capsys: pytest.CaptureFixture[str],
    waits: bool,
) -> None:
    queue.health.retry_now()
    queue.health.failing_since = None
    queue.pace = Pace(RateLimit(per_second=0.5, burst=2000))
    queue.pace.empty(fake_time.monotonic())
    queue.waiting.count = 1200 if waits else 0
    assert await run("siem") == Exit.OK
    shown = capsys.readouterr().out
    assert (" in 2 s " in shown, "  rate limit of 0.5 a second" in shown) == (waits, waits)
    ending = "; indications wait for it" if waits else ""
    assert f"rate limit: 0.5 a second, bursts of 2,000{ending}\n" in shown


async def test_a_queue_that_is_paused_says_for_what(
    run: Run, queue: StillQueue, fake_time: FakeTime, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.health.hold = Hold(HoldCause.REFUSED, "HTTP 401\x1b", fake_time.monotonic())
    assert await run("siem") == Exit.OK
    shown = capsys.readouterr().out
    assert "  refused-credentials: HTTP 401\\u001b" in shown
    assert "paused since 2023-11-14T22:13:20.000Z: HTTP 401\\u001b\n" in shown
    assert "held" not in shown


async def test_one_queue_shows_that_retries_have_no_limit(
    run: Run, queue: StillQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    queue.retry, queue.lifetime = RETRY_ON_DISK, 86_400.0
    assert await run("siem") == Exit.OK
    shown = capsys.readouterr().out
    assert "retry: no limit of retries, 30 s apart, doubling to 5 min, jitter 20 %; " in shown
    assert "; lifetime 1 d\n" in shown


@pytest.mark.parametrize(("seconds", "cell"), [(40, "in 40 s"), (-5, "now"), (None, None)])
async def test_the_table_shows_in_what_time_the_first_loss_is_due(
    seconds: float | None,
    cell: str | None,
    run: Run,
    queue: StillQueue,
    fake_time: FakeTime,
    capsys: pytest.CaptureFixture[str],
) -> None:
    queue.lifetime = 0.0 if seconds is None else 200.0 + seconds
    assert await run() == Exit.OK
    shown = capsys.readouterr().out
    assert ("the first loss is due" in shown) == (cell is not None)
    assert cell is None or f"first loss is due {cell}, at siem\n" in shown


async def test_skip_and_purge_say_what_was_given_up(
    run: Run, queue: StillQueue, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("--skip", "siem", "--yes") == Exit.OK
    assert queue.depth == 1199
    assert await run("--purge", "siem", "--yes") == Exit.OK
    assert queue.depth == 0
    assert capsys.readouterr().out == (
        "siem: 1 discarded: siem-first\n"
        "siem: 1,199 discarded; `pillion discarded list --destination siem` lists them\n"
    )
    assert await run("--skip", "siem", "--yes") == Exit.FAILED
    assert capsys.readouterr().out == "siem: 0 discarded: no indication is pending\n"


async def test_nothing_is_given_up_unasked_without_a_terminal(
    run: Run,
    queue: StillQueue,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin.isatty", lambda: False, raising=False)
    assert await run("--purge", "siem") == Exit.USAGE
    assert queue.depth == 1200
    assert "--yes" in capsys.readouterr().err


@pytest.mark.parametrize(("answer", "depth"), [("y", 0), ("n", 1200), ("", 1200)])
async def test_a_terminal_is_asked_first(
    answer: str, depth: int, run: Run, queue: StillQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def reply(question: str) -> str:
        asked.append(question)
        return answer

    monkeypatch.setattr("sys.stdin.isatty", lambda: True, raising=False)
    monkeypatch.setattr("builtins.input", reply)
    assert await run("--purge", "siem") == (Exit.FAILED if depth else Exit.OK)
    assert asked == ["Discard all of 1,200 pending for siem? [y/N] "]
    assert queue.depth == depth


async def test_an_unknown_queue_is_a_failure_in_the_deliverers_words(
    run: Run, capsys: pytest.CaptureFixture[str]
) -> None:
    assert await run("nobody/here") == Exit.FAILED
    assert "pillion queues: HTTP 404" in capsys.readouterr().err


def test_no_deliverer_is_a_failure(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["queues", "--server", "127.0.0.1:1"]) == Exit.FAILED
    told = capsys.readouterr().err
    assert "no deliverer listens at http://127.0.0.1:1" in told
    assert "pillion sidecar" in told


@pytest.mark.parametrize("apart", [False, True])
async def test_no_web_page_gets_at_administration_wherever_it_listens(
    tmp_path: Path, apart: bool
) -> None:
    write(tmp_path, service(), destination(), alert_filter(), subscription())
    options = ("--administration", "127.0.0.1:0") if apart else ()
    async with sidecar(tmp_path, *options) as run, aiohttp.ClientSession() as session:
        url = f"{run.administration}/v1/queues"
        for headers in ({"Host": "attacker.example"}, {"Origin": "https://evil.example"}):
            async with session.get(url, headers=headers) as refused:
                assert refused.status == 403
            async with session.post(f"{url}/ops/purge", headers=headers) as refused:
                assert refused.status == 403
        async with session.get(url, headers={"Host": "localhost:8288"}) as allowed:
            assert allowed.status == 200
        publishing = run.intake + "/v1/indications"
        headers = {"Origin": "https://evil.example", "Content-Type": "application/x-ndjson"}
        async with session.post(publishing, headers=headers) as refused:
            assert refused.status == 403
