"""One connection to a NATS server."""

import asyncio
import errno
import json
import secrets
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.broker.wire import BrokerError, BrokerWire
from pillion_sidecar.handlers.errors import ConnectError
from pillion_sidecar.handlers.nats.reading import MESSAGE_LIMIT, Reader, Said
from pillion_sidecar.handlers.transport.wire import WireOwner

#: Statuses of an answer. The server has none for the first three.
TAKEN, ACKNOWLEDGED, TOO_LARGE = 0, 200, 413
NO_RESPONDERS = 503
_TOO_MUCH = b"maximum payload violation"
_HEADERS_END = b"\r\n\r\n"
_RECEIVE = 4096
_NO_RESPONDERS = b"NATS/1.0 503"
_NO_CREDENTIALS = (
    b"authorization violation",
    b"user authentication",
    b"account authentication",
    b"permissions violation",
)
_NO_TLS = b"secure connection - tls required"


@dataclass(frozen=True, slots=True, kw_only=True)
class Login:
    """What all connections of a destination have in common."""

    subject: bytes
    #: A stream acknowledges a message; else the server does.
    is_stored: bool
    tls: bool
    #: The TLS handshake precedes INFO.
    tls_first: bool
    credentials: Credentials | None
    #: No text of the server is shown.
    discreet: bool

    def options(self) -> bytes:
        """The JSON of CONNECT."""
        options: dict[str, Any] = {
            "verbose": False,
            "pedantic": False,
            "tls_required": self.tls,
            "name": "pillion",
            "lang": "python",
            "version": "1",
            "protocol": 1,
            "echo": False,
            "headers": True,
            "no_responders": True,
        }
        credentials = self.credentials
        if credentials is not None and credentials.bearer_token is not None:
            options["auth_token"] = credentials.bearer_token.strip()
        elif credentials is not None and credentials.username is not None:
            options["user"] = credentials.username
            options["pass"] = credentials.password
        return json.dumps(options).encode("ascii")


