"""Which journal a deliverer has: its durability, its bounds, and what is said at the start."""

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.clock import LoopTimers, SystemClock
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.copies import JournalCopies
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.history.files import LOCK_NAME
from pillion_sidecar.history.recorder import History
from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.files import FolderError, LockedError, SystemFile
from pillion_sidecar.journal.limits import MIB, MINIMUM_BYTES, JournalSettings
from pillion_sidecar.journal.ports import Place
from pillion_sidecar.journal_runtime import (
    ADOPTING_NAME,
    DEFAULT_BYTES,
    JournalFailed,
    JournalFolder,
    check_copies,
    fail,
    journal_settings,
    wanted_durability,
)
from pillion_sidecar.settings import Settings
from support.journal_owner import Owner as PlainOwner
from support.outcomes import identifiers, outcome

FOLDER = Path("journal")


# ---------------------------------------------------------------------- what is wanted


@pytest.mark.parametrize(
    ("asked", "folder", "wanted"),
    [
        (None, None, Durability.MEMORY),
        (None, FOLDER, Durability.DISK),
        (Durability.MEMORY, None, Durability.MEMORY),
        (Durability.MEMORY, FOLDER, Durability.MEMORY),
        (Durability.STATE_ONLY, FOLDER, Durability.STATE_ONLY),
        (Durability.DISK, FOLDER, Durability.DISK),
    ],
)
def test_durability_is_what_the_service_says_else_the_safest_there_is(
    asked: Durability | None, folder: Path | None, wanted: Durability
) -> None:
    assert wanted_durability(IndicationService(durability=asked), folder=folder) is wanted


@pytest.mark.parametrize("asked", [Durability.STATE_ONLY, Durability.DISK])
def test_a_disk_that_the_deliverer_was_not_given_is_refused(asked: Durability) -> None:
    with pytest.raises(ConfigurationError) as refused:
        wanted_durability(IndicationService(name="alerts", durability=asked), folder=None)
    assert str(refused.value) == (
        "IndicationService/alerts: spec.durability: needs a journal, and this deliverer was not"
        f" given a folder for one (value {asked.value}). Start it with --journal DIR, or write"
        " Memory."
    )


def test_copies_without_a_folder_are_refused_by_their_field() -> None:
    service = IndicationService(name="store", journal_copies=JournalCopies(maximum_bytes="64Mi"))
    check_copies(service, folder=FOLDER)
    check_copies(IndicationService(), folder=None)
    with pytest.raises(ConfigurationError) as refused:
        check_copies(service, folder=None)
    (problem,) = refused.value.problems
    assert problem.field == "spec.journalCopies"
    assert "--journal DIR" in problem.remedy


def made_settings(service: IndicationService, durability: Durability) -> JournalSettings:
    return journal_settings(service, durability, identity_seconds=90_000.0)


def test_a_journal_takes_a_gibibyte_or_four_fifths_of_its_volume() -> None:
    settings = made_settings(IndicationService(), Durability.STATE_ONLY)
    assert (settings.durability, settings.maximum_bytes) == (Durability.STATE_ONLY, DEFAULT_BYTES)
    service = IndicationService(storage_bytes=100 * MIB)
    assert made_settings(service, Durability.DISK).maximum_bytes == 80 * MIB


def test_a_journal_remembers_identities_as_its_service_says() -> None:
    service = IndicationService(duplicate_window_entries=77)
    settings = journal_settings(service, Durability.DISK, identity_seconds=5.0)
    assert (settings.identities, settings.identity_seconds) == (77, 5.0)


def test_the_least_volume_is_enough_and_one_byte_less_is_refused_with_what_would_do() -> None:
    least = MINIMUM_BYTES * 5 // 4
    settings = made_settings(IndicationService(storage_bytes=least), Durability.DISK)
    assert settings.maximum_bytes == MINIMUM_BYTES
    with pytest.raises(ConfigurationError) as refused:
        made_settings(IndicationService(name="a", storage_bytes=least - 1), Durability.DISK)
    assert str(refused.value) == (
        "IndicationService/a: spec.deliverer.storage.sizeLimit: is too small for a journal"
        f" (value {least - 1}). Write at least 10Mi."
    )
    settings = made_settings(IndicationService(storage_bytes=10 * MIB), Durability.DISK)
    assert settings.maximum_bytes >= MINIMUM_BYTES


# ---------------------------------------------------------------------- the folder


class Opened:
    """A journal's folder on the loop that runs."""

    def __init__(self, folder: Path | None) -> None:
        self.timers = LoopTimers(loop=asyncio.get_running_loop())
        self.owner = PlainOwner()
        self.history = History(clock=SystemClock(), timers=self.timers)
        self.folder = JournalFolder(
            Settings(resources=Path("resources"), journal=folder),
            clock=SystemClock(),
            timers=self.timers,
            identities=self.owner,
            history=self.history,
        )

    async def open(self, **service: Any) -> Any:
        opened = await self.folder.open(IndicationService(**service), identity_seconds=60.0)
        if opened is not None:
            opened[0].attach(self.owner)
        return opened

    def close(self) -> None:
        self.folder.close()
        self.timers.close()


def said(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(record.event, record.getMessage()) for record in caplog.records]  # type: ignore[attr-defined]


