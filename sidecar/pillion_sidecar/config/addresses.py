"""The meaning of a destination's URL, and the address policy. Loopback, link-local and metadata
addresses are refused by default. The policy applies when a file is loaded and after each
resolution, since a name's addresses change."""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from ipaddress import IPv4Address, IPv6Address, IPv6Network, ip_address
from itertools import pairwise
from typing import NamedTuple
from urllib.parse import SplitResult, urlsplit

from pillion_sidecar.config.schema.destination import ListenerDestination, SequenceIdentifiers
from pillion_sidecar.protocols import FALLBACK, PROTOCOLS, schemes_of

IPAddress = IPv4Address | IPv6Address

#: Where clouds serve credentials and configuration to any client.
METADATA_ADDRESSES: frozenset[IPAddress] = frozenset(
    ip_address(text)
    for text in (
        # AWS, Azure, Google Cloud, Oracle Cloud, OpenStack and most others.
        "169.254.169.254",
        "fe80::a9fe:a9fe",
        # AWS: EC2, ECS tasks, EKS Pod Identity.
        "fd00:ec2::254",
        "169.254.170.2",
        "169.254.170.23",
        "fd00:ec2::23",
        # Azure's WireServer.
        "168.63.129.16",
        # Google Cloud.
        "fd20:ce::254",
        # Oracle Cloud, and its first generation.
        "fd00:c1::a9fe:a9fe",
        "192.0.0.192",
        # Alibaba Cloud, Tencent Cloud, Volcano Engine.
        "100.100.100.200",
        "169.254.0.23",
        "100.96.0.96",
        # Scaleway, Akamai (Linode).
        "169.254.42.42",
        "fd00:42::42",
        "fd00:a9fe:a9fe::1",
    )
)

_LOCAL_NAMES = frozenset(
    {
        "localhost",
        "localhost.localdomain",
        "localhost6",
        "localhost6.localdomain6",
        "ip6-localhost",
        "ip6-loopback",
    }
)
# NAT64 (RFC 6052), SIIT (RFC 2765) and IPv4-compatible addresses end in an IPv4 address.
_EMBEDDING = tuple(IPv6Network(text) for text in ("64:ff9b::/96", "::ffff:0:0:0/96", "::/96"))
# NAT64 for local use (RFC 8215): prefixes of any length from 48 bits are made of it.
_LOCAL_NAT64 = IPv6Network("64:ff9b:1::/48")
# Positions of the IPv4 bytes for prefixes of 48, 56 and 64 bits (RFC 6052 2.2).
_BEHIND_SHORT_PREFIXES = ((6, 7, 9, 10), (7, 9, 10, 11), (9, 10, 11, 12))
# The four bytes before the IPv4 address of an ISATAP address (RFC 5214 6.1), below any prefix.
_ISATAP = (0x00005EFE, 0x02005EFE)
_HOST_OF_URL = re.compile(r"[^:/?#]*://(?:[^/?#]*@)?(\[[^\]/?#]*\]|[^:/?#]*)")
_NUMBER = re.compile(r"0[xX][0-9a-fA-F]*|[0-9]+")


