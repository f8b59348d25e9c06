"""How long a change of a destination takes until deliverers have it: a part of bench_operator."""

import asyncio
import statistics
import time

import aiohttp

from benchmarks.operator_bed import LONGEST, NAMESPACE, Bed, Spent
from cluster.deliverer_pod import DelivererPod
from cluster.measuring import Configurations, percentile
from cluster.operators import OperatorProcess
from cluster.pods import running_pods
from cluster.population import (
    DESTINATIONS,
    OBJECTS,
    destination_name,
    service_name,
    services_of,
    url,
    watching,
)
from pillion_operator.cluster.types import POD, our_type
from pillion_operator.evaluation.references import DESTINATION
from pillion_operator.injection.container import TELEMETRY_PORT
from pillion_operator.names import CONFIGURATION_VOLUME, OPERATOR_TOKEN
from pillion_operator.store import Key
from pillion_testbed.client import MERGE_PATCH, Client
from pillion_testbed.users import KUBELET
from support.bench import report
from support.cluster_resources import pod

CHANGES, EVERY, GOAL = 300, 0.2, 1.0
#: Changes that are followed into a deliverer, one after the other, with a pause between.
LOADS, PAUSE = 40, 0.1
#: Seconds between two looks at the deliverer.
LOOK = 0.01


async def measure_changes(bed: Bed, operator: OperatorProcess) -> None:
    """Changes until they are in the Secrets."""
    configurations = Configurations()
    following = asyncio.create_task(configurations.follow(bed.client, NAMESPACE))
    seconds: list[float] = []
    spent = Spent(bed, operator)
    try:
        async with asyncio.TaskGroup() as tasks:
            for turn in range(CHANGES):
                tasks.create_task(_change(bed, configurations, turn, seconds))
                await asyncio.sleep(EVERY)
    finally:
        following.cancel()
    own, server = (1e3 * used / CHANGES for used in spent.seconds())
    worst = percentile(seconds, 0.99)
    report(
        goal=f"A changed destination is in the configurations, p99 <= {GOAL:.0f} s",
        figure=f"{worst * 1e3:.0f} ms",
        met=worst <= GOAL,
        note=f"median {statistics.median(seconds) * 1e3:.0f} ms, "
        f"worst of {CHANGES} {max(seconds) * 1e3:.0f} ms; "
        f"CPU {own:.0f} ms a change, of the API server {server:.0f} ms",
    )


async def _change(
    bed: Bed, configurations: Configurations, turn: int, seconds: list[float]
) -> None:
    # A step that is prime to their number: no two changes of one service in a row.
    number = turn * 37 % DESTINATIONS
    text = url(number, f"change-{turn}")
    with configurations.expecting(text, services_of(number)) as expected:
        await _redirect(bed.client, number, text)
        async with asyncio.timeout(LONGEST):
            await expected.done.wait()
        seconds.append(expected.seconds)


async def _redirect(client: Client, number: int, text: str) -> int:
    """Change a destination's URL; return its new generation."""
    answer = await client.request(
        "PATCH",
        our_type(DESTINATION).path(NAMESPACE, destination_name(number)),
        {"spec": {"destination": text}},
        content_type=MERGE_PATCH,
    )
    generation: int = answer["metadata"]["generation"]
    return generation


async def measure_loading(bed: Bed) -> None:
    """Changes until a deliverer runs on them, and until status says so."""
    service = service_name(0)
    body = pod(labels={"app": service})
    async with (
        running_pods(
            NAMESPACE,
            folder=bed.folder / "pods",
            server=bed.plane.url,
            ca=bed.plane.ca,
            token=bed.plane.token(KUBELET.name),
        ) as runner,
        watching(bed.client, NAMESPACE) as watched,
        aiohttp.ClientSession() as session,
    ):
        await bed.client.request("POST", POD.path(NAMESPACE), body)
        running = await runner.started(body["metadata"]["name"])
        await watched.all_ready(OBJECTS)
        configurations = Configurations()
        following = asyncio.create_task(configurations.follow(bed.client, NAMESPACE))
        loaded, told = [], []
        try:
            for turn in range(LOADS):
                number = turn % (DESTINATIONS // 10)
                text = url(number, f"load-{turn}")
                with configurations.expecting(text, [service]) as expected:
                    generation = await _redirect(bed.client, number, text)
                    async with asyncio.timeout(LONGEST):
                        await expected.done.wait()
                        await _reports(session, running, expected.revisions[service])
                        loaded.append(time.monotonic() - expected.began)
                        key = Key(DESTINATION, NAMESPACE, destination_name(number))
                        await watched.ready_at(key, generation)
                    told.append(time.monotonic() - expected.began)
                await asyncio.sleep(PAUSE)
        finally:
            following.cancel()
    for what, seconds in (("a deliverer runs on it", loaded), ("it says Ready", told)):
        report(
            goal=f"A changed destination until {what}, p99",
            figure=f"{percentile(seconds, 0.99) * 1e3:.0f} ms",
            met=None,
            note=f"median {statistics.median(seconds) * 1e3:.0f} ms of {LOADS}",
        )


async def _reports(session: aiohttp.ClientSession, running: DelivererPod, revision: str) -> None:
    """Return once the deliverer reports a revision."""
    token = (running.volume(CONFIGURATION_VOLUME) / OPERATOR_TOKEN).read_text()
    address = f"{running.url(TELEMETRY_PORT)}/v1/queues?limit=1"
    while True:
        async with session.get(address, headers={"Authorization": f"Bearer {token}"}) as answer:
            if (await answer.json())["revision"] == revision:
                return
        await asyncio.sleep(LOOK)
