"""From a host name to an open connection: resolve, check each address, connect, shake hands.

No time-out of its own: whoever asks cancels, so one deadline covers all of it.
"""

import asyncio
import contextlib
import errno
import os
import socket
import ssl
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Protocol

from pillion_sidecar.config.credentials import (
    CertificateError,
    load_authorities,
    load_client_certificate,
)
from pillion_sidecar.config.schema.listener import TLSOptions
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.errors import ConnectError, DescriptorShortageError
from pillion_sidecar.handlers.http.target import HTTPTarget, InvalidDestinationError
from pillion_sidecar.handlers.http.wire import Wire
from pillion_sidecar.handlers.resolver import ResolutionError

# The handshake's own time-out never comes first: the attempt's deadline cancels it.
_NEVER = 86_400.0
# X509_V_ERR_HOSTNAME_MISMATCH of OpenSSL; Python has no name for it.
_OTHER_NAME = 62
#: What OpenSSL says before the name that a certificate is not made out to.
_NOT_VALID_FOR = ", certificate is not valid for"
#: What a host is called whose name and address are not shown.
_HOST = "its host"
#: What to do about a certificate that is made out to another name.
NAME_ADVICE = "its subjectAltName must hold the name"


class TLSContexts:
    """The contexts in use, by their options.

    Built once for each set of options, never for an attempt: reading the system's certificate
    authorities takes milliseconds, and a thousand destinations mostly ask for the same.
    """

    def __init__(self) -> None:
        self._contexts: weakref.WeakValueDictionary[TLSOptions, ssl.SSLContext] = (
            weakref.WeakValueDictionary()
        )

    def context(self, options: TLSOptions) -> ssl.SSLContext:
        """The context for ``options``. The server name is not part of it.

        Raises:
            InvalidDestinationError: the PEM data cannot be used.
        """
        key = replace(options, server_name=None)
        context = self._contexts.get(key)
        if context is None:
            context = self._contexts[key] = build_context(key)
        return context


def build_context(options: TLSOptions) -> ssl.SSLContext:
    """A client's context: TLS 1.2 or later, verifying unless the options say otherwise.

    Raises:
        InvalidDestinationError: the PEM data cannot be used.
    """
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    # RFC 9525 6.3: a name counts in subjectAltName only. OpenSSL looks into the subject, too, where
    # there is none.
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


class OpeningPace:
    """Lets those in who are about to open a connection, one at a time, in order.

    Opening costs more than anything else that a destination can ask for, a TLS handshake most of
    all: when hundreds are tried again at one moment, the others get their turns in between.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()

    async def turn(self) -> None:
        """Wait for one's turn."""
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
    """Says which addresses may be connected to (``config.addresses.AddressPolicy``)."""

    def check(self, address: str, /) -> str | None:
        """Why an address is refused; None when it is not."""


class NameResolver(Protocol):
    """Finds the addresses of a host."""

    async def resolve(self, host: str) -> Sequence[str]:
        """Return at least one IP address, best first.

        Raises:
            ResolutionError: there is none.
        """


