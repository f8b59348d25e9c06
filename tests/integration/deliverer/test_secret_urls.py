"""A URL from a Secret: whatever goes wrong, nobody is shown where the listener is."""

import asyncio
import json
import logging
import re
import socket
import ssl
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.handlers.transport.sender import Channel
from pillion_sidecar.handlers.transport.wire import RequestWire
from support.http_listener import Peer
from support.http_listener import listening as scripted
from support.listening import listening
from support.name_server import name_server
from support.resources import JSON, secret
from support.running import Running, alerts, listener, resources, running

PATH = "/services/planted/q9?sig=planted%2Dsecret"
#: However a host, an address or a part of ``PATH`` may be written.
FORBIDDEN = re.compile(
    r"127\.|2130706433|7f000001|::|hooks|example|localhost|\.invalid|10\.1\.2\.3|169\.254|fe80:"
    r"|services|planted|q9|sig=|cGxhbnRlZA",
    re.IGNORECASE,
)


def documents(url: str, *others: JSON, **spec: Any) -> tuple[JSON, ...]:
    """A destination whose URL is in a Secret."""
    made = listener("ops", url, destinationFrom={"secretKeyRef": {"name": "hook"}}, **spec)
    del made["spec"]["destination"]
    return (*resources(made), secret("hook", {"url": url}), *others)


def texts(value: object) -> Iterator[str]:
    """All texts of a document, the names of its fields left out."""
    if isinstance(value, dict):
        for inner in value.values():
            yield from texts(inner)
    elif isinstance(value, list):
        for inner in value:
            yield from texts(inner)
    elif isinstance(value, str):
        yield value


async def shown(run: Running, log: pytest.LogCaptureFixture) -> list[str]:
    """All texts that somebody may read who may not read Secrets."""
    queues = [(await run.get(path)).document for path in ("/v1/queues", "/v1/queues/ops")]
    metrics = (await run.ask(f"{run.deliverer.telemetry_url}/metrics")).document
    samples = [line for line in metrics.splitlines() if 'destination="ops"' in line]
    records = [
        text
        for record in log.records
        if record.name.startswith(("pillion.delivery", "pillion.config", "asyncio"))
        for text in (record.getMessage(), json.dumps(record.__dict__.get("detail")))
    ]
    return [*texts(queues), *samples, *records]


async def detail_of_failure(
    folder: Path, log: pytest.LogCaptureFixture, url: str, *others: JSON, **given: Any
) -> str:
    """Fail once, and return what is told of it, which shows nothing of the URL."""
    spec, wait = given.pop("spec", {}), given.pop("wait", None)
    async with running(folder, *documents(url, *others, **spec), **given) as run:
        await run.publish(*alerts(0, 1))
        if wait is not None:
            await wait(run)
        queue = run.queue("ops")
        await run.until(lambda: bool(queue.health.failures) or queue.health.hold is not None)
        told = (await run.get("/v1/queues/ops")).document["attempts"][0]["detail"]
        port = urlsplit(url).port
        for text in await shown(run, log):
            assert FORBIDDEN.search(text) is None, text
            assert port is None or re.search(rf"\b{port}\b", text) is None, text
    assert isinstance(told, str)
    return told


@pytest.fixture
def log(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.DEBUG)
    return caplog


