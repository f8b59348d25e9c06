"""Ten thousand destinations of one service: what becomes of them, without any cluster."""

import base64
import random
import uuid
from typing import Any

import pytest

from pillion_cim.schema import load_schema
from pillion_operator.desired.configuration import configuration_secrets
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Namespace, Parsing
from pillion_operator.evaluation.service import evaluate_service
from pillion_operator.store import Store
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.rendered import items, pack, render_items, unpack

COUNT = 10_000
#: What the API server takes for one Secret's data.
MOST_SECRET_BYTES = 1024**2


def listed(kind: str, name: str, spec: Any, *, noise: random.Random) -> Any:
    """A resource as the API server has it; nothing of its name or uid can be compressed away."""
    metadata = {
        "name": name,
        "namespace": "shop",
        "uid": str(uuid.UUID(int=noise.getrandbits(128))),
        "resourceVersion": "1",
        "generation": 1,
        "creationTimestamp": "2026-01-01T00:00:00Z",
    }
    return {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": kind,
        "metadata": metadata,
        "spec": spec,
    }


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_ten_thousand_destinations_are_spread_over_secrets_that_the_api_server_takes() -> None:
    noise, store = random.Random(1), Store()
    service = listed("IndicationService", "default", {}, noise=noise)
    query = {"query": "SELECT * FROM CIM_AlertIndication"}
    store.put(service)
    store.put(listed("IndicationFilter", "alerts", query, noise=noise))
    names = [f"to-{noise.randbytes(12).hex()}" for _ in range(COUNT)]
    for name in names:
        url = f"https://{noise.randbytes(8).hex()}.example.com/{noise.randbytes(16).hex()}"
        to = {"destination": url, "protocol": "CloudEvents"}
        references = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": name}}
        store.put(listed("ListenerDestination", name, to, noise=noise))
        store.put(listed("IndicationSubscription", name, references, noise=noise))
    evaluation = evaluate_service(
        "default",
        namespace=Namespace("shop", store=store, parsing=Parsing()),
        judge=Judge(addresses=AddressPolicy(), schema=load_schema()),
        subscriptions=names,
        ended=(),
    )
    rendered = pack(render_items(list(evaluation.content.values())))
    secrets = configuration_secrets(service, rendered, token="0" * 64)
    assert len(secrets) > 1
    files: dict[str, bytes] = {}
    for secret in secrets:
        data = {name: base64.b64decode(value) for name, value in secret["data"].items()}
        assert sum(map(len, data.values())) < MOST_SECRET_BYTES
        files |= data
    unpacked = unpack(files)
    assert unpacked is not None
    found = [one["metadata"]["name"] for one in items(unpacked.text)]
    assert sorted(found) == sorted([*names, *names, "alerts", "default"])