@dataclass(frozen=True, slots=True)
class Address:
    """Where a server listens; port 0: any free one."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class AddressKind(StrEnum):
    """What an address leads to; the most harmless first."""

    PUBLIC = "public"
    PRIVATE = "private"
    LINK_LOCAL = "link-local"
    LOOPBACK = "loopback"
    METADATA = "cloud metadata"
    UNSPECIFIED = "unspecified"
    MULTICAST = "multicast"
    BROADCAST = "broadcast"


def classify(address: IPAddress) -> AddressKind:
    """Classify an address; an IPv4 address inside an IPv6 one is judged for itself."""
    if isinstance(address, IPv4Address):
        return _kind(address)
    # Without a zone.
    number = int(address)
    address = IPv6Address(number)
    inner = _embedded_ipv4(address)
    if inner is not None:
        return _kind(inner)
    if number >> 32 & 0xFFFFFFFF in _ISATAP:
        # The prefix may be another network's, such as the link's.
        both = {_kind(address), _kind(IPv4Address(number & 0xFFFFFFFF))}
        return next(kind for kind in reversed(AddressKind) if kind in both)
    return _kind(address)


def _kind(address: IPAddress) -> AddressKind:
    if address in METADATA_ADDRESSES:
        return AddressKind.METADATA
    for kind, holds in (
        (AddressKind.UNSPECIFIED, address.is_unspecified or _is_this_network(address)),
        (AddressKind.LOOPBACK, address.is_loopback),
        (AddressKind.LINK_LOCAL, address.is_link_local),
        (AddressKind.MULTICAST, address.is_multicast),
        (AddressKind.BROADCAST, int(address) == 0xFFFFFFFF and address.version == 4),
        (AddressKind.PRIVATE, not address.is_global),
    ):
        if holds:
            return kind
    return AddressKind.PUBLIC


def _is_this_network(address: IPAddress) -> bool:
    # A connection to 0.x.y.z reaches the machine itself on some systems.
    return address.version == 4 and int(address) >> 24 == 0


def _embedded_ipv4(address: IPv6Address) -> IPv4Address | None:
    if address.ipv4_mapped is not None:
        return address.ipv4_mapped
    if address.sixtofour is not None:
        return address.sixtofour
    if address.teredo is not None:
        return address.teredo[1]
    if address in _LOCAL_NAT64:
        return _behind_local_nat64(address)
    if int(address) > 1 and any(address in network for network in _EMBEDDING):
        return IPv4Address(int(address) & 0xFFFFFFFF)
    return None


def _behind_local_nat64(address: IPv6Address) -> IPv4Address:
    packed = address.packed
    for places in _BEHIND_SHORT_PREFIXES:
        if not packed[8] and not any(packed[places[-1] + 1 :]):
            return IPv4Address(bytes(packed[place] for place in places))
    return IPv4Address(packed[12:])


def host_of(url: str) -> str:
    """Return the host as written, with brackets; empty if there is none. Never raises, unlike
    ``urlsplit``."""
    found = _HOST_OF_URL.match(url)
    return found[1] if found else ""


def parse_host(host: str) -> IPAddress | None:
    """Return the address that a host spells out, or None for a name. Accepts what resolvers accept:
    brackets, a trailing dot, ``127.1``, ``0x7f000001``, ``2130706433``.

    Raises:
        ValueError: the host can be neither a name nor an address.
    """
    if host.startswith("[") or ":" in host:
        return IPv6Address(host.removeprefix("[").removesuffix("]"))
    parts = host.rstrip(".").split(".")
    if not _NUMBER.fullmatch(parts[-1]):
        return None
    if len(parts) > 4 or not all(_NUMBER.fullmatch(part) for part in parts):
        raise ValueError(f"{host!r} is neither a host name nor an IP address")
    return _join([_number(part, host) for part in parts], host)


def _number(part: str, host: str) -> int:
    try:
        if part[:2] in ("0x", "0X"):
            return int(part[2:] or "0", 16)
        if len(part) > 1 and part[0] == "0":
            return int(part, 8)
        # Longer is out of range anyway, and int() of a very long text is slow.
        return int(part[:20])
    except ValueError:
        raise ValueError(f"{host!r} is not an IP address") from None


def _join(numbers: list[int], host: str) -> IPv4Address:
    *leading, last = numbers
    if any(number > 255 for number in leading) or last >= 256 ** (4 - len(leading)):
        raise ValueError(f"{host!r} is not an IP address: a part of it is out of range")
    value = last
    for position, number in enumerate(leading):
        value += number << (8 * (3 - position))
    return IPv4Address(value)


def is_local_name(host: str) -> bool:
    """Whether a host name means this machine by convention (RFC 6761 6.3)."""
    name = host.rstrip(".").lower()
    return name in _LOCAL_NAMES or name.endswith(".localhost")


@dataclass(frozen=True, slots=True, kw_only=True)
class AddressPolicy:
    """The kinds of address that may be connected to. Unspecified, multicast and broadcast addresses
    are always refused."""

    allow_loopback: bool = False
    allow_link_local: bool = False
    allow_private: bool = True
    allow_metadata: bool = False

    def check(self, address: IPAddress | str) -> str | None:
        """Return why ``address`` is refused, or None. Raises ValueError for a text that is no IP
        address."""
        ip = ip_address(address) if isinstance(address, str) else address
        kind = classify(ip)
        if self._allows(kind):
            return None
        article = "an" if kind is AddressKind.UNSPECIFIED else "a"
        return f"{ip} is {article} {kind.value} address, and those are not allowed here"

    def _allows(self, kind: AddressKind) -> bool:
        return {
            AddressKind.PUBLIC: True,
            AddressKind.PRIVATE: self.allow_private,
            AddressKind.LOOPBACK: self.allow_loopback,
            AddressKind.LINK_LOCAL: self.allow_link_local,
            AddressKind.METADATA: self.allow_metadata,
        }.get(kind, False)

    def check_url(self, url: str) -> str | None:
        """:meth:`check_host` of the URL's host; None if it names no network address."""
        return None if names_no_address(url) else self.check_host(host_of(url))

    def check_host(self, host: str) -> str | None:
        """Return why a host is refused without resolving it, or None. An allowed name must still
        pass :meth:`check` after each resolution."""
        if not host.isascii():
            return f"{host!r} is outside ASCII; write an international name in its xn-- form"
        if not host:
            return "no host is named"
        try:
            ip = parse_host(host)
        except ValueError as error:
            return str(error)
        if ip is None:
            if is_local_name(host) and not self.allow_loopback:
                return f"{host} is this machine (loopback), and that is not allowed here"
            return None
        if isinstance(ip, IPv4Address) and host.rstrip(".") != str(ip):
            return f"{host!r} is an unusual spelling of the address {ip}"
        return self.check(ip)


