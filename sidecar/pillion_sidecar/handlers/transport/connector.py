"""From a host name to an open connection: resolve, check each address, connect, handshake. The
caller cancels, so one deadline covers everything."""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Protocol

from pillion_sidecar.config.credentials import (
    CertificateError,
    load_authorities,
    load_client_certificate,
)
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import FailureCause, HoldCause
from pillion_sidecar.handlers.errors import (
    ConnectError,
    DescriptorShortageError,
    InvalidDestinationError,
    described,
)
from pillion_sidecar.handlers.resolver import ResolutionError
from pillion_sidecar.handlers.transport.target import NetworkTarget
from pillion_sidecar.handlers.transport.wire import DatagramWire, RequestWire

# The attempt's deadline cancels the handshake before this.
_NEVER = 86_400.0
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH; Python has no names for
# them.
_OTHER_NAMES = (62, 64)
#: OpenSSL's text before the expected name.
_NOT_VALID_FOR = ", certificate is not valid for"
#: Replaces a host that is not shown.
_HOST = "its host"
NAME_ADVICE = "its subjectAltName must hold the name"


class TLSContexts:
    """TLS contexts by options. Building one reads the system's authorities, which takes
    milliseconds, so equal options share it."""

    def __init__(self) -> None:
        self._contexts: weakref.WeakValueDictionary[TLSOptions, ssl.SSLContext] = (
            weakref.WeakValueDictionary()
        )

    def context(self, options: TLSOptions) -> ssl.SSLContext:
        key = replace(options, server_name=None)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = build_context(key)
        return context


