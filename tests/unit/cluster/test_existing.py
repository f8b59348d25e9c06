"""Whose cluster the tests may use."""

import json
from pathlib import Path

import pytest

from pillion_testbed.existing import RefusedCluster, existing_cluster


def environment(folder: Path, context: str | None, asked: str = "true") -> dict[str, str]:
    path = folder / "config"
    path.write_text(json.dumps({"current-context": context} if context is not None else {}))
    return {"USE_EXISTING_CLUSTER": asked, "KUBECONFIG": str(path)}


@pytest.mark.parametrize("name", ["kind-a", "k3d-b", "minikube", "my-pillion-test-2"])
def test_a_cluster_that_is_named_as_a_test_cluster_is_used(tmp_path: Path, name: str) -> None:
    found = existing_cluster(environment(tmp_path, name))
    assert found is not None
    assert (found.context, found.kubeconfig()) == (name, tmp_path / "config")


@pytest.mark.parametrize("name", ["production", "kind", "Kind-a", "not-minikube", "k3d", ""])
def test_any_other_is_refused_by_name(tmp_path: Path, name: str) -> None:
    with pytest.raises(RefusedCluster, match=repr(name) if name else "no current-context"):
        existing_cluster(environment(tmp_path, name))


def test_a_kubeconfig_without_a_context_is_refused(tmp_path: Path) -> None:
    with pytest.raises(RefusedCluster, match="has no current-context"):
        existing_cluster(environment(tmp_path, None))


@pytest.mark.parametrize("kubeconfig", ["", "/nowhere/config", "/a:/b"])
def test_a_cluster_that_was_asked_for_needs_one_kubeconfig(kubeconfig: str) -> None:
    with pytest.raises(RefusedCluster, match="needs KUBECONFIG to name one file"):
        existing_cluster({"USE_EXISTING_CLUSTER": "true", "KUBECONFIG": kubeconfig})


@pytest.mark.parametrize("asked", ["", "false", "0"])
def test_a_kubeconfig_alone_is_no_request(tmp_path: Path, asked: str) -> None:
    assert existing_cluster(environment(tmp_path, "production", asked)) is None
