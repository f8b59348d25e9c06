"""Lines of the log whose number others decide."""

import asyncio.log
import logging
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.injection import webhook
from pillion_sidecar import http_server
from pillion_sidecar.telemetry.logs import (
    FROM_OUTSIDE,
    MOST_KINDS,
    MOST_LINES,
    OTHERS,
    SECONDS,
    Kind,
    LeftOut,
    LineBound,
    kind_of,
)

BAD = Kind("pillion.http", "Error handling request from %s", "BadHttpMessage")
FAILED = Kind("aiohttp.server", "Unhandled exception", "ValueError")


@pytest.fixture
def bound() -> LineBound:
    return LineBound()


def test_a_few_of_each_kind_are_written_and_the_rest_is_counted(bound: LineBound) -> None:
    assert [bound.admits(BAD, now=0.0) for _ in range(MOST_LINES + 2)] == [
        *[True] * MOST_LINES,
        False,
        False,
    ]
    assert bound.admits(FAILED, now=1.0)
    assert bound.over(now=SECONDS - 0.1) == []
    assert bound.over(now=SECONDS) == [LeftOut(BAD, 2)]
    # Told once, and the next minute is a new one.
    assert bound.over(now=SECONDS) == []
    assert bound.admits(BAD, now=SECONDS)


def test_of_what_was_written_whole_nothing_is_told(bound: LineBound) -> None:
    for _ in range(MOST_LINES):
        bound.admits(BAD, now=0.0)
    assert bound.over(now=SECONDS) == []
    assert bound.finish() == []


def test_the_end_tells_what_was_left_out_until_then(bound: LineBound) -> None:
    for _ in range(MOST_LINES + 1):
        bound.admits(BAD, now=0.0)
        bound.admits(FAILED, now=0.0)
    assert bound.finish() == [LeftOut(BAD, 1), LeftOut(FAILED, 1)]
    assert bound.finish() == []


def test_kinds_are_bounded_too(bound: LineBound) -> None:
    kinds = [Kind("pillion.http", str(number), None) for number in range(MOST_KINDS + 100)]
    written = [kind for kind in kinds if bound.admits(kind, now=0.0)]
    assert written == kinds[: MOST_KINDS + MOST_LINES]
    assert bound.finish() == [LeftOut(OTHERS, 100 - MOST_LINES)]


@given(
    steps=st.lists(st.tuples(st.sampled_from([BAD, FAILED]), st.floats(0.0, SECONDS)), max_size=200)
)
def test_every_line_is_written_or_counted_and_no_minute_has_more(
    steps: list[tuple[Kind, float]],
) -> None:
    bound, now = LineBound(), 0.0
    written: list[tuple[Kind, float]] = []
    left_out = 0
    for kind, wait in steps:
        now += wait
        left_out += sum(one.lines for one in bound.over(now=now))
        if bound.admits(kind, now=now):
            written.append((kind, now))
    left_out += sum(one.lines for one in bound.finish())
    assert len(written) + left_out == len(steps)
    for kind in (BAD, FAILED):
        times = [at for one, at in written if one == kind]
        # Two of its minutes may meet within one of the clock's.
        assert all(
            later - first >= SECONDS
            for first, later in zip(times, times[2 * MOST_LINES :], strict=False)
        )


def record(name: str, level: int = logging.ERROR, *, fails: bool = False) -> logging.LogRecord:
    exc_info = None
    if fails:
        try:
            raise ValueError("SECRET")
        except ValueError:
            exc_info = sys.exc_info()
    return logging.LogRecord(name, level, "", 1, "from %s", ("192.0.2.1",), exc_info)


def test_a_kind_is_told_by_what_is_said_and_of_which_error_and_not_by_whom() -> None:
    assert kind_of(record("pillion.http")) == Kind("pillion.http", "from %s", None)
    assert kind_of(record("aiohttp.server", fails=True)) == Kind(
        "aiohttp.server", "from %s", "ValueError"
    )


def test_those_who_speak_of_requests_are_known_by_their_names() -> None:
    names = {http_server.logger.name, webhook.logger.name, asyncio.log.logger.name}
    assert names < FROM_OUTSIDE


def test_what_asyncio_says_of_one_transport_and_of_another_are_two_kinds() -> None:
    # As its handler of exceptions logs them: all in the message, and nothing in the arguments.
    kinds = {
        kind_of(logging.LogRecord("asyncio", logging.ERROR, "", 1, message, (), None))
        for message in ("Fatal error\ntransport: <fd=7>", "Fatal error\ntransport: <fd=8>")
    }
    assert None not in kinds
    assert len(kinds) == 2


@pytest.mark.parametrize("name", ["pillion.delivery", "pillion.operator", "aiohttp.access"])
def test_what_is_said_of_our_own_is_not_bounded(name: str) -> None:
    assert kind_of(record(name)) is None


def test_what_is_written_on_demand_alone_is_not_bounded() -> None:
    assert kind_of(record("aiohttp.server", logging.DEBUG)) is None
