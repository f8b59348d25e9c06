"""Finds pods that lack their deliverer, reports them, and evicts some. Evictions use the Eviction
API, so disruption budgets hold. If the replacement is missed as well, the webhook is unreachable,
and its owner is left alone for a growing pause."""

import logging
import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from prometheus_client import Counter, Gauge

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, ApiError, Conflict, NotFound, succeeds
from pillion_operator.cluster.types import (
    NAMESPACE,
    POD,
    Object,
    being_deleted,
    deliverer_of,
    has_ended,
    labels_of,
)
from pillion_operator.events import EventRecorder
from pillion_operator.injection.decision import (
    SPARK_ROLE_LABEL,
    Inject,
    Services,
    decide,
    is_sidecar_service,
)
from pillion_operator.injection.selectors import rendered
from pillion_operator.names import DELIVERER_LABEL, INJECT_LABEL
from pillion_operator.settings import OperatorSettings
from pillion_operator.store import Key
from pillion_sidecar.config.schema import INDICATION_SERVICE

logger = logging.getLogger("pillion.operator")

INTERVAL = 30.0
#: Maximum Events of one search; the next searches publish the others.
MOST_EVENTS = 50
REASON = "InjectionMissed"

WITHOUT_DELIVERER = f"!{DELIVERER_LABEL}"
#: Pods whose own label asks for a deliverer and that have none.
ASKING = f"{INJECT_LABEL},{INJECT_LABEL}!=false,{WITHOUT_DELIVERER}"
#: Maximum characters of a selector in a request's URL.
LONGEST_SELECTOR = 4096

#: Maximum per search.
MOST_EVICTIONS = 5
#: Seconds of the pause after an eviction that did not help: first, and at most.
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0
#: The answer if a disruption budget forbids the eviction.
TOO_MANY_REQUESTS = 429


@dataclass(frozen=True, slots=True, kw_only=True)
class MissedPod:
    namespace: str
    name: str
    uid: str
    service: str
    #: In seconds since the epoch.
    made: float
    #: The uid of the controller that replaces the pod; None without one, and for pods of Spark,
    #: which would count the loss as a failure.
    owner: str | None
    evict: bool


def missed_pods(
    pods: Iterable[Object], *, services: Mapping[str, Iterable[Object]], operator_namespace: str
) -> list[MissedPod]:
    """``services`` are by namespace. Pods that are ending or have ended, and those that the webhook
    would not inject, are not missed."""
    missed = []
    for pod in pods:
        metadata = pod["metadata"]
        if being_deleted(pod) or has_ended(pod):
            continue
        namespace = metadata["namespace"]
        decision = decide(
            pod,
            namespace=namespace,
            services=services.get(namespace, ()),
            operator_namespace=operator_namespace,
        )
        if not isinstance(decision, Inject):
            continue
        deliverer = decision.spec.get("deliverer") or {}
        missed.append(
            MissedPod(
                namespace=namespace,
                name=metadata["name"],
                uid=metadata["uid"],
                service=decision.service,
                made=datetime.fromisoformat(metadata["creationTimestamp"]).timestamp(),
                owner=_owner(pod),
                evict=deliverer.get("onMissedInjection") == "Evict",
            )
        )
    return missed


def listing_selectors(services: Iterable[Object]) -> set[str]:
    """The label selectors that find all pods without a deliverer that the services of one namespace
    select. A broader selector replaces one too long for a request."""
    found = set()
    for service in services:
        selector = rendered(deliverer_of(service).get("podSelector"))
        if selector is None or not is_sidecar_service(service):
            continue
        whole = f"{selector},{WITHOUT_DELIVERER}"
        found.add(whole if len(whole) <= LONGEST_SELECTOR else WITHOUT_DELIVERER)
    return found


def _owner(pod: Object) -> str | None:
    if labels_of(pod).get(SPARK_ROLE_LABEL) in ("driver", "executor"):
        return None
    for reference in pod["metadata"].get("ownerReferences") or ():
        if reference.get("controller"):
            return str(reference["uid"])
    return None


@dataclass(slots=True)
class _Owner:
    """The times (since the epoch) of the last attempt and of the last eviction, and the pause if it
    did not help."""

    tried: float = 0.0
    evicted: float = -math.inf
    pause: float = 0.0


