"""Connects to the API server by a pod's service account or a kubeconfig."""

import asyncio
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import ApiClient, Configuration
from kubernetes.aio.config import kube_config

from pillion_operator.cluster.api import Api

_UNREADABLE = (
    kube_config.yaml.YAMLError,  # type: ignore[attr-defined]
    AttributeError,
    TypeError,
    KeyError,
)


async def connect(kubeconfig: Path | None, *, context: str | None) -> Configuration:
    """Return the client's configuration. Without ``kubeconfig``: the pod's service account, whose
    token is reread as it rotates, else ``KUBECONFIG`` or ``~/.kube/config``.

    Raises ValueError or OSError with the cause.
    """
    configuration = Configuration()
    if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
        try:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        except config.ConfigException as error:
            raise ValueError(str(error)) from error
        return configuration
    named = str(kubeconfig or os.environ.get("KUBECONFIG") or "~/.kube/config")
    if not await asyncio.to_thread(_any_exists, named):
        # The library would log a warning and call the file invalid.
        raise ValueError(
            f"there is no kubeconfig {named}; name one with --kubeconfig, or run in a pod"
        )
    try:
        await config.load_kube_config(  # type: ignore[no-untyped-call]
            config_file=None if kubeconfig is None else str(kubeconfig),
            context=context,
            client_configuration=configuration,
        )
    except config.ConfigException as error:
        raise ValueError(f"{named}: {error}") from error
    except _UNREADABLE as error:
        raise ValueError(
            f"{named} is no kubeconfig: it has to be YAML with clusters, users and contexts"
        ) from error
    return configuration


def _any_exists(paths: str) -> bool:
    return any(Path(one).expanduser().exists() for one in paths.split(os.pathsep) if one)


@asynccontextmanager
async def connected(kubeconfig: Path | None, *, context: str | None = None) -> AsyncIterator[Api]:
    """The API server inside the context. Raises ValueError or OSError with the cause."""
    async with ApiClient(await connect(kubeconfig, context=context)) as client:
        yield Api(client)
