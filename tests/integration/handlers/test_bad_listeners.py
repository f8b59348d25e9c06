"""The sender against listeners that misbehave: each is told apart, once, and costs bounded space
and time."""

import asyncio
import socket
import struct

import pytest

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, Script, listening, ok, request, send, sending
from support.name_server import name_server

ERROR = DeliveryResult.ERROR
POST_DELIVERY_ERROR = DeliveryResult.POST_DELIVERY_ERROR


def says(*parts: bytes, close: bool = False) -> Script:
    """Answer each request with ``parts``, then close or wait for the sender to."""

    async def script(peer: Peer) -> None:
        await peer.request()
        for part in parts:
            await peer.send(part)
        if close:
            peer.close()
        else:
            await peer.closed()

    return script


@pytest.mark.parametrize(
    ("answer", "status", "words"),
    [
        (b"220 mail.example ESMTP\r\n", None, "not HTTP"),
        (b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", None, "not HTTP"),
        (b"\x00" * 100, None, "not HTTP"),
        (b"HTTP/1.1 400 Bad Request\r\nCIMErrorDetails: one\ntwo\r\n\r\n", 400, "HTTP 400"),
        (b"HTTP/1.1 200 OK\r\nA: b\nc\r\n\r\n", 200, "HTTP 200"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: many\r\n\r\n", 200, "HTTP 200"),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n", 200, "HTTP 200"),
        (b"HTTP/1.1 101 Other\r\nUpgrade: x\r\nConnection: upgrade\r\n\r\n", None, "switches"),
        (b"HTTP/1.1 200 OK\r\nA: " + b"x" * 40_000, 200, "head is longer"),
        (b"HTTP/1.1 200 OK\r\n" + b"A: b\r\n" * 4_000 + b"\r\n", 200, "head is longer"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 70000\r\n\r\n" + b"x" * 70_000, 200, "body is long"),
        (b"HTTP/1.1 100 Continue\r\n\r\n" * 4_000, None, "head is longer"),
    ],
)  # fmt: skip
async def test_an_answer_that_is_no_good_is_an_error(
    fake_time: FakeTime, answer: bytes, status: int | None, words: str
) -> None:
    async with listening(says(answer)) as listener, sending(listener.url, fake_time) as sender:
        failure = await (await send(sender)).failure()
    assert (failure.result, failure.status) == (ERROR, status)
    assert words in failure.detail


async def test_an_endless_answer_is_cut_off(fake_time: FakeTime) -> None:
    sent = 0

    async def script(peer: Peer) -> None:
        nonlocal sent
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nContent-Length: 100000000\r\n\r\n")
        while sent < 100_000_000:
            await peer.send(b"x" * 100_000)
            sent += 100_000

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        failure = await (await send(sender)).failure()
    assert (failure.result, failure.status) == (ERROR, 200)
    assert sent < 20_000_000


async def test_endless_trailers_are_cut_off(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n")
        while True:
            await peer.send(b"Trailer: " + b"x" * 1000 + b"\r\n")

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        assert (await (await send(sender)).failure()).result is ERROR


async def test_a_listener_that_never_answers_is_given_up_at_the_deadline(
    fake_time: FakeTime,
) -> None:
    received = asyncio.Event()
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        received.set()
        await peer.closed()
        gone.set()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        recorder = await send(sender)
        await received.wait()
        fake_time.advance(29.9)
        assert not recorder.future.done()
        fake_time.advance(0.1)
        failure = await recorder.failure()
        await gone.wait()
    assert failure.result is POST_DELIVERY_ERROR
    assert failure.detail == "timed out after 30 s without an answer"


async def test_the_deadline_holds_against_an_answer_byte_by_byte(fake_time: FakeTime) -> None:
    bytes_sent = asyncio.Queue[int]()

    async def script(peer: Peer) -> None:
        await peer.request()
        for index, byte in enumerate(ok(b"x" * 1000)):
            await peer.send(bytes([byte]))
            await bytes_sent.put(index)
            await asyncio.sleep(0)

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        recorder = await send(sender)
        for _ in range(29):
            await bytes_sent.get()
            fake_time.advance(1.0)
        assert not recorder.future.done()
        fake_time.advance(1.0)
        failure = await recorder.failure()
    assert failure.result is POST_DELIVERY_ERROR
    assert "in the middle of the answer" in failure.detail


async def test_an_answer_byte_by_byte_in_time_is_an_answer(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        for byte in ok(b"<slow/>"):
            await peer.send(bytes([byte]))
            await asyncio.sleep(0)

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        assert (await (await send(sender)).answer())[2] == b"<slow/>"


async def test_the_deadline_of_a_later_attempt_is_its_own(fake_time: FakeTime) -> None:
    received = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok())
        await peer.request()
        received.set()
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        await (await send(sender)).answer()
        fake_time.advance(25.0)
        recorder = await send(sender)
        await received.wait()
        fake_time.advance(29.9)
        assert not recorder.future.done()
        fake_time.advance(0.1)
        assert (await recorder.failure()).result is POST_DELIVERY_ERROR


@pytest.mark.parametrize(
    ("answer", "status"),
    [
        (b"HTTP/1.1 200 OK\r\nContent-Length: 10\r\n\r\nhalf", 200),
        (b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nab", 200),
        (b"HTTP/1.1 20", None),
        (b"HTTP/1.1 200 OK\r\nContent-Le", 200),
        (b"", None),
    ],
)
async def test_closing_before_the_answer_is_whole_leaves_the_outcome_open(
    fake_time: FakeTime, answer: bytes, status: int | None
) -> None:
    script = says(answer, close=True)
    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        failure = await (await send(sender)).failure()
    assert (failure.result, failure.status) == (POST_DELIVERY_ERROR, status)


async def test_a_redirect_is_an_answer_and_not_followed(fake_time: FakeTime) -> None:
    script = says(
        b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:1/\r\nContent-Length: 0\r\n\r\n"
    )
    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        status, headers, _ = await (await send(sender)).answer()
        assert listener.connections == 1
    assert status == 302
    assert (b"Location", b"http://127.0.0.1:1/") in headers


async def test_an_answer_that_nobody_asked_for_costs_the_connection_alone(
    fake_time: FakeTime,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok() + ok(b"another"))
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(2):
            assert (await (await send(sender)).answer())[2] == b"ok"
        assert listener.connections == 2


async def test_a_late_answer_that_nobody_asked_for_is_not_taken_for_the_next(
    fake_time: FakeTime,
) -> None:
    closed = asyncio.Event()
    go = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok())
        await go.wait()
        await peer.send(b"HTTP/1.1 408 Request Timeout\r\n\r\n")
        await peer.closed()
        closed.set()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        await (await send(sender)).answer()
        go.set()
        await closed.wait()
        assert (await (await send(sender)).answer())[0] == 200


async def test_nobody_listening_is_an_error(fake_time: FakeTime) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        port = unused.getsockname()[1]
        async with sending(f"http://127.0.0.1:{port}/", fake_time) as sender:
            failure = await (await send(sender)).failure()
    assert failure.result is ERROR
    assert failure.detail == f"connection refused by 127.0.0.1 port {port}"


async def test_a_listener_that_does_not_accept_is_given_up_at_the_deadline(
    fake_time: FakeTime,
) -> None:
    # A full backlog drops SYN, as an address behind a firewall does.
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        where = server.getsockname()
        fillers = []
        try:
            for _ in range(4):
                filler = socket.socket()
                filler.setblocking(False)
                filler.connect_ex(where)
                fillers.append(filler)
            async with sending(f"http://127.0.0.1:{where[1]}/", fake_time) as sender:
                recorder = await send(sender)
                for _ in range(10):
                    await asyncio.sleep(0)
                fake_time.advance(30.0)
                failure = await recorder.failure()
        finally:
            for filler in fillers:
                filler.close()
    assert failure.result is ERROR
    assert failure.detail == f"timed out after 30 s while connecting to 127.0.0.1 port {where[1]}"


async def test_an_address_that_is_not_permitted_is_not_connected_to(fake_time: FakeTime) -> None:
    policy = AddressPolicy(allow_loopback=False)
    async with (
        listening(says(ok())) as listener,
        sending(listener.url, fake_time, address_policy=policy) as sender,
    ):
        failure = await (await send(sender)).failure()
        assert listener.connections == 0
    assert failure.result is ERROR
    assert "127.0.0.1" in failure.detail


@pytest.mark.parametrize(
    "address",
    ["fd00:c1::a9fe:a9fe", "fd00:42::42", "::ffff:0:169.254.169.254", "2600::5efe:169.254.169.254"],
)
async def test_an_address_that_a_name_leads_to_is_judged_like_one_in_the_url(
    fake_time: FakeTime, address: str
) -> None:
    async with (
        name_server(address) as (_, where),
        sending("http://listener.example/", fake_time, nameservers=where) as sender,
    ):
        failure = await (await send(sender)).failure()
    assert failure.result is ERROR
    assert "are not allowed here" in failure.detail


async def test_the_next_address_is_tried_where_one_refuses(fake_time: FakeTime) -> None:
    # localhost is 127.0.0.1, then ::1; the listener is on ::1 alone.
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(len(request()))
        writer.write(ok())
        await reader.read()
        writer.close()

    server = await asyncio.start_server(serve, "::1", 0)
    port = server.sockets[0].getsockname()[1]
    async with server, sending(f"http://localhost:{port}/", fake_time) as sender:
        assert (await (await send(sender)).answer())[0] == 200


async def test_a_listener_that_speaks_first_is_an_error(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"220 mail.example ESMTP\r\n")
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        failure = await (await send(sender)).failure()
    assert failure.result is ERROR
    assert "not HTTP" in failure.detail


class Raw:
    """A listener in plain blocking calls, for what must happen while no event loop runs."""

    def __init__(self) -> None:
        self.server = socket.create_server(("127.0.0.1", 0))
        self.server.setblocking(False)
        self.url = f"http://127.0.0.1:{self.server.getsockname()[1]}/"

    async def accept(self) -> socket.socket:
        connection, _ = await asyncio.get_running_loop().sock_accept(self.server)
        connection.setblocking(False)
        return connection

    async def serve(self, connection: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        wanted = len(request())
        while wanted:
            wanted -= len(await loop.sock_recv(connection, wanted))
        await loop.sock_sendall(connection, ok())


@pytest.fixture
def raw() -> Raw:
    return Raw()


async def test_a_request_on_a_connection_just_closed_goes_out_again_at_once(
    fake_time: FakeTime, raw: Raw
) -> None:
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            first = await send(sender)
            with await raw.accept() as connection:
                await raw.serve(connection)
                await first.answer()
            # Closed, and nothing has told the sender yet.
            second = await send(sender)
            with await raw.accept() as connection:
                await raw.serve(connection)
                assert (await second.answer())[0] == 200


async def test_a_large_request_on_a_connection_just_closed_goes_out_again(
    fake_time: FakeTime, raw: Raw
) -> None:
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            first = await send(sender)
            with await raw.accept() as connection:
                await raw.serve(connection)
                await first.answer()
            second = await send(sender, request(b"x" * 10_000_000))
            with await raw.accept() as connection:
                await asyncio.get_running_loop().sock_sendall(connection, ok())
                assert (await second.answer())[0] == 200


async def test_a_request_that_was_taken_before_the_close_does_not_go_out_again(
    fake_time: FakeTime, raw: Raw
) -> None:
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            first = await send(sender)
            with await raw.accept() as connection:
                await raw.serve(connection)
                await first.answer()
                second = await send(sender)
                await asyncio.get_running_loop().sock_recv(connection, 65536)
            failure = await second.failure()
            assert failure.result is POST_DELIVERY_ERROR
            assert failure.detail == "the listener closed the connection without an answer"
            with pytest.raises(BlockingIOError):
                raw.server.accept()


async def test_a_reset_after_the_request_does_not_make_it_go_out_again(
    fake_time: FakeTime, raw: Raw
) -> None:
    # Whoever resets may have read the request, so nothing is known.
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            first = await send(sender)
            connection = await raw.accept()
            await raw.serve(connection)
            await first.answer()
            second = await send(sender)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            assert (await second.failure()).result is POST_DELIVERY_ERROR
            with pytest.raises(BlockingIOError):
                raw.server.accept()


async def test_a_connection_reset_while_idle_is_replaced(fake_time: FakeTime, raw: Raw) -> None:
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            first = await send(sender)
            connection = await raw.accept()
            await raw.serve(connection)
            await first.answer()
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            connection.close()
            second = await send(sender)
            with await raw.accept() as fresh:
                await raw.serve(fresh)
                assert (await second.answer())[0] == 200


async def test_a_fresh_connection_closed_at_once_is_not_tried_again(
    fake_time: FakeTime, raw: Raw
) -> None:
    with raw.server:
        async with sending(raw.url, fake_time) as sender:
            recorder = await send(sender)
            (await raw.accept()).close()
            # Which of the two depends on whether the request or the close was there first.
            assert (await recorder.failure()).result in (ERROR, POST_DELIVERY_ERROR)
            with pytest.raises(BlockingIOError):
                raw.server.accept()
