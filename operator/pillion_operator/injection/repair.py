"""Evicts pods that were missed, so that their owners make others, which are injected.

By the Eviction API, so disruption budgets hold. If what an owner makes instead is missed as well,
the webhook cannot be reached yet; then the owner is left alone for longer each time.
"""

import logging
from collections.abc import Iterable
from dataclasses import dataclass

from prometheus_client import Counter

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import Api, ApiError, Conflict, NotFound
from pillion_operator.cluster.types import POD
from pillion_operator.injection.missed import MissedPod

logger = logging.getLogger("pillion.operator")

#: Pods evicted in one round.
MOST_EVICTIONS = 5
#: Seconds for which an owner is left alone after an eviction that did not help, and at most.
FIRST_PAUSE = 60.0
LONGEST_PAUSE = 3600.0
#: Owners remembered at most.
MOST_OWNERS = 10_000
#: The API server's answer where a disruption budget forbids it.
TOO_MANY_REQUESTS = 429


@dataclass(slots=True)
class _Repaired:
    """The last eviction of an owner's pod: when (epoch), and the pause if that did not help."""

    when: float
    pause: float


class Repair:
    """Evictions, round by round."""

    def __init__(self, *, api: Api, clock: Clock, evictions: Counter) -> None:
        """``evictions`` has the label ``result``: evicted, refused (by a budget) or failed."""
        self._api = api
        self._clock = clock
        self._evictions = evictions
        self._owners: dict[str, _Repaired] = {}
        #: When an eviction was last asked for, by owner; only of those that have missed pods.
        self._tried: dict[str, float] = {}

    async def round(self, missed: Iterable[MissedPod]) -> None:
        """Evict some of the pods that may be. Errors of the connection are the caller's."""
        now = self._clock.time()
        self._forget(now)
        owned = [(pod, pod.owner) for pod in missed if pod.evict and pod.owner is not None]
        owners = {owner for _, owner in owned}
        self._tried = {owner: when for owner, when in self._tried.items() if owner in owners}
        # Those that have waited longest come first, or a few whose budgets forbid it would keep
        # everybody else from their turn.
        owned.sort(key=lambda one: self._tried.get(one[1], 0.0))
        tried = 0
        held = set()
        for pod, owner in owned:
            if tried == MOST_EVICTIONS:
                return
            if owner in held or not self._is_due(pod, owner, now=now):
                continue
            tried += 1
            self._tried[owner] = now
            if await self._evict(pod):
                self._note(pod, owner, now=now)
            else:
                held.add(owner)

    def _is_due(self, pod: MissedPod, owner: str, *, now: float) -> bool:
        before = self._owners.get(owner)
        if before is None or pod.made < before.when:
            return True
        return now >= before.when + before.pause

    def _note(self, pod: MissedPod, owner: str, *, now: float) -> None:
        before = self._owners.get(owner)
        if before is None:
            if len(self._owners) < MOST_OWNERS:
                self._owners[owner] = _Repaired(when=now, pause=FIRST_PAUSE)
        elif pod.made >= before.when:
            before.when, before.pause = now, min(2 * before.pause, LONGEST_PAUSE)
        # One of the pods from before the first eviction: that time tells those made since.

    def _forget(self, now: float) -> None:
        over = [
            owner for owner, before in self._owners.items() if now > before.when + 2 * LONGEST_PAUSE
        ]
        for owner in over:
            del self._owners[owner]

    async def _evict(self, pod: MissedPod) -> bool:
        try:
            await self._api.create(_eviction(pod), path=f"{_path(pod)}/eviction")
        except (NotFound, Conflict):
            # It is gone, or another of its name is there.
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


def _path(pod: MissedPod) -> str:
    return POD.path(pod.namespace, pod.name)


def _eviction(pod: MissedPod) -> dict[str, object]:
    return {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": pod.name, "namespace": pod.namespace},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
