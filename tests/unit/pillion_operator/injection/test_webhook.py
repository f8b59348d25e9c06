"""The webhook over HTTP."""

import io
from collections.abc import AsyncIterator
from typing import Any

import pytest
import pytest_asyncio
from aiohttp.test_utils import TestClient, TestServer

from pillion_cim.schema import load_schema
from pillion_operator.controllers.admission import Admission
from pillion_operator.evaluation.judging import Judge
from pillion_operator.evaluation.namespace import Parsing
from pillion_operator.injection.webhook import MOST_BYTES, InjectingWebhook
from pillion_operator.settings import DelivererDefaults
from pillion_operator.store import Store
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.config.addresses import AddressPolicy
from support.injection import OPERATOR_NAMESPACE, Known, patch_of, patched, pod, review, service
from support.operator_time import FakeClock


class Door:
    """A webhook that is being asked."""

    def __init__(self, client: Any, metrics: Metrics) -> None:
        self.client = client
        self._metrics = metrics

    async def ask(self, body: Any) -> dict[str, Any]:
        async with self.client.post("/mutate", json=body) as response:
            assert response.status == 200
            answered: dict[str, Any] = await response.json()
            return answered

    def outcomes(self) -> dict[str, float]:
        value = self._metrics.registry.get_sample_value
        return {
            outcome: number
            for outcome in ("injected", "left", "failed")
            if (number := value("pillion_operator_webhook_answers_total", {"outcome": outcome}))
        }

    def measured(self) -> float | None:
        return self._metrics.registry.get_sample_value("pillion_operator_webhook_seconds_count")


@pytest.fixture(scope="module")
def judge() -> Judge:
    return Judge(addresses=AddressPolicy(), schema=load_schema())


@pytest_asyncio.fixture
async def door(judge: Judge) -> AsyncIterator[Door]:
    metrics = Metrics(version="1")
    webhook = InjectingWebhook(
        services=Known(service("default")),
        defaults=DelivererDefaults(image="registry.test/pillion:1"),
        operator_namespace=OPERATOR_NAMESPACE,
        clock=FakeClock(),
        seconds=metrics.webhook_seconds,
        answers=metrics.webhook_answers,
        admission=Admission(
            store=Store(),
            parsing=Parsing(),
            judge=judge,
        ).of,
    )
    async with TestClient(TestServer(webhook.application())) as client:
        yield Door(client, metrics)


ASKING = pod(labels={"pillion.dev/inject": "true"})


async def test_a_pod_that_asks_is_injected_and_counted(door: Door) -> None:
    answered = await door.ask(review(ASKING))
    made = patched(ASKING, patch_of(answered))
    assert made["metadata"]["labels"]["pillion.dev/deliverer"] == "default"
    assert answered["response"]["uid"] == "review-1"
    assert door.outcomes() == {"injected": 1}
    assert door.measured() == 1


async def test_a_dry_run_is_like_any_other(door: Door) -> None:
    dry = await door.ask(review(ASKING, dryRun=True))
    assert dry == await door.ask(review(ASKING))


async def test_a_pod_that_does_not_is_allowed_and_counted(door: Door) -> None:
    answered = await door.ask(review(pod()))
    assert answered["response"] == {"uid": "review-1", "allowed": True}
    assert door.outcomes() == {"left": 1}


async def test_what_is_no_creation_is_allowed(door: Door) -> None:
    answered = await door.ask(review(ASKING, operation="UPDATE"))
    assert patch_of(answered) == []
    assert door.outcomes() == {"left": 1}


async def test_warnings_of_decision_and_ports_reach_the_user(door: Door) -> None:
    spec = {"containers": [{"name": "app", "ports": [{"containerPort": 8288}]}]}
    answered = await door.ask(review(pod(labels={"pillion.dev/inject": "later"}, spec=spec)))
    first, second = answered["response"]["warnings"]
    assert "no IndicationService later" in first
    assert "8288" in second


async def test_a_wrong_annotation_is_a_warning_and_the_pod_is_injected(door: Door) -> None:
    asking = pod(
        labels={"pillion.dev/inject": "true"}, annotations={"pillion.dev/log-level": "LOUD"}
    )
    answered = await door.ask(review(asking))
    assert any("LOUD" in warning for warning in answered["response"]["warnings"])
    assert patched(asking, patch_of(answered))["metadata"]["labels"]["pillion.dev/deliverer"]


async def test_a_refused_name_is_a_warning_and_no_patch(door: Door) -> None:
    answered = await door.ask(review(pod(labels={"pillion.dev/inject": "No!"})))
    assert patch_of(answered) == []
    assert "No!" in answered["response"]["warnings"][0]


async def test_what_is_no_review_is_answered_400_and_counted(door: Door) -> None:
    async with door.client.post("/mutate", data=b"{") as response:
        assert response.status == 400
        assert "not JSON" in await response.text()
    assert door.outcomes() == {"failed": 1}


async def test_a_body_beyond_the_bound_is_refused(door: Door) -> None:
    async with door.client.post("/mutate", data=io.BytesIO(b" " * (MOST_BYTES + 1))) as response:
        assert response.status == 413


async def test_it_is_ready_once_it_answers(door: Door) -> None:
    async with door.client.get("/readyz") as response:
        assert response.status == 200


# ---------------------------------------------------------------- our own resources


def change(query: str, **request: Any) -> dict[str, Any]:
    """A review of a filter that is made."""
    resource = {
        "apiVersion": "pillion.dev/v1alpha1",
        "kind": "IndicationFilter",
        "metadata": {"name": "alerts"},
        "spec": {"query": query, "queryLanguage": "DMTF:CQL"},
    }
    asked = {"uid": "u", "operation": "CREATE", "namespace": "shop", "object": resource, **request}
    return {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": asked}


async def validated(door: Door, body: Any) -> dict[str, Any]:
    async with door.client.post("/validate", json=body) as response:
        assert response.status == 200
        answered: dict[str, Any] = (await response.json())["response"]
        return answered


async def test_a_wrong_query_is_refused_with_its_place(door: Door) -> None:
    answered = await validated(door, change("SELEC * FROM CIM_AlertIndication"))
    assert (answered["uid"], answered["allowed"]) == ("u", False)
    assert answered["status"]["code"] == 422
    assert "spec.query: line 1, column" in answered["status"]["message"]


async def test_a_right_query_is_allowed_and_an_unknown_class_warned_of(door: Door) -> None:
    right = await validated(door, change("SELECT * FROM CIM_AlertIndication"))
    assert right == {"uid": "u", "allowed": True}
    unknown = await validated(door, change("SELECT * FROM CIM_AlertIndicaton"))
    assert unknown["allowed"] is True
    assert "CIM_AlertIndication" in unknown["warnings"][0]


async def test_a_change_that_leaves_the_spec_is_never_refused(door: Door) -> None:
    body = change("SELEC", operation="UPDATE")
    body["request"]["oldObject"] = body["request"]["object"]
    assert (await validated(door, body))["allowed"] is True
    ending = change("SELEC", operation="UPDATE")
    ending["request"]["object"]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert (await validated(door, ending))["allowed"] is True
    assert (await validated(door, change("SELEC", operation="DELETE", object=None)))["allowed"]


async def test_a_change_that_is_no_review_is_answered_400(door: Door) -> None:
    for body in (b"{", b"[]", b"{}"):
        async with door.client.post("/validate", data=body) as response:
            assert response.status == 400
