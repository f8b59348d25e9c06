"""The console of a cluster over HTTP: who gets what."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pillion_operator.console import answers, forwarding, server
from pillion_operator.console.access import MOST_RIGHTS, MOST_TOKENS, REVIEW_SECONDS, Access, Right
from pillion_operator.console.answers import ANSWER_SECONDS, MOST_ANSWERS, MOST_ROWS
from pillion_operator.console.forwarding import LARGEST_ANSWER, MOST_OF_NAMESPACE, TURN_SECONDS
from pillion_operator.console.server import REQUEST_SECONDS, Console
from pillion_operator.polling.client import DelivererClient
from pillion_operator.polling.reports import Unreachable
from pillion_sidecar.wire.queues import Moment
from support.cluster_console import (
    ClusterConsole,
    FakeDeliverers,
    FakeReviewer,
    names,
    rights,
)
from support.operator_time import FakeClock
from support.queue_answers import failing, told

LIST = "/v1/cluster"
SHOP = "/v1/deliverers/shop/web-0"


class Door:
    def __init__(self, cluster: ClusterConsole, clock: FakeClock, console: Console) -> None:
        self.clock = clock
        self.console = console
        self.reviewer = cluster.reviewer
        self.deliverers = cluster.deliverers
        self.client: Any = TestClient(TestServer(console.application()))

    async def ask(
        self, path: str = LIST, token: str | None = "admin", *, method: str = "GET", **headers: str
    ) -> tuple[int, Any]:
        if token is not None:
            headers["Authorization"] = f"Bearer {token}"
        async with self.client.request(method, path, headers=headers) as answer:
            assert "Set-Cookie" not in answer.headers
            if path.startswith("/v1/"):
                assert answer.headers["Cache-Control"] == "no-store"
            return answer.status, await answer.json(content_type=None)

    async def rows(self, token: str = "admin") -> list[str]:
        status, document = await self.ask(token=token)
        assert status == 200
        return names(document["queues"])


async def _door(cluster: ClusterConsole) -> AsyncIterator[Door]:
    clock = FakeClock()
    door = Door(cluster, clock, cluster.console(clock))
    async with door.client:
        yield door


@pytest_asyncio.fixture
async def door() -> AsyncIterator[Door]:
    cluster = ClusterConsole()
    cluster.deliverers.show("shop", "web-0", told("siem"), failing("mail", depth=3))
    cluster.deliverers.show("bank", "pay-0", told("siem", depth=9))
    async for one in _door(cluster):
        yield one


# ---------------------------------------------------------------------- access


async def test_the_page_is_for_everybody_and_data_for_nobody_without_a_token(door: Door) -> None:
    async with door.client.get("/console") as answer:
        assert answer.status == 200
        assert 'data-of="cluster"' in await answer.text()
    status, document = await door.ask(token=None)
    assert (status, "no token" in document["reason"]) == (401, True)
    assert door.reviewer.asked == []


async def test_a_token_that_the_api_server_does_not_know_is_refused(door: Door) -> None:
    for _ in range(2):
        status, document = await door.ask(token="guessed")
        assert (status, "does not accept" in document["reason"]) == (401, True)
    # It is not kept: strangers would push out the others.
    assert door.reviewer.asked == [("TokenReview", "guessed")] * 2


@pytest.mark.parametrize("given", ["Basic admin", "admin", "Bearer", "Bearer  "])
async def test_another_scheme_is_no_token(door: Door, given: str) -> None:
    assert (await door.ask(token=None, Authorization=given))[0] == 401


async def test_without_a_right_nothing_is_told(door: Door) -> None:
    door.reviewer.people["nobody"] = frozenset()
    status, document = await door.ask(token="nobody")
    assert status == 403
    assert "shop" not in json.dumps(document)
    assert "bank" not in json.dumps(document)


async def test_a_namespace_that_somebody_may_not_read_is_left_out(door: Door) -> None:
    door.reviewer.people["shopper"] = rights("shop", "states")
    status, document = await door.ask(token="shopper")
    assert (status, names(document["queues"])) == (200, ["shop/web-0/mail", "shop/web-0/siem"])
    assert (document["count"], document["deliverers"]) == (2, 1)


async def test_whether_a_deliverer_exists_is_not_told_without_the_right(door: Door) -> None:
    door.reviewer.people["shopper"] = rights("shop", "states", "outcomes")
    given = [
        await door.ask(f"/v1/deliverers/{namespace}/{pod}/v1/queues/siem", "shopper")
        for namespace, pod in (("bank", "pay-0"), ("bank", "none"), ("none", "none"))
    ]
    assert given[0] == given[1] == given[2]
    assert given[0][0] == 403
    status, document = await door.ask("/v1/deliverers/shop/none/v1/queues/siem", "shopper")
    assert (status, document["reason"][:12]) == (404, "no deliverer")


@pytest.mark.parametrize(
    ("method", "path", "right"),
    [
        ("GET", "v1/queues", "states"),
        ("GET", "v1/queues/siem", "outcomes"),
        ("GET", "v1/outcomes?indication=true", "outcomes"),
        ("POST", "v1/queues/siem/retry", "act"),
        ("POST", "v1/queues/siem/skip", "act"),
        ("POST", "v1/queues/siem/purge", "act"),
        ("POST", "v1/outcomes/redrive?dryRun=true", "act"),
    ],
)
async def test_each_endpoint_of_a_deliverer_needs_its_right(
    door: Door, method: str, path: str, right: str
) -> None:
    every = ("states", "outcomes", "act")
    door.reviewer.people["without"] = rights("shop", *(one for one in every if one != right))
    door.reviewer.people["with"] = rights("shop", right)
    where = f"/v1/deliverers/shop/web-0/{path}"
    assert (await door.ask(where, "without", method=method))[0] == 403
    # Nobody listens there.
    assert (await door.ask(where, "with", method=method))[0] == 502


async def test_an_api_server_that_is_away_is_no_refusal(door: Door) -> None:
    door.reviewer.away = True
    status, document = await door.ask()
    assert (status, "ask again" in document["reason"]) == (503, True)
    door.reviewer.away = False
    assert (await door.ask())[0] == 200


async def test_reviews_are_kept_for_a_short_time(door: Door) -> None:
    door.reviewer.people["shopper"] = rights("shop", "states")
    await door.rows("shopper")
    asked = list(door.reviewer.asked)
    assert asked == [
        ("TokenReview", "shopper"),
        ("SubjectAccessReview", ""),
        ("SubjectAccessReview", "bank"),
        ("SubjectAccessReview", "shop"),
    ]
    await door.rows("shopper")
    assert door.reviewer.asked == asked
    door.reviewer.people["shopper"] = rights("bank", "states")
    door.clock.skip(REVIEW_SECONDS)
    assert await door.rows("shopper") == ["bank/pay-0/siem"]


async def test_reviews_are_kept_in_bounded_number() -> None:
    reviewer = FakeReviewer()
    access = Access(reviewer, clock=FakeClock())
    for number in range(MOST_TOKENS + 5):
        reviewer.people[str(number)] = frozenset()
        assert await access.person(str(number)) is not None
    person = await access.person("0")
    assert person is not None
    for number in range(MOST_RIGHTS + 5):
        assert not await access.may(person, Right.STATES, f"n{number}")
    assert len(access._people._found) == MOST_TOKENS
    assert len(access._rights._found) == MOST_RIGHTS


@pytest.mark.parametrize(
    "headers",
    [
        {"Origin": "http://attacker.example"},
        {"Origin": "null"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ],
)
async def test_a_page_of_another_origin_is_refused(door: Door, headers: dict[str, str]) -> None:
    assert (await door.ask(**headers))[0] == 403
    assert door.reviewer.asked == []


async def test_its_own_page_and_a_command_are_served(door: Door) -> None:
    own = {"Origin": "https://console.example", "Host": "console.example"}
    assert (await door.ask(**own, **{"Sec-Fetch-Site": "same-origin"}))[0] == 200
    assert (await door.ask("/v1/cluster?all=yes"))[0] == 400


async def test_a_standby_says_so_and_closes_the_connection(door: Door) -> None:
    door.console.show(None)
    async with door.client.get(LIST, headers={"Authorization": "Bearer admin"}) as answer:
        assert (answer.status, answer.headers["Connection"]) == (503, "close")
        assert "does not lead" in (await answer.json())["reason"]
    assert (await door.ask("/v1/deliverers/shop/web-0/v1/queues"))[0] == 503


async def test_more_requests_than_can_be_answered_are_refused(
    door: Door, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server, "MOST_REQUESTS", 0)
    assert (await door.ask())[0] == 503


# ---------------------------------------------------------------------- rows


async def test_the_worst_come_first_and_the_silent_are_among_them(door: Door) -> None:
    lost = door.deliverers.show("shop", "web-1", told("siem"))
    door.deliverers.answers["shop", "default"].pop()
    silent = Unreachable(pod="web-1", reason="timed out", since=5.0, last=lost)
    new = Unreachable(pod="web-2", reason="connection refused", since=5.0)
    door.deliverers.add("shop", silent, new)
    _, document = await door.ask()
    assert names(document["queues"]) == [
        "shop/web-0/mail",
        "shop/web-1/siem",
        "shop/web-2/",
        "bank/pay-0/siem",
        "shop/web-0/siem",
    ]
    away = {"reason": "timed out", "since": "1970-01-01T00:00:05.000Z"}
    assert document["queues"][1]["unreachable"] == away
    assert document["queues"][0]["lastResult"] == {"result": "error", "detail": "HTTP 503"}


async def test_the_first_loss_is_passed_on_with_its_reason(door: Door) -> None:
    due = {"first_loss_due_time": Moment(90), "first_loss_reason": "queue-full"}
    door.deliverers.show("shop", "web-1", failing("siem", depth=50, **due))
    _, document = await door.ask()
    shown = document["queues"][0]
    assert shown["firstLossDueTime"] == "1970-01-01T00:01:30.000Z"
    assert shown["firstLossReason"] == "queue-full"


async def test_two_hundred_watchers_of_ten_thousand_destinations_make_one_answer(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cluster = ClusterConsole()
    for number in range(40):
        queues = [told(f"d-{one}", depth=one) for one in range(260)]
        cluster.deliverers.show(f"n-{number}", "pod-0", *queues)
    made, document = [], answers.document

    def counted(reports: Sequence[answers.Reports]) -> dict[str, Any]:
        made.append(1)
        return document(reports)

    monkeypatch.setattr(answers, "document", counted)
    async for door in _door(cluster):
        given = await asyncio.gather(*(door.ask() for _ in range(200)))
        assert {status for status, _ in given} == {200}
        found = given[0][1]
        assert (len(found["queues"]), found["count"]) == (MOST_ROWS, 40 * 260)
        assert len(made) == 1
        door.clock.skip(ANSWER_SECONDS)
        await door.ask()
        assert len(made) == 2


async def test_answers_are_kept_in_bounded_number_and_apart(door: Door) -> None:
    for number in range(MOST_ANSWERS + 3):
        namespace = f"n-{number}"
        door.deliverers.show(namespace, "pod-0", told())
        door.reviewer.people[namespace] = rights(namespace, "states")
        assert await door.rows(namespace) == [f"{namespace}/pod-0/siem"]
    assert len(door.console._answers._kept) == MOST_ANSWERS


async def test_an_answer_is_compressed_unless_the_client_cannot_read_it(door: Door) -> None:
    for accepted, encoding in (("gzip", "gzip"), ("identity", None)):
        headers = {"Authorization": "Bearer admin", "Accept-Encoding": accepted}
        async with door.client.get(LIST, headers=headers) as answer:
            assert answer.headers.get("Content-Encoding") == encoding
            assert len((await answer.json())["queues"]) == 3


# ---------------------------------------------------------------------- one deliverer


class _Deliverer:
    """Answers as a test says."""

    def __init__(self) -> None:
        self.answer: Callable[[], web.Response] = lambda: web.json_response({"name": "siem"})
        self.asked: list[tuple[str, str, str]] = []
        self._asked = asyncio.Condition()
        self._hangs = False
        self._goes_on = asyncio.Event()

    async def handle(self, request: web.Request) -> web.Response:
        given = request.headers["Authorization"]
        hangs = self._hangs
        async with self._asked:
            self.asked.append((request.method, request.rel_url.raw_path_qs, given))
            self._asked.notify_all()
        if hangs:
            await self._goes_on.wait()
        return self.answer()

    def hang(self) -> None:
        """Requests from now on wait until :meth:`go_on`."""
        self._hangs = True

    def answers(self) -> None:
        """Those from now on do not wait."""
        self._hangs = False

    def go_on(self) -> None:
        self._goes_on.set()

    async def until_asked(self, number: int) -> None:
        async with self._asked:
            await self._asked.wait_for(lambda: len(self.asked) >= number)


@pytest_asyncio.fixture
async def deliverer() -> AsyncIterator[tuple[_Deliverer, Door]]:
    scripted, app = _Deliverer(), web.Application()
    app.router.add_route("*", "/{rest:.*}", scripted.handle)
    async with TestServer(app) as listening:
        cluster = ClusterConsole(port=listening.port or 0)
        cluster.deliverers = FakeDeliverers(address=listening.host)
        cluster.deliverers.show("shop", "web-0", told())
        async for door in _door(cluster):
            yield scripted, door


async def test_a_request_is_passed_on_with_the_operators_token(
    deliverer: tuple[_Deliverer, Door],
) -> None:
    scripted, door = deliverer
    base = "/v1/deliverers/shop/web-0"
    assert await door.ask(f"{base}/v1/queues/a%2F..%2Fb") == (200, {"name": "siem"})
    assert (await door.ask(f"{base}/v1/outcomes?destination=a%26b&after=0"))[0] == 200
    await door.ask(f"{base}/v1/queues/siem/retry", method="POST")
    token = "Bearer the operator's"
    assert scripted.asked == [
        ("GET", "/v1/queues/a%2F..%2Fb", token),
        ("GET", "/v1/outcomes?destination=a%26b&after=0", token),
        ("POST", "/v1/queues/siem/retry", token),
    ]


@pytest.mark.parametrize(
    "path", ["v1/outcomes?wait=60", "v1/queues/siem?x=1", "v1/queues?limit=1&limit=2"]
)
async def test_what_the_page_does_not_ask_for_is_refused(
    deliverer: tuple[_Deliverer, Door], path: str
) -> None:
    scripted, door = deliverer
    assert (await door.ask(f"/v1/deliverers/shop/web-0/{path}"))[0] == 400
    for other in ("drain", "metrics", "v1/replays", "v1/queues/../../drain"):
        async with door.client.get(f"/v1/deliverers/shop/web-0/{other}") as answer:
            assert answer.status == 404
    assert scripted.asked == []


@pytest.mark.parametrize(
    ("given", "status"),
    [
        ({"status": 401, "text": "unauthorized"}, 502),
        ({"status": 302, "headers": {"Location": "http://elsewhere/"}}, 502),
        ({"status": 200, "text": "<script>", "content_type": "text/html"}, 502),
        ({"status": 404, "text": '{"reason": "none"}', "content_type": "application/json"}, 404),
        ({"status": 503, "text": "busy"}, 503),
        ({"status": 200, "body": b" " * (LARGEST_ANSWER + 1)}, 502),
    ],
)
async def test_what_a_deliverer_answers_is_not_trusted(
    deliverer: tuple[_Deliverer, Door], given: dict[str, Any], status: int
) -> None:
    scripted, door = deliverer
    scripted.answer = lambda: web.Response(**given)
    found, document = await door.ask("/v1/deliverers/shop/web-0/v1/queues/siem")
    assert (found, bool(document["reason"])) == (status, True)


async def test_of_its_headers_those_of_the_history_are_passed(
    deliverer: tuple[_Deliverer, Door],
) -> None:
    scripted, door = deliverer
    told = {"Pillion-More": "true", "Pillion-History": "a;b", "Set-Cookie": "x=y"}
    scripted.answer = lambda: web.json_response({}, headers=told)
    headers = {"Authorization": "Bearer admin"}
    url = "/v1/deliverers/shop/web-0/v1/outcomes"
    async with door.client.get(url, headers=headers) as answer:
        named = ("Pillion-More", "Pillion-History", "Set-Cookie")
        assert [answer.headers.get(name) for name in named] == ["true", None, None]


async def test_who_pressed_a_button_is_logged(
    deliverer: tuple[_Deliverer, Door], caplog: pytest.LogCaptureFixture
) -> None:
    _, door = deliverer
    with caplog.at_level("INFO", logger="pillion.operator"):
        await door.ask("/v1/deliverers/shop/web-0/v1/queues/siem/purge", method="POST")
        await door.ask("/v1/deliverers/shop/web-0/v1/outcomes/redrive?dryRun=true", method="POST")
    (record,) = [one for one in caplog.records if vars(one).get("event") == "console-action"]
    found = vars(record)
    assert (found["user"], found["action"], found["destination"]) == ("admin", "purge", "siem")


async def test_an_action_that_ends_without_an_answer_is_logged(
    deliverer: tuple[_Deliverer, Door],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(forwarding, "ACT_SECONDS", 2 * REQUEST_SECONDS)
    scripted, door = deliverer
    scripted.hang()
    with caplog.at_level("INFO", logger="pillion.operator"):
        asking = asyncio.create_task(door.ask(f"{SHOP}/v1/queues/siem/purge", method="POST"))
        await scripted.until_asked(1)
        await door.clock.advance(REQUEST_SECONDS)
        assert (await asking)[0] == 503
    (record,) = [one for one in caplog.records if vars(one).get("event") == "console-action"]
    assert record.getMessage().endswith("shop/web-0 for purge: no answer in time")


async def test_a_slow_deliverer_costs_other_namespaces_nothing(
    deliverer: tuple[_Deliverer, Door],
) -> None:
    scripted, door = deliverer
    door.deliverers.show("bank", "pay-0", told())
    scripted.hang()
    path = f"{SHOP}/v1/queues"
    slow = [asyncio.create_task(door.ask(path)) for _ in range(MOST_OF_NAMESPACE)]
    await scripted.until_asked(MOST_OF_NAMESPACE)
    waiting = asyncio.create_task(door.ask(path))
    # Each has two limits of time at this point.
    await door.clock.until_sleeping(2 * (MOST_OF_NAMESPACE + 1))
    scripted.answers()
    assert (await door.ask("/v1/deliverers/bank/pay-0/v1/queues"))[0] == 200
    await door.clock.advance(TURN_SECONDS)
    status, document = await waiting
    assert (status, document["reason"]) == (
        503,
        "other requests to deliverers wait for their answers; this one was not sent",
    )
    assert len(scripted.asked) == MOST_OF_NAMESPACE + 1
    scripted.go_on()
    assert [status for status, _ in await asyncio.gather(*slow)] == [200] * MOST_OF_NAMESPACE
    # Their turns are free again.
    assert (await door.ask(path))[0] == 200


async def test_a_deliverer_says_why_it_is_busy(deliverer: tuple[_Deliverer, Door]) -> None:
    scripted, door = deliverer
    for body, reason in (
        ({"reason": "the history cannot be read: x\ny" + "z" * 999}, "the history cannot be read"),
        ([], "the deliverer is busy"),
        ({"reason": 7}, "the deliverer is busy"),
    ):
        scripted.answer = lambda body=body: web.json_response(body, status=503)  # type: ignore[misc]
        status, document = await door.ask(f"{SHOP}/v1/outcomes")
        assert (status, document["reason"][: len(reason)]) == (503, reason)
        assert len(document["reason"]) <= 300
        assert document["reason"].isprintable()


async def test_its_cleanup_closes_the_client() -> None:
    client = DelivererClient(clock=FakeClock())
    app = Console(FakeReviewer(), clock=FakeClock(), client=client).application()
    app.freeze()
    await app.cleanup()
    assert client._session.closed
