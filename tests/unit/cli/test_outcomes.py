"""Outcomes page by page, and as they come, over restarts and new histories (S0.11)."""

import json
from datetime import UTC, datetime, timedelta

import pytest
from rich.cells import cell_len

from pillion_cli.arguments import moment
from pillion_cli.client import Answer, Refused, Unreachable
from pillion_cli.exits import Exit
from pillion_cli.main import main
from pillion_cli.outcomes import PAUSE, WAIT, Follower, Page, last_number, pages
from pillion_cli.tables import Rows
from pillion_cli.terminal import Cell, Output, Style
from support.scripted_client import ScriptedClient, page

GONE = Unreachable("no answer")


def numbers(found: list[Page]) -> list[int]:
    return [json.loads(line)["number"] for one in found for line in one.lines]


# ---------------------------------------------------------------------- pages


def test_pages_are_asked_for_until_there_is_no_more() -> None:
    client = ScriptedClient(page(1, 2, more=True), page(through=9, more=True), page(12))
    found = list(pages(client, {"result": "discarded"}, after=0, limit=None))
    assert numbers(found) == [1, 2, 12]
    assert [one["after"] for one in client.asked] == [0, 2, 9]
    assert {one["result"] for one in client.asked} == {"discarded"}


def test_a_limit_counts_over_pages() -> None:
    client = ScriptedClient(page(1, 2, more=True), page(3, more=True))
    assert numbers(list(pages(client, {}, after=0, limit=3))) == [1, 2, 3]
    assert [one["limit"] for one in client.asked] == [3, 1]


@pytest.mark.parametrize(
    "answer",
    [
        page(through=5, more=True),
        Answer(200, b"hello"),
        Answer(200, b"", headers={"pillion-next-after": "-1"}),
        Answer(404, b'{"reason": "serves no /v1/outcomes"}'),
    ],
)
def test_an_answer_of_something_else_ends_it(answer: Answer) -> None:
    with pytest.raises(Refused):
        list(pages(ScriptedClient(answer), {}, after=5, limit=None))


@pytest.mark.parametrize("text", [b"hello", b"{}", b'{"number": "\xff"}', b"[" * 5000])
def test_a_line_that_is_no_outcome_is_refused(text: bytes) -> None:
    found = Page(lines=[text], history="one", through=1, has_more=False)
    with pytest.raises(Refused, match="a line is no outcome"):
        list(found.outcomes())


def test_a_carriage_return_ends_no_line() -> None:
    text = b'{"number": 1,\r"x": 2}'
    assert Page.of(Answer(200, text + b"\n", headers=page().headers)).lines == [text]


# ---------------------------------------------------------------------- following


class Following:
    """A follower with scripted answers."""

    def __init__(self, *answers: Answer | Unreachable) -> None:
        self.client = ScriptedClient(*answers)
        self.slept: list[float] = []
        self.told: list[str] = []
        self.follower = Follower(self.client, sleep=self.slept.append, tell=self.told.append)

    def numbers(self, *, after: int = 0, limit: int) -> list[int]:
        return numbers(list(self.follower.pages({}, after=after, limit=limit)))

    @property
    def after(self) -> list[object]:
        return [one["after"] for one in self.client.asked]


def test_it_waits_for_the_next_outcomes() -> None:
    following = Following(page(1, 2), page(through=2), page(3))
    assert following.numbers(limit=3) == [1, 2, 3]
    assert following.after == [0, 2, 2]
    assert [one["wait"] for one in following.client.asked] == [0, WAIT, WAIT]


def test_it_goes_on_after_a_restart_before_the_first_outcome() -> None:
    following = Following(page(), GONE, page(), page(1))
    assert following.numbers(limit=1) == [1]
    # The first request is answered at once, so that a restart may come in the wait of the second.
    assert [one["wait"] for one in following.client.asked] == [0, WAIT, WAIT, WAIT]
    assert following.told == ["no answer; trying again until it answers"]


def test_it_goes_on_where_it_was_after_a_restart_of_the_deliverer() -> None:
    following = Following(page(1, 2), GONE, GONE, page(3), GONE, page(4))
    assert following.numbers(limit=4) == [1, 2, 3, 4]
    assert following.after == [0, 2, 2, 2, 3, 3]
    assert following.slept == [PAUSE] * 3
    # Once for each time.
    assert following.told == ["no answer; trying again until it answers"] * 2


def test_a_deliverer_that_was_never_there_is_a_failure() -> None:
    with pytest.raises(Unreachable):
        Following(GONE).numbers(limit=1)


