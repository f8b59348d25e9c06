"""Whatever the API server stores is judged: hundreds of specs, drawn from the schema."""

from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from cluster.convergence import Object, World
from cluster.operators import Operators
from pillion_sidecar.config.schema import KINDS
from pillion_testbed.rest import Refused
from support.cluster_resources import destination, filter_, service, subscription
from support.resource_values import nearly

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

URL = "https://listener.example.com/events"
#: Specs of each kind; some four in ten are stored.
DRAWN = 120
GOOD: dict[str, list[dict[str, Any]]] = {
    "IndicationService": [
        {},
        {"deliverer": {"mode": "Gateway", "replicas": 2, "template": {}}},
        {"gatewayRef": {"name": "default"}, "callbacks": ["http://host/"]},
    ],
    "ListenerDestination": [
        {"destination": URL, "protocol": "CloudEvents"},
        {
            "destination": URL,
            "protocol": "CIM-XML",
            "retry": {"attempts": 1},
            "tls": {"caSecretRef": {"name": "ca"}},
            "credentials": {"bearer": {"secretRef": {"name": "token"}}},
        },
    ],
    "IndicationFilter": [
        {"query": "SELECT * FROM CIM_AlertIndication"},
        {"query": "SELECT * FROM ACME_Alert", "queryLanguage": "WQL", "sourceNamespaces": ["a"]},
    ],
    "IndicationSubscription": [
        {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "operations"}},
        {
            "filterRef": {"name": "nope"},
            "destinationRef": {"name": "operations"},
            "serviceRef": {"name": "default"},
            "repeatNotificationPolicy": "Suppress",
            "repeatNotificationIntervalSeconds": 60,
            "repeatNotificationCount": 1,
        },
    ],
    "IndicationReplay": [
        {"destinationRef": {"name": "operations"}, "from": "2026-01-31T12:00:00Z"},
        {
            "destinationRef": {"name": "operations"},
            "from": "2026-01-31T12:00:00Z",
            "until": "2026-01-31T18:00:00Z",
            "results": ["Discarded"],
            "destinations": ["operations"],
            "rateLimit": {"perSecond": 50},
            "ttlSecondsAfterFinished": 60,
        },
    ],
}


def drawn(kind: Any) -> list[dict[str, Any]]:
    """Specs of a kind, the same at each run."""
    found: list[dict[str, Any]] = []

    @settings(
        max_examples=DRAWN,
        derandomize=True,
        database=None,
        phases=[Phase.generate],
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(nearly(kind.spec, GOOD[kind.name]), st.just(kind))
    def draw(spec: dict[str, Any], _: Any) -> None:
        found.append(spec)

    draw()
    return found


def test_whatever_is_stored_gets_a_status_and_delays_nobody(
    world: World, operators: Operators
) -> None:
    operator = operators.start("--no-webhook")
    world.apply(service(), filter_(), destination(URL), subscription())
    world.converges()
    stored: list[str] = []
    for kind in KINDS:
        for number, spec in enumerate(drawn(kind)):
            resource = {
                "apiVersion": "pillion.dev/v1alpha1",
                "kind": kind.name,
                "metadata": {"name": f"drawn-{number}"},
                "spec": spec,
            }
            try:
                world.request("POST", world.path(kind.name), resource)
            except Refused as refusal:
                if refusal.status not in (400, 422):
                    raise
            else:
                stored.append(f"{kind.name} drawn-{number}")
    world.until(lambda: all(map(is_judged, world.ours())), "everything has a status")
    internal = [
        f"{body['kind']} {body['metadata']['name']}: {body['spec']}"
        for body in world.ours()
        if any(one["reason"] == "InternalError" for one in body["status"]["conditions"])
    ]
    assert internal == []
    assert "reconcile-failed" not in operator.running.log.read_text()
    # Each kind has some of both.
    assert all(sum(one.startswith(kind.name) for one in stored) > DRAWN / 10 for kind in KINDS)
    assert len(stored) < DRAWN * len(KINDS)
    world.patch("ListenerDestination", "operations", {"spec": {"timeoutSeconds": 17}})
    world.until(
        lambda: (
            ((world.content() or {}).get(("ListenerDestination", "operations")) or {}).get(
                "timeoutSeconds"
            )
            == 17
        ),
        "a change of the good one is in its configuration",
    )
    assert operator.running.exit_code() is None


def is_judged(body: Object) -> bool:
    status = body.get("status") or {}
    return status.get("observedGeneration") == body["metadata"]["generation"] and bool(
        status.get("conditions")
    )
