"""Mutating webhooks in the test's own process, registered with the real API server."""

import asyncio
import base64
import json
import ssl
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from aiohttp import web

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import OURS, POD, Object

#: Seconds that a test waits for the API server to take notice.
WITHIN = 30.0
LOOK_INTERVAL = 0.05

SERVICES = OURS[0]


@asynccontextmanager
async def serving(
    app: web.Application, context: ssl.SSLContext, *, port: int = 0
) -> AsyncIterator[str]:
    """Serve an application over TLS on loopback; yields its address."""
    runner = web.AppRunner(app)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", port, ssl_context=context).start()
        yield f"https://127.0.0.1:{runner.addresses[0][1]}/mutate"
    finally:
        await runner.cleanup()


def configuration(
    name: str,
    *,
    namespace: str,
    url: str,
    bundle: bytes = b"",
    failure: str = "Fail",
) -> dict[str, Any]:
    """A MutatingWebhookConfiguration for the pods of one namespace. They are called in the order of
    their names."""
    client: dict[str, Any] = {"url": url}
    if bundle:
        client["caBundle"] = base64.b64encode(bundle).decode()
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": name},
        "webhooks": [
            {
                "name": f"{name}.pillion.test",
                "admissionReviewVersions": ["v1"],
                "clientConfig": client,
                "failurePolicy": failure,
                "reinvocationPolicy": "IfNeeded",
                "sideEffects": "None",
                "timeoutSeconds": 5,
                "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
                "rules": [
                    {
                        "apiGroups": [""],
                        "apiVersions": ["v1"],
                        "operations": ["CREATE"],
                        "resources": ["pods"],
                    }
                ],
            }
        ],
    }


def mesh_injector(name: str) -> web.Application:
    """Another injector, as a mesh's: its native sidecar goes first, and a container goes last."""

    async def mutate(request: web.Request) -> web.Response:
        review = json.loads(await request.read())
        spec = review["request"]["object"]["spec"]
        response = {"uid": review["request"]["uid"], "allowed": True}
        proxy = {"name": name, "image": "mesh:1", "restartPolicy": "Always"}
        there = spec.get("initContainers") or []
        if name not in [one["name"] for one in there]:
            patch = [
                {"op": "add", "path": "/spec/initContainers", "value": [proxy, *there]},
                {
                    "op": "add",
                    "path": "/spec/containers/-",
                    "value": {"name": f"{name}-agent", "image": "mesh:1"},
                },
            ]
            response["patch"] = base64.b64encode(json.dumps(patch).encode()).decode()
            response["patchType"] = "JSONPatch"
        return web.json_response(
            {"apiVersion": review["apiVersion"], "kind": review["kind"], "response": response}
        )

    app = web.Application()
    app.router.add_post("/mutate", mutate)
    return app


async def created_until(
    api: Api,
    make: Callable[[int], Object],
    *,
    shows: Callable[[Object], bool],
    forgives: str | None = None,
) -> Object:
    """Make pods until one shows that the API server has noticed; return that one.

    What it knows of webhooks and namespaces is a moment old. Refusals with ``forgives`` in their
    message are tried again.
    """
    end = time.monotonic() + WITHIN
    number = 0
    while time.monotonic() < end:
        try:
            made = await api.create(make(number))
            if shows(made):
                return made
        except ApiError as error:
            if forgives is None or forgives not in error.message:
                raise
        number += 1
        await asyncio.sleep(LOOK_INTERVAL)
    raise TimeoutError(f"none of {number} pods was what was waited for")


async def pods_until(
    api: Api, namespace: str, condition: Callable[[list[Object]], bool]
) -> list[Object]:
    """Look at the pods of a namespace until they fulfil a condition."""
    end = time.monotonic() + WITHIN
    while not condition(pods := await api.list(POD, namespace)):
        if time.monotonic() > end:
            raise TimeoutError(f"the pods never came to be so; the last look showed {pods}")
        await asyncio.sleep(LOOK_INTERVAL)
    return pods


class ListedServices:
    """The IndicationServices of one namespace, as last listed."""

    def __init__(self, api: Api, namespace: str) -> None:
        self._api = api
        self._namespace = namespace
        self._listed: list[Object] = []

    def namespaces(self, kind: str) -> list[str]:
        return [self._namespace] if kind == SERVICES.kind else []

    def all(self, kind: str, namespace: str) -> dict[str, Object]:
        found = self._listed if (kind, namespace) == (SERVICES.kind, self._namespace) else []
        return {one["metadata"]["name"]: one for one in found}

    async def make(self, name: str, **deliverer: Any) -> None:
        """Make a service with these fields of ``deliverer``."""
        await self._api.create(
            {
                "apiVersion": SERVICES.api_version,
                "kind": SERVICES.kind,
                "metadata": {"name": name, "namespace": self._namespace},
                "spec": {"deliverer": deliverer},
            }
        )
        self._listed = await self._api.list(SERVICES, self._namespace)