@pytest.mark.parametrize("first", [page(status=409, history="two"), page(7, history="two")])
def test_another_history_is_told_and_begun_from_its_first_number(first: Answer) -> None:
    answers = [page(5), first, page(1, history="two")]
    if first.status == 409:
        answers.append(page(1, history="two"))
    following = Following(*answers)
    assert following.numbers(after=4, limit=2) == [5, 1]
    assert following.after[-1] == 0
    assert following.told == ["the deliverer has begun another history: its numbers begin at 1"]


def test_while_a_deliverer_starts_its_empty_history_is_not_taken_for_another() -> None:
    starting = page(status=409, history="starting"), page(history="starting")
    following = Following(page(5), GONE, *starting, page(5, 6, history="one"), page(6))
    assert following.numbers(after=4, limit=2) == [5, 6]
    assert following.after == [4, 5, 5, 0, 0, 5]
    assert [one["wait"] for one in following.client.asked][-3:] == [0, 0, WAIT]
    assert following.told == ["no answer; trying again until it answers"]


def test_a_deliverer_that_starts_just_then_has_no_history_yet() -> None:
    following = Following(page(history="starting"), GONE, page(7))
    assert following.numbers(limit=1) == [7]
    assert following.told == ["no answer; trying again until it answers"]


def test_a_number_that_there_never_was_is_refused() -> None:
    with pytest.raises(Refused):
        Following(page(status=409)).numbers(after=99, limit=1)
    with pytest.raises(Refused):
        Following(page(1), page(status=409)).numbers(limit=2)


def test_a_busy_deliverer_is_asked_later() -> None:
    following = Following(page(status=503, retry_after=2.0), page(1))
    assert following.numbers(limit=1) == [1]
    assert following.slept == [2.0]
    assert len(following.told) == 1


# ---------------------------------------------------------------------- what is printed


def test_rows_that_come_later_stand_below_the_first(capsys: pytest.CaptureFixture[str]) -> None:
    rows = Rows(("number", "name", "detail"), numbers=("number",))
    rows.show([])
    rows.show([(7, "siem", None)])
    rows.show([(8, "a-longer-name", "\x1b[2J\n"), (9, "b", "c")])
    assert capsys.readouterr().out == (
        "number  name  detail\n"
        "     7  siem\n"
        "     8  a-longer-name  \\u001b[2J\\u000a\n"
        "     9  b              c\n"
    )


def test_rows_are_cut_to_a_terminal_and_coloured(capsys: pytest.CaptureFixture[str]) -> None:
    output = Output(width=30, height=9, has_colours=True)
    rows = Rows(("name", "result", "detail"), output=output, most={"name": 8})
    rows.show([("a-longer-name", Cell("discarded", Style.ALARM), "connection refused")])
    head, row = capsys.readouterr().out.splitlines()
    assert row == "a-longe…  \x1b[1;31mdiscarded\x1b[0m  connecti…"
    assert head.count("\x1b[1m") == 3


@pytest.mark.parametrize("width", [1, 9, 10, 11, 22, 40])
def test_a_row_is_never_broken(width: int, capsys: pytest.CaptureFixture[str]) -> None:
    Rows(("name", "result", "detail"), output=Output(width=width, height=9)).show(
        [("a-longer-name", "\x1b[2J\u65e5\u672c" * 9, "connection refused"), ("b", "c", "d")]
    )
    assert max(map(cell_len, capsys.readouterr().out.splitlines())) <= width


def test_the_last_number_is_that_of_all() -> None:
    client = ScriptedClient(page(through=9, more=True), page(through=12))
    assert last_number(client) == 12
    assert [one["since"] for one in client.asked] == ["9000-01-01T00:00:00+00:00"] * 2
    assert last_number(ScriptedClient(page())) == 0


@pytest.mark.parametrize("command", ["outcomes", "tail"])
def test_an_option_that_needs_another_is_named(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([command, "--indication"]) == Exit.USAGE
    assert "--indication: only with --output json" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("text", "seconds"), [("90s", 90), ("10m", 600), ("10min", 600), ("2h", 7200), ("1d", 86_400)]
)
def test_a_time_may_be_so_long_ago(text: str, seconds: int) -> None:
    before = datetime.now(UTC)
    found = moment(text) + timedelta(seconds=seconds)
    assert before <= found <= datetime.now(UTC)


@pytest.mark.parametrize(
    "given",
    [["--since", "yesterday"], ["--since", "5"], ["--until", "2026-11-22"], ["--after", "-1"]],
)
def test_a_wrong_value_is_a_wrong_command_line(given: list[str]) -> None:
    with pytest.raises(SystemExit) as end:
        main(["outcomes", *given])
    assert end.value.code == Exit.USAGE