class Evictions:
    def __init__(self, *, api: Api, clock: Clock, evictions: Counter) -> None:
        """``evictions`` has the label ``result``: evicted, refused (by a budget) or failed."""
        self._api = api
        self._clock = clock
        self._evictions = evictions
        #: By uid.
        self._owners: defaultdict[str, _Owner] = defaultdict(_Owner)

    async def round(self, missed: Iterable[MissedPod]) -> None:
        """Evict some of the pods; raises errors of the connection."""
        now = self._clock.time()
        for uid, owner in list(self._owners.items()):
            if now > owner.tried + 2 * LONGEST_PAUSE:
                del self._owners[uid]
        owned = [(pod, self._owners[pod.owner]) for pod in missed if pod.evict and pod.owner]
        # The longest waiting owners first; otherwise a few strict disruption budgets would block
        # all others.
        owned.sort(key=lambda one: one[1].tried)
        tried = 0
        refused = set[str | None]()
        for pod, owner in owned:
            # A pod older than the last eviction says nothing about its effect.
            is_new = pod.made >= owner.evicted
            if pod.owner in refused or (is_new and now < owner.evicted + owner.pause):
                continue
            if tried == MOST_EVICTIONS:
                return
            tried += 1
            owner.tried = now
            if not await self._evict(pod):
                refused.add(pod.owner)
            elif is_new:
                owner.evicted = now
                owner.pause = min(max(FIRST_PAUSE, 2 * owner.pause), LONGEST_PAUSE)

    async def _evict(self, pod: MissedPod) -> bool:
        eviction = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": pod.name, "namespace": pod.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.uid}},
        }
        path = f"{POD.path(pod.namespace, pod.name)}/eviction"
        try:
            await self._api.create(eviction, path=path)
        except (NotFound, Conflict):
            # It is gone, or another pod has its name.
            return False
        except ApiError as error:
            refused = error.status == TOO_MANY_REQUESTS
            self._evictions.labels("refused" if refused else "failed").inc()
            logger.log(
                logging.INFO if refused else logging.WARNING,
                "pod %s/%s is not evicted: %s; it is tried again",
                pod.namespace,
                pod.name,
                error,
                extra={"event": "eviction-refused"},
            )
            return False
        self._evictions.labels("evicted").inc()
        logger.info(
            "pod %s/%s without the deliverer of %s is evicted",
            pod.namespace,
            pod.name,
            pod.service,
            extra={"event": "pod-evicted"},
        )
        return True


class MissedInjections:
    """The missed pods of the last search. Only the leader searches."""

    def __init__(
        self,
        *,
        api: Api,
        services: Services,
        settings: OperatorSettings,
        clock: Clock,
        recorder: EventRecorder,
        changed: Callable[[Key], None],
        gauge: Gauge,
        evictions: Counter,
    ) -> None:
        """``changed`` is called with each service whose missed pods have changed. ``gauge`` has the
        labels namespace and service; ``evictions``: see :class:`Evictions`."""
        self._api = api
        self._services = services
        self._settings = settings
        self._clock = clock
        self._recorder = recorder
        self._changed = changed
        self._gauge = gauge
        self._evictions = Evictions(api=api, clock=clock, evictions=evictions)
        self._missed: dict[Key, tuple[str, ...]] = {}
        self._told: set[str] = set()

    def missed(self, service: Key) -> Sequence[str]:
        return self._missed.get(service, ())

    async def run(self) -> None:
        while True:
            what = "cannot search for pods without a deliverer"
            await succeeds(self.look(), what, extra={"event": "missed-search-failed"})
            await self._clock.sleep(INTERVAL)

    async def look(self) -> None:
        served = await self._served()
        candidates = await self._candidates()
        missed = missed_pods(
            [pod for pod in candidates if served is None or pod["metadata"]["namespace"] in served],
            services={
                name: self._services.all(INDICATION_SERVICE.name, name).values()
                for name in self._services.namespaces(INDICATION_SERVICE.name)
            },
            operator_namespace=self._settings.namespace,
        )
        self._remember(missed)
        self._report(missed)
        await self._evictions.round(missed)

    async def _served(self) -> set[str] | None:
        """The namespaces that the webhook serves; None: all. Pods of others need no deliverer."""
        selector = self._settings.namespace_selector
        if selector is None:
            return None
        found = await self._api.list(NAMESPACE, None, label_selector=selector)
        return {namespace["metadata"]["name"] for namespace in found}

    async def _candidates(self) -> list[Object]:
        found: dict[str, Object] = {}
        for namespace, selector in self._queries():
            for pod in await self._api.list(POD, namespace, label_selector=selector):
                found[pod["metadata"]["uid"]] = pod
        return list(found.values())

    def _queries(self) -> Iterator[tuple[str | None, str]]:
        for scope in self._settings.namespaces or (None,):
            yield scope, ASKING
        for namespace in list(self._services.namespaces(INDICATION_SERVICE.name)):
            services = self._services.all(INDICATION_SERVICE.name, namespace).values()
            for selector in sorted(listing_selectors(services)):
                yield namespace, selector

    def _remember(self, missed: Iterable[MissedPod]) -> None:
        names: defaultdict[Key, list[str]] = defaultdict(list)
        for pod in missed:
            names[Key(INDICATION_SERVICE.name, pod.namespace, pod.service)].append(pod.name)
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

    def _report(self, missed: Iterable[MissedPod]) -> None:
        present = {pod.uid: pod for pod in missed}
        self._told &= present.keys()
        news = [pod for uid, pod in present.items() if uid not in self._told]
        for pod in news[:MOST_EVENTS]:
            metadata = {"namespace": pod.namespace, "name": pod.name, "uid": pod.uid}
            self._recorder.publish(
                {"apiVersion": "v1", "kind": "Pod", "metadata": metadata},
                type="Warning",
                reason=REASON,
                action="Inject",
                note=f"The pod should have a deliverer of IndicationService {pod.service} and has "
                f"none: it was made while the webhook could not be asked, or before the service "
                f"selected it. Recreate it.",
            )
            self._told.add(pod.uid)
