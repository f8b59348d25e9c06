"""A stream of JetStream that keeps copies of journals (S3.11)."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import pytest

from pillion_sidecar.handlers.nats.jetstream import JetStreamError
from pillion_sidecar.handlers.nats.store import StreamLogs, StreamStore, unfit
from pillion_sidecar.journal.segments import segment_of
from pillion_sidecar.stores import streams
from pillion_sidecar.stores.copies import (
    NO_REMOVAL,
    ConflictError,
    Copy,
    Cut,
    Epoch,
    Extent,
    FencedError,
    GapError,
    Keep,
    Piece,
    Removal,
    StoreError,
    UnclaimedError,
    end_of,
    next_change,
)
from pillion_sidecar.stores.messages import (
    AppendRequest,
    ClaimRequest,
    CutRequest,
    IdentitiesRequest,
    KeepRequest,
    ReadRequest,
    ReleaseRequest,
    RemoveRequest,
    Request,
    encode_identities,
)
from pillion_sidecar.stores.ports import Unanswered
from pillion_sidecar.stores.sessions import perform
from pillion_sidecar.stores.store import BrokenError, Store, StoreLimits
from pillion_sidecar.stores.streams import StreamState, change, decode_message, fence, state_of
from support.stores import SESSION, RecordingFolders, ShippedLog, identities_file
from support.streams import CONFIGURATION, FakeStream, asked, content, copied, identities

#: So small that most appends have several parts.
PART = 60
FIRST, SECOND = Epoch(1, "a"), Epoch(2, "b")


def logs_of(stream: FakeStream, **given: Any) -> StreamLogs:
    return StreamLogs(stream, stream.identities, **given)


def store_of(stream: FakeStream) -> StreamStore:
    return StreamStore(logs_of(stream), stream="journals", part_bytes=PART)


def claiming(epoch: Epoch) -> ClaimRequest:
    return ClaimRequest(number=epoch.number, claimant=epoch.claimant)


def appending(epoch: Epoch, piece: Piece, data: bytes, *, base: int = 0) -> AppendRequest:
    return AppendRequest(
        number=epoch.number,
        claimant=epoch.claimant,
        after=piece.after,
        position=piece.position,
        created=piece.created,
        base=base,
        data=data,
    )


def keeping(epoch: Epoch, number: int, *, first: int = 0) -> KeepRequest:
    return KeepRequest(
        number=epoch.number,
        claimant=epoch.claimant,
        segment=number,
        first=first,
        data=identities_file(number),
    )


def log_of(*sizes: int, number: int = 1, fill: bytes = b"x") -> ShippedLog:
    log = ShippedLog(fill=fill)
    log.begin(number, created=1.0)
    for size in sizes:
        log.write(size)
    return log


async def shipped(store: StreamStore, log: ShippedLog, epoch: Epoch = FIRST) -> Copy:
    """Claim, and send all."""
    copy = await copied(store, claiming(epoch))
    while copy.end < log.end:
        copy = await copied(store, appending(epoch, *log.next(copy.end)))
    return copy


# What is kept.


async def test_what_was_sent_is_read_back() -> None:
    stream = FakeStream()
    log = log_of(10, 500, 30)
    log.begin(3, created=2.0)
    log.write(70)
    copy = await shipped(store_of(stream), log)
    assert copy == Copy(promised=FIRST, written=FIRST, extents=log.extents)
    for size in (1, 50, 1 << 20):
        fresh = store_of(stream)
        assert await content(fresh, await copied(fresh, claiming(SECOND)), size=size) == (
            log.segments
        )
    assert await asked(store_of(stream), ReadRequest(position=7 << 32, size=9)) == b""


async def test_an_append_that_only_continues_has_no_state_with_it() -> None:
    stream = FakeStream()
    store = StreamStore(logs_of(stream), stream="journals")
    log = log_of(10)
    await shipped(store, log)
    for _ in range(200):
        log.write(10)
        await copied(store, appending(FIRST, *log.next(log.end - 34)))
    sizes = [len(body) for body in stream.messages.values()]
    assert max(sizes[3:]) < 34 + 40
    fresh = store_of(stream)
    assert (await copied(fresh, claiming(SECOND))).extents == log.extents


async def test_a_repeated_append_changes_nothing() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10, 10)
    copy = await shipped(store, log)
    count = len(stream.messages)
    assert await copied(store, appending(FIRST, *log.next(0))) == copy
    assert len(stream.messages) == count


async def test_refusals_are_those_of_a_gateway() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10)
    piece, data = log.next(0)
    assert isinstance(await asked(store, appending(FIRST, piece, data)), UnclaimedError)
    await shipped(store, log)
    later = piece._replace(after=log.end + 5, position=log.end + 5)
    assert isinstance(await asked(store, appending(FIRST, later, data)), GapError)
    cut = CutRequest(number=1, claimant="a", position=9)
    assert isinstance(await asked(store, cut), ConflictError)
    assert (await copied(store_of(stream), claiming(SECOND))).extents == log.extents
    assert isinstance(await asked(store_of(stream), claiming(FIRST)), FencedError)


async def test_a_segment_that_was_cut_back_goes_on_with_other_bytes() -> None:
    stream = FakeStream()
    first = log_of(10, 100)
    await shipped(store_of(stream), first)
    # The copy of another store was the latest, and is shorter.
    second = log_of(10)
    store = store_of(stream)
    await copied(store, claiming(SECOND))
    await copied(store, CutRequest(number=2, claimant="b", position=second.end))
    second.fill = b"y"
    second.write(300)
    copy = await copied(store, appending(SECOND, *second.next(second.end - 324)))
    assert await content(store_of(stream), copy) == second.segments


async def test_a_segment_is_read_from_its_own_messages() -> None:
    stream = FakeStream()
    log = log_of(10)
    log.begin(2, created=2.0)
    log.write(200)
    copy = await shipped(store_of(stream), log)
    del stream.messages[sorted(stream.messages)[-2]]
    data = await asked(store_of(stream), ReadRequest(position=1 << 32, size=1 << 20))
    assert data == log.segments[1]
    assert copy.extents == log.extents


async def test_what_is_removed_is_purged() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(100)
    for number in (2, 3):
        log.begin(number, created=float(number))
        log.write(200)
    copy = await shipped(store, log)
    count = len(stream.messages)
    # Later segments were begun when it had all, so they have the rest of the state.
    remove = RemoveRequest(number=1, claimant="a", first=3, through=copy.end)
    assert (await copied(store, remove)).extents == copy.extents[2:]
    assert len(stream.messages) < count - 8
    fresh = store_of(stream)
    left = await copied(fresh, claiming(SECOND))
    assert await content(fresh, left) == {3: log.segments[3]}
    log.write(100)
    await copied(fresh, appending(SECOND, *log.next(copy.end)))
    assert await content(fresh, await copied(fresh, claiming(SECOND))) == {3: log.segments[3]}


async def test_a_copy_that_lacks_removed_segments_is_replaced_once_the_next_is_whole() -> None:
    stream = FakeStream()
    old = log_of(100)
    copy = await shipped(store_of(stream), old)
    # The first two segments of this writer's log are removed.
    log = log_of(10, number=3, fill=b"y")
    store = store_of(stream)
    await copied(store, claiming(SECOND))
    piece, data = log.next(0)
    base = (3 << 32) + piece.size + 60
    for end in (piece.size, piece.size + 34):
        known = await copied(store, appending(SECOND, piece, data, base=base))
        fresh = store_of(stream)
        assert await copied(fresh, claiming(SECOND)) == known
        assert known.extents == copy.extents
        assert known.newest[-1].size == end
        log.write(10)
        piece, data = log.next((3 << 32) + end)
        store = fresh


async def test_a_session_that_is_released_leaves_one_message() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10, 300)
    await shipped(store, log)
    release = ReleaseRequest(number=1, claimant="a")
    for _ in range(2):
        copy = await copied(store, release)
        assert copy == Copy(promised=FIRST, written=FIRST)
    assert len(stream.messages) == 1
    assert isinstance(await asked(store_of(stream), claiming(Epoch(0, "z"))), FencedError)
    fresh = store_of(stream)
    assert await copied(fresh, claiming(SECOND)) == Copy(promised=SECOND, written=FIRST)
    assert isinstance(await asked(store, release), FencedError)


async def test_a_release_is_repeated_until_its_messages_are_gone() -> None:
    stream = FakeStream(refuses_purge=True)
    store = store_of(stream)
    await shipped(store, log_of(10, 300))
    release = ReleaseRequest(number=1, claimant="a")
    assert isinstance(await asked(store, release), Unanswered)
    stream.refuses_purge = False
    assert (await copied(store, release)).extents == ()
    assert len(stream.messages) == 1


# Parts.


@pytest.mark.parametrize("done", [0, 1, 2])
async def test_an_append_whose_parts_are_not_complete_is_not_there(done: int) -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10)
    copy = await shipped(store, log)
    log.write(2 * PART)
    count = len(stream.messages)

    def refuse(stream: FakeStream) -> None:
        if len(stream.messages) == count + done:
            raise JetStreamError("the connection was closed")

    stream.before = refuse
    piece, data = log.next(copy.end)
    assert await asked(store, appending(FIRST, piece, data)) == Unanswered(
        reason="the connection was closed"
    )
    stream.before = lambda _: None
    fresh = store_of(stream)
    found = await copied(fresh, claiming(SECOND))
    assert found.extents == copy.extents
    # The next writer's own bytes come behind those parts.
    own = log_of(3 * PART, number=2, fill=b"y")
    piece, data = own.next(0)
    await copied(fresh, appending(SECOND, piece._replace(after=copy.end), data))
    kept = await content(fresh, await copied(fresh, claiming(SECOND)))
    assert kept == {1: log.segments[1][: copy.extents[-1].size], **own.segments}


async def test_the_same_writer_repeats_what_is_not_complete() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10)
    copy = await shipped(store, log)
    log.write(5 * PART)
    failing = iter([False, False, True])

    def refuse(_: FakeStream) -> None:
        if next(failing, False):
            raise JetStreamError("no answer")

    stream.before = refuse
    assert isinstance(await asked(store, appending(FIRST, *log.next(copy.end))), Unanswered)
    # More has come meanwhile.
    log.write(10)
    copy = await shipped(store, log)
    assert await content(store_of(stream), copy) == log.segments


# Identities of removed segments.


async def test_identities_are_kept_until_they_are_forgotten() -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    for number in (2, 3, 5):
        assert (await copied(store, keeping(FIRST, number))).identities == number
    fresh = store_of(stream)
    assert (await copied(fresh, claiming(FIRST))).identities == 5
    assert await identities(fresh) == {number: identities_file(number) for number in (2, 3, 5)}
    assert await asked(fresh, ReadRequest(identities=True, position=4 << 32, size=9)) == b""
    count = len(stream.identities.messages)
    await copied(fresh, keeping(FIRST, 6, first=5))
    assert await identities(fresh) == {number: identities_file(number) for number in (5, 6)}
    # Those of two files are gone, and those of one have come.
    assert len(stream.identities.messages) < count


async def test_a_repeated_file_of_identities_changes_nothing() -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    copy = await copied(store, keeping(FIRST, 2))
    counts = len(stream.messages), len(stream.identities.messages)
    assert await copied(store, keeping(FIRST, 2)) == copy
    assert (len(stream.messages), len(stream.identities.messages)) == counts


@pytest.mark.parametrize("done", [0, 1])
async def test_a_file_of_identities_whose_parts_are_not_complete_is_not_there(done: int) -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))

    def refuse(beside: FakeStream) -> None:
        if len(beside.messages) == done:
            raise JetStreamError("the connection was closed")

    stream.identities.before = refuse
    assert len(identities_file(2)) > PART
    assert isinstance(await asked(store, keeping(FIRST, 2)), Unanswered)
    stream.identities.before = lambda _: None
    assert await identities(store_of(stream)) == {}
    await copied(store, keeping(FIRST, 2))
    assert await identities(store_of(stream)) == {2: identities_file(2)}


async def test_a_writer_that_is_fenced_keeps_no_identities() -> None:
    stream = FakeStream()
    old = store_of(stream)
    await shipped(old, log_of(10, number=9))
    await copied(store_of(stream), claiming(SECOND))
    assert isinstance(await asked(old, keeping(FIRST, 2)), FencedError)
    assert await identities(store_of(stream)) == {}
    assert isinstance(await asked(old, keeping(Epoch(3, "c"), 2)), UnclaimedError)


async def test_another_writers_parts_in_between_are_not_part_of_a_file() -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    turns = iter([False, True])

    def disturb(beside: FakeStream) -> None:
        if next(turns, False):
            beside.add(b"of another writer")

    stream.identities.before = disturb
    await copied(store, keeping(FIRST, 2))
    assert await identities(store_of(stream)) == {2: identities_file(2)}


async def test_a_deleted_part_of_a_file_of_identities_is_missed() -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    await copied(store, keeping(FIRST, 2))
    await copied(store, keeping(FIRST, 3))
    kept = dict(stream.identities.messages)
    # The first file has two parts, and so has the second.
    for gone in sorted(kept)[:2]:
        stream.identities.messages = {at: body for at, body in kept.items() if at != gone}
        read = ReadRequest(identities=True, position=2 << 32, size=9)
        told = await asked(store_of(stream), read)
        assert isinstance(told, BrokenError)
        assert "is missing; let nobody delete any" in str(told)


async def test_a_session_that_is_released_has_no_identities() -> None:
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    await copied(store, keeping(FIRST, 2))
    await copied(store, ReleaseRequest(number=1, claimant="a"))
    assert stream.identities.messages == {}
    assert await asked(store_of(stream), IdentitiesRequest()) == encode_identities([])


async def test_no_more_files_of_identities_are_kept_than_the_state_may_name(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(streams, "MOST_FILES", 2)
    stream = FakeStream()
    store = store_of(stream)
    await shipped(store, log_of(10, number=9))
    for number in (2, 3, 4):
        await copied(store, keeping(FIRST, number))
    assert await identities(store_of(stream)) == {n: identities_file(n) for n in (3, 4)}


# Claims.


@dataclass
class Restless:
    """A writer in another process that appends whenever it may."""

    log: ShippedLog
    state: StreamState
    written: int = 0

    def write(self, stream: FakeStream) -> None:
        if max(stream.messages) != self.state.last:
            return
        end = self.log.end
        self.log.write(5)
        changing = change(self.state, appending(FIRST, *self.log.next(end)))
        sequence = stream.add(next(changing).body)
        with pytest.raises(StopIteration) as ended:
            changing.send(sequence)
        self.state = ended.value.value
        self.written += 1


async def test_a_claim_gets_through_beside_a_writer_that_never_pauses() -> None:
    stream = FakeStream()
    old, log = store_of(stream), log_of(10)
    copy = await shipped(old, log)
    last = decode_message(*max(stream.messages.items()))
    restless = Restless(log, state_of(last, last))
    # Before each message of the claimant one of the old writer.
    stream.before = restless.write
    claimed = await copied(store_of(stream), claiming(SECOND))
    stream.before = lambda _: None
    assert restless.written == 1
    assert claimed == Copy(promised=SECOND, written=FIRST, extents=log.extents)
    told = await asked(old, appending(FIRST, *log.next(copy.end)))
    assert isinstance(told, FencedError)
    assert "b has claimed the session under epoch 2" in str(told)
    # The fence names no message before it, and the next one goes on behind it.
    own = log_of(10, number=1)
    own.segments = dict(log.segments)
    own.write(10)
    piece, data = own.next(claimed.end)
    await copied(old, claiming(SECOND))
    copy = await copied(old, appending(SECOND, piece, data))
    assert await content(store_of(stream), copy) == own.segments


@pytest.mark.parametrize("has_log", [False, True])
@pytest.mark.parametrize("known", [False, True])
@pytest.mark.parametrize("turn", [0, 1])
async def test_of_two_claims_at_once_the_lower_is_refused(
    turn: int, known: bool, has_log: bool
) -> None:
    """The other's fence comes before or behind that of the first."""
    stream, log = FakeStream(), log_of(10)
    if has_log:
        await shipped(store_of(stream), log, Epoch(1, "0"))
    turns = iter([turn == 0, turn == 1])

    def claim(stream: FakeStream) -> None:
        if next(turns, False):
            stream.add(fence(SECOND, known=max(stream.messages, default=0) if known else 0))

    stream.before = claim
    assert isinstance(await asked(store_of(stream), claiming(FIRST)), FencedError)
    found = await copied(store_of(stream), claiming(SECOND))
    assert found.extents == (log.extents if has_log else ())


