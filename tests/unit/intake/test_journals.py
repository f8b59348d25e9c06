"""A gateway keeps copies of journals, over real HTTP: each namespace its own, the rest refused by
name."""

import errno
import os
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.journal.segments import position_of, segment_name
from pillion_sidecar.stores.messages import (
    MAXIMUM_READ,
    AppendRequest,
    ClaimRequest,
    CutRequest,
    ReadRequest,
    RemoveRequest,
    Request,
    encode_request,
)
from pillion_sidecar.stores.namespaces import (
    SystemNamespaceFolders,
)
from pillion_sidecar.stores.store import MalformedError, StoreLimits
from support.crashing_files import Kind
from support.intake import Door
from support.journal_gateway import JournalGateway, opened
from support.stores import OTHER, SESSION, ShippedLog

LIMITS = StoreLimits(maximum_bytes=2000, maximum_sessions=2)
CLAIM = ClaimRequest(number=1, claimant="pod")


def log_of(*sizes: int) -> ShippedLog:
    log = ShippedLog()
    log.begin(1, created=1.0)
    for size in sizes:
        log.write(size)
    return log


def append_of(log: ShippedLog, end: int = 0, **changed: Any) -> AppendRequest:
    """Return the request with all that follows ``end``."""
    piece, data = log.next(end)
    given: dict[str, Any] = {
        **piece._asdict(),
        "number": 1,
        "claimant": "pod",
        "base": 0,
        "data": data,
        **changed,
    }
    del given["size"]
    return AppendRequest(**given)


@pytest.fixture
async def gateway() -> AsyncIterator[JournalGateway]:
    async with opened(JournalGateway(limits=LIMITS)) as made:
        yield made


async def test_a_copy_is_claimed_continued_cut_and_read(tmp_path: Path) -> None:
    folders = SystemNamespaceFolders(tmp_path)
    log = log_of(100, 200)
    async with opened(JournalGateway(folders)) as gateway:
        assert (await gateway.copy(CLAIM)).extents == ()
        copy = await gateway.copy(append_of(log))
        assert (copy.extents, copy.written) == (log.extents, CLAIM.epoch)
        begin = position_of(1, 0)
        status, body = await gateway.ask(ReadRequest(position=begin, size=MAXIMUM_READ))
        assert (status, body) == (200, log.content())
        later = ClaimRequest(number=2, claimant="other")
        assert (await gateway.copy(later)).promised == later.epoch
        cut = CutRequest(number=2, claimant="other", position=log_of(100).end)
        assert (await gateway.copy(cut)).extents == log_of(100).extents
    async with opened(JournalGateway(folders)) as gateway:
        assert (await gateway.copy(later)).extents == log_of(100).extents
    assert os.listdir(tmp_path) == ["_"]


async def test_segments_that_are_not_needed_are_removed(gateway: JournalGateway) -> None:
    log = log_of(100)
    log.begin(2, created=2.0)
    log.write(50)
    await gateway.copy(CLAIM)
    await gateway.copy(append_of(log))
    await gateway.copy(append_of(log, log_of(100).end))
    remove = RemoveRequest(number=1, claimant="pod", first=2, through=log.end)
    assert (await gateway.copy(remove)).extents == log.extents[1:]
    assert gateway.recorded.folders["_"].files[SESSION].names() == [segment_name(2), "epochs.json"]


async def test_each_refusal_has_a_status_and_its_name(gateway: JournalGateway) -> None:
    log, longer = log_of(100), log_of(100, 50)
    await gateway.copy(CLAIM)
    await gateway.copy(append_of(log))
    end = log.end
    wrong: list[tuple[int, str, Request]] = [
        (400, "MalformedError", append_of(longer, end, data=b"garbage")),
        (409, "UnclaimedError", append_of(longer, end, number=7)),
        (409, "GapError", append_of(longer, end, after=end + 10, position=end + 10)),
        (409, "ConflictError", append_of(longer, end, created=9.0)),
        (507, "QuotaError", append_of(log_of(100, 1900), end)),
        (409, "ConflictError", CutRequest(number=1, claimant="pod", position=1)),
        (409, "FencedError", ClaimRequest(number=1, claimant="a")),
    ]
    for status, name, request in wrong:
        answered, error = await gateway.refused(request)
        assert (answered, type(error).__name__) == (status, name)
        assert str(error)
    assert (await gateway.copy(CLAIM)).extents == log.extents


