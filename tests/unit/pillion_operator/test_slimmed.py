"""What the store keeps of an object."""

from typing import Any

import pytest

from pillion_operator.names import APPLIED_ANNOTATION, REVISION_ANNOTATION
from pillion_operator.store import slimmed


def body(kind: str, **more: Any) -> dict[str, Any]:
    metadata = {"namespace": "shop", "name": "one", "uid": "u", "resourceVersion": "7"}
    return {"apiVersion": "v1", "kind": kind, "metadata": metadata, **more}


@pytest.mark.parametrize("kind", ["Pod", "Secret", "IndicationService"])
def test_annotations_of_others_are_not_kept(kind: str) -> None:
    given = body(kind)
    ours = {APPLIED_ANNOTATION: "a", REVISION_ANNOTATION: "b"}
    given["metadata"]["annotations"] = {
        "kubectl.kubernetes.io/last-applied-configuration": "x" * 100_000,
        "pillion.development/other": "y",
        **ours,
    }

    assert slimmed(given)["metadata"]["annotations"] == ours
    assert len(given["metadata"]["annotations"]) == 4


def test_what_nobody_reads_is_not_kept() -> None:
    given = body(
        "Pod",
        spec={"containers": [{"name": "app"}]},
        status={"phase": "Running", "podIP": "10.0.0.1", "containerStatuses": [{}]},
    )
    given["metadata"]["managedFields"] = [{}]
    slim = slimmed(given)

    assert "managedFields" not in slim["metadata"]
    assert slim["spec"] == {}
    assert slim["status"] == {"phase": "Running", "podIP": "10.0.0.1"}


def test_one_without_annotations_is_as_it_was() -> None:
    given = body("Secret", data={"token": "b25l"})

    assert slimmed(given) == given
