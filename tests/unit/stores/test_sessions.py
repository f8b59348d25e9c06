"""Whose a session is, which of them give way to others, and what is left of one that is
forgotten."""

import errno
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.stores import sessions
from pillion_sidecar.stores.copies import (
    NO_EPOCH,
    Copy,
    Epoch,
    FencedError,
    UnclaimedError,
)
from pillion_sidecar.stores.folders import SystemFolders
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    ReadRequest,
    ReleaseRequest,
    Request,
)
from pillion_sidecar.stores.quorum import latest
from pillion_sidecar.stores.sessions import FORGOTTEN_NAME, OWNER_NAME, Sessions
from pillion_sidecar.stores.store import (
    EPOCHS_NAME,
    BrokenError,
    ForbiddenError,
    QuotaError,
    SessionsError,
    StoreLimits,
    UnknownError,
)
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Kind, Operation, RecordingFiles
from support.stores import OTHER, SESSION, RecordingFolders, ShippedLog

LIMITS = StoreLimits(maximum_bytes=2000, maximum_sessions=2, maximum_age=100.0)
THIRD = "f" * 32
ONE: dict[str, Any] = {"number": 1, "claimant": "pod"}
TWO: dict[str, Any] = {"number": 2, "claimant": "next"}
THREE: dict[str, Any] = {"number": 3, "claimant": "third"}


def made_log(session: str, size: int = 100) -> ShippedLog:
    log = ShippedLog(session=session)
    log.begin(1, created=1.0)
    log.write(size)
    return log


def append_of(session: str, size: int = 100, **epoch: Any) -> AppendRequest:
    piece, data = made_log(session, size).next(0)
    return AppendRequest(
        after=0,
        position=piece.position,
        created=1.0,
        base=0,
        data=data,
        **(epoch or ONE),
    )


class Kept:
    """The sessions of a namespace, restarted on the same folders."""

    def __init__(self, limits: StoreLimits = LIMITS) -> None:
        self.folders = RecordingFolders()
        self.time = FakeTime()
        self.limits = limits
        self.dropped: list[tuple[str, int, float]] = []
        self.restart()

    def restart(self) -> None:
        self.sessions = Sessions(
            self.folders,
            self.limits,
            now=self.time.time,
            dropped=lambda *told: self.dropped.append(told),
        )

    def ask(self, request: Request, session: str = SESSION, account: str = "a") -> Copy | bytes:
        return self.sessions.perform(session, request, account=account)

    def begin(self, session: str = SESSION, size: int = 100) -> None:
        self.ask(ClaimRequest(**ONE), session)
        self.ask(append_of(session, size), session)


# ---------------------------------------------------------------------- owners


@pytest.mark.parametrize(
    "request_",
    [
        ClaimRequest(number=9, claimant="z"),
        append_of(SESSION),
        CutRequest(position=0, **ONE),
        ReadRequest(position=0, size=1),
        ReleaseRequest(**ONE),
    ],
)
def test_another_account_of_the_namespace_is_refused(request_: Request) -> None:
    kept = Kept()
    kept.begin()
    for _ in range(2):
        with pytest.raises(ForbiddenError, match="is of a, which claimed it first"):
            kept.ask(request_, account="b")
        kept.restart()
    assert kept.ask(ClaimRequest(**TWO)) != Copy()


def test_a_session_without_a_noted_account_is_of_the_next_that_claims_it() -> None:
    kept = Kept()
    kept.ask(ClaimRequest(**ONE), account="")
    kept.ask(append_of(SESSION), account="b")
    kept.ask(ClaimRequest(**ONE), account="a")
    with pytest.raises(ForbiddenError):
        kept.ask(append_of(SESSION), account="b")


def test_a_note_of_the_account_that_cannot_be_read_refuses_the_session_alone() -> None:
    kept = Kept()
    kept.begin()
    image = kept.folders.files[SESSION].image()
    kept.folders.files[SESSION] = RecordingFiles({**image, OWNER_NAME: b"\xff"})
    kept.restart()
    with pytest.raises(BrokenError, match=f"move it away from session {SESSION}"):
        kept.ask(ClaimRequest(**ONE))
    kept.begin(OTHER)


def test_who_may_use_every_session_becomes_the_owner_of_none() -> None:
    kept = Kept()
    kept.begin()
    kept.sessions.perform(SESSION, ClaimRequest(**TWO), account=None)
    kept.sessions.perform(OTHER, ClaimRequest(**TWO), account=None)
    assert [one.account for one in kept.sessions.statuses(after="", limit=9)] == ["a", ""]


# ---------------------------------------------------------------------- release


