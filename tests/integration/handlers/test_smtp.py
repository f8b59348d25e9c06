"""E-mail to aiosmtpd, and to mail servers with bad days."""

import asyncio
import json
import socket
import ssl
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager, suppress
from dataclasses import replace
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.smtp.handler import REFUSED_SECONDS
from pillion_sidecar.protocols.smtp import StartTLS
from pillion_sidecar.testing import FakeTime
from support import broker_tests
from support.broker_tests import turns
from support.handlers import delivery, indication
from support.mail_server import serving
from support.protocol_peers import AMPLE, BIG, MAIL, Attempt, destination, registry

SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)
ENCRYPTED = replace(MAIL, start_tls=StartTLS.REQUIRED)
LOGIN = Credentials(username="pillion", password="open sesame")


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


def server_tls(authority: trustme.CA, *names: str) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(*names).configure_cert(context)
    return context


def trusting(authority: trustme.CA, **given: Any) -> TLSOptions:
    return TLSOptions(ca_certificates=authority.cert_pem.bytes(), **given)


def handling(time: FakeTime, url: str, **given: Any) -> AbstractAsyncContextManager[Handler]:
    return broker_tests.handling("SMTP", time, url, **{"options": MAIL, **given})


async def told(handler: Handler, time: FakeTime, body: bytes | None = None) -> DeliveryOutcome:
    return await Attempt(handler, time, body).outcome()


class Burst:
    """Deliveries that are handed over at once."""

    def __init__(self, handler: Handler, *identifiers: str) -> None:
        self.told: dict[str, DeliveryOutcome] = {}
        for identifier in identifiers:
            of = delivery(indication(identifier=identifier))
            handler.deliver(of, lambda outcome, to=identifier: self.told.update({to: outcome}))
        self._all = len(identifiers)

    async def ended(self, time: FakeTime) -> None:
        while len(self.told) < self._all:
            time.advance(0.01)
            await asyncio.sleep(0)


async def test_a_message_has_its_envelope_its_text_and_its_json(fake_time: FakeTime) -> None:
    recipients = ("on-call@ops.example", "archive@ops.example")
    options = replace(MAIL, recipients=recipients, subject="Alert: ${class}")
    async with (
        serving() as server,
        handling(fake_time, server.url, options=options) as handler,
    ):
        assert await told(handler, fake_time) == SUCCESS
    (envelope,), (message,) = server.envelopes, server.messages
    assert envelope.mail_from == "pillion@station.example"
    assert envelope.rcpt_tos == list(recipients)
    assert message["From"] == "pillion@station.example"
    assert message["To"] == "on-call@ops.example, archive@ops.example"
    assert message["Subject"] == "Alert: CIM_AlertIndication"
    text, attached = message.iter_parts()
    assert "class: CIM_AlertIndication" in text.get_content()
    (instance,) = json.loads(attached.get_content())
    assert instance["properties"]["AlertType"] == 5
    assert instance["properties"]["IndicationFilterName"] == "severe"


