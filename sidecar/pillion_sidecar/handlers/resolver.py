"""Name resolution with c-ares, without a thread for each query: a silent name server delays only
those who wait for it. Concurrent requests for a name share one look-up; each caller's deadline ends
its wait, c-ares' time-outs the look-up. c-ares caches answers by their TTL."""

import asyncio
import ipaddress
from collections.abc import Sequence
from types import ModuleType
from typing import TYPE_CHECKING

from pillion_sidecar.handlers.errors import HandlerError
from pillion_sidecar.handlers.libraries import load

if TYPE_CHECKING:
    import aiodns

# c-ares: seconds for the first try of a server (increasing), and tries.
_TRY_SECONDS, _TRIES = 2.0, 3


class ResolutionError(HandlerError):
    """A name has no address, or it could not be determined. ``reason`` is the text without the
    name."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host} {reason}")
        self.reason = reason


class Resolver:
    """Resolves literals and ``localhost`` at once, then ``/etc/hosts``, then DNS. ``nameservers``
    (``IP`` or ``IP:PORT``) replace the system's."""

    def __init__(self, *, nameservers: Sequence[str] = ()) -> None:
        self._nameservers = list(nameservers)
        #: aiodns, which only a name needs.
        self._library: ModuleType | None = None
        self._dns: aiodns.DNSResolver | None = None
        self._lookups: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> Sequence[str]:
        """Return IP addresses, best first. Raises ResolutionError."""
        known = _without_dns(host)
        if known is not None:
            return known
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host))
            lookup.add_done_callback(_note)
            self._lookups[host] = lookup
        # A caller that gives up must not end the look-up for others.
        return await asyncio.shield(lookup)

    async def close(self) -> None:
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
        dns, self._dns = self._dns, None
        if dns is not None:
            await dns.close()

    async def _look_up(self, host: str) -> tuple[str, ...]:
        try:
            aiodns = self._library = self._library or await load("aiodns")
            if self._dns is None:
                self._dns = aiodns.DNSResolver(
                    nameservers=self._nameservers or None, timeout=_TRY_SECONDS, tries=_TRIES
                )
            try:
                found = await self._dns.getaddrinfo(host)
            except aiodns.error.DNSError as error:
                raise ResolutionError(host, f"cannot be resolved: {error.args[-1]}") from None
        finally:
            self._lookups.pop(host, None)
        # One node for each socket type; the order is c-ares' (RFC 6724).
        addresses = tuple(dict.fromkeys(node.addr[0].decode() for node in found.nodes))
        if not addresses:
            raise ResolutionError(host, "has no address")
        return addresses


def _note(lookup: asyncio.Task[tuple[str, ...]]) -> None:
    """Have asyncio log no failure that comes after all have given up."""
    if not lookup.cancelled():
        lookup.exception()


def _without_dns(host: str) -> tuple[str, ...] | None:
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        # RFC 6761 6.3: never asked of a name server.
        return ("127.0.0.1", "::1")
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return None
