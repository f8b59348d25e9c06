"""Processes of the test bed end with whoever started them."""

import subprocess
import sys
import threading
from pathlib import Path

import pytest

from pillion_testbed.background import BackgroundCluster
from pillion_testbed.control_plane import free_ports
from pillion_testbed.processes import ProcessFailed, Spawner, tail
from pillion_testbed.rest import wait_until

SLEEP = (sys.executable, "-I", "-S", "-c", "import time; print('up', flush=True); time.sleep(600)")


def alive(pid: int) -> bool:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    # Whoever adopts it may be slow to reap it.
    return "State:\tZ" not in status


def test_a_process_outlives_the_thread_that_asked_for_it(tmp_path: Path) -> None:
    spawner = Spawner()
    started = []
    thread = threading.Thread(
        target=lambda: started.append(spawner.start("sleep", SLEEP, log=tmp_path / "log"))
    )
    thread.start()
    thread.join()
    assert started[0].exit_code() is None
    started[0].stop()
    spawner.close()
    assert started[0].exit_code() == -9


PARENT = """
import os, pathlib, signal, sys
from pillion_testbed.processes import Spawner

child = Spawner().start("child", sys.argv[2:], log=pathlib.Path(sys.argv[1]))
print(child.pid, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_ends_when_its_parent_is_killed(tmp_path: Path) -> None:
    ran = subprocess.run(
        [sys.executable, "-c", PARENT, str(tmp_path / "log"), *SLEEP],
        stdout=subprocess.PIPE,
        text=True,
        check=False,
    )
    assert ran.returncode == -9
    wait_until(lambda: not alive(int(ran.stdout)), within=30, what="the child's end")


def test_the_end_of_its_log_says_why_a_process_failed(tmp_path: Path) -> None:
    spawner = Spawner()
    log = tmp_path / "log"
    command = (sys.executable, "-I", "-S", "-c", "raise SystemExit('no port is free')")
    running = spawner.start("server", command, log=log)
    assert running.stop(grace=30) in (1, -15)
    spawner.close()
    log.write_text("\n".join(["early"] * 40 + ["no port is free"]))
    assert "no port is free" in str(running.failed("ended"))
    assert len(tail(log).splitlines()) == 25


def test_ports_are_free_and_not_given_twice() -> None:
    ports = free_ports(3)
    assert len(set(ports)) == 3
    with pytest.raises(ProcessFailed, match="no 3 free ports"):
        free_ports(3, among=ports[:2])


def test_only_its_own_processes_are_ended(tmp_path: Path) -> None:
    folder = tmp_path / "cluster"
    folder.mkdir()
    spawner = Spawner()
    strange = spawner.start("strange", SLEEP, log=tmp_path / "strange.log")
    own = spawner.start("own", (*SLEEP, f"--data={folder}/etcd"), log=tmp_path / "own.log")
    cluster = BackgroundCluster(folder)
    cluster.remember({"own": own.pid, "strange": strange.pid})
    assert not cluster.alive()
    threading.Thread(target=own.stop, kwargs={"grace": 600}).start()  # reaps it
    assert cluster.down()
    assert not folder.exists()
    assert strange.exit_code() is None
    strange.stop()
    spawner.close()
    assert not cluster.down()
