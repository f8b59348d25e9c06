"""``pillion sidecar --plugin``, as it is run."""

import asyncio
import json
import os
import shlex
import signal
from pathlib import Path
from typing import Any

from support.plugins import program
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import sidecar

#: Follows the protocol, and writes the identifiers that it gets to a file, one a line.
RECORDING = """
file = open(sys.argv[1], "a")
print(os.getpid(), file=file, flush=True)
greet(inFlight=5)
for message in commands():
    print(message["params"]["identifier"], file=file, flush=True)
    answer(message, outcome="success")
"""
#: Ends neither by the end of input nor by SIGTERM, and neither does its child.
STUBBORN = """
signal.signal(signal.SIGTERM, signal.SIG_IGN)
if os.fork() == 0:
    sys.argv[1] += ".child"
print(os.getpid(), file=open(sys.argv[1], "w"), flush=True)
if not sys.argv[1].endswith(".child"):
    while not os.path.exists(sys.argv[1] + ".child"):
        os.sched_yield()
    greet()
    serve()
while True:
    sleep()
"""


def option(folder: Path, text: str, *arguments: str) -> str:
    return "test=" + shlex.join([*program(folder, text).command, *arguments])


def written(folder: Path, *destinations: Any) -> Path:
    config = folder / "config"
    config.mkdir()
    write(config, *resources(*destinations))
    return config


def lines(file: Path) -> list[str]:
    return file.read_text().split() if file.exists() else []


def received(file: Path) -> list[str]:
    """The identifiers that :data:`RECORDING` got."""
    return lines(file)[1:]


def is_running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except FileNotFoundError:
        return False
    return state not in "ZX"


async def test_indications_reach_a_plug_in_in_order_and_it_ends_with_the_deliverer(
    tmp_path: Path,
) -> None:
    file = tmp_path / "received"
    config = written(tmp_path, listener("ops", "plugin://test/a", protocol="Plugin"))
    async with sidecar(config, "--plugin", option(tmp_path, RECORDING, str(file))) as run:
        answer = await run.publish(*alerts(0, 100), query="ack=delivered")
        assert answer.document["delivered"] == 100
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() == 0
    assert received(file) == [str(number) for number in range(100)]
    assert not is_running(int(lines(file)[0]))


async def test_a_stopping_deliverer_ends_a_plug_in_that_does_not_want_to(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    config = written(tmp_path, listener("ops", "plugin://test/a", protocol="Plugin"))
    async with sidecar(config, "--plugin", option(tmp_path, STUBBORN, str(file))) as run:
        answer = await run.publish(*alerts(0, 1), query="ack=delivered")
        assert answer.document["delivered"] == 1
        pids = [int(lines(path)[0]) for path in (file, tmp_path / "pid.child")]
        assert all(map(is_running, pids))
        run.process.send_signal(signal.SIGTERM)
        assert await run.ended() == 0
    # The child is reaped by whoever adopts it.
    assert not any(map(is_running, pids))


async def test_a_missing_program_and_an_undeclared_name_hold_their_destinations_alone(
    tmp_path: Path,
) -> None:
    file = tmp_path / "received"
    config = written(
        tmp_path,
        listener("ops", "plugin://test", protocol="Plugin"),
        listener("gone", "plugin://gone", protocol="Plugin"),
        listener("other", "plugin://other", protocol="Plugin"),
    )
    plugins = ("--plugin", option(tmp_path, RECORDING, str(file)), "--plugin", "gone=/no/such")
    async with sidecar(config, *plugins) as run:
        await run.logged("plugin-missing")
        (warning,) = run.events("plugin-missing")
        assert (warning["plugin"], warning["level"]) == ("gone", "WARNING")
        assert warning["reason"] == "the program '/no/such' does not exist"
        await run.publish(*alerts(0, 3))
        await run.logged("destination-held", 2)
        held = {record["destination"]: record for record in run.events("destination-held")}
        assert "plug-in gone: the program '/no/such' does not exist" in held["gone"]["detail"]
        assert "plug-in 'other' is not declared" in held["other"]["detail"]
        assert "(declared: gone, test)" in held["other"]["detail"]
        while await asyncio.to_thread(received, file) != ["0", "1", "2"]:
            await asyncio.to_thread(os.sched_yield)


async def test_an_embedded_secret_of_the_deliverer_is_not_passed_on(tmp_path: Path) -> None:
    file = tmp_path / "environment"
    text = "json.dump(dict(os.environ), open(sys.argv[1], 'w')); greet(); serve()"
    config = written(tmp_path, listener("ops", "plugin://test", protocol="Plugin"))
    environment = {**os.environ, "AWS_SECRET_ACCESS_KEY": "planted", "PILLION_PLUGIN_A": "b"}
    plugins = ("--plugin", option(tmp_path, text, str(file)))
    async with sidecar(config, *plugins, environment=environment) as run:
        answer = await run.publish(*alerts(0, 1), query="ack=delivered")
        assert answer.document["delivered"] == 1
    found = json.loads(file.read_text())
    assert found["PILLION_PLUGIN_A"] == "b"
    assert "planted" not in found.values()
