"""Disks on bad days: full, broken, rotten, or too small for a listener that is dead."""

import asyncio
import logging
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import aiohttp
import pytest

from pillion_sidecar.history.discards import read_discards
from pillion_sidecar.history.outcome import OutcomeQuery
from pillion_sidecar.history.reading import Kept
from pillion_sidecar.journal.files import LOCK_NAME
from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.journal_runtime import JournalFailed
from pillion_sidecar.testing import FakeTime
from support.chaos import small_disk
from support.listening import listening
from support.resources import JSON, alert_filter, subscription, write
from support.running import MOST_TURNS, Running, alert, alerts, later, listener, resources, running
from support.sidecar import sidecar
from support.system_disk import SystemDisk

#: A journal of 8 MiB, the least there is.
SMALL: JSON = {"storage": {"sizeLimit": "10Mi"}}
PADDING = "x" * 10_000


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[JSON]:
    """The log records of one event."""
    return [record.__dict__ for record in caplog.records if record.__dict__.get("event") == name]


def big(first: int, count: int, **properties: object) -> list[JSON]:
    """Alerts of 10 kB."""
    numbers = range(first, first + count)
    return [alert(str(number), Description=PADDING, **properties) for number in numbers]


# ---------------------------------------------------------------------- full


async def fill(run: Running, first: int) -> int:
    """Publish until it is refused; return how many were accepted in all."""
    for number in range(first, first + 1000):
        answer = await run.publish(*big(number, 1), ack="durable")
        if answer.status != 200:
            assert answer.status == 429
            assert float(answer.headers["Retry-After"]) >= 1
            (refused,) = answer.document["refused"]
            assert "the journal's disk is full" in refused["reason"]
            assert "destination" not in refused
            return number
    raise AssertionError("a full disk takes everything")


async def test_a_full_disk_refuses_delivers_on_and_opens_again_by_itself(
    config: Path, journal: Path, disk: SystemDisk, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), deliverer=SMALL)
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="durable")
            await run.failed("ops", 1)
            disk.full = True
            count = await fill(run, 1)
            assert len(events(caplog, "journal-full")) == 1
            # What is pending is delivered, and that it was is noted.
            ops.behave()
            run.retry("ops")
            await run.settled()
            await run.kept()
            assert (await run.publish(*big(count, 1))).status == 429
            disk.full = False
            while (await run.publish(*big(count, 1), ack="durable")).status != 200:
                run.time.advance(1.0)
            # It is told once twice the margin is reserved, which may be a step later.
            while not events(caplog, "journal-writable"):
                await run.probe("/healthz")
            await run.settled()
            await run.kept()
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            assert again.deliverer.delivery.pending == 0
    assert ops.identifiers == [str(number) for number in range(count + 1)]


async def test_a_start_on_a_full_disk_delivers_what_is_there(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), deliverer=SMALL)
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 3), ack="durable")
            await run.kill()
        ops.behave()
        disk.full = True
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            refused = await again.publish(*alerts(3, 1))
            assert refused.status == 429
            assert "the journal's disk is full" in refused.document["refused"][0]["reason"]
            await again.settled()
            disk.full = False
            while (await again.publish(*alerts(3, 1), ack="delivered")).status != 200:
                again.time.advance(1.0)
    assert ops.identifiers == ["0", "1", "2", "3"]


async def test_a_start_on_a_disk_that_others_keep_full_delivers_what_is_there(
    config: Path, tmp_path: Path
) -> None:
    with small_disk(tmp_path / "small", mebibytes=14) as small:
        if small is None:
            pytest.skip("this user must not mount a small disk")
        journal = small.folder / "journal"
        async with listening(status=503) as ops:
            documents = resources(listener("ops", ops.url), deliverer=SMALL)
            async with running(config, *documents, journal=journal) as run:
                await run.publish(*alerts(0, 3), ack="durable")
                await run.kill()
            ops.behave()
            # Nor is there a page for the process id.
            (journal / LOCK_NAME).write_bytes(b"")
            small.fill()
            async with running(config, journal=journal, time=later(run.time, 60)) as again:
                await again.settled()
        assert ops.identifiers == ["0", "1", "2"]


