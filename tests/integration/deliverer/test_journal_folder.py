"""What a deliverer does with a folder that it cannot use, or not as it is asked to."""

import os
import signal
from contextlib import suppress
from pathlib import Path
from zlib import crc32

import pytest

from pillion_sidecar.app import StartFailed
from support.listening import listening
from support.resources import JSON, write
from support.running import alert, alerts, later, listener, resources, running
from support.sidecar import sidecar

NOWHERE = "http://127.0.0.1:9/"


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[JSON]:
    """The log records of one event."""
    return [record.__dict__ for record in caplog.records if record.__dict__.get("event") == name]


def contents(folder: Path) -> dict[str, bytes]:
    """The files of a folder, but for one that the deliverer renames or removes meanwhile."""
    found = {}
    for path in sorted(folder.iterdir()):
        with suppress(FileNotFoundError, IsADirectoryError):
            found[path.name] = path.read_bytes()
    return found


async def refused(config: Path, journal: Path | None, *documents: JSON) -> str:
    """Start in vain; return what is said."""
    with pytest.raises(StartFailed) as refusal:
        async with running(config, *documents, journal=journal):
            pass
    return str(refusal.value)


# ---------------------------------------------------------------------- durability


@pytest.mark.parametrize("durability", ["Disk", "StateOnly"])
async def test_a_service_that_asks_for_a_disk_is_refused_without_one(
    durability: str, config: Path
) -> None:
    documents = resources(listener("ops", NOWHERE), durability=durability)
    said = await refused(config, None, *documents)
    assert "IndicationService/default" in said
    assert "spec.durability" in said
    assert "Start it with --journal DIR, or write Memory." in said


