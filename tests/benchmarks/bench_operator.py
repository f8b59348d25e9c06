"""The operator, as a process, on a real API server that shares the machine with it.

    python tests/benchmarks/bench_operator.py [PART…]

PARTs: ``apply``, ``change``, ``webhook``, ``resync``. Each population is 1,000 subscriptions over
200 destinations, 50 filters and 50 services: each service serves 20 destinations, each destination
is in the configurations of five services.

``apply``: a population is applied by 16 requests at a time, subscriptions first and services last,
once with nobody there and once beside the operator. Seconds from the first request until a watch
has brought Ready at the present generation of all 1,300; memory is what /proc says afterwards.
``change``: another destination's URL is changed every 200 ms. Seconds from the request until a
watch of Secrets has brought the last of the five configurations with the new URL; then, slower,
until a deliverer with 20 destinations that the change concerns reports the new revision, and until
the destination says Ready again. The deliverer is a process; the kubelet's part is played.
``webhook``: reviews of a pod as the API server sends them, over TLS connections that are kept; then
pods created through the API server (a dry run: everything but the write to etcd), with and without
the webhook in turns.
``resync``: four populations, 5,200 objects, stand in the API server as another operator has left
them. Seconds from the start of the process until every object has been reconciled and nothing more
happens; the audit log tells of writes.
"""

import asyncio
import sys
import tempfile
import time
from pathlib import Path

from benchmarks.operator_bed import BARE, NAMESPACE, OTHERS, Bed, Spent, bed, start
from benchmarks.operator_changes import measure_changes, measure_loading
from benchmarks.operator_webhook import measure_webhook, register
from cluster.measuring import memory
from cluster.operators import OperatorProcess
from cluster.population import OBJECTS, apply_all, population, watching
from support.bench import report

PARTS = ("apply", "change", "webhook", "resync")
APPLY_GOAL, MEMORY_GOAL, RESYNC_GOAL = 15.0, 150.0, 15.0
#: Seconds that a population may take until it is ready.
LONGEST = 120.0
#: Seconds between two looks at the operator's metrics, and for how long they stand still at rest.
LOOK, STILL = 0.1, 1.5
RECONCILES = "pillion_operator_reconciles_total"


async def measure_apply(bed: Bed, operator: OperatorProcess) -> None:
    """A population with nobody there, and one beside the operator."""
    began = time.monotonic()
    await apply_all(bed.client, population(), namespace=BARE)
    alone = time.monotonic() - began
    async with watching(bed.client, NAMESPACE) as watched:
        spent = Spent(bed, operator)
        began = time.monotonic()
        await apply_all(bed.client, population(), namespace=NAMESPACE)
        applied = time.monotonic() - began
        await watched.all_ready(OBJECTS)
        ready = time.monotonic() - began
    own, server = spent.seconds()
    resident, most = memory(operator.running.pid)
    report(
        goal=f"1,000 subscriptions applied at once: all Ready <= {APPLY_GOAL:.0f} s",
        figure=f"{ready:.1f} s",
        met=ready <= APPLY_GOAL,
        note=f"applied after {applied:.1f} s, without an operator {alone:.1f} s; "
        f"{bed.written()} writes; CPU {own:.1f} s, of the API server {server:.1f} s",
    )
    report(
        goal=f"The operator then: resident <= {MEMORY_GOAL:.0f} MiB",
        figure=f"{resident:.0f} MiB",
        met=most <= MEMORY_GOAL,
        note=f"at most {most:.0f} MiB",
    )


async def measure_resync(bed: Bed) -> None:
    """A start on what another operator has left."""
    with bed.operators() as operators:
        await start(operators)
        async with watching(bed.client, None) as watched:
            for name in (NAMESPACE, BARE, *OTHERS):
                await apply_all(bed.client, population(), namespace=name)
            await watched.all_ready(OBJECTS * 4)
    before = bed.written()
    with bed.operators() as operators:
        began = time.monotonic()
        operator = await start(operators)
        ended = await _rest(operator)
        resident, most = memory(operator.running.pid)
        wrote = bed.written() - before
    seconds = ended - began
    report(
        goal=f"Resync on start of {OBJECTS * 4:,} objects <= {RESYNC_GOAL:.0f} s, no write",
        figure=f"{seconds:.1f} s",
        met=seconds <= RESYNC_GOAL and wrote == 0,
        note=f"{wrote} writes; resident {resident:.0f} MiB, at most {most:.0f} MiB",
    )


async def _rest(operator: OperatorProcess) -> float:
    """Wait until everything has been reconciled; return since when nothing happens any more."""
    most, since = 0.0, time.monotonic()
    while most < OBJECTS * 4 or time.monotonic() - since < STILL:
        samples = await asyncio.to_thread(operator.metrics)
        done = sum(value for name, value in samples.items() if name.startswith(RECONCILES))
        if done > most:
            most, since = done, time.monotonic()
        await asyncio.sleep(LOOK)
    return since


async def main(parts: list[str]) -> None:
    with tempfile.TemporaryDirectory(prefix="pillion-bench-") as name:
        async with bed(Path(name)) as made:
            if parts != ["resync"]:
                with made.operators(NAMESPACE) as operators:
                    operator = await start(operators)
                    await measure_apply(made, operator)
                    proof = await register(made, operator)
                    if "change" in parts:
                        await measure_changes(made, operator)
                        await measure_loading(made)
                    if "webhook" in parts:
                        await measure_webhook(made, operator, proof)
            if "resync" in parts:
                await measure_resync(made)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1:] or list(PARTS)))