# ---------------------------------------------------------------------- broken


async def break_down(config: Path, journal: Path, disk: SystemDisk, *documents: JSON) -> None:
    """Run until the disk is broken."""
    async with running(config, *documents, journal=journal) as run:
        await run.publish(*alerts(0, 2), ack="durable")
        disk.break_down()
        answer = await run.publish(*alerts(2, 1), ack="durable", timeout="60")
        # It was never told to be safe.
        assert answer.document.get("durable") is not True
        await run.ended


async def test_a_disk_that_breaks_ends_the_deliverer_and_nothing_durable_is_lost(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        with pytest.raises(ExceptionGroup, match="unhandled errors in a TaskGroup") as failure:
            await break_down(config, journal, disk, *documents)
        assert "the journal's disk failed" in str(failure.value.exceptions[0])
        disk.broken = None
        ops.behave()
        async with running(config, journal=journal, time=later(FakeTime(), 60)) as again:
            await again.publish(*alerts(2, 1))
            await again.settled()
    assert ops.identifiers == ["0", "1", "2"]


def delete_segments(journal: Path) -> None:
    for segment in journal.glob("*.segment"):
        # The deliverer may remove it first.
        segment.unlink(missing_ok=True)


def move_the_folder(journal: Path) -> None:
    journal.rename(journal.with_name("moved"))


def replace_the_folder(journal: Path) -> None:
    move_the_folder(journal)
    shutil.copytree(journal.with_name("moved"), journal)


@pytest.mark.parametrize("harm", [delete_segments, move_the_folder, replace_the_folder])
async def test_nothing_is_durable_in_a_segment_that_no_start_finds(
    config: Path, journal: Path, harm: Callable[[Path], None]
) -> None:
    async def harm_the_journal() -> None:
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="durable")
            harm(journal)
            answer = await run.publish(*alerts(2, 1), ack="durable", timeout="60")
            assert answer.document.get("durable") is not True
            await run.ended

    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        with pytest.raises(ExceptionGroup, match="unhandled errors in a TaskGroup") as failure:
            await harm_the_journal()
    assert "the newest segment was deleted or moved" in str(failure.value.exceptions[0])


