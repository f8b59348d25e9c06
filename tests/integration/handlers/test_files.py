"""Files of the delivery folder, written by real threads to a real disk."""

import asyncio
import json
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pillion_cim.schema import load_schema
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.appending import AppendError, Line, append
from pillion_sidecar.handlers.file import render_line
from pillion_sidecar.handlers.registry import HandlerRegistry
from pillion_sidecar.intake.decoding import decode_object
from pillion_sidecar.protocols.file import FileOptions
from pillion_sidecar.testing import FakeTime
from support.handlers import delivery, indication
from support.protocol_peers import AMPLE, TIMEOUT, Attempt, destination, registry
from support.running import alerts, listener, resources, running


class Disk:
    """A disk that waits until it is told to go on, and counts."""

    def __init__(self) -> None:
        self.batches: list[int] = []
        self.goes_on = threading.Event()

    def append(self, folder: Path, name: str, lines: Sequence[Line]) -> Any:
        self.batches.append(len(lines))
        self.goes_on.wait()
        return append(folder, name, lines)


@contextmanager
def slow_disk() -> Iterator[Disk]:
    disk = Disk()
    with patch("pillion_sidecar.handlers.folder.append", disk.append):
        try:
            yield disk
        finally:
            disk.goes_on.set()


def body(number: int) -> bytes:
    return b'{"class":"CIM_AlertIndication","properties":{"AlertType":%d}}' % number


def sizes(folder: Path) -> dict[str, int]:
    return {one.name: one.stat().st_size for one in sorted(folder.iterdir())}


def types(file: Path) -> list[int]:
    lines = file.read_text(encoding="utf-8").splitlines()
    return [json.loads(line)["properties"]["AlertType"] for line in lines]


async def begin(
    made: HandlerRegistry, time: FakeTime, url: str, number: int, **given: Any
) -> Attempt:
    handler = made.create_handler(destination("File", url, **{"timeout_seconds": AMPLE, **given}))
    attempt = Attempt(handler, time, body(number))
    for _ in range(5):
        await asyncio.sleep(0)
    return attempt


async def test_lines_that_wait_share_a_sync(fake_time: FakeTime, tmp_path: Path) -> None:
    async with registry(fake_time, tmp_path) as made:
        with slow_disk() as disk:
            handler = made.create_handler(destination("File", "file:///a", timeout_seconds=AMPLE))
            attempts = [Attempt(handler, fake_time, body(number)) for number in range(5)]
            # Another destination with the same file.
            attempts.append(await begin(made, fake_time, "file:///a", 5))
            disk.goes_on.set()
            for attempt in attempts:
                assert (await attempt.outcome()).result is DeliveryResult.SUCCESS
        assert disk.batches == [1, 1, 4]
    assert types(tmp_path / "a") == [0, 5, 1, 2, 3, 4]


async def test_what_follows_a_line_that_fails_spends_no_attempt(
    fake_time: FakeTime, tmp_path: Path
) -> None:
    def fill_up(folder: Path, name: str, lines: Sequence[Line]) -> Any:
        return 1, AppendError("No space left on device") if len(lines) > 1 else None

    async with registry(fake_time, tmp_path) as made:
        handler = made.create_handler(destination("File", "file:///a", timeout_seconds=AMPLE))
        with patch("pillion_sidecar.handlers.folder.append", fill_up):
            attempts = [Attempt(handler, fake_time, body(number)) for number in range(4)]
            told = [await attempt.outcome() for attempt in attempts]
    assert [one.result for one in told[:2]] == [DeliveryResult.SUCCESS] * 2
    assert [one.detail for one in told[2:]] == ["file a: No space left on device"] * 2
    assert [one.spends_attempt for one in told[2:]] == [True, False]


@pytest.mark.parametrize(
    ("waits", "result", "doing"),
    [
        (False, DeliveryResult.POST_DELIVERY_ERROR, "writing to the disk"),
        (True, DeliveryResult.ERROR, "waiting for other lines of the file"),
    ],
)
async def test_what_has_timed_out_is_not_written_later(
    fake_time: FakeTime, tmp_path: Path, waits: bool, result: DeliveryResult, doing: str
) -> None:
    async with registry(fake_time, tmp_path) as made:
        with slow_disk() as disk:
            first = await begin(made, fake_time, "file:///a", 1)
            given = {"timeout_seconds": TIMEOUT}
            second = await begin(made, fake_time, "file:///a" if waits else "file:///b", 2, **given)
            fake_time.advance(TIMEOUT)
            await asyncio.sleep(0)
            (told,) = second.told
            assert (told.result, told.detail) == (result, f"timed out after 30 s while {doing}")
            await asyncio.sleep(0)
            disk.goes_on.set()
            assert (await first.outcome()).result is DeliveryResult.SUCCESS
    assert types(tmp_path / "a") == [1]


