"""Name resolution that nothing hung can use up.

c-ares keeps its own queries in flight, without a thread for each as getaddrinfo(3) would need, so
a silent name server costs only those who wait for it. One look-up per name is under way however
many ask; each asker's own deadline ends its wait, c-ares' time-outs end the look-up. c-ares also
keeps answers for as long as DNS says.
"""

import asyncio
import ipaddress
from collections.abc import Sequence

import aiodns

from pillion_sidecar.handlers.errors import HandlerError

# c-ares: seconds for the first try of a server (it grows with each), and tries.
_TRY_SECONDS, _TRIES = 2.0, 3


class ResolutionError(HandlerError):
    """A name has no address, or none could be found out. The text says why, and ``reason`` does so
    without the name."""

    def __init__(self, host: str, reason: str) -> None:
        super().__init__(f"{host} {reason}")
        self.reason = reason


class Resolver:
    """Finds addresses: literals and ``localhost`` at once, ``/etc/hosts``, then DNS.

    ``nameservers`` (``IP`` or ``IP:PORT``) replace the system's.
    """

    def __init__(self, *, nameservers: Sequence[str] = ()) -> None:
        self._nameservers = list(nameservers)
        self._dns: aiodns.DNSResolver | None = None
        self._lookups: dict[str, asyncio.Task[tuple[str, ...]]] = {}

    async def resolve(self, host: str) -> Sequence[str]:
        """The IP addresses of ``host``, best first.

        Raises:
            ResolutionError: there are none.
        """
        known = _without_dns(host)
        if known is not None:
            return known
        lookup = self._lookups.get(host)
        if lookup is None:
            lookup = asyncio.create_task(self._look_up(host))
            self._lookups[host] = lookup
        # The one who gives up waiting must not end the look-up for the others.
        return await asyncio.shield(lookup)

    async def close(self) -> None:
        """End all look-ups."""
        lookups = list(self._lookups.values())
        for lookup in lookups:
            lookup.cancel()
        await asyncio.gather(*lookups, return_exceptions=True)
        dns, self._dns = self._dns, None
        if dns is not None:
            await dns.close()

    async def _look_up(self, host: str) -> tuple[str, ...]:
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


def _without_dns(host: str) -> tuple[str, ...] | None:
    name = host.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        # RFC 6761 6.3: never asked of a name server.
        return ("127.0.0.1", "::1")
    try:
        return (str(ipaddress.ip_address(host)),)
    except ValueError:
        return None
