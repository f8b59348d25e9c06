"""A redrive page by page, in the time that full queues take (S0.11)."""

import json
from typing import Any

import pytest

from pillion_cli.client import Answer, Refused, Unreachable
from pillion_cli.redrive import LONGEST_PAUSE, SHORTEST_PAUSE, Redrive, Waiting
from pillion_sidecar.testing import FakeTime
from support.scripted_client import ScriptedClient


def answer(redriven: int, **members: Any) -> Answer:
    document = {
        "redriven": redriven,
        "skipped": {},
        "newer": 0,
        "next": 10,
        "through": 40,
        "more": False,
        "history": "one",
        **members,
    }
    return Answer(200, json.dumps(document).encode())


def full(redriven: int, *, next_number: int, **members: Any) -> Answer:
    return answer(
        redriven,
        next=next_number,
        more=True,
        refusal="the queue of siem is full",
        retryAfter=2.0,
        **members,
    )


class Running:
    def __init__(self, time: FakeTime, *answers: Answer | Unreachable) -> None:
        self.client = ScriptedClient(*answers)
        self.slept: list[float] = []
        self.redrive = Redrive(
            self.client, {"destination": "siem"}, monotonic=time.monotonic, sleep=self._sleep
        )
        self.totals = self.redrive.totals
        self._time = time

    def _sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self._time.advance(seconds)

    def asked(self, name: str) -> list[object]:
        return [one.get(name) for one in self.client.asked]


def test_pages_follow_each_other_up_to_the_number_of_the_first(fake_time: FakeTime) -> None:
    running = Running(
        fake_time,
        answer(3, more=True, skipped={"redriven": 2}, newer=1),
        answer(4, next=40, skipped={"redriven": 1, "not-kept": 5}, newer=2),
    )
    running.redrive.run(timeout=60)
    totals = running.totals
    assert (totals.redriven, totals.newer, totals.refusal) == (7, 3, None)
    assert totals.skipped == {"redriven": 3, "not-kept": 5}
    assert running.asked("after") == [0, 10]
    assert running.asked("through") == [None, 40]
    assert running.asked("destination") == ["siem", "siem"]
    assert running.asked("dryRun") == [None, None]


def test_a_full_queue_is_waited_for_as_long_as_it_takes_some(fake_time: FakeTime) -> None:
    running = Running(
        fake_time,
        full(5, next_number=5),
        full(0, next_number=5),
        full(1, next_number=6),
        full(0, next_number=6),
        answer(2, next=40),
    )
    running.redrive.run(timeout=5)
    assert (running.totals.redriven, running.totals.refusal) == (8, None)
    assert running.asked("after") == [0, 5, 5, 6, 6]
    assert running.slept == [2.0] * 4


def test_what_is_refused_until_the_time_out_is_left(fake_time: FakeTime) -> None:
    running = Running(fake_time, full(5, next_number=5), *[full(0, next_number=5)] * 2)
    running.redrive.run(timeout=5)
    assert running.totals.redriven == 5
    assert running.totals.refusal == "the queue of siem is full"
    assert running.slept == [2.0, 2.0]


def test_no_time_means_one_request(fake_time: FakeTime) -> None:
    running = Running(fake_time, full(5, next_number=5))
    running.redrive.run(timeout=0)
    assert (running.totals.redriven, running.slept) == (5, [])


@pytest.mark.parametrize(
    ("told", "wait"),
    [(None, SHORTEST_PAUSE), (-3.0, SHORTEST_PAUSE), (4.5, 4.5), (9e9, LONGEST_PAUSE)],
)
def test_a_wait_is_bounded(fake_time: FakeTime, told: float | None, wait: float) -> None:
    refused = answer(0, next=0, more=True, refusal="full", retryAfter=told)
    running = Running(fake_time, refused, answer(1))
    running.redrive.run(timeout=60)
    assert running.slept == [wait]


def test_a_dry_run_counts_all_pages_and_the_redrive_covers_no_more(fake_time: FakeTime) -> None:
    running = Running(fake_time, answer(3, more=True, newer=1), answer(4, next=40), answer(7))
    found = running.redrive.count()
    assert (found.redriven, found.newer, running.totals.redriven) == (7, 1, 0)
    running.redrive.run(timeout=60)
    assert running.asked("dryRun") == ["true", "true", None]
    assert running.asked("through") == [None, 40, 40]
    assert running.totals.redriven == 7


@pytest.mark.parametrize(
    "second",
    [
        answer(1, history="two"),
        answer(1, next=10, more=True),
        Answer(200, b"{}"),
        Answer(200, b"hello"),
        Answer(409, b'{"reason": "another redrive is under way"}'),
        Unreachable("no answer"),
    ],
)
def test_what_was_redriven_before_a_failure_is_known(
    fake_time: FakeTime, second: Answer | Unreachable
) -> None:
    running = Running(fake_time, answer(3, more=True), second)
    with pytest.raises((Refused, Unreachable)):
        running.redrive.run(timeout=60)
    assert running.totals.redriven in (3, 4)


def test_who_waits_for_a_full_queue_is_told_how_long_it_takes(fake_time: FakeTime) -> None:
    told: list[Waiting] = []
    client = ScriptedClient(
        full(5, next_number=5),
        # A dry run, for how many are left.
        answer(60, next=40),
        *[full(2, next_number=9)] * 6,
        answer(0, next=40),
    )
    redrive = Redrive(
        client, {}, monotonic=fake_time.monotonic, sleep=fake_time.advance, tell=told.append
    )
    redrive.run(timeout=60)
    # Two in two seconds.
    assert [(one.redriven, one.left, one.seconds) for one in told] == [(5, 60, None), (15, 50, 50)]
    assert told[0].refusal == "the queue of siem is full"
    assert [one.get("dryRun") for one in client.asked].count("true") == 1