async def test_a_journal_that_is_removed_is_told_in_one_line_that_names_it(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops:
        write(config, *resources(listener("ops", ops.url)))
        async with sidecar(config, "--journal", str(journal)) as process:
            first = await process.publish(*alerts(0, 1), query="ack=durable")
            assert first.document["durable"] is True
            shutil.rmtree(journal)
            # It may end before it has answered; it never says that this is on disk.
            with suppress(aiohttp.ClientError):
                second = await process.publish(*alerts(1, 1), query="ack=durable")
                assert second.document.get("durable") is not True
            await process.logged("deliverer-failed")
            assert await process.ended() == 1
    (failed,) = process.events("deliverer-failed")
    told = (
        f"the journal's disk failed: {journal}: the newest segment was deleted or moved: "
        f"{segment_name(1)}; see to the disk, and start the deliverer again"
    )
    assert failed["message"] == f"the deliverer stops, since a part of it failed: {told}"
    assert process.said == [f"pillion sidecar: {told}\n"]
    assert not [record for record in process.log if "exception" in record]
    # Nobody knows what the next start will find.
    assert not process.events("kept-at-shutdown")
    (left,) = process.events("left-at-shutdown")
    # What became of the first attempt may be written, and fail, before the second one is taken.
    assert (left["destination"], left["count"] in (1, 2)) == ("ops", True)


async def test_a_disk_that_breaks_at_the_end_is_not_passed_over(
    config: Path, journal: Path, disk: SystemDisk
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        with pytest.raises(JournalFailed, match="Input/output error"):
            await break_down_at_the_end(config, journal, disk, *documents)


async def break_down_at_the_end(
    config: Path, journal: Path, disk: SystemDisk, *documents: JSON
) -> None:
    """Break the disk once nothing is delivered any more, with something to write on it."""
    async with running(config, *documents, journal=journal) as run:
        await run.publish(*alerts(0, 1), ack="durable")
        disk.hold()
        await run.publish(*alerts(1, 1), ack="accepted")
        await asyncio.to_thread(disk.holding.wait)
        queue = run.queue("ops")
        run.stop.set()
        for _ in range(MOST_TURNS):
            if queue.removed:
                break
            await asyncio.sleep(0)
        disk.break_down()
        disk.go_on()
        await run.ended


#: The command, on a disk that breaks as soon as there is a file of this name.
PROGRAM = """
import errno, os, sys
from pillion_sidecar.journal.files import SystemFile

broken = sys.argv[1]

def unless_broken(call):
    def wrapped(file, *arguments):
        if os.path.exists(broken):
            raise OSError(errno.EIO, os.strerror(errno.EIO))
        call(file, *arguments)
    return wrapped

SystemFile.sync = unless_broken(SystemFile.sync)
SystemFile.write_through = unless_broken(SystemFile.write_through)
from pillion_cli.main import main
sys.exit(main(sys.argv[2:]))
"""


async def test_the_command_ends_with_1_where_its_disk_breaks(
    config: Path, journal: Path, tmp_path: Path
) -> None:
    async with listening() as ops:
        write(config, *resources(listener("ops", ops.url)))
        program = ("-c", PROGRAM, str(tmp_path / "broken"))
        async with sidecar(config, "--journal", str(journal), program=program) as process:
            await process.publish(*alerts(0, 1), query="ack=delivered")
            write(tmp_path, file="broken")
            # What was settled may have been written before that, and then nothing else would be.
            with suppress(aiohttp.ClientError):
                await process.publish(*alerts(1, 1), query="ack=accepted")
            await process.logged("deliverer-failed")
            assert await process.ended() == 1
            (failed,) = process.events("deliverer-failed")
        assert "Input/output error" in str(failed)


# ---------------------------------------------------------------------- rotten


def rot(journal: Path, what: bytes) -> tuple[str, int]:
    """Flip a bit of the only place where these bytes are; return the file, and where."""
    (segment,) = (path for path in journal.glob("*.segment") if what in path.read_bytes())
    data = bytearray(segment.read_bytes())
    where = data.index(what)
    data[where] ^= 1
    segment.write_bytes(data)
    return segment.name, where


def quarantined(journal: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in journal.glob("*.damaged")}


async def test_of_a_rotten_journal_all_that_can_be_read_is_delivered(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url, sequenceIdentifiers="Send"))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            ops.behave(status=503)
            for number in range(1, 6):
                line = alert(str(number), Description=f"number {number} of five")
                await run.publish(line, ack="durable")
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        file, where = rot(journal, b"number 3 of five")
        ops.behave()
        caplog.clear()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            await again.settled()
            assert await again.metric("pillion_journal_damaged_records_total") == 1
            # Nobody knows what became of it: it may be sent again.
            answer = await again.publish(*alerts(2, 2), ack="delivered")
            assert (answer.document["duplicate"], answer.document["accepted"]) == (1, 1)
    taken = [one for one in ops.outcomes if one.verdict in ("delivered", "held")]
    came = [one.item.text("IndicationIdentifier") for one in taken]
    assert list(dict.fromkeys(came)) == ["0", "1", "2", "4", "5", "3"]
    found = {(one.identifier.context, one.identifier.number) for one in taken if one.identifier}
    before, after = dict.fromkeys(one.identifier.context for one in taken if one.identifier)
    # In a new context (D.2), with a gap where one is missing.
    assert found == {(before, 0), *((after, number) for number in (0, 1, 3, 4, 5))}
    (damage,) = events(caplog, "journal-damaged")
    assert damage["file"] == file
    assert damage["begin"] <= where < damage["end"]
    ((_, data),) = quarantined(journal).items()
    assert b"umber 3 of five" in data


async def test_what_rots_while_it_waits_is_discarded_and_told_and_the_rest_delivered(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url, sequenceIdentifiers="Omit"))
        async with running(config, *documents, journal=journal) as run:
            # Far more than are kept loaded.
            lines = [alert(str(n), Description=f"this is number {n}.") for n in range(200)]
            await run.publish(*lines, ack="durable")
            await run.failed("ops", 1)
            rot(journal, b"this is number 150.")
            ops.behave()
            run.retry("ops")
            await run.settled()
            assert await run.metric("pillion_journal_damaged_records_total") == 1
            assert (await run.books("ops"))["discarded"] == 1
    assert ops.identifiers == [str(number) for number in range(200) if number != 150]
    assert [one["reason"] for one in events(caplog, "indication-discarded")] == ["damaged"]
    assert len(events(caplog, "journal-damaged")) == 1