async def test_in_memory_a_folder_is_neither_made_nor_locked(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Opened(tmp_path / "journal")
    assert await opened.open(durability=Durability.MEMORY) is None
    assert (opened.folder.opened, opened.folder.durability) == (True, Durability.MEMORY)
    assert not (tmp_path / "journal").exists()
    opened.close()
    assert said(caplog) == []


async def test_in_memory_a_history_is_kept_in_a_folder_that_exists(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    assert await opened.open(durability=Durability.MEMORY) is None
    opened.history.add(outcome(1))
    opened.close()
    assert await asyncio.to_thread(identifiers, tmp_path) == ["i1"]


async def test_what_keeps_a_history_from_its_folder_is_named(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    lock = tmp_path / LOCK_NAME
    lock.mkdir()
    opened = Opened(tmp_path)
    await opened.open(durability=Durability.MEMORY)
    opened.close()
    ((event, message),) = said(caplog)
    assert event == "discards-not-listed"
    assert message.startswith(f"the history cannot be kept in {lock}: Is a directory")


async def test_a_journal_that_is_left_alone_is_told_of(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = Opened(tmp_path)
    assert await first.open() is not None
    assert first.folder.durability is Durability.DISK
    first.close()
    assert said(caplog) == []
    second = Opened(tmp_path)
    assert await second.open(durability=Durability.MEMORY) is None
    second.close()
    assert said(caplog) == [
        (
            "journal-unused",
            f"the journal in {tmp_path} is left alone, since durability is Memory; what is pending"
            " in it is not delivered",
        )
    ]


async def test_what_keeps_a_segment_from_being_prepared_is_told_with_the_folder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def allocate(_self: SystemFile, _offset: int, _size: int) -> None:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(SystemFile, "allocate", allocate)
    opened = Opened(tmp_path)
    with pytest.raises(FolderError) as failed:
        await opened.open()
    assert str(failed.value) == (
        f"journal folder {str(tmp_path)!r}: Input/output error; see to the disk or name another"
        " folder"
    )
    opened.close()


async def test_a_folder_is_locked_until_it_is_closed_however_often(tmp_path: Path) -> None:
    first, second = Opened(tmp_path), Opened(tmp_path)
    await first.open()
    with pytest.raises(LockedError):
        await second.open()
    assert not second.folder.opened
    second.close()
    first.close()
    first.close()
    third = Opened(tmp_path)
    await third.open()
    third.close()


async def test_what_a_crash_has_left_of_adoptions_goes_at_a_start(tmp_path: Path) -> None:
    left = tmp_path / ADOPTING_NAME / ("e" * 32)
    left.mkdir(parents=True)
    (left / "0000000000000001.segment").write_bytes(bytes(100))
    opened = Opened(tmp_path)
    await opened.open()
    assert not (tmp_path / ADOPTING_NAME).exists()
    opened.close()


async def test_a_folder_tells_what_its_journal_may_still_take(tmp_path: Path) -> None:
    opened = Opened(tmp_path)
    assert (opened.folder.path, opened.folder.room) == (tmp_path, 0)
    journal, _ = await opened.open(storage_bytes=100 * MIB)
    taken = journal.statistics.total_bytes
    assert taken > 0
    assert opened.folder.room == 80 * MIB - taken
    opened.close()


async def test_what_had_its_body_in_memory_is_told_by_destination(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    first = Opened(tmp_path)
    journal, _ = await first.open(durability=Durability.STATE_ONLY)
    for name, count in (("south", 2), ("mail", 1)):
        index = journal.destination(uid=f"uid-{name}", name=name)
        for number in range(count):
            one = Indication(body=b"{}", class_name="CIM_AlertIndication", accepted_at=1.0)
            journal.append(one, [Place(index, 0, number)])
            first.owner.pending_places[one.id] = {Place(index, 0, number)}
    first.close()
    second = Opened(tmp_path)
    await second.open(durability=Durability.STATE_ONLY)
    second.close()
    told = [message for event, message in said(caplog) if event == "lost-at-restart"]
    assert told == [
        "1 indications for mail are lost with the run before: durability was StateOnly",
        "2 indications for south are lost with the run before: durability was StateOnly",
    ]


async def test_another_durability_is_told_of_and_not_taken_over(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    opened = Opened(tmp_path)
    await opened.open()
    opened.folder.warn_of_change(IndicationService())
    opened.folder.warn_of_change(IndicationService(durability=Durability.DISK))
    assert said(caplog) == []
    opened.folder.warn_of_change(IndicationService(durability=Durability.MEMORY))
    assert said(caplog) == [
        (
            "configuration-warning",
            "durability stays Disk until the deliverer is started again; the service asks for"
            " Memory",
        )
    ]
    assert opened.folder.durability is Durability.DISK
    opened.close()


# ---------------------------------------------------------------------- whom it asks


def test_a_failed_disk_is_told_by_its_folder_and_its_cause() -> None:
    error = OSError(5, "Input/output error")
    with pytest.raises(JournalFailed) as failed:
        fail(Path("/journal"), error)
    assert failed.value.__cause__ is error
    assert str(failed.value) == (
        "the journal's disk failed: /journal: Input/output error; see to the disk, and start the "
        "deliverer again"
    )