def build_context(options: TLSOptions) -> ssl.SSLContext:
    """TLS 1.2 or later, verifying unless the options disable it. Raises InvalidDestinationError for
    unusable PEM data."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 9525 6.3: only subjectAltName counts. OpenSSL falls back to the subject.
    context.hostname_checks_common_name = options.allow_common_name
    if not options.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    elif options.ca_certificates is not None:
        with _blaming("tls.caCertificates"):
            load_authorities(context, options.ca_certificates)
    else:
        context.load_default_certs()
    if options.client_certificate is not None:
        with _blaming("tls.clientCertificate"):
            load_client_certificate(context, options.client_certificate, options.client_key)
    return context


@contextlib.contextmanager
def _blaming(part: str) -> Iterator[None]:
    try:
        yield
    except CertificateError as error:
        message = f"{part} cannot be used: {error}"
        raise InvalidDestinationError(message, cause=HoldCause.CERTIFICATES) from None


@dataclass(frozen=True, slots=True, kw_only=True)
class Upgrade:
    """From plain text to TLS on an open connection, as STARTTLS does."""

    context: ssl.SSLContext
    server_name: str
    name_advice: str
    #: No error shows the peer's host, address or port.
    discreet: bool

    async def start(
        self, transport: asyncio.Transport, protocol: asyncio.Protocol
    ) -> asyncio.Transport:
        """Return the transport that replaces ``transport``. Raises ConnectError."""
        loop = asyncio.get_running_loop()
        try:
            upgraded = await loop.start_tls(
                transport,
                protocol,
                self.context,
                server_hostname=self.server_name,
                ssl_handshake_timeout=_NEVER,
            )
        except OSError as error:
            address, port = transport.get_extra_info("peername", ("it", 0))[:2]
            where = _HOST if self.discreet else f"{address} port {port}"
            what = _explain(error, where, name_advice=self.name_advice, discreet=self.discreet)
            raise ConnectError(what) from None
        if upgraded is None:
            raise ConnectError("the connection was closed during the TLS handshake")
        return upgraded


class OpeningPace:
    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        loop = asyncio.get_running_loop()
        mine = loop.create_future()
        self._waiting.append(mine)
        if len(self._waiting) == 1:
            loop.call_soon(self._let_in)
        await mine

    def _let_in(self) -> None:
        # Those who gave up meanwhile (a time-out) take no turn.
        while self._waiting:
            first = self._waiting.popleft()
            if not first.done():
                first.set_result(None)
                break
        if self._waiting:
            asyncio.get_running_loop().call_soon(self._let_in)


class AddressCheck(Protocol):
    def check(self, address: str, /) -> str | None: ...


class NameResolver(Protocol):
    async def resolve(self, host: str) -> Sequence[str]:
        """Return at least one IP address, best first. Raises ResolutionError."""


class Connector:
    """Connects to one target, trying addresses in order."""

    def __init__(
        self,
        *,
        target: NetworkTarget,
        resolver: NameResolver,
        address_policy: AddressCheck,
        pace: OpeningPace | None = None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        name_advice: str = NAME_ADVICE,
        silence_seconds: float | None = None,
        discreet: bool = False,
        datagrams: bool = False,
    ) -> None:
        """``pace`` is shared by connectors that must not crowd each other out. ``silence_seconds``:
        the system gives up a connection without acknowledgement for so long (TCP_USER_TIMEOUT, if
        available). ``discreet``: no stage or error shows the target's host, address or port.
        ``datagrams``: UDP, without TLS."""
        self._target = target
        self._pace = pace or OpeningPace()
        self._resolver = resolver
        self._address_policy = address_policy
        self._tls = tls
        self._server_name = server_name or target.host
        self._name_advice = name_advice
        self._silence_seconds = silence_seconds
        self._discreet = discreet
        self._datagrams = datagrams
        #: Addresses that failed, the last one at the end. They are tried last, so that an
        #: unresponsive one costs a host one attempt only.
        self.suspects: list[str] = []

    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        """Open ``wire``. Raises ConnectError and DescriptorShortageError."""
        try:
            await self._connect(wire, stage)
        except (ConnectError, DescriptorShortageError):
            raise
        except Exception as error:
            if not self._discreet:
                raise
            # Its text may quote anything.
            raise ConnectError(
                f"could not connect: {described(error)}", cause=FailureCause.DELIVERER
            ) from None

    async def permitted(self, stage: Callable[[str], None]) -> Sequence[str]:
        """Return the target's addresses that may be connected to, at least one. Raises
        ConnectError."""
        addresses = await self._addresses(stage)
        reasons = {address: self._refusal(address) for address in addresses}
        found = [address for address, reason in reasons.items() if reason is None]
        if not found:
            told = (reason for reason in reasons.values() if reason is not None)
            raise ConnectError("; ".join(dict.fromkeys(told)), hold=HoldCause.ADDRESS)
        return found

    async def _addresses(self, stage: Callable[[str], None]) -> Sequence[str]:
        host = _HOST if self._discreet else self._target.host
        stage(f"resolving {host}")
        try:
            addresses = await self._resolver.resolve(self._target.host)
        except ResolutionError as error:
            raise ConnectError(f"{host} {error.reason}", cause=FailureCause.DNS) from None
        self.suspects = suspects = [one for one in self.suspects if one in addresses]
        return [*(one for one in addresses if one not in suspects), *suspects]

    def reached(self, address: str, is_reached: bool) -> None:
        if address in self.suspects:
            self.suspects.remove(address)
        if not is_reached:
            self.suspects.append(address)

    def _refusal(self, address: str) -> str | None:
        # After resolution: a name can lead anywhere, and change.
        reason = self._address_policy.check(address)
        if reason is not None and self._discreet:
            return f"{_HOST} has an address that is not allowed here"
        return reason

    async def _connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        await self._pace.turn()
        reasons, refused, causes = [], 0, set[FailureCause]()
        for address in await self._addresses(stage):
            reason = self._refusal(address)
            refused += reason is not None
            if reason is None:
                error = await self._try(address, wire, stage)
                if error is None:
                    return
                causes.add(cause_of(error))
                reason = self.reason(error, self.place(address))
            reasons.append(reason)
        # If one was tried, the listener is what failed.
        hold = HoldCause.ADDRESS if refused == len(reasons) else None
        text = "; ".join(dict.fromkeys(reasons))
        # The address that came furthest says most.
        cause = next((one for one in _FURTHEST_FIRST if one in causes), FailureCause.UNREACHABLE)
        raise ConnectError(text, hold=hold, cause=cause)

    def place(self, address: str) -> str:
        return _HOST if self._discreet else f"{address} port {self._target.port}"

    async def _try(
        self, address: str, wire: asyncio.BaseProtocol, stage: Callable[[str], None]
    ) -> OSError | None:
        """Return why there is no connection."""
        if isinstance(wire, DatagramWire):
            wire.reached = partial(self.reached, address)
        try:
            sock = await self.open_socket(address, stage)
            await self.start(sock, wire, stage, place=self.place(address))
        except OSError as error:
            return error
        if not self._datagrams:
            self.reached(address, True)
        return None

    def reason(self, error: OSError, place: str) -> str:
        """Return why there is no connection. Raises DescriptorShortageError if that is why."""
        if error.errno in (errno.EMFILE, errno.ENFILE):
            raise DescriptorShortageError from error
        return _explain(error, place, name_advice=self._name_advice, discreet=self._discreet)

    async def open_socket(self, address: str, stage: Callable[[str], None]) -> socket.socket:
        """Raises OSError."""
        if not self._datagrams:
            # Until it is reached.
            self.reached(address, False)
        loop = asyncio.get_running_loop()
        stage(f"connecting to {self.place(address)}")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        kind = socket.SOCK_DGRAM if self._datagrams else socket.SOCK_STREAM
        sock = socket.socket(family, kind)
        try:
            sock.setblocking(False)
            if self._silence_seconds is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
                milliseconds = int(self._silence_seconds * 1000)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            await loop.sock_connect(sock, (address, self._target.port))
        except BaseException:  # A cancelled attempt leaves no socket either.
            sock.close()
            raise
        return sock

    async def start(
        self,
        sock: socket.socket,
        wire: asyncio.BaseProtocol,
        stage: Callable[[str], None],
        *,
        place: str,
    ) -> None:
        """Open ``wire`` on a connected socket, which is closed on failure. ``place``: the peer in
        the text of a stage. Raises OSError."""
        loop = asyncio.get_running_loop()
        try:
            if self._datagrams:
                await loop.create_datagram_endpoint(lambda: wire, sock=sock)
                return
            if self._tls is None:
                await loop.create_connection(lambda: wire, sock=sock)
                return
            if isinstance(wire, RequestWire):
                stage(f"waiting for {place} before TLS")
                await wire.before_tls(sock)
            stage(f"shaking hands (TLS) with {place}")
            await loop.create_connection(
                lambda: wire,
                sock=sock,
                ssl=self._tls,
                server_hostname=self._server_name,
                ssl_handshake_timeout=_NEVER,
            )
        except BaseException:  # A cancelled attempt leaves no socket either.
            sock.close()
            raise


_FURTHEST_FIRST = (
    FailureCause.CERTIFICATE,
    FailureCause.TLS,
    FailureCause.RESET,
    FailureCause.REFUSED,
)


def cause_of(error: OSError) -> FailureCause:
    if isinstance(error, ssl.SSLCertVerificationError):
        return FailureCause.CERTIFICATE
    if isinstance(error, ssl.SSLError):
        return FailureCause.TLS
    if isinstance(error, ConnectionRefusedError):
        return FailureCause.REFUSED
    # asyncio raises it without a number if the peer closes during a TLS handshake.
    is_reset = isinstance(error, ConnectionResetError) or not error.errno
    return FailureCause.RESET if is_reset else FailureCause.UNREACHABLE


def _explain(error: OSError, where: str, *, name_advice: str, discreet: bool) -> str:
    what = _describe(error, where)
    if discreet:
        what = what.partition(_NOT_VALID_FOR)[0]
    other_name = getattr(error, "verify_code", None) in _OTHER_NAMES
    what = what.removesuffix(".")
    return f"{what}; {name_advice}" if other_name else what


def _describe(error: OSError, where: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {where} is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS handshake with {where} failed: {reason}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused by {where}"
    # asyncio raises it without a number if the peer closes during a TLS handshake.
    text = os.strerror(error.errno) if error.errno else str(error) or "it closed the connection"
    return f"no connection to {where}: {text}"
