"""A gateway keeps copies of journals, over real HTTP: each namespace its own, the rest refused by
name."""

import asyncio
import errno
import os
from collections import Counter
from collections.abc import AsyncIterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.auth.principal import Principal
from pillion_sidecar.journal.segments import position_of, segment_name
from pillion_sidecar.journal.workers import ThreadWorker
from pillion_sidecar.stores.copies import Copy, FencedError
from pillion_sidecar.stores.messages import (
    MAXIMUM_READ,
    AppendRequest,
    ClaimRequest,
    CutRequest,
    IdentitiesRequest,
    KeepRequest,
    ReadRequest,
    ReleaseRequest,
    RemoveRequest,
    Request,
    decode_identities,
    decode_refusal,
    encode_request,
)
from pillion_sidecar.stores.namespaces import (
    NamespaceStores,
    NamespaceUsage,
    SystemNamespaceFolders,
)
from pillion_sidecar.stores.store import (
    BrokenError,
    ForbiddenError,
    MalformedError,
    QuotaError,
    StoreLimits,
)
from pillion_sidecar.testing import FakeTime
from support.crashing_files import Kind, RecordingFiles
from support.intake import Door
from support.journal_gateway import JournalGateway, opened
from support.stores import OTHER, SESSION, RecordingNamespaces, ShippedLog, identities_file

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


async def test_identities_are_kept_listed_and_read(gateway: JournalGateway) -> None:
    await gateway.copy(CLAIM)
    data = identities_file(3)
    keep = KeepRequest(number=1, claimant="pod", segment=3, first=0, data=data)
    assert (await gateway.copy(keep)).identities == 3
    status, body = await gateway.ask(IdentitiesRequest())
    assert (status, decode_identities(body)) == (200, [(3, len(data))])
    read = ReadRequest(position=position_of(3, 0), size=MAXIMUM_READ, identities=True)
    assert await gateway.ask(read) == (200, data)


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


async def test_without_stores_the_door_is_shut_and_says_what_to_set() -> None:
    async with Door().open() as door:
        for method, path in (("POST", f"/v1/journals/{SESSION}"), ("GET", "/v1/journals")):
            async with door.session.request(method, door.url + path) as answer:
                assert (answer.status, "set journalCopies" in await answer.text()) == (404, True)


async def test_another_account_of_the_namespace_gets_at_no_copy_of_its_neighbour() -> None:
    async with opened(JournalGateway(limits=LIMITS, tokens=True)) as gateway:
        await gateway.copy(CLAIM, namespace="team")
        for request in (ClaimRequest(number=9, claimant="z"), ReadRequest(position=0, size=1)):
            status, error = await gateway.refused(request, namespace="team", account="other")
            assert (status, type(error)) == (403, ForbiddenError)
            assert str(error) == "the session is of spark, which claimed it first"
        await gateway.copy(CLAIM, namespace="team")
        assert +gateway.stores.requests == {
            ("claim", "ok"): 2,
            ("claim", "forbidden"): 1,
            ("read", "forbidden"): 1,
        }


async def test_a_gateways_own_account_adopts_a_session_of_its_namespace() -> None:
    async with opened(JournalGateway(limits=LIMITS, tokens=True)) as gateway:
        gateway.guarding.own = Principal("team", "gateway")
        await gateway.copy(CLAIM, namespace="team")
        claim = ClaimRequest(number=9, claimant="adopter")
        copy = await gateway.copy(claim, namespace="team", account="gateway")
        assert copy.promised == (9, "adopter")
        # The session is still of the account that began it.
        status, _ = await gateway.refused(CLAIM, namespace="team", account="other")
        assert status == 403
        status, error = await gateway.refused(CLAIM, namespace="team")
        assert (status, type(error)) == (409, FencedError)
        # There it is another account's name.
        await gateway.copy(CLAIM, namespace="other")
        for account in ("gateway", "else"):
            status, _ = await gateway.refused(CLAIM, namespace="other", account=account)
            assert status == 403


async def test_another_gateway_of_the_namespace_adopts_a_session() -> None:
    async with opened(JournalGateway(limits=LIMITS, tokens=True)) as gateway:
        assert gateway.guarding.namespace == "team"
        claim = ClaimRequest(number=9, claimant="adopter")
        for namespace in ("team", "other"):
            await gateway.copy(CLAIM, namespace=namespace)
        copy = await gateway.copy(claim, namespace="team", account="pillion-hub")
        assert copy.promised == (9, "adopter")
        # Those of other namespaces have such names, too.
        for namespace, account in (("other", "pillion-hub"), ("team", "hub")):
            status, _ = await gateway.refused(claim, namespace=namespace, account=account)
            assert status == 403


async def test_a_released_session_is_gone(gateway: JournalGateway) -> None:
    await gateway.copy(CLAIM)
    await gateway.copy(append_of(log_of(100)))
    release = ReleaseRequest(number=1, claimant="pod")
    assert await gateway.copy(release) == Copy(promised=CLAIM.epoch)
    assert (await gateway.listed()) == {"journals": [], "next": None}
    status, error = await gateway.refused(append_of(log_of(100)))
    assert (status, type(error).__name__) == (404, "UnknownError")


