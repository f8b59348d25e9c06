"""The kubelet's part on a loop of its own, for tests that block."""

import asyncio
import threading
from collections.abc import Coroutine, Iterator
from contextlib import AsyncExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from cluster.deliverer_pod import DelivererPod
from cluster.pods import PodRunner, running_pods
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.users import KUBELET

Result = TypeVar("Result")


class Kubelet:
    """A ``PodRunner``, whose methods block."""

    def __init__(self, runner: PodRunner, loop: asyncio.AbstractEventLoop) -> None:
        self._runner = runner
        self._loop = loop

    def ready(self, name: str) -> DelivererPod:
        """Wait until the pod is ready and the API says so."""
        return self._wait(self._runner.ready(name))

    def ended(self, name: str) -> None:
        """Wait until a deleted pod's deliverer has ended and the pod is gone."""
        self._wait(self._runner.ended(name))

    def refresh(self, name: str) -> None:
        """Bring what has changed in a pod's Secrets, as a kubelet does now and then by itself."""
        self._wait(self._runner.pods[name].refresh())

    def _wait(self, work: Coroutine[Any, Any, Result]) -> Result:
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()


@contextmanager
def running_kubelet(
    control_plane: ControlPlane, namespace: str, *, folder: Path
) -> Iterator[Kubelet]:
    """Run the deliverers of a namespace's pods while the context lasts."""
    with asyncio.Runner() as owner:
        loop = owner.get_loop()
        thread = threading.Thread(target=loop.run_forever, name="kubelet")
        thread.start()
        stack = AsyncExitStack()

        async def started() -> PodRunner:
            return await stack.enter_async_context(
                running_pods(
                    namespace,
                    folder=folder,
                    server=control_plane.url,
                    ca=control_plane.ca,
                    token=control_plane.token(KUBELET.name),
                )
            )

        try:
            runner = asyncio.run_coroutine_threadsafe(started(), loop).result()
            try:
                yield Kubelet(runner, loop)
            finally:
                asyncio.run_coroutine_threadsafe(stack.aclose(), loop).result()
        finally:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
