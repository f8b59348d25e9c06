"""What is written for a node."""

import tomllib
from pathlib import Path

from pillion_testbed.node_cluster import PATHS
from pillion_testbed.node_files import (
    containerd_config,
    dns_objects,
    kubelet_config,
    network_config,
    plain_registry,
    proxy_config,
)
from pillion_testbed.users import kubeconfig, node_user

FOLDER = Path("/tmp/cluster/nodes/node-1")


def test_containerd_keeps_nothing_outside_of_the_nodes_folder() -> None:
    text = containerd_config(
        root=FOLDER / "containerd",
        run=FOLDER / "run",
        cni=FOLDER / "cni",
        plugins=Path("/cni"),
        registries=FOLDER / "registries",
    )
    read = tomllib.loads(text)
    cri = read["plugins"]["io.containerd.grpc.v1.cri"]
    paths = [
        read["root"],
        read["state"],
        read["grpc"]["address"],
        read["plugins"]["io.containerd.internal.v1.opt"]["path"],
        cri["cni"]["conf_dir"],
        cri["registry"]["config_path"],
        cri["containerd"]["runtimes"]["runc"]["options"]["Root"],
    ]
    assert all(path.startswith(f"{FOLDER}/") for path in paths)
    assert cri["netns_mounts_under_state_dir"]
    assert cri["restrict_oom_score_adj"]


def test_a_registry_may_be_asked_without_tls() -> None:
    read = tomllib.loads(plain_registry("198.18.0.1:5000"))
    assert read == {
        "server": "http://198.18.0.1:5000",
        "host": {"http://198.18.0.1:5000": {"capabilities": ["pull", "resolve"]}},
    }


def test_the_kubelets_folders_are_the_nodes() -> None:
    config = kubelet_config(
        folder=FOLDER, socket=FOLDER / "s.sock", cgroup="/g", dns="10.96.0.10", lease=20
    )
    paths = [config[key] for key in ("resolvConf", "podLogsDir", "volumePluginDir")]
    assert all(path.startswith(f"{FOLDER}/") for path in paths)
    assert config["containerRuntimeEndpoint"] == f"unix://{FOLDER}/s.sock"
    assert (config["cgroupRoot"], config["clusterDNS"]) == ("/g", ["10.96.0.10"])


def test_pods_keep_their_addresses_on_the_way_to_other_nodes() -> None:
    config = network_config(name="n", pods="10.244.1.0/24", data=FOLDER / "data")
    bridge = config["plugins"][0]
    assert not bridge["ipMasq"]
    assert bridge["ipam"]["ranges"] == [[{"subnet": "10.244.1.0/24"}]]


def test_the_proxy_leaves_the_machines_own_settings_alone() -> None:
    config = proxy_config(kubeconfig=FOLDER / "k", node="node-1", pods="10.244.0.0/16")
    assert not any(str(value).strip("0s") for value in config["conntrack"].values())


def test_dns_has_the_address_that_pods_ask_and_a_place_for_each_object() -> None:
    objects = dns_objects("10.99.0.10")
    assert {one["kind"] for one in objects} <= set(PATHS)
    (service,) = [one for one in objects if one["kind"] == "Service"]
    assert service["spec"]["clusterIP"] == "10.99.0.10"


def test_a_kubelet_acts_as_its_node() -> None:
    content = kubeconfig(
        server="https://a", ca=FOLDER, user="kubelet", token="t", acting_as=node_user("node-2")
    )
    assert content["users"][0]["user"] == {
        "token": "t",
        "as": "system:node:node-2",
        "as-groups": ["system:nodes"],
    }
