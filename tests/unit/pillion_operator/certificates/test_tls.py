"""A certificate that is replaced while the server runs."""

import asyncio
import ssl
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from cryptography import x509

from pillion_operator.certificates.authority import KeyPair
from pillion_operator.certificates.webhook import loaded, renewed
from pillion_sidecar.auth.tls import ServingTLS
from pillion_sidecar.filewatch import Unusable


def material() -> Any:
    return renewed(None, hosts=("127.0.0.1",), now=time.time())


class Server:
    """Echoes lines over TLS."""

    def __init__(self, tls: ServingTLS, port: int) -> None:
        self.tls = tls
        self._port = port

    async def connect(self, bundle: bytes) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        context = ssl.create_default_context(cadata=bundle.decode())
        context.verify_flags |= ssl.VERIFY_X509_STRICT
        return await asyncio.open_connection("127.0.0.1", self._port, ssl=context)

    async def shown(self, bundle: bytes) -> int:
        """The serial number of the certificate that a new connection is shown."""
        _, writer = await self.connect(bundle)
        certificate = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        await close(writer)
        return x509.load_der_x509_certificate(certificate).serial_number


async def close(writer: asyncio.StreamWriter) -> None:
    writer.close()
    await writer.wait_closed()


def serial(pair: KeyPair) -> int:
    return x509.load_pem_x509_certificate(pair.certificate).serial_number


@pytest_asyncio.fixture
async def server() -> AsyncIterator[Server]:
    async def echo(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while line := await reader.readline():
            writer.write(line)
        await close(writer)

    tls = ServingTLS()
    listening = await asyncio.start_server(echo, "127.0.0.1", 0, ssl=tls.context)
    async with listening:
        yield Server(tls, listening.sockets[0].getsockname()[1])


async def test_before_the_first_certificate_no_handshake_succeeds(server: Server) -> None:
    assert not server.tls.has_certificate
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        await server.connect(material().bundle())


async def test_new_connections_see_the_new_certificate_and_open_ones_live_on(
    server: Server,
) -> None:
    first, second = material(), material()
    server.tls.use(await asyncio.to_thread(loaded, first.serving))
    assert await server.shown(first.bundle()) == serial(first.serving)
    reader, writer = await server.connect(first.bundle())

    server.tls.use(await asyncio.to_thread(loaded, second.serving))
    assert await server.shown(second.bundle()) == serial(second.serving)
    writer.write(b"still here\n")
    assert await reader.readline() == b"still here\n"
    await close(writer)


@pytest.mark.parametrize(
    "pair",
    [KeyPair(certificate=b"no", key=b"no"), KeyPair(certificate=b"", key=b"")],
)
async def test_a_certificate_that_cannot_be_used_leaves_the_one_before(
    server: Server, pair: KeyPair
) -> None:
    first = material()
    server.tls.use(await asyncio.to_thread(loaded, first.serving))
    with pytest.raises(Unusable):
        server.tls.use(await asyncio.to_thread(loaded, pair))
    assert await server.shown(first.bundle()) == serial(first.serving)


def test_a_key_of_another_certificate_is_refused() -> None:
    first, second = material(), material()
    with pytest.raises(Unusable):
        loaded(KeyPair(certificate=first.serving.certificate, key=second.serving.key))