async def test_a_claim_whose_claimant_died_behind_its_fence_is_one() -> None:
    stream = FakeStream()
    old, log = store_of(stream), log_of(10)
    copy = await shipped(old, log)
    count = len(stream.messages)

    def refuse(stream: FakeStream) -> None:
        if len(stream.messages) > count:
            raise JetStreamError("it died")

    stream.before = refuse
    assert isinstance(await asked(store_of(stream), claiming(SECOND)), Unanswered)
    stream.before = lambda _: None
    log.write(10)
    assert isinstance(await asked(old, appending(FIRST, *log.next(copy.end))), FencedError)
    again = await copied(store_of(stream), claiming(SECOND))
    assert again == Copy(promised=SECOND, written=FIRST, extents=copy.extents)
    assert await content(store_of(stream), again) == {1: log.segments[1][: copy.extents[0].size]}


async def test_an_answer_that_was_lost_is_found_by_the_next_claim() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10)
    await shipped(store, log)
    log.write(10)

    def lose(_: FakeStream) -> None:
        raise JetStreamError("no answer")

    stream.after = lose
    piece, data = log.next(log.end - 34)
    assert isinstance(await asked(store, appending(FIRST, piece, data)), Unanswered)
    stream.after = lambda _: None
    assert (await copied(store, claiming(FIRST))).end == log.end


