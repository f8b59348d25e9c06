"""The sender against listeners that behave, more or less."""

import asyncio

from pillion_sidecar.handlers.http.answers import BODY_LIMIT, Reading
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, Recorder, listening, ok, request, send, sending


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(ok())


async def test_an_answer_is_told_with_status_headers_and_body(fake_time: FakeTime) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        answer = await (await send(sender)).answer()
    assert answer == (200, [(b"Content-Length", b"2")], b"ok")


async def test_requests_one_after_another_share_a_connection(fake_time: FakeTime) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(5):
            await (await send(sender)).answer()
        assert listener.connections == 1


async def test_the_next_request_may_be_sent_from_within_the_answer(fake_time: FakeTime) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        second = Recorder()
        first = Recorder(then=lambda: sender.send(request(), second))
        sender.send(request(), first)
        assert (await second.answer())[0] == 200
        assert listener.connections == 1


async def test_the_connection_may_be_renewed_from_within_the_answer(fake_time: FakeTime) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        second = Recorder()

        def go_on() -> None:
            sender.renew()
            sender.send(request(), second)

        sender.send(request(), Recorder(then=go_on))
        assert (await second.answer())[0] == 200
        assert listener.connections == 2


async def test_requests_at_the_same_time_have_connections_of_their_own(
    fake_time: FakeTime,
) -> None:
    together = asyncio.Barrier(3)

    async def script(peer: Peer) -> None:
        await peer.request()
        await together.wait()
        await peer.send(ok())
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        recorders = [await send(sender) for _ in range(3)]
        assert [(await recorder.answer())[0] for recorder in recorders] == [200, 200, 200]
        assert listener.connections == 3


async def test_a_chunked_answer_is_put_together(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
            await peer.send(b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nTrailer: t\r\n\r\n")

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(2):
            assert (await (await send(sender)).answer())[2] == b"abcde"
        assert listener.connections == 1


async def test_an_answer_of_http_1_0_ends_with_the_connection(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.0 200 OK\r\n\r\nall of it")
        peer.close()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(2):
            assert (await (await send(sender)).answer())[2] == b"all of it"
        assert listener.connections == 2


async def test_connection_close_is_honoured(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n")
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(2):
            assert (await (await send(sender)).answer())[0] == 204
        assert listener.connections == 2


async def test_interim_answers_are_passed_over(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(
                b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nA: b\r\n\r\n"
            )
            await peer.send(ok())

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        for _ in range(2):
            assert await (await send(sender)).answer() == (
                200,
                [(b"Content-Length", b"2")],
                b"ok",
            )
        assert listener.connections == 1


async def test_an_error_answer_without_an_end_is_told_at_once(fake_time: FakeTime) -> None:
    # OpenPegasus: no Content-Length, and the connection stays open.
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 400 Bad Request\r\nCIMError: request-not-valid\r\n\r\n")
        await peer.closed()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        answer = await (await send(sender)).answer()
    assert answer == (400, [(b"CIMError", b"request-not-valid")], b"")


async def test_an_answer_before_the_request_is_written_ends_it(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.send(b"HTTP/1.1 413 Content Too Large\r\nContent-Length: 0\r\n\r\n")
        await asyncio.Event().wait()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        answer = await (await send(sender, request(b"x" * 50_000_000))).answer()
        assert answer[0] == 413
        assert (await (await send(sender)).answer())[0] == 413
        assert listener.connections == 2


async def test_a_large_request_is_written_as_the_listener_reads(fake_time: FakeTime) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        assert (await (await send(sender, request(b"x" * 20_000_000))).answer())[0] == 200
        assert (await (await send(sender)).answer())[0] == 200
        assert listener.connections == 1


async def test_an_idle_connection_is_closed_after_its_time(fake_time: FakeTime) -> None:
    closed = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok())
        await peer.closed()
        closed.set()

    async with (
        listening(script) as listener,
        sending(listener.url, fake_time, seconds=7.0, idle_seconds=60.0) as sender,
    ):
        await (await send(sender)).answer()
        fake_time.advance(59.0)
        await asyncio.sleep(0)
        assert not closed.is_set()
        fake_time.advance(1.0)
        await closed.wait()
        assert fake_time.next_due() is None


async def test_a_connection_that_is_used_is_not_closed_as_idle(fake_time: FakeTime) -> None:
    async with (
        listening(answer_all) as listener,
        sending(listener.url, fake_time, seconds=30.0, idle_seconds=60.0) as sender,
    ):
        for _ in range(10):
            await (await send(sender)).answer()
            fake_time.advance(40.0)
        assert listener.connections == 1


async def test_attempts_on_a_kept_connection_leave_the_heap_of_timers_alone(
    fake_time: FakeTime,
) -> None:
    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        await (await send(sender)).answer()
        due = fake_time.next_due()
        for _ in range(20):
            fake_time.advance(1.0)
            await (await send(sender)).answer()
        assert fake_time.next_due() == due


async def test_a_listener_that_closes_an_idle_connection_is_noticed(fake_time: FakeTime) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(ok())
        peer.close()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        await (await send(sender)).answer()
        for _ in range(10):
            await asyncio.sleep(0)
        assert (await (await send(sender)).answer())[0] == 200
        assert listener.connections == 2


async def test_closing_abandons_what_is_under_way(fake_time: FakeTime) -> None:
    received = asyncio.Event()
    gone = asyncio.Event()

    async def script(peer: Peer) -> None:
        await peer.request()
        received.set()
        await peer.closed()
        gone.set()

    async with listening(script) as listener, sending(listener.url, fake_time) as sender:
        recorder = await send(sender)
        connecting = await send(sender)
        await received.wait()
        sender.close()
        await gone.wait()
        fake_time.advance(100.0)
        assert not recorder.future.done()
        assert not connecting.future.done()
        assert fake_time.next_due() is None


async def test_the_answer_of_a_gateway_is_read_whatever_its_status(fake_time: FakeTime) -> None:
    refused = b'{"reason":"no room"}'

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            head = b"HTTP/1.1 429 Too Many Requests\r\nContent-Length: %d\r\n\r\n" % len(refused)
            await peer.send(head + refused)

    async with (
        listening(script) as listener,
        sending(listener.url, fake_time, reading=Reading(errors=True)) as sender,
    ):
        for _ in range(3):
            status, _, body = await (await send(sender)).answer()
            assert (status, body) == (429, refused)
        assert listener.connections == 1


async def test_an_error_that_does_not_say_where_it_ends_is_told_at_once(
    fake_time: FakeTime,
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(b"HTTP/1.1 503 Service Unavailable\r\n\r\nand so on")
        await peer.closed()

    async with (
        listening(script) as listener,
        sending(listener.url, fake_time, reading=Reading(errors=True)) as sender,
    ):
        assert (await (await send(sender)).answer())[0] == 503


async def test_an_answer_may_be_as_long_as_its_reader_says(fake_time: FakeTime) -> None:
    body = b"x" * (BODY_LIMIT + 1)

    async def script(peer: Peer) -> None:
        while True:
            await peer.request()
            await peer.send(ok(body))

    async with (
        listening(script) as listener,
        sending(listener.url, fake_time, reading=Reading(body=2 * BODY_LIMIT)) as sender,
        sending(listener.url, fake_time) as usual,
    ):
        assert (await (await send(sender)).answer())[2] == body
        assert "longer than" in (await (await send(usual)).failure()).detail
