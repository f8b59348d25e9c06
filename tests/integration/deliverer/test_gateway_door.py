"""A gateway's door as it is run: a process, TLS, tokens of a cluster's issuer."""

import asyncio
import json
import ssl
import sys
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import aiohttp
import pytest
import trustme

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

    async def shown(self) -> "Connection":
        """A new connection."""
        port = int(self.process.intake.rsplit(":", 1)[1])
        return Connection(*await asyncio.open_connection("127.0.0.1", port, ssl=self.context))


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
        head = f"GET /v1/receipts/none HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer {token}\r\n\r\n"
        self._writer.write(head.encode())
        answer = await self._reader.readuntil(b"\r\n\r\n")
        length = int(answer.lower().split(b"content-length: ")[1].split(b"\r\n")[0])
        await self._reader.readexactly(length)
        return int(answer.split()[1])

    def close(self) -> None:
        self._writer.close()


def ssl_serial(chain: str) -> str:
    """The serial number of a chain's first certificate, in hexadecimal."""
    from cryptography import x509

    return f"{x509.load_pem_x509_certificates(chain.encode())[0].serial_number:x}"


@asynccontextmanager
async def running(gateway: Gateway, *options: str) -> AsyncIterator[Gateway]:
    async with (
        sidecar(gateway.resources, *gateway.options(), *options) as process,
        aiohttp.ClientSession() as session,
    ):
        gateway.process, gateway.session = process, session
        yield gateway


@pytest.fixture
def gateway(tmp_path: Path) -> Gateway:
    """One whose listener is away: that is not what is looked at here."""
    made = Gateway(tmp_path)
    write(
        made.resources,
        *resources(
            listener("siem", "http://127.0.0.1:9/"),
            deliverer={"mode": "Gateway"},
            publishers=[{"namespace": "team"}, {"namespace": "guests", "serviceAccount": "spark"}],
        ),
    )
    return made