async def test_a_request_waits_for_the_one_before_it() -> None:
    """A shipper may claim while the claim of the start is not answered yet."""
    stream = FakeStream()
    store, log = store_of(stream), log_of(300)
    told: list[object] = []
    store.send(claiming(FIRST), told.append)
    store.send(appending(FIRST, *log.next(0)), told.append)
    assert (await copied(store, claiming(FIRST))).extents == log.extents
    assert told == [
        Copy(promised=FIRST),
        Copy(promised=FIRST, written=FIRST, extents=log.extents),
    ]


async def test_requests_to_a_store_that_is_closed_hear_nothing() -> None:
    stream = FakeStream()
    store = store_of(stream)
    told: list[object] = []
    for _ in range(2):
        store.send(claiming(FIRST), told.append)
    store.close()
    store.send(claiming(FIRST), told.append)
    other = store_of(stream)
    assert await copied(other, claiming(SECOND)) == Copy(promised=SECOND)
    assert told == []


# What somebody did to the stream.


async def test_a_stream_that_was_created_anew_gets_all_again() -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10, 100)
    await shipped(store, log)
    stream.messages.clear()
    stream.sequence = 0
    log.write(10)
    told = await asked(store, appending(FIRST, *log.next(log.end - 34)))
    assert isinstance(told, UnclaimedError)
    copy = await shipped(store, log)
    assert await content(store_of(stream), copy) == log.segments


