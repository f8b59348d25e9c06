"""The list of discards, in files and in memory."""

import errno
import os
from array import array
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.indication import Indication
from pillion_sidecar.journal.discards import (
    FILES,
    TOLD_AGAIN_SECONDS,
    WRITE_SECONDS,
    DiscardFiles,
    DiscardRecorder,
    count_unlisted,
    discards_bytes,
    encode_discard,
    pending_in,
    read_discards,
)
from pillion_sidecar.journal.ports import Discard, DiscardQuery, Recovered, RecoveredQueue
from pillion_sidecar.testing import FakeTime
from support.chaos import small_disk

BEGAN = datetime(2026, 11, 22, 9, 0, tzinfo=UTC)
ALL = DiscardQuery()


def _discard(order: int, **fields: Any) -> Discard:
    settings: dict[str, Any] = {
        "time": BEGAN + timedelta(seconds=order),
        "destination": "siem",
        "subscription": "to-siem",
        "reason": "queue-full",
        "source": "test",
        "identifier": f"i{order}",
        "sequence_context": "default#journal-1#siem#1",
        "sequence_number": order,
        "queue": 3,
        "number": order,
        "id": 100 + order,
        **fields,
    }
    return Discard(**settings)


class _Worker:
    """Does what is submitted when it is told to."""

    def __init__(self) -> None:
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None], Any]] = []

    def submit(
        self,
        work: Callable[[], Any],
        done: Callable[[Any], None],
        failed: Callable[[OSError], None],
    ) -> None:
        self.jobs.append((work, done, failed))

    def drain(self) -> None:
        while self.jobs:
            work, done, failed = self.jobs.pop(0)
            try:
                result = work()
            except OSError as error:
                failed(error)
            else:
                done(result)

    def close(self) -> None:
        self.drain()


def _nothing(_: Discard) -> bool:
    return False


def _recorder(
    folder: Path, time: FakeTime, *, alone: bool = False, size: int = 1 << 20
) -> tuple[DiscardRecorder, _Worker, list[Discard]]:
    files, worker = DiscardFiles(folder, size=size), _Worker()
    told = files.open(_nothing)
    recorder = DiscardRecorder(timers=time)
    recorder.use(files, folder, worker=worker, writes_alone=alone)
    return recorder, worker, told


def _identifiers(folder: Path, query: DiscardQuery = ALL) -> list[str | None]:
    return [one.identifier for one in read_discards(folder, query)]