async def test_messages_share_a_connection(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        for _ in range(3):
            assert await told(handler, fake_time) == SUCCESS
        assert server.connections == 1
    assert len(server.messages) == 3


async def test_a_burst_is_one_message_that_counts_them(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        burst = Burst(handler, "a", "b", "c", "d")
        await burst.ended(fake_time)
    assert set(burst.told.values()) == {SUCCESS}
    (message,) = server.messages
    assert str(message["Subject"]).startswith("[4 indications] ")
    text, attached = message.iter_parts()
    assert [line for line in text.get_content().splitlines() if line.startswith("identifier")] == [
        "identifier: a",
        "identifier: b",
        "identifier: c",
        "identifier: d",
    ]
    assert len(json.loads(attached.get_content())) == 4


async def test_a_burst_that_is_sent_again_is_the_same_message(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        for answer in ("250 OK", "451 4.3.0 later", "250 OK"):
            server.to_messages = [answer]
            await Burst(handler, "a", "b", "c").ended(fake_time)
    first, second = server.messages
    assert first["Message-ID"] == second["Message-ID"]


async def test_a_line_that_begins_with_a_dot_keeps_it(fake_time: FakeTime) -> None:
    body = b'{"class":"CIM_AlertIndication","properties":{".":"first"}}'
    async with serving() as server, handling(fake_time, server.url) as handler:
        assert await told(handler, fake_time, body) == SUCCESS
    text, _ = server.messages[0].iter_parts()
    assert text.get_content().splitlines()[-1] == ".: first"


async def test_one_refused_indication_refuses_no_other(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        server.to_messages = ["554 5.6.0 not that one"]
        burst = Burst(handler, "b", "c")
        await burst.ended(fake_time)
        again = [outcome for outcome in burst.told.values() if outcome.preempted]
        assert len(again) == 2
        assert not any(one.spends_attempt or one.refuses_indication for one in again)
        server.to_messages = ["554 5.6.0 not that one", "250 OK"]
        burst = Burst(handler, "b", "c")
        await burst.ended(fake_time)
    assert burst.told["b"].refuses_indication
    assert burst.told["b"].result is DeliveryResult.ERROR
    assert "554 5.6.0 not that one" in burst.told["b"].detail
    assert server.connections == 1


@pytest.mark.parametrize("answer", ["550 5.7.26 the policy of the domain", "554 5.1.8 no sender"])
async def test_a_refusal_that_concerns_all_messages_holds(fake_time: FakeTime, answer: str) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        server.to_messages = [answer]
        outcome = await told(handler, fake_time)
        assert (outcome.result, outcome.hold) == (DeliveryResult.ERROR, HoldCause.DESTINATION)
        assert not outcome.refuses_indication
        assert await told(handler, fake_time) == SUCCESS


async def test_a_temporary_refusal_is_an_error(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        server.to_messages = ["451 4.3.0 later"]
        outcome = await told(handler, fake_time)
        assert (outcome.result, outcome.hold) == (DeliveryResult.ERROR, None)
        assert outcome.detail == "the message was answered by 451 4.3.0 later"
        assert not outcome.refuses_indication
        assert await told(handler, fake_time) == SUCCESS


@pytest.mark.parametrize(
    ("sender", "recipient", "hold", "detail"),
    [
        ("550 5.1.8 no", "", HoldCause.DESTINATION, "the sender was answered by 550 5.1.8 no"),
        ("530 5.7.0 log in", "", HoldCause.REFUSED, "530 5.7.0 log in"),
        ("451 4.1.8 wait", "", None, "the sender was answered by 451 4.1.8 wait"),
        (
            "",
            "550 5.1.1 <archive@ops.example> unknown",
            HoldCause.DESTINATION,
            "the recipient archive@ops.example was answered by 550 5.1.1",
        ),
        ("", "450 4.2.0 <archive@ops.example> grey", None, "the recipient archive@ops.example"),
    ],
)
async def test_a_refused_address_is_the_destinations_fault(
    fake_time: FakeTime, sender: str, recipient: str, hold: HoldCause | None, detail: str
) -> None:
    options = replace(MAIL, recipients=("on-call@ops.example", "archive@ops.example"))
    async with (
        serving() as server,
        handling(fake_time, server.url, options=options) as handler,
    ):
        server.to_sender, server.to_recipient = sender, recipient
        outcome = await told(handler, fake_time)
    assert (outcome.result, outcome.hold) == (DeliveryResult.ERROR, hold)
    assert detail in outcome.detail
    assert server.messages == []


# TLS and credentials.


async def test_nothing_is_sent_before_tls(fake_time: FakeTime, authority: trustme.CA) -> None:
    given = {"options": ENCRYPTED, "tls": trusting(authority), "credentials": LOGIN}
    async with (
        serving(tls=server_tls(authority, "localhost"), requires_login=True) as server,
        handling(fake_time, server.url, **given) as handler,
    ):
        for _ in range(2):
            assert await told(handler, fake_time) == SUCCESS
        assert server.connections == 1
    assert server.logins == [("PLAIN", "pillion", "open sesame")]


async def test_a_server_without_starttls_holds_the_destination(fake_time: FakeTime) -> None:
    async with (
        serving() as server,
        handling(fake_time, server.url, options=ENCRYPTED, credentials=LOGIN) as handler,
    ):
        outcome = await told(handler, fake_time)
    assert (outcome.result, outcome.hold) == (DeliveryResult.ERROR, HoldCause.DESTINATION)
    assert "offers no STARTTLS" in outcome.detail
    assert (server.messages, server.logins) == ([], [])


@pytest.mark.parametrize("offers", [False, True])
async def test_opportunistic_tls_is_used_where_it_is_offered(
    fake_time: FakeTime, authority: trustme.CA, offers: bool
) -> None:
    options = replace(MAIL, start_tls=StartTLS.OPPORTUNISTIC)
    tls = server_tls(authority, "localhost") if offers else None
    given = {"options": options, "tls": trusting(authority)}
    async with serving(tls=tls) as server, handling(fake_time, server.url, **given) as handler:
        assert await told(handler, fake_time) == SUCCESS
        (session,) = server.sessions
        assert session.transport is not None
        assert (session.transport.get_extra_info("sslcontext") is not None) == offers


async def test_credentials_are_never_sent_without_tls(fake_time: FakeTime) -> None:
    options = replace(MAIL, start_tls=StartTLS.OPPORTUNISTIC)
    async with (
        serving(takes_any_login=True) as server,
        handling(fake_time, server.url, options=options, credentials=LOGIN) as handler,
    ):
        outcome = await told(handler, fake_time)
    assert outcome.hold is HoldCause.CREDENTIALS
    assert server.logins == []


@pytest.mark.parametrize("mechanism", ["PLAIN", "LOGIN"])
async def test_over_tls_from_the_start(
    fake_time: FakeTime, authority: trustme.CA, mechanism: str
) -> None:
    given = {"tls": trusting(authority, server_name="mail.example"), "credentials": LOGIN}
    async with (
        serving(
            tls=server_tls(authority, "mail.example"),
            from_the_start=True,
            mechanisms=(mechanism,),
        ) as server,
        handling(fake_time, server.url, **given) as handler,
    ):
        assert await told(handler, fake_time) == SUCCESS
    assert server.logins == [(mechanism, "pillion", "open sesame")]


async def test_a_server_without_known_mechanisms_is_told(
    fake_time: FakeTime, authority: trustme.CA
) -> None:
    given = {"tls": trusting(authority), "credentials": LOGIN}
    async with (
        serving(
            tls=server_tls(authority, "localhost"), from_the_start=True, mechanisms=()
        ) as server,
        handling(fake_time, server.url, **given) as handler,
    ):
        outcome = await told(handler, fake_time)
    assert outcome.hold is HoldCause.CREDENTIALS
    assert "neither AUTH PLAIN nor AUTH LOGIN" in outcome.detail


async def test_a_wrong_password_holds_and_is_not_repeated_for_a_while(
    fake_time: FakeTime, authority: trustme.CA
) -> None:
    wrong = Credentials(username="pillion", password="hunter2 hunter2")
    given = {"options": ENCRYPTED, "tls": trusting(authority), "credentials": wrong}
    async with (
        serving(tls=server_tls(authority, "localhost")) as server,
        handling(fake_time, server.url, **given) as handler,
    ):
        for _ in range(2):
            outcome = await told(handler, fake_time)
            assert (outcome.result, outcome.hold) == (
                DeliveryResult.ERROR,
                HoldCause.REFUSED,
            )
            assert "535" in outcome.detail
            assert "hunter2" not in outcome.detail
        assert len(server.logins) == 1
        fake_time.advance(REFUSED_SECONDS)
        await told(handler, fake_time)
        assert len(server.logins) == 2


async def test_an_answer_that_quotes_the_password_is_not_shown(
    fake_time: FakeTime, authority: trustme.CA
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"250-mail.example\r\n250 STARTTLS\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"220 go\r\n")
        await writer.start_tls(server_tls(authority, "localhost"))
        await reader.readuntil(b"\r\n")
        writer.write(b"250-mail.example\r\n250 AUTH PLAIN\r\n")
        writer.write(b"535 5.7.8 I do not know " + await reader.readuntil(b"\r\n"))

    given = {"options": ENCRYPTED, "tls": trusting(authority), "credentials": LOGIN}
    async with talking(talk) as url, handling(fake_time, url, **given) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.hold is HoldCause.REFUSED
    assert "quotes this destination's credentials" in outcome.detail


@pytest.mark.parametrize("from_the_start", [False, True])
async def test_a_certificate_of_another_name_is_an_error(
    fake_time: FakeTime, authority: trustme.CA, from_the_start: bool
) -> None:
    given = {"options": ENCRYPTED, "tls": trusting(authority)}
    tls = server_tls(authority, "other.example")
    async with (
        serving(tls=tls, from_the_start=from_the_start) as server,
        handling(fake_time, server.url, **given) as handler,
    ):
        outcome = await told(handler, fake_time)
    assert outcome.result is DeliveryResult.ERROR
    assert "certificate" in outcome.detail
    assert "subjectAltName" in outcome.detail
    assert server.messages == []


def refuse_clients(listening: socket.socket, tls: ssl.SSLContext, from_the_start: bool) -> None:
    """Require a certificate. In a thread, since servers of asyncio close without an alert."""
    connection, _ = listening.accept()
    with connection, connection.makefile("rwb", buffering=0) as lines:
        if not from_the_start:
            for answer in (b"220 a\r\n", b"250-a\r\n250 STARTTLS\r\n", b"220 go\r\n"):
                lines.write(answer)
                if b"go" not in answer:
                    lines.readline()
        with connection.dup() as plain:
            with suppress(ssl.SSLError), tls.wrap_socket(connection, server_side=True):
                pass
            plain.shutdown(socket.SHUT_WR)
            # A close with unread data would reset the connection, and the alert could get lost.
            with suppress(ConnectionResetError):
                while plain.recv(4096):
                    pass


@pytest.mark.parametrize("from_the_start", [False, True])
async def test_a_refusal_after_the_handshake_names_its_cause(
    fake_time: FakeTime, authority: trustme.CA, from_the_start: bool
) -> None:
    given = {"options": ENCRYPTED, "tls": trusting(authority)}
    tls = server_tls(authority, "localhost")
    # TLS 1.3 tells only after the handshake that a client needs a certificate.
    tls.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(tls)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        scheme = "smtps" if from_the_start else "smtp"
        url = f"{scheme}://localhost:{listening.getsockname()[1]}"
        refusing = asyncio.create_task(
            asyncio.to_thread(refuse_clients, listening, tls, from_the_start)
        )
        async with handling(fake_time, url, **given) as handler:
            outcome = await told(handler, fake_time)
        await refusing
    assert outcome.result is DeliveryResult.ERROR
    assert "certificate required while waiting for" in outcome.detail


# Connections.


async def test_a_connection_that_was_closed_meanwhile_is_replaced(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        await told(handler, fake_time)
        server.hang_up()
        assert await told(handler, fake_time) == SUCCESS
        assert server.connections == 2
    assert len(server.messages) == 2


async def test_an_idle_connection_is_closed(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        await told(handler, fake_time)
        fake_time.advance(AMPLE + 61)
        await turns()
        await told(handler, fake_time)
        assert server.connections == 2


async def test_an_address_that_is_not_allowed_holds_the_destination(fake_time: FakeTime) -> None:
    async with registry(fake_time, None, address_policy=AddressPolicy()) as made:
        handler = made.create_handler(destination("SMTP", "smtp://localhost"))
        outcome = await told(handler, fake_time)
        handler.close()
    assert outcome.hold is HoldCause.ADDRESS


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("smtp://localhost/path", "has more than a host and a port"),
        ("https://localhost/", "use smtp or smtps"),
        ("smtp://", "there is no host"),
    ],
)
async def test_a_url_that_smtp_cannot_have_holds_the_destination(
    fake_time: FakeTime, url: str, words: str
) -> None:
    async with handling(fake_time, url) as handler:
        outcome = await told(handler, fake_time)
    assert (outcome.result, outcome.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.DESTINATION)
    assert words in outcome.detail


async def test_what_a_message_cannot_express_is_fatal(fake_time: FakeTime) -> None:
    async with handling(fake_time, "smtp://localhost") as handler:
        outcome = await told(handler, fake_time, b"[]")
    assert (outcome.result, outcome.hold) == (DeliveryResult.FATAL_ERROR, None)


async def test_an_indication_that_is_too_large_comes_without_its_json(fake_time: FakeTime) -> None:
    async with serving() as server, handling(fake_time, server.url) as handler:
        assert await told(handler, fake_time, BIG) == SUCCESS
    (message,) = server.messages
    (text,) = message.iter_parts()
    assert "is left out" in text.get_content()
    assert len(server.raw[0]) < MAIL.max_bytes


async def test_a_burst_of_large_ones_stays_within_the_limit(fake_time: FakeTime) -> None:
    body = b'{"class":"CIM_AlertIndication","properties":{"Description":"%b"}}' % (b"x" * 20_000)
    async with serving() as server, handling(fake_time, server.url) as handler:
        attempts = [Attempt(handler, fake_time, body) for _ in range(30)]
        for attempt in attempts:
            assert await attempt.outcome() == SUCCESS
    assert 4 <= len(server.raw) <= 6
    assert max(map(len, server.raw)) <= MAIL.max_bytes


async def test_a_message_beyond_the_servers_size_is_not_sent(fake_time: FakeTime) -> None:
    async with serving(size=500) as server, handling(fake_time, server.url) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.refuses_indication
    assert outcome.detail.startswith("the message has ")
    assert outcome.detail.endswith(" bytes, and the server takes 500")


# A server that is told line by line.

Talk = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


@asynccontextmanager
async def talking(talk: Talk) -> AsyncIterator[str]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            await talk(reader, writer)
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    try:
        yield f"smtp://localhost:{server.sockets[0].getsockname()[1]}"
    finally:
        server.close()
        await server.wait_closed()
        await turns(20)


async def take(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    until: bytes,
    greeting: bytes = b"220 mail.example\r\n",
) -> None:
    """Agree with everything up to the command ``until``."""
    writer.write(greeting)
    while not (line := await reader.readuntil(b"\r\n")).startswith(until):
        writer.write(b"354 Go on\r\n" if line.startswith(b"DATA") else b"250 OK\r\n")


@pytest.mark.parametrize("until", [b"EHLO", b"MAIL", b"DATA"])
async def test_a_server_that_closes_before_it_has_the_message_is_an_error(
    fake_time: FakeTime, until: bytes
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader, writer, until=until)

    async with talking(talk) as url, handling(fake_time, url) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.result is DeliveryResult.ERROR
    assert "closed the connection while" in outcome.detail


async def whole_message(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    await take(reader, writer, until=b"DATA")
    writer.write(b"354 Go on\r\n")
    await reader.readuntil(b"\r\n.\r\n")


@pytest.mark.parametrize(
    ("answer", "words"),
    [
        (b"", "closed the connection"),
        (b"2", "closed the connection"),
        (b"HTTP/1.1 400 Bad Request\r\n", "no valid answer"),
        (b"354 again\r\n", "was answered by 354"),
        (64 * 1024 * b"x", "no valid answer"),
    ],
)
async def test_after_the_message_anything_but_an_answer_leaves_it_open(
    fake_time: FakeTime, answer: bytes, words: str
) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_message(reader, writer)
        writer.write(answer)

    async with talking(talk) as url, handling(fake_time, url) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.result is DeliveryResult.POST_DELIVERY_ERROR
    assert words in outcome.detail
    assert "may have the message" in outcome.detail


async def test_a_time_out_after_the_message_leaves_it_open(fake_time: FakeTime) -> None:
    has_it = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_message(reader, writer)
        has_it.set()
        await reader.read()

    async with talking(talk) as url, handling(fake_time, url, timeout_seconds=30.0) as handler:
        attempt = Attempt(handler, fake_time)
        await has_it.wait()
        fake_time.advance(31)
        await turns()
        (outcome,) = attempt.told
    assert outcome.result is DeliveryResult.POST_DELIVERY_ERROR
    assert "timed out after 30 s while waiting for the answer to the message" in outcome.detail


async def test_a_time_out_before_the_whole_message_is_sent_is_an_error(
    fake_time: FakeTime,
) -> None:
    """The server reads no more than the commands."""
    stops, ends = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await take(reader, writer, until=b"DATA")
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        writer.write(b"354 Go on\r\n")
        stops.set()
        await ends.wait()

    options = replace(MAIL, max_bytes=16 * 1024 * 1024)
    given = {"options": options, "timeout_seconds": 30.0}
    body = b'{"class":"CIM_AlertIndication","properties":{"Description":"%b"}}' % (b"x" * 9_000_000)
    async with talking(talk) as url, handling(fake_time, url, **given) as handler:
        attempt = Attempt(handler, fake_time, body)
        await stops.wait()
        await turns(500)
        fake_time.advance(31)
        await turns()
        (outcome,) = attempt.told
        ends.set()
    assert outcome.result is DeliveryResult.ERROR
    assert "timed out after 30 s" in outcome.detail


#: What the server has said before it says nothing more, and how the deliverer names the step.
STEPS = {
    "the greeting": (),
    "about the client": (b"220 hello\r\n",),
    "about TLS": (b"220 hello\r\n", b"250-hello\r\n250 STARTTLS\r\n"),
    "shaking hands": (b"220 hello\r\n", b"250-hello\r\n250 STARTTLS\r\n", b"220 go\r\n"),
}


@pytest.mark.parametrize("closes", [False, True])
@pytest.mark.parametrize("step", STEPS)
async def test_a_server_that_hangs_costs_the_time_out_and_leaves_no_connection(
    fake_time: FakeTime, authority: trustme.CA, step: str, closes: bool
) -> None:
    hangs, ended = asyncio.Event(), asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for number, answer in enumerate(STEPS[step]):
            if number:
                await reader.readuntil(b"\r\n")
            writer.write(answer)
        if STEPS[step]:
            await reader.read(1)
        hangs.set()
        try:
            await reader.read()
        finally:
            ended.set()

    given = {"options": ENCRYPTED, "tls": trusting(authority), "timeout_seconds": 30.0}
    async with talking(talk) as url, handling(fake_time, url, **given) as handler:
        attempt = Attempt(handler, fake_time)
        await hangs.wait()
        if closes:
            handler.close()
        else:
            fake_time.advance(31)
            await turns()
        await ended.wait()
        await turns()
        assert [one.result for one in attempt.told] == [DeliveryResult.ERROR] * (not closes)
        assert all("timed out after 30 s" in one.detail for one in attempt.told)
        assert all(step in one.detail for one in attempt.told)


async def test_it_leaves_with_quit(fake_time: FakeTime) -> None:
    left = asyncio.Event()

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await whole_message(reader, writer)
        writer.write(b"250 OK\r\n")
        assert await reader.read() == b"QUIT\r\n"
        left.set()

    async with talking(talk) as url, handling(fake_time, url) as handler:
        assert await told(handler, fake_time) == SUCCESS
        handler.close()
        await left.wait()


async def test_a_flood_of_lines_is_bounded(fake_time: FakeTime) -> None:
    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 hello\r\n")
        await reader.readuntil(b"\r\n")
        while True:
            writer.write(1000 * b"250-and another thing\r\n")
            await writer.drain()

    async with talking(talk) as url, handling(fake_time, url) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.result is DeliveryResult.ERROR
    assert "no valid answer while waiting for the answer about the client" in outcome.detail


async def test_a_server_that_closes_an_old_connection_at_the_next_message_gets_it_again(
    fake_time: FakeTime,
) -> None:
    connections = []

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connections.append(writer)
        await whole_message(reader, writer)
        writer.write(b"250 OK\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"421 4.4.2 too old\r\n")

    async with talking(talk) as url, handling(fake_time, url) as handler:
        for _ in range(2):
            assert await told(handler, fake_time) == SUCCESS
    assert len(connections) == 2


async def test_what_is_sent_before_tls_counts_for_nothing_after_it(
    fake_time: FakeTime, authority: trustme.CA
) -> None:
    """RFC 3207: an attacker adds an answer in plain text to that of STARTTLS."""

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"220 mail.example\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"250-mail.example\r\n250 STARTTLS\r\n")
        await reader.readuntil(b"\r\n")
        writer.write(b"220 go\r\n250 injected\r\n")
        await writer.drain()
        await writer.start_tls(server_tls(authority, "localhost"))
        assert (await reader.readuntil(b"\r\n")).startswith(b"EHLO")
        writer.write(b"554 5.0.0 the true answer\r\n")
        while await reader.readline():
            writer.write(b"421 4.0.0 fooled\r\n")

    given = {"options": ENCRYPTED, "tls": trusting(authority)}
    async with talking(talk) as url, handling(fake_time, url, **given) as handler:
        outcome = await told(handler, fake_time)
    assert outcome.result is DeliveryResult.ERROR
    assert outcome.detail == "the client was answered by 554 5.0.0 the true answer"


async def test_no_text_of_a_secret_server_is_shown(fake_time: FakeTime) -> None:
    async with (
        serving() as server,
        handling(fake_time, server.url, url_is_secret=True) as handler,
    ):
        server.to_messages = ["451 mail.example is busy"]
        outcome = await told(handler, fake_time)
    assert outcome.detail == "the message was answered by 451"
