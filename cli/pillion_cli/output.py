"""Standard output: a failed write is one error, with an exit code of its own; what the encoding
does not have is escaped, as Python does on standard error."""

import io
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NoReturn, TextIO

from pillion_cli.exits import CLIError, Exit

#: A text may have lone surrogates, and a terminal may know ASCII alone.
_ERRORS = "backslashreplace"


class OutputError(CLIError):
    """Not an OSError, which a command would take for a failure of its input."""

    def __init__(self, reason: str, *, code: Exit = Exit.OUTPUT) -> None:
        super().__init__(f"cannot write standard output: {reason}")
        self.code = code


@contextmanager
def checked_output(*, may_be_closed: bool = False) -> Iterator[None]:
    """Raise :class:`OutputError` when standard output cannot be written, at the latest on leaving.

    ``may_be_closed``: ignore a standard output that is closed (``>&-``).
    """
    if sys.stderr is None:
        # print() would write its messages to standard output.
        sys.stderr = open(os.devnull, "w")  # noqa: SIM115
    before = sys.stdout
    is_closed = before is None
    if before is not sys.__stdout__ or (is_closed and may_be_closed):
        yield
        return
    sys.stdout = _checked(before)
    try:
        try:
            yield
        except SystemExit:
            sys.stdout.flush()
            raise
        sys.stdout.flush()
    finally:
        sys.stdout = before


def _checked(before: TextIO | None) -> TextIO:
    """``before`` is None if standard output is closed."""
    if before is None:
        # Opened, so that no other file gets descriptor 1.
        raw = _Raw(os.open(os.devnull, os.O_WRONLY), is_closed=True)
        return io.TextIOWrapper(io.BufferedWriter(raw), encoding="utf-8", errors=_ERRORS)
    assert isinstance(before, io.TextIOWrapper)
    return io.TextIOWrapper(
        io.BufferedWriter(_Raw(before.fileno())),
        encoding=before.encoding,
        errors=_ERRORS,
        line_buffering=before.line_buffering or before.write_through,
    )


class _Raw(io.FileIO):
    """After its first error it discards what is written, since buffers are flushed again."""

    def __init__(self, descriptor: int, *, is_closed: bool = False) -> None:
        super().__init__(descriptor, "w", closefd=False)
        self._is_closed = is_closed
        self._has_failed = False

    def write(self, data: Any, /) -> int:
        if self._has_failed:
            return memoryview(data).nbytes
        if self._is_closed:
            self._fail(OutputError("it is closed"))
        try:
            return super().write(data)
        except BrokenPipeError as error:
            self._fail(OutputError("its reader has gone", code=Exit.BROKEN_PIPE), error)
        except OSError as error:
            self._fail(OutputError(error.strerror or str(error)), error)

    def _fail(self, failure: OutputError, cause: OSError | None = None) -> NoReturn:
        self._has_failed = True
        raise failure from cause