def test_the_count_of_what_is_unlisted_is_written_where_it_has_changed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = DiscardFiles(tmp_path, size=(FILES + 1) * 1000)
    files.open(_nothing)
    counts: list[bytes] = []
    write = os.pwrite

    def note(descriptor: int, data: bytes, at: int) -> int:
        if descriptor == files._lock:
            counts.append(data)
        return write(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", note)
    line = encode_discard(_discard(1))
    for _ in range(3):
        files.append(line)
    assert counts == []
    while not files.dropped:
        files.append(line)
    assert [int(one) for one in counts] == [files.dropped]
    files.close()


def test_the_files_list_every_discard_by_destination_reason_and_time(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    recorder, _, _ = _recorder(tmp_path, fake_time)
    for number in range(10):
        recorder.add(_discard(number, destination="siem" if number % 2 else "noc"))
    recorder.add(_discard(10, reason="purged", identifier=None, sequence_number=None, number=None))
    recorder.close()
    assert list(read_discards(tmp_path, ALL))[1] == _discard(1)
    assert len(_identifiers(tmp_path)) == 11
    assert _identifiers(tmp_path, DiscardQuery(destination="noc")) == ["i0", "i2", "i4", "i6", "i8"]
    assert _identifiers(tmp_path, DiscardQuery(reason="purged")) == [None]
    since = DiscardQuery(since=BEGAN + timedelta(seconds=8))
    assert _identifiers(tmp_path, since) == ["i8", "i9", None]


def test_with_a_journal_nothing_is_written_but_before_a_commit(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    recorder, worker, _ = _recorder(tmp_path, fake_time)
    recorder.add(_discard(1))
    fake_time.advance(10 * WRITE_SECONDS)
    assert not worker.jobs
    recorder.write()
    worker.drain()
    assert _identifiers(tmp_path) == ["i1"]


def test_without_a_journal_they_are_written_soon(tmp_path: Path, fake_time: FakeTime) -> None:
    recorder, worker, _ = _recorder(tmp_path, fake_time, alone=True)
    recorder.add(_discard(1))
    recorder.add(_discard(2))
    fake_time.advance(WRITE_SECONDS)
    assert len(worker.jobs) == 1
    worker.drain()
    assert _identifiers(tmp_path) == ["i1", "i2"]


def test_the_files_are_bounded_and_the_oldest_give_way(tmp_path: Path, fake_time: FakeTime) -> None:
    recorder, worker, _ = _recorder(tmp_path, fake_time, size=FILES * 2000)
    for number in range(200):
        recorder.add(_discard(number))
        recorder.write()
        worker.drain()
    files = list(tmp_path.glob("*.ndjson"))
    assert len(files) == FILES
    assert sum(file.stat().st_size for file in files) <= FILES * 2000
    kept = _identifiers(tmp_path)
    assert kept == [f"i{number}" for number in range(200 - len(kept), 200)]


@pytest.mark.parametrize(("journal", "most"), [(8 << 20, 1 << 20), (1 << 30, 64 << 20)])
def test_the_bound_follows_that_of_the_journal(journal: int, most: int) -> None:
    assert discards_bytes(journal) == most
    assert discards_bytes(100 << 30) == 64 << 20


def test_what_the_journal_has_pending_still_is_taken_back_at_a_start(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    recorder, worker, _ = _recorder(tmp_path, fake_time)
    for number in range(6):
        recorder.add(_discard(number))
    recorder.add(_discard(6, number=None, id=500))
    recorder.add(_discard(7, sequence_context="default#in-memory#siem#1"))
    recorder.write()
    worker.drain()
    queue = RecoveredQueue(uid="u", name="siem", index=3)
    queue.numbers.extend(array("Q", [4, 5, 7]))
    held = Indication(body=b"{}", class_name="C", accepted_at=0.0, id=500)
    recovered = Recovered(queues={3: queue}, held=[(held, ())])
    recorder._files.close()  # type: ignore[union-attr] # as a crash does
    told = DiscardFiles(tmp_path, size=1 << 20).open(pending_in(recovered, journal_id="journal-1"))
    assert _identifiers(tmp_path) == ["i0", "i1", "i2", "i3", "i7"]
    assert [one.identifier for one in told] == ["i0", "i1", "i2", "i3", "i7"]


def test_the_last_discards_of_a_run_that_crashed_are_told_again(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    recorder, worker, told = _recorder(tmp_path, fake_time)
    assert told == []
    for seconds in (0, 10, int(TOLD_AGAIN_SECONDS) + 5):
        recorder.add(_discard(seconds))
    recorder.write()
    worker.drain()
    recorder._files.close()  # type: ignore[union-attr] # as a crash does
    _, _, told = _recorder(tmp_path, fake_time)
    assert [one.identifier for one in told] == ["i10", "i65"]


def test_a_run_that_ended_in_order_has_told_all(tmp_path: Path, fake_time: FakeTime) -> None:
    recorder, _, _ = _recorder(tmp_path, fake_time)
    recorder.add(_discard(1))
    recorder.close()
    recorder, _, told = _recorder(tmp_path, fake_time)
    assert told == []
    recorder.close()
    assert _identifiers(tmp_path) == ["i1"]


def test_a_torn_line_is_cut_off_and_other_lines_are_passed_over(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    recorder, worker, _ = _recorder(tmp_path, fake_time)
    recorder.add(_discard(1))
    recorder.write()
    worker.drain()
    (file,) = tmp_path.glob("*.ndjson")
    recorder._files.close()  # type: ignore[union-attr] # as a crash does
    with file.open("ab") as opened:
        opened.write(b'\0\0\0\n{"of":"a later version"}\n{"time":"2026-')
    recorder, worker, _ = _recorder(tmp_path, fake_time)
    recorder.add(_discard(2))
    recorder.close()
    assert _identifiers(tmp_path) == ["i1", "i2"]


def test_other_files_of_the_folder_are_left_alone(tmp_path: Path, fake_time: FakeTime) -> None:
    others = {
        "discards-1.ndjson",
        "discards.lock",
        "discards-x.ndjson",
        "lock",
        "0000000000000001.segment",
    }
    for name in others:
        (tmp_path / name).write_bytes(b"x")
    recorder, _, _ = _recorder(tmp_path, fake_time)
    recorder.add(_discard(1))
    recorder.close()
    written = {file.name for file in tmp_path.iterdir()} - others
    assert written == {"discards-00000001.ndjson", "discards.spare"}


class _FullDisk(DiscardFiles):
    is_full = True

    def _write(self, data: bytes) -> None:
        if self.is_full:
            raise OSError(errno.ENOSPC, "No space left on device")
        super()._write(data)


def test_what_a_full_disk_did_not_take_is_written_once_it_has_room(
    tmp_path: Path, fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    files, worker = _FullDisk(tmp_path, size=1 << 20), _Worker()
    files.open(_nothing)
    recorder = DiscardRecorder(timers=fake_time)
    recorder.use(files, tmp_path, worker=worker, writes_alone=False)
    for number in range(3):
        recorder.add(_discard(number))
        recorder.write()
        worker.drain()
        # The journal settles them all the same: they are in no book but this.
        assert recorder.unlisted == number + 1
    files.is_full = False
    recorder.add(_discard(3))
    recorder.close()
    assert _identifiers(tmp_path) == ["i0", "i1", "i2", "i3"]
    assert [vars(record)["event"] for record in caplog.records] == ["discards-not-listed"]
    assert recorder.unlisted == 0


def test_a_disk_that_others_fill_takes_what_is_discarded_in_reserved_room(
    tmp_path: Path, fake_time: FakeTime
) -> None:
    with small_disk(tmp_path / "disk", mebibytes=4) as disk:
        if disk is None:
            pytest.skip("this user must not mount")
        size = 1 << 20
        files, worker = DiscardFiles(disk.folder, size=size), _Worker()
        files.open(_nothing)
        recorder = DiscardRecorder(timers=fake_time)
        recorder.use(files, disk.folder, worker=worker, writes_alone=False)
        disk.fill()
        for number in range(20_000):
            recorder.add(_discard(number))
            if number % 100 == 99:
                recorder.write()
                worker.drain()
                disk.fill()
        listed = _identifiers(disk.folder)
        # The oldest files gave way to the newest; a file's worth at least is there.
        assert recorder.unlisted == 20_000 - len(listed)
        # As after kill -9: nothing was closed.
        assert count_unlisted(disk.folder) == recorder.unlisted
        assert listed == [f"i{number}" for number in range(20_000 - len(listed), 20_000)]
        assert sum(file.stat().st_size for file in disk.folder.glob("*.ndjson")) > size // (
            FILES + 1
        )
        recorder.close()


def test_two_processes_do_not_write_one_list(tmp_path: Path, fake_time: FakeTime) -> None:
    recorder, _, _ = _recorder(tmp_path, fake_time)
    with pytest.raises(OSError, match="unavailable"):
        DiscardFiles(tmp_path, size=1 << 20).open(_nothing)
    recorder.close()
    recorder.close()
    _recorder(tmp_path, fake_time)[0].close()


def test_what_waits_for_a_disk_is_bounded_and_counted(tmp_path: Path, fake_time: FakeTime) -> None:
    recorder, _, _ = _recorder(tmp_path, fake_time)
    for number in range(50):
        recorder.add(_discard(number, identifier="x" * 100_000))
    assert 0 < recorder.unlisted < 50
    recorder.close()
    assert len(_identifiers(tmp_path)) == 50 - recorder.unlisted


def test_without_a_folder_the_latest_are_in_memory(fake_time: FakeTime) -> None:
    recorder = DiscardRecorder(timers=fake_time, memory_bytes=2000)
    for number in range(100):
        recorder.add(_discard(number))
    found = recorder.find(DiscardQuery(destination="siem"), limit=3)()
    assert [one.identifier for one in found] == ["i97", "i98", "i99"]
    kept = len(recorder.find(ALL, limit=100)())
    assert recorder.unlisted == 100 - kept
    recorder.write()
    recorder.close()


def test_what_is_pending_is_taken_back_from_every_file_that_one_write_filled(
    tmp_path: Path,
) -> None:
    files = DiscardFiles(tmp_path, size=(FILES + 1) * 2000)
    files.open(_nothing)
    files.append(b"".join(encode_discard(_discard(number)) for number in range(20)))
    files.close()
    assert len(list(tmp_path.glob("*.ndjson"))) > 1
    again = DiscardFiles(tmp_path, size=(FILES + 1) * 2000)
    again.open(lambda discard: discard.number is not None and discard.number >= 4)
    assert _identifiers(tmp_path) == ["i0", "i1", "i2", "i3"]
    again.close()
