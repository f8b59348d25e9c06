"""Publishers that are held back are told of in the log, by the minute."""

import logging

import pytest

from pillion_sidecar.indication import Refusal
from pillion_sidecar.intake.notices import MOST_REASONS, SECONDS, HeldBack
from pillion_sidecar.testing import FakeTime
from support.intake import Door, alert, lines

NEARLY_FULL = "the journal is nearly full, and destination siem holds most of it"


def told(caplog: pytest.LogCaptureFixture) -> list[tuple[str, int]]:
    return [
        (record.getMessage(), record.lines)  # type: ignore[attr-defined]
        for record in caplog.records
        if getattr(record, "event", "") == "lines-held-back"
    ]


async def test_the_first_refusal_is_logged_at_once_and_the_others_by_the_minute(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)
    async with Door().open() as door:
        door.queues.refusal = Refusal(1.0, NEARLY_FULL, "siem")
        for name in "abc":
            status, _, _ = await door.post(lines(alert(name)))
            assert status == 429
        assert told(caplog) == [(f"lines were refused for now: 1 ({NEARLY_FULL})", 1)]
        door.time.advance(SECONDS)
        assert told(caplog)[1:] == [(f"lines were refused for now: 2 ({NEARLY_FULL})", 2)]
        door.time.advance(SECONDS)
        assert len(told(caplog)) == 2


def test_the_reasons_of_a_line_are_bounded(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    held_back = HeldBack(timers=fake_time)
    for number in range(MOST_REASONS + 3):
        held_back.note(f"reason {number}")
    held_back.close()
    (_, (message, lines_held)) = told(caplog)
    assert message.endswith("; 2 for other reasons")
    assert lines_held == MOST_REASONS + 2
