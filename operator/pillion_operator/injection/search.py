"""Searches for pods that were missed, and sees to it that nobody overlooks them."""

import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Protocol

from prometheus_client import Gauge

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.cluster.types import NAMESPACE, POD, Object
from pillion_operator.injection.missed import (
    ASKING,
    MissedPod,
    listing_selectors,
    missed_pods,
)
from pillion_operator.injection.repair import Repair
from pillion_operator.store import Key

logger = logging.getLogger("pillion.operator")

#: Seconds from one search to the next.
INTERVAL = 30.0
#: Events in one round; the others follow in the next ones.
MOST_EVENTS = 50

REASON = "InjectionMissed"
SERVICE = "IndicationService"


class KnownServices(Protocol):
    """Where the IndicationServices are known; asked without waiting."""

    def namespaces(self) -> Iterable[str]:
        """Those that have any."""

    def services(self, namespace: str) -> Iterable[Object]:
        """Those of one namespace."""


class Recorder(Protocol):
    """Publishes Kubernetes Events."""

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        """Publish one about an object, sooner or later; never blocks and never fails."""


class MissedInjections:
    """The pods that should have a deliverer and have none, as the last search found them."""

    def __init__(
        self,
        *,
        api: Api,
        services: KnownServices,
        namespaces: Sequence[str],
        operator_namespace: str,
        clock: Clock,
        leads: Callable[[], bool],
        recorder: Recorder,
        changed: Callable[[Key], None],
        gauge: Gauge,
        repair: Repair,
        namespace_selector: str | None = None,
        interval: float = INTERVAL,
    ) -> None:
        """``namespaces``: empty for all. ``namespace_selector`` selects, by their labels, those of
        whose pods the webhook is asked; None: all. ``changed`` is told the service whose pods are
        others than before. ``gauge`` has the labels namespace and service."""
        self._api = api
        self._services = services
        self._namespaces = tuple(namespaces)
        self._operator_namespace = operator_namespace
        self._clock = clock
        self._leads = leads
        self._recorder = recorder
        self._changed = changed
        self._gauge = gauge
        self._repair = repair
        self._namespace_selector = namespace_selector
        self._interval = interval
        self._missed: dict[Key, tuple[str, ...]] = {}
        #: The uids of pods that an Event has told of.
        self._told: set[str] = set()

    def missed(self, service: Key) -> Sequence[str]:
        """The names of the pods that the last search has found to lack this service's deliverer."""
        return self._missed.get(service, ())

    async def run(self) -> None:
        """Search again and again, for ever. Only the replica that leads does."""
        while True:
            try:
                await self.look()
            except FAILURES as error:
                logger.warning(
                    "pods without a deliverer could not be searched for: %s; it is tried again",
                    error,
                    extra={"event": "missed-search-failed"},
                )
            await self._clock.sleep(self._interval)

    async def look(self) -> None:
        """Search once, tell and repair."""
        if not self._leads():
            self._take_over(())
            self._told.clear()
            return
        asked_about = await self._asked_about()
        candidates = await self._candidates()
        missed = missed_pods(
            [
                pod
                for pod in candidates
                if asked_about is None or pod["metadata"]["namespace"] in asked_about
            ],
            services={name: self._services.services(name) for name in self._services.namespaces()},
            operator_namespace=self._operator_namespace,
        )
        self._take_over(missed)
        self._tell(missed)
        await self._repair.round(missed)

    async def _asked_about(self) -> set[str] | None:
        """The namespaces of whose pods the webhook is asked; None: all. In the others nobody means
        a pod to have a deliverer."""
        if self._namespace_selector is None:
            return None
        found = await self._api.list(NAMESPACE, None, label_selector=self._namespace_selector)
        return {namespace["metadata"]["name"] for namespace in found}

    async def _candidates(self) -> list[Object]:
        """Every pod that may have been missed, once."""
        found: dict[str, Object] = {}
        for namespace, selector in self._queries():
            for pod in await self._api.list(POD, namespace, label_selector=selector):
                found[pod["metadata"]["uid"]] = pod
        return list(found.values())

    def _queries(self) -> Iterator[tuple[str | None, str]]:
        for scope in self._namespaces or (None,):
            yield scope, ASKING
        for namespace in list(self._services.namespaces()):
            for selector in sorted(listing_selectors(self._services.services(namespace))):
                yield namespace, selector

    def _take_over(self, missed: Iterable[MissedPod]) -> None:
        names: defaultdict[Key, list[str]] = defaultdict(list)
        for pod in missed:
            names[Key(SERVICE, pod.namespace, pod.service)].append(pod.name)
        before, self._missed = self._missed, {key: tuple(sorted(names[key])) for key in names}
        for key in before.keys() | self._missed.keys():
            now = self._missed.get(key)
            if before.get(key) == now:
                continue
            if now is None:
                self._gauge.remove(key.namespace, key.name)
            else:
                self._gauge.labels(key.namespace, key.name).set(len(now))
            self._changed(key)

    def _tell(self, missed: Iterable[MissedPod]) -> None:
        present = {pod.uid: pod for pod in missed}
        self._told &= present.keys()
        news = [pod for uid, pod in present.items() if uid not in self._told]
        for pod in news[:MOST_EVENTS]:
            self._recorder.publish(
                _reference(pod),
                type="Warning",
                reason=REASON,
                action="Inject",
                note=f"The pod should have a deliverer of IndicationService {pod.service} and has "
                f"none: it was made while the webhook could not be asked, or before the service "
                f"selected it. Make it anew.",
            )
            self._told.add(pod.uid)


def _reference(pod: MissedPod) -> Object:
    metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
