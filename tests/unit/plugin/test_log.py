"""Standard error that is full: nobody waits for it, and what is left out is counted."""

import os
import socket
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from pillion_plugin.log import LINE_LIMIT, Log
from support.full_pipe import Full, full_pipe, full_socket


@pytest.fixture(params=[full_pipe, full_socket])
def full(request: pytest.FixtureRequest) -> Iterator[Full]:
    opened: AbstractContextManager[Full] = request.param()
    with opened as found:
        yield found


def test_what_has_no_room_is_left_out_and_counted_once_there_is_room(full: Full) -> None:
    full.log.write(b"one\ntwo\n")
    full.log.write(b"three\n")
    full.log.tell()
    assert full.read() == b""
    full.log.write(b"four\n")
    assert full.read() == b"pillion_plugin: 3 lines left out\nfour\n"
    full.log.tell()
    assert full.read() == b""


def test_the_count_is_told_though_nothing_follows(full: Full) -> None:
    full.log.write(b"one\n")
    full.read()
    full.log.tell()
    assert full.read() == b"pillion_plugin: 1 lines left out\n"


def test_only_whole_lines_are_written(full: Full) -> None:
    full.read()
    lines = b"".join(b"%d " % number + b"x" * (number % 500) + b"\n" for number in range(10_000))
    full.log.write(lines)
    came = full.read()
    assert came.endswith(b"\n")
    assert lines.startswith(came)
    full.log.tell()
    left_out = 10_000 - came.count(b"\n")
    assert full.read() == b"pillion_plugin: %d lines left out\n" % left_out


def test_other_writers_wait_as_before(full: Full) -> None:
    """Child processes share the flags of the descriptor."""
    socket.setdefaulttimeout(5)
    try:
        full.log.write(b"one\n")
    finally:
        socket.setdefaulttimeout(None)
    assert os.get_blocking(full.writing)


def test_a_full_descriptor_is_known(full: Full) -> None:
    assert full.log.is_full()
    full.read()
    assert not full.log.is_full()


@pytest.mark.parametrize("end", [b"", b"\n"])
def test_a_line_that_is_too_long_is_cut(tmp_path: Path, end: bytes) -> None:
    with (tmp_path / "log").open("wb") as file:
        Log(file.fileno()).write(b"a\n" + b"x" * 10_000 + b"\nb\n" + b"y" * 10_000 + end)
    cut = LINE_LIMIT - 1
    written = (tmp_path / "log").read_bytes()
    assert written == b"a\n" + b"x" * cut + b"\nb\n" + b"y" * cut + b"\n"


def test_a_descriptor_that_the_program_redirects_is_followed() -> None:
    with full_pipe() as first, full_pipe() as second:
        first.read()
        first.log.write(b"one\n")
        assert first.read() == b"one\n"
        second.read()
        os.dup2(second.writing, first.writing)
        first.log.write(b"two\n")
        assert second.read() == b"two\n"


def test_a_descriptor_that_nobody_reads_any_more_fails_nobody() -> None:
    reading, writing = os.pipe()
    os.close(reading)
    log = Log(writing)
    log.write(b"one\n")
    os.close(writing)
    log.write(b"two\n")
