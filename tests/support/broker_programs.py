"""Real brokers for tests: where their programs are, and one that runs."""

import asyncio
import os
import shutil
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from pillion_testbed.binaries import find_binaries
from pillion_testbed.receivers import Receivers

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin"


RECEIVERS = Receivers(find_binaries(os.environ))
NATS_SERVER = RECEIVERS.find("nats-server")
WITHOUT_NATS_SERVER = "nats-server is missing: make receivers builds it"
MOSQUITTO = shutil.which("mosquitto", path=_PATH)
MOSQUITTO_SUB = shutil.which("mosquitto_sub", path=_PATH)
WITHOUT_MOSQUITTO = "mosquitto is missing: apt-get install mosquitto mosquitto-clients"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@asynccontextmanager
async def running(command: Sequence[str], *, port: int, folder: Path) -> AsyncIterator[None]:
    """Run a program while the context lasts, which begins when it listens on ``port``."""
    file = folder / "log"
    log = await asyncio.to_thread(open, file, "ab")
    with log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        while not await _listens(port):
            assert process.returncode is None, file.read_text()
        yield
    finally:
        process.terminate()
        await process.wait()


async def _listens(port: int) -> bool:
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port)
    except ConnectionRefusedError:
        await asyncio.sleep(0)
        return False
    writer.close()
    await writer.wait_closed()
    return True
