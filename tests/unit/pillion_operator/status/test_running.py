"""What a gateway's status says while it does not run."""

from pillion_operator.status.relaying import gateway_not_running

UNPLACED = {
    "metadata": {"name": "pillion-hub-0"},
    "status": {
        "phase": "Pending",
        "conditions": [
            {
                "type": "PodScheduled",
                "status": "False",
                "reason": "Unschedulable",
                "message": "0/1 nodes are available: pod has unbound immediate "
                "PersistentVolumeClaims.",
            }
        ],
    },
}


def message(storage_class: str | None) -> str:
    found = gateway_not_running(
        "hub", [UNPLACED], serving=set(), replicas=1, storage_class=storage_class
    )
    assert found is not None
    assert found.reason == "GatewayNotRunning"
    return found.message


def test_a_claim_that_is_not_bound_is_told_with_its_storage_class() -> None:
    assert message("fast") == (
        "0/1 pods serve. pillion-hub-0: Unschedulable (0/1 nodes are available: pod has unbound "
        "immediate PersistentVolumeClaims). Claims request StorageClass fast; check that it "
        "exists. Look at StatefulSet pillion-hub and its pods."
    )


def test_a_claim_of_the_default_class_names_none() -> None:
    assert "StorageClass" not in message(None)
