"""What an administrator sees and does (S0.12)."""

import asyncio
import errno
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any, NoReturn

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.delivery.entries import Subscription, SubscriptionEnd
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Hold, HoldCause
from pillion_sidecar.delivery.throughput import Throughput
from pillion_sidecar.history.recorder import History
from pillion_sidecar.http_errors import OriginPolicy
from pillion_sidecar.indication import DiscardReason
from pillion_sidecar.pacing import Pace
from pillion_sidecar.telemetry.administration import (
    MOST_DRAINING,
    Administration,
    AdministrationRoutes,
    Drain,
    add_administration_routes,
)
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.wire.queues import MOST_ENTRIES, Moment
from support.delivery import subscription
from support.outcomes import outcome
from support.queues import StillDelivery, StillQueue, attempt_record, redriver_of


@asynccontextmanager
async def _client(
    fake_time: FakeTime,
    *queues: StillQueue,
    left: int = 0,
    drain: Drain | None = None,
    starting: str | None = None,
    delivery: StillDelivery | None = None,
    history: History | None = None,
) -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    async def drained(seconds: float) -> int:
        fake_time.advance(seconds)
        return left

    app = web.Application()
    history = history or History(clock=fake_time, timers=fake_time)
    delivery = delivery or StillDelivery(*queues)
    add_administration_routes(
        app,
        AdministrationRoutes(
            Administration(
                delivery=delivery,
                clock=fake_time,
                timers=fake_time,
                revision=lambda: "r7",
                durability=lambda: Durability.STATE_ONLY,
                drain=drain or drained,
                starting=lambda: starting,
                origins=OriginPolicy("127.0.0.1"),
                history=history,
                redriver=redriver_of(history, delivery, fake_time),
            )
        ),
    )
    async with TestClient(TestServer(app)) as client:
        yield client


def busy(time: FakeTime, *, accepted: int, delivered: int) -> Throughput:
    """With so many in the last ten seconds."""
    made, begin = Throughput(), time.monotonic() - 10
    for _ in range(accepted):
        made.accept(begin, is_first=False)
    for _ in range(delivered):
        made.deliver(0.0, begin)
    return made


async def test_a_queue_shows_what_an_administrator_asks_for(fake_time: FakeTime) -> None:
    queue = StillQueue(
        name="siem",
        depth=3,
        capacity=50,
        high_water=40,
        in_flight_count=1,
        delivered=12,
        oldest_accepted_at=fake_time.monotonic() - 90,
        last_success_at=fake_time.monotonic() - 91,
        last_discard_at=fake_time.monotonic() - 5,
        next_attempt_at=fake_time.monotonic() + 30,
        lifetime=150.0,
        slow_since=fake_time.monotonic() - 60,
        throughput=busy(fake_time, accepted=30, delivered=20),
        last_outcome=DeliveryOutcome(DeliveryResult.ERROR, "HTTP 503", status=503),
        sequence_context="default#a#b#1",
        next_sequence_number=15,
    )
    queue.statistics.discarded[DiscardReason.QUEUE_FULL] = 2
    async with _client(fake_time, queue) as client:
        answer = await (await client.get("/v1/queues")).json()
    (shown,) = answer["queues"]
    assert (answer["revision"], answer["next"]) == ("r7", None)
    assert answer["durability"] == "StateOnly"
    assert (shown["name"], shown["depth"], shown["capacity"]) == ("siem", 3, 50)
    assert (shown["highWater"], shown["inFlight"], shown["delivered"]) == (40, 1, 12)
    assert shown["discarded"] == {"queue-full": 2}
    assert shown["creationTime"] == "2023-11-14T22:13:20.000Z"
    assert shown["lastDiscardTime"] == "2023-11-14T22:13:15.000Z"
    assert shown["lastSuccessTime"] == "2023-11-14T22:11:49.000Z"
    assert shown["nextAttemptTime"] == "2023-11-14T22:13:50.000Z"
    assert shown["slowSince"] == "2023-11-14T22:12:20.000Z"
    assert (shown["acceptedPerSecond"], shown["deliveredPerSecond"]) == (3.0, 2.0)
    # 47 places, and one more each second.
    assert shown["fullTime"] == "2023-11-14T22:14:07.000Z"
    assert shown["oldestIndicationAgeSeconds"] == 90
    assert shown["lastResult"] == {
        "result": "error",
        "cause": "status",
        "detail": "HTTP 503",
        "status": 503,
    }
    assert (shown["sequenceContext"], shown["nextSequenceNumber"]) == ("default#a#b#1", 15)


