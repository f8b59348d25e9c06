"""Exit codes, errors, signals and the garbage collector of a command's process."""

import gc
import os
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from enum import IntEnum
from typing import NoReturn

#: New objects that need no freeze: a few milliseconds of the collector.
MOST_LEFT = 20_000
#: The generation of a full collection.
FULL = 2
#: Seconds that a full collection may take without a freeze.
LONGEST_COLLECTION = 0.02


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    PARTLY = 3
    OUTPUT = 4
    #: 128 + SIGINT.
    INTERRUPTED = 130
    #: 128 + SIGPIPE.
    BROKEN_PIPE = 141


MEANINGS: dict[Exit, str] = {
    Exit.OK: "success",
    Exit.FAILED: "failure: nothing was done, or a check failed",
    Exit.USAGE: "the command line is wrong; nothing was done",
    Exit.PARTLY: "partial success: part was not published, drained or exported",
    Exit.OUTPUT: "standard output cannot be written; the command may have done its work",
    Exit.INTERRUPTED: "interrupted with Ctrl-C, and `pillion check` also by SIGTERM",
    Exit.BROKEN_PIPE: "the reader of standard output has gone, as after `head`",
}


class CLIError(Exception): ...


class CommandError(CLIError):
    """A command failed; each line names a cause and the remedy. A server or file may have written
    a part of it: it is made harmless here, wherever it is printed."""

    def __init__(self, *lines: str, code: Exit = Exit.FAILED) -> None:
        if not all(map(str.isprintable, lines)):
            from pillion_sidecar.config.problems import escape_controls  # a hook waits for imports

            lines = tuple(map(escape_controls, lines))
        super().__init__("\n".join(lines))
        self.code = code


@contextmanager
def ended_by_signals() -> Iterator[None]:
    """Exit with code 0 at SIGTERM, SIGHUP and Ctrl-C, until another handler is set. An ignored
    signal, such as SIGHUP under ``nohup``, stays ignored."""

    def end(_number: int, _frame: object) -> NoReturn:
        # No exception: an import in progress may catch it.
        os._exit(Exit.OK)

    before = {
        number: signal.getsignal(number)
        for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    for number in before:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def gc_disabled() -> Iterator[None]:
    """Disable the collector, and freeze this context's objects if they are many. The young
    generations are collected first, because frozen cycles are never freed."""
    gc.collect(1)
    gc.disable()
    try:
        yield
    finally:
        if gc.get_count()[0] > MOST_LEFT:
            gc.freeze()
        gc.enable()


@contextmanager
def short_collections(longest: float = LONGEST_COLLECTION) -> Iterator[None]:
    """Freeze what survives a full collection that took long: a process that keeps ever more objects
    would be blocked for half a second by each. Only this context's collections count. ``longest``:
    seconds without a freeze.

    Frozen cycles are never freed, so all is left to the collector again once twice as much is
    frozen as at first.
    """
    began, first = 0.0, 0

    def follow(phase: str, information: dict[str, int]) -> None:
        nonlocal began, first
        if information["generation"] != FULL:
            return
        # Its own CPU: the process may have to wait for it.
        now = time.thread_time()
        if phase == "start":
            began = now
        elif now - began > longest:
            # Just after a collection, so that no garbage is frozen.
            gc.freeze()
            frozen = gc.get_freeze_count()
            if not first:
                first = frozen
            elif frozen > 2 * first:
                gc.unfreeze()
                first = 0

    gc.callbacks.append(follow)
    try:
        yield
    finally:
        gc.callbacks.remove(follow)
