"""A mail server of a test's own: aiosmtpd on the test's event loop."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from email import message_from_bytes, policy
from email.message import EmailMessage
from typing import Any

from aiosmtpd.smtp import SMTP, AuthResult, Envelope, LoginPassword, Session


class MailServer:
    """Keeps what it receives, and answers as it is told."""

    def __init__(self) -> None:
        self.url = ""
        self.connections = 0
        self.envelopes: list[Envelope] = []
        self.logins: list[tuple[str, str, str]] = []
        #: Answers to commands instead of the usual ones; those to messages are taken one by one.
        self.to_sender = self.to_recipient = ""
        self.to_messages: list[str] = []
        #: Messages with these bytes are refused.
        self.unwanted = b""
        self.password = "open sesame"
        self.sessions: list[SMTP] = []

    @property
    def raw(self) -> list[bytes]:
        return [bytes(one.original_content or b"") for one in self.envelopes]

    @property
    def messages(self) -> list[EmailMessage]:
        return [message_from_bytes(raw, policy=policy.SMTP) for raw in self.raw]

    def hang_up(self) -> None:
        """End all connections."""
        while self.sessions:
            session = self.sessions.pop()
            if session.transport is not None:
                session.transport.close()
            # After a failed handshake, aiosmtpd does not end it.
            if (serving := session._handler_coroutine) is not None:
                serving.cancel()

    # aiosmtpd calls these.

    async def handle_MAIL(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, options: list[str]
    ) -> str:
        envelope.mail_from = address
        envelope.mail_options.extend(options)
        return self.to_sender or "250 OK"

    async def handle_RCPT(
        self, _server: SMTP, _session: Session, envelope: Envelope, address: str, _: list[str]
    ) -> str:
        if self.to_recipient and address in self.to_recipient:
            return self.to_recipient
        envelope.rcpt_tos.append(address)
        return "250 OK"

    async def handle_DATA(self, _server: SMTP, _session: Session, envelope: Envelope) -> str:
        answer = self.to_messages.pop(0) if self.to_messages else "250 OK"
        if self.unwanted and self.unwanted in bytes(envelope.original_content or b""):
            answer = "554 5.6.0 unwanted"
        if answer.startswith("250"):
            self.envelopes.append(envelope)
        return answer

    def authenticate(
        self, _server: SMTP, _session: Session, _envelope: Envelope, mechanism: str, data: Any
    ) -> AuthResult:
        assert isinstance(data, LoginPassword)
        user, password = data.login.decode(), data.password.decode()
        self.logins.append((mechanism, user, password))
        return AuthResult(success=password == self.password, handled=False)


@asynccontextmanager
async def serving(
    *,
    tls: ssl.SSLContext | None = None,
    from_the_start: bool = False,
    mechanisms: tuple[str, ...] = ("PLAIN", "LOGIN"),
    requires_login: bool = False,
    takes_any_login: bool = False,
    size: int = 33_554_432,
) -> AsyncIterator[MailServer]:
    """Serve on a port of loopback. ``tls``: by STARTTLS unless it is ``from_the_start``;
    ``takes_any_login``: in plain text, too."""
    mail = MailServer()
    loop = asyncio.get_running_loop()

    def session() -> SMTP:
        mail.connections += 1
        made = SMTP(
            mail,
            loop=loop,
            hostname="mail.example",
            tls_context=None if from_the_start else tls,
            authenticator=mail.authenticate,
            auth_required=requires_login,
            auth_require_tls=not (from_the_start or takes_any_login),
            auth_exclude_mechanism={"PLAIN", "LOGIN"} - set(mechanisms),
            data_size_limit=size,
        )
        mail.sessions.append(made)
        return made

    server = await loop.create_server(session, "127.0.0.1", 0, ssl=tls if from_the_start else None)
    scheme = "smtps" if from_the_start else "smtp"
    mail.url = f"{scheme}://localhost:{server.sockets[0].getsockname()[1]}"
    try:
        yield mail
    finally:
        server.close()
        mail.hang_up()
        await server.wait_closed()
        for _ in range(20):
            await asyncio.sleep(0)
