"""Certificates and keys in PEM, as OpenSSL takes them: what is refused here at load is what no TLS
context could be made of later."""

import contextlib
import os
import ssl
from collections.abc import Iterator


class UnusableCertificate(Exception):
    """PEM data that no TLS context can be made of. The text says why."""


def load_authorities(context: ssl.SSLContext, pem: bytes) -> None:
    """Have a context trust the authorities of a bundle. Raises UnusableCertificate."""
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise UnusableCertificate("it holds no certificates in PEM") from None


def load_client_certificate(context: ssl.SSLContext, certificate: bytes, key: bytes | None) -> None:
    """Have a context show a certificate, whose key it is given. Raises UnusableCertificate."""
    with _in_memory(certificate) as certificate_path, _in_memory(key or b"") as key_path:
        try:
            # The empty password keeps an encrypted key from asking for one on the terminal.
            context.load_cert_chain(certificate_path, key_path if key else None, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not a certificate and its key in PEM"
            raise UnusableCertificate(reason.replace("_", " ").lower()) from None


@contextlib.contextmanager
def _in_memory(content: bytes) -> Iterator[str]:
    """A path that reads as ``content``: OpenSSL takes certificates from paths alone, and a key has
    no business on a disk."""
    descriptor = os.memfd_create("pem", os.MFD_CLOEXEC)
    try:
        # It is memory, and so takes everything at once.
        os.set_blocking(descriptor, False)
        os.write(descriptor, content)
        yield f"/proc/self/fd/{descriptor}"
    finally:
        os.close(descriptor)