# ---------------------------------------------------------------------- too small


async def test_a_dead_listener_gives_up_its_oldest_and_the_others_get_everything(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as dead, listening() as good:
        documents = resources(
            listener("dead", dead.url),
            listener("good", good.url),
            deliverer=SMALL,
            # Else it would have no room for all.
            history={"bodies": "None"},
        )
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*big(0, 1), ack="durable")
            await run.failed("dead", 1)
            # It gives way once a retry has failed, too.
            run.retry("dead")
            await run.failed("dead", 2)
            for first in range(1, 601, 5):
                answer = await run.publish(*big(first, 5), ack="durable")
                assert answer.status == 200
                await run.delivered("good", first + 5)
            depth = run.queue("dead").depth
            await run.kept()
            query = OutcomeQuery(result="discarded")
            listed = await asyncio.to_thread(
                lambda: list(read_discards(Kept(folder=journal), query))
            )
            given_up = [one.identifier for one in listed]
            reasons = {one.reason for one in listed}
            assert reasons == {"queue-full"}
            assert given_up == [str(number) for number in range(601 - depth)]
            assert size(journal) <= 8 << 20
    assert good.identifiers == [str(number) for number in range(601)]


def size(folder: Path) -> int:
    """The bytes of its files, but for one that the deliverer renames or removes meanwhile."""
    total = 0
    for path in folder.iterdir():
        with suppress(FileNotFoundError):
            total += path.stat().st_size
    return total


async def test_a_dead_listener_that_must_lose_nothing_refuses_its_own_alone(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as dead, listening() as good:
        documents = resources(
            listener("dead", dead.url, queueFullPolicy="Reject"),
            listener("good", good.url),
            filters=(
                alert_filter("fives", query=f"{QUERY} WHERE AlertType = 5"),
                alert_filter("sixes", query=f"{QUERY} WHERE AlertType = 6"),
            ),
            subscriptions=(
                subscription("to-dead", "dead", of="sixes"),
                subscription("to-good", "good", of="fives"),
            ),
            deliverer=SMALL,
        )
        async with running(config, *documents, journal=journal) as run:
            count = 0
            while (answer := await run.publish(*big(count, 1), ack="durable")).status == 200:
                count += 1
            assert answer.status == 429
            (refused,) = answer.document["refused"]
            assert refused["destination"] == "dead"
            assert (
                refused["reason"]
                == "the journal is nearly full, and destination dead holds most of it"
            )
            for first in range(0, 600, 5):
                others = await run.publish(*big(1000 + first, 5, AlertType=5), ack="delivered")
                assert others.status == 200
            assert run.queue("dead").depth == count
            assert size(journal) <= 8 << 20


QUERY = "SELECT * FROM CIM_AlertIndication"
