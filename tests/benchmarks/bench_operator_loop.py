"""How long the operator blocks its event loop with 20,000 resources, in one process and in memory.

    python tests/benchmarks/bench_operator_loop.py [SHAPE…]

SHAPEs: ``spread`` (200 namespaces with a service each), ``namespace`` (5,000 resources of 50
services), ``service`` (20,000 of one). Two thirds of the resources are subscriptions, two to each
destination; the destinations of a namespace have credentials in one Secret.

The leader runs on an API server in memory. Of every turn of the event loop the CPU of its thread is
measured: for so long neither the Lease nor the webhook is served. First the leader starts; then
five destinations get another URL, one after the other; then the Secret changes. The notes have the
CPU of the whole process, which includes that of the API server in memory.
"""

import asyncio
import base64
import random
import sys
import time
from asyncio import BaseEventLoop
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import cast
from unittest.mock import patch

from pillion_cli.exits import short_collections
from pillion_operator.clock import SystemClock
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import Object
from pillion_operator.leading import Leader
from pillion_operator.store import Store, key_of, version_of
from pillion_operator.telemetry.metrics import Metrics
from support.bench import report
from support.cluster_resources import Resource, destination, filter_, service, subscription
from support.in_background import in_background
from support.operator_fakes import FakeApi, FakeDeliverers
from support.operator_world import SETTINGS

#: Seconds that the loop may be blocked for one change.
GOAL = 0.1
CHANGES = 5
#: Looks without a reconcile after which everything has been done, and seconds between two.
STILL, LOOK = 50, 0.05
#: In each namespace.
FILTERS = 10
SECRET = "token"


@dataclass(frozen=True, slots=True)
class Shape:
    namespaces: int
    #: In each namespace.
    services: int
    #: Of each service.
    destinations: int


SHAPES = {
    "spread": Shape(200, 1, 30),
    "namespace": Shape(1, 50, 33),
    "service": Shape(1, 1, 6_660),
}


class Blocked:
    """How long single turns of the event loop have taken, in seconds of its thread's CPU."""

    def __init__(self) -> None:
        self.longest = 0.0

    @contextmanager
    def measured(self) -> Iterator[None]:
        turn = vars(BaseEventLoop)["_run_once"]

        def timed(loop: BaseEventLoop) -> None:
            began = time.thread_time()
            turn(loop)
            self.longest = max(self.longest, time.thread_time() - began)

        with patch.object(BaseEventLoop, "_run_once", timed):
            yield


def resources(shape: Shape) -> Iterator[Resource]:
    for place in range(shape.namespaces):
        for body in (secret("first"), *_filters(), *_of_services(shape)):
            body["metadata"]["namespace"] = f"namespace-{place}"
            yield body


def _filters() -> Iterator[Resource]:
    for number in range(FILTERS):
        query = f"SELECT * FROM CIM_AlertIndication WHERE SystemName = 'host-{number}.example.com'"
        yield filter_(f"filter-{number}", query)


def _of_services(shape: Shape) -> Iterator[Resource]:
    for by in range(shape.services):
        yield service(f"service-{by}", deliverer={"podSelector": {"matchLabels": {"app": str(by)}}})
        for number in range(shape.destinations):
            name = f"listener-{by}-{number}"
            yield leading_to(name, "first")
            for turn in range(2):
                of = f"filter-{(number + turn) % FILTERS}"
                yield subscription(f"{name}-{turn}", to=name, of=of, by=f"service-{by}")


def leading_to(name: str, path: str) -> Resource:
    url = f"https://{name}.example.com:5989/{path}"
    credentials = {"bearer": {"secretRef": {"name": SECRET}}}
    return destination(url, name=name, credentials=credentials)


def secret(token: str) -> Resource:
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": SECRET, "labels": {"pillion.dev/credentials": "true"}},
        "data": {"token": base64.b64encode(token.encode()).decode()},
    }


class Measured:
    """A leader on resources in memory."""

    def __init__(self, name: str, shape: Shape) -> None:
        self._name = name
        self._shape = shape
        self._api = FakeApi()
        self._store = Store()
        self._metrics = Metrics(version="0")
        self._objects = 0

    async def run(self) -> None:
        for body in resources(self._shape):
            self._objects += 1
            self._observe("ADDED", self._api.put(body))
        self._api.watchers.append(self._observe)
        leader = Leader(
            SETTINGS,
            api=cast("Api", self._api),
            store=self._store,
            metrics=self._metrics,
            clock=SystemClock(),
        )
        blocked, began, spent = Blocked(), time.monotonic(), time.process_time()
        with blocked.measured():
            leading = leader.lead(FakeDeliverers(self._api, random.Random(1)), token_key=b"k" * 32)
            await asyncio.sleep(0)
            async with in_background(leading):
                seconds = await self._still(self._objects) - began
                self._tell("the leader starts", blocked, spent, f"{seconds:.0f} s, ", goal=None)
                self._api.writes.clear()
                await self._change_destinations()
                await self._change_secret()

    async def _change_destinations(self) -> None:
        blocked, spent = Blocked(), time.process_time()
        with blocked.measured():
            # Only whole turns are measured.
            await asyncio.sleep(0)
            for turn in range(CHANGES):
                changed = leading_to(f"listener-0-{turn}", "second")
                self._put(changed)
                await self._still(rendered=turn + 1)
        self._tell(f"{CHANGES} destinations change", blocked, spent, goal=GOAL)

    async def _change_secret(self) -> None:
        blocked, spent = Blocked(), time.process_time()
        with blocked.measured():
            await asyncio.sleep(0)
            self._put(secret("second"))
            await self._still(rendered=CHANGES + self._shape.services)
        self._tell("a Secret changes", blocked, spent, goal=GOAL)

    def _put(self, body: Resource) -> None:
        body["metadata"]["namespace"] = "namespace-0"
        self._api.put(body)

    def _observe(self, event: str, body: Object) -> None:
        if event == "DELETED":
            self._store.remove(key_of(body), version=version_of(body))
        elif body["kind"] != "Event":
            self._store.put(body)

    async def _still(self, least: float = 0.0, *, rendered: int = 0) -> float:
        """Wait until at ``least`` so much is reconciled, so many Secrets are ``rendered``, and
        nothing more happens; return since when."""
        before, since, looks = -1.0, time.monotonic(), 0
        while looks < STILL:
            done = sum(
                sample.value
                for metric in self._metrics.reconciles.collect()
                for sample in metric.samples
                if sample.name.endswith("_total")
            )
            written = sum(key.kind == "Secret" for _, key, _ in self._api.writes)
            looks += 1
            if done != before or done < least or written < rendered:
                before, since, looks = done, time.monotonic(), 0
            await asyncio.sleep(LOOK)
        return since

    def _tell(
        self, what: str, blocked: Blocked, spent: float, note: str = "", *, goal: float | None
    ) -> None:
        longest = blocked.longest
        limit = "" if goal is None else f" <= {goal * 1e3:.0f} ms"
        report(
            goal=f"{self._objects:,} resources, {self._name}: {what}, the loop is blocked{limit}",
            figure=f"{longest * 1e3:.0f} ms",
            met=None if goal is None else longest <= goal,
            note=f"{note}CPU {time.process_time() - spent:.1f} s",
        )


def main(names: list[str]) -> None:
    for name in names:
        with short_collections():
            asyncio.run(Measured(name, SHAPES[name]).run())


if __name__ == "__main__":
    main(sys.argv[1:] or list(SHAPES))
