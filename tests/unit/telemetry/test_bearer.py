"""The queues for the operator: for the bearer of its token, and for nobody else."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
import pytest_asyncio
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.history.recorder import History
from pillion_sidecar.telemetry.administration import (
    MOST_TOKEN_BYTES,
    Administration,
    AdministrationRoutes,
    OperatorGuard,
    add_operator_route,
)
from pillion_sidecar.testing import FakeTime
from support.queues import StillDelivery, StillQueue, redriver_of

TOKEN = "0c5f" * 16


class Door:
    """The route, its token's file, and how many were refused."""

    def __init__(self, client: TestClient, file: Path) -> None:  # type: ignore[type-arg]
        self.client = client
        self.file = file
        self.refused = 0

    async def status(
        self, authorization: str | None, method: str = "GET", path: str = "/v1/queues"
    ) -> int:
        headers = {} if authorization is None else {"Authorization": authorization}
        async with self.client.request(method, path, headers=headers) as answer:
            if answer.status == 401:
                assert answer.headers["WWW-Authenticate"] == "Bearer"
                assert await answer.text() == "unauthorized\n"
            return answer.status


@pytest_asyncio.fixture(params=[False])
async def door(
    request: pytest.FixtureRequest, fake_time: FakeTime, tmp_path: Path
) -> AsyncIterator[Door]:
    async def drain(seconds: float) -> int:
        raise NotImplementedError

    app = web.Application()
    made = Door(TestClient(TestServer(app)), tmp_path / "token")

    def refused() -> None:
        made.refused += 1

    history, delivery = History(clock=fake_time, timers=fake_time), StillDelivery(StillQueue())
    administration = Administration(
        delivery=delivery,
        clock=fake_time,
        timers=fake_time,
        revision=lambda: "r7",
        durability=lambda: Durability.MEMORY,
        drain=drain,
        history=history,
        redriver=redriver_of(history, delivery, fake_time),
    )
    add_operator_route(
        app,
        AdministrationRoutes(administration),
        guard=OperatorGuard.of_file(tmp_path / "token", refused=refused),
        console=request.param,
    )
    async with made.client:
        yield made


async def test_the_bearer_of_the_token_reads_the_queues(door: Door) -> None:
    door.file.write_text(f"{TOKEN}\n")
    assert await door.status(f"Bearer {TOKEN}") == 200
    assert await door.status(f"bearer  {TOKEN} ") == 200
    assert door.refused == 0


@pytest.mark.parametrize(
    "given",
    [
        None,
        "",
        "Bearer",
        "Bearer ",
        "Bearer wrong",
        f"Bearer {TOKEN[:-1]}",
        f"Bearer {TOKEN}0",
        f"Basic {TOKEN}",
        TOKEN,
        "Bearer é",
    ],
)
async def test_whoever_has_another_token_or_none_is_refused_and_counted(
    door: Door, given: str | None
) -> None:
    door.file.write_text(TOKEN)
    assert await door.status(given) == 401
    assert door.refused == 1


@pytest.mark.parametrize("content", [None, b"", b" \n", b"x" * (MOST_TOKEN_BYTES + 1)])
async def test_without_a_token_nobody_comes_in(door: Door, content: bytes | None) -> None:
    if content is not None:
        door.file.write_bytes(content)
    for given in ("Bearer", "Bearer ", "Bearer x" + "x" * MOST_TOKEN_BYTES, f"Bearer {TOKEN}"):
        assert await door.status(given) == 401
    assert door.refused == 4


async def test_a_token_that_changes_is_the_one_that_counts(door: Door) -> None:
    door.file.write_text("one")
    assert await door.status("Bearer one") == 200
    door.file.write_text("two")
    assert await door.status("Bearer one") == 401
    assert await door.status("Bearer two") == 200


async def test_nothing_can_be_changed_there(door: Door) -> None:
    door.file.write_text(TOKEN)
    for method in ("POST", "DELETE", "PUT"):
        assert await door.status(f"Bearer {TOKEN}", method) == 405


CONSOLE = [
    ("GET", "/v1/queues/siem"),
    ("GET", "/v1/outcomes"),
    ("POST", "/v1/queues/siem/retry"),
    ("POST", "/v1/queues/siem/skip"),
    ("POST", "/v1/queues/siem/purge"),
    ("POST", "/v1/outcomes/redrive"),
]


@pytest.mark.parametrize(("method", "path"), CONSOLE)
async def test_without_a_console_the_token_opens_the_queues_alone(
    door: Door, method: str, path: str
) -> None:
    door.file.write_text(TOKEN)
    assert await door.status(f"Bearer {TOKEN}", method, path) == 404


@pytest.mark.parametrize("door", [True], indirect=True)
@pytest.mark.parametrize(("method", "path"), CONSOLE)
async def test_what_a_console_asks_for_needs_the_token(door: Door, method: str, path: str) -> None:
    door.file.write_text(TOKEN)
    assert await door.status(None, method, path) == 401
    assert await door.status("Bearer wrong", method, path) == 401
    assert door.refused == 2
    assert await door.status(f"Bearer {TOKEN}", method, path) != 401
