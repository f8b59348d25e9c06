"""TLS contexts: built once for each set of options, never for an attempt.

Reading the system's certificate authorities takes milliseconds, and a thousand destinations
mostly ask for the same.
"""

import contextlib
import ssl
import weakref
from collections.abc import Iterator
from dataclasses import replace

from pillion_sidecar.config.certificates import (
    UnusableCertificate,
    load_authorities,
    load_client_certificate,
)
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
    except UnusableCertificate as error:
        message = f"{part} cannot be used: {error}"
        raise InvalidDestinationError(message, cause=HoldCause.CERTIFICATES) from None