async def test_in_memory_a_journal_that_lies_there_is_left_alone_and_told(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops:
        to_ops = listener("ops", ops.url)
        async with running(config, *resources(to_ops), journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="durable")
            await run.kill()
        ops.behave()
        before = contents(journal)
        in_memory = resources(to_ops, durability="Memory")
        async with running(config, *in_memory, journal=journal, time=later(run.time, 1)) as again:
            await again.publish(*alerts(2, 1), ack="delivered")
        (told,) = events(caplog, "journal-unused")
        assert told["folder"] == str(journal)
        assert of_journal(contents(journal)) == of_journal(before)
        documents = resources(to_ops)
        async with running(config, *documents, journal=journal, time=later(run.time, 2)) as third:
            await third.settled()
    assert ops.identifiers == ["2", "0", "1"]


async def test_in_memory_a_folder_without_a_journal_is_not_worth_a_word(
    config: Path, journal: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    documents = resources(listener("ops", NOWHERE), durability="Memory")
    async with running(config, *documents, journal=journal):
        pass
    async with running(config, *documents, journal=tmp_path):
        pass
    assert events(caplog, "journal-unused") == []
    # A history alone, which is empty.
    assert of_journal(contents(tmp_path)) == {}
    assert contents(tmp_path)[f"history-{1:020d}.outcomes"] == b""


def of_journal(files: dict[str, bytes]) -> dict[str, bytes]:
    """Without the history, to which any run adds."""
    return {name: data for name, data in files.items() if not name.startswith("history")}


@pytest.mark.parametrize(
    ("first", "second"),
    [("Disk", "Memory"), ("Memory", "Disk"), ("StateOnly", "Disk"), ("Disk", "StateOnly")],
)
async def test_another_durability_counts_from_the_next_start_on(
    first: str, second: str, config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as ops:
        to_ops = listener("ops", ops.url)
        documents = resources(to_ops, durability=first)
        async with running(config, *documents, journal=journal) as run:
            await run.reload(*resources(to_ops, durability=second))
            (warned,) = events(caplog, "configuration-warning")
            message = f"durability stays {first} until the deliverer is started again"
            assert warned["msg"] % warned["args"] == f"{message}; the service asks for {second}"
            assert (await run.get("/v1/queues")).document["durability"] == first
            answer = await run.publish(*alerts(0, 1), ack="durable")
            assert answer.status == (200 if first == "Disk" else 400)
            assert (await run.publish(*alerts(1, 1), ack="delivered")).status == 200
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            assert (await again.get("/v1/queues")).document["durability"] == second


# ---------------------------------------------------------------------- durability StateOnly


async def test_without_bodies_a_restart_says_what_is_lost_and_lets_it_be_sent_again(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as ops, listening() as other:
        documents = resources(
            listener("ops", ops.url, sequenceIdentifiers="Send"),
            listener("other", other.url),
            durability="StateOnly",
        )
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="delivered")
            ops.behave(status=503)
            await run.publish(*alerts(2, 3))
            await run.delivered("other", 5)
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        caplog.clear()
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            (lost,) = events(caplog, "lost-at-restart")
            assert (lost["destination"], lost["count"]) == ("ops", 3)
            assert again.deliverer.delivery.pending == 0
            answer = await again.publish(*alerts(0, 6), ack="delivered")
            # What was settled everywhere is remembered; what was lost is not.
            assert (answer.document["duplicate"], answer.document["accepted"]) == (2, 4)
            assert answer.document["delivered"] == 6
    assert ops.identifiers == ["0", "1", "2", "3", "4", "5"]
    identifiers = [outcome.identifier for outcome in ops.outcomes]
    assert [one.number for one in identifiers if one is not None] == [0, 1, 0, 1, 2, 3]
    assert len({one.context for one in identifiers if one is not None}) == 2


async def test_without_bodies_there_is_no_body_on_the_disk(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), durability="StateOnly")
        async with running(config, *documents, journal=journal) as run:
            await run.publish(alert("1", Description="told to nobody"))
            await run.failed("ops", 1)
            await run.kept()
            written = b"".join(contents(journal).values())
    assert b"ops" in written
    assert b"told to nobody" not in written


# ---------------------------------------------------------------------- the folder


async def test_a_second_deliverer_on_one_folder_is_refused_and_the_first_goes_on(
    config: Path, journal: Path
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            said = await refused(config, journal)
            assert f"{str(journal)!r} is in use by process {os.getpid()}" in said
            assert "stop that one, or name another folder" in said
            assert (await run.publish(*alerts(0, 1), ack="delivered")).status == 200
        # It lets go of it at its end.
        async with running(config, journal=journal, time=later(run.time, 1)):
            pass


def make_newer(journal: Path) -> str:
    """Have a later version have written the only segment; return its name."""
    (segment,) = journal.glob("*.segment")
    newer = bytearray(segment.read_bytes())
    newer[8] = 7
    newer[60:64] = crc32(newer[:60]).to_bytes(4, "little")
    segment.write_bytes(newer)
    return segment.name


async def test_a_journal_of_a_newer_version_is_refused_and_left_alone(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="durable")
            await run.kill()
    segment = make_newer(journal)
    before = contents(journal)
    said = await refused(config, journal)
    assert f"{segment!r} has layout version 7, and this program knows 1" in said
    assert contents(journal) | {"lock": b""} == before | {"lock": b""}


async def test_a_file_in_place_of_the_folder_is_named(config: Path) -> None:
    documents = resources(listener("ops", NOWHERE))
    async with running(config, *documents):
        before = contents(config)
    file = config / "resources.yaml"
    said = await refused(config, file)
    assert f"journal folder {str(file)!r}: Not a directory; name a folder, not a file" in said
    assert contents(config) == before


async def test_a_folder_whose_parent_is_missing_is_named(config: Path, tmp_path: Path) -> None:
    missing = tmp_path / "not" / "there"
    said = await refused(config, missing, *resources(listener("ops", NOWHERE)))
    assert str(missing) in said
    assert "no such file or directory" in said.lower()


@pytest.fixture
def forbidden(tmp_path: Path) -> Path:
    """A folder in which nothing can be made."""
    if os.getuid() == 0:
        # The modes of folders do not keep root out; the kernel does.
        return Path("/sys/kernel")
    folder = tmp_path / "forbidden"
    folder.mkdir(mode=0o555)
    return folder


@pytest.mark.parametrize("name", ["", "journal"])
async def test_a_folder_that_cannot_be_written_is_named(
    name: str, forbidden: Path, config: Path
) -> None:
    documents = resources(listener("ops", NOWHERE))
    said = await refused(config, forbidden / name, *documents)
    assert f"journal folder {str(forbidden / name)!r}: " in said
    assert "let the user that the deliverer runs as read, write and search it" in said


async def test_what_else_lies_in_the_folder_is_left_alone(config: Path, journal: Path) -> None:
    (journal / "lost+found").mkdir(parents=True)
    (journal / "lost+found" / "0000000000000009.segment").write_bytes(b"from another time")
    (journal / "README").write_text("mine")
    (journal / "9.segment").write_bytes(b"mine too")
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="durable")
            await run.kill()
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            await again.settled()
    assert ops.identifiers == ["0", "1"]
    found = (journal / "lost+found" / "0000000000000009.segment").read_bytes()
    assert found == b"from another time"
    assert (journal / "README").read_text() == "mine"
    assert (journal / "9.segment").read_bytes() == b"mine too"


# ---------------------------------------------------------------------- the process


async def test_the_command_goes_on_after_a_kill(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        write(config, *resources(listener("ops", ops.url, retry={"intervalSeconds": 1})))
        async with sidecar(config, "--journal", str(journal)) as process:
            answer = await process.publish(*alerts(0, 50), query="ack=durable")
            assert (answer.status, answer.document["durable"]) == (200, True)
            await ops.treated_badly()
            process.process.send_signal(signal.SIGKILL)
            assert await process.ended() == -signal.SIGKILL
        ops.behave()
        async with sidecar(config, "--journal", str(journal)) as process:
            await ops.delivered(50)
            answer = await process.publish(*alerts(49, 2), query="ack=delivered")
            assert (answer.document["duplicate"], answer.document["accepted"]) == (1, 1)
            assert [one["count"] for one in process.events("recovered")] == [50]
            # One at a time.
            async with sidecar(config, "--journal", str(journal)) as second:
                assert await second.ended() == 1
                said = "".join(second.said)
            assert f"in use by process {process.process.pid}" in said
            assert "Traceback" not in said
            process.process.send_signal(signal.SIGTERM)
            assert await process.ended() == 0
    assert ops.identifiers == [str(number) for number in range(51)]


async def test_a_first_configuration_that_is_refused_leaves_the_journal_as_it_is(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), durability="StateOnly")
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2))
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        two = resources(listener("ops", ops.url), listener("other", NOWHERE))
        write(config, *two)
        with pytest.raises(StartFailed, match="--max-destinations"):
            async with running(
                config, journal=journal, time=later(run.time, 1), maximum_destinations=1
            ):
                pass
        ops.behave()
        async with running(config, *documents, journal=journal, time=later(run.time, 60)) as again:
            answer = await again.publish(*alerts(0, 2), ack="delivered")
            assert answer.document["accepted"] == 2
