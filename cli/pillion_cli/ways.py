"""The way to a destination, from where the command runs: DNS, connection, TLS and certificate."""

import math
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass
from typing import Any, TypeAlias

from pillion_cli.findings import Finding, ok, problem, warning
from pillion_cli.units import brief
from pillion_sidecar.wire.diagnosis import Endpoint

#: What ``socket.getaddrinfo`` returns.
Address: TypeAlias = tuple[socket.AddressFamily, socket.SocketKind, int, str, tuple[Any, ...]]
#: Ways that are checked at a time.
MOST_AT_A_TIME = 32
#: Seconds of a certificate's life that are left: when to renew it, and when it is late.
RENEW_SECONDS = 30 * 86_400.0
LATE_SECONDS = 7 * 86_400.0


@dataclass(frozen=True, slots=True)
class Ways:
    """Checks ways. Each step lasts at most ``timeout`` seconds."""

    timeout: float
    monotonic: Callable[[], float]
    #: Seconds since the epoch.
    now: Callable[[], float]

    def check_all(self, endpoints: Sequence[Endpoint]) -> Iterator[Finding]:
        with ThreadPoolExecutor(MOST_AT_A_TIME) as threads:
            yield from threads.map(self.check, endpoints)

    def check(self, endpoint: Endpoint) -> Finding:
        check = f"way to {endpoint.destination}"
        if endpoint.host is None or endpoint.port is None:
            return ok(check, f"not checked: {endpoint.note}")
        host, port, behind = endpoint.host, endpoint.port, ""
        if endpoint.proxy is not None:
            host, _, text = endpoint.proxy.rpartition(":")
            port, behind = int(text), " (the proxy; the way behind it is not checked)"
        where = f"{host} port {port}{behind}"
        try:
            addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
        except (OSError, ValueError) as error:
            return problem(check, f"{host} cannot be resolved here: {_why(error)}", _NAME)
        if endpoint.datagrams:
            return ok(check, f"{where}: {addresses[0][4][0]}; UDP has no connection to check")
        return self._connect(check, endpoint, addresses, where)

    def _connect(
        self, check: str, endpoint: Endpoint, addresses: Sequence[Address], where: str
    ) -> Finding:
        began = self.monotonic()
        connection, error = self._connected(addresses)
        if connection is None:
            return problem(check, f"{where}: no connection from here: {_why(error)}", _CONNECTION)
        with closing(connection):
            took = f"{where}: connected in {(self.monotonic() - began) * 1000:,.1f} ms"
            if endpoint.proxy is not None or endpoint.tls == "none":
                return ok(check, took)
            if endpoint.tls == "starttls":
                return ok(check, f"{took}; TLS begins later (STARTTLS), and is not checked")
            return self._tls(check, endpoint, connection, took)

    def _connected(self, addresses: Sequence[Address]) -> tuple[socket.socket | None, OSError]:
        error = OSError("no address")
        for family, kind, protocol, _, address in addresses:
            connection = socket.socket(family, kind, protocol)
            connection.settimeout(self.timeout)
            try:
                connection.connect(address)
            except OSError as failure:
                connection.close()
                error = failure
            else:
                return connection, error
        return None, error

    def _tls(self, check: str, endpoint: Endpoint, connection: socket.socket, took: str) -> Finding:
        try:
            context = _context(endpoint)
        except (ssl.SSLError, ValueError):
            text = f"{took}; the destination's CA certificates are not valid"
            return problem(check, text, "correct the Secret in tls.caSecretRef")
        try:
            name = endpoint.server_name or endpoint.host
            with context.wrap_socket(connection, server_hostname=name) as wrapped:
                version, certificate = wrapped.version(), wrapped.getpeercert() or {}
        except ssl.SSLCertVerificationError as error:
            why = error.verify_message.removesuffix(".")
            text = f"{took}; the certificate is not accepted here: {why}"
            other_name = error.verify_code in _OTHER_NAMES
            return problem(check, text, _OTHER_NAME if other_name else _CERTIFICATE)
        except (OSError, ValueError) as error:
            text = f"{took}; the TLS handshake fails: {_why(error)}"
            if endpoint.client_certificate:
                return warning(check, text, _NO_CLIENT_CERTIFICATE)
            return problem(check, text, "check that the listener uses TLS at this port")
        return self._certificate(check, endpoint, certificate, f"{took}, {version}")

    def _certificate(
        self, check: str, endpoint: Endpoint, certificate: Mapping[str, object], text: str
    ) -> Finding:
        if not endpoint.verify:
            text += "; the certificate is not verified (tls.insecureSkipVerify)"
            return warning(check, text, "name its authority in tls.caSecretRef instead")
        end = certificate.get("notAfter")
        left = ssl.cert_time_to_seconds(end) - self.now() if isinstance(end, str) else math.inf
        if math.isinf(left):
            return ok(check, text)
        text += f"; the certificate ends in {brief(left)}"
        if left < RENEW_SECONDS:
            told = problem if left < LATE_SECONDS else warning
            return told(check, text, "renew the listener's certificate")
        return ok(check, text)


#: What the deliverer sees may differ from what this machine sees.
_TEST = "; `pillion test DESTINATION` tries it from the deliverer"
_NAME = f"correct the host name, or the name server{_TEST}"
_CONNECTION = f"start the listener, or check the network{_TEST}"
_CERTIFICATE = f"renew it, or name its authority in tls.caSecretRef{_TEST}"
_OTHER_NAME = f"issue it for the host, or write a name that it holds as tls.serverName{_TEST}"
#: OpenSSL's codes of another host name, and of another IP address.
_OTHER_NAMES = (62, 64)
_NO_CLIENT_CERTIFICATE = (
    f"the listener may require the deliverer's certificate, which this command does not have{_TEST}"
)


def _context(endpoint: Endpoint) -> ssl.SSLContext:
    """Raises SSLError and ValueError."""
    context = ssl.create_default_context(cadata=endpoint.ca)
    # RFC 9525 6.3: a name counts in subjectAltName only.
    context.hostname_checks_common_name = endpoint.allow_common_name
    if not endpoint.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _why(error: Exception) -> str:
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).lower().replace("_", " ")
    if isinstance(error, OSError):
        return error.strerror or str(error)
    return str(error)