@pytest.mark.parametrize("gone", range(2, 9))
async def test_a_message_that_was_deleted_is_missed(gone: int) -> None:
    stream = FakeStream()
    store, log = store_of(stream), log_of(10, 300)
    copy = await shipped(store, log)
    at = sorted(stream.messages)[gone]
    del stream.messages[at]
    with pytest.raises(AssertionError, match="missing"):
        await content(store_of(stream), copy)


async def test_a_message_of_somebody_else_is_named() -> None:
    stream = FakeStream()
    await shipped(store_of(stream), log_of(10))
    sequence = stream.add(b"hello")
    told = await asked(store_of(stream), claiming(SECOND))
    assert isinstance(told, BrokenError)
    assert f"message {sequence} is not of a journal" in str(told)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"storage": "memory"}, "create it with storage: file"),
        ({"num_replicas": 1}, "set replicas to 3 or more"),
        ({"persist_mode": "async"}, "unset persist_mode"),
        ({"no_ack": True}, "unset no_ack"),
        ({"retention": "interest"}, "set retention: limits"),
        ({"discard": "old"}, "set discard: new"),
        ({"max_age": 10**9}, "unset max_age"),
        ({"max_msgs_per_subject": 5}, "unset max_msgs_per_subject"),
        ({"max_msg_size": 1000}, "set max_msg_size to 1 MiB or more"),
        ({"mirror": {"name": "other"}}, "it is a mirror"),
        ({"sealed": True}, "it is sealed"),
        ({"deny_purge": True}, "unset deny_purge"),
        ({"subject_transform": {"src": "a"}}, "unset subject_transform"),
        ({"allow_direct": False}, "set allow_direct: true"),
    ],
)
async def test_a_stream_that_could_lose_messages_is_no_store(
    given: dict[str, Any], words: str
) -> None:
    assert unfit(CONFIGURATION) is None
    stream = FakeStream(configured=CONFIGURATION | given)
    told = await asked(store_of(stream), claiming(FIRST))
    assert isinstance(told, Unanswered)
    assert told.reason.startswith("stream journals is no store: ")
    assert words in told.reason
    assert not stream.messages


