"""A gateway with its door, as a process, and the cluster whose tokens it takes."""

import asyncio
import json
import ssl
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import trustme
from cryptography import x509

from support.resources import write
from support.running import alert, listener, resources
from support.sidecar import Sidecar, sidecar
from support.token_issuer import TokenIssuer

LINE = json.dumps(alert("a")).encode()


class Gateway:
    """The process, its files, and a client for it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.resources = folder / "resources"
        self.resources.mkdir()
        self.issuer = TokenIssuer()
        self.authority = trustme.CA()
        self.ca = folder / "ca.crt"
        self.authority.cert_pem.write_to_path(self.ca)
        self.process: Sidecar
        self.session: aiohttp.ClientSession
        #: Everything that anybody was told.
        self.told = ""

    @property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=str(self.ca))

    def issue(self) -> int:
        """Put another certificate into the files; its serial number."""
        issued = self.authority.issue_cert("127.0.0.1")
        chain = b"".join(blob.bytes() for blob in issued.cert_chain_pems)
        self._swap({"tls.crt": chain, "tls.key": issued.private_key_pem.bytes()}, "tls")
        return int(ssl_serial(chain.decode()), 16)

    def give_keys(self, content: bytes | None = None) -> None:
        """Put the issuer's keys, or other content, into the file."""
        keys = content if content is not None else self.issuer.document()
        self._swap({"token-keys.json": keys}, "keys")

    def _swap(self, contents: dict[str, bytes], name: str) -> None:
        """Replace files as Kubernetes does: through the link ``..data``."""
        mounted = self.folder / name
        made = mounted / f"..{time.monotonic_ns()}"
        made.mkdir(parents=True)
        for file, content in contents.items():
            (made / file).write_bytes(content)
            if not (mounted / file).is_symlink():
                (mounted / file).symlink_to(f"..data/{file}")
        (mounted / "..new").symlink_to(made.name)
        (mounted / "..new").replace(mounted / "..data")

    def options(self) -> tuple[str, ...]:
        return (
            *("--intake-tls-certificate", str(self.folder / "tls" / "tls.crt")),
            *("--intake-tls-key", str(self.folder / "tls" / "tls.key")),
            *("--token-keys", str(self.folder / "keys" / "token-keys.json")),
            *("--administration", "127.0.0.1:0"),
        )

    def token(self, **changed: Any) -> str:
        return self.issuer.token(now=time.time(), **changed)

    async def publish(self, token: str | None, body: bytes = LINE, path: str = "") -> int:
        """Publish; the status."""
        headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        async with self.session.post(
            self.process.intake + (path or "/v1/indications?source=s"),
            data=body,
            headers=headers | {"Content-Type": "application/x-ndjson"},
            ssl=self.context,
        ) as answer:
            self.told += await answer.text() + str(answer.headers)
            return answer.status

    async def readiness(self) -> tuple[int, str]:
        async with self.session.get(self.process.telemetry + "/readyz") as answer:
            return answer.status, await answer.text()

    async def metric(self, name: str) -> float | None:
        async with self.session.get(self.process.telemetry + "/metrics") as answer:
            text = await answer.text()
        self.told += text
        for line in text.splitlines():
            if line.startswith(f"{name} ") or line.startswith(f"{name}{{"):
                return float(line.rsplit(" ", 1)[1])
        return None

    async def shown(self, *, tls: ssl.SSLContext | None = None) -> "Connection":
        """A new connection."""
        tls = tls or self.context
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port, ssl=tls))

    async def silent(self) -> "Connection":
        """A new connection of somebody who does not begin with the handshake."""
        return Connection(*await asyncio.open_connection("127.0.0.1", self.port))

    @property
    def port(self) -> int:
        return int(self.process.intake.rsplit(":", 1)[1])


class Connection:
    """One connection to a gateway, kept alive."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @property
    def serial(self) -> int:
        """The number of the certificate that it was shown."""
        return int(self._writer.get_extra_info("peercert")["serialNumber"], 16)

    async def ask(self, token: str) -> int:
        """The status of an answer on it."""
        return await self._exchange("GET /v1/receipts/none", token)

    async def publish(self, token: str) -> int:
        """The status of what is answered to a line."""
        return await self._exchange("POST /v1/indications?source=s", token, LINE)

    async def _exchange(self, request: str, token: str, body: bytes = b"") -> int:
        head = (
            f"{request} HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n"
            f"Content-Type: application/x-ndjson\r\nContent-Length: {len(body)}\r\n\r\n"
        )
        self._writer.write(head.encode() + body)
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        return int(answer.split()[1])

    async def ends(self) -> bool:
        """Wait until the gateway has closed it."""
        try:
            return await self._reader.read() == b""
        except ConnectionError:
            return True

    def close(self) -> None:
        self._writer.close()


def ssl_serial(chain: str) -> str:
    """The serial number of a chain's first certificate, in hexadecimal."""
    return f"{x509.load_pem_x509_certificates(chain.encode())[0].serial_number:x}"


@asynccontextmanager
async def running(gateway: Gateway, *options: str) -> AsyncIterator[Gateway]:
    async with (
        sidecar(gateway.resources, *gateway.options(), *options) as process,
        aiohttp.ClientSession() as session,
    ):
        gateway.process, gateway.session = process, session
        yield gateway


@asynccontextmanager
async def running_without_listener(folder: Path) -> AsyncIterator[Gateway]:
    """Run a gateway whose one listener is away."""
    made = Gateway(folder)
    destinations = resources(listener("siem", "http://127.0.0.1:9/"), deliverer={"mode": "Gateway"})
    write(made.resources, *destinations)
    made.issue()
    made.give_keys()
    async with running(made):
        yield made
