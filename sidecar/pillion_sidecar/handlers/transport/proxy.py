"""Connections through an HTTP proxy. The listener's name is resolved and its addresses are checked
here, as without a proxy. An https listener is reached by a tunnel (CONNECT, RFC 9110 9.3.6), an
http listener by requests whose target is the whole URL (RFC 9112 3.2.2)."""

import asyncio
import re
import socket
from collections.abc import Callable
from dataclasses import replace

from pillion_sidecar.config.schema.proxy import ConnectTo, Proxy
from pillion_sidecar.delivery.handler import FailureCause, HoldCause
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.errors import (
    ConnectError,
    DescriptorShortageError,
    InvalidDestinationError,
    described,
)
from pillion_sidecar.handlers.transport.connector import Connector, OpeningPace, cause_of
from pillion_sidecar.handlers.transport.exchange import HEAD_LIMIT
from pillion_sidecar.handlers.transport.target import HTTPTarget, NetworkTarget, parse_target

_END = b"\r\n\r\n"
_STATUS = re.compile(rb"HTTP/1\.[01] ([1-5][0-9]{2})[ \r]")
#: tinyproxy answers wrong credentials with 401.
_UNAUTHORIZED = (401, 407)


def refusal(status: int) -> str:
    """What the proxy says of its credentials."""
    return f"the proxy refuses the credentials (HTTP {status})"


_LISTENER = "the listener behind the proxy"


def proxy_target(proxy: Proxy) -> NetworkTarget:
    """Raises InvalidDestinationError."""
    try:
        return parse_target(proxy.url)
    except InvalidDestinationError as error:
        raise InvalidDestinationError(f"proxy: {error}", cause=error.cause) from None


def proxy_authorization(proxy: Proxy) -> bytes:
    """Return the Proxy-Authorization line with its CRLF; empty without credentials. Raises
    InvalidDestinationError."""
    line = authorization(proxy.credentials)
    return b"Proxy-" + line if line else b""


def through(target: HTTPTarget, proxy: Proxy | None) -> HTTPTarget:
    """Return the target of requests that a proxy forwards. In a tunnel it is the listener's own.
    Raises InvalidDestinationError."""
    if proxy is None or target.tls:
        return target
    uri = f"http://{target.authority}{target.request_uri}"
    return replace(target, request_uri=uri, fields=proxy_authorization(proxy))


class ProxyConnector:
    """Connects to one listener through its proxy."""

    def __init__(
        self,
        *,
        target: NetworkTarget,
        listener: Connector,
        to_proxy: Connector,
        proxy: Proxy,
        pace: OpeningPace,
    ) -> None:
        """``listener`` and ``to_proxy`` connect to either without a proxy. Raises
        InvalidDestinationError."""
        self._target = target
        self._pace = pace
        self._listener = listener
        self._to_proxy = to_proxy
        self._by_name = proxy.connect_to is ConnectTo.NAME
        self._authorization = proxy_authorization(proxy)

    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        """See ``Connect``."""
        try:
            await self._pace.turn()
            address = (await self._listener.permitted(stage))[0]
            sock = await self._open(stage)
            try:
                await self._begin(sock, wire, stage, address)
            except BaseException:  # A cancelled attempt leaves no socket either.
                # Kept by a success: another address is no better.
                self._listener.reached(address, False)
                sock.close()
                raise
            self._to_proxy.suspects.clear()
        except (ConnectError, DescriptorShortageError):
            raise
        except Exception as error:  # noqa: BLE001 - its text may quote anything
            raise ConnectError(f"could not connect: {described(error)}") from None

    async def _open(self, stage: Callable[[str], None]) -> socket.socket:
        def staged(text: str) -> None:
            stage(f"{text} (the proxy)")

        try:
            addresses = await self._to_proxy.permitted(staged)
        except ConnectError as error:
            raise ConnectError(f"the proxy: {error}", hold=error.hold, cause=error.cause) from None
        reasons, cause = [], FailureCause.UNREACHABLE
        for address in addresses:
            try:
                return await self._to_proxy.open_socket(address, staged)
            except OSError as error:
                cause = cause_of(error)
                reasons.append(self._to_proxy.reason(error, self._to_proxy.place(address)))
        raise ConnectError(f"the proxy: {'; '.join(reasons)}", cause=cause)

    async def _begin(
        self,
        sock: socket.socket,
        wire: asyncio.BaseProtocol,
        stage: Callable[[str], None],
        address: str,
    ) -> None:
        if self._target.tls:
            stage("waiting for the proxy's tunnel")
            host = self._target.host if self._by_name else address
            shown = f"[{host}]" if ":" in host else host
            await self._tunnel(sock, f"{shown}:{self._target.port}".encode("ascii"))
        try:
            await self._listener.start(sock, wire, stage, place=_LISTENER)
        except OSError as error:
            reason = self._listener.reason(error, _LISTENER)
            raise ConnectError(reason, cause=cause_of(error)) from None

    async def _tunnel(self, sock: socket.socket, authority: bytes) -> None:
        loop = asyncio.get_running_loop()
        request = b"CONNECT %b HTTP/1.1\r\nHost: %b\r\n%b\r\n"
        try:
            await loop.sock_sendall(sock, request % (authority, authority, self._authorization))
            head = await _read_head(sock)
        except OSError as error:
            raise ConnectError(f"the proxy: {self._to_proxy.reason(error, 'it')}") from None
        found = _STATUS.match(head)
        if found is None:
            raise ConnectError("the proxy's answer is not HTTP/1.1")
        status = int(found[1])
        if status in _UNAUTHORIZED:
            raise ConnectError(refusal(status), hold=HoldCause.REFUSED)
        if not 200 <= status < 300:
            raise ConnectError(f"the proxy makes no connection to the listener: HTTP {status}")
        if head.partition(_END)[2]:
            # The listener speaks second in TLS.
            raise ConnectError("the proxy sends data in front of the listener's")


async def _read_head(sock: socket.socket) -> bytes:
    """Return the head, and what came with its end. Raises ConnectError and OSError."""
    loop = asyncio.get_running_loop()
    head = bytearray()
    while _END not in head:
        if len(head) > HEAD_LIMIT:
            raise ConnectError(f"the head of the proxy's answer is longer than {HEAD_LIMIT} bytes")
        data = await loop.sock_recv(sock, 4096)
        if not data:
            raise ConnectError("the proxy closed the connection without an answer")
        head += data
    return bytes(head)
