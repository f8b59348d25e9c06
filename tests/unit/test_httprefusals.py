"""What a listener answers about a path, or by a method, that it does not serve."""

from collections.abc import AsyncIterator

import pytest
from aiohttp import web
from aiohttp.test_utils import TestClient, TestServer

from pillion_sidecar.http_errors import answer_the_rest


async def served(_request: web.Request) -> web.Response:
    return web.Response(text="served")


@pytest.fixture
async def intake() -> AsyncIterator[TestClient]:  # type: ignore[type-arg]
    """The client of one of two listeners."""
    app, telemetry = web.Application(), web.Application()
    app.router.add_post("/v1/indications", served)
    app.router.add_get("/v1/receipts/{id}", served)
    app.router.add_get("/v1/queues/{name}", served)
    telemetry.router.add_get("/metrics", served)
    answer_the_rest({"intake": app, "telemetry": telemetry})
    async with TestClient(TestServer(app)) as client:
        yield client


@pytest.mark.parametrize(
    ("path", "reason"),
    [
        ("/metrics", "serves no '/metrics'; ask the telemetry address (--telemetry)"),
        ("/v1/indication", "serves no '/v1/indication'; did you mean /v1/indications?"),
        ("/", "serves no '/'; use /v1/indications, /v1/queues/{name}, /v1/receipts/{id}"),
        ("/a%0Ab", "serves no '/a\\nb'; use /v1/indications, "),
        (f"/{'x' * 5000}", f"serves no '/{'x' * 39}'; use /v1/indications, "),
    ],
)
async def test_a_path_of_nobody_or_of_another_is_answered_with_where_to_ask(
    intake: TestClient,  # type: ignore[type-arg]
    path: str,
    reason: str,
) -> None:
    answer = await intake.post(path)
    assert answer.status == 404
    assert (await answer.json())["reason"].startswith(f"the intake address {reason}")


async def test_a_method_that_is_not_taken_is_answered_with_those_that_are(
    intake: TestClient,  # type: ignore[type-arg]
) -> None:
    answer = await intake.put("/v1/receipts/7")
    assert (answer.status, answer.headers["Allow"]) == (405, "GET, HEAD")
    reason = "'/v1/receipts/7' is not served by PUT; use GET, HEAD"
    assert await answer.json() == {"reason": reason}


async def test_what_is_served_is_served_as_before(
    intake: TestClient,  # type: ignore[type-arg]
) -> None:
    assert await (await intake.post("/v1/indications")).text() == "served"
    assert await (await intake.get("/v1/receipts/7")).text() == "served"
