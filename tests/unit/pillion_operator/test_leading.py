"""What a leader does first: it gets the key of the deliverers' tokens."""

import asyncio
import base64
from typing import Any, cast

import pytest

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.leading import KEY_PATIENCE, KEY_RETRY, Leader
from pillion_operator.store import Key, Store
from pillion_operator.telemetry.metrics import Metrics
from support.operator_fakes import FakeApi, LoopClock, run_virtually
from support.operator_world import SETTINGS

UNAVAILABLE = ApiError(503, "ServiceUnavailable", "not now")


def leader_of(fake: FakeApi) -> Leader:
    return Leader(
        SETTINGS,
        api=cast("Api", fake),
        store=Store(),
        metrics=Metrics(version="0"),
        clock=LoopClock(),
    )


def refusing(fake: FakeApi, moments: list[float], *, until: float) -> None:
    """Have every request refused until a moment, and note when each was made."""

    def refuse(_verb: str, _key: Key) -> ApiError | None:
        moments.append(asyncio.get_running_loop().time())
        return UNAVAILABLE if moments[-1] - moments[0] < until else None

    fake.refuse = refuse


def test_the_key_is_waited_for() -> None:
    async def work() -> None:
        fake, moments = FakeApi(), list[float]()
        refusing(fake, moments, until=KEY_PATIENCE / 2)
        secret: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Secret",
            "metadata": {"namespace": SETTINGS.namespace, "name": SETTINGS.token_secret},
            "data": {"token-key": base64.b64encode(b"k" * 32).decode()},
        }
        fake.put(secret)
        assert await leader_of(fake)._token_key() == b"k" * 32
        assert len(moments) > 2

    run_virtually(work())


def test_a_leader_that_cannot_have_the_key_gives_up_after_a_while() -> None:
    async def work() -> None:
        fake, moments = FakeApi(), list[float]()
        refusing(fake, moments, until=float("inf"))
        with pytest.raises(ApiError, match="not now"):
            async with asyncio.timeout(10 * KEY_PATIENCE):
                await leader_of(fake)._token_key()
        waited = moments[-1] - moments[0]
        assert KEY_PATIENCE <= waited < KEY_PATIENCE + 2 * KEY_RETRY

    run_virtually(work())
