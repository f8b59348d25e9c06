"""Processes that have ended and are not reaped: their group is still their own, so no signal for it
can reach another process."""

import os
import signal
from contextlib import suppress


def exit_code(pid: int) -> int:
    """Return the exit code of a process once it has ended, or minus the number of the signal that
    ended it; leave it to be reaped."""
    ended = os.waitid(os.P_PID, pid, os.WEXITED | os.WNOWAIT)
    assert ended is not None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def signal_group(group: int, number: int) -> None:
    with suppress(ProcessLookupError, PermissionError):  # all of it has ended
        os.killpg(group, number)


def kill_group(group: int) -> None:
    signal_group(group, signal.SIGKILL)
