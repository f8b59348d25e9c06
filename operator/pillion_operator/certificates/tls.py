"""A TLS server whose certificate changes while it runs."""

import asyncio
import ssl
import tempfile
from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its chain and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


class BadKeyPair(ValueError): ...


class ReloadingTLS:
    """Serves the current certificate to new connections; open connections continue. Before the
    first certificate every handshake fails."""

    def __init__(self) -> None:
        self._current: ssl.SSLContext | None = None
        self.context = _server_context()
        # OpenSSL calls it in every handshake, also without a server name, before it needs a
        # certificate.
        self.context.sni_callback = self._choose

    @property
    def loaded(self) -> bool:
        return self._current is not None

    async def use(self, pair: KeyPair) -> None:
        """Serve this certificate; raises BadKeyPair and then keeps the old one."""
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
    # ssl reads only files. The folder is private and removed at once.
    with tempfile.TemporaryDirectory(prefix="pillion-") as folder:
        certificate, key = Path(folder) / "tls.crt", Path(folder) / "tls.key"
        certificate.write_bytes(pair.certificate)
        key.write_bytes(pair.key)
        try:
            context.load_cert_chain(certificate, key)
        except (ssl.SSLError, ValueError) as error:
            raise BadKeyPair(f"tls.crt and tls.key cannot be used: {error}") from error
    return context