async def test_one_queue_lists_its_attempts_latest_first(fake_time: FakeTime) -> None:
    attempts = tuple(attempt_record(identifier=f"id-{n}", sequence_number=n) for n in range(3))
    async with _client(
        fake_time, StillQueue(name="siem", lifetime=900.0, recent=attempts)
    ) as client:
        shown = await (await client.get("/v1/queues/siem")).json()
    assert [attempt["identifier"] for attempt in shown["attempts"]] == ["id-2", "id-1", "id-0"]
    assert shown["attempts"][0]["result"] == "success"
    assert shown["attempts"][0]["time"] == "2023-11-14T22:13:20.500Z"
    assert (shown["firstLossDueTime"], shown["fullTime"], shown["slowSince"]) == (None,) * 3
    assert shown["firstLossReason"] is None
    assert (shown["acceptedPerSecond"], shown["deliveredPerSecond"]) == (0, 0)
    assert shown["frontIdentifiers"] == ["siem-first"]
    assert shown["indicationLifetimeSeconds"] == 900
    assert shown["retry"] == {
        "attempts": 3,
        "intervalSeconds": 30,
        "backoff": "Fixed",
        "maximumIntervalSeconds": 3600,
        "jitterPercent": 0,
    }


async def test_queues_are_answered_a_page_at_a_time_by_name(fake_time: FakeTime) -> None:
    queues = [StillQueue(name=name) for name in ("delta", "alpha", "charlie", "bravo", "echo")]
    seen: list[str] = []
    async with _client(fake_time, *queues) as client:
        after: str | None = ""
        while after is not None:
            answer = await (await client.get(f"/v1/queues?limit=2&after={after}")).json()
            assert len(answer["queues"]) <= 2
            seen += [queue["name"] for queue in answer["queues"]]
            after = answer["next"]
    assert seen == ["alpha", "bravo", "charlie", "delta", "echo"]


async def test_a_wrong_limit_is_refused_by_name(fake_time: FakeTime) -> None:
    async with _client(fake_time) as client:
        for limit in ("0", "-1", "10001", "many", "nan", "0.5", "1e3", "1_0", " 1", "\u0661"):
            for path, most in (("/v1/queues", 1000), ("/v1/discards", 10_000)):
                answer = await client.get(path, params={"limit": limit})
                assert answer.status == 400
                told = f"limit={limit!r}: give a whole number from 1 to {most}"
                assert await answer.json() == {"reason": told}


@pytest.mark.parametrize(
    ("method", "target", "says"),
    [
        ("GET", "/v1/queues?limt=1", "'limt': there is no such parameter; did you mean limit?"),
        ("GET", "/v1/queues?limit=1&limit=2", "limit: is given more than once"),
        ("GET", "/v1/queues/siem?limit=1", "'limit': there is no such parameter"),
        ("GET", "/v1/discards?Destination=siem", "did you mean destination?"),
        ("GET", "/v1/discards?reason=queue-ful", "did you mean queue-full?"),
        ("GET", "/v1/discards?reason=7", "use attempts-exceeded, damaged"),
        ("POST", "/v1/queues/siem/purge?limit=1", "'limit': there is no such parameter"),
        ("POST", "/v1/queues/siem/skip?count=2", "'count': there is no such parameter"),
        ("POST", "/drain?timout=1", "did you mean timeout?"),
    ],
)
async def test_a_parameter_that_is_not_taken_is_refused_and_nothing_is_done(
    fake_time: FakeTime, method: str, target: str, says: str
) -> None:
    queue = StillQueue(name="siem", depth=3)
    async with _client(fake_time, queue) as client:
        answer = await client.request(method, target)
        assert answer.status == 400
        assert says in await answer.text()
        assert queue.depth == 3


