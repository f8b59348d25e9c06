"""What a gateway takes of the histories of ending sidecars (S0.11, S0.14)."""

import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from pillion_sidecar.history.handed_over import CONTENT_TYPE, HandedOver, Part, encode_part
from pillion_sidecar.history.outcome import Outcome, OutcomeQuery
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history.taking_over import TakenHistories
from support.intake import Door, alert
from support.outcomes import outcome

PATH = "/v1/relay/outcomes"
BODY = json.dumps(alert("i1")).encode()


class Gateway(Door):
    def __init__(self) -> None:
        super().__init__()
        self.routes.takes_relayed = True
        self.history = History(clock=self.time, timers=self.time)
        self.context.histories = TakenHistories(history=self.history, clock=self.time)

    async def give(self, *outcomes: Outcome, content_type: str = CONTENT_TYPE) -> tuple[int, Any]:
        handed_over = [HandedOver(at, one) for at, one in enumerate(outcomes, 1)]
        part = Part(pod="p", history="h", discards=True, outcomes=handed_over)
        status, document, _ = await self.post(
            encode_part(part), path=PATH, content_type=content_type
        )
        return status, document

    @property
    def kept(self) -> list[Outcome]:
        page = self.history.page(OutcomeQuery(), after=0, limit=99)()
        return [one.outcome for one in page.found]


@pytest.fixture
async def gateway() -> AsyncIterator[Gateway]:
    made = Gateway()
    async with made.open():
        yield made


async def test_a_part_is_taken_once(gateway: Gateway) -> None:
    lost = outcome(1, body=BODY)
    assert await gateway.give(lost) == (200, {"taken": 1, "known": 0, "last": 1})
    assert await gateway.give(lost) == (200, {"taken": 0, "known": 1, "last": 1})
    (kept,) = gateway.kept
    assert json.loads(kept.body or b"") == alert("i1")


@pytest.mark.parametrize(
    "fields",
    [
        {"body": b"{}"},
        {"body": BODY + b"\n" + BODY},
        {"body": BODY[:-1]},
        {"identifier": "another"},
        {"identifier": None},
        {"source": "a\x00b"},
        {"group": "\ufffe"},
        {"languages": ("de\r\nX: y",)},
        {"languages": ("de",) * 17},
    ],
)
async def test_what_no_line_could_say_is_kept_without_its_indication(
    gateway: Gateway, fields: dict[str, Any]
) -> None:
    status, _ = await gateway.give(outcome(1, **{"body": BODY, **fields}))
    assert status == 200
    assert [one.body for one in gateway.kept] == [None]


async def test_a_wrong_part_is_refused_with_its_reason(gateway: Gateway) -> None:
    status, answer = await gateway.give(outcome(1, time=-1.0))
    assert (status, answer["reason"]) == (400, "a time is not between 1970 and 9999")
    status, answer, _ = await gateway.post(b"\xc1", path=PATH, content_type=CONTENT_TYPE)
    assert status == 400
    status, _ = await gateway.give(outcome(1), content_type="application/json")
    assert status == 415
    assert gateway.kept == []


async def test_only_a_gateway_takes_histories(gateway: Gateway) -> None:
    gateway.routes.takes_relayed = False
    status, _ = await gateway.give(outcome(1))
    assert (status, gateway.kept) == (404, [])
