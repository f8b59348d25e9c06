"""TLS contexts: built once for each set of options, never for an attempt.

Reading the system's certificate authorities takes milliseconds, and a thousand destinations
mostly ask for the same.
"""

import contextlib
import os
import ssl
import weakref
from collections.abc import Iterator
from dataclasses import replace

from pillion_sidecar.config.resources import TLSOptions
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.http.target import InvalidDestinationError


class TLSContexts:
    """The contexts in use, by their options."""

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
        _load_authorities(context, options.ca_certificates)
    else:
        context.load_default_certs()
    if options.client_certificate is not None:
        _load_client_certificate(context, options.client_certificate, options.client_key)
    return context


def _load_authorities(context: ssl.SSLContext, pem: bytes) -> None:
    try:
        context.load_verify_locations(cadata=pem.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError, ValueError):
        raise InvalidDestinationError(
            "tls.caCertificates holds no certificate in PEM form", cause=HoldCause.CERTIFICATES
        ) from None


def _load_client_certificate(
    context: ssl.SSLContext, certificate: bytes, key: bytes | None
) -> None:
    with _in_memory(certificate) as certificate_path, _in_memory(key or b"") as key_path:
        try:
            # The empty password keeps an encrypted key from asking for one on the terminal.
            context.load_cert_chain(certificate_path, key_path if key else None, password="")
        except (ssl.SSLError, OSError, ValueError) as error:
            reason = getattr(error, "reason", None) or "not a certificate and its key in PEM form"
            raise InvalidDestinationError(
                f"tls.clientCertificate cannot be used: {reason.replace('_', ' ').lower()}",
                cause=HoldCause.CERTIFICATES,
            ) from None


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
