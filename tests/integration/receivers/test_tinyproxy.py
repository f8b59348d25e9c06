"""Debian's tinyproxy forwards, and makes tunnels."""

import asyncio
import shutil
import socket
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest
import trustme

from pillion_sidecar.config.schema.listener import Credentials, TLSOptions
from pillion_sidecar.config.schema.proxy import ConnectTo, Proxy
from pillion_sidecar.delivery.handler import DeliveryResult, HoldCause
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, listening, ok
from support.http_proxy import ACCOUNT
from support.protocol_peers import AMPLE, Attempt, destination, registry

TINYPROXY = shutil.which("tinyproxy", path="/usr/sbin:/usr/bin:/sbin")
pytestmark = pytest.mark.skipif(
    TINYPROXY is None, reason="Debian's package tinyproxy is missing: apt-get install tinyproxy"
)
CONFIGURATION = """
Port {port}
Listen 127.0.0.1
Timeout 600
MaxClients 10
LogLevel Critical
DisableViaHeader Yes
{account}
"""


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
        return port


@asynccontextmanager
async def tinyproxy(folder: Path, account: str = "") -> AsyncIterator[str]:
    """Run it in the foreground; its URL, once it listens."""
    assert TINYPROXY is not None
    port = free_port()
    file = folder / "tinyproxy.conf"
    file.write_text(CONFIGURATION.format(port=port, account=account), encoding="utf-8")
    process = await asyncio.create_subprocess_exec(
        TINYPROXY,
        "-d",
        "-c",
        str(file),
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        while True:
            assert process.returncode is None, "tinyproxy has ended"
            try:
                _, writer = await asyncio.open_connection("127.0.0.1", port)
            except ConnectionRefusedError:
                await asyncio.sleep(0.01)
                continue
            writer.close()
            break
        yield f"http://127.0.0.1:{port}"
    finally:
        process.kill()
        await process.wait()


@pytest.mark.parametrize("scheme", ["http", "https"])
@pytest.mark.parametrize("connect_to", ConnectTo)
@pytest.mark.parametrize("password", [None, "planted-proxy-word", "wrong"])
async def test_deliveries_go_through_it(
    fake_time: FakeTime, tmp_path: Path, scheme: str, connect_to: ConnectTo, password: str | None
) -> None:
    heads: list[bytes] = []

    async def script(peer: Peer) -> None:
        while True:
            heads.append((await peer.request())[0])
            await peer.send(ok())

    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    account = "" if password is None else "BasicAuth {username} {password}".format(**ACCOUNT)
    login = None
    if password is not None:
        login = Credentials(username=ACCOUNT["username"], password=password)
    async with (
        tinyproxy(tmp_path, account) as proxy_url,
        listening(script, context if scheme == "https" else None) as listener,
        registry(fake_time, tmp_path) as handlers,
    ):
        given = destination(
            "CloudEvents",
            f"{listener.url}events",
            timeout_seconds=AMPLE,
            proxy=Proxy(url=proxy_url, credentials=login, connect_to=connect_to),
            tls=TLSOptions(ca_certificates=authority.cert_pem.bytes()),
        )
        handler = handlers.create_handler(given)
        told = [await Attempt(handler, fake_time).outcome(turn=0.0) for _ in range(2)]
        handler.close()
    if password == "wrong":
        # It answers 401. Outside of a tunnel this may be the listener's.
        assert [one.hold for one in told] == [HoldCause.REFUSED] * 2
        assert all("HTTP 401" in one.detail for one in told)
        assert heads == []
        return
    assert [one.result for one in told] == [DeliveryResult.SUCCESS] * 2
    assert [head.split(b" ")[1] for head in heads] == [b"/events"] * 2
    assert not any(b"proxy-authorization" in head.lower() for head in heads)