async def test_skip_discards_the_front_and_purge_the_rest(fake_time: FakeTime) -> None:
    queue = StillQueue(name="siem", depth=5)
    async with _client(fake_time, queue) as client:
        skipped = await (await client.post("/v1/queues/siem/skip")).json()
        told = {"name": "siem", "discarded": 1, "identifiers": ["siem-first"]}
        assert (skipped, queue.depth) == (told, 4)
        purged = await (await client.post("/v1/queues/siem/purge")).json()
        assert (purged, queue.depth) == ({"name": "siem", "discarded": 4}, 0)
        again = await (await client.post("/v1/queues/siem/skip")).json()
        assert again == {"name": "siem", "discarded": 0, "identifiers": []}


async def test_retry_ends_the_wait_and_tells_whether_there_was_one(fake_time: FakeTime) -> None:
    queue = StillQueue(name="siem", depth=1, next_attempt_at=fake_time.monotonic() + 30)
    async with _client(fake_time, queue) as client:
        answers = [await (await client.post("/v1/queues/siem/retry")).json() for _ in range(2)]
    assert answers == [{"name": "siem", "retried": True}, {"name": "siem", "retried": False}]
    assert queue.health.next_attempt_at is None


async def test_an_unknown_queue_is_not_found(fake_time: FakeTime) -> None:
    async with _client(fake_time) as client:
        for method, path in (
            ("GET", ""),
            *(("POST", f"/{do}") for do in ("purge", "retry", "skip")),
        ):
            answer = await client.request(method, f"/v1/queues/nobody{path}")
            assert answer.status == 404
            assert "'nobody'" in await answer.text()


@pytest.mark.parametrize("path", ["/v1/queues/siemm", "/v1/discards?destination=siemm"])
async def test_an_unknown_name_is_answered_with_the_nearest(fake_time: FakeTime, path: str) -> None:
    async with _client(fake_time, StillQueue(name="siem")) as client:
        answer = await client.get(path)
        assert answer.status == 404
        reason = "no destination queue named 'siemm'; did you mean siem?"
        assert await answer.json() == {"reason": reason}


async def test_before_the_journal_is_read_nobody_says_that_nothing_is_pending(
    fake_time: FakeTime,
) -> None:
    async with _client(fake_time, starting="it waits for b (refused)") as client:
        drained = await client.post("/drain")
        assert (drained.status, drained.headers["Retry-After"]) == (503, "1")
        assert "the journal is not read yet: it waits for b (refused)" in await drained.text()
        page = await (await client.get("/v1/queues")).json()
        assert page["starting"] == "it waits for b (refused)"


async def test_drain_says_whether_anything_is_left(fake_time: FakeTime) -> None:
    async with _client(fake_time, StillQueue(name="siem")) as client:
        done = await client.post("/drain")
        assert done.status == 200
        assert await done.json() == {"complete": True, "pending": 0, "destinations": {}}
    async with _client(fake_time, StillQueue(name="siem", depth=4), left=4) as client:
        started = fake_time.monotonic()
        short = await client.post("/drain?timeout=2")
        assert fake_time.monotonic() == started + 2
        assert short.status == 202
        assert await short.json() == {"complete": False, "pending": 4, "destinations": {"siem": 4}}


async def test_times_of_what_waits_and_of_failing_are_told(fake_time: FakeTime) -> None:
    now = fake_time.monotonic()
    queue = StillQueue(oldest_accepted_at=now - 90, failing_since=now - 60, uid="u-1")
    async with _client(fake_time, queue, StillQueue(name="well")) as client:
        failing, well = (await (await client.get("/v1/queues")).json())["queues"]
    assert failing["oldestIndicationTime"] == "2023-11-14T22:11:50.000Z"
    assert failing["failingSince"] == "2023-11-14T22:12:20.000Z"
    assert (failing["uid"], failing["draining"]) == ("u-1", False)
    assert (well["oldestIndicationTime"], well["failingSince"]) == (None, None)


