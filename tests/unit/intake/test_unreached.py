"""What is accepted and reaches no listener is said to its publisher, and logged by the minute."""

import logging
from typing import Any

import pytest

from pillion_sidecar.indication import Refusal, Unreached
from pillion_sidecar.intake.notices import SECONDS, UnreachedIndications
from pillion_sidecar.testing import FakeTime
from support.intake import Door, alert, lines, target

REASONS = list(Unreached)


def reaching_nobody(door: Door, reason: Unreached) -> None:
    if reason is Unreached.UNROUTED:
        door.routes.targets = ()
        return
    door.routes.targets = (target("a", "one"), target("b", "two"))
    (door.queues.ended if reason is Unreached.ENDED else door.queues.suppressed).update(
        ("one", "two")
    )


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("ack", ["accepted", "durable", "delivered"])
async def test_every_answer_says_what_reaches_no_listener(reason: Unreached, ack: str) -> None:
    async with Door().open() as door:
        door.context.durability = door.context.durability.DISK
        reaching_nobody(door, reason)
        status, document, _ = await door.post(
            lines(alert("a"), alert("b")), path=f"/v1/indications?source=s&ack={ack}"
        )
        assert status == 200
        assert (document["accepted"], document[reason.value]) == (2, 2)
        if ack == "delivered":
            assert (document["delivered"], document["pending"]) == (0, 0)
        assert {other.value for other in REASONS} & document.keys() == {reason.value}


@pytest.mark.parametrize("reason", REASONS)
async def test_a_flush_says_what_reached_no_listener(reason: Unreached) -> None:
    async with Door().open() as door:
        reaching_nobody(door, reason)
        await door.post(
            lines(alert("a")),
            path="/v1/indications?source=s",
            headers={"Pillion-Publisher": "p"},
        )
        _, document, _ = await door.post(b"", path="/v1/flush?publisher=p&timeout=1")
        assert document["complete"] is True
        assert document[reason.value] == 1


async def test_what_reaches_one_of_two_listeners_is_not_unreached() -> None:
    async with Door().open() as door:
        door.routes.targets = (target("a", "one"), target("b", "two"))
        door.queues.ended.add("one")
        _, document, _ = await door.post(lines(alert("a")))
        assert document == {"accepted": 1, "duplicate": 0, "refused": []}
        assert not door.context.unreached.total.total()


async def test_what_is_refused_has_not_been_delivered_to_nobody() -> None:
    async with Door().open() as door:
        door.routes.targets = ()
        door.queues.refusal = Refusal(1.0, "the journal is full")
        status, document, _ = await door.post(
            lines(alert("a")), path="/v1/indications?source=s&ack=delivered&timeout=0"
        )
        assert status == 429
        assert document["delivered"] == 0
        assert "unrouted" not in document


def records(caplog: pytest.LogCaptureFixture) -> list[Any]:
    return [one for one in caplog.records if one.event == "indications-unreached"]


def test_the_first_is_logged_at_once_and_the_others_by_the_minute(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    unreached = UnreachedIndications(timers=fake_time)
    for number in range(10_000):
        unreached.note(Unreached.UNROUTED, f"ACME_{number}")
    unreached.note(Unreached.ENDED, "CIM_AlertIndication")
    assert [one.unrouted for one in records(caplog)] == [1]
    fake_time.advance(SECONDS)
    last = records(caplog)[-1]
    assert (last.unrouted, last.ended, last.suppressed) == (9_999, 1, 0)
    assert last.getMessage() == (
        "indications reached no listener: 9999 unrouted (ACME_1, ACME_2, ACME_3);"
        " 1 ended (CIM_AlertIndication)"
    )
    fake_time.advance(10 * SECONDS)
    assert len(records(caplog)) == 2
    assert unreached.total[Unreached.UNROUTED] == 10_000


def test_what_was_not_logged_yet_is_logged_at_the_end(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    unreached = UnreachedIndications(timers=fake_time)
    for _ in range(3):
        unreached.note(Unreached.SUPPRESSED, "X" * 1000)
    unreached.close()
    assert [(one.levelname, one.suppressed) for one in records(caplog)] == [
        ("INFO", 1),
        ("INFO", 2),
    ]
    assert all(len(one.getMessage()) < 200 for one in records(caplog))
    fake_time.advance(10 * SECONDS)
    assert len(records(caplog)) == 2
