"""A destination's URL, parsed once."""

from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pillion_sidecar.fields import whole
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.protocols import Protocol

_WELL_KNOWN = {"http": 80, "https": 443}


@dataclass(frozen=True, slots=True, repr=False)
class NetworkTarget:
    """Where to connect. It may be a part of a credential, so its ``repr`` shows nothing."""

    host: str
    port: int
    tls: bool


@dataclass(frozen=True, slots=True, repr=False)
class HTTPTarget(NetworkTarget):
    """A parsed destination URL."""

    #: The value of Host, without the scheme's default port.
    authority: str
    #: Path and query, at least ``/``.
    request_uri: str
    #: Further header lines, each with its CRLF.
    fields: bytes = b""

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.request_uri}"

    @property
    def post(self) -> bytes:
        """The head of a POST to it: request line, Host, and ``fields``."""
        head = f"POST {self.request_uri} HTTP/1.1\r\nHost: {self.authority}\r\n"
        return head.encode("ascii") + self.fields


def parse_target(
    url: object, *, port: int | None = None, tls_port: int | None = None
) -> HTTPTarget:
    """Parse a URL with default ports ``port`` and ``tls_port`` (80 and 443). Without a scheme it is
    an http URL (CIM_ListenerDestinationCIMXML.Destination). Raises InvalidDestinationError."""
    parts = _split(url, _WELL_KNOWN)
    tls = parts.scheme == "https"
    effective = _port(parts, url) or (tls_port if tls else port) or _WELL_KNOWN[parts.scheme]
    host = _host(parts, url)
    shown = f"[{host}]" if ":" in host else host
    suffix = "" if effective == _WELL_KNOWN[parts.scheme] else f":{effective}"
    uri = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HTTPTarget(host, effective, tls, shown + suffix, uri)


def parse_network_target(url: object, protocol: Protocol) -> NetworkTarget:
    """Parse a URL of a protocol whose schemes have ports. Raises InvalidDestinationError."""
    schemes = {scheme.name: scheme for scheme in protocol.schemes}
    parts = _split(url, schemes)
    scheme = schemes[parts.scheme]
    port = _port(parts, url) or scheme.port
    assert port is not None
    check_forms(url, protocol)
    return NetworkTarget(_host(parts, url), port, scheme.is_secure)


def check_forms(url: object, protocol: Protocol) -> None:
    """Check what the schema checks, for a URL from a Secret too. Raises
    InvalidDestinationError."""
    for form in protocol.url_forms:
        if not isinstance(url, str) or not whole(form.regex)(url):
            raise InvalidDestinationError(f"destination {url!r} {form.message}. {form.remedy}")


def _port(parts: SplitResult, url: object) -> int | None:
    try:
        return parts.port
    except ValueError:
        raise InvalidDestinationError(f"destination {url!r}: the port is not 1 to 65535") from None


def _split(url: object, schemes: Iterable[str]) -> SplitResult:
    """Without a scheme, the URL has the first one."""
    known = tuple(schemes)
    if not isinstance(url, str) or not url:
        raise InvalidDestinationError("the destination has no URL")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidDestinationError(
            f"destination {url!r}: spaces, control and non-ASCII characters must be encoded"
        )
    try:
        parts = urlsplit(url if "://" in url else f"{known[0]}://{url}")
    except ValueError as error:
        raise InvalidDestinationError(f"destination {url!r}: {error}") from None
    if parts.scheme not in known:
        raise InvalidDestinationError(
            f"destination {url!r}: scheme {parts.scheme!r} is not supported, "
            f"use {' or '.join(known)}"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidDestinationError("the destination's URL must not hold credentials")
    return parts


def _host(parts: SplitResult, url: object) -> str:
    host = parts.hostname
    if not host or host.startswith(".") or ".." in host:
        raise InvalidDestinationError(f"destination {url!r}: there is no host in it")
    return host