async def test_options_roll_the_file(fake_time: FakeTime, tmp_path: Path) -> None:
    options = FileOptions(max_bytes=1024, max_files=2)
    async with registry(fake_time, tmp_path) as made:
        for number in range(60):
            attempt = await begin(made, fake_time, "file:///a", number, options=options)
            await attempt.outcome()
    found = sizes(tmp_path)
    assert list(found) == ["a", "a.1", "a.2"]
    assert max(found.values()) <= 1024
    assert types(tmp_path / "a")[-1] == 59


async def test_a_cause_is_told_with_the_file(fake_time: FakeTime, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    async with registry(fake_time, tmp_path) as made:
        told = await (await begin(made, fake_time, "file:///a", 1)).outcome()
        secret = await (await begin(made, fake_time, "file:///a", 1, url_is_secret=True)).outcome()
    assert told.result is secret.result is DeliveryResult.ERROR
    assert told.detail == "file a: it is not a regular file; name another one"
    assert secret.detail == "its file: it is not a regular file; name another one"


async def test_without_a_delivery_folder_the_destination_is_held(fake_time: FakeTime) -> None:
    async with registry(fake_time, None) as made:
        told = await (await begin(made, fake_time, "file:///a", 1)).outcome()
    assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.PROTOCOL)
    assert "--delivery-folder" in told.detail


@pytest.mark.parametrize("url", ["file:///../a", "file:////etc/a", "file:///a/b", "file:///a.1"])
async def test_a_name_elsewhere_holds_the_destination(
    fake_time: FakeTime, tmp_path: Path, url: str
) -> None:
    async with registry(fake_time, tmp_path / "folder") as made:
        told = await (await begin(made, fake_time, url, 1)).outcome()
    assert told.hold is HoldCause.DESTINATION
    assert sizes(tmp_path) == {}


async def test_what_a_line_cannot_express_is_fatal(fake_time: FakeTime, tmp_path: Path) -> None:
    async with registry(fake_time, tmp_path) as made:
        handler = made.create_handler(destination("File", "file:///a"))
        told = await Attempt(handler, fake_time, b"[]").outcome()
    assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, None)


def test_a_line_can_be_published_again() -> None:
    of = indication(
        b'{"class":"CIM_AlertIndication","properties":{"AlertType":5,"Description":"a\\nb"}}',
        identifier="i-1",
        source="/station/7",
        group="g",
    )
    line = render_line(delivery(of, sequence_context="c", sequence_number=4, correlated=True))
    assert line.count(b"\n") == 1
    told = json.loads(line)
    assert told == {
        "class": "CIM_AlertIndication",
        "properties": {
            "AlertType": 5,
            "Description": "a\nb",
            "IndicationFilterName": "severe",
            "SequenceContext": "c",
            "SequenceNumber": 4,
            "CorrelatedIndications": ["i-1"],
        },
        "source": "/station/7",
        "group": "g",
    }
    told["properties"] |= {"PerceivedSeverity": 5, "ProbableCause": 52}
    decoded = decode_object(told, schema=load_schema())
    assert (decoded.class_name, decoded.source, decoded.group) == (
        "CIM_AlertIndication",
        "/station/7",
        "g",
    )


async def test_a_deliverer_writes_what_was_published(tmp_path: Path) -> None:
    folder, config = tmp_path / "files", tmp_path / "config"
    folder.mkdir()
    config.mkdir()
    documents = resources(
        listener("archive", "file:///alerts.ndjson", protocol="File", file={"maxFiles": 1})
    )
    async with running(config, *documents, delivery_folder=folder) as run:
        await run.publish(*alerts(0, 3))
        await run.delivered("archive", 3)
    lines = (folder / "alerts.ndjson").read_text(encoding="utf-8").splitlines()
    told = [json.loads(line)["properties"] for line in lines]
    assert [one["IndicationIdentifier"] for one in told] == ["0", "1", "2"]
    assert {one["IndicationFilterName"] for one in told} == {"alerts"}
