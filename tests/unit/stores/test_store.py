"""A store keeps what it was given, and refuses the rest by name."""

import errno
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.journal import segments
from pillion_sidecar.journal.segments import position_of, segment_name
from pillion_sidecar.stores import store as stores
from pillion_sidecar.stores.copies import (
    ConflictError,
    Copy,
    Epoch,
    FencedError,
    GapError,
    Piece,
    Removal,
)
from pillion_sidecar.stores.folders import SystemFolders
from pillion_sidecar.stores.store import (
    MOST_EPOCHS_AHEAD,
    BrokenError,
    MalformedError,
    QuotaError,
    SessionsError,
    Store,
    StoreLimits,
    UnknownError,
)
from support.crashing_files import Kind, Operation, RecordingFiles
from support.stores import OTHER, SESSION, RecordingFolders, ShippedLog, identities_file

ONE, TWO = Epoch(1, "x"), Epoch(2, "x")
LIMITS = StoreLimits(maximum_bytes=1 << 20, maximum_sessions=3)


def log_of(*segments: int, created: float = 1.0) -> ShippedLog:
    log = ShippedLog()
    for number, size in enumerate(segments, start=1):
        log.begin(number, created=created)
        log.write(size)
    return log


def content_of(store: Store, copy: Copy) -> bytes:
    return b"".join(
        store.read(SESSION, position_of(extent.number, 0), extent.size) for extent in copy.extents
    )


def filled(log: ShippedLog, folders: RecordingFolders | None = None) -> tuple[Store, Copy]:
    store = Store(folders or RecordingFolders(), LIMITS)
    copy = store.claim(SESSION, ONE)
    return store, log.ship(store, copy, ONE)


def test_a_copy_on_a_real_disk_is_what_was_shipped(tmp_path: Path) -> None:
    log = log_of(700, 300)
    store = Store(SystemFolders(tmp_path), LIMITS)
    copy = log.ship(store, store.claim(SESSION, ONE), ONE)
    again = Store(SystemFolders(tmp_path), LIMITS)
    assert again.claim(SESSION, ONE) == copy
    assert content_of(again, copy) == log.content()
    assert (tmp_path / SESSION / segment_name(1)).read_bytes() == log.segments[1]


def test_a_copy_of_many_tiny_segments_is_no_writers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stores, "MOST_SMALL_SEGMENTS", 3)
    log = log_of(10, 10, 10, 10)
    with pytest.raises(MalformedError, match="the copy has 3 segments in"):
        filled(log)


