"""From a host name to an open connection: resolve, check each address, connect, shake hands.

No time-out of its own: whoever asks cancels, so one deadline covers all of it.
"""

import asyncio
import errno
import os
import socket
import ssl
from collections.abc import Callable, Sequence
from typing import Protocol

from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.http.channel import ConnectError, NoDescriptor
from pillion_sidecar.handlers.http.pace import OpeningPace
from pillion_sidecar.handlers.http.target import HTTPTarget
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
        """Open ``wire``. Raises ConnectError and NoDescriptor."""
        try:
            await self._connect(wire, stage)
        except (ConnectError, NoDescriptor):
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
                raise NoDescriptor from error
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
