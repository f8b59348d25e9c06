"""How long the injecting webhook takes: a part of bench_operator."""

import asyncio
import base64
import json
import ssl
import statistics
import time

import aiohttp

from benchmarks.operator_bed import BARE, LONGEST, NAMESPACE, Bed
from cluster.measuring import percentile
from cluster.operators import OperatorProcess, webhook_configuration
from cluster.population import SERVICES, service_name
from pillion_operator.cluster.types import MUTATING_WEBHOOK, POD, Object
from pillion_testbed.client import Client
from support.bench import report
from support.cluster_resources import pod

REVIEWS, TOGETHER, GOAL = 1_000, 8, 0.020
#: Reviews before any are measured, and pods that are made with the webhook and without.
WARM_UP, PODS = 50, 200


async def register(bed: Bed, operator: OperatorProcess) -> ssl.SSLContext:
    """Have the API server ask the operator about pods; return what proves who it is."""
    body = webhook_configuration(operator, namespace=NAMESPACE)
    path = MUTATING_WEBHOOK.path()
    await bed.client.request("POST", path, body)
    found: Object = {}
    async with asyncio.timeout(LONGEST):
        async for _, found in bed.client.events(path):
            if found.get("webhooks") and found["webhooks"][0]["clientConfig"].get("caBundle"):
                break
    bundle = base64.b64decode(found["webhooks"][0]["clientConfig"]["caBundle"])
    return ssl.create_default_context(cadata=bundle.decode())


async def measure_webhook(bed: Bed, operator: OperatorProcess, proof: ssl.SSLContext) -> None:
    """Reviews, one after the other and several at once; then pods through the API server."""
    made = await _create(bed.client, BARE, service_name(SERVICES - 1))
    review = json.dumps(_review(made)).encode()
    connector = aiohttp.TCPConnector(ssl=proof)
    async with aiohttp.ClientSession(operator.webhook, connector=connector) as session:
        for at_once in (1, TOGETHER):
            await _reviews(session, review, at_once=at_once, count=WARM_UP)
            seconds = await _reviews(session, review, at_once=at_once, count=REVIEWS)
            worst = percentile(seconds, 0.99)
            report(
                goal=f"The webhook, {at_once} at once, p99 <= {GOAL * 1e3:.0f} ms",
                figure=f"{worst * 1e3:.1f} ms",
                met=worst <= GOAL,
                note=f"median {statistics.median(seconds) * 1e3:.1f} ms, "
                f"worst of {REVIEWS} {max(seconds) * 1e3:.1f} ms",
            )
    taken: dict[str, list[float]] = {BARE: [], NAMESPACE: []}
    for turn in range(PODS):
        for namespace, seconds in taken.items():
            began = time.monotonic()
            await _create(bed.client, namespace, service_name(turn % SERVICES))
            seconds.append(time.monotonic() - began)
    without, with_it = (statistics.median(taken[name]) for name in (BARE, NAMESPACE))
    report(
        goal="Added to the creation of a pod through the API server, median",
        figure=f"{(with_it - without) * 1e3:.1f} ms",
        met=None,
        note=f"{without * 1e3:.1f} ms without; p99 "
        f"{percentile(taken[NAMESPACE], 0.99) * 1e3:.1f} ms with, "
        f"{percentile(taken[BARE], 0.99) * 1e3:.1f} ms without",
    )


async def _create(client: Client, namespace: str, app: str) -> Object:
    body = pod(labels={"app": app})
    made: Object = await client.request("POST", f"{POD.path(namespace)}?dryRun=All", body)
    return made


def _review(made: Object) -> Object:
    """The question that the API server asks about a pod."""
    return {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "namespace": NAMESPACE,
            "operation": "CREATE",
            "userInfo": {"username": "admin", "groups": ["system:masters"]},
            "object": made,
            "dryRun": False,
        },
    }


async def _reviews(
    session: aiohttp.ClientSession, review: bytes, *, at_once: int, count: int
) -> list[float]:
    seconds: list[float] = []
    headers = {"Content-Type": "application/json"}

    async def ask() -> None:
        for _ in range(count // at_once):
            began = time.monotonic()
            async with session.post("/mutate", data=review, headers=headers) as answer:
                text = await answer.read()
            seconds.append(time.monotonic() - began)
            assert json.loads(text)["response"]["patch"], text

    async with asyncio.TaskGroup() as tasks:
        for _ in range(at_once):
            tasks.create_task(ask())
    return seconds