def test_records_that_pretend_to_be_others_are_refused_at_the_first_unsound_one(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def searched(*_: object) -> int:
        raise AssertionError("the rest was searched")

    monkeypatch.setattr(segments, "next_sound", searched)
    store = Store(RecordingFolders(), LIMITS)
    store.claim(SESSION, ONE)
    piece, data = log_of(10, 5000).next(0)
    with pytest.raises(MalformedError, match="are no sound records"):
        store.append(SESSION, ONE, piece, data[:-1] + b"?", base=0)


def test_a_folder_that_is_gone_may_be_removed_again(tmp_path: Path) -> None:
    folders = SystemFolders(tmp_path)
    folders.create(SESSION)
    folders.remove(SESSION)
    folders.remove(SESSION)


def test_nothing_is_told_before_it_is_synced() -> None:
    folders = RecordingFolders()
    store, copy = filled(log_of(100), folders)
    operations = folders.files[SESSION].operations
    piece, data = log_of(100, 50).next(copy.end)
    before = len(operations)
    store.append(SESSION, ONE, piece, data, base=0)
    kinds = [one.kind for one in operations[before:]]
    assert kinds == [Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.SYNC_FOLDER]


def test_what_a_killed_process_wrote_is_synced_before_it_is_told() -> None:
    folders = RecordingFolders()
    filled(log_of(100), folders)
    files = folders.files[SESSION] = RecordingFiles(folders.files[SESSION].image())
    Store(folders, LIMITS).claim(SESSION, ONE)
    assert [one.kind for one in files.operations] == [Kind.SYNC, Kind.SYNC_FOLDER]


def test_a_claim_is_kept_over_a_restart() -> None:
    folders = RecordingFolders()
    log = log_of(100)
    store, _ = filled(log, folders)
    store.claim(SESSION, TWO)
    later = Store(folders, LIMITS)
    piece, data = log_of(100, 50).next(log.end)
    with pytest.raises(FencedError):
        later.append(SESSION, ONE, piece, data, base=0)


def test_a_repeated_request_is_answered_again() -> None:
    log = log_of(100)
    store, copy = filled(log)
    piece, data = log.next(0)
    assert store.append(SESSION, ONE, piece, data, base=0) == copy


def test_other_bytes_at_a_position_are_refused() -> None:
    store, _ = filled(log_of(100))
    piece, _ = log_of(100).next(0)
    other = ShippedLog(fill=b"y")
    other.begin(1, created=1.0)
    other.write(100)
    with pytest.raises(ConflictError, match="other bytes"):
        store.append(SESSION, ONE, piece, other.next(0)[1], base=0)


def test_what_is_cut_is_gone_and_another_writers_log_follows() -> None:
    folders = RecordingFolders()
    store, _ = filled(log_of(100, 100, 100), folders)
    log = log_of(100)
    log.begin(2, created=7.0)
    log.write(30)
    store.claim(SESSION, TWO)
    copy = store.cut(SESSION, TWO, log_of(100).end)
    assert copy.extents == log.extents[:1]
    copy = log.ship(store, copy, TWO, base=log_of(100).end)
    assert copy.written == TWO
    assert content_of(Store(folders, LIMITS), copy) == log.content()


@pytest.mark.parametrize("end", [1, 40, 63, 64, 70, 99])
def test_a_torn_end_is_not_in_the_copy_and_comes_again(end: int) -> None:
    folders = RecordingFolders()
    log = log_of(200, 150)
    _, copy = filled(log, folders)
    image = folders.files[SESSION].image()
    torn = {**image, segment_name(2): image[segment_name(2)][:end] + bytes(40)}
    folders.files[SESSION] = RecordingFiles(torn)
    later = Store(folders, LIMITS)
    found = later.claim(SESSION, ONE)
    assert found.extents[:1] == copy.extents[:1]
    assert found.end < copy.end
    assert log.ship(later, found, ONE) == copy
    assert content_of(Store(folders, LIMITS), copy) == log.content()


@pytest.mark.parametrize("session", ["", "../x", SESSION.upper(), SESSION + "0", "a" * 31])
def test_a_session_that_is_no_journals_id_is_refused(session: str) -> None:
    folders = RecordingFolders()
    with pytest.raises(MalformedError):
        Store(folders, LIMITS).claim(session, ONE)
    assert not folders.files


def malformed() -> dict[str, tuple[Piece, bytes]]:
    piece, data = log_of(100).next(0)
    foreign = ShippedLog(session=OTHER)
    foreign.begin(1, created=1.0)
    foreign.write(100)
    return {
        "garbage": (piece, b"x" * len(data)),
        "a broken record": (piece, data[:-1] + b"!"),
        "half a record": (piece._replace(size=len(data) - 3), data[:-3]),
        "another size": (piece._replace(size=len(data) + 1), data),
        "another segment": (piece._replace(position=position_of(2, 0)), data),
        "another time": (piece._replace(created=2.0), data),
        "another journal": (piece, foreign.next(0)[1]),
        "before the first position": (piece._replace(position=-1), data),
        "no position of a segment": (piece._replace(position=1 << 70), data),
    }


@pytest.mark.parametrize("wrong", malformed())
def test_garbage_is_refused_and_changes_nothing(wrong: str) -> None:
    folders = RecordingFolders()
    store = Store(folders, LIMITS)
    store.claim(SESSION, ONE)
    before = folders.files[SESSION].image()
    piece, data = malformed()[wrong]
    with pytest.raises(MalformedError):
        store.append(SESSION, ONE, piece, data, base=0)
    assert folders.files[SESSION].image() == before


def test_more_sessions_or_bytes_than_allowed_are_refused_and_harm_nobody() -> None:
    folders = RecordingFolders()
    log = log_of(100)
    limits = StoreLimits(maximum_bytes=len(log.content()) + 10, maximum_sessions=1)
    store = Store(folders, limits)
    copy = log.ship(store, store.claim(SESSION, ONE), ONE)
    with pytest.raises(SessionsError, match="1 sessions"):
        store.claim(OTHER, ONE)
    # A restart counts the same.
    store = Store(folders, limits)
    more = log_of(100, 50)
    piece, data = more.next(copy.end)
    with pytest.raises(QuotaError, match="would exceed"):
        store.append(SESSION, ONE, piece, data, base=0)
    assert store.claim(SESSION, ONE) == copy


def test_identities_are_kept_over_a_restart_and_until_they_are_forgotten() -> None:
    folders = RecordingFolders()
    log = ShippedLog()
    log.begin(7, created=1.0)
    store = Store(folders, LIMITS)
    log.ship(store, store.claim(SESSION, ONE), ONE)
    for number in (3, 4, 6):
        copy = store.keep(SESSION, ONE, number, identities_file(number), first=0)
        assert copy.identities == number
    # A repeat.
    store.keep(SESSION, ONE, 4, identities_file(4), first=0)
    assert store.claim(SESSION, ONE).identities == 6
    later = Store(folders, LIMITS)
    assert later.claim(SESSION, ONE) == copy
    later.keep(SESSION, ONE, 6, identities_file(6), first=4)
    size = len(identities_file(6))
    assert later.identities(SESSION) == [(4, size), (6, size)]
    read = later.read(SESSION, position_of(6, 10), 30, identities=True)
    assert read == identities_file(6)[10:40]
    assert later.read(SESSION, position_of(3, 0), 30, identities=True) == b""


def test_identities_that_another_writer_may_change_are_asked_for_again() -> None:
    store, copy = filled(log_of(100, 100, 100))
    for number in (1, 2):
        store.keep(SESSION, ONE, number, identities_file(number), first=0)
    store.remove(SESSION, ONE, Removal(2, copy.end))
    assert store.claim(SESSION, ONE).identities == 2
    # It has the second segment yet, and may remove it with others settled.
    assert store.claim(SESSION, TWO).identities == 1
    assert store.cut(SESSION, TWO, position_of(2, 0)).identities == 1
    assert [number for number, _ in store.identities(SESSION)] == [1]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        identities_file(2),
        identities_file(1, session=OTHER),
        identities_file(1)[:-1],
        identities_file(1)[:-1] + b"!",
    ],
)
def test_what_is_no_file_of_identities_is_refused(data: bytes) -> None:
    store, _ = filled(log_of(100))
    with pytest.raises(MalformedError):
        store.keep(SESSION, ONE, 1, data, first=0)
    assert store.identities(SESSION) == []