_PORTS = {name: protocol.ports for name, protocol in PROTOCOLS.items()}
_WITHOUT_ADDRESS = tuple(
    f"{one.name}://" for one in schemes_of(PROTOCOLS.values()) if one.port is None
)
_ENCODED = re.compile("%([0-9A-Fa-f]{2})")
#: RFC 3986 2.3: these mean the same, encoded or not.
_UNRESERVED = re.compile("[A-Za-z0-9._~-]")
_MOST_NAMED = 3


def listener_address(url: str, protocol: str = FALLBACK) -> str:
    """Return one normal form for all spellings of a URL (RFC 3986 6.2.2), with an explicit port;
    every name of this machine becomes ``localhost``. A text that is no URL is returned unchanged.
    Idempotent."""
    ports = _PORTS[protocol]
    parts = _split(url, ports)
    if parts is None:
        return url
    path = _plain(parts.path) or "/"
    query = f"?{_plain(parts.query)}" if parts.query else ""
    default = ports[parts.scheme]
    if default is None:
        return f"{parts.scheme}://{parts.netloc}{path}{query}"
    return f"{parts.scheme}://{_host(parts.hostname or '')}:{parts.port or default}{path}{query}"


def _split(url: str, ports: Mapping[str, int | None]) -> SplitResult | None:
    try:
        parts = urlsplit(url)
        usable = parts.scheme in ports and (
            ports[parts.scheme] is None or (parts.hostname and (parts.port or True))
        )
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


def names_no_address(url: str) -> bool:
    """Whether the URL's scheme has no network address, such as ``plugin``."""
    return url.lower().startswith(_WITHOUT_ADDRESS)


def address_of(destination: ListenerDestination) -> str:
    return listener_address(destination.destination, destination.protocol)


def same_port_and_path(destinations: Iterable[ListenerDestination]) -> str | None:
    """Return a warning about destinations whose hosts may be two names of one listener."""
    pairs = pairs_at_one_port_and_path(filter(None, map(listener_of, destinations)))
    if not pairs:
        return None
    named = "; ".join(
        f"{known.name} ({known.url}) and {other.name} ({other.url})"
        for known, other in pairs[:_MOST_NAMED]
    )
    more = f"; and {len(pairs) - _MOST_NAMED} more pairs" if len(pairs) > _MOST_NAMED else ""
    return (
        f"destinations have one port and path under different host names: {named}{more}. If these"
        " are names of one listener, it drops some indications as late: give all of them the"
        " same URL, or set sequenceIdentifiers to Omit"
    )


class Listener(NamedTuple):
    """What a destination says of its listener."""

    #: Of the destination.
    name: str
    url: str
    #: Scheme, port, path and query.
    place: str
    host: str
    #: Whether the host is a literal address.
    is_address: bool


def listener_of(destination: ListenerDestination) -> Listener | None:
    """Return None for a destination that cannot share a listener unknowingly: one without sequence
    identifiers, one that is relayed, and one whose URL is in a Secret."""
    url = destination.destination
    if destination.sequence_identifiers is SequenceIdentifiers.OMIT or destination.relay_to:
        return None
    if destination.url_is_hidden or names_no_address(url):
        return None
    parts = urlsplit(address_of(destination))
    place = f"{parts.scheme} {parts.port}{parts.path}?{parts.query}"
    return Listener(destination.name, url, place, parts.hostname or "", _is_address(url))


def pairs_at_one_port_and_path(listeners: Iterable[Listener]) -> list[tuple[Listener, Listener]]:
    """Return pairs of listeners with equal port and path that may be one; of three, (1, 2) and
    (2, 3). Two literal addresses are never paired."""
    by_place: dict[str, dict[str, Listener]] = {}
    for listener in listeners:
        by_place.setdefault(listener.place, {}).setdefault(listener.host, listener)
    return [
        (known, other)
        for hosts in by_place.values()
        if len(hosts) > 1
        for known, other in pairwise(hosts.values())
        if not (known.is_address and other.is_address)
    ]


def _is_address(url: str) -> bool:
    try:
        return parse_host(urlsplit(url).hostname or "") is not None
    except ValueError:
        return False
