"""What of a callback is decided before anything is sent. ``tests/integration/handlers`` sends."""

import asyncio

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.callbacks import HTTPCallbackPoster
from pillion_sidecar.testing import FakeTime


class NoResolver:
    async def resolve(self, host: str) -> list[str]:
        raise AssertionError(f"{host} was asked for")


async def test_a_url_that_cannot_be_sent_to_is_told_later_and_not_at_once(
    fake_time: FakeTime,
) -> None:
    poster = HTTPCallbackPoster(
        clock=fake_time, timers=fake_time, resolver=NoResolver(), address_policy=AddressPolicy()
    )
    told: list[str | None] = []
    answered = asyncio.Event()

    def done(why: str | None) -> None:
        told.append(why)
        answered.set()

    poster.post("http://user:secret@hooks.example/", b"{}", done)
    assert told == []
    await answered.wait()
    assert told[0] is not None
    assert "credentials" in told[0]
    poster.close()
