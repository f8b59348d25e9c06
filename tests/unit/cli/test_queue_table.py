"""``pillion queues`` on terminals of several widths, and in a pipe."""

import re

import pytest
from rich.cells import cell_len

from pillion_cli.queue_states import Judged, judged, summary
from pillion_cli.queue_table import WIDE, details_lines, queue_lines
from pillion_cli.terminal import Output, Style
from pillion_sidecar.wire.queues import (
    HoldStatus,
    Moment,
    QueueDetails,
    RateLimitStatus,
    RetryStatus,
)
from support.queue_answers import NOW, failing, slow, told, waiting

LONG = "a-name-of-a-destination.with-many-letters.in-it.example.com"
LOSES_NOW = {"first_loss_due_time": Moment(NOW), "first_loss_reason": "queue-full"}
HOSTILE = "\x1b[2J\u202e\n\u65e5\u672c" * 30


def rows() -> list[Judged]:
    queues = (
        failing(
            "oncall",
            cause="refused",
            detail="connection refused by 127.0.0.1 port 18205",
            next_attempt_time=Moment(NOW + 12),
            first_loss_due_time=Moment(NOW + 40),
            first_loss_reason="attempts-exceeded",
            **waiting(85, depth=42_998, high_water=42_998),
        ),
        failing(LONG, detail=HOSTILE),
        slow("warehouse", full_time=Moment(NOW + 7200)),
        told("archive", depth=456, delivered=42_500),
    )
    return [judged(queue, now=NOW) for queue in queues]


def lines(width: int | None, *, wide: bool = False, colours: bool = False) -> list[str]:
    output = Output(width=width, height=None if width is None else 24, has_colours=colours)
    return list(queue_lines(rows(), output, is_wide=wide))


def test_eighty_columns_show_what_matters_and_the_cause_below() -> None:
    shown = lines(80)
    heads = ["name", "state", "depth", "oldest", "since", "in/s", "out/s"]
    assert re.split("  +", shown[0]) == heads
    assert re.split("  +", shown[1]) == ["oncall", "failing", "42.9 K / 1 M", "85 s", "60 s"]
    assert shown[2:4] == [
        "  first loss in 40 s: attempts-exceeded; next in 12 s; refused: connection",
        "  refused by 127.0.0.1 port 18205",
    ]
    assert shown[4].startswith("a-name-of-a-destination.")
    assert re.search(r"[^ ]…  failing ", shown[4])
    at = next(at for at, line in enumerate(shown) if line.startswith("warehouse"))
    assert re.split("  +", shown[at]) == [
        *("warehouse", "slow", "5 / 1 M", "25 s", "15 s", "512", "9.7")
    ]
    assert shown[at + 1] == "  full in 2 h; 512 a second arrive, 9.7 are delivered"
    assert len(shown) == at + 3


def test_a_long_cause_does_not_hide_what_was_lost() -> None:
    lost = {"last_discard_time": Moment(NOW - 90), "discarded": {"queue-full": 440}}
    output = Output(width=80, height=24, has_colours=False)
    queue = judged(failing("siem", detail="x" * 200, **lost), now=NOW)
    shown = list(queue_lines([queue], output, is_wide=False))
    assert shown[3].endswith("x…")
    assert shown[4:] == ["  440 discarded, the last 90 s ago"]


def test_the_line_of_an_older_deliverer_has_no_reason() -> None:
    queue = judged(failing("siem", first_loss_due_time=Moment(NOW + 40)), now=NOW)
    shown = list(queue_lines([queue], Output(width=80, height=24), is_wide=False))
    assert shown[2] == "  first loss in 40 s; HTTP 503"


def test_a_full_queue_that_discards_is_told_as_losing() -> None:
    lost = {"last_discard_time": Moment(NOW - 1), "discarded": {"queue-full": 440}}
    queue = judged(failing("siem", **LOSES_NOW, **lost), now=NOW)
    shown = list(queue_lines([queue], Output(width=80, height=24), is_wide=False))
    assert shown[2] == "  loses indications now: queue-full; HTTP 503"
    assert (
        summary([queue]) == "1 of 1 destination has trouble; siem loses indications now: queue-full"
    )


def test_a_full_queue_that_refuses_is_told_as_refusing() -> None:
    full = {"depth": 10, "capacity": 10, "full_time": Moment(NOW)}
    queue = judged(told(suspended=True, **full), now=NOW)
    shown = list(queue_lines([queue], Output(width=80, height=24), is_wide=False))
    assert shown[2] == "  full; publishers are refused; its resource has suspended: true"


