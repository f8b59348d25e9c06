"""A whole operator that leads, in a cluster in memory."""

import asyncio
import base64
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from copy import deepcopy
from dataclasses import replace
from typing import Any, cast

from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import Object
from pillion_operator.definitions import Definitions
from pillion_operator.leading import Leader
from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.resync import Resync
from pillion_operator.settings import DelivererDefaults, OperatorSettings
from pillion_operator.store import Key, Store, key_of, version_of
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.config.addresses import AddressPolicy
from support.in_background import in_background
from support.operator_fakes import FakeApi, FakeDeliverer, FakeDeliverers, LoopClock

NAMESPACE = "shop"
OURS = (
    "IndicationFilter",
    "IndicationReplay",
    "IndicationService",
    "IndicationSubscription",
    "ListenerDestination",
)

#: Virtual seconds after which every timer that merely waits for a quieter moment is over.
LONG = 300.0

SETTINGS = OperatorSettings(
    deliverer=DelivererDefaults(image="registry.example.org/pillion:1"), webhook=None
)


class World:
    """The cluster, its pods, and the operator."""

    def __init__(
        self,
        draw: random.Random,
        *,
        failing: float = 0.0,
        addresses: AddressPolicy = SETTINGS.deliverer.addresses,
    ) -> None:
        self.settings = replace(
            SETTINGS, deliverer=replace(SETTINGS.deliverer, addresses=addresses)
        )
        self.draw = draw
        self.api = FakeApi(draw=draw, failing=failing)
        self.deliverers = FakeDeliverers(self.api, draw, loading=0.5)
        self.pods: dict[str, FakeDeliverer] = {}
        self.metrics = Metrics(version="0")
        self.store = Store()
        self.operator: Leader | None = None
        self._addresses = 0
        # What the parts draw themselves is to be the same for each seed too.
        random.seed(draw.random())

    # ------------------------------------------------------------------ the operator

    @asynccontextmanager
    async def leader(self) -> AsyncIterator[Leader]:
        """Have the operator lead, from what the cluster holds at first."""
        clock, api = LoopClock(), cast("Api", self.api)
        for body in deepcopy(list(self.api.objects.values())):
            self._observe("ADDED", body)
        self.api.watchers.append(self._observe)
        resync = Resync(
            api=api,
            store=self.store,
            namespaces=(),
            clock=clock,
            missed=lambda kind, count: self.metrics.watch_missed.labels(kind).inc(count),
            definitions=Definitions(api=api, store=self.store, clock=clock),
        )
        self.operator = Leader(
            self.settings,
            api=api,
            store=self.store,
            metrics=self.metrics,
            clock=clock,
        )
        leading = self.operator.lead(self.deliverers, token_key=b"k" * 32)
        async with (
            in_background(leading),
            in_background(resync.run(self.settings.resync_interval)),
        ):
            yield self.operator

    def _observe(self, event: str, body: Object) -> None:
        if event == "DELETED":
            self.store.remove(key_of(body), version=version_of(body))
        elif body["kind"] != "Event":
            self.store.put(body)

    @property
    def reconciles(self) -> float:
        """How many reconciles there were."""
        return sum(
            sample.value
            for metric in self.metrics.reconciles.collect()
            for sample in metric.samples
            if sample.name.endswith("_total")
        )

    # ------------------------------------------------------------------ users

    def resource(self, kind: str, name: str, spec: dict[str, Any]) -> None:
        """Make one of our resources, or change its spec."""
        key = Key(kind, NAMESPACE, name)
        there = self.api.objects.get(key)
        if there is not None and there["metadata"].get("deletionTimestamp"):
            return
        head = {
            "apiVersion": "pillion.dev/v1alpha1",
            "kind": kind,
            "metadata": {"namespace": NAMESPACE, "name": name},
        }
        self.api.put({**(there or head), "spec": spec})

    def secret(self, name: str, token: str, *, permitted: bool = True) -> None:
        """Make or change a Secret that destinations may use if it is ``permitted``."""
        labels = {"pillion.dev/credentials": "true"} if permitted else {}
        self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": NAMESPACE, "name": name, "labels": labels},
                "data": {"token": base64.b64encode(token.encode()).decode()},
            }
        )

    def pod(self, name: str, *, service: str, app: str = "a") -> None:
        """Start a pod with a deliverer, unless it is there."""
        key = Key("Pod", NAMESPACE, name)
        if key in self.api.objects:
            return
        self._addresses += 1
        address = f"10.0.0.{self._addresses}"
        self.pods[name] = FakeDeliverer(NAMESPACE, service, address)
        self.deliverers.by_address[address] = self.pods[name]
        made = self.api.put(
            {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": {
                    "namespace": NAMESPACE,
                    "name": name,
                    "labels": {DELIVERER_LABEL: service, "app": app},
                },
                "spec": {},
            }
        )
        self.api.put({**made, "status": {"phase": "Running", "podIP": address}})

    def remove_pod(self, name: str) -> None:
        """End a pod."""
        deliverer = self.pods.pop(name, None)
        if deliverer is not None:
            del self.deliverers.by_address[deliverer.address]
        self.api.remove(Key("Pod", NAMESPACE, name))

    # ------------------------------------------------------------------ the end

    def calm(self) -> None:
        """Nothing is in the way any more."""
        self.api.failing = 0.0
        self.deliverers.loading = 1.0
        for deliverer in self.pods.values():
            deliverer.stuck = False

    def said(self) -> dict[str, Any]:
        """All that the operator says of our resources, without when; and what it renders."""
        said: dict[str, Any] = {}
        for key, body in sorted(self.api.objects.items()):
            if key.kind in OURS:
                said[str(key)] = {
                    "finalizers": body["metadata"].get("finalizers") or [],
                    "status": timeless(body.get("status") or {}),
                }
            elif key.kind == "Secret" and body.get("type"):
                said[str(key)] = body["data"]
        return said

    def copied(self) -> "World":
        """The same cluster, its statuses empty, nobody leading yet."""
        other = World(random.Random(7))
        other.api.objects = deepcopy(self.api.objects)
        other.api._version, other.api._uids = self.api._version, self.api._uids
        for body in other.api.objects.values():
            if body["kind"] in OURS:
                body["status"] = {}
        other.pods = self.pods
        other.deliverers.by_address = self.deliverers.by_address
        other.deliverers.loading = 1.0
        return other


def timeless(status: dict[str, Any]) -> dict[str, Any]:
    """A status without the times of transition."""
    conditions = [
        {name: value for name, value in condition.items() if name != "lastTransitionTime"}
        for condition in status.get("conditions") or ()
    ]
    return {**status, "conditions": conditions}


async def settled(world: World) -> None:
    """Return once everything that was to be written has been."""
    await asyncio.sleep(LONG)


async def quiet(world: World) -> None:
    """Nothing happens, so nothing is written, and hardly anything is looked at."""
    written, reconciles = len(world.api.writes), world.reconciles
    await asyncio.sleep(LONG)
    assert world.api.writes[written:] == []
    assert world.reconciles - reconciles < 20
