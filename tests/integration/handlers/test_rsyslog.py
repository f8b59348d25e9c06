"""Debian's rsyslog takes the messages, and reads what was meant."""

import asyncio
import json
import shutil
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.protocols.syslog import SyslogMessage, SyslogOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, TURN, destination, registry

RSYSLOGD = shutil.which("rsyslogd", path="/usr/sbin:/usr/bin:/sbin")
pytestmark = pytest.mark.skipif(RSYSLOGD is None, reason="Debian's package rsyslog is missing")

#: A line of JSON for each message. Its parsers turn no line feed into another message.
CONFIGURATION = """
global(workDirectory="{folder}" parser.escapeControlCharactersOnReceive="off"
       maxMessageSize="256k")
module(load="imtcp")
module(load="mmpstrucdata")
template(name="line" type="list" option.jsonf="on") {{
  property(outname="facility" name="syslogfacility-text" format="jsonf")
  property(outname="severity" name="syslogseverity" format="jsonf")
  property(outname="time" name="timereported" dateFormat="rfc3339" format="jsonf")
  property(outname="host" name="hostname" format="jsonf")
  property(outname="app" name="app-name" format="jsonf")
  property(outname="id" name="msgid" format="jsonf")
  property(outname="text" name="msg" format="jsonf")
  property(outname="data" name="$!rfc5424-sd" format="jsonf")
}}
ruleset(name="in") {{
  action(type="mmpstrucdata")
  action(type="omfile" file="{folder}/out" template="line" asyncWriting="off"
         flushOnTXEnd="on")
}}
input(type="imtcp" port="{port}" address="127.0.0.1" ruleset="in")
"""
TEXT = 'Wind: 41 < 60 & "gusty" ] – ünïcode\\'


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@asynccontextmanager
async def rsyslog(folder: Path) -> AsyncIterator[str]:
    """Run it in the foreground; its URL, once it listens."""
    port = free_port()
    file = folder / "rsyslog.conf"
    file.write_text(CONFIGURATION.format(folder=folder, port=port), encoding="utf-8")
    assert RSYSLOGD is not None
    command = [RSYSLOGD, "-n", "-f", str(file), "-i", str(folder / "pid")]
    log = await asyncio.to_thread(open, folder / "log", "wb")
    with log:
        process = await asyncio.create_subprocess_exec(*command, stdout=log, stderr=log)
    try:
        while True:
            assert process.returncode is None, (folder / "log").read_text()
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                continue
            writer.close()
            await writer.wait_closed()
            break
        yield f"syslog://127.0.0.1:{port}"
    finally:
        process.terminate()
        await process.wait()


async def received(folder: Path, count: int) -> list[dict[str, Any]]:
    """Wait until rsyslog has written so many messages."""
    file = folder / "out"
    while True:
        text = await asyncio.to_thread(lambda: file.read_text() if file.exists() else "")
        if text.count("\n") >= count:
            return [json.loads(line) for line in text.splitlines()]


async def deliver(
    time: FakeTime,
    url: str,
    options: SyslogOptions,
    *identifiers: str,
    description: str = "two\nlines",
) -> list[DeliveryResult]:
    body = json.dumps(
        {
            "class": "CIM_AlertIndication",
            "properties": {
                "PerceivedSeverity": 6,
                "IndicationTime": "20261121133000.250000+060",
                "SystemName": "station-7",
                "Message": TEXT,
                "Description": description,
                "Numbers": [1, 2],
            },
        },
        separators=(",", ":"),
        ensure_ascii=False,
    ).encode()
    results = []
    async with registry(time, None) as made:
        given = {"options": options, "timeout_seconds": AMPLE}
        handler = made.create_handler(destination("Syslog", url, **given))
        for identifier in identifiers:
            told: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
            of = delivery(
                indication(body, identifier=identifier), filter_name='a"b]c\\', sequence_number=7
            )
            of.sequence_context = "here"
            handler.deliver(of, told.set_result)
            while not told.done():
                time.advance(TURN)
                await asyncio.sleep(0)
            results.append(told.result().result)
        handler.close()
    return results


@pytest.mark.timeout(60)
async def test_rsyslog_reads_what_was_meant(fake_time: FakeTime, tmp_path: Path) -> None:
    identifiers = ("i-1", "i\n<34>1 - - - - - - 2", 'i"] 3')
    async with rsyslog(tmp_path) as url:
        told = await deliver(fake_time, url, SyslogOptions(), *identifiers)
        messages = await received(tmp_path, 3)
    assert told == 3 * [DeliveryResult.SUCCESS]
    heads = [
        {name: one[name] for name in ("facility", "severity", "host", "app", "id", "text")}
        for one in messages
    ]
    assert heads == 3 * [
        {
            "facility": "local0",
            "severity": "1",
            "host": "station-7",
            "app": "pillion",
            "id": "CIM_AlertIndication",
            "text": TEXT,
        }
    ]
    assert {one["time"] for one in messages} == {"2026-11-21T12:30:00.250000Z"}
    parameters = [json.loads(one["data"])["pillion@32473"] for one in messages]
    assert [one["identifier"] for one in parameters] == [
        "i-1",
        "i\\u000a<34>1 - - - - - - 2",
        'i"] 3',
    ]
    assert {one["filter"] for one in parameters} == {'a"b]c\\'}
    assert {one["sequence"] for one in parameters} == {"7"}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("message", SyslogMessage)
async def test_no_long_text_begins_another_message(
    fake_time: FakeTime, tmp_path: Path, message: SyslogMessage
) -> None:
    forged = "<0>1 2026-11-26T00:00:00Z forged su - - - pwned "
    options = SyslogOptions(message=message)
    async with rsyslog(tmp_path) as url:
        told = await deliver(
            fake_time, url, options, "i-1", "i-2", description=3 * "d" + 400 * forged
        )
        messages = await received(tmp_path, 2)
    assert told == 2 * [DeliveryResult.SUCCESS]
    assert [one["host"] for one in messages] == 2 * ["station-7"]


@pytest.mark.timeout(60)
async def test_rsyslog_has_the_json_of_an_instance(fake_time: FakeTime, tmp_path: Path) -> None:
    options = SyslogOptions(message=SyslogMessage.JSON)
    async with rsyslog(tmp_path) as url:
        assert await deliver(fake_time, url, options, "i-1") == [DeliveryResult.SUCCESS]
        (message,) = await received(tmp_path, 1)
    properties = json.loads(message["text"])["properties"]
    assert (properties["Message"], properties["Description"]) == (TEXT, "two\nlines")
    assert properties["SequenceNumber"] == 7
