"""Which URLs a publisher may have itself called back at (S1.9): those below the prefixes that the
service lists. Pure."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from urllib.parse import urlsplit

#: Characters of a callback URL.
MAXIMUM_URL = 2048

_PORTS = {"http": 80, "https": 443}
#: What some servers take for a dot segment or for a separator of segments, and others do not.
_AMBIGUOUS = re.compile(r"\\|%(?:2e|2f|5c)", re.IGNORECASE)


class BadCallback(Exception):
    """A callback URL that is not allowed; the text says why, and what to do."""


@dataclass(frozen=True, slots=True)
class Place:
    """A URL, taken apart as far as it is compared."""

    scheme: str
    host: str
    port: int
    segments: tuple[str, ...]

    def contains(self, other: "Place") -> bool:
        """Whether another URL is this one or lies below it."""
        return (self.scheme, self.host, self.port) == (other.scheme, other.host, other.port) and (
            other.segments[: len(self.segments)] == self.segments
        )


def check_callback(url: str, prefixes: Iterable[str]) -> None:
    """Check that a URL is, or lies below, one of the prefixes; both by whole path segments.

    Raises :class:`BadCallback`.
    """
    allowed = list(prefixes)
    if not allowed:
        raise BadCallback(
            "the service allows no callbacks: list the URL's prefix in IndicationService.callbacks"
        )
    try:
        place = take_apart(url)
    except ValueError as error:
        raise BadCallback(f"{url!r:.80}: {error}") from None
    if not any(_lies_below(place, prefix) for prefix in allowed):
        raise BadCallback(
            f"{url!r:.80} is below none of the prefixes in IndicationService.callbacks"
        )


def _lies_below(place: Place, prefix: str) -> bool:
    try:
        return take_apart(prefix).contains(place)
    except ValueError:
        # The resource's schema lets addresses in brackets pass that are none.
        return False


def take_apart(url: str) -> Place:
    """Take a callback URL, or a prefix of such, apart. Raises ValueError saying what is wrong."""
    if len(url) > MAXIMUM_URL:
        raise ValueError(f"give at most {MAXIMUM_URL} characters")
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("encode spaces, control and non-ASCII characters")
    parts = urlsplit(url)
    if parts.scheme not in _PORTS or not parts.hostname:
        raise ValueError("write http://HOST[:PORT]/PATH or https://HOST[:PORT]/PATH")
    if "@" in parts.netloc:
        raise ValueError("leave out the user information")
    if "#" in url:
        raise ValueError("leave out the fragment")
    if _AMBIGUOUS.search(parts.path):
        raise ValueError("leave encoded dots and slashes, and backslashes, out of the path")
    segments = parts.path.split("/")[1:]
    if any(segment in (".", "..") for segment in segments):
        raise ValueError("leave dot segments out of the path")
    if segments and not segments[-1]:
        segments.pop()
    port = parts.port
    return Place(
        parts.scheme,
        parts.hostname,
        _PORTS[parts.scheme] if port is None else port,
        tuple(segments),
    )