async def test_servers_that_take_too_little_are_no_store() -> None:
    stream = FakeStream(payload=500_000)
    told = await asked(StreamStore(logs_of(stream), stream="journals"), claiming(FIRST))
    assert told == Unanswered(
        reason="the servers take messages of 500000 bytes, and a store needs 1048576; set"
        " max_payload to 1 MiB or more"
    )


# The way to it.


async def test_after_a_failure_it_goes_on_over_another_connection() -> None:
    stream = FakeStream()
    moves: list[bool] = []
    store = StreamStore(logs_of(stream, move=lambda: moves.append(True)), stream="journals")
    await copied(store, claiming(FIRST))
    assert moves == []

    def fail(_: FakeStream) -> None:
        raise JetStreamError("no answer")

    stream.before = fail
    assert isinstance(await asked(store, claiming(SECOND)), Unanswered)
    assert moves == [True]


async def test_a_later_connection_is_used_from_the_next_request_on() -> None:
    first, second, last = FakeStream(), FakeStream(), FakeStream()
    store = StreamStore(logs_of(first), stream="journals")
    await copied(store, claiming(FIRST))
    told: list[object] = []
    store.send(claiming(FIRST), told.append)
    store.use(logs_of(second))
    store.use(logs_of(last))
    await copied(store, claiming(SECOND))
    assert (bool(first.messages), bool(second.messages), bool(last.messages)) == (True, False, True)
    assert told == [Copy(promised=FIRST)]
    store.use(logs_of(second))
    store.close()