class NATSWire(BrokerWire):
    """Requests are headers with an empty line at their end, and a payload."""

    __slots__ = ("_inbox", "_info", "_login", "_most", "_number", "_reader")

    def __init__(
        self,
        owner: WireOwner,
        *,
        buffer: memoryview,
        login: Login,
        message_limit: int = MESSAGE_LIMIT,
    ) -> None:
        super().__init__(owner, buffer=buffer, discreet=login.discreet)
        self._login = login
        self._reader = Reader(limit=message_limit)
        self._info: Mapping[str, Any] | None = None
        #: Maximum bytes of a message: the default of servers, until INFO says otherwise.
        self._most = 1024 * 1024
        # Nobody else can guess it, and acknowledge.
        self._inbox = b"_INBOX.%b." % secrets.token_hex(11).encode("ascii")
        self._number = 0
        self.doing = "waiting for the server's INFO"

    async def before_tls(self, sock: socket.socket) -> None:
        """Read INFO, after which the server expects the handshake."""
        if self._login.tls_first:
            return
        loop, said = asyncio.get_running_loop(), list[Said]()
        try:
            while not said:
                data = await loop.sock_recv(sock, _RECEIVE)
                if not data:
                    raise ConnectionResetError(errno.ECONNRESET, "")
                said += self._reader.feed(data)
            if len(said) > 1 or self._reader.has_more:
                # Anybody between the two could add it.
                raise BrokerError("the server sends more than INFO before TLS")
            self._learn(said[0])
        except BrokerError as error:
            raise ConnectError(str(error), hold=error.hold) from None

    def log_in(self) -> None:
        if self._info is not None:
            self._connect()

    def publish(self, request: bytes) -> None:
        self._publish_to(self._login.subject, request)

    def _publish_to(self, subject: bytes, request: bytes) -> None:
        if len(request) > self._most:
            text = b"the message has %d bytes, and the server takes %d" % (len(request), self._most)
            asyncio.get_running_loop().call_soon(self.answered, TOO_LARGE, text)
            return
        head = request.index(_HEADERS_END) + len(_HEADERS_END)
        if self._login.is_stored:
            self._number += 1
            subject += b" %b%d" % (self._inbox, self._number)
            self.write(b"HPUB %b %d %d\r\n%b\r\n" % (subject, head, len(request), request))
        else:
            self.pinged()
            self.write(b"HPUB %b %d %d\r\n%b\r\nPING\r\n" % (subject, head, len(request), request))

    def received(self, data: bytes) -> None:
        for said in self._reader.feed(data):
            self._take(said)
            if self._owner is None:
                return

    def _take(self, said: Said) -> None:
        if self._info is None and said.verb != b"-ERR":
            self._learn(said)
            self._connect()
            return
        match said.verb:
            case b"MSG" | b"HMSG":
                self._acknowledged(said)
            case b"PING":
                self.write(b"PONG\r\n")
            case b"PONG":
                self.ponged()
            case b"-ERR" if self._is_ready and _TOO_MUCH in said.rest.lower():
                # The server closes the connection.
                self._keep = False
                self.answered(TOO_LARGE, b"the message is larger than the server takes")
            case b"-ERR":
                raise self._error(said.rest)
            case b"INFO":
                self._learn(said)
            case b"+OK":
                pass
            case _:
                raise BrokerError("the peer does not speak NATS")

    def _learn(self, said: Said) -> None:
        """Read INFO. A server may send it again when something changes."""
        try:
            info = json.loads(said.rest) if said.verb == b"INFO" else None
        except (ValueError, RecursionError):
            info = None
        if not isinstance(info, dict):
            raise BrokerError("the peer does not speak NATS: it sends no INFO")
        most = info.get("max_payload")
        if self._info is None:
            self._check(info)
            self._info = info
        if type(most) is int and most > 0:
            # Before TLS, anybody may have written it: it refuses nothing.
            self._most = most if self._transport is not None else max(most, self._most)
        if info.get("ldm") is True:
            # It is about to end.
            self.retire()

    def _check(self, info: Mapping[str, Any]) -> None:
        tls = self._login.tls
        if tls and not self._login.tls_first and not _offers_tls(info):
            raise BrokerError("the server offers no TLS", hold=HoldCause.DESTINATION)
        if not tls and info.get("tls_required") is True:
            message = "the server requires TLS: begin its URL with tls://"
            raise BrokerError(message, hold=HoldCause.DESTINATION)
        if info.get("headers") is not True:
            message = "the server takes no message headers (NATS 2.2 or later does)"
            raise BrokerError(message, hold=HoldCause.DESTINATION)

    def _connect(self) -> None:
        self.doing = "logging in"
        subscription = b"SUB %b* 1\r\n" % self._inbox if self._login.is_stored else b""
        self.pinged()
        self.write(b"CONNECT %b\r\n%bPING\r\n" % (self._login.options(), subscription))

    def ponged(self) -> None:
        super().ponged()
        if not self._is_ready:
            self.logged_in()
        elif not self._login.is_stored:
            self.answered(TAKEN)

    def _acknowledged(self, said: Said) -> None:
        subject = said.rest.partition(b" ")[0]
        if not self._is_ready or subject != b"%b%d" % (self._inbox, self._number):
            # Late, or not ours.
            return
        self._replied(said)

    def _replied(self, said: Said) -> None:
        """The request under way has this answer."""
        no_responders = said.headers.startswith(_NO_RESPONDERS)
        self.answered(NO_RESPONDERS if no_responders else ACKNOWLEDGED, said.payload)

    def _error(self, text: bytes) -> BrokerError:
        text = text.strip(b" '")
        lowered = text.lower()
        hold = None
        if lowered.startswith(_NO_CREDENTIALS):
            hold = HoldCause.REFUSED
        elif lowered.startswith(_NO_TLS):
            hold = HoldCause.DESTINATION
        return BrokerError(f"the server refuses: {self.said(text)}", hold=hold)


def _offers_tls(info: Mapping[str, Any]) -> bool:
    return info.get("tls_required") is True or info.get("tls_available") is True
