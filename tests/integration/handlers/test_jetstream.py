"""A stream as a store, against a server of the tests' own, and its bad days (S3.11)."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.stores import StreamMember
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.nats.link import StreamLink
from pillion_sidecar.handlers.resolver import Resolver
from pillion_sidecar.handlers.transport.sender import SharedParts
from pillion_sidecar.stores.messages import AppendRequest, ClaimRequest, ReadRequest
from pillion_sidecar.stores.ports import Unanswered
from pillion_sidecar.testing import FakeTime
from support.broker_tests import server_tls
from support.nats_server import INFO, Message, Script, listening
from support.stores import SESSION, ShippedLog
from support.streams import NOT_FOUND, FakeStream, asked, content, copied, said

CLAIM = ClaimRequest(number=1, claimant="a")
NO_RESPONDERS = b"HMSG REPLY 1 16 16\r\nNATS/1.0 503\r\n\r\n\r\n"


def member(*servers: str, **given: Any) -> StreamMember:
    return StreamMember(name="nats", servers=servers, stream="journals", **given)


@asynccontextmanager
async def storing(time: FakeTime, *servers: str, **given: Any) -> AsyncIterator[StreamLink]:
    resolver = Resolver()
    store = StreamLink(
        member(*servers, **given),
        session=SESSION,
        parts=SharedParts(clock=time, timers=time, resolver=resolver),
        address_policy=AddressPolicy(allow_loopback=True),
        timeout=1000.0,
    )
    try:
        yield store
    finally:
        store.close()
        await resolver.close()


async def appended(store: StreamLink, log: ShippedLog) -> None:
    copy = await copied(store, CLAIM)
    while copy.end < log.end:
        piece, data = log.next(copy.end)
        request = AppendRequest(
            number=1,
            claimant="a",
            after=piece.after,
            position=piece.position,
            created=piece.created,
            base=0,
            data=data,
        )
        copy = await copied(store, request)


def begun(*sizes: int) -> ShippedLog:
    log = ShippedLog()
    log.begin(1, created=1.0)
    for size in sizes:
        log.write(size)
    return log


async def test_what_is_sent_is_read_back(fake_time: FakeTime) -> None:
    stream = FakeStream()
    log = begun(10, 2_500_000, 10)
    async with listening(script=stream.answered) as server:
        async with storing(fake_time, server.url) as store:
            await appended(store, log)
        async with storing(fake_time, server.url) as store:
            copy = await copied(store, CLAIM)
            assert copy.extents == log.extents
            assert await content(store, copy) == log.segments
    session = f"pillion.journals.{SESSION}"
    published = [one for one in server.messages if one.subject == session]
    assert {one.headers["Nats-Expected-Stream"] for one in published} == {"journals"}
    # A fence names no message before it.
    assert "Nats-Expected-Last-Subject-Sequence" not in published[0].headers
    assert all(len(one.payload) < 1 << 20 for one in published)


async def test_messages_of_several_batches_are_read(fake_time: FakeTime) -> None:
    stream, log = FakeStream(), begun()
    async with listening(script=stream.answered) as server:
        async with storing(fake_time, server.url) as store:
            for _ in range(300):
                log.write(1)
                await appended(store, log)
        async with storing(fake_time, server.url) as store:
            assert await content(store, await copied(store, CLAIM)) == log.segments


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        ({"error": {"err_code": 10059}}, "there is no stream journals; create it"),
        (
            {"error": {"err_code": 10008, "description": "planted"}},
            "JetStream error 10008: planted",
        ),
        ({"error": "planted"}, "JetStream error without a code"),
        ({"config": 5}, "its answer has no config"),
        (NO_RESPONDERS, "no stream journals answers, or JetStream is off (503)"),
        (b"MSG REPLY 1 2\r\n[]\r\n", "its answer is none of JetStream"),
        (b"MSG REPLY 1 4\r\n{{{{\r\n", "its answer is none of JetStream"),
        (b"HMSG REPLY 1 14 14\r\nNATS/1.0 x\r\n\r\n\r\n", "the server's message has no status"),
        (
            b"HMSG REPLY 1 24 24\r\nNATS/1.0 408 planted\r\n\r\n\r\n",
            "the server answered 408: NATS/1.0 408 planted",
        ),
    ],
)
async def test_another_answer_is_told(fake_time: FakeTime, answer: Any, words: str) -> None:
    async with (
        listening(answer=answer) as server,
        storing(fake_time, server.url) as store,
    ):
        told = await asked(store, CLAIM)
    assert isinstance(told, Unanswered)
    assert words in told.reason


def but_for(stream: FakeStream, subject: str, answer: bytes) -> Script:
    """Answer as the stream, except messages to subjects that begin with ``subject``."""

    async def answered(message: Message) -> bytes:
        return answer if message.subject.startswith(subject) else await stream.answered(message)

    return answered


PUBLISH, GET, READ = "pillion.", "$JS.API.STREAM.MSG.GET.", "$JS.API.DIRECT.GET."


@pytest.mark.parametrize(
    ("subject", "answer", "words"),
    [
        (PUBLISH, {"stream": "journals"}, "its answer is not an acknowledgement of a stream"),
        (PUBLISH, {"seq": True}, "its answer is not an acknowledgement of a stream"),
        (PUBLISH, {"seq": 0}, "its answer is not an acknowledgement of a stream"),
        (GET, {}, "its answer has no message"),
        (GET, {"message": {}}, "its answer has no message of a stream"),
        (GET, {"message": {"seq": 1, "data": "?"}}, "its answer has no message of a stream"),
        (GET, {"message": {"seq": 1, "data": 1}}, "its answer has no message of a stream"),
    ],
)
async def test_what_is_no_answer_of_a_stream_keeps_nothing(
    fake_time: FakeTime, subject: str, answer: Any, words: str
) -> None:
    stream = FakeStream()
    async with (
        listening(script=but_for(stream, subject, said(answer))) as server,
        storing(fake_time, server.url) as store,
    ):
        assert await asked(store, CLAIM) == Unanswered(reason=words)


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"HMSG REPLY 1 12 14\r\nNATS/1.0\r\n\r\nab\r\n", "message has no sequence"),
        (b"HMSG REPLY 1 14 14\r\nNATS/1.0 x\r\n\r\n\r\n", "message has no status"),
        (NOT_FOUND, "a message is missing, or not there yet"),
        (NO_RESPONDERS, "no stream journals answers"),
    ],
)
async def test_what_is_no_message_is_not_read(
    fake_time: FakeTime, answer: bytes, words: str
) -> None:
    stream, log = FakeStream(), begun(10)
    async with (
        listening(script=but_for(stream, READ, answer)) as server,
        storing(fake_time, server.url) as store,
    ):
        await appended(store, log)
        told = await asked(store, ReadRequest(position=1 << 32, size=10))
    assert isinstance(told, Unanswered)
    assert words in told.reason


async def test_a_server_that_takes_too_little_is_named(fake_time: FakeTime) -> None:
    stream = FakeStream()
    async with (
        listening(script=stream.answered, info={**INFO, "max_payload": 50_000}) as server,
        storing(fake_time, server.url) as store,
    ):
        told = await asked(store, CLAIM)
    assert isinstance(told, Unanswered)
    assert "the servers take messages of 50000 bytes" in told.reason
    assert not stream.messages


async def test_credentials_are_those_of_destinations(fake_time: FakeTime) -> None:
    credentials = Credentials(username="pillion", password="open sesame")
    stream = FakeStream()
    async with (
        listening(script=stream.answered) as server,
        storing(fake_time, server.url, credentials=credentials) as store,
    ):
        await copied(store, CLAIM)
    assert (server.logins[0]["user"], server.logins[0]["pass"]) == ("pillion", "open sesame")


def trusting(authority: trustme.CA, **given: Any) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes(), **given)


@pytest.mark.parametrize("first", [False, True])
async def test_servers_are_verified_as_those_of_destinations(
    fake_time: FakeTime, first: bool
) -> None:
    authority, stream = trustme.CA(), FakeStream()
    tls = server_tls(authority, "nats.example")
    async with listening(tls, tls_first=first, script=stream.answered) as server:
        given = {"tls_first": first, "tls": trusting(authority, server_name="nats.example")}
        async with storing(fake_time, server.url, **given) as store:
            await copied(store, CLAIM)
        for wrong in (TLSOptions(), trusting(authority)):
            async with storing(fake_time, server.url, tls=wrong, tls_first=first) as store:
                told = await asked(store, CLAIM)
            assert isinstance(told, Unanswered)
            assert "certificate" in told.reason


async def test_no_answer_quotes_the_credentials(fake_time: FakeTime) -> None:
    credentials = Credentials(username="pillion", password="open sesame")
    async with (
        listening(refusal=b"-ERR 'no such password: open sesame'\r\n") as server,
        storing(fake_time, server.url, credentials=credentials) as store,
    ):
        told = await asked(store, CLAIM)
    assert told == Unanswered(reason="the answer quotes the credentials, so it is not shown")


async def test_wrong_credentials_are_named_and_later_ones_are_used(fake_time: FakeTime) -> None:
    stream = FakeStream()
    async with (
        listening(script=stream.answered, refusal=b"-ERR 'Authorization Violation'\r\n") as server,
        storing(fake_time, server.url, credentials=Credentials(bearer_token="old")) as store,
    ):
        told = await asked(store, CLAIM)
        assert isinstance(told, Unanswered)
        assert "the server refuses: Authorization Violation" in told.reason
        server.refusal = b""
        store.renew(member(server.url, credentials=Credentials(bearer_token="new")))
        await copied(store, CLAIM)
    assert [login["auth_token"] for login in server.logins] == ["old", "new"]


async def test_after_a_failure_the_next_server_is_asked(fake_time: FakeTime) -> None:
    stream = FakeStream()
    async with (
        listening(script=stream.answered) as server,
        storing(fake_time, "nats://127.0.0.1:1", server.url) as store,
    ):
        assert isinstance(await asked(store, CLAIM), Unanswered)
        await copied(store, CLAIM)
        await copied(store, CLAIM)
    assert server.connections == 1


async def test_an_address_that_is_not_allowed_is_not_reached(fake_time: FakeTime) -> None:
    resolver = Resolver()
    store = StreamLink(
        member("nats://127.0.0.1:9"),
        session=SESSION,
        parts=SharedParts(clock=fake_time, timers=fake_time, resolver=resolver),
        address_policy=AddressPolicy(),
        timeout=1000.0,
    )
    told = await asked(store, CLAIM)
    store.close()
    await resolver.close()
    assert isinstance(told, Unanswered)
    assert "127.0.0.1" in told.reason


async def test_another_protocol_is_refused(fake_time: FakeTime) -> None:
    with pytest.raises(InvalidDestinationError, match="scheme 'http' is not supported"):
        async with storing(fake_time, "http://a"):
            pass


async def test_a_request_that_is_closed_hears_nothing(fake_time: FakeTime) -> None:
    told: list[object] = []
    async with listening(answer=None) as server, storing(fake_time, server.url) as store:
        store.send(CLAIM, told.append)
        await server.reached.wait()
    assert told == []
