"""Asks a deliverer again and again, also while it is away, and shows what it says."""

import signal
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import NoReturn

from pillion_cli.client import Refused, Unreachable
from pillion_cli.terminal import Frames, Output, Style, cut
from pillion_cli.units import brief

#: Exit code of a process that SIGTERM has ended, as a shell gives it.
TERMINATED = 143


def watch(
    look: Callable[[Output], Sequence[str]],
    *,
    every: float,
    output: Callable[[], Output],
    monotonic: Callable[[], float],
    sleep: Callable[[float], None],
    tell: Callable[[str], None],
) -> NoReturn:
    """Show what ``look`` returns, every so many seconds, until Ctrl-C. ``tell`` is for what a pipe
    does not show.

    Raises CommandError if it has never answered, and KeyboardInterrupt.
    """
    shown = output()
    lines: Sequence[str] = look(shown)
    answered, lost = monotonic(), ""
    with _terminal_is_left(shown), Frames(shown).open() as frames:
        while True:
            if lost and shown.is_screen:
                ago = brief(monotonic() - answered)
                away = cut(f"As of {ago} ago; since then {lost}", shown.width)
                frames.show([shown.paint(away, Style.ALARM), *lines[1:]], shown)
            elif not lost:
                frames.show(lines, shown)
            sleep(every)
            shown = output()
            try:
                lines = look(shown)
            except (Unreachable, Refused) as failure:
                if not lost:
                    _tell(tell, f"{failure}; trying again until it answers", shown)
                lost = str(failure)
                continue
            if lost:
                _tell(tell, "the deliverer answers again", shown)
            answered, lost = monotonic(), ""


def _tell(tell: Callable[[str], None], text: str, output: Output) -> None:
    """A terminal shows it in the frame."""
    if not output.is_screen:
        tell(text)


@contextmanager
def _terminal_is_left(output: Output) -> Iterator[None]:
    """Let SIGTERM leave the terminal as it was."""
    if not output.is_screen:
        yield
        return

    def end(_number: int, _frame: object) -> NoReturn:
        sys.exit(TERMINATED)

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
