"""Appends lines to a file of a folder, and rolls it. Every call blocks.

Nothing outside the folder is written: a name is looked up in the open folder, and no symbolic link
is followed. Several processes may write one file: each locks it while it appends.
"""

import errno
import fcntl
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from pillion_sidecar.handlers.errors import HandlerError

#: How each line begins, and so each file.
BEGINNING = b'{"class":'
MODE = 0o640
#: Bytes that are read of a last line without a line feed: more than any line has.
LONGEST_REST = 16 * 1024 * 1024
_BLOCK = 64 * 1024
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
# O_NONBLOCK: a FIFO is refused, and not waited for.
_NO_OTHER = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC | os.O_NOCTTY
_FILE = os.O_RDWR | os.O_CREAT | os.O_APPEND | _NO_OTHER
#: Times that another process may rename the file while its lock is awaited.
_MOST_RENAMED = 10
#: Times that a lock is asked for, and seconds between two. Not longer: the thread is waited for at
#: the end of the process.
_LOCK_TRIES, _LOCK_SECONDS = 100, 0.02
_NOT_REGULAR = "it is not a regular file; name another one"


class AppendError(HandlerError):
    """Lines could not be appended. The text has the cause, and not the name, which may be from a
    Secret."""

    def __init__(self, message: str, *, may_have: bool = False) -> None:
        """``may_have``: the file may hold them all the same."""
        super().__init__(message)
        self.may_have = may_have


@dataclass(frozen=True, slots=True)
class Line:
    #: With its line feed.
    text: bytes
    max_bytes: int
    max_files: int


def append(folder: Path, name: str, lines: Sequence[Line]) -> tuple[int, AppendError | None]:
    """Append lines in order. Return how many are on the disk, and why the next one is not."""
    done = 0
    try:
        with _closing(_open_folder(folder)) as directory:
            while done < len(lines):
                with _locked(directory, name) as file:
                    done += _fill(directory, name, file, lines[done:])
    except AppendError as error:
        return done, error
    except OSError as error:
        return done, AppendError(str(error.strerror or error))
    return done, None


def _open_folder(folder: Path) -> int:
    try:
        return os.open(folder, _FOLDER)
    except OSError as error:
        raise AppendError(f"--delivery-folder: {error.strerror}") from error


@contextmanager
def _closing(descriptor: int) -> Iterator[int]:
    try:
        yield descriptor
    finally:
        os.close(descriptor)


@contextmanager
def _locked(directory: int, name: str) -> Iterator[int]:
    for _ in range(_MOST_RENAMED):
        with _closing(_open(directory, name)) as file:
            _lock(file)
            if _is_named(directory, name, file):
                yield file
                return
    raise AppendError("another program renames it all the time")


def _lock(file: int) -> None:
    for _ in range(_LOCK_TRIES):
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(_LOCK_SECONDS)
        else:
            return
    raise AppendError("another process holds its lock")


def _open(directory: int, name: str) -> int:
    try:
        file = os.open(name, _FILE, MODE, dir_fd=directory)
    except OSError as error:
        if error.errno == errno.ELOOP:
            raise AppendError("it is a symbolic link, which is not followed") from None
        if error.errno in (errno.ENXIO, errno.EISDIR):
            raise AppendError(_NOT_REGULAR) from None
        raise
    if not stat.S_ISREG(os.fstat(file).st_mode):
        os.close(file)
        raise AppendError(_NOT_REGULAR)
    return file


def _is_named(directory: int, name: str, file: int) -> bool:
    try:
        named = os.stat(name, dir_fd=directory, follow_symlinks=False)
    except FileNotFoundError:
        return False
    return os.path.samestat(named, os.fstat(file))


def _fill(directory: int, name: str, file: int, lines: Sequence[Line]) -> int:
    """Append the lines that fit, and return their number. If the first does not fit, roll."""
    start = size = _end_of_lines(file)
    if start and start + len(lines[0].text) > lines[0].max_bytes:
        _roll(directory, name, lines[0].max_files)
        return 0
    count = 0
    try:
        for line in lines:
            if size and size + len(line.text) > line.max_bytes:
                break
            _write(file, line.text)
            size += len(line.text)
            count += 1
        os.fdatasync(file)
        if start == 0:
            # Its name, too.
            os.fsync(directory)
    except OSError as error:
        _undo(file, start, str(error.strerror or error))
        raise
    return count


def _write(file: int, text: bytes) -> None:
    rest = memoryview(text)
    while rest:
        rest = rest[os.write(file, rest) :]


def _undo(file: int, size: int, cause: str) -> None:
    try:
        os.ftruncate(file, size)
    except OSError as error:
        detail = f"{cause}; and what was written could not be removed: {error.strerror}"
        raise AppendError(detail, may_have=True) from error


def _end_of_lines(file: int) -> int:
    """Return the end of the last line. A last line without its line feed gets one; the part of a
    line that a crash left is cut off: it was never told as a success."""
    size = os.fstat(file).st_size
    # A crash may leave zeros.
    beginning = os.pread(file, len(BEGINNING), 0).rstrip(b"\0")
    if not BEGINNING.startswith(beginning):
        raise AppendError("it holds something else; name another one")
    end = _after_last_line_feed(file, size)
    if end == size:
        return end
    rest = os.pread(file, min(size - end, LONGEST_REST), end)
    if _is_whole(rest):
        _write(file, b"\n")
        return size + 1
    if rest.rstrip(b"\0")[: len(BEGINNING)] != BEGINNING[: len(rest.rstrip(b"\0"))]:
        raise AppendError("its last line is something else; name another one")
    os.ftruncate(file, end)
    return end


def _is_whole(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _after_last_line_feed(file: int, size: int) -> int:
    end, block = size, 1
    while end > 0:
        begin = max(0, end - block)
        found = os.pread(file, end - begin, begin).rfind(b"\n")
        if found >= 0:
            return begin + found + 1
        end, block = begin, _BLOCK
    return 0


def _roll(directory: int, name: str, max_files: int) -> None:
    """Rename NAME to NAME.1, NAME.1 to NAME.2 and so on, and delete what is beyond
    ``max_files``."""
    rolled = re.compile(re.escape(name) + r"\.([1-9][0-9]{0,8})")
    found = (rolled.fullmatch(one) for one in os.listdir(directory))
    numbers = sorted((int(one[1]) for one in found if one is not None), reverse=True)
    for number in numbers:
        # Before anything is renamed.
        old = f"{name}.{number}"
        if stat.S_ISDIR(os.stat(old, dir_fd=directory, follow_symlinks=False).st_mode):
            raise AppendError(f"it is full, and {old} is a folder: remove that")
    for number in numbers:
        old = f"{name}.{number}"
        if number >= max_files:
            os.unlink(old, dir_fd=directory)
        else:
            os.rename(old, f"{name}.{number + 1}", src_dir_fd=directory, dst_dir_fd=directory)
    os.rename(name, f"{name}.1", src_dir_fd=directory, dst_dir_fd=directory)
    os.fsync(directory)
