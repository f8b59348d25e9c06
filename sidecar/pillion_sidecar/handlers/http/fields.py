"""Header fields: credentials and languages out, Retry-After in."""

import base64
from collections.abc import Sequence
from datetime import UTC
from email.utils import parsedate_to_datetime

from pillion_cim.values import is_language_tag
from pillion_sidecar.config.credentials import is_bearer_token
from pillion_sidecar.config.resources import Credentials
from pillion_sidecar.delivery.handler import HoldCause
from pillion_sidecar.handlers.http.exchange import Headers, field
from pillion_sidecar.handlers.http.target import InvalidDestinationError

#: The longest that a Retry-After is believed, in seconds.
RETRY_AFTER_LIMIT = 86_400.0


def authorization(credentials: Credentials | None) -> bytes:
    """The Authorization line with its CRLF; empty without credentials.

    Raises:
        InvalidDestinationError: they cannot be written into a header.
    """
    if credentials is None:
        return b""
    if credentials.bearer_token is not None:
        token = credentials.bearer_token.strip()
        if not is_bearer_token(token):
            raise InvalidDestinationError(
                "the bearer token has characters that no token has", cause=HoldCause.CREDENTIALS
            )
        return b"Authorization: Bearer " + token.encode("ascii") + b"\r\n"
    username, password = credentials.username, credentials.password
    if username is None:
        return b""
    if ":" in username:
        raise InvalidDestinationError(
            "the username must not hold a colon (RFC 7617)", cause=HoldCause.CREDENTIALS
        )
    if not (username and password and (username + password).isprintable()):
        raise InvalidDestinationError(
            "the username or the password is empty, or holds control characters (RFC 7617)",
            cause=HoldCause.CREDENTIALS,
        )
    pair = f"{username}:{password}".encode()
    return b"Authorization: Basic " + base64.b64encode(pair) + b"\r\n"


def content_language(languages: Sequence[str]) -> bytes:
    """The Content-Language line with its CRLF; empty without languages (S0.21).

    Raises:
        ValueError: one of them is no language tag.
    """
    if not languages:
        return b""
    for tag in languages:
        if not is_language_tag(tag):
            raise ValueError(f"not a language tag: {tag[:40]!r}")
    return f"Content-Language: {', '.join(languages)}\r\n".encode("ascii")


def retry_after(headers: Headers, now: float) -> float | None:
    """Seconds that Retry-After asks for, 0 to RETRY_AFTER_LIMIT; ``now`` is the epoch time.

    None where it is missing or is neither seconds nor a date (RFC 9110 10.2.3).
    """
    value = field(headers, b"retry-after")
    if value is None:
        return None
    text = value.decode("latin-1").strip()
    if text.isascii() and text.isdigit():
        # Longer is beyond the limit anyway, and int() of a very long text is slow.
        return min(float(text[:9]), RETRY_AFTER_LIMIT)
    try:
        date = parsedate_to_datetime(text)
    except (TypeError, ValueError):
        return None
    if date.tzinfo is None:
        date = date.replace(tzinfo=UTC)
    return min(max(date.timestamp() - now, 0.0), RETRY_AFTER_LIMIT)
