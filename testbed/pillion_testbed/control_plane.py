"""A Kubernetes control plane of one's own, in a folder: etcd, API server, controller manager."""

import datetime
import json
import os
import secrets
import socket
import urllib.request
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from pillion_testbed.audit import POLICY
from pillion_testbed.binaries import Binaries
from pillion_testbed.certificates import write_certificates
from pillion_testbed.processes import ProcessFailed, Running, Spawner
from pillion_testbed.rest import Rest, wait_until
from pillion_testbed.tiers import API_SERVER, CONTROL_PLANE, LOOPBACK, Component, Place
from pillion_testbed.users import ADMIN, USERS, kubeconfig, token_file, write_kubeconfig

#: Seconds until the API server is ready, on a machine that is busy with other tests; less than a
#: test's time-out, so that the log is shown.
START_TIMEOUT = 45.0
#: Below the range from which systems take ports for outgoing connections, so that a server that is
#: started anew finds its port free.
PORTS = range(20_000, 32_000)


class ControlPlane:
    """Starts with ``start()``; no root, only loopback, unless its ``place`` is another.

    Its methods block: see ``to_thread``.
    """

    def __init__(
        self,
        folder: Path,
        binaries: Binaries,
        *,
        audit: bool = False,
        outlives: bool = False,
        components: tuple[Component, ...] = CONTROL_PLANE,
        place: Place = LOOPBACK,
        ports: tuple[int, int, int] | None = None,
    ) -> None:
        """``folder`` keeps keys, data and logs. ``outlives``: it runs on when this process ends.

        ``ports``: of the API server, and of etcd for clients and for peers; by default free ones.
        """
        self.folder = folder
        self.audit = audit
        self.place = place
        self.api_port, self.etcd_port, self.etcd_peer_port = ports or free_ports(3)
        self._binaries = binaries
        self._outlives = outlives
        self._components = components
        self._spawner = Spawner()
        self._running: dict[str, Running] = {}
        self._tokens = {user.name: secrets.token_hex(16) for user in USERS}

    @property
    def url(self) -> str:
        return f"https://{self.place.address}:{self.api_port}"

    @property
    def ca(self) -> Path:
        """The certificate of the authority that signed the API server's."""
        return self.folder / "ca.crt"

    @property
    def audit_log(self) -> Path:
        """One JSON line for each request; written only with ``audit``."""
        return self.folder / "audit.log"

    @property
    def rest(self) -> Rest:
        """The API server, as admin."""
        token = self._tokens[ADMIN.name]
        return Rest(self.api_port, ca=self.ca, token=token, host=self.place.address)

    def pids(self) -> dict[str, int]:
        """Return the process of each component that runs."""
        return {name: running.pid for name, running in self._running.items()}

    def start(self) -> None:
        """Start everything; returns when the API server serves. ProcessFailed shows the log."""
        self._write_files()
        try:
            for component in self._components:
                self._start(component)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything, last started first."""
        for name in reversed(list(self._running)):
            self._running.pop(name).stop()
        self._spawner.close()

    def check(self) -> None:
        """Raise ProcessFailed, with the end of its log, where a component has ended."""
        for one in self._running.values():
            if one.exit_code() is not None:
                raise one.failed(f"ended with {one.exit_code()}")

    def detach(self) -> None:
        """Leave what ``outlives`` to itself."""
        self._running.clear()
        self._spawner.close()

    def kubeconfig(self, user: str = ADMIN.name) -> Path:
        """Return the kubeconfig file of a user of ``pillion_testbed.users``."""
        return self._kubeconfig(user, self._tokens[user])

    def token(self, user: str) -> str:
        """Return the bearer token of a user of ``pillion_testbed.users``."""
        return self._tokens[user]

    def service_account_kubeconfig(self, namespace: str, name: str) -> Path:
        """Return the kubeconfig of a service account, which must be there."""
        path = f"/api/v1/namespaces/{namespace}/serviceaccounts/{name}/token"
        request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest"}
        answer = self.rest.request("POST", path, {**request, "spec": {"expirationSeconds": 7200}})
        return self._kubeconfig(f"{namespace}.{name}", answer["status"]["token"])

    def stop_api_server(self) -> None:
        """End the API server alone, as a crash does; the data stays in etcd."""
        # At a SIGTERM it would wait some 10 s for its watches.
        self._running.pop(API_SERVER).stop()

    def start_api_server(self) -> None:
        """Start the API server again, at the same address."""
        self._start(next(one for one in self._components if one.name == API_SERVER))

    def restart_api_server(self) -> None:
        """End the API server and start it again; returns when it serves."""
        self.stop_api_server()
        self.start_api_server()

    def compact(self) -> None:
        """Make etcd forget all history. Watches that begin before now, after a restart, get 410."""
        revision = self._etcd("range", {"key": "AA=="})["header"]["revision"]
        self._etcd("compaction", {"revision": revision, "physical": True})

    def _etcd(self, method: str, body: dict[str, Any]) -> Any:
        url = f"http://127.0.0.1:{self.etcd_port}/v3/kv/{method}"
        with urllib.request.urlopen(url, json.dumps(body).encode(), timeout=30) as answer:
            return json.load(answer)

    def _kubeconfig(self, user: str, token: str) -> Path:
        content = kubeconfig(server=self.url, ca=self.ca, user=user, token=token)
        return write_kubeconfig(self.folder / f"{user}.kubeconfig", content)

    def _write_files(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        now = datetime.datetime.now(datetime.UTC)
        addresses = (self.place.advertised, self.place.address, self.place.service_address)
        write_certificates(self.folder, now=now, addresses=addresses)
        tokens = self.folder / "tokens.csv"
        tokens.touch(mode=0o600)
        tokens.write_text(token_file(self._tokens))
        (self.folder / "audit-policy.json").write_text(json.dumps(POLICY))
        for user in USERS:
            self.kubeconfig(user.name)

    def _start(self, component: Component) -> None:
        running = self._spawner.start(
            component.name,
            (
                *self.place.enter,
                *self._binaries.command(component.name),
                *component.flags(self),
            ),
            log=self.folder / f"{component.name}.log",
            outlives=self._outlives,
        )
        self._running[component.name] = running
        self._spawned()
        if component.gates:
            self._wait(running)

    def _spawned(self) -> None:
        """A process has started; for a cluster that keeps a record of its processes."""

    def _wait(self, running: Running) -> None:
        rest = self.rest

        def served() -> bool:
            self.check()
            return rest.ready()

        try:
            wait_until(served, within=START_TIMEOUT, what=f"{running.name} at {self.url}")
        except TimeoutError as error:
            raise running.failed(f"was not ready within {START_TIMEOUT:g} s") from error


def free_ports(count: int, *, among: Iterable[int] | None = None) -> list[int]:
    """Return free TCP ports of 127.0.0.1. Each process begins to look at another place."""
    ports = among if among is not None else _from(os.getpid())
    found: list[int] = []
    for port in ports:
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                continue
        found.append(port)
        if len(found) == count:
            return found
    raise ProcessFailed(f"no {count} free ports on 127.0.0.1")


def _from(seed: int) -> list[int]:
    start = seed * 16 % len(PORTS)
    return [*PORTS[start:], *PORTS[:start]]