def test_what_is_released_is_gone_and_told_once_more() -> None:
    kept = Kept()
    kept.begin()
    for _ in range(2):
        assert kept.ask(ReleaseRequest(**ONE)) == Copy(promised=Epoch(1, "pod"))
        kept.restart()
    assert (kept.sessions.count, kept.sessions.total) == (0, 0)
    assert kept.folders.files == {}
    with pytest.raises(UnknownError):
        kept.ask(append_of(SESSION))


def test_only_the_last_writer_releases() -> None:
    kept = Kept()
    kept.begin()
    with pytest.raises(UnclaimedError):
        kept.ask(ReleaseRequest(**TWO))
    kept.ask(ClaimRequest(**TWO))
    with pytest.raises(FencedError):
        kept.ask(ReleaseRequest(**ONE))
    assert kept.sessions.count == 1
    # Nothing is left to forget.
    assert kept.ask(ReleaseRequest(**ONE), OTHER) == Copy(promised=Epoch(1, "pod"))


def test_what_was_released_still_fences() -> None:
    kept = Kept()
    kept.begin()
    kept.ask(ClaimRequest(**TWO))
    kept.ask(ReleaseRequest(**TWO))
    kept.restart()
    for request in (ClaimRequest(**ONE), append_of(SESSION), ReleaseRequest(**ONE)):
        with pytest.raises(FencedError, match="next had claimed the session under epoch 2"):
            kept.ask(request)
    # It comes late, as of a writer that was killed before it heard the answer.
    with pytest.raises(FencedError):
        kept.ask(ClaimRequest(**TWO))
    assert kept.ask(ReleaseRequest(**TWO)) == Copy(promised=Epoch(2, "next"))
    anew = kept.ask(ClaimRequest(**THREE))
    # An earlier copy of a store that was away at the release counts less.
    assert anew == Copy(promised=Epoch(3, "third"), written=Epoch(2, "next (released)"))
    kept.restart()
    assert kept.sessions.count == 1


def test_a_store_that_missed_the_end_before_a_release_is_not_the_latest() -> None:
    kept, away = Kept(), Kept()
    for one in (kept, away):
        one.begin()
    kept.ask(ReleaseRequest(**ONE))
    answers = {"kept": kept.ask(ClaimRequest(**TWO)), "away": away.ask(ClaimRequest(**TWO))}
    assert latest({name: one for name, one in answers.items() if isinstance(one, Copy)}) == "kept"


@pytest.mark.parametrize("files_that_fit", [0, 1])
def test_a_claim_that_a_full_disk_cut_off_is_listed_and_gives_way(files_that_fit: int) -> None:
    kept = Kept()
    left = [files_that_fit]

    def is_full(operation: Operation) -> OSError | None:
        if operation.kind is Kind.RENAME:
            left[0] -= 1
        if operation.kind is Kind.WRITE and left[0] <= 0:
            return OSError(errno.ENOSPC, "full")
        return None

    kept.folders.failing = is_full
    with pytest.raises(OSError, match="full"):
        kept.ask(ClaimRequest(**ONE))
    kept.folders.failing = None
    kept.folders.files[SESSION].failing = None
    assert [one.session for one in kept.sessions.statuses(after="", limit=10)] == [SESSION]
    kept.time.step(LIMITS.maximum_age)
    for session in (OTHER, THIRD):
        kept.ask(ClaimRequest(**ONE), session)
    assert [name for name, *_ in kept.dropped] == [SESSION]


@pytest.mark.parametrize("content", [b"{", b'{"promised":[1,"p\xff"],"written":[0,""]}'])
def test_a_session_with_broken_epochs_harms_no_other(content: bytes) -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.time.step(1.0)
    kept.begin(OTHER)
    image = kept.folders.files[SESSION].image() | {EPOCHS_NAME: content}
    kept.folders.files[SESSION] = RecordingFiles(image)
    kept.folders.changed = {SESSION: kept.time.time() - 1.0, OTHER: kept.time.time()}
    kept.restart()
    with pytest.raises(BrokenError):
        kept.ask(ClaimRequest(**ONE))
    found = kept.sessions.statuses(after="", limit=10)
    assert [(one.session, one.epoch) for one in found] == [
        (SESSION, NO_EPOCH),
        (OTHER, Epoch(1, "pod")),
    ]
    kept.time.step(LIMITS.maximum_age)
    kept.ask(ClaimRequest(**ONE), THIRD)
    assert [name for name, *_ in kept.dropped] == [OTHER]


def test_a_request_that_can_never_fit_drops_no_copy() -> None:
    kept = Kept()
    kept.begin()
    kept.time.step(LIMITS.maximum_age)
    kept.ask(ClaimRequest(**ONE), OTHER)
    with pytest.raises(QuotaError):
        kept.ask(append_of(OTHER, LIMITS.maximum_bytes), OTHER)
    assert kept.dropped == []