def test_identities_count_for_the_quota() -> None:
    folders = RecordingFolders()
    log = log_of(100)
    limits = StoreLimits(
        maximum_bytes=len(log.content()) + len(identities_file(1)), maximum_sessions=1
    )
    store = Store(folders, limits)
    log.ship(store, store.claim(SESSION, ONE), ONE)
    store.keep(SESSION, ONE, 1, identities_file(1), first=0)
    # A restart counts the same.
    for one in (store, Store(folders, limits)):
        with pytest.raises(QuotaError, match="would exceed"):
            one.keep(SESSION, ONE, 2, identities_file(2), first=0)


def test_a_session_without_a_copy_is_named() -> None:
    store = Store(RecordingFolders(), LIMITS)
    with pytest.raises(UnknownError):
        store.read(SESSION, 0, 10)


def test_epochs_that_cannot_be_read_are_never_taken_for_none() -> None:
    folders = RecordingFolders()
    filled(log_of(100), folders)
    image = folders.files[SESSION].image()
    folders.files[SESSION] = RecordingFiles({**image, "epochs.json": b"{"})
    with pytest.raises(BrokenError, match=r"epochs\.json"):
        Store(folders, LIMITS).claim(SESSION, TWO)


def refusing(kind: Kind, *, times: int) -> Callable[[Operation], OSError | None]:
    left = [times]

    def fail(operation: Operation) -> OSError | None:
        if operation.kind is not kind or not left[0]:
            return None
        left[0] -= 1
        return OSError(errno.EIO, "Input/output error")

    return fail


@pytest.mark.parametrize("kind", [Kind.CREATE, Kind.WRITE, Kind.SYNC, Kind.SYNC_FOLDER])
def test_after_a_failed_write_the_writer_sends_it_again(kind: Kind) -> None:
    folders = RecordingFolders()
    store, copy = filled(log_of(100), folders)
    log = log_of(100, 50)
    piece, data = log.next(copy.end)
    folders.files[SESSION].failing = refusing(kind, times=1)
    with pytest.raises(OSError, match="Input/output"):
        store.append(SESSION, ONE, piece, data, base=0)
    assert store.claim(SESSION, ONE) == copy
    assert log.ship(store, copy, ONE).extents == log.extents


def test_a_disk_that_refuses_to_forget_a_failed_write_ends_the_copy() -> None:
    folders = RecordingFolders()
    store, copy = filled(log_of(100), folders)
    piece, data = log_of(100, 50).next(copy.end)
    folders.files[SESSION].failing = refusing(Kind.SYNC, times=2)
    with pytest.raises(OSError, match="Input/output"):
        store.append(SESSION, ONE, piece, data, base=0)
    calls: list[Callable[[], Any]] = [
        partial(store.append, SESSION, ONE, piece, data, base=0),
        partial(store.claim, SESSION, TWO),
    ]
    for call in calls:
        with pytest.raises(BrokenError, match="restart the store"):
            call()


def test_a_gap_is_refused_and_told_where_the_copy_ends() -> None:
    store, copy = filled(log_of(100))
    log = log_of(100, 50, 60)
    piece, data = log.next(position_of(2, 1 << 20))
    with pytest.raises(GapError, match=f"ends at {copy.end:x}"):
        store.append(SESSION, ONE, piece, data, base=0)


def test_a_claim_that_would_leave_no_numbers_is_refused() -> None:
    store = Store(RecordingFolders(), LIMITS)
    with pytest.raises(MalformedError, match="too far beyond the last one, 0"):
        store.claim(SESSION, Epoch(MOST_EPOCHS_AHEAD + 1, "x"))
    assert not store.sizes
    store.claim(SESSION, Epoch(7, "x"))
    with pytest.raises(MalformedError, match="too far beyond the last one, 7"):
        store.claim(SESSION, Epoch(MOST_EPOCHS_AHEAD + 8, "x"))
    assert store.claim(SESSION, Epoch(MOST_EPOCHS_AHEAD + 7, "x")).promised.number > 7
