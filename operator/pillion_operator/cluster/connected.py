"""The API server for a command that asks it something and ends."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio.client import ApiClient

from pillion_operator.cluster.api import Api
from pillion_operator.cluster.connecting import connect


@asynccontextmanager
async def connected(kubeconfig: Path | None, *, context: str | None = None) -> AsyncIterator[Api]:
    """The API server while the context lasts: a pod's own, else that of the kubeconfig.

    Raises ValueError or OSError, which say what is missing.
    """
    async with ApiClient(await connect(kubeconfig, context=context)) as client:
        yield Api(client)
