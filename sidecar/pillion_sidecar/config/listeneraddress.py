"""What the URL of a destination means: two spellings of one listener are one address. Pure.

A listener keys its sequence contexts by the sender's address and its own URL, as it sees that. So
sequence identifiers (D.2) depend on what a URL means, never on how it is written.
"""

import re
from collections.abc import Container, Iterable
from ipaddress import IPv4Address, IPv6Address
from urllib.parse import SplitResult, urlsplit

from pillion_sidecar.config.addresses import is_local_name, parse_host
from pillion_sidecar.config.resources import (
    ListenerDestination,
    SequenceIdentifiers,
)
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS

_PORTS = {name: protocol.ports for name, protocol in PROTOCOLS.items()}
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
#: RFC 3986 2.3: these mean the same, encoded or not.
_UNRESERVED = re.compile("[A-Za-z0-9._~-]")
#: Pairs of destinations that a warning names.
_MOST_NAMED = 3


def listener_address(url: str, protocol: str = FALLBACK) -> str:
    """Return the address that a destination's URL means, as one URL for all its spellings.

    Scheme and host are in lower case, the port is explicit (the protocol's where the URL has none),
    an empty path is ``/``, a host has no trailing dot, an IP address its usual form, every name of
    this machine is ``localhost``, and what needs no percent-encoding has none (RFC 3986 6.2.2).
    A text that is no URL is returned as it is. Idempotent.
    """
    ports = _PORTS[protocol]
    parts = _split(url, ports)
    if parts is None:
        return url
    port = parts.port or ports[parts.scheme]
    path = _plain(parts.path) or "/"
    query = f"?{_plain(parts.query)}" if parts.query else ""
    return f"{parts.scheme}://{_host(parts.hostname or '')}:{port}{path}{query}"


def _split(url: str, schemes: Container[str]) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in schemes and parts.hostname and (parts.port or True)
    except ValueError:
        return None
    return parts if usable else None


def _host(host: str) -> str:
    bare = host.rstrip(".")
    try:
        address = parse_host(bare)
    except ValueError:
        return bare
    if address is None:
        return "localhost" if is_local_name(bare) else bare
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    if address.is_loopback:
        return "localhost"
    return str(address) if isinstance(address, IPv4Address) else f"[{address}]"


def _plain(text: str) -> str:
    def decoded(found: re.Match[str]) -> str:
        character = chr(int(found[1], 16))
        return character if _UNRESERVED.fullmatch(character) else found[0].upper()

    return _ENCODED.sub(decoded, text)


def address_of(destination: ListenerDestination) -> str:
    """Return the address of a destination's listener."""
    return listener_address(destination.destination, destination.protocol)


def same_port_and_path(destinations: Iterable[ListenerDestination]) -> str | None:
    """Return a warning about destinations whose hosts may be two names of one listener; None where
    there are none."""
    pairs = pairs_at_one_port_and_path(destinations)
    if not pairs:
        return None
    named = "; ".join(
        f"{known.name} ({known.destination}) and {other.name} ({other.destination})"
        for known, other in pairs[:_MOST_NAMED]
    )
    more = f"; and {len(pairs) - _MOST_NAMED} more pairs" if len(pairs) > _MOST_NAMED else ""
    return (
        f"destinations have one port and path under different host names: {named}{more}. If these"
        " are names of one listener, it drops part of what it gets as late: give all of them the"
        " same URL, or set sequenceIdentifiers to Omit"
    )


def pairs_at_one_port_and_path(
    destinations: Iterable[ListenerDestination],
) -> list[tuple[ListenerDestination, ListenerDestination]]:
    """Return pairs of destinations whose hosts may be two names of one listener: port and path are
    the same, and sequence identifiers may be sent to both. Of three, the first and the second, and
    the second and the third.

    Addresses are not compared with each other: two of them are mostly two machines. A URL in a
    Secret is compared with nothing.
    """
    by_place: dict[str, dict[str, ListenerDestination]] = {}
    for destination in destinations:
        if destination.sequence_identifiers is SequenceIdentifiers.OMIT or destination.relay_to:
            continue
        if destination.url_is_hidden:
            continue
        parts = urlsplit(address_of(destination))
        place = f"{parts.scheme} {parts.port}{parts.path}?{parts.query}"
        by_place.setdefault(place, {}).setdefault(parts.hostname or "", destination)
    return [
        (known, other)
        for hosts in by_place.values()
        if len(hosts) > 1
        for known, other in zip(list(hosts.values()), list(hosts.values())[1:], strict=False)
        if not (_is_address(known) and _is_address(other))
    ]


def _is_address(destination: ListenerDestination) -> bool:
    host = urlsplit(destination.destination).hostname or ""
    try:
        return parse_host(host) is not None
    except ValueError:
        return False