async def test_what_a_destination_is_held_for_is_told(fake_time: FakeTime) -> None:
    hold = Hold(HoldCause.ADDRESS, "10.0.0.1 is private", fake_time.monotonic() - 60)
    async with _client(fake_time, StillQueue(hold=hold), StillQueue(name="well")) as client:
        held, well = (await (await client.get("/v1/queues")).json())["queues"]
    assert held["hold"] == {
        "cause": "refused-address",
        "message": "10.0.0.1 is private",
        "since": "2023-11-14T22:12:20.000Z",
    }
    assert well["hold"] is None


async def test_a_queue_that_drains_stands_before_a_new_one_of_its_name(
    fake_time: FakeTime,
) -> None:
    new, old = StillQueue(name="b", uid="new"), StillQueue(name="b", uid="old", draining=True)
    pages: list[list[str]] = []
    async with _client(fake_time, StillQueue(name="c"), new, StillQueue(name="a"), old) as client:
        after: str | None = ""
        while after is not None:
            answer = await (await client.get(f"/v1/queues?limit=2&after={after}")).json()
            pages.append([f"{queue['name']}-{queue['uid']}" for queue in answer["queues"]])
            after = answer["next"]
    assert pages == [["a-0c5f", "b-old", "b-new"], ["c-0c5f"]]


async def test_the_first_page_names_subscriptions_that_ended_by_themselves(
    fake_time: FakeTime,
) -> None:
    delivery = StillDelivery(StillQueue(name="a"), StillQueue(name="b"))
    for number, (end, cause) in enumerate(
        (
            (SubscriptionEnd.FATAL_ERROR, SubscriptionEnd.FATAL_ERROR),
            (SubscriptionEnd.REMOVED, SubscriptionEnd.REMOVAL_ACTION),
            (SubscriptionEnd.EXPIRED, SubscriptionEnd.EXPIRED),
        )
    ):
        delivery.ended.append(ended(f"s{number}", end, cause))
    async with _client(fake_time, delivery=delivery) as client:
        first = await (await client.get("/v1/queues?limit=1")).json()
        second = await (await client.get(f"/v1/queues?after={first['next']}")).json()
    assert first["endedSubscriptions"] == [
        {"name": "s0", "uid": "u-s0", "state": "Disabled", "reason": "FatalError"},
        {"name": "s1", "uid": "u-s1", "state": "Removed", "reason": "RemovalAction"},
        {"name": "s2", "uid": "u-s2", "state": "Expired", "reason": "Expired"},
    ]
    assert first["endedSubscriptionsCount"] == 3
    assert "endedSubscriptions" not in second


async def test_no_more_ended_subscriptions_are_named_than_an_answer_holds(
    fake_time: FakeTime,
) -> None:
    delivery = StillDelivery()
    expired = SubscriptionEnd.EXPIRED
    delivery.ended += [ended(f"s{number}", expired, expired) for number in range(MOST_ENTRIES + 7)]
    async with _client(fake_time, delivery=delivery) as client:
        answer = await (await client.get("/v1/queues")).json()
    assert len(answer["endedSubscriptions"]) == MOST_ENTRIES
    assert answer["endedSubscriptionsCount"] == MOST_ENTRIES + 7


def ended(name: str, end: SubscriptionEnd, cause: SubscriptionEnd) -> Subscription:
    resource = subscription(name, "ops", uid=f"u-{name}")
    made = Subscription(resource, began_at=0)
    made.end, made.cause = end, cause
    return made


FOREIGN = (
    {"Origin": "https://evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Host": "attacker.example"},
)


async def test_no_web_page_purges_or_reads_a_queue(fake_time: FakeTime) -> None:
    """500 durable indications were discarded by a form of a page."""
    delivery = StillDelivery(StillQueue(name="siem", depth=3))
    async with _client(fake_time, delivery=delivery) as client:
        for headers in FOREIGN:
            for method, path in (
                ("POST", "/v1/queues/siem/purge"),
                ("POST", "/v1/queues/siem/skip"),
                ("POST", "/drain?timeout=0"),
                ("GET", "/v1/queues"),
                ("GET", "/v1/queues/siem"),
            ):
                answer = await client.request(method, path, headers=headers)
                assert answer.status == 403
                assert "not" in await answer.text()
        assert (await client.get("/v1/queues")).status == 200


