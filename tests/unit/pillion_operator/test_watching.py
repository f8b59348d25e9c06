"""How kopf is told to watch."""

import asyncio
from itertools import islice
from typing import Any

import kopf
import pytest

from pillion_operator.cluster.types import Object
from pillion_operator.watching import FIRST_RETRIES, LATER_RETRIES, OnEvent, watch, watch_settings


class Kopf:
    """Stands for ``kopf.operator``: brings one object to the first handler, and swallows what that
    raises, as kopf does."""

    def __init__(self) -> None:
        self.stopped = False

    async def operator(
        self, *, registry: kopf.OperatorRegistry, stop_flag: asyncio.Event, **_: Any
    ) -> None:
        handler: Any = next(iter(registry._watching.get_all_handlers()))
        try:
            await handler.fn(event={"type": "ADDED", "object": {"kind": "Secret"}})
        except Exception:  # noqa: BLE001
            return
        self.stopped = stop_flag.is_set()


async def watched(on_event: OnEvent, stop: asyncio.Event) -> None:
    unused: Any = None
    await watch(
        on_event, lambda _plural: None, namespaces=(), configuration=lambda: unused, stop=stop
    )


async def test_an_event_that_cannot_be_taken_in_ends_the_watching(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def refuse(_kind: str | None, body: Object) -> None:
        raise KeyError(body["kind"])

    fake, stop = Kopf(), asyncio.Event()
    monkeypatch.setattr(kopf, "operator", fake.operator)

    with pytest.raises(KeyError, match="Secret"):
        await watched(refuse, stop)

    assert fake.stopped
    assert stop.is_set()


async def test_an_event_that_is_taken_in_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[str | None, Object]] = []
    fake, stop = Kopf(), asyncio.Event()
    monkeypatch.setattr(kopf, "operator", fake.operator)

    await watched(lambda kind, body: seen.append((kind, body)), stop)

    assert seen == [("ADDED", {"kind": "Secret"})]
    assert not stop.is_set()


def test_a_watch_is_never_given_up_and_soon_tried_again_however_long_the_outage() -> None:
    backoffs = watch_settings().networking.error_backoffs
    assert not isinstance(backoffs, float | int)
    for _ in range(2):
        # Each request begins anew.
        waits = list(islice(backoffs, 1_000))
        assert waits[: len(FIRST_RETRIES)] == list(FIRST_RETRIES)
        assert max(waits) == waits[-1] == LATER_RETRIES
        assert len(waits) == 1_000
