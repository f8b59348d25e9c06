"""The operator orders adoptions at a real gateway, by what a real API server says of pods (S3.7).

No name of a Service leads anywhere here, so the gateway reaches no store: it waits, and all that
tells of it is seen.
"""

from typing import Any

import pytest

from cluster.convergence import World
from cluster.door import Door, token
from cluster.kubelet import Kubelet
from cluster.operators import Operators
from cluster.scenes import deliverer_pod
from pillion_sidecar.stores.messages import CONTENT_TYPE, ClaimRequest, encode_request
from support.cluster_resources import service

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

HUB = {"name": "hub"}
SERVICE = ("IndicationService", "default")
STORES = {"groups": [{"name": "g", "members": [{"gatewayRef": HUB}]}]}
GAUGE = "pillion_operator_sessions_pending{"
DEAD, LIVING = "a" * 32, "b" * 32


def gateway(**spec: Any) -> dict[str, Any]:
    storage = {"mode": "Gateway", "storage": {"sizeLimit": "1Gi"}}
    return service("hub", deliverer=storage, **spec)


def test_the_session_of_a_pod_that_is_gone_is_ordered_and_what_it_waits_for_is_told(
    world: World, operators: Operators, kubelet: Kubelet
) -> None:
    operator = operators.start("--no-webhook", "--gather-interval", "1")
    world.apply(
        service(stores=STORES, handOverTo=HUB),
        gateway(journalCopies={"maximumBytes": "64Mi"}),
        deliverer_pod(namespace=world.namespace),
    )
    door = Door(world, kubelet.ready("pillion-hub-0"), service="hub")
    world.becomes(*SERVICE, "SessionsPending", "False", "NoneLeft")
    uid = (world.get("Pod", "publisher") or {})["metadata"]["uid"]

    def claim(session: str, pod_uid: str) -> int:
        request = ClaimRequest(number=1, claimant=f"{pod_uid}/default/publisher-0f0f")
        body, bearer = encode_request(request), token(world)
        path = f"/v1/journals/{session}"
        return door.ask(path, bearer=bearer, body=body, content_type=CONTENT_TYPE)[0]

    assert claim(LIVING, uid) == 200
    assert claim(DEAD, "11111111-2222-4333-8444-555555555555") == 200
    world.becomes(*SERVICE, "SessionsPending", "True", "AdoptionWaits")
    conditions = world.status(*SERVICE)["conditions"]
    (message,) = (one["message"] for one in conditions if one["type"] == "SessionsPending")
    assert message.startswith(
        "1 journal(s) of pods that are gone wait for adoption: the gateway hub"
    )
    assert "it waits for stores: hub: " in message
    assert world.status(*SERVICE)["pendingSessions"] == 1
    world.until(lambda: "AdoptionWaits" in world.reasons(), "an Event tells of it")
    samples = {name: value for name, value in operator.metrics().items() if GAUGE in name}
    assert list(samples.values()) == [1.0]

    # The adopter is given the way to stores, and nothing else restarts it.
    (stateful_set,) = world.all("StatefulSet")
    container = stateful_set["spec"]["template"]["spec"]["containers"][0]
    assert "--gateway-token" in container["args"]

    world.patch(*SERVICE, {"spec": {"handOverTo": None}})
    world.becomes(*SERVICE, "SessionsPending", "True", "HandOverMissing")
    world.patch(*SERVICE, {"spec": {"handOverTo": HUB}})
    world.becomes(*SERVICE, "SessionsPending", "True", "AdoptionWaits")
    # Now the other pod is gone, too.
    world.delete("Pod", "publisher")
    # A number is written twice a minute.
    world.until(lambda: world.status(*SERVICE).get("pendingSessions") == 2, "two wait", within=60.0)
