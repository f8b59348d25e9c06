"""The kubelet's part, played by the tests: a pod's deliverer runs as a process of this machine.

The control plane has no node. A ``PodRunner`` watches the pods of one namespace that have a
deliverer, binds them to a node that is none, makes the container's volumes, runs its arguments at
an address of the pod's own (127.X.Y.Z), probes it, writes the pod's status, brings changed Secrets
when the pod's annotations change, and ends it when the pod is deleted. The other containers are
only said to run. Not played: hooks, liveness, limits, networks, images.
"""

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import aiohttp

from cluster.deliverer_pod import PILLION, DelivererPod, Setting
from cluster.pod_parts import deliverer_of
from pillion_operator.cluster.types import POD, Object
from pillion_operator.names import DELIVERER_LABEL
from pillion_testbed.client import SYNCED, client_of
from pillion_testbed.processes import Spawner

#: Seconds that a test waits for a pod unless it says otherwise.
WITHIN = 30.0
#: Turns of the event loop in which the connection of a cancelled probe is closed; the session waits
#: only for those that were made.
CLOSING_TURNS = 5


class PodRunner:
    """Runs the deliverers of one namespace's pods while ``run()`` runs."""

    def __init__(self, namespace: str, setting: Setting) -> None:
        self._namespace = namespace
        self._setting = setting
        self._pods: dict[str, DelivererPod] = {}
        self._changed = asyncio.Condition()

    @property
    def pods(self) -> dict[str, DelivererPod]:
        """The pods that have a deliverer, by name."""
        return dict(self._pods)

    async def started(self, name: str, *, within: float = WITHIN) -> DelivererPod:
        """Wait until the pod's deliverer has started and the API says so."""
        async with asyncio.timeout(within):
            pod = await self._seen(name)
            await pod.started.wait()
        return pod

    async def ready(self, name: str, *, within: float = WITHIN) -> DelivererPod:
        """Wait until the pod is ready and the API says so."""
        async with asyncio.timeout(within):
            pod = await self._seen(name)
            await pod.ready.wait()
        return pod

    async def ended(self, name: str, *, within: float = WITHIN) -> None:
        """Wait until a deleted pod's deliverer has ended and the pod is gone."""
        async with asyncio.timeout(within), self._changed:
            await self._changed.wait_for(lambda: name not in self._pods)

    async def run(self) -> None:
        """Watch and run until cancelled; then every deliverer is ended and its pod removed."""
        path = f"{POD.path(self._namespace)}?labelSelector={DELIVERER_LABEL}"
        async with asyncio.TaskGroup() as tasks:
            listed: set[str] = set()
            async for kind, pod in self._setting.client.events(path):
                if kind == SYNCED:
                    self._forget_all_but(listed)
                    listed = set()
                    continue
                # Only those between the begin of a watch and SYNCED are looked at.
                listed.add(pod["metadata"]["uid"])
                await self._see(kind, pod, tasks)

    async def _see(self, kind: str, pod: Object, tasks: asyncio.TaskGroup) -> None:
        name, uid = pod["metadata"]["name"], pod["metadata"]["uid"]
        known = self._pods.get(name)
        if known is not None and known.uid == uid:
            known.see(None if kind == "DELETED" else pod)
        elif kind != "DELETED" and deliverer_of(pod) is not None:
            if known is not None:
                known.see(None)
            async with self._changed:
                self._pods[name] = made = DelivererPod(pod, self._setting)
                self._changed.notify_all()
            tasks.create_task(self._one(made))

    def _forget_all_but(self, listed: set[str]) -> None:
        for pod in self._pods.values():
            if pod.uid not in listed:
                pod.see(None)

    async def _one(self, pod: DelivererPod) -> None:
        await pod.run()
        async with self._changed:
            if self._pods.get(pod.name) is pod:
                del self._pods[pod.name]
            self._changed.notify_all()

    async def _seen(self, name: str) -> DelivererPod:
        async with self._changed:
            await self._changed.wait_for(lambda: name in self._pods)
        return self._pods[name]


@asynccontextmanager
async def running_pods(
    namespace: str,
    *,
    folder: Path,
    server: str,
    ca: Path,
    token: str,
    command: Sequence[str] = PILLION,
) -> AsyncIterator[PodRunner]:
    """Run the deliverers of a namespace while the context lasts; an error of theirs comes out here.

    ``folder`` keeps volumes and logs. ``command`` stands for the image's entry point.
    """
    spawner = Spawner()
    timeout = aiohttp.ClientTimeout(total=2)
    try:
        async with (
            client_of(server, ca=ca, token=token) as client,
            aiohttp.ClientSession(timeout=timeout) as session,
        ):
            setting = Setting(
                client=client, session=session, folder=folder, spawner=spawner, command=command
            )
            runner = PodRunner(namespace, setting)
            running = asyncio.create_task(runner.run())
            try:
                yield runner
            finally:
                running.cancel()
                # This cancellation; an error of the runner's own comes out of the await.
                with suppress(asyncio.CancelledError):
                    await running
        for _turn in range(CLOSING_TURNS):
            await asyncio.sleep(0)
    finally:
        spawner.close()