# Beside a gateway's store, at random.


@dataclass
class Pair:
    """A stream and a gateway's store that are asked the same."""

    stream: FakeStream = field(default_factory=FakeStream)
    gateway: Store = field(
        default_factory=lambda: Store(
            RecordingFolders(), StoreLimits(maximum_bytes=1 << 20, maximum_sessions=1)
        )
    )
    fails: Callable[[], bool] = lambda: False

    async def ask(self, store: StreamStore, request: Request) -> Copy | StoreError | Unanswered:
        def before(_: FakeStream) -> None:
            if self.fails():
                raise JetStreamError("not sent")

        def after(_: FakeStream) -> None:
            if self.fails():
                raise JetStreamError("not answered")

        for one in (self.stream, self.stream.identities):
            one.before, one.after = before, after
        answer = await asked(store, request)
        for one in (self.stream, self.stream.identities):
            one.before = one.after = lambda _: None
        assert not isinstance(answer, bytes)
        if isinstance(answer, Unanswered):
            # Done or not: asked again, it is.
            answer = await asked(store, request)
            assert not isinstance(answer, bytes | Unanswered)
        assert _shown(answer) == _shown(_performed(self.gateway, request))
        return answer


def _performed(gateway: Store, request: Request) -> Copy | StoreError:
    try:
        copy = perform(gateway, SESSION, request)
    except StoreError as error:
        return error
    assert isinstance(copy, Copy)
    return copy


