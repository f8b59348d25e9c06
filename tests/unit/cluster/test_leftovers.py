"""What is known of a cluster that ended, or was killed."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest

from pillion_testbed.leftovers import (
    Process,
    Record,
    control_groups,
    end,
    hierarchies,
    mounts_below,
    process,
    read_record,
)
from pillion_testbed.rest import wait_until

SLEEPS = "import time; print('up', flush=True); time.sleep(600)"
STUBBORN = f"import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); {SLEEPS}"


@pytest.fixture
def sleeper(request: pytest.FixtureRequest) -> Iterator["subprocess.Popen[bytes]"]:
    command = [sys.executable, "-I", "-S", "-c", request.param]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as started:
        assert started.stdout is not None
        started.stdout.readline()
        yield started
        started.kill()


def known(pid: int) -> Process:
    found = process(pid)
    assert found is not None
    return found


@pytest.mark.parametrize("sleeper", [SLEEPS, STUBBORN], indirect=True)
def test_a_process_is_ended_and_known_to_be(
    sleeper: "subprocess.Popen[bytes]", monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillion_testbed.leftovers.GRACE", 0.2)
    one = known(sleeper.pid)
    assert one.runs()
    end(one)
    # Nobody has waited for it yet.
    assert not one.runs()
    assert sleeper.wait() in (-signal.SIGTERM, -signal.SIGKILL)


def test_a_process_that_got_the_id_of_another_is_left_alone() -> None:
    mine = known(os.getpid())
    another = Process(mine.pid, mine.started - 1)
    assert not another.runs()
    end(another)


def test_an_id_that_nobody_has_is_no_process() -> None:
    assert process(2**22 + 1) is None


def record(folder: Path, owner: Process | None, *processes: Process) -> Record:
    named = {f"node-1/{number}": one for number, one in enumerate(processes)}
    return Record(index=3, folder=folder, owner=owner, processes=named)


def test_a_record_is_read_as_it_was_written(tmp_path: Path) -> None:
    mine = known(os.getpid())
    for written in (record(tmp_path, mine, mine), record(tmp_path, None)):
        written.write(tmp_path)
        assert read_record(3, tmp_path) == written
    assert read_record(4, tmp_path) is None


@pytest.mark.parametrize(
    ("owned", "processes", "alive"),
    [
        (True, [], True),
        (False, [True, True], True),
        (False, [True, False], False),
        (False, [], False),
    ],
)
def test_a_cluster_lives_as_long_as_its_owner_or_all_of_its_processes(
    tmp_path: Path, owned: bool, processes: list[bool], alive: bool
) -> None:
    mine = known(os.getpid())
    gone = Process(mine.pid, mine.started - 1)
    listed = [mine if runs else gone for runs in processes]
    assert record(tmp_path, mine if owned else None, *listed).alive() is alive


def test_a_cluster_whose_owner_was_killed_is_dead_though_it_has_processes(tmp_path: Path) -> None:
    mine = known(os.getpid())
    assert not record(tmp_path, Process(mine.pid, mine.started - 1), mine).alive()


def test_mounts_are_found_below_a_folder_the_last_mounted_first() -> None:
    def line(point: str) -> str:
        return f"36 35 98:0 / {point} rw,noatime master:1 - ext3 /dev/root rw"

    table = "\n".join(map(line, ["/", "/a", "/a/b", r"/a/c\040d", "/ab", "/a/b/e"]))
    assert mounts_below(Path("/a"), table) == ["/a/b/e", "/a/c d", "/a/b"]


def test_control_groups_are_looked_for_in_each_hierarchy_but_not_twice(tmp_path: Path) -> None:
    for name in ("cpu,cpuacct", "memory"):
        (tmp_path / name / "pillion-1-node-1").mkdir(parents=True)
    (tmp_path / "cpu").symlink_to("cpu,cpuacct")
    (tmp_path / "file").touch()
    assert hierarchies(tmp_path) == [tmp_path / "cpu,cpuacct", tmp_path / "memory"]
    found = [path.relative_to(tmp_path) for path in control_groups("pillion-1-*", tmp_path)]
    assert found == [Path("cpu,cpuacct/pillion-1-node-1"), Path("memory/pillion-1-node-1")]


def test_control_groups_of_version_2_are_one_hierarchy(tmp_path: Path) -> None:
    (tmp_path / "cgroup.controllers").touch()
    (tmp_path / "system.slice").mkdir()
    assert hierarchies(tmp_path) == [tmp_path]


def test_a_process_that_ended_and_was_not_waited_for_does_not_run() -> None:
    with subprocess.Popen([sys.executable, "-I", "-S", "-c", ""]) as started:
        with suppress(TimeoutError):
            wait_until(lambda: process(started.pid) is None, within=20, what="its end")
        assert process(started.pid) is None
        assert started.wait() == 0
