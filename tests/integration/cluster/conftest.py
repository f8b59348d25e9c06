"""The fixtures of the test bed, for every test of this folder."""

from cluster.fixtures import (
    admin_kubectl,
    api,
    cluster,
    control_plane,
    crds,
    day,
    identities,
    kubectl,
    kubelet,
    namespace,
    operators,
    pod_runner,
    pytest_collection_finish,
    pytest_terminal_summary,
    world,
)

__all__ = [
    "admin_kubectl",
    "api",
    "cluster",
    "control_plane",
    "crds",
    "day",
    "identities",
    "kubectl",
    "kubelet",
    "namespace",
    "operators",
    "pod_runner",
    "pytest_collection_finish",
    "pytest_terminal_summary",
    "world",
]