def test_a_crash_while_a_released_session_begins_anew_leaves_its_fence() -> None:
    kept = Kept()
    kept.ask(ClaimRequest(**TWO))
    kept.ask(ReleaseRequest(**TWO))
    # All that is on disk before the note goes.
    kept.folders.own.failing = lambda one: OSError(errno.EIO, "x")
    with pytest.raises(OSError, match="x"):
        kept.ask(ClaimRequest(**THREE))
    kept.folders.own.failing = None
    kept.restart()
    assert kept.sessions.count == 0
    with pytest.raises(FencedError):
        kept.ask(ClaimRequest(**ONE))
    anew = kept.ask(ClaimRequest(**THREE))
    assert anew == Copy(promised=Epoch(3, "third"), written=Epoch(2, "next (released)"))


def test_a_claim_that_is_refused_leaves_the_session_forgotten() -> None:
    kept = Kept()
    kept.ask(ClaimRequest(**TWO), THIRD)
    kept.ask(ReleaseRequest(**TWO), THIRD)
    kept.begin(SESSION)
    kept.begin(OTHER)
    with pytest.raises(SessionsError):
        kept.ask(ClaimRequest(**THREE), THIRD)
    kept.restart()
    with pytest.raises(FencedError):
        kept.ask(ClaimRequest(**ONE), THIRD)


def test_the_refusal_of_what_was_forgotten_tells_the_epoch() -> None:
    kept = Kept()
    kept.begin()
    kept.ask(ReleaseRequest(**ONE))
    with pytest.raises(FencedError) as found:
        kept.ask(ClaimRequest(number=1, claimant="a"))
    assert found.value.promised == Epoch(1, "pod")


def test_a_session_that_cannot_be_labelled_stays_forgotten() -> None:
    kept = Kept()
    kept.ask(ClaimRequest(**TWO))
    kept.ask(ReleaseRequest(**TWO))
    files = RecordingFiles(failing=lambda one: OSError(errno.EIO, "x"))
    kept.folders.files[SESSION] = files
    with pytest.raises(OSError, match="x"):
        kept.ask(ClaimRequest(**THREE))
    files.failing = None
    kept.restart()
    released = Epoch(2, "next (released)")
    assert kept.ask(ClaimRequest(**THREE)) == Copy(promised=Epoch(3, "third"), written=released)


def test_a_start_removes_what_a_crash_has_left_of_a_released_session() -> None:
    kept = Kept()
    kept.begin()
    files = kept.folders.files[SESSION]
    files.failing = lambda one: OSError(errno.EIO, "x") if one.kind is Kind.REMOVE else None
    with pytest.raises(OSError, match="x"):
        kept.ask(ReleaseRequest(**ONE))
    assert FORGOTTEN_NAME in kept.folders.own.names()
    files.failing = None
    kept.restart()
    assert (kept.folders.files, kept.sessions.count) == ({}, 0)


def test_what_the_disk_refused_to_remove_is_removed_with_the_next_request() -> None:
    kept = Kept()
    kept.begin()
    files = kept.folders.files[SESSION]
    files.failing = lambda one: OSError(errno.EIO, "x") if one.kind is Kind.REMOVE else None
    with pytest.raises(OSError, match="x"):
        kept.ask(ReleaseRequest(**ONE))
    files.failing = None
    released = Epoch(1, "pod (released)")
    assert kept.ask(ClaimRequest(**TWO)) == Copy(promised=Epoch(2, "next"), written=released)
    assert kept.sessions.total == 0


def test_of_the_forgotten_the_oldest_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "MOST_FORGOTTEN", 2)
    kept = Kept()
    for session in (SESSION, OTHER, THIRD):
        kept.ask(ClaimRequest(**TWO), session)
        kept.ask(ReleaseRequest(**TWO), session)
        kept.time.step(1.0)
    kept.restart()
    for session in (OTHER, THIRD):
        with pytest.raises(FencedError):
            kept.ask(ClaimRequest(**ONE), session)
    kept.ask(ClaimRequest(**ONE), SESSION)


def test_a_note_of_the_forgotten_that_cannot_be_read_is_told() -> None:
    kept = Kept()
    kept.folders.own = RecordingFiles({FORGOTTEN_NAME: b"[]"})
    with pytest.raises(BrokenError, match="move it away"):
        kept.restart()


# ---------------------------------------------------------------------- age