def _shown(answer: Copy | StoreError) -> object:
    return answer if isinstance(answer, Copy) else (type(answer), str(answer))


@dataclass
class Shipping:
    """A writer with a store object of its own."""

    epoch: Epoch
    store: StreamStore
    copy: Copy
    log: ShippedLog
    base: tuple[Extent, ...]
    removal: Removal = NO_REMOVAL

    def write(self, chance: random.Random) -> None:
        last = max(self.log.segments, default=0)
        if end_of(self.base) >= last << 32 or chance.random() < 0.25:
            self.log.begin(last + 1, created=float(self.epoch.number))
        self.log.write(chance.choice([1, 40, 200]))
        if len(self.log.segments) > 2 and chance.random() < 0.2:
            # What was pending in it was copied forward.
            oldest = min(self.log.segments)
            del self.log.segments[oldest]
            self.log.identities[oldest] = identities_file(oldest)
            if len(self.log.identities) > 2:
                del self.log.identities[min(self.log.identities)]
            self.removal = Removal(min(self.log.segments), self.log.end)

    def next(self) -> Request | None:
        change = next_change(
            self.copy,
            self.epoch,
            self.log.extents,
            # As if the others had come as far.
            stable=self.copy.end,
            removal=self.removal,
            identities=sorted(self.log.identities),
        )
        match change:
            case Keep(segment):
                return keeping(self.epoch, segment, first=min(self.log.identities))
            case Cut(position):
                return CutRequest(
                    number=self.epoch.number, claimant=self.epoch.claimant, position=position
                )
            case Removal(first, through):
                return RemoveRequest(
                    number=self.epoch.number,
                    claimant=self.epoch.claimant,
                    first=first,
                    through=through,
                )
            case Piece() as piece:
                number, offset = segment_of(piece.position)
                data = self.log.segments[number][offset : offset + piece.size]
                return appending(
                    self.epoch, piece, data, base=max(end_of(self.base), self.removal.through)
                )
        return None


@pytest.mark.parametrize("seed", range(40))
async def test_it_is_like_a_gateways_store(seed: int) -> None:
    chance = random.Random(seed)
    pair = Pair(fails=lambda: chance.random() < 0.1)
    kept: list[dict[int, bytes]] = [{}]
    writers: list[Shipping] = []
    for number in range(1, 5):
        epoch = Epoch(number, "writer")
        store = store_of(pair.stream)
        copy = await pair.ask(store, claiming(epoch))
        assert isinstance(copy, Copy)
        # What an earlier writer had, or less of it: that of another store was the latest.
        segments = dict(chance.choice(kept))
        log = ShippedLog(segments=segments, fill=b"%d" % number)
        writers.append(Shipping(epoch, store, copy, log, log.extents))
        for _ in range(chance.choice([3, 15])):
            writer = chance.choice([*writers, writers[-1], writers[-1]])
            if chance.random() < 0.5 or not writer.log.segments:
                writer.write(chance)
            request = writer.next()
            answer = None if request is None else await pair.ask(writer.store, request)
            if isinstance(answer, Copy):
                writer.copy = answer
            elif answer is not None:
                assert isinstance(answer, FencedError), answer
                writers.remove(writer)
            kept.append(dict(writer.log.segments))
        fresh = store_of(pair.stream)
        current = pair.gateway.claim(SESSION, epoch) if writers[-1:] else Copy()
        assert await asked(fresh, IdentitiesRequest()) == perform(
            pair.gateway, SESSION, IdentitiesRequest()
        )
        for number, data in (await identities(fresh)).items():
            assert data == identities_file(number)
        found = await content(fresh, current)
        for extent in current.extents:
            at = extent.number << 32
            assert found[extent.number] == pair.gateway.read(SESSION, at, extent.size)
        kept.append(found)
