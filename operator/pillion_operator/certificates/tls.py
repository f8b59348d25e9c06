"""TLS whose certificate is replaced while the server runs."""

import asyncio
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate (with its chain) and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class BadKeyPair(ValueError):
    """A certificate and a key that no server can use; the message says why."""


class ReloadingTLS:
    """Hands each new connection the certificate of that moment; those that are open go on.

    Before the first certificate, every handshake fails.
    """

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        #: What the server listens with.
        self.context = _server_context()
        # OpenSSL asks for every handshake, with or without a server name, and before it looks for
        # a certificate.
        self.context.sni_callback = self._choose

    @property
    def loaded(self) -> bool:
        """Whether there is a certificate."""
        return self._current is not None

    async def use(self, pair: KeyPair) -> None:
        """Show this certificate from now on; raises BadKeyPair, and then shows the one before."""
        self._current = await asyncio.to_thread(_context_of, pair)

    def _choose(
        self, connection: ssl.SSLObject, _name: str | None, _: ssl.SSLContext
    ) -> int | None:
        if self._current is None:
            return ssl.ALERT_DESCRIPTION_INTERNAL_ERROR
        connection.context = self._current
        return None


def _server_context() -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    return context


def _context_of(pair: KeyPair) -> ssl.SSLContext:
    context = _server_context()
    # OpenSSL's Python face reads files alone. The folder is for this user only, and gone at once.
    with tempfile.TemporaryDirectory(prefix="pillion-") as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        try:
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, ValueError) as error:
            raise BadKeyPair(f"tls.crt and tls.key cannot be used: {error}") from error
    return context