class Connector:
    """Connects to one target. Addresses are tried in order until one accepts."""

    def __init__(
        self,
        *,
        target: HTTPTarget,
        resolver: NameResolver,
        address_policy: AddressCheck,
        pace: OpeningPace | None = None,
        tls: ssl.SSLContext | None = None,
        server_name: str | None = None,
        name_advice: str = NAME_ADVICE,
        silence_seconds: float | None = None,
        discreet: bool = False,
    ) -> None:
        """``pace`` is shared by all connectors that must not crowd each other out.

        ``silence_seconds``: a connection whose other end acknowledges nothing for so long, from the
        first packet on, is given up by the system (TCP_USER_TIMEOUT, where there is that).

        ``discreet``: no stage and no error tells host, address or port of the target.
        """
        self._target = target
        self._pace = pace or OpeningPace()
        self._resolver = resolver
        self._address_policy = address_policy
        self._tls = tls
        self._server_name = server_name or target.host
        self._name_advice = name_advice
        self._silence_seconds = silence_seconds
        self._discreet = discreet
        #: The address that the last attempt did not get beyond. Tried last, so that one that
        #: swallows everything costs a name with several addresses one attempt, not each.
        self._suspect: str | None = None

    async def connect(self, wire: Wire, stage: Callable[[str], None]) -> None:
        """Open ``wire``. Raises ConnectError and DescriptorShortageError."""
        try:
            await self._connect(wire, stage)
        except (ConnectError, DescriptorShortageError):
            raise
        except Exception as error:
            if not self._discreet:
                raise
            # It may quote whatever it failed on.
            raise ConnectError(f"could not connect: {type(error).__name__}") from None

    async def _connect(self, wire: Wire, stage: Callable[[str], None]) -> None:
        await self._pace.turn()
        host = _HOST if self._discreet else self._target.host
        stage(f"resolving {host}")
        try:
            addresses = await self._resolver.resolve(self._target.host)
        except ResolutionError as error:
            raise ConnectError(f"{host} {error.reason}") from None
        reasons, refused = [], 0
        for address in sorted(addresses, key=lambda address: address == self._suspect):
            # Checked here, after resolution: a name can lead anywhere, and change its mind.
            reason = self._address_policy.check(address)
            refused += reason is not None
            if reason is not None and self._discreet:
                reason = f"{_HOST} has an address that is not allowed here"
            if reason is None:
                reason = await self._try(address, wire, stage)
                if reason is None:
                    return
            reasons.append(reason)
        # Where one was tried, the listener is what failed.
        hold = HoldCause.ADDRESS if refused == len(reasons) else None
        raise ConnectError("; ".join(dict.fromkeys(reasons)), hold=hold)

    def _place(self, address: str) -> str:
        return _HOST if self._discreet else f"{address} port {self._target.port}"

    async def _try(self, address: str, wire: Wire, stage: Callable[[str], None]) -> str | None:
        self._suspect = address
        try:
            await self._open(address, wire, stage)
        except OSError as error:
            if error.errno in (errno.EMFILE, errno.ENFILE):
                raise DescriptorShortageError from error
            what = _describe(error, self._place(address))
            if self._discreet:
                what = what.partition(_NOT_VALID_FOR)[0]
            other_name = getattr(error, "verify_code", None) == _OTHER_NAME
            return f"{what.removesuffix('.')}; {self._name_advice}" if other_name else what
        self._suspect = None
        return None

    async def _open(self, address: str, wire: Wire, stage: Callable[[str], None]) -> None:
        loop = asyncio.get_running_loop()
        stage(f"connecting to {self._place(address)}")
        family = socket.AF_INET6 if ":" in address else socket.AF_INET
        sock = socket.socket(family, socket.SOCK_STREAM)
        try:
            sock.setblocking(False)
            if self._silence_seconds is not None and hasattr(socket, "TCP_USER_TIMEOUT"):
                milliseconds = int(self._silence_seconds * 1000)
                sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
            await loop.sock_connect(sock, (address, self._target.port))
            if self._tls is None:
                await loop.create_connection(lambda: wire, sock=sock)
                return
            stage(f"shaking hands (TLS) with {self._place(address)}")
            await loop.create_connection(
                lambda: wire,
                sock=sock,
                ssl=self._tls,
                server_hostname=self._server_name,
                ssl_handshake_timeout=_NEVER,
            )
        except BaseException:
            sock.close()
            raise


def _describe(error: OSError, where: str) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the certificate of {where} is not accepted: {error.verify_message}"
    if isinstance(error, ssl.SSLError):
        reason = (error.reason or str(error)).replace("_", " ").lower()
        return f"TLS handshake with {where} failed: {reason}"
    if isinstance(error, ConnectionRefusedError):
        return f"connection refused by {where}"
    # asyncio says so, without a number, when the peer closes in the middle of a TLS handshake.
    text = os.strerror(error.errno) if error.errno else str(error) or "it closed the connection"
    return f"no connection to {where}: {text}"