async def test_the_copies_of_the_own_namespace_are_listed_page_by_page() -> None:
    async with opened(JournalGateway(limits=LIMITS, tokens=True)) as gateway:
        assert await gateway.listed(namespace="team") == {"journals": [], "next": None}
        log = log_of(100)
        for session in (SESSION, OTHER):
            await gateway.copy(CLAIM, namespace="team", session=session)
        await gateway.copy(append_of(log), namespace="team")
        await gateway.copy(CLAIM, namespace="other")
        page = await gateway.listed("?limit=1", namespace="team")
        assert page["journals"] == [
            {
                "namespace": "team",
                "session": SESSION,
                "claimant": "pod",
                "epoch": 1,
                "serviceAccount": "spark",
                "bytes": len(log.content()),
                "end": f"{log.end:x}",
                "idleSeconds": 0.0,
            }
        ]
        assert page["next"] == f"team/{SESSION}"
        page = await gateway.listed(f"?limit=2&after={page['next']}", namespace="team")
        assert ([one["session"] for one in page["journals"]], page["next"]) == ([OTHER], None)
        everything = await gateway.stores.sessions(after=("", ""), limit=9)
        assert [(one.namespace, one.status.session) for one in everything] == [
            ("other", SESSION),
            ("team", SESSION),
            ("team", OTHER),
        ]
        rest = await gateway.stores.sessions(after=("team", SESSION), limit=9)
        assert [one.status.session for one in rest] == [OTHER]
        assert len(await gateway.stores.sessions(after=("", ""), limit=2)) == 2


async def test_a_gateway_that_drains_still_keeps_copies(gateway: JournalGateway) -> None:
    gateway.door.gate.close("the deliverer is shutting down")
    await gateway.copy(CLAIM)
    await gateway.copy(append_of(log_of(100)))
    status, _, _ = await gateway.door.post(b"{}")
    assert status == 503


async def test_the_log_tells_of_a_refusal_once_in_a_while(
    gateway: JournalGateway, caplog: pytest.LogCaptureFixture
) -> None:
    await gateway.copy(CLAIM)
    for _ in range(3):
        await gateway.refused(append_of(log_of(100, 1900)))
    (told,) = [one for one in caplog.records if one.__dict__.get("event") == "journal-copy-refused"]
    assert told.getMessage() == (
        "copies of journals of namespace _ are refused: the copies of the namespace take 0"
        " bytes, and 2112 more would exceed 2000, journalCopies.maximumBytes"
    )


async def test_10_000_sessions_are_refused_by_name_and_harm_nobody(
    gateway: JournalGateway,
) -> None:
    log = log_of(100)
    await gateway.copy(CLAIM)
    results = Counter[str]()
    for number in range(1, 10_001, 16):
        answers = await asyncio.gather(
            *(gateway.ask(CLAIM, session=f"{one:032x}") for one in range(number, number + 16))
        )
        for status, body in answers:
            error = decode_refusal(body)
            results[f"{status} {type(error).__name__}"] += 1
    assert results == {"200 NoneType": 1, "507 SessionsError": 9999}
    assert (await gateway.copy(append_of(log))).extents == log.extents
    assert gateway.stores.requests["claim", "sessions"] == 9999


async def test_all_namespaces_together_take_no_more_than_the_volume_gives() -> None:
    log = log_of(100)
    folders = RecordingNamespaces()
    worker = ThreadWorker(
        name="stores", call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe
    )
    stores = NamespaceStores(folders, LIMITS, worker=worker, maximum_bytes=len(log.content()) + 10)
    try:
        for namespace in ("a", "b"):
            await stores.perform(namespace, SESSION, CLAIM)
        await stores.perform("a", SESSION, append_of(log))
        with pytest.raises(QuotaError, match="the copies of all namespaces take"):
            await stores.perform("b", SESSION, append_of(log))
        assert stores.usage == {
            "a": NamespaceUsage(len(log.content()), 1),
            "b": NamespaceUsage(0, 1),
        }
    finally:
        worker.close()


async def test_idle_copies_of_another_namespace_give_way_where_the_volume_is_full() -> None:
    log = log_of(100)
    time = FakeTime()
    worker = ThreadWorker(
        name="stores", call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe
    )
    stores = NamespaceStores(
        RecordingNamespaces(),
        replace(LIMITS, maximum_age=100.0),
        worker=worker,
        clock=time,
        maximum_bytes=len(log.content()) + 10,
    )
    try:
        for namespace in ("a", "b"):
            await stores.perform(namespace, SESSION, CLAIM)
        await stores.perform("a", SESSION, append_of(log))
        time.step(100.0)
        await stores.perform("b", SESSION, append_of(log))
        assert stores.usage["a"] == NamespaceUsage(0, 0)
        assert stores.dropped == {"a": 1}
    finally:
        worker.close()


async def test_what_one_namespace_cannot_read_harms_no_other(
    caplog: pytest.LogCaptureFixture,
) -> None:
    folders = RecordingNamespaces()
    for namespace in ("a", "b"):
        folders.open(namespace, creates=True)
    folders.folders["a"].own = RecordingFiles({"forgotten.json": b"["})
    worker = ThreadWorker(
        name="stores", call_soon_threadsafe=asyncio.get_running_loop().call_soon_threadsafe
    )
    stores = NamespaceStores(folders, LIMITS, worker=worker)
    try:
        stores.load()
        assert "namespace a are refused: forgotten.json cannot be read" in caplog.text
        with pytest.raises(BrokenError):
            await stores.perform("a", SESSION, CLAIM)
        await stores.perform("b", SESSION, CLAIM)
    finally:
        worker.close()
