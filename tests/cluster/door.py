"""A gateway's door, as a publisher without a sidecar comes to it: TLS, and a token."""

import http.client
import json
import socket
import ssl
from collections.abc import Mapping

from cluster.convergence import World
from cluster.deliverer_pod import DelivererPod
from pillion_operator.cluster.types import CONFIG_MAP, SERVICE_ACCOUNT

PORT = 8288
ALERT = {"AlertType": 5, "PerceivedSeverity": 5, "ProbableCause": 1, "OwningEntity": "test"}


def token(
    world: World, *, namespace: str | None = None, account: str = "default", audience: str = ""
) -> str:
    """A token of a service account, of the world's namespace unless stated, as the API server
    issues it; for gateways unless stated."""
    spec = {"audiences": [audience or "pillion"], "expirationSeconds": 600}
    answer = world.request(
        "POST",
        f"{SERVICE_ACCOUNT.path(namespace or world.namespace, account)}/token",
        {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec},
    )
    return str(answer["status"]["token"])


class Door:
    """The door of one pod of the gateway ``service``."""

    def __init__(self, world: World, pod: DelivererPod, *, service: str = "default") -> None:
        self._pod = pod
        self._world = world
        name = f"pillion-{service}"
        #: The pod's name behind the headless Service.
        self.host = f"{pod.name}.{name}-headless.{world.namespace}.svc"
        self._trusted = CONFIG_MAP.path(world.namespace, name)

    def ask(
        self,
        path: str,
        *,
        bearer: str | None = None,
        body: bytes | None = None,
        content_type: str = "application/x-ndjson",
    ) -> tuple[int, Mapping[str, str]]:
        """The status and headers that a request gets, with ``body`` a POST."""
        trusted = self._world.request("GET", self._trusted)["data"]["ca.crt"]
        context = ssl.create_default_context(cadata=trusted)
        connection = http.client.HTTPSConnection(self.host, PORT, timeout=30, context=context)
        with socket.create_connection((self._pod.address, PORT), timeout=30) as raw:
            # The name of the certificate is checked; only where it leads is not looked up.
            connection.sock = context.wrap_socket(raw, server_hostname=self.host)
            headers = {"Content-Type": content_type}
            if bearer is not None:
                headers["Authorization"] = f"Bearer {bearer}"
            connection.request("GET" if body is None else "POST", path, body, headers)
            answer = connection.getresponse()
            answer.read()
            connection.close()
        return answer.status, dict(answer.headers)

    def publish(self, *, bearer: str | None = None) -> int:
        """Publish an alert, as the namespace's default account unless stated; the status."""
        line = json.dumps({"class": "CIM_AlertIndication", "properties": ALERT}).encode()
        given = token(self._world) if bearer is None else bearer
        path = "/v1/indications?ack=delivered&timeout=20"
        return self.ask(path, bearer=given, body=line + b"\n")[0]