async def test_whoever_may_publish_does_and_nobody_else(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        assert (await gateway.readiness())[0] == 200
        assert gateway.process.intake.startswith("https://")
        good = gateway.token()
        assert await gateway.publish(good) == 200
        assert await gateway.publish(good) == 200
        assert await gateway.publish(gateway.token(namespace="guests")) == 200
        assert await gateway.publish(None) == 401
        assert await gateway.publish("not.a.token") == 401
        assert await gateway.publish(gateway.token(exp=1)) == 401
        assert await gateway.publish(TokenIssuer().token(now=time.time())) == 401
        assert await gateway.publish(gateway.token(namespace="others")) == 403
        assert await gateway.publish(gateway.token(namespace="guests", account="other")) == 403
        # What an administrator may is not behind this door at all.
        for path in ("/drain", "/v1/queues/siem/purge"):
            assert await gateway.publish(good, path=path) == 404
        name = "pillion_intake_requests_turned_away_total"
        for reason, count in (("missing", 1), ("expired", 1), ("signature", 1), ("forbidden", 2)):
            assert await gateway.metric(f'{name}{{reason="{reason}"}}') == count
        # Plain HTTP is not spoken here.
        plain = gateway.process.intake.replace("https", "http")
        with pytest.raises(aiohttp.ClientError):
            await gateway.session.get(plain)


async def test_what_is_missing_at_the_start_may_come_later(gateway: Gateway) -> None:
    async with running(gateway, "--wait-for-configuration"):
        process = gateway.process
        status, text = await gateway.readiness()
        assert status == 503
        assert "certificate: there is no certificate yet" in text
        assert "token-keys: there are no keys yet" in text
        with pytest.raises(aiohttp.ClientError):
            await gateway.publish(gateway.token())
        gateway.issue()
        await process.logged("certificate-loaded")
        assert await gateway.publish(gateway.token()) == 503
        gateway.give_keys()
        await process.logged("token-keys-loaded")
        assert await gateway.publish(gateway.token()) == 200
        assert (await gateway.readiness())[0] == 200


async def test_a_certificate_is_replaced_while_connections_go_on(gateway: Gateway) -> None:
    first = gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        process, token = gateway.process, gateway.token()
        old = await gateway.shown()
        assert old.serial == first
        expiry = await gateway.metric("pillion_intake_certificate_expiry_timestamp_seconds")
        assert expiry is not None
        second = gateway.issue()
        await process.logged("certificate-loaded", 2)
        new = await gateway.shown()
        assert new.serial == second != first
        # A broken pair changes nothing.
        (gateway.folder / "tls" / "..data" / "tls.key").write_text("no key")
        await process.logged("certificate-refused")
        name = "pillion_intake_certificate_last_read_successful"
        assert await gateway.metric(name) == 0
        third = await gateway.shown()
        assert third.serial == second
        for connection in (old, new, third):
            assert await connection.ask(token) == 404
            connection.close()


async def test_keys_are_replaced_and_broken_ones_are_not_taken(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway):
        process = gateway.process
        first = gateway.token()
        gateway.issuer.add("second", "RS256")
        second = gateway.token(kid="second")
        assert [await gateway.publish(one) for one in (first, second)] == [200, 401]
        gateway.give_keys()
        await process.logged("token-keys-loaded", 2)
        assert [await gateway.publish(one) for one in (first, second)] == [200, 200]
        gateway.give_keys(b'{"issuer": ')
        await process.logged("token-keys-refused")
        assert [await gateway.publish(one) for one in (first, second)] == [200, 200]
        gateway.issuer.remove("first")
        gateway.give_keys()
        await process.logged("token-keys-loaded", 3)
        assert [await gateway.publish(one) for one in (first, second)] == [401, 200]


async def test_the_command_publishes_through_the_door(gateway: Gateway, tmp_path: Path) -> None:
    gateway.issue()
    gateway.give_keys()
    file, token = tmp_path / "alerts.ndjson", tmp_path / "token"
    file.write_bytes(LINE + b"\n")
    async with running(gateway):
        command = ("publish", str(file), "--to", gateway.process.intake, "--ca", str(gateway.ca))
        for content, code, says in (
            (gateway.token(), 0, "accepted"),
            (gateway.token(namespace="others"), 1, "may not publish here"),
        ):
            token.write_text(content)
            ended, said = await _run(*command, "--token-file", str(token), "--source", content[-8:])
            gateway.told += said
            assert (ended, says in said) == (code, True)
        ended, said = await _run(*command)
        assert ended == 1
        assert "HTTP 401: there is no token" in said
        ended, said = await _run("publish", str(file), "--to", gateway.process.intake)
        assert ended == 1
        assert "CERTIFICATE_VERIFY_FAILED" in said


async def _run(*command: str) -> tuple[int, str]:
    process = await asyncio.create_subprocess_exec(
        sys.executable,
        *("-m", "pillion_cli.main"),
        *command,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
    )
    said, _ = await process.communicate()
    assert process.returncode is not None
    return process.returncode, said.decode()


async def test_a_token_is_found_nowhere(gateway: Gateway) -> None:
    gateway.issue()
    gateway.give_keys()
    async with running(gateway, "--log-level", "DEBUG"):
        tokens = [
            gateway.token(),
            gateway.token(exp=1),
            gateway.token(namespace="others"),
            gateway.token(header={"kid": "none"}),
            gateway.token(padding="x" * 5000),
            TokenIssuer().token(now=time.time()),
        ]
        for token in tokens:
            await gateway.publish(token)
            await gateway.publish(token, body=b"no line")
            await gateway.publish(token, path="/v1/nothing")
        # Neither where the request cannot even be read.
        planted = await gateway.shown()
        planted.close()
        broken = b"POST / HTTP/1.1\r\nHost: g\r\nAuthorization: Bearer %b\x01\r\n\r\n"
        port = int(gateway.process.intake.rsplit(":", 1)[1])
        reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=gateway.context)
        writer.write(broken % tokens[0].encode())
        assert (await reader.readline()).split()[1] == b"400"
        writer.close()
        await gateway.metric("pillion_build_info")
        gateway.process.process.terminate()
        await gateway.process.ended()
    told = gateway.told + json.dumps(gateway.process.log) + "".join(gateway.process.said)
    assert "deliverer-stopping" in told
    for token in tokens:
        for part in token.split("."):
            # A header is the same in all of them, and says nothing that is secret.
            assert part == token.split(".")[0] or part not in told
