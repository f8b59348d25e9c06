"""One SMTP connection (RFC 5321): greeting, STARTTLS, AUTH, and one message after the other. The
library frames commands and answers; the connection and TLS are ours."""

import asyncio
import base64
import ipaddress
import re
import ssl
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from pillion_sidecar.config.problems import one_line
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.handlers.errors import ConnectError
from pillion_sidecar.handlers.libraries import load
from pillion_sidecar.handlers.transport.connector import Upgrade
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.wire import RequestWire, WireOwner, loss_reason
from pillion_sidecar.protocols.smtp import StartTLS

if TYPE_CHECKING:
    from aiosmtplib.protocol import SMTPProtocol
    from aiosmtplib.response import SMTPResponse

#: Exceeds the size that the server states, as such a server answers.
TOO_LARGE = 552
_CLOSING = 421
_LIBRARY = "aiosmtplib.protocol"
_TEXT_LIMIT = 200
#: RFC 4954: authentication is required, too weak, or invalid; encryption is required for it.
_NOT_AUTHENTICATED = frozenset((530, 534, 535, 538))
#: Status codes of RFC 3463 that concern the next message too: addresses, mailboxes, policies.
_ABOUT_ALL = re.compile(r"5\.[127]\.")
_FIRST_DOTS = re.compile(rb"^\.", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Envelope:
    """What all connections of a destination have in common."""

    sender: str
    recipients: tuple[str, ...]
    start_tls: StartTLS
    #: None: the connection has TLS from the start.
    upgrade: Upgrade | None
    credentials: Credentials | None
    #: No text of the server is shown.
    discreet: bool


class _FailedError(Exception):
    def __init__(
        self, detail: str, *, hold: HoldCause | None = None, untaken: bool = False
    ) -> None:
        """``untaken``: the server closes the connection, maybe for its age alone."""
        super().__init__(detail)
        self.hold = hold
        self.untaken = untaken


class SMTPWire(RequestWire, asyncio.Protocol):
    """The owner's answer is that to the content of the message."""

    peer: ClassVar[str] = "the server"
    __slots__ = (
        "_doing",
        "_envelope",
        "_extensions",
        "_is_ready",
        "_loss",
        "_smtp",
        "_task",
        "_written",
    )

    def __init__(self, *, owner: WireOwner, envelope: Envelope) -> None:
        super().__init__(owner)
        self._envelope = envelope
        self._smtp: SMTPProtocol | None = None
        self._task: asyncio.Task[None] | None = None
        self._extensions: dict[str, str] = {}
        #: Greeted and authenticated.
        self._is_ready = False
        #: The content is written to its end.
        self._written = False
        self._doing = "waiting for the greeting"
        #: Why the connection is lost, once it is.
        self._loss = self._closed

    # Calls by the owner.

    def send(self, request: bytes) -> None:
        self._written = False
        self._task = asyncio.get_running_loop().create_task(self._deliver(request))

    def close(self) -> None:
        self._owner = None
        task, self._task = self._task, None
        transport = self._transport
        if transport is not None and not transport.is_closing() and self._is_ready and task is None:
            transport.write(b"QUIT\r\n")
        self.close_transport()
        if task is not None:
            task.cancel()

    def give_up(self, reason: str) -> Failure:
        failure = self._failure_of(f"{reason} while {self._doing}")
        self.close()
        return failure

    # asyncio.Protocol.

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        super().connection_made(transport)
        if self._transport is not None:
            # Until the library is loaded.
            self._transport.pause_reading()

    def data_received(self, data: bytes) -> None:
        if self._smtp is not None:
            self._smtp.data_received(data)

    def eof_received(self) -> None:
        if self._smtp is not None:
            self._smtp.eof_received()
        self._idle_ended()

    def connection_lost(self, exc: Exception | None) -> None:
        if isinstance(exc, ssl.SSLError):
            # TLS 1.3 tells only after the handshake that the client is refused. The library's error
            # does not tell it.
            self._loss = loss_reason(exc)
        if self._smtp is not None:
            self._smtp.connection_lost(exc)
        self._idle_ended()

    def _idle_ended(self) -> None:
        if self._task is None and (owner := self._owner) is not None:
            self.close()
            owner.wire_lost(None, untaken=True)

    # One message.

    async def _deliver(self, message: bytes) -> None:
        try:
            code, text = await self._answer(message)
        except _FailedError as error:
            self._fail(str(error), hold=error.hold, untaken=error.untaken)
            return
        except ConnectError as error:
            self._fail(str(error))
            return
        except OSError:
            self._fail(f"{self._loss} while {self._doing}", untaken=True)
            return
        except Exception:  # noqa: BLE001 - the attempt must not hang
            # The library raises for an answer that is none.
            self._fail(f"no valid answer while {self._doing}")
            return
        owner, transport = self._owner, self._transport
        if owner is None or transport is None:
            return
        keep = code != _CLOSING and not transport.is_closing()
        self._task = None
        if not keep:
            self.close()
        owner.wire_answered(code, (), text.encode(), keep=keep)

    def _fail(self, detail: str, *, hold: HoldCause | None = None, untaken: bool = False) -> None:
        owner = self._owner
        if owner is None:
            return
        failure = self._failure_of(detail, hold=hold)
        untaken = untaken and failure.result is DeliveryResult.ERROR
        self._task = None
        self.close()
        owner.wire_lost(failure, untaken=untaken)

    def _failure_of(self, detail: str, *, hold: HoldCause | None = None) -> Failure:
        # Below TLS, a transport does not tell when all is sent.
        has_tls = self._transport is not None and _has_tls(self._transport)
        if self._written and (self._flushed or has_tls):
            return Failure(
                DeliveryResult.POST_DELIVERY_ERROR, f"{detail}; {self.peer} may have the message"
            )
        return Failure(DeliveryResult.ERROR, detail, hold=hold)

    async def _answer(self, message: bytes) -> tuple[int, str]:
        """Return the answer to the content. Raises _FailedError, ConnectError, OSError, and what
        the library raises for an invalid answer."""
        if not self._is_ready:
            await self._open()
            self._is_ready = True
        smtp = self._smtp
        assert smtp is not None
        size = self._extensions.get("SIZE", "")
        if size.isdigit() and 0 < int(size[:18]) < len(message):
            most = int(size[:18])
            return TOO_LARGE, f"the message has {len(message)} bytes, and the server takes {most}"
        envelope = self._envelope
        await self._expect(250, "MAIL", f"FROM:<{envelope.sender}>", of="the sender")
        for recipient in envelope.recipients:
            await self._expect(250, "RCPT", f"TO:<{recipient}>", of=f"the recipient {recipient}")
        await self._expect(354, "DATA", of="the message")
        self._doing = "waiting for the answer to the message"
        smtp.write(_FIRST_DOTS.sub(b"..", message) + b".\r\n")
        self._written = True
        answer = await smtp.read_response()
        if not 200 <= answer.code < 600 or 300 <= answer.code < 400:
            raise _FailedError(f"the message was answered by {self._shown(answer)}")
        if answer.code >= 500 and _ABOUT_ALL.match(answer.message):
            self._written = False
            raise self._refusal(answer, "the message was", hold=HoldCause.DESTINATION)
        return answer.code, f"the message was answered by {self._shown(answer)}"

    # Opening.

    async def _open(self) -> None:
        library = await load(_LIBRARY)
        transport = self._transport
        if transport is None or transport.is_closing():
            raise ConnectionError
        self._smtp = library.SMTPProtocol()
        self._smtp.connection_made(transport)
        transport.resume_reading()
        self._doing = "waiting for the greeting"
        greeting = await self._smtp.read_response()
        if greeting.code != 220:
            raise self._refusal(greeting, "the greeting was", hold=None)
        await self._hello()
        if self._wants_tls():
            await self._start_tls(library.SMTPProtocol())
            await self._hello()
        if self._envelope.credentials is not None:
            await self._authenticate(self._envelope.credentials)

    async def _hello(self) -> None:
        transport = self._transport
        # RFC 5321 4.1.4: the address, since a pod's name is nobody else's to resolve.
        name = _literal("" if transport is None else transport.get_extra_info("sockname")[0])
        answer = await self._expect(250, "EHLO", name, of="the client", hold=None)
        self._extensions = {}
        for line in answer.message.split("\n")[1:]:
            word, _, rest = line.partition(" ")
            self._extensions[word.upper()] = rest.strip()

    def _wants_tls(self) -> bool:
        envelope = self._envelope
        if envelope.upgrade is None or envelope.start_tls is StartTLS.NONE:
            return False
        if "STARTTLS" in self._extensions:
            return True
        if envelope.start_tls is StartTLS.REQUIRED:
            raise _FailedError(
                "the server offers no STARTTLS; use smtps:// if it has TLS from the start, or set"
                " smtp.startTLS: None for a server without TLS",
                hold=HoldCause.DESTINATION,
            )
        return False

    async def _start_tls(self, smtp: "SMTPProtocol") -> None:
        """``smtp``: knows nothing of what came before TLS (RFC 3207 4.2)."""
        await self._expect(220, "STARTTLS", of="TLS")
        upgrade, transport = self._envelope.upgrade, self._transport
        assert upgrade is not None
        if transport is None or transport.is_closing():
            raise ConnectionError
        self._doing = "shaking hands (TLS)"
        upgraded = await upgrade.start(transport, self)
        self._transport = upgraded
        upgraded.set_write_buffer_limits(high=1, low=0)
        self._smtp = smtp
        smtp.connection_made(upgraded)

    async def _authenticate(self, credentials: Credentials) -> None:
        if self._transport is None or not _has_tls(self._transport):
            raise _FailedError(
                "the connection has no TLS, and credentials are not sent without it",
                hold=HoldCause.CREDENTIALS,
            )
        username, password = credentials.username or "", credentials.password or ""
        offered = self._extensions.get("AUTH", "").upper().split()
        what = "the user name and password"
        if "PLAIN" in offered:
            pair = _base64(f"\0{username}\0{password}")
            await self._expect(235, "AUTH", "PLAIN", pair, of=what, hold=HoldCause.REFUSED)
        elif "LOGIN" in offered:
            await self._expect(334, "AUTH", "LOGIN", of=what, hold=HoldCause.REFUSED)
            await self._expect(334, _base64(username), of="the user name", hold=HoldCause.REFUSED)
            await self._expect(235, _base64(password), of=what, hold=HoldCause.REFUSED)
        else:
            raise _FailedError(
                "the server offers neither AUTH PLAIN nor AUTH LOGIN", hold=HoldCause.CREDENTIALS
            )

    # Commands.

    async def _expect(
        self, code: int, *words: str, of: str, hold: HoldCause | None = HoldCause.DESTINATION
    ) -> "SMTPResponse":
        """Send a command about ``of``. ``hold``: for a permanent refusal."""
        assert self._smtp is not None
        self._doing = f"waiting for the answer about {of}"
        answer = await self._smtp.execute_command(*(word.encode() for word in words))
        # 251 and 252: the server accepts a recipient of another one.
        if answer.code != code and not (words[0] == "RCPT" and answer.code in (251, 252)):
            raise self._refusal(answer, f"{of} was", hold=hold)
        return answer

    def _refusal(
        self, answer: "SMTPResponse", what: str, *, hold: HoldCause | None
    ) -> _FailedError:
        code = answer.code
        detail = f"{what} answered by {self._shown(answer)}"
        if not 500 <= code < 600:
            return _FailedError(detail, untaken=code == _CLOSING)
        if code in _NOT_AUTHENTICATED and hold is not None:
            hold = HoldCause.REFUSED
        return _FailedError(detail, hold=hold)

    def _shown(self, answer: "SMTPResponse") -> str:
        code = f"{answer.code:03}"
        if self._envelope.discreet:
            return code
        return f"{code} {one_line(answer.message, _TEXT_LIMIT)}".strip()


def _has_tls(transport: asyncio.Transport) -> bool:
    return transport.get_extra_info("sslcontext") is not None


def _base64(text: str) -> str:
    return base64.b64encode(text.encode()).decode("ascii")


def _literal(address: str) -> str:
    try:
        parsed = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return "[127.0.0.1]"
    return f"[IPv6:{parsed}]" if parsed.version == 6 else f"[{parsed}]"