def test_the_longest_idle_session_gives_way_to_a_new_one() -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.time.step(1.0)
    kept.begin(OTHER, 50)
    size = kept.sessions.total
    kept.time.step(99.0)
    kept.begin(THIRD)
    assert kept.dropped == [(SESSION, len(made_log(SESSION).content()), 100.0)]
    assert (kept.sessions.count, kept.sessions.total) == (2, size)
    with pytest.raises(SessionsError, match="keeps 2 sessions"):
        kept.ask(ClaimRequest(**ONE), SESSION)


def test_sessions_in_use_give_no_room() -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.begin(OTHER)
    kept.time.step(99.9)
    for request, session in ((ClaimRequest(**ONE), SESSION), (append_of(OTHER), OTHER)):
        kept.ask(request, session)
    kept.time.step(99.9)
    with pytest.raises(SessionsError):
        kept.ask(ClaimRequest(**ONE), THIRD)
    assert kept.dropped == []


def test_a_read_is_no_use_of_its_writer() -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.time.step(100.0)
    kept.ask(ReadRequest(position=0, size=1))
    kept.begin(OTHER)
    kept.begin(THIRD)
    assert [told[0] for told in kept.dropped] == [SESSION]


def test_bytes_are_freed_by_those_that_have_any() -> None:
    kept = Kept(replace(LIMITS, maximum_sessions=3))
    kept.ask(ClaimRequest(**ONE), THIRD)
    kept.time.step(1.0)
    kept.begin(SESSION, 1200)
    kept.time.step(100.0)
    kept.ask(ClaimRequest(**ONE), OTHER)
    kept.ask(append_of(OTHER, 1200), OTHER)
    assert [told[0] for told in kept.dropped] == [SESSION]
    assert kept.sessions.count == 2


def test_an_idle_session_is_not_dropped_for_itself() -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.time.step(500.0)
    log = made_log(SESSION)
    end = log.end
    log.write(1900)
    piece, data = log.next(end)
    request = AppendRequest(
        after=piece.after, position=piece.position, created=1.0, base=0, data=data, **ONE
    )
    with pytest.raises(QuotaError):
        kept.ask(request)
    assert kept.sessions.count == 1


def test_after_a_start_the_age_is_that_of_the_files() -> None:
    kept = Kept()
    kept.begin(SESSION)
    kept.begin(OTHER)
    now = kept.time.time()
    kept.folders.changed = {SESSION: now - 99.0, OTHER: now - 101.0}
    kept.restart()
    kept.begin(THIRD)
    assert [told[0] for told in kept.dropped] == [OTHER]
    assert [one.idle_seconds for one in kept.sessions.statuses(after="", limit=9)] == [99.0, 0.0]


def test_what_gave_way_still_fences_and_may_begin_anew() -> None:
    kept = Kept()
    kept.ask(ClaimRequest(**TWO), SESSION)
    kept.begin(OTHER)
    kept.time.step(100.0)
    kept.begin(THIRD)
    with pytest.raises(FencedError):
        kept.ask(ClaimRequest(**ONE), SESSION)
    assert kept.ask(ClaimRequest(**TWO), SESSION) == Copy(promised=Epoch(2, "next"))


# ---------------------------------------------------------------------- what is listed


def test_sessions_are_listed_by_name() -> None:
    kept = Kept()
    kept.begin(OTHER)
    kept.begin(SESSION)
    kept.time.step(7.0)
    kept.restart()
    kept.folders.changed = {}
    first, second = kept.sessions.statuses(after="", limit=9)
    assert (first.session, second.session) == (SESSION, OTHER)
    log = made_log(SESSION)
    assert (first.epoch, first.account, first.size, first.end) == (
        Epoch(1, "pod"),
        "a",
        len(log.content()),
        log.end,
    )
    assert kept.sessions.statuses(after=SESSION, limit=9) == [second]
    assert kept.sessions.statuses(after="", limit=1) == [first]
    kept.ask(ClaimRequest(**ONE))
    kept.ask(ReleaseRequest(**ONE))
    kept.ask(ClaimRequest(**TWO))
    assert kept.sessions.statuses(after="", limit=1)[0].end == 0


def test_a_real_folder_is_listed_and_forgotten(tmp_path: Path) -> None:
    kept = Sessions(SystemFolders(tmp_path), LIMITS)
    kept.perform(SESSION, ClaimRequest(**ONE), account="a")
    kept.perform(SESSION, append_of(SESSION), account="a")
    again = Sessions(SystemFolders(tmp_path), LIMITS)
    (status,) = again.statuses(after="", limit=9)
    assert (status.account, status.idle_seconds < 60) == ("a", True)
    again.perform(SESSION, ReleaseRequest(**ONE), account="a")
    assert [one.name for one in tmp_path.iterdir()] == [FORGOTTEN_NAME]
