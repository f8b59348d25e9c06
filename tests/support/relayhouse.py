"""A sidecar and a gateway as they are run, two processes, and a listener that the test is."""

import asyncio
import json
import signal
import socket
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from pathlib import Path

import trustme
from aiohttp import web

from support.resources import JSON, alert_filter, destination, service, subscription, write
from support.sidecar import Sidecar, sidecar


class Listener:
    """Takes CloudEvents, at a path for each destination, in the way that it is told to."""

    def __init__(self) -> None:
        self.url = ""
        #: IndicationIdentifier by path, in the order of arrival.
        self.arrived: dict[str, list[str]] = {}
        #: The last event at each path.
        self.last: dict[str, JSON] = {}
        #: All events at each path, and the headers of their requests.
        self.events: dict[str, list[JSON]] = {}
        self.headers: dict[str, list[Mapping[str, str]]] = {}
        self.status = 204
        #: Instead, at these paths.
        self.statuses: dict[str, int] = {}
        self._happened = asyncio.Event()
        self._hung: list[asyncio.Event] = []
        self.hangs = False

    async def take(self, request: web.Request) -> web.Response:
        event = json.loads(await request.read())
        if self.hangs:
            released = asyncio.Event()
            self._hung.append(released)
            await released.wait()
        status = self.statuses.get(request.path, self.status)
        if status < 300:
            identifier = event["data"]["properties"]["IndicationIdentifier"]
            self.arrived.setdefault(request.path, []).append(identifier)
            self.last[request.path] = event
            self.events.setdefault(request.path, []).append(event)
            self.headers.setdefault(request.path, []).append(request.headers)
        self._happened.set()
        return web.Response(status=status)

    def let_go(self) -> None:
        """Answer those who hang."""
        for released in self._hung:
            released.set()

    async def until(self, condition: Callable[[], bool]) -> None:
        """Wait until a condition holds; looked at whenever something has come."""
        while not condition():
            self._happened.clear()
            await self._happened.wait()

    def at(self, name: str) -> list[str]:
        return self.arrived.get(f"/{name}", [])


class House:
    """The two deliverers, each to be started, killed and started again."""

    def __init__(self, folder: Path, listener: Listener, stack: AsyncExitStack) -> None:
        self.folder = folder
        self.listener = listener
        self._stack = stack
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self._port = free.getsockname()[1]
        self.sidecar: Sidecar
        self.gateway: Sidecar
        #: Further options, of TLS and tokens.
        self.gateway_options: tuple[str, ...] = ()
        self.sidecar_options: tuple[str, ...] = ()
        self.scheme = "http"

    def configure(
        self,
        *names: str,
        through: str = "Gateway",
        publishers: list[JSON] | None = None,
        direct: tuple[str, ...] = (),
        grave: str | None = None,
        **spec: object,
    ) -> None:
        """Write what both read: a CloudEvents destination for each name, and for those that the
        sidecar delivers to itself whatever the others do. ``grave`` gets the dead letters of all,
        by way of the gateway."""
        chosen: JSON = {"shutdownGracePeriodSeconds": 6, "durability": "Disk"}
        by_gateway = {"gatewayRef": {"name": "shared"}, "handOverTo": {"name": "shared"}}
        shared: JSON = {"deliverer": {"mode": "Gateway"}, "shutdownGracePeriodSeconds": 1}
        if publishers is not None:
            shared["publishers"] = publishers
        documents = [
            service("default", **chosen, **by_gateway),
            service("shared", durability="Disk", **shared),
            alert_filter(),
        ]
        for name in (*names, *direct):
            retry = {"attempts": 10_000, "intervalSeconds": 1}
            given = {"protocol": "CloudEvents", "deliverThrough": through, "retry": retry, **spec}
            if name in direct:
                given["deliverThrough"] = "Deliverer"
            url = f"{self.listener.url}{name}"
            documents.append(destination(name, destination=url, **given))
            documents.append(subscription(f"alerts-to-{name}", name))
        if grave is not None:
            for document in documents[:2]:
                document["spec"]["deadLetterRef"] = {"name": grave}
            url = f"{self.listener.url}{grave}"
            more = {"protocol": "CloudEvents", "deliverThrough": "Gateway"}
            documents.append(destination(grave, destination=url, **more))
        resources = self.folder / "resources"
        resources.mkdir(exist_ok=True)
        write(resources, *documents)

    def secure(self, door: "Door") -> None:
        """Have the gateway serve TLS and ask for tokens, and the sidecar know of both."""
        self.scheme = "https"
        self.gateway_options = (
            *("--intake-tls-certificate", str(door.certificate)),
            *("--intake-tls-key", str(door.key)),
            *("--token-keys", str(door.keys)),
            *("--administration", "127.0.0.1:0"),
        )
        self.sidecar_options = (
            *("--gateway-ca", str(door.ca)),
            *("--gateway-token", str(door.token)),
        )

    async def start_gateway(self) -> None:
        self.gateway = await self._start(
            "shared", "--intake", f"127.0.0.1:{self._port}", *self.gateway_options
        )

    async def start_sidecar(self) -> None:
        url = f"{self.scheme}://127.0.0.1:{self._port}"
        self.sidecar = await self._start("default", "--gateway", url, *self.sidecar_options)

    async def _start(self, name: str, *options: str) -> Sidecar:
        journal = self.folder / f"journal-{name}"
        made = await self._stack.enter_async_context(
            sidecar(
                self.folder / "resources", "--service", name, "--journal", str(journal), *options
            )
        )
        assert made.intake, made.said
        return made

    async def kill(self, which: Sidecar) -> None:
        """Kill a process, and wait until it is gone."""
        which.process.kill()
        await which.ended()

    async def terminate(self, which: Sidecar) -> int:
        """End a process as a pod's end does."""
        which.process.send_signal(signal.SIGTERM)
        return await which.ended()


class Door:
    """The files of a gateway's door, and of a sidecar's way to it."""

    def __init__(self, folder: Path) -> None:
        self.certificate = folder / "tls.crt"
        self.key = folder / "tls.key"
        self.keys = folder / "token-keys.json"
        self.ca = folder / "ca.crt"
        self.token = folder / "token"

    def serve(self, authority: trustme.CA) -> None:
        """Have the gateway serve a certificate of an authority."""
        issued = authority.issue_cert("127.0.0.1")
        issued.private_key_pem.write_to_path(self.key)
        self.certificate.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))

    def trust(self, authority: trustme.CA) -> None:
        """Have the sidecar trust this authority alone."""
        authority.cert_pem.write_to_path(self.ca)
