"""The fixtures of the test bed, for every test on a node."""

from cluster.story_fixtures import (
    deliverer_image,
    pillion,
    pywbem_image,
    weather,
    weather_image,
)
from pillion_testbed.node_fixtures import (
    node_cluster,
    node_kubectl,
    node_namespace,
    own_nodes,
    pytest_collection_finish,
    pytest_collection_modifyitems,
    pytest_configure,
    pytest_terminal_summary,
    report,
)

__all__ = [
    "deliverer_image",
    "node_cluster",
    "node_kubectl",
    "node_namespace",
    "own_nodes",
    "pillion",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_configure",
    "pytest_terminal_summary",
    "pywbem_image",
    "report",
    "weather",
    "weather_image",
]
