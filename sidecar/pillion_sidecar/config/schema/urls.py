"""What the URL of a destination has to look like, and what callbacks begin with.

DSP1054 lets a Destination leave its scheme out and assumes http. Here that is refused: a URL that
silently means "without TLS" is a mistake more often than a wish.
"""

from pillion_sidecar.config.schema.fields import Rule, Text
from pillion_sidecar.config.schema.rules import matching, unlike

_SCHEME = "(?i:https?)://"
# Which texts with two colons are IPv6 addresses is for each deliverer to judge.
_HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_REST = "([/?#].*)?"
_LOOPBACK = r"((?i:localhost)|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\])"

#: A URL that is spoken to without TLS, and one of these that does not leave this machine.
PLAIN = "(?i:http)://.*"
LOOPBACK = f"{_SCHEME}{_LOOPBACK}(:[0-9]*)?{_REST}"


def _url_rules(*, credentials: str) -> tuple[Rule, ...]:
    """The rules of any URL; ``credentials`` is what to do about a user name in it."""
    return (
        matching(
            r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*",
            message="holds a character that no URL may hold",
            remedy="Write spaces and letters outside ASCII as %XX, "
            "and an international host name in its xn-- form.",
        ),
        matching(
            f"{_SCHEME}.*",
            message="does not begin with http:// or https://",
            remedy="Write the scheme in front of the host, such as https://host/path.",
        ),
        matching(
            f"{_SCHEME}[^/?#@]*{_REST}",
            when=f"{_SCHEME}.*",
            message="holds a user name or password",
            remedy=credentials,
        ),
        matching(
            "[^#]*",
            message="holds a fragment (#), which is never sent",
            remedy="Remove it, or write # as %23.",
        ),
        matching(
            f"{_SCHEME}{_HOST}(:[^/?#]*)?{_REST}",
            when=f"{_SCHEME}[^/?#@]*{_REST}",
            message="names no host",
            remedy="Write a host name of letters, digits, '-', '_' and single dots, an IPv4 "
            "address, or an IPv6 address in brackets.",
        ),
        matching(
            f"{_SCHEME}{_HOST}:{_PORT}{_REST}",
            when=f"{_SCHEME}{_HOST}:[^/?#@]*{_REST}",
            message="names a port that is not within 1 to 65535",
            remedy="Write such a port, or none for the scheme's own (80 or 443).",
        ),
    )


URL = Text(
    min_length=1,
    max_length=2048,
    rules=_url_rules(
        credentials="Put them into a Secret and name that under credentials.basic.",
    ),
)

#: What other URLs lie below: they have its scheme, host, port and first segments of the path.
PREFIX = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *_url_rules(credentials="Remove them: callbacks carry none."),
        matching(
            r"[^?]*",
            message="holds a query (?), which is no part of a prefix",
            remedy="End it in the path.",
        ),
        unlike(
            r".*%(2[eEfF]|5[cC]).*|.*/\.\.?(/.*)?",
            message="holds a dot segment, or an encoded dot, slash or backslash",
            remedy="Write the path without them, as it is compared.",
        ),
    ),
)