async def test_no_more_wait_for_the_drain_than_may(fake_time: FakeTime) -> None:
    begun, over = asyncio.Semaphore(0), asyncio.Event()

    async def drain(_seconds: float) -> int:
        begun.release()
        await over.wait()
        return 0

    async with _client(fake_time, drain=drain) as client:
        waiting = [asyncio.create_task(client.post("/drain")) for _ in range(MOST_DRAINING)]
        for _ in waiting:
            await begun.acquire()
        refused = await client.post("/drain")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        over.set()
        assert {(await one).status for one in waiting} == {200}
        assert (await client.post("/drain")).status == 200


async def test_the_latest_discards_are_listed_by_destination_reason_and_time(
    fake_time: FakeTime,
) -> None:
    history = History(clock=fake_time, timers=fake_time)
    for number in range(6):
        history.add(
            outcome(
                number,
                destination="siem" if number % 2 else "noc",
                subscription="s",
                reason="purged" if number == 5 else "queue-full",
            )
        )
    history.add(outcome(6, result="delivered", reason=None))

    async def listed(query: str) -> list[str]:
        answer = await client.get(f"/v1/discards?{query}")
        assert answer.status == 200
        return [one["identifier"] for one in (await answer.json())["discards"]]

    async with _client(fake_time, history=history) as client:
        assert await listed("") == ["i0", "i1", "i2", "i3", "i4", "i5"]
        assert await listed("limit=2") == ["i4", "i5"]
        assert await listed("destination=siem&reason=queue-full") == ["i1", "i3"]
        assert await listed("since=2026-11-22T09:00:04Z") == ["i4", "i5"]
        (last,) = (await (await client.get("/v1/discards?limit=1")).json())["discards"]
        for wrong in ("since=yesterday", "since=2026-11-22T09:00:04", "limit=0"):
            assert (await client.get(f"/v1/discards?{wrong}")).status == 400
    assert last["time"] == "2026-11-22T09:00:05Z"
    assert (last["destination"], last["subscription"], last["reason"]) == ("siem", "s", "purged")


@pytest.mark.parametrize(
    ("given", "limiting", "due"),
    [
        ({"depth": 3}, True, 10),
        ({"depth": 0}, False, None),
        ({"depth": 3, "suspended": True}, False, None),
        ({"depth": 3, "next_attempt_at": 5.0}, True, 10),
        ({"depth": 3, "next_attempt_at": 30.0}, False, 30),
    ],
)
async def test_a_limited_queue_says_whether_the_limit_delays_it(
    fake_time: FakeTime, given: dict[str, Any], limiting: bool, due: float | None
) -> None:
    now = fake_time.monotonic()
    pace = Pace(RateLimit(per_second=0.1, burst=1))
    pace.spend(now)
    if "next_attempt_at" in given:
        given = given | {"next_attempt_at": now + given["next_attempt_at"]}
    queue = StillQueue(name="siem", pace=pace, **given)
    queue.waiting.count = queue.depth
    async with _client(fake_time, queue, StillQueue(name="unlimited")) as client:
        answer = await (await client.get("/v1/queues")).json()
    shown, unlimited = answer["queues"]
    assert shown["rateLimit"] == {"perSecond": 0.1, "burst": 1, "limiting": limiting}
    assert unlimited["rateLimit"] is None
    expected = None if due is None else str(Moment(fake_time.time() + due))
    assert shown["nextAttemptTime"] == expected


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/outcomes"),
        ("GET", "/v1/outcomes?latest=true"),
        ("GET", "/v1/discards"),
        ("POST", "/v1/outcomes/redrive"),
    ],
)
async def test_a_history_that_cannot_be_read_is_no_defect(
    fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch, method: str, path: str
) -> None:
    def fail(*_: object, **__: object) -> Callable[[], NoReturn]:
        def read() -> NoReturn:
            raise OSError(errno.EIO, "Input/output error")

        return read

    history = History(clock=fake_time, timers=fake_time)
    for name in ("page", "last_page", "latest"):
        monkeypatch.setattr(history, name, fail)
    async with _client(fake_time, history=history) as client:
        answer = await client.request(method, path)
        assert (answer.status, answer.headers["Retry-After"]) == (503, "1")
        reason = (await answer.json())["reason"]
    assert reason == "the history cannot be read: Input/output error"
