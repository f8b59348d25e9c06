"""The form of URLs: of listeners, callbacks and token endpoints. DSP1054 assumes http for a
Destination without scheme. Pillion refuses it: silently doing without TLS is mostly a mistake."""

from collections.abc import Collection, Iterable

from pillion_sidecar.fields import Rule, Text, matching, unlike, whole
from pillion_sidecar.protocols import PROTOCOLS, Scheme, schemes_of
from pillion_sidecar.protocols.declaration import HOST, LOOPBACK_HOST, PORT

SCHEMES = schemes_of(PROTOCOLS.values())


def one_of_schemes(schemes: Iterable[Scheme]) -> str:
    names = {scheme.name for scheme in schemes}
    pairs = {name for name in names if f"{name}s" in names}
    single = names - pairs - {f"{name}s" for name in pairs}
    return f"(?i:{'|'.join(sorted([*(f'{name}s?' for name in pairs), *single]))})"


def listed(schemes: Iterable[Scheme]) -> str:
    *others, last = (f"{scheme.name}://" for scheme in schemes)
    return f"{', '.join(others)} or {last}" if others else last


def _example(schemes: Iterable[Scheme]) -> str:
    names = [scheme.name for scheme in schemes]
    return "https://host/path" if "https" in names else f"{names[0]}://host:port"


HTTP = tuple(scheme for scheme in SCHEMES if scheme.name in ("http", "https"))
_REST = "([/?#].*)?"
#: A name or a path behind ``://``.
NAMED = f"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?{_REST}|/[^/?#].*)"
#: A host, perhaps with a port, behind ``://``.
HOSTED = f"{HOST}(:{PORT})?{_REST}"

_NETWORK = tuple(one for one in SCHEMES if one.port is not None)
#: URLs without TLS, those of them that name a host, and those on this machine.
NOT_SECURE = f"{one_of_schemes(one for one in SCHEMES if not one.is_secure)}://.*"
PLAIN = f"{one_of_schemes(one for one in _NETWORK if not one.is_secure)}://.*"
LOOPBACK = f"{one_of_schemes(_NETWORK)}://{LOOPBACK_HOST}(:[0-9]*)?{_REST}"

is_loopback = whole(LOOPBACK)


def url_rules(schemes: tuple[Scheme, ...], *, credentials: str) -> tuple[Rule, ...]:
    """Rules of URLs with one of ``schemes``; ``credentials``: the remedy for a user name in it."""
    scheme = f"{one_of_schemes(schemes)}://"
    return (
        matching(
            r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*",
            message="holds a character that no URL may hold",
            remedy="Write spaces and letters outside ASCII as %XX, "
            "and an international host name in its xn-- form.",
        ),
        matching(
            f"{scheme}.*",
            message=f"does not begin with {listed(schemes)}",
            remedy=f"Write the scheme in front of the host, such as {_example(schemes)}.",
        ),
        matching(
            f"{scheme}[^/?#@]*{_REST}",
            when=f"{scheme}.*",
            message="holds a user name or password",
            remedy=credentials,
        ),
        matching(
            "[^#]*",
            message="holds a fragment (#), which is never sent",
            remedy="Remove it, or write # as %23.",
        ),
        *_host_rules([one for one in schemes if one.port is not None]),
        *_name_rules([one for one in schemes if one.port is None]),
    )


def _host_rules(schemes: Collection[Scheme]) -> tuple[Rule, ...]:
    """Rules of URLs with a host."""
    scheme = f"{one_of_schemes(schemes)}://"
    return (
        matching(
            f"{scheme}{HOST}(:[^/?#]*)?{_REST}",
            when=f"{scheme}[^/?#@]*{_REST}",
            message="names no host",
            remedy="Write a host name of letters, digits, '-', '_' and single dots, an IPv4 "
            "address, or an IPv6 address in brackets.",
        ),
        matching(
            f"{scheme}{HOST}:{PORT}{_REST}",
            when=f"{scheme}{HOST}:[^/?#@]*{_REST}",
            message="names a port outside 1 to 65535",
            remedy="Write a port in this range, or none for the default of the protocol.",
        ),
    )


def _name_rules(schemes: Collection[Scheme]) -> tuple[Rule, ...]:
    """Rules of URLs with a name or a path instead of a host."""
    if not schemes:
        return ()
    scheme = f"{one_of_schemes(schemes)}://"
    return (
        matching(
            f"{scheme}{NAMED}",
            when=f"{scheme}[^/?#@]*{_REST}",
            message="names nothing",
            remedy="Write a name of letters, digits, '-', '_' and '.' after ://, or a path after "
            ":///.",
        ),
    )


URL = Text(
    min_length=1,
    max_length=2048,
    rules=url_rules(
        SCHEMES,
        credentials="Put them into a Secret, and name it in credentials.basic.",
    ),
)

#: A prefix has scheme, host, port and first path segments of a URL.
PREFIX = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *url_rules(HTTP, credentials="Remove them: callbacks carry none."),
        matching(
            r"[^?]*",
            message="holds a query (?), which a prefix cannot have",
            remedy="Remove the query.",
        ),
        unlike(
            r".*%(2[eEfF]|5[cC]).*|.*/\.\.?(/.*)?",
            message="holds a dot segment, or an encoded dot, slash or backslash",
            remedy="Write the path without them; paths are compared as written.",
        ),
    ),
)
