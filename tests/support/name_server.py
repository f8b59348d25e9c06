"""A name server on loopback: it answers what it is told to, or nothing."""

import asyncio
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from ipaddress import ip_address
from typing import cast


class NameServer(asyncio.DatagramProtocol):
    """Answers A and AAAA queries with the ``addresses`` of either kind. Silent without any."""

    def __init__(self, addresses: tuple[str, ...], ttl: int) -> None:
        self.addresses = addresses
        self.ttl = ttl
        #: Query types that there are answers to: 1 is A, 28 AAAA.
        self.kinds: tuple[int, ...] = (1, 28)
        self.exists = True
        self.asked = asyncio.Event()
        self.questions = 0
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def _found(self, kind: int) -> tuple[str, ...]:
        if not self.exists or kind not in self.kinds:
            return ()
        return tuple(one for one in self.addresses if kind == (28 if ":" in one else 1))

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.questions += 1
        self.asked.set()
        if not self.addresses:
            return
        end = data.index(b"\0", 12) + 5
        question = data[12:end]
        kind = struct.unpack("!H", question[-4:-2])[0]
        answers = b"".join(
            struct.pack("!HHHIH", 0xC00C, kind, 1, self.ttl, len(packed)) + packed
            for packed in (ip_address(address).packed for address in self._found(kind))
        )
        flags = 0x8180 if self.exists else 0x8183
        head = data[:2] + struct.pack("!HHHHH", flags, 1, len(self._found(kind)), 0, 0)
        assert self._transport is not None
        self._transport.sendto(head + question + answers, addr)


@asynccontextmanager
async def name_server(
    *addresses: str, ttl: int = 20
) -> AsyncIterator[tuple[NameServer, tuple[str]]]:
    loop = asyncio.get_running_loop()
    server = NameServer(addresses, ttl)
    transport, _ = await loop.create_datagram_endpoint(lambda: server, ("127.0.0.1", 0))
    try:
        yield server, ("127.0.0.1:{}".format(transport.get_extra_info("sockname")[1]),)
    finally:
        transport.close()
        await asyncio.sleep(0)
