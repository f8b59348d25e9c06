"""A destination's URL, parsed once."""

from dataclasses import dataclass
from urllib.parse import SplitResult, urlsplit

from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.errors import HandlerError

_WELL_KNOWN = {"http": 80, "https": 443}


class InvalidDestinationError(HandlerError):
    """No request can be sent to the destination (S0.8: permanent). The text says why."""

    def __init__(self, message: str, *, cause: HoldCause = HoldCause.DESTINATION) -> None:
        super().__init__(message)
        self.cause = cause


@dataclass(frozen=True, slots=True, repr=False)
class HTTPTarget:
    """A parsed destination URL. It may be a credential, so its ``repr`` shows nothing."""

    host: str
    port: int
    tls: bool
    #: The value of Host, without the scheme's default port.
    authority: str
    #: Path and query, at least ``/``.
    request_uri: str

    def __str__(self) -> str:
        return f"{'https' if self.tls else 'http'}://{self.authority}{self.request_uri}"


def parse_target(
    url: object, *, port: int | None = None, tls_port: int | None = None
) -> HTTPTarget:
    """Parse a URL with default ports ``port`` and ``tls_port`` (80 and 443). Without a scheme it is
    an http URL (CIM_ListenerDestinationCIMXML.Destination). Raises InvalidDestinationError."""
    parts = _split(url)
    try:
        given = parts.port
    except ValueError:
        raise InvalidDestinationError(f"destination {url!r}: the port is not 1 to 65535") from None
    tls = parts.scheme == "https"
    effective = given or (tls_port if tls else port) or _WELL_KNOWN[parts.scheme]
    host = _host(parts, url)
    shown = f"[{host}]" if ":" in host else host
    suffix = "" if effective == _WELL_KNOWN[parts.scheme] else f":{effective}"
    uri = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
    return HTTPTarget(host, effective, tls, shown + suffix, uri)


def _split(url: object) -> SplitResult:
    if not isinstance(url, str) or not url:
        raise InvalidDestinationError("the destination has no URL")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise InvalidDestinationError(
            f"destination {url!r}: spaces, control and non-ASCII characters must be encoded"
        )
    try:
        parts = urlsplit(url if "://" in url else f"http://{url}")
    except ValueError as error:
        raise InvalidDestinationError(f"destination {url!r}: {error}") from None
    if parts.scheme not in _WELL_KNOWN:
        raise InvalidDestinationError(
            f"destination {url!r}: scheme {parts.scheme!r} is not supported, use http or https"
        )
    if parts.username is not None or parts.password is not None:
        raise InvalidDestinationError("the destination's URL must not hold credentials")
    return parts


def _host(parts: SplitResult, url: object) -> str:
    host = parts.hostname
    if not host or host.startswith(".") or ".." in host:
        raise InvalidDestinationError(f"destination {url!r}: there is no host in it")
    return host
