"""How the process of a command runs and ends: exit codes, signals, the garbage collector."""

import gc
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

#: New objects that may be left to the collector: a few milliseconds of its work.
MOST_LEFT = 20_000


class Exit(IntEnum):
    #: Success.
    OK = 0
    #: Failure: nothing was done, or a check failed.
    FAILED = 1
    #: The command line is wrong; nothing was done.
    USAGE = 2
    #: Partial success.
    PARTLY = 3
    #: Ctrl-C, as shells have it: 128 + SIGINT.
    INTERRUPTED = 130


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.FAILED: "failure: nothing was done, or a check failed",
    Exit.USAGE: "the command line is wrong; nothing was done",
    Exit.PARTLY: "partial success",
    Exit.INTERRUPTED: "interrupted with Ctrl-C",
}


class CLIError(Exception):
    """The base of every error that this package raises."""


class CommandError(CLIError):
    """A command fails; the message gives the cause and the remedy."""

    def __init__(self, message: str, *, code: Exit = Exit.FAILED) -> None:
        super().__init__(message)
        self.code = code


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Have SIGTERM, SIGHUP and Ctrl-C end the process at once with exit code 0, until something
    else takes the signals. One that is ignored, as SIGHUP is under ``nohup``, stays so."""
    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, _end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def _end(_number: int, _frame: object) -> NoReturn:
    # No exception: an import that is under way may catch every one.
    os._exit(Exit.OK)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Collect nothing meanwhile, and never look again at the many objects that it leaves.

    They go when nobody refers to them any more, as most do; only what stands in a cycle at the
    end stays for good, so the young generations are cleared of that at the beginning.
    """
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MOST_LEFT:
            gc.freeze()
        gc.enable()
