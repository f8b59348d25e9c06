"""--watch: in a terminal and in a pipe, and over restarts of the deliverer."""

from collections.abc import Sequence

import pytest

from pillion_cli.client import Unreachable
from pillion_cli.terminal import Output
from pillion_cli.watching import watch

PIPE, DUMB, TERMINAL = Output(), Output(width=30), Output(width=30, height=4)
GONE = Unreachable("no answer")


class Watched:
    """Looks that give what a test names; Ctrl-C after the last one."""

    def __init__(self, *looks: Sequence[str] | Unreachable) -> None:
        self.looks = list(looks)
        self.told: list[str] = []
        self.now = 0.0

    def look(self, _output: Output) -> Sequence[str]:
        look = self.looks.pop(0)
        if isinstance(look, Unreachable):
            raise look
        return look

    def sleep(self, seconds: float) -> None:
        self.now += seconds
        if not self.looks:
            raise KeyboardInterrupt

    def run(self, output: Output) -> None:
        watch(
            self.look,
            every=2.0,
            output=lambda: output,
            monotonic=lambda: self.now,
            sleep=self.sleep,
            tell=self.told.append,
        )


@pytest.mark.parametrize("output", [PIPE, DUMB])
def test_a_pipe_gets_one_after_the_other(
    output: Output, capsys: pytest.CaptureFixture[str]
) -> None:
    watched = Watched(["1", "a"], GONE, GONE, ["2", "b"])
    with pytest.raises(KeyboardInterrupt):
        watched.run(output)
    assert capsys.readouterr().out == "1\na\n2\nb\n"
    assert watched.told == [
        "no answer; trying again until it answers",
        "the deliverer answers again",
    ]


def test_a_terminal_is_written_over_and_left_with_the_last_frame(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched = Watched(["1", "a"], ["2", "b", "c", "d"])
    with pytest.raises(KeyboardInterrupt):
        watched.run(TERMINAL)
    shown = capsys.readouterr().out
    first, second = shown.split("\x1b[H")[1:]
    assert first == "1\x1b[K\na\x1b[K\n\x1b[J"
    # It has four lines, and the cursor needs the last one.
    frame = "2\x1b[K\nb\x1b[K\n… 2 more lines\x1b[K\n\x1b[J"
    assert second == f"{frame}\x1b[?7h\x1b[?25h\x1b[?1049l2\nb\n… 2 more lines\n"
    assert watched.told == []


def test_a_terminal_says_that_the_deliverer_is_away_and_since_when(
    capsys: pytest.CaptureFixture[str],
) -> None:
    watched = Watched(["1", "a"], GONE, GONE, ["2", "b"])
    with pytest.raises(KeyboardInterrupt):
        watched.run(TERMINAL)
    frames = capsys.readouterr().out.split("\x1b[H")[1:]
    assert [frame.partition("\x1b")[0] for frame in frames] == [
        *("1", "As of 2 s ago; since then no …", "As of 4 s ago; since then no …", "2")
    ]
    assert all("a\x1b[K" in frame for frame in frames[:3])


def test_a_deliverer_that_was_never_there_is_a_failure() -> None:
    with pytest.raises(Unreachable):
        Watched(GONE).run(TERMINAL)
