"""A pod's own containers begin once its sidecar takes indications."""

from collections.abc import Iterator

import pytest

from cluster.starts import intake_open, listening_namespace, ran_at, resources
from cluster.story import Installation
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.report import Report

pytestmark = pytest.mark.node


@pytest.fixture
def namespace(pillion: Installation, deliverer_image: str) -> Iterator[Kubectl]:
    with listening_namespace(pillion.kubectl, deliverer_image) as kubectl:
        yield kubectl


def test_the_intake_listens_before_a_publisher_begins(
    namespace: Kubectl, deliverer_image: str, report: Report
) -> None:
    namespace.apply(resources(namespace))
    namespace.wait("indicationservice/default", "--for=condition=Ready", within=60)
    with report.step("a pod with a sidecar starts"):
        began = ran_at(namespace, "publisher", image=deliverer_image, inject=True)
    assert intake_open(namespace, "publisher") < began, "the publisher would have found nobody"
