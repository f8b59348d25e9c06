"""The certificate of a gateway: shown, replaced, missing, broken."""

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest
import trustme
from aiohttp import web
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from pillion_sidecar.auth import acceptor
from pillion_sidecar.auth.acceptor import ConnectionAcceptor
from pillion_sidecar.auth.tls import ServingTLS, read_certificate
from pillion_sidecar.config.addresses import Address
from pillion_sidecar.filewatch import Unusable
from pillion_sidecar.http_server import Listeners
from pillion_sidecar.settings import TLSFiles
from pillion_sidecar.telemetry.gateway import GatewayMetrics
from pillion_sidecar.testing import FakeTime


@pytest.fixture(scope="module")
def authority() -> trustme.CA:
    return trustme.CA()


@pytest.fixture
def files(tmp_path: Path) -> TLSFiles:
    return TLSFiles(certificate=tmp_path / "tls.crt", key=tmp_path / "tls.key")


def issue(authority: trustme.CA, files: TLSFiles, *, until: datetime | None = None) -> None:
    issued = authority.issue_cert("localhost", "127.0.0.1", not_after=until)
    chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
    files.certificate.write_bytes(chain)
    files.key.write_bytes(issued.private_key_pem.bytes())


def test_certificate_and_key_are_read_with_their_expiry(
    authority: trustme.CA, files: TLSFiles
) -> None:
    until = datetime(2031, 5, 6, 7, 8, 9, tzinfo=UTC)
    issue(authority, files, until=until)
    assert read_certificate(files.certificate, files.key).expires == until.timestamp()


def test_a_pair_that_cannot_serve_is_refused_by_name(
    authority: trustme.CA, files: TLSFiles
) -> None:
    with pytest.raises(Unusable, match=r"tls\.crt: No such file"):
        read_certificate(files.certificate, files.key)
    issue(authority, files)
    other = authority.issue_cert("localhost").private_key_pem.bytes()
    good = files.key.read_bytes()
    for key in (b"", b"no key", good[:-40], other):
        files.key.write_bytes(key)
        with pytest.raises(Unusable, match=r"tls\.key: does not go with .*tls\.crt") as caught:
            read_certificate(files.certificate, files.key)
        assert good.decode()[40:80] not in str(caught.value)
    files.key.unlink()
    with pytest.raises(Unusable, match=r"tls\.key: No such file"):
        read_certificate(files.certificate, files.key)
    for certificate in (b"", b"no certificate", b"\xff" * 100):
        files.certificate.write_bytes(certificate)
        files.key.write_bytes(good)
        with pytest.raises(Unusable, match=r"tls\.crt: no certificate in PEM"):
            read_certificate(files.certificate, files.key)


def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(
    authority: trustme.CA, files: TLSFiles
) -> None:
    issue(authority, files)
    key = load_pem_private_key(files.key.read_bytes(), None)
    sealed = BestAvailableEncryption(b"secret")
    files.key.write_bytes(key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, sealed))
    with pytest.raises(Unusable, match=r"tls\.key: "):
        read_certificate(files.certificate, files.key)


# ---------------------------------------------------------------------- over a socket


async def renew(tls: ServingTLS, files: TLSFiles) -> None:
    """Have the certificate in the files shown."""
    tls.use(await asyncio.to_thread(read_certificate, files.certificate, files.key))


@asynccontextmanager
async def served(tls: ServingTLS) -> AsyncIterator[int]:
    async def hello(request: web.Request) -> web.Response:
        return web.Response(text="hello")

    app = web.Application()
    app.router.add_get("/", hello)
    listeners = Listeners()
    time = FakeTime()
    entrance = ConnectionAcceptor(
        clock=time, timers=time, observer=GatewayMetrics(), tls=tls.context, asks_for_tokens=False
    )
    url = await listeners.serve(app, Address("127.0.0.1", 0), acceptor=entrance)
    assert url.startswith("https://127.0.0.1:")
    try:
        yield int(url.rsplit(":", 1)[1])
    finally:
        await listeners.close()


class Client:
    """One connection, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self.writer = writer

    @property
    def tls(self) -> ssl.SSLObject:
        found: ssl.SSLObject = self.writer.get_extra_info("ssl_object")
        return found

    @property
    def serial(self) -> object:
        shown = self.tls.getpeercert()
        assert shown is not None
        return shown["serialNumber"]

    async def get(self) -> bytes:
        self.writer.write(b"GET / HTTP/1.1\r\nHost: gateway\r\n\r\n")
        head = await self._reader.readuntil(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200")
        return await self._reader.readexactly(5)


async def connect(
    authority: trustme.CA,
    port: int,
    *,
    name: str = "localhost",
    version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
) -> Client:
    context = ssl.create_default_context()
    authority.configure_trust(context)
    context.maximum_version = version
    found = await asyncio.open_connection("127.0.0.1", port, ssl=context, server_hostname=name)
    return Client(*found)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
# With a name in the handshake, and without: an address is not sent.
@pytest.mark.parametrize("name", ["localhost", "127.0.0.1"])
async def test_another_certificate_is_for_new_connections_and_the_old_ones_go_on(
    authority: trustme.CA, files: TLSFiles, name: str, version: ssl.TLSVersion
) -> None:
    tls = ServingTLS()
    async with served(tls) as port:
        with pytest.raises((ssl.SSLError, ConnectionError)):
            await connect(authority, port, name=name, version=version)
        serials: list[object] = []
        clients: list[Client] = []
        for _ in range(2):
            issue(authority, files)
            await renew(tls, files)
            client = await connect(authority, port, name=name, version=version)
            clients.append(client)
            serials.append(client.serial)
            for one in clients:
                assert await one.get() == b"hello"
        assert len(set(serials)) == 2
        for client in clients:
            client.writer.close()


def test_older_versions_of_tls_are_refused(authority: trustme.CA, files: TLSFiles) -> None:
    issue(authority, files)
    for context in (ServingTLS().context, read_certificate(files.certificate, files.key).context):
        assert context.minimum_version is ssl.TLSVersion.TLSv1_2


async def test_whoever_says_nothing_or_no_tls_keeps_nobody_waiting(
    authority: trustme.CA, files: TLSFiles, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(acceptor, "HANDSHAKE_SECONDS", 0.2)
    issue(authority, files)
    tls = ServingTLS()
    await renew(tls, files)
    async with served(tls) as port:
        silent = [await asyncio.open_connection("127.0.0.1", port) for _ in range(20)]
        plain, writing = await asyncio.open_connection("127.0.0.1", port)
        writing.write(b"GET / HTTP/1.1\r\n\r\n")
        assert b"HTTP" not in await plain.read()
        client = await connect(authority, port)
        assert await client.get() == b"hello"
        # The handshake's time is bounded: they are cut off.
        for reader, writer in silent:
            assert await reader.read() == b""
            writer.close()
        for one in (writing, client.writer):
            one.close()
