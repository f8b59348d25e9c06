"""The serving certificate of a listener: a change applies to new connections."""

import ssl
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from pillion_sidecar.filewatch import Unusable, read_bounded

MAXIMUM_BYTES = 1 << 20


@dataclass(frozen=True, slots=True)
class Certificate:
    context: ssl.SSLContext
    #: Seconds since the epoch.
    expires: float


def read_certificate(certificate: Path, key: Path) -> Certificate:
    """Raises :class:`Unusable`."""
    content = read_bounded(certificate, maximum=MAXIMUM_BYTES)
    read_bounded(key, maximum=MAXIMUM_BYTES)
    try:
        expires = x509.load_pem_x509_certificates(content)[0].not_valid_after_utc.timestamp()
    except ValueError:
        raise Unusable(f"{certificate}: no certificate in PEM") from None
    context = _context()
    try:
        # No password: openssl would ask for one at the terminal.
        context.load_cert_chain(certificate, key, password=lambda: b"")
    except (ssl.SSLError, OSError, ValueError) as error:
        # openssl's reason names its functions, and nothing of the key.
        reason = getattr(error, "reason", None) or type(error).__name__
        raise Unusable(
            f"{key}: does not go with {certificate}, or is no key in PEM ({reason})"
        ) from None
    return Certificate(context, expires)


class ServingTLS:
    """The TLS of a listener, whose certificate may come late and change."""

    def __init__(self) -> None:
        self._current: Certificate | None = None
        self.context = _context()
        # Called for each handshake, with or without a server name.
        self.context.sni_callback = self._choose

    @property
    def has_certificate(self) -> bool:
        return self._current is not None

    def use(self, certificate: Certificate) -> None:
        self._current = certificate

    def _choose(
        self, connection: ssl.SSLSocket | ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> None:
        # Without a certificate openssl refuses the handshake.
        if self._current is not None:
            connection.context = self._current.context


def _context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.options |= ssl.OP_NO_RENEGOTIATION
    return context
