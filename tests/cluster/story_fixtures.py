"""pytest's fixtures for the story: Pillion installed on a node, and a namespace to use it in."""

import json
import uuid
from collections.abc import Iterator

import pytest

from cluster.story import EXAMPLE, SYSTEM, Installation, flight_board, operations
from pillion_testbed import images
from pillion_testbed.helm import find_helm
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.node_fixtures import Nodes
from pillion_testbed.report import Report


@pytest.fixture(scope="session")
def deliverer_image(node_cluster: Nodes) -> str:
    """The name of the deliverer's image, which every node has."""
    built = images.deliverer()
    node_cluster.import_image(built.archive)
    return built.name


@pytest.fixture(scope="session")
def weather_image(node_cluster: Nodes) -> str:
    """The name of the image of the Spark jobs, which every node has."""
    built = images.weather()
    node_cluster.import_image(built.archive)
    return built.name


@pytest.fixture(scope="session")
def pywbem_image(node_cluster: Nodes) -> str:
    """The name of the image of pywbem's listener, which every node has."""
    built = images.pywbem_listener()
    node_cluster.import_image(built.archive)
    return built.name


@pytest.fixture(scope="session")
def pillion(
    node_cluster: Nodes,
    node_kubectl: Kubectl,
    deliverer_image: str,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Installation]:
    """Pillion, as ``helm install`` makes it, in a namespace that enforces "restricted"."""
    helm = find_helm(tmp_path_factory.mktemp("helm"), kubeconfig=node_cluster.kubeconfig())
    installation = Installation(helm=helm, kubectl=node_kubectl, image=deliverer_image)
    node_kubectl.apply(json.dumps(restricted_namespace(SYSTEM)))
    installation.install()
    yield installation
    installation.uninstall()


@pytest.fixture(scope="module")
def weather(
    pillion: Installation, deliverer_image: str, pywbem_image: str, report: Report
) -> Iterator[Kubectl]:
    """The example's namespace, with its resources and listeners, all of it ready."""
    name = f"weather-{uuid.uuid4().hex[:6]}"
    kubectl = in_namespace(pillion.kubectl, name)
    kubectl.apply(json.dumps(restricted_namespace(name)))
    with report.step("listeners, and the example's resources until all are Ready"):
        flight_board(kubectl).deploy(deliverer_image)
        operations(kubectl).deploy(pywbem_image)
        kubectl.apply(EXAMPLE / "resources")
        kubectl.wait(
            "indicationservices,listenerdestinations,indicationsubscriptions",
            *("--all", "--for=condition=Ready"),
            within=90,
        )
    yield kubectl
    kubectl.run("delete", "namespace", name, "--wait=false")


def restricted_namespace(name: str) -> dict[str, object]:
    """A namespace that lets only pods in that pass Pod Security "restricted"."""
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": labels},
    }


def in_namespace(kubectl: Kubectl, namespace: str) -> Kubectl:
    """kubectl of the same user, in a namespace."""
    return Kubectl(program=kubectl.program, kubeconfig=kubectl.kubeconfig, namespace=namespace)
