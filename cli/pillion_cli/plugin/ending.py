"""The end of ``pillion plugin exec`` by a signal."""

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import Thread

from pillion_cli.exits import Exit

NUMBERS = (signal.SIGTERM, signal.SIGHUP, signal.SIGINT)


@contextmanager
def ended_at_once(first: Callable[[], None]) -> Iterator[None]:
    """Exit with code 0 at SIGTERM, SIGHUP and Ctrl-C, whatever the main thread does; an ignored
    signal stays ignored. ``first`` is called before, in another thread.

    Python runs a signal's handler in the main thread, between two of its instructions. A signal
    that comes just before a read waits there until the read returns, which may be never.
    """
    come, told = os.pipe()
    os.set_blocking(told, False)
    before_told = signal.set_wakeup_fd(told, warn_on_full_buffer=False)
    watching = Thread(target=_watch, args=(come, first), daemon=True)
    watching.start()
    before = {
        number: signal.signal(number, _pass)
        for number in NUMBERS
        if signal.getsignal(number) is not signal.SIG_IGN
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
        signal.set_wakeup_fd(before_told)
        os.close(told)
        # A signal that has come ends the process here.
        watching.join()


def _pass(_number: int, _frame: object) -> None: ...


def _watch(come: int, first: Callable[[], None]) -> None:
    signalled = os.read(come, 1)
    os.close(come)
    if signalled:
        first()
        os._exit(Exit.OK)
