"""A gateway and sidecars in a cluster in memory, and what they know each other by."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from pillion_operator.certificates.authority import Authority, KeyPair, must_be_signed
from pillion_operator.certificates.gateways import hosts
from pillion_operator.certificates.secret_store import decoded
from pillion_operator.names import REVISION_ANNOTATION
from pillion_operator.store import Key
from support.operator_world import NAMESPACE, World

#: Seconds in which the operator does what there is to do.
WHILE = 30.0
GATEWAY, SIDECARS = "shared", "default"
BOTH = (GATEWAY, SIDECARS)
#: The Secrets with the authority and with the gateway's certificate.
KEPT = Key("Secret", "pillion-system", "pillion-gateways")
SERVING = Key("Secret", NAMESPACE, f"pillion-{GATEWAY}-tls")
#: No key at all, in base64.
NONSENSE = "bm9uZQ=="


def populate(world: World) -> None:
    """Make a service of each mode, and a pod of each."""
    world.resource("IndicationService", GATEWAY, {"deliverer": {"mode": "Gateway"}})
    world.resource("IndicationService", SIDECARS, {})
    world.pod("gateway", service=GATEWAY)
    world.pod("application", service=SIDECARS)


@asynccontextmanager
async def settled() -> AsyncIterator[World]:
    """Such a cluster, led by an operator that has done what there was to do."""
    world = World(random.Random(1))
    populate(world)
    async with world.leader():
        await asyncio.sleep(WHILE)
        yield world


def files(world: World, name: str) -> dict[str, bytes]:
    """What a Secret holds."""
    data = world.api.objects[Key("Secret", NAMESPACE, name)]["data"]
    return {key: base64.b64decode(value) for key, value in data.items()}


def serving(world: World) -> KeyPair:
    """The gateway's certificate."""
    found = files(world, f"pillion-{GATEWAY}-tls")
    return KeyPair(certificate=found["tls.crt"], key=found["tls.key"])


def told(world: World, pod: str) -> str:
    """The annotation of a pod, which has its kubelet look."""
    metadata = world.api.objects[Key("Pod", NAMESPACE, pod)]["metadata"]
    return str((metadata.get("annotations") or {}).get(REVISION_ANNOTATION))


def good(world: World, *, now: float) -> bool:
    """Whether the certificate is signed by the authority, for the names of the gateway."""
    body = world.api.objects[Key("IndicationService", NAMESPACE, GATEWAY)]
    return not must_be_signed(serving(world), kept_ca(world), hosts=hosts(body), now=now)


def kept_ca(world: World) -> KeyPair:
    """The CA that signs."""
    authority = Authority.from_data(decoded(world.api.objects[KEPT]))
    assert authority is not None
    return authority.ca


def trusted(world: World) -> bytes:
    """What both sidecars and gateways have, which is the same."""
    (bundle,) = {files(world, f"pillion-{name}-0")["gateway-ca.crt"] for name in BOTH}
    return bundle


def pems(bundle: bytes) -> list[bytes]:
    """The certificates of a bundle."""
    return bundle.split(b"-----BEGIN CERTIFICATE-----\n")


def written(world: World) -> list[Any]:
    """What was written of the gateway's Secret."""
    return [body for verb, key, body in world.api.writes if key == SERVING and verb == "apply"]
