"""A small receiver of SNMP v2c, written apart from what it tests: pyasn1 reads and writes."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, cast

from pyasn1.codec.ber import decoder, encoder
from pysnmp.proto import rfc1901, rfc1905

INFORM, TRAP = "inform-request", "snmpV2-trap"


class Receiver(asyncio.DatagramProtocol):
    """Keeps what it gets. Unless told otherwise, it confirms each inform."""

    def __init__(self, *, answers: bool) -> None:
        self.url = ""
        self.answers = answers
        #: Of the next answer.
        self.error_status = 0
        self.received: list[bytes] = []
        self.peers: list[tuple[str, int]] = []
        self.arrived = asyncio.Event()
        self._transport: asyncio.DatagramTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.DatagramTransport, transport)

    def datagram_received(self, data: bytes, addr: tuple[str, int]) -> None:
        self.received.append(data)
        self.peers.append(addr)
        self.arrived.set()
        if self.answers and kind_of(data) == INFORM:
            self.send(response(data, error_status=self.error_status), addr)

    def send(self, data: bytes, addr: tuple[str, int]) -> None:
        assert self._transport is not None
        self._transport.sendto(data, addr)


@asynccontextmanager
async def receiving(
    *, answers: bool = True, address: tuple[str, int] = ("127.0.0.1", 0)
) -> AsyncIterator[Receiver]:
    loop = asyncio.get_running_loop()
    transport, receiver = await loop.create_datagram_endpoint(
        lambda: Receiver(answers=answers), local_addr=address
    )
    receiver.url = f"snmp://localhost:{transport.get_extra_info('sockname')[1]}"
    try:
        yield receiver
    finally:
        transport.close()
        await asyncio.sleep(0)


def read(message: bytes) -> Any:
    decoded, rest = decoder.decode(message, asn1Spec=rfc1901.Message())
    assert rest == b""
    return decoded


def pdu_of(message: bytes) -> Any:
    return read(message)["data"].getComponent()


def kind_of(message: bytes) -> str:
    return str(read(message)["data"].getName())


def bindings_of(message: bytes) -> list[tuple[str, Any]]:
    """Names and values, in their order."""
    return [(str(one["name"]), _value(one[1])) for one in pdu_of(message)["variable-bindings"]]


def _value(given: Any) -> Any:
    while hasattr(given, "getComponent"):
        given = given.getComponent()
    return given


def response(message: bytes, *, error_status: int = 0, number: int | None = None) -> bytes:
    """The answer to an inform; ``number`` None: its own."""
    asked = read(message)
    inform = asked["data"].getComponent()
    answer = rfc1905.ResponsePDU()
    answer["request-id"] = inform["request-id"] if number is None else number
    answer["error-status"] = error_status
    answer["error-index"] = 0
    answer["variable-bindings"] = inform["variable-bindings"]
    whole = rfc1901.Message()
    whole["version"] = asked["version"]
    whole["community"] = asked["community"]
    whole["data"]["response"] = answer
    return bytes(encoder.encode(whole))
