"""What the kubelet's part works out of a pod."""

import ipaddress
from pathlib import Path
from typing import Any

import pytest

from cluster.pod_parts import container_port, deliverer_of, map_arguments, pod_address, pod_status
from cluster.volumes import write_volume

FOLDERS = {"/etc/pillion": Path("/pods/a")}


@pytest.mark.parametrize(
    ("argument", "mapped"),
    [
        ("/etc/pillion", ["/pods/a"]),
        ("/etc/pillion/operator-token", ["/pods/a/operator-token"]),
        ("/etc/pillion2", ["/etc/pillion2"]),
        ("127.0.0.1:8288", ["127.1.2.3:8288"]),
        ("0.0.0.0:8289", ["127.1.2.3:8289"]),
        ("10.0.0.1:53", ["10.0.0.1:53"]),
        ("127.0.0.1:port", ["127.0.0.1:port"]),
        ("--refuse-loopback", []),
        ("--service", ["--service"]),
    ],
)
def test_an_argument_means_here_what_it_means_in_a_container(
    argument: str, mapped: list[str]
) -> None:
    assert map_arguments([argument], folders=FOLDERS, address="127.1.2.3") == mapped


def test_every_pod_has_a_loopback_address_of_its_own() -> None:
    addresses = {pod_address(str(number)) for number in range(200)}
    assert len(addresses) == 200
    assert all(ipaddress.ip_address(one).is_loopback for one in addresses)
    assert not any(one.startswith("127.0.") for one in addresses)


def test_a_probe_may_name_its_port() -> None:
    container = {"ports": [{"name": "metrics", "containerPort": 8289}]}
    assert (container_port(container, "metrics"), container_port(container, 80)) == (8289, 80)


def pod(**deliverer: Any) -> dict[str, Any]:
    containers = [{"name": "pillion-deliverer", "image": "p", **deliverer}]
    application = [{"name": "application", "image": "a"}]
    conditions = [{"type": "PodScheduled", "status": "True"}]
    return {
        "spec": {"initContainers": containers, "containers": application},
        "status": {"conditions": conditions},
    }


def test_a_pod_without_a_deliverer_has_none() -> None:
    assert deliverer_of({"spec": {"containers": [{"name": "application"}]}}) is None
    found = deliverer_of(pod())
    assert found is not None
    assert found["image"] == "p"


@pytest.mark.parametrize(
    ("started", "ready", "phase", "conditions"),
    [
        (False, False, "Pending", {"Initialized": "False", "Ready": "False"}),
        (True, False, "Running", {"Initialized": "True", "Ready": "False"}),
        (True, True, "Running", {"Initialized": "True", "Ready": "True"}),
    ],
)
def test_the_status_says_how_far_the_deliverer_is(
    started: bool, ready: bool, phase: str, conditions: dict[str, str]
) -> None:
    status = pod_status(
        pod(), address="127.1.2.3", started=started, ready=ready, restarts=2, now="now"
    )
    found = {one["type"]: one["status"] for one in status["conditions"]}
    assert status["phase"] == phase
    assert found["PodScheduled"] == "True"
    assert {name: found[name] for name in conditions} == conditions
    assert [one["restartCount"] for one in status["initContainerStatuses"]] == [2]
    assert [one["started"] for one in status["containerStatuses"]] == [started]


def test_a_condition_that_stays_keeps_its_time() -> None:
    before = pod()
    before["status"] = pod_status(
        before, address="a", started=True, ready=False, restarts=0, now="then"
    )
    after = pod_status(before, address="a", started=True, ready=True, restarts=0, now="now")
    times = {one["type"]: one.get("lastTransitionTime") for one in after["conditions"]}
    assert (times["Initialized"], times["Ready"]) == ("then", "now")


def test_files_are_swapped_all_at_once(tmp_path: Path) -> None:
    assert write_volume(tmp_path / "v", {"a": b"1", "b": b"2"})
    folder = tmp_path / "v"
    first = (folder / "..data").resolve()
    assert write_volume(folder, {"b": b"3", "c": b"4"})
    assert {path.name: path.read_bytes() for path in folder.iterdir() if path.is_file()} == {
        "b": b"3",
        "c": b"4",
    }
    assert (folder / "b").resolve() == (folder / "..data").resolve() / "b"
    assert not first.exists()


def test_the_same_files_are_left_alone(tmp_path: Path) -> None:
    write_volume(tmp_path, {"a": b"1"})
    before = (tmp_path / "..data").readlink()
    assert not write_volume(tmp_path, {"a": b"1"})
    assert (tmp_path / "..data").readlink() == before


def test_a_volume_without_files_is_an_empty_folder(tmp_path: Path) -> None:
    assert write_volume(tmp_path / "v", {})
    assert not write_volume(tmp_path / "v", {})
    assert [path.name for path in (tmp_path / "v").iterdir() if path.name[:2] != ".."] == []
