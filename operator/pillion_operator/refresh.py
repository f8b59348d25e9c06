"""Annotates running pods, so that their kubelets refresh the configuration at once. Otherwise that
takes a minute or more. The operator writes nothing else to a pod; the chart's
ValidatingAdmissionPolicy enforces that."""

import asyncio
import logging
from collections import OrderedDict
from collections.abc import Callable, Iterable

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api, NotFound
from pillion_operator.cluster.types import POD
from pillion_operator.names import REVISION_ANNOTATION
from pillion_operator.store import Key

logger = logging.getLogger("pillion.operator")

PER_SECOND = 50.0
#: Maximum waiting pods of one namespace. Their kubelets refresh the others later.
MOST_WAITING = 20_000


class KubeletRefresher:
    """Annotates pods one by one, the namespaces in turn, at a bounded rate."""

    def __init__(
        self, api: Api, *, clock: Clock, enabled: bool, done: Callable[[str], None]
    ) -> None:
        """``done`` is called with "done" or "failed" for each pod."""
        self._api = api
        self._clock = clock
        self._enabled = enabled
        self._done = done
        #: Revisions by namespace and pod; the next namespace comes first.
        self._waiting: OrderedDict[str, OrderedDict[Key, str]] = OrderedDict()
        self._some = asyncio.Event()

    def refresh(self, pods: Iterable[Key], revision: str) -> None:
        """Queue the pods; a waiting pod gets this revision instead."""
        if not self._enabled:
            return
        for pod in pods:
            waiting = self._waiting.setdefault(pod.namespace, OrderedDict())
            if pod in waiting or len(waiting) < MOST_WAITING:
                waiting[pod] = revision
        self._some.set()

    async def run(self) -> None:
        while True:
            await self._some.wait()
            self._some.clear()
            while self._waiting:
                await self._annotate(*self._next())
                if self._waiting:
                    await self._clock.sleep(1.0 / PER_SECOND)

    def _next(self) -> tuple[Key, str]:
        """Take the namespaces in turn: a large one must not delay all others."""
        namespace, waiting = self._waiting.popitem(last=False)
        pod, revision = waiting.popitem(last=False)
        if waiting:
            self._waiting[namespace] = waiting
        return pod, revision

    async def _annotate(self, pod: Key, revision: str) -> None:
        patch = {"metadata": {"annotations": {REVISION_ANNOTATION: revision}}}
        try:
            await self._api.patch(POD, pod.namespace, pod.name, patch)
        except NotFound:
            return
        except FAILURES as error:
            # The kubelet refreshes the volume later anyway.
            self._done("failed")
            logger.warning(
                "pod %s/%s could not be annotated: %s",
                pod.namespace,
                pod.name,
                error,
                extra={"event": "poke-failed", "namespace": pod.namespace, "pod": pod.name},
            )
        else:
            self._done("done")
