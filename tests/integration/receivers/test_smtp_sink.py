"""Postfix's smtp-sink takes the messages, and has its own ways to refuse them."""

import asyncio
import json
import os
import shutil
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from email import message_from_bytes, policy
from pathlib import Path

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.testing import FakeTime
from support.protocol_peers import AMPLE, Attempt, destination, registry

MESSAGE = "Wind: 41 < 60\r\n.\r\nMAIL FROM:<thief@evil.example>\r\n– ünïcode"
BODY = json.dumps(
    {"class": "CIM_AlertIndication", "properties": {"Message": MESSAGE, ".": "first"}}
).encode()

Sink = Callable[..., AbstractAsyncContextManager[str]]


@pytest.fixture
def sink(tmp_path: Path) -> Sink:
    program = shutil.which("smtp-sink", path=f"{os.environ['PATH']}:/usr/sbin")
    if program is None:
        pytest.skip("smtp-sink is missing: apt-get install -y postfix")

    @asynccontextmanager
    async def serve(*options: str) -> AsyncIterator[str]:
        """Run it; its URL, once it listens. Messages come into ``tmp_path``."""
        with socket.create_server(("127.0.0.1", 0)) as server:
            port = server.getsockname()[1]
        who = ("-u", "root") if os.getuid() == 0 else ()
        command = [program, *who, *options, "-d", "message.%M", f"127.0.0.1:{port}", "16"]
        process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path)
        try:
            while True:
                assert process.returncode is None
                try:
                    _, writer = await asyncio.open_connection("127.0.0.1", port)
                except ConnectionRefusedError:
                    continue
                writer.close()
                await writer.wait_closed()
                break
            yield f"smtp://127.0.0.1:{port}"
        finally:
            process.terminate()
            await process.wait()

    return serve


async def deliver(url: str, time: FakeTime, count: int = 1) -> list[DeliveryOutcome]:
    async with registry(time, None) as made:
        handler = made.create_handler(destination("SMTP", url, timeout_seconds=AMPLE))
        try:
            return [await Attempt(handler, time, BODY).outcome() for _ in range(count)]
        finally:
            handler.close()


def received(folder: Path) -> list[bytes]:
    return [file.read_bytes() for file in folder.glob("message.*")]


async def test_it_has_what_was_sent(sink: Sink, fake_time: FakeTime, tmp_path: Path) -> None:
    async with sink() as url:
        told = await deliver(url, fake_time, count=3)
    assert {one.result for one in told} == {DeliveryResult.SUCCESS}
    files = received(tmp_path)
    assert len(files) == 3
    message = message_from_bytes(files[0], policy=policy.SMTP)
    assert message["X-Mail-Args"] == "<pillion@station.example>"
    assert message["X-Rcpt-Args"] == "<on-call@ops.example>"
    assert message["X-Helo-Args"] == "[127.0.0.1]"
    text, attached = message.iter_parts()
    assert ".: first" in text.get_content()
    assert json.loads(attached.get_content())[0]["properties"]["Message"] == MESSAGE


@pytest.mark.parametrize(
    ("options", "result", "hold", "refuses"),
    [
        (("-f", "."), DeliveryResult.ERROR, None, True),
        (("-r", "."), DeliveryResult.ERROR, None, False),
        (("-q", "."), DeliveryResult.POST_DELIVERY_ERROR, None, False),
        (("-f", "DATA"), DeliveryResult.ERROR, HoldCause.DESTINATION, False),
        (("-f", "RCPT"), DeliveryResult.ERROR, HoldCause.DESTINATION, False),
        (("-r", "RCPT"), DeliveryResult.ERROR, None, False),
        (("-f", "MAIL"), DeliveryResult.ERROR, HoldCause.DESTINATION, False),
        (("-q", "MAIL"), DeliveryResult.ERROR, None, False),
        (("-f", "CONNECT"), DeliveryResult.ERROR, None, False),
        (("-f", "EHLO"), DeliveryResult.ERROR, None, False),
    ],
)
async def test_each_way_to_refuse_has_its_result(
    sink: Sink,
    fake_time: FakeTime,
    options: tuple[str, ...],
    result: DeliveryResult,
    hold: HoldCause | None,
    refuses: bool,
) -> None:
    async with sink(*options) as url:
        (told,) = await deliver(url, fake_time)
    assert (told.result, told.hold, told.refuses_indication) == (result, hold, refuses)