def test_forty_columns_show_the_times_below() -> None:
    shown = lines(40)
    assert re.split("  +", shown[1]) == ["oncall", "failing", "42.9 K / 1 M"]
    assert shown[2] == "  for 60 s, next in 12 s, oldest 85 s"
    assert shown[3:5] == [
        "  first loss in 40 s: attempts-exceeded;",
        "  refused: connection refused by 127.0.…",
    ]
    assert shown[-1].split() == ["archive", "ok", "456", "/", "1", "M"]


@pytest.mark.parametrize("width", [2, 7, 20, 39, 40, 63, 64, 80, 100, WIDE - 1, WIDE, 300])
@pytest.mark.parametrize("colours", [False, True])
def test_no_line_is_longer_than_the_terminal(width: int, colours: bool) -> None:
    for line in lines(width, colours=colours):
        plain = re.sub(r"\x1b\[[0-9;]*m", "", line)
        assert cell_len(plain) <= width
        assert plain.isprintable()


def test_a_wide_terminal_has_the_cause_beside_the_rest() -> None:
    for shown in (lines(WIDE), lines(80, wide=True)):
        assert len(shown) == 5
        assert "first loss" in shown[0]
    assert "refused: connection refused by" in lines(WIDE)[1]
    assert lines(80, wide=True)[1].endswith("refused: connection refused by 127.0.0.1 port 18205")


def test_a_pipe_has_everything_in_one_line_each() -> None:
    shown = lines(None)
    assert len(shown) == 5
    assert len({len(re.split("  +", line)) for line in shown}) == 1
    assert re.split("  +", shown[1]) == [
        *("oncall", "failing", "42,998 / 1,000,000", "85 s", "60 s", "-", "-", "in 12 s"),
        *(
            "in 40 s: attempts-exceeded",
            "-",
            "0",
            "0",
            "0",
            "42,998",
            "refused: connection refused by 127.0.0.1 port 18205",
        ),
    ]
    assert LONG in shown[2]
    assert re.split("  +", shown[3])[5:10] == ["512.3", "9.7", "-", "-", "in 2 h"]
    assert re.split("  +", shown[4])[3:10] == ["-"] * 7


def test_a_colour_tells_trouble_from_none() -> None:
    shown = "\n".join(lines(80, colours=True))
    assert f"\x1b[{Style.ALARM}mfailing\x1b[0m" in shown
    assert f"\x1b[{Style.GREEN}mok\x1b[0m" in shown
    assert "\x1b" not in "".join(lines(80))


@pytest.mark.parametrize(
    ("attempts", "told"), [(None, "no limit of retries"), (0, "0 retries"), (1, "1 retry")]
)
def test_one_retry_is_no_plural(attempts: int | None, told: str) -> None:
    queue = QueueDetails(
        name="siem",
        depth=0,
        capacity=10,
        high_water=0,
        retry=RetryStatus(
            attempts=attempts,
            interval_seconds=30,
            backoff="Fixed",
            maximum_interval_seconds=30,
            jitter_percent=0,
        ),
        indication_lifetime_seconds=900,
    )
    one = judged(queue, now=NOW)
    shown = details_lines(one, queue, Output(), now=NOW, is_wide=False)
    assert f"retry: {told}, 30 s apart; lifetime 15 min" in shown


@pytest.mark.parametrize("width", [20, 40, 80])
def test_one_queue_has_no_line_that_is_too_long(width: int) -> None:
    queue = QueueDetails(
        name="siem",
        depth=0,
        capacity=10,
        high_water=0,
        hold=HoldStatus(cause="certificate", message=HOSTILE, since=Moment(NOW)),
        rate_limit=RateLimitStatus(per_second=0.5, burst=1000, limiting=True),
        retry=RetryStatus(
            attempts=None,
            interval_seconds=30,
            backoff="Exponential",
            maximum_interval_seconds=1800,
            jitter_percent=20,
        ),
        indication_lifetime_seconds=86_400,
    )
    one, output = judged(queue, now=NOW), Output(width=width, height=24)
    shown = list(details_lines(one, queue, output, now=NOW, is_wide=False))
    # Wide characters take two cells.
    assert max(map(len, shown)) <= width
    assert "retry: no limit of retries, 30 s apart, doubling to 30 min" in " ".join(shown)
