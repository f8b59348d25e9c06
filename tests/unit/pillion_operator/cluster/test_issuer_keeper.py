"""The keys of tokens are asked for again and again, and a failure forgets none."""

import json
from typing import Any, cast

import pytest
from prometheus_client import Counter

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.issuer import (
    CONFIGURATION_PATH,
    INTERVAL,
    KEYS_PATH,
    RETRY,
    SPREAD,
    IssuerKeeper,
)
from support.in_background import in_background
from support.operator_fakes import FakeApi
from support.operator_time import FakeClock


class Scene:
    """A keeper, and the API server that it asks."""

    def __init__(self, *, draw: float = 0.5) -> None:
        self.api = FakeApi()
        self.clock = FakeClock()
        self.changes = 0
        self.reads = Counter("reads", "", ("result",), registry=None)
        self.keeper = IssuerKeeper(
            api=cast("Api", self.api),
            clock=self.clock,
            draw=lambda: draw,
            changed=self._changed,
            reads=self.reads,
        )

    def _changed(self) -> None:
        self.changes += 1

    def known(self) -> Any:
        keys = self.keeper.token_keys("shop")
        return None if keys is None else [key["kid"] for key in json.loads(keys)["keys"]]

    def count(self, result: str) -> float:
        return self.reads.labels(result)._value.get()


async def test_nothing_is_known_before_the_first_answer() -> None:
    scene = Scene()
    assert scene.keeper.token_keys("shop") is None
    await scene.keeper.look()
    assert (scene.known(), scene.changes, scene.count("read")) == (["one"], 1, 1)


async def test_a_change_is_told_once_and_the_same_is_none() -> None:
    scene = Scene()
    await scene.keeper.look()
    await scene.keeper.look()
    assert scene.changes == 1
    scene.api.documents[KEYS_PATH]["keys"][0]["kid"] = "two"
    await scene.keeper.look()
    assert (scene.known(), scene.changes) == (["two"], 2)


@pytest.mark.parametrize("broken", [CONFIGURATION_PATH, KEYS_PATH])
async def test_a_failure_is_told_and_forgets_nothing(
    broken: str, caplog: pytest.LogCaptureFixture
) -> None:
    scene = Scene()
    await scene.keeper.look()
    scene.api.documents[broken] = {}
    await scene.keeper.look()
    scene.api.refuse = lambda _verb, _key: ApiError(403, "Forbidden", "no right to that path")
    await scene.keeper.look()
    assert (scene.known(), scene.changes, scene.count("failed")) == (["one"], 1, 2)
    assert "no right to that path; gateways go on" in caplog.text


@pytest.mark.parametrize("draw", [0.0, 1.0])
async def test_it_looks_every_few_minutes_and_sooner_after_a_failure(draw: float) -> None:
    scene = Scene(draw=draw)
    stretched = 1.0 + SPREAD * (1.0 if draw else -1.0)
    async with in_background(scene.keeper.run()):
        await scene.clock.until_sleeping()
        await scene.clock.advance(INTERVAL * stretched - 1)
        assert scene.count("read") == 0
        scene.api.refuse = lambda _verb, _key: ApiError(503, "Unavailable", "not now")
        await scene.clock.advance(1)
        assert scene.count("failed") == 1
        scene.api.refuse = lambda _verb, _key: None
        await scene.clock.advance(RETRY * stretched)
        assert scene.count("read") == 1
