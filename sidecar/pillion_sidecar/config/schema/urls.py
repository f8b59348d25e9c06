"""What the URL of a destination has to look like, and what callbacks begin with.

DSP1054 lets a Destination leave its scheme out and assumes http. Here that is refused: a URL that
silently means "without TLS" is a mistake more often than a wish.
"""

import json
from collections.abc import Iterable

from pillion_sidecar.config.schema.fields import Rule, Text
from pillion_sidecar.config.schema.rules import cel_matches, matching, unlike, whole
from pillion_sidecar.protocols import PROTOCOLS, Protocol, Scheme, schemes_of

_SCHEMES = schemes_of(PROTOCOLS.values())


def _one_of(schemes: Iterable[Scheme]) -> str:
    """A regular expression of the schemes' names; x and xs are written xs?."""
    names = {scheme.name for scheme in schemes}
    pairs = {name for name in names if f"{name}s" in names}
    single = names - pairs - {f"{name}s" for name in pairs}
    return f"(?i:{'|'.join(sorted([*(f'{name}s?' for name in pairs), *single]))})"


def _listed(schemes: Iterable[Scheme]) -> str:
    return " or ".join(f"{scheme.name}://" for scheme in schemes)


_SCHEME = f"{_one_of(_SCHEMES)}://"
_HTTP = tuple(scheme for scheme in _SCHEMES if scheme.name in ("http", "https"))
# Which texts with two colons are IPv6 addresses is for each deliverer to judge.
_HOST = r"([A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)*\.?|\[[0-9A-Fa-f]*:[0-9A-Fa-f]*:[0-9A-Fa-f:.]*\])"
_PORT = "([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_REST = "([/?#].*)?"
_LOOPBACK = r"((?i:localhost)|127\.[0-9]+\.[0-9]+\.[0-9]+|\[::1\])"

#: A URL that is spoken to without TLS, and one of these that does not leave this machine.
PLAIN = f"{_one_of(one for one in _SCHEMES if not one.is_secure)}://.*"
LOOPBACK = f"{_SCHEME}{_LOOPBACK}(:[0-9]*)?{_REST}"


def _url_rules(schemes: tuple[Scheme, ...], *, credentials: str) -> tuple[Rule, ...]:
    """The rules of any URL with one of ``schemes``; ``credentials`` is what to do about a user name
    in it."""
    scheme = f"{_one_of(schemes)}://"
    return (
        matching(
            r"[A-Za-z0-9._~:/?#\[\]@!$&'()*+,;=%-]*",
            message="holds a character that no URL may hold",
            remedy="Write spaces and letters outside ASCII as %XX, "
            "and an international host name in its xn-- form.",
        ),
        matching(
            f"{scheme}.*",
            message=f"does not begin with {_listed(schemes)}",
            remedy="Write the scheme in front of the host, such as https://host/path.",
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
        matching(
            f"{scheme}{_HOST}(:[^/?#]*)?{_REST}",
            when=f"{scheme}[^/?#@]*{_REST}",
            message="names no host",
            remedy="Write a host name of letters, digits, '-', '_' and single dots, an IPv4 "
            "address, or an IPv6 address in brackets.",
        ),
        matching(
            f"{scheme}{_HOST}:{_PORT}{_REST}",
            when=f"{scheme}{_HOST}:[^/?#@]*{_REST}",
            message="names a port that is not within 1 to 65535",
            remedy="Write such a port, or none for the scheme's own (80 or 443).",
        ),
    )


URL = Text(
    min_length=1,
    max_length=2048,
    rules=_url_rules(
        _SCHEMES,
        credentials="Put them into a Secret and name that under credentials.basic.",
    ),
)

#: What other URLs lie below: they have its scheme, host, port and first segments of the path.
PREFIX = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *_url_rules(_HTTP, credentials="Remove them: callbacks carry none."),
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


def protocol_rules(protocols: Iterable[Protocol]) -> tuple[Rule, ...]:
    """Rules over the spec of a destination: what its protocol does not take, where others do."""
    known = tuple(protocols)
    schemes = schemes_of(known)
    kinds = dict.fromkeys(kind for protocol in known for kind in protocol.credentials)
    rules = []
    for protocol in known:
        if {one.name for one in protocol.schemes} != {one.name for one in schemes}:
            rules.append(_scheme_rule(protocol))
        rules += [_kind_rule(protocol, kind) for kind in kinds if kind not in protocol.credentials]
    return tuple(rules)


def _scheme_rule(protocol: Protocol) -> Rule:
    regex = f"{_one_of(protocol.schemes)}://.*"
    fits = whole(regex)
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || !has(self.destination) || "
        f"{cel_matches('self.destination', regex)}",
        holds=lambda spec: (
            spec["protocol"] != protocol.name
            or "destination" not in spec
            or fits(spec["destination"])
        ),
        field="destination",
        message=f"has a scheme that {protocol.name} does not have",
        remedy=f"Begin it with {_listed(protocol.schemes)}.",
    )


def _kind_rule(protocol: Protocol, kind: str) -> Rule:
    return Rule(
        cel=f"self.protocol != {json.dumps(protocol.name)} || !has(self.credentials) || "
        f"!has(self.credentials.{kind})",
        holds=lambda spec: (
            spec["protocol"] != protocol.name or kind not in spec.get("credentials", {})
        ),
        field="credentials",
        message=f"holds {kind}, which {protocol.name} cannot send",
        remedy="Remove it, or choose another protocol.",
    )