@contextmanager
def refusing(address: str) -> Iterator[int]:
    """A port where nobody listens, kept from others."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    with socket.socket(family) as taken:
        taken.bind((address, 0))
        yield taken.getsockname()[1]


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "127.0.0.1"),
        ("127.0.0.7", "127.0.0.7"),
        ("localhost", "127.0.0.1"),
        ("LOCALHOST.", "127.0.0.1"),
        ("[::1]", "::1"),
        ("[0:0:0:0:0:0:0:1]", "::1"),
        ("[0000:0000::0001]", "::1"),
        ("[::ffff:127.0.0.1]", "127.0.0.1"),
        ("[::FFFF:7f00:1]", "127.0.0.1"),
    ],
)
@pytest.mark.parametrize("scheme", ["http", "https"])
async def test_a_refused_connection(
    tmp_path: Path, log: pytest.LogCaptureFixture, scheme: str, host: str, address: str
) -> None:
    with refusing(address) as port:
        url = f"{scheme}://{host}:{port}{PATH}"
        detail = await detail_of_failure(tmp_path, log, url)
    assert detail == "connection refused by its host"


async def test_a_name_with_several_addresses(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    addresses = ("127.0.0.2", "127.0.0.3", "::1")
    with refusing("127.0.0.2") as port:
        async with name_server(*addresses) as (_, servers):
            url = f"http://hooks.example:{port}{PATH}"
            detail = await detail_of_failure(tmp_path, log, url, nameservers=servers)
    assert detail == "connection refused by its host"


async def test_a_name_that_does_not_exist(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async with name_server("127.0.0.2") as (server, servers):
        server.exists = False
        url = f"https://hooks.example:8443{PATH}"
        detail = await detail_of_failure(tmp_path, log, url, nameservers=servers)
    assert detail == "its host cannot be resolved: Domain name not found"


async def test_a_name_that_no_resolver_takes(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    url = f"http://{'hooks' * 20}.example{PATH}"
    detail = await detail_of_failure(tmp_path, log, url, nameservers=("127.0.0.1:9",))
    assert detail.startswith(("its host cannot be resolved", "could not connect: "))


async def test_a_name_that_leads_where_nothing_may_go(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    async with name_server("127.0.0.2", "::1") as (_, servers):
        detail = await detail_of_failure(
            tmp_path,
            log,
            f"http://hooks.example:8443{PATH}",
            nameservers=servers,
            addresses=AddressPolicy(allow_loopback=False),
        )
    assert detail == "its host has an address that is not allowed here"


@pytest.mark.parametrize("host", ["127.0.0.1", "[::1]", "2130706433", "169.254.169.254"])
async def test_an_address_where_nothing_may_go(
    tmp_path: Path, log: pytest.LogCaptureFixture, host: str
) -> None:
    detail = await detail_of_failure(
        tmp_path,
        log,
        f"http://{host}:8443{PATH}",
        addresses=AddressPolicy(allow_loopback=False),
    )
    assert "names a host that is not allowed here" in detail


async def test_a_host_that_cannot_be_reached(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    # Link-local without a zone: the system refuses to connect, as it does without a route.
    detail = await detail_of_failure(
        tmp_path,
        log,
        f"http://[fe80::1]:8443{PATH}",
        addresses=AddressPolicy(allow_link_local=True),
    )
    assert detail.startswith("no connection to its host: ")


# ---------------------------------------------------------------------- TLS


@pytest.mark.parametrize("named", ["other.invalid", "10.1.2.3"])
@pytest.mark.parametrize(
    ("host", "spec", "says"),
    [
        ("localhost", {}, "Hostname mismatch"),
        ("127.0.0.1", {}, "IP address mismatch"),
        ("localhost", {"serverName": "hooks.example"}, "Hostname mismatch"),
    ],
)
async def test_a_certificate_for_another_name(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    named: str,
    host: str,
    spec: dict[str, str],
    says: str,
) -> None:
    authority = trustme.CA()
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert(named).configure_cert(context)
    known = secret("authority", {"ca.crt": authority.cert_pem.bytes().decode()})
    tls = {"caSecretRef": {"name": "authority"}, **spec}
    async with scripted(Peer.closed, context) as server:
        url = f"https://{host}:{server.port}{PATH}"
        detail = await detail_of_failure(tmp_path, log, url, known, spec={"tls": tls})
    assert detail.startswith(f"the certificate of its host is not accepted: {says}")


async def test_a_certificate_of_nobody_known(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trustme.CA().issue_cert("localhost").configure_cert(context)
    async with scripted(Peer.closed, context) as server:
        detail = await detail_of_failure(tmp_path, log, f"https://localhost:{server.port}{PATH}")
    assert detail.startswith("the certificate of its host is not accepted: ")


async def test_a_listener_that_speaks_no_tls(tmp_path: Path, log: pytest.LogCaptureFixture) -> None:
    async with listening() as plain:
        url = plain.url.replace("http:", "https:").rstrip("/") + PATH
        detail = await detail_of_failure(tmp_path, log, url)
    assert detail.startswith("TLS handshake with its host failed: ")


# ---------------------------------------------------------------------- time-outs


@pytest.fixture
def stages(monkeypatch: pytest.MonkeyPatch) -> dict[str, asyncio.Event]:
    """Set once an attempt has come to a stage, by the first word of its name."""
    found: dict[str, asyncio.Event] = defaultdict(asyncio.Event)
    enter, opened = Channel._enter, Channel.wire_opened

    def entered(channel: Channel, stage: str) -> None:
        enter(channel, stage)
        found[stage.partition(" ")[0]].set()

    def wire_opened(channel: Channel, wire: RequestWire) -> None:
        opened(channel, wire)
        found["open"].set()

    monkeypatch.setattr(Channel, "_enter", entered)
    monkeypatch.setattr(Channel, "wire_opened", wire_opened)
    return found


@asynccontextmanager
async def _no_name() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async with name_server() as (_, servers):
        yield f"http://hooks.example:8443{PATH}", {"nameservers": servers}


@asynccontextmanager
async def _full() -> AsyncIterator[tuple[str, dict[str, Any]]]:
    """Connections are neither taken nor refused."""
    with socket.create_server(("127.0.0.1", 0), backlog=0) as server:
        port = server.getsockname()[1]
        waiting = [socket.socket() for _ in range(4)]
        for one in waiting:
            one.setblocking(False)
            one.connect_ex(("127.0.0.1", port))
        yield f"http://127.0.0.1:{port}{PATH}", {}
        for one in waiting:
            one.close()


@asynccontextmanager
async def _silent(scheme: str) -> AsyncIterator[tuple[str, dict[str, Any]]]:
    async with scripted(Peer.closed) as server:
        yield f"{scheme}://127.0.0.1:{server.port}{PATH}", {}


@pytest.mark.parametrize(
    ("place", "stage", "says"),
    [
        (_no_name, "resolving", "while resolving its host"),
        (_full, "connecting", "while connecting to its host"),
        (lambda: _silent("https"), "shaking", "while shaking hands (TLS) with its host"),
        (lambda: _silent("http"), "open", "without an answer"),
    ],
    ids=["name", "connection", "TLS", "answer"],
)
async def test_a_time_out(
    tmp_path: Path,
    log: pytest.LogCaptureFixture,
    stages: dict[str, asyncio.Event],
    place: Callable[[], Any],
    stage: str,
    says: str,
) -> None:
    async def wait(run: Running) -> None:
        await stages[stage].wait()
        run.time.advance(30.0)

    async with place() as (url, given):
        spec = {"timeoutSeconds": 30}
        detail = await detail_of_failure(tmp_path, log, url, spec=spec, wait=wait, **given)
    assert detail == f"timed out after 30 s {says}"


# ---------------------------------------------------------------------- answers


def _answer(head: bytes, body: bytes = b"") -> bytes:
    return b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (head, len(body), body)


ECHOES = [
    b"cimerror: /services/planted/q9",
    b"CIMError: %2Fservices%2Fplanted",
    b"PGErrorDetail: \\/services\\/q9",
    b"CIMErrorDetails: port PORT",
    b"CIMError: cGxhbnRlZA==",
    b"CIMError: q9",
    b"CIMError: 7f000001",
    b"CIMError: http://127.0.0.1/",
    b"CIMError: [::ffff:7f00:1]",
    b"Location: http://hooks.example/services",
    b"Location: //10.1.2.3",
]
_XML = (
    '<CIM CIMVERSION="2.0" DTDVERSION="2.0"><MESSAGE ID="1" PROTOCOLVERSION="1.0"><SIMPLEEXPRSP>'
    '<EXPMETHODRESPONSE NAME="{name}">{inner}</EXPMETHODRESPONSE></SIMPLEEXPRSP></MESSAGE></CIM>'
)
_EXPORT = b"200 OK\r\nCIMExport: MethodResponse\r\nContent-Type: application/xml"
ANSWERS = [
    *(_answer(b"%d X\r\n%b" % (status, echo)) for echo in ECHOES for status in (302, 404)),
    _answer(b"404 Not Found", PATH.encode()),
    _answer(b"200 OK", PATH.encode()),
    _answer(b"200 OK\r\nCIMExport: planted"),
    _answer(_EXPORT, b"<planted/>"),
    _answer(_EXPORT, _XML.format(name="planted", inner="").encode()),
    _answer(
        _EXPORT,
        _XML.format(name="ExportIndication", inner='<ERROR CODE="5" DESCRIPTION="q9"/>').encode(),
    ),
    b"HTTP/1.1 planted\r\n\r\n",
    b"planted /services/planted\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: planted\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nContent-Length: 100\r\n\r\nplanted",
]


@pytest.mark.parametrize("answer", ANSWERS)
async def test_an_answer_that_quotes_it(
    tmp_path: Path, log: pytest.LogCaptureFixture, answer: bytes
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(answer.replace(b"PORT", str(server.port).encode()))
        peer.close()

    async with scripted(script) as server:
        url = f"http://localhost:{server.port}{PATH}"
        detail = await detail_of_failure(tmp_path, log, url)
    assert detail


async def test_an_answer_that_quotes_nothing_is_told_by_its_status(
    tmp_path: Path, log: pytest.LogCaptureFixture
) -> None:
    async def script(peer: Peer) -> None:
        await peer.request()
        await peer.send(_answer(b"503 Unavailable"))
        await peer.closed()

    async with scripted(script) as server:
        url = f"http://localhost:{server.port}{PATH}"
        assert await detail_of_failure(tmp_path, log, url) == "HTTP 503"
