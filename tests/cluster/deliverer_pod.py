"""One pod with a deliverer: from its binding to a node until it is gone."""

import asyncio
import datetime
import shutil
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from cluster.pod_parts import (
    annotations,
    container_port,
    deliverer_of,
    map_arguments,
    pod_address,
    pod_status,
    port_asked,
)
from cluster.volumes import MissingSecret, UnsupportedVolume, volume_files, write_volume
from pillion_operator.cluster.types import POD, Object
from pillion_testbed.client import MERGE_PATCH, Client
from pillion_testbed.processes import Running, Spawner
from pillion_testbed.rest import Refused

#: The node that every pod is bound to. There is none: but what is bound is deleted gracefully.
NODE = "pillion-test-node"
#: Seconds between two probes, and between two looks for a Secret that is missing.
PERIOD = 0.1
#: How often a deliverer that ended by itself is started again.
RESTARTS = 5
#: Where in a pod's folder its own volumes are.
VOLUMES = "volumes"
PILLION = (sys.executable, "-m", "pillion_cli.main")


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """What all pods of a runner share."""

    client: Client
    #: For probes.
    session: aiohttp.ClientSession
    folder: Path
    spawner: Spawner
    #: Stands for the image's entry point.
    command: Sequence[str] = PILLION


class DelivererPod:
    """A pod and the process that is its deliverer."""

    def __init__(self, pod: Object, setting: Setting) -> None:
        container = deliverer_of(pod)
        assert container is not None, "only pods with a deliverer are run"
        self.name: str = pod["metadata"]["name"]
        self.namespace: str = pod["metadata"]["namespace"]
        self.uid: str = pod["metadata"]["uid"]
        #: The pod's IP.
        self.address = pod_address(self.uid)
        #: Set while the deliverer has started, and its readiness probe has passed too, and the
        #: API says so.
        self.started = asyncio.Event()
        self.ready = asyncio.Event()
        self.restarts = 0
        #: Notified when the files of the volumes have been brought up to date.
        self.refreshed = asyncio.Condition()
        self._container = container
        self._setting = setting
        self._folder = setting.folder / f"{self.name}-{self.uid[:8]}"
        self._folder.mkdir(parents=True)
        self._latest: Object | None = pod
        self._seen = asyncio.Event()
        self._annotations = annotations(pod)
        self._process: Running | None = None
        self._told: tuple[bool, bool, int] | None = None

    @property
    def log(self) -> Path:
        """What the deliverer has printed, over all restarts."""
        return self._folder / "deliverer.log"

    @property
    def pid(self) -> int:
        """The deliverer's process."""
        assert self._process is not None, "the deliverer does not run"
        return self._process.pid

    def volume(self, name: str) -> Path:
        """Return the folder of one of the pod's volumes. A claim's files outlive the pod."""
        for volume in self._pod["spec"]["volumes"]:
            if volume["name"] == name and "persistentVolumeClaim" in volume:
                return self._setting.folder / str(volume["persistentVolumeClaim"]["claimName"])
        return self._folder / VOLUMES / name

    def url(self, port: int) -> str:
        """Return where a port of the pod is."""
        return f"http://{self.address}:{port}"

    def see(self, pod: Object | None) -> None:
        """Take the pod as the API has it now; None: it is gone."""
        self._latest = pod
        self._seen.set()

    async def crash(self) -> None:
        """Let the deliverer crash; returns when it has. It is started again, as a kubelet does."""
        assert self._process is not None, "the deliverer does not run"
        await asyncio.to_thread(self._process.stop)
        self.started.clear()
        self.ready.clear()

    async def refresh(self) -> None:
        """Bring what has changed in Secrets, as a kubelet does now and then by itself."""
        for volume in self._mounted():
            folder = self.volume(volume["name"])
            if "secret" in volume or "projected" in volume:
                account = self._pod["spec"].get("serviceAccountName") or "default"
                files = await volume_files(
                    self._setting.client, self.namespace, volume, account=account
                )
                await asyncio.to_thread(write_volume, folder, files)
            else:
                folder.mkdir(parents=True, exist_ok=True)
        async with self.refreshed:
            self.refreshed.notify_all()

    async def run(self) -> None:
        """Be the kubelet of this pod until it is gone. Cancelled, it removes the pod."""
        try:
            await self._bind()
            await self._make_volumes()
            if not self._leaving():
                await self._run_container()
        finally:
            await self._end_surely()
        # Until the watch says so, it may still tell of changes before the end.
        while self._latest is not None:
            await self._seen.wait()
            self._seen.clear()

    @property
    def _pod(self) -> Object:
        assert self._latest is not None, f"pod {self.name} is gone"
        return self._latest

    def _leaving(self) -> bool:
        return self._latest is None or "deletionTimestamp" in self._latest["metadata"]

    async def _request(self, method: str, path: str, body: Object) -> None:
        """Write, unless the pod is gone or another one: the watch is about to say so."""
        try:
            await self._setting.client.request(
                method,
                POD.path(self.namespace, self.name) + path,
                body,
                content_type=MERGE_PATCH if method == "PATCH" else "application/json",
            )
        except Refused as error:
            if error.status not in (404, 409):
                raise

    async def _bind(self) -> None:
        if self._leaving() or self._pod["spec"].get("nodeName"):
            return
        target = {"apiVersion": "v1", "kind": "Node", "name": NODE}
        metadata = {"name": self.name, "uid": self.uid}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": metadata, "target": target}
        await self._request("POST", "/binding", binding)

    async def _make_volumes(self) -> None:
        while not self._leaving():
            try:
                return await self.refresh()
            except MissingSecret:
                await asyncio.sleep(PERIOD)

    async def _run_container(self) -> None:
        self._start()
        while not self._leaving():
            await self._probe_and_tell()
            try:
                async with asyncio.timeout(PERIOD):
                    await self._seen.wait()
            except TimeoutError:
                pass
            self._seen.clear()
            if not self._leaving() and annotations(self._pod) != self._annotations:
                self._annotations = annotations(self._pod)
                await self.refresh()
            self._restart_if_ended()

    def _start(self) -> None:
        self._process = self._setting.spawner.start(
            f"the deliverer of pod {self.name}",
            (*self._setting.command, *self._arguments()),
            log=self.log,
        )

    def _restart_if_ended(self) -> None:
        assert self._process is not None
        if self._process.exit_code() is None:
            return
        self.started.clear()
        self.ready.clear()
        if self.restarts == RESTARTS:
            raise self._process.failed(f"ended {RESTARTS + 1} times")
        self.restarts += 1
        self._start()

    async def _end_surely(self) -> None:
        """End process and pod; cancelled, do so without the grace of a deletion."""
        ending = asyncio.create_task(self._end())
        try:
            await asyncio.shield(ending)
        except asyncio.CancelledError:
            if self._process is not None:
                self._process.kill()
            await ending
            raise

    async def _end(self) -> None:
        if self._process is not None:
            # A deleted pod's deliverer takes leave; a test that is over does not wait for it.
            grace = self._pod["metadata"].get("deletionGracePeriodSeconds") if self._latest else 0
            await asyncio.to_thread(self._process.stop, grace=grace or 0)
        self.started.clear()
        self.ready.clear()
        # What outlives a container but not its pod; a claim's files are elsewhere.
        await asyncio.to_thread(shutil.rmtree, self._folder / VOLUMES, ignore_errors=True)
        if self._latest is not None:
            preconditions = {"uid": self.uid}
            await self._request(
                "DELETE", "", {"gracePeriodSeconds": 0, "preconditions": preconditions}
            )

    def _mounted(self) -> list[Object]:
        mounts = {mount["name"] for mount in self._container.get("volumeMounts") or ()}
        known = {"secret", "projected", "emptyDir", "persistentVolumeClaim"}
        found = []
        for volume in self._pod["spec"].get("volumes") or ():
            # Every container gets this one of the service account; a deliverer has no use for it.
            if volume["name"] in mounts and not volume["name"].startswith("kube-api-access-"):
                if not known & volume.keys():
                    raise UnsupportedVolume(f"pod {self.name}: volume {volume}")
                found.append(volume)
        return found

    def _arguments(self) -> list[str]:
        folders = {
            mount["mountPath"]: self.volume(mount["name"])
            for mount in self._container.get("volumeMounts") or ()
        }
        return map_arguments(self._container["args"], folders=folders, address=self.address)

    async def _probe_and_tell(self) -> None:
        """Probe the deliverer, and write the pod's status where that is something new."""
        started = self.started.is_set() or await self._has_started()
        ready = started and await self._passes("readinessProbe")
        if self._process is None or self._process.exit_code() is not None:
            return  # what answered the probe is no more
        facts = (started, ready, self.restarts)
        if facts != self._told:
            now = datetime.datetime.now(datetime.UTC)
            status = pod_status(
                self._pod,
                address=self.address,
                started=started,
                ready=ready,
                restarts=self.restarts,
                now=now.strftime("%Y-%m-%dT%H:%M:%SZ"),
            )
            await self._request("PATCH", "/status", {"status": status})
            self._told = facts
        for event, holds in ((self.started, started), (self.ready, ready)):
            if holds:
                event.set()
            else:
                event.clear()

    async def _has_started(self) -> bool:
        """Look where a sidecar's postStart hook looks, which is a process to itself."""
        hook = self._container["lifecycle"].get("postStart")
        if hook is None:
            return await self._passes("startupProbe")
        return await self._answers(f"{self.url(port_asked(hook))}/startupz")

    async def _passes(self, name: str) -> bool:
        probe = self._container.get(name)
        if probe is None:
            return True
        get = probe["httpGet"]
        port = container_port(self._container, get["port"])
        return await self._answers(self.url(port) + get["path"])

    async def _answers(self, url: str) -> bool:
        try:
            async with self._setting.session.get(url) as answer:
                return answer.status < 400
        except (aiohttp.ClientError, TimeoutError):
            return False