async def test_a_session_that_nobody_claimed_is_unknown_and_leaves_nothing(
    gateway: JournalGateway,
) -> None:
    for request in (append_of(log_of(10)), ReadRequest(position=0, size=1)):
        status, error = await gateway.refused(request)
        assert (status, type(error).__name__) == (404, "UnknownError")
    assert gateway.recorded.folders == {}


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"\xc1",
        b"{}",
        encode_request({"do": "remove"}),
        encode_request({"do": "claim", "number": 0, "claimant": "pod"}),
        encode_request({"do": "claim", "number": 1, "claimant": ""}),
        encode_request({"do": "claim", "number": 1, "claimant": "x" * 254}),
        encode_request({"do": "read", "position": -1, "size": 1}),
        encode_request({"do": "read", "position": 0, "size": MAXIMUM_READ + 1}),
        b"\x91" * 5000,
    ],
)
async def test_what_is_no_request_is_refused(gateway: JournalGateway, body: bytes) -> None:
    status, error = await gateway.refused(body)
    assert (status, type(error)) == (400, MalformedError)


async def test_a_session_is_no_path(gateway: JournalGateway) -> None:
    for session in ("..%2f..%2fx", SESSION.upper(), "x" * 300):
        status, error = await gateway.refused(CLAIM, session=session)
        assert (status, type(error)) == (400, MalformedError)
    assert gateway.recorded.folders["_"].files == {}


async def test_another_content_type_is_refused(gateway: JournalGateway) -> None:
    assert (await gateway.ask(CLAIM, content_type="application/json"))[0] == 415


async def test_a_namespace_has_its_own_sessions_and_quota() -> None:
    async with opened(JournalGateway(limits=LIMITS, tokens=True)) as gateway:
        log = log_of(100)
        for session in (SESSION, OTHER):
            await gateway.copy(CLAIM, namespace="team", session=session)
        await gateway.copy(append_of(log), namespace="team")
        for request in (ReadRequest(position=position_of(1, 0), size=100), append_of(log)):
            status, error = await gateway.refused(request, namespace="other")
            assert (status, type(error).__name__) == (404, "UnknownError")
        status, error = await gateway.refused(CLAIM, namespace="team", session="0" * 32)
        assert (status, type(error).__name__) == (507, "SessionsError")
        # The same session, which is another one there; it fences nobody.
        fencing = ClaimRequest(number=9, claimant="other")
        assert (await gateway.copy(fencing, namespace="other")).extents == ()
        assert (await gateway.copy(append_of(log), namespace="team")).extents == log.extents
        assert (await gateway.ask(CLAIM))[0] == 401
        assert (await gateway.ask(CLAIM, namespace="third"))[0] == 403
        assert sorted(gateway.recorded.folders) == ["other", "team"]


async def test_a_disk_that_refuses_is_asked_again_later(gateway: JournalGateway) -> None:
    await gateway.copy(CLAIM)
    files = gateway.recorded.folders["_"].files[SESSION]
    files.failing = lambda one: (
        OSError(errno.ENOSPC, "No space left on device") if one.kind is Kind.WRITE else None
    )
    status, body = await gateway.ask(append_of(log_of(100)))
    assert (status, b"No space left on device" in body) == (503, True)
    files.failing = None
    assert (await gateway.copy(append_of(log_of(100)))).extents == log_of(100).extents
    assert segment_name(1) in files.names()


async def test_without_stores_there_is_no_door() -> None:
    async with Door().open() as door:
        status, _, _ = await door.post(b"", path=f"/v1/journals/{SESSION}")
        assert status == 404
