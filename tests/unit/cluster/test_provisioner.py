"""Which volumes are made and removed."""

from pathlib import Path
from typing import Any

import pytest

from pillion_testbed.node_files import PROVISIONER
from pillion_testbed.provisioner import (
    PROVISIONED_BY,
    SELECTED_NODE,
    STORAGE_PROVISIONER,
    released,
    volume_for,
    wanted,
)


def claim(**other: Any) -> dict[str, Any]:
    notes = {STORAGE_PROVISIONER: PROVISIONER, SELECTED_NODE: "node-2", **other.pop("notes", {})}
    return {
        "metadata": {
            "namespace": "a",
            "name": "c",
            "uid": "1-2",
            "annotations": {key: value for key, value in notes.items() if value is not None},
            **other.pop("metadata", {}),
        },
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": "16Mi"}},
            "storageClassName": "standard",
            **other,
        },
    }


def test_a_claim_whose_node_is_chosen_gets_a_volume() -> None:
    assert wanted(claim())


@pytest.mark.parametrize(
    "other",
    [
        {"notes": {SELECTED_NODE: None}},
        {"notes": {STORAGE_PROVISIONER: "somebody.else/volumes"}},
        {"volumeName": "pvc-1"},
        {"metadata": {"deletionTimestamp": "now"}},
    ],
)
def test_any_other_claim_gets_none(other: dict[str, Any]) -> None:
    assert not wanted(claim(**other))


def test_the_volume_is_this_claims_alone_and_on_its_node() -> None:
    volume = volume_for(claim(), Path("/volumes"))
    spec = volume["spec"]
    assert volume["metadata"]["name"] == "pvc-1-2"
    assert spec["local"] == {"path": "/volumes/pvc-1-2"}
    assert (spec["claimRef"]["namespace"], spec["claimRef"]["uid"]) == ("a", "1-2")
    (term,) = spec["nodeAffinity"]["required"]["nodeSelectorTerms"]
    assert term["matchExpressions"][0]["values"] == ["node-2"]
    assert spec["capacity"] == {"storage": "16Mi"}


@pytest.mark.parametrize(
    ("by", "phase", "policy", "removed"),
    [
        (PROVISIONER, "Released", "Delete", True),
        (PROVISIONER, "Bound", "Delete", False),
        (PROVISIONER, "Released", "Retain", False),
        ("somebody.else/volumes", "Released", "Delete", False),
    ],
)
def test_a_volume_goes_when_its_claim_has_gone(
    by: str, phase: str, policy: str, removed: bool
) -> None:
    volume = volume_for(claim(), Path("/volumes"))
    volume["metadata"] |= {"annotations": {PROVISIONED_BY: by}}
    volume["spec"]["persistentVolumeReclaimPolicy"] = policy
    volume["status"] = {"phase": phase}
    assert released(volume) is removed
