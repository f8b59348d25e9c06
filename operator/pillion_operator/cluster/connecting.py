"""The way to the API server: in a pod its service account, elsewhere a kubeconfig."""

import os
from pathlib import Path

from kubernetes.aio import config
from kubernetes.aio.client import Configuration


async def connect(kubeconfig: Path | None, *, context: str | None) -> Configuration:
    """The client's configuration. Without ``kubeconfig`` a pod's own service account is taken,
    whose token is read anew as it rotates, else ``KUBECONFIG`` or ``~/.kube/config``.

    Raises ValueError or OSError, which say what is missing.
    """
    configuration = Configuration()
    try:
        if kubeconfig is None and "KUBERNETES_SERVICE_HOST" in os.environ:
            config.load_incluster_config(  # type: ignore[no-untyped-call]
                client_configuration=configuration
            )
        else:
            await config.load_kube_config(  # type: ignore[no-untyped-call]
                config_file=None if kubeconfig is None else str(kubeconfig),
                context=context,
                client_configuration=configuration,
            )
    except config.ConfigException as error:
        raise ValueError(str(error)) from error
    return configuration
