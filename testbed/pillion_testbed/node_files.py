"""What is written for a node: the configuration of its programs, and what runs on it at once."""

import json
from pathlib import Path
from typing import Any

#: The pause container of every pod, and whatever a test wants of a small program.
PROBE_IMAGE = "localhost/pillion-test/probe:1"
COREDNS_IMAGE = "localhost/pillion-test/coredns:1"
STORAGE_CLASS = "standard"
PROVISIONER = "pillion.dev/test-folders"
DOMAIN = "cluster.local"

Object = dict[str, Any]


def containerd_config(*, root: Path, run: Path, cni: Path, plugins: Path, registries: Path) -> str:
    """containerd with folders of its own; nothing of it is below /var/lib or /opt."""
    return f"""version = 2
root = "{root}"
state = "{run / "state"}"
disabled_plugins = ["io.containerd.snapshotter.v1.btrfs", "io.containerd.snapshotter.v1.zfs",
  "io.containerd.snapshotter.v1.devmapper", "io.containerd.snapshotter.v1.aufs",
  "io.containerd.internal.v1.tracing"]

[grpc]
  address = "{run / "containerd.sock"}"

[plugins."io.containerd.internal.v1.opt"]
  path = "{root / "opt"}"

[plugins."io.containerd.grpc.v1.cri"]
  sandbox_image = "{PROBE_IMAGE}"
  # Without CAP_SYS_RESOURCE, which a root in a virtual machine may lack, no pod starts otherwise.
  restrict_oom_score_adj = true
  # A pod's network namespace is then found and unmounted with the rest.
  netns_mounts_under_state_dir = true
  stream_server_address = "127.0.0.1"

[plugins."io.containerd.grpc.v1.cri".cni]
  bin_dir = "{plugins}"
  conf_dir = "{cni}"

[plugins."io.containerd.grpc.v1.cri".registry]
  config_path = "{registries}"

[plugins."io.containerd.grpc.v1.cri".containerd]
  snapshotter = "overlayfs"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
  runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
  SystemdCgroup = false
  Root = "{run / "runc"}"
"""


def plain_registry(address: str) -> str:
    """A registry that containerd asks over HTTP; it reads this again at each pull."""
    return f"""server = "http://{address}"

[host."http://{address}"]
  capabilities = ["pull", "resolve"]
"""


def network_config(*, name: str, pods: str, data: Path) -> Object:
    """The pods' bridge on a node. Pods keep their addresses wherever they go: all is routed."""
    bridge = {
        "type": "bridge",
        "bridge": "pods",
        "isGateway": True,
        "ipMasq": False,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "ranges": [[{"subnet": pods}]],
            "routes": [{"dst": "0.0.0.0/0"}],
            "dataDir": str(data),
        },
    }
    portmap = {"type": "portmap", "capabilities": {"portMappings": True}}
    return {"cniVersion": "1.0.0", "name": name, "plugins": [bridge, portmap]}


def kubelet_config(*, folder: Path, socket: Path, cgroup: str, dns: str, lease: int) -> Object:
    """``lease``: seconds within which a sign of life must come; four are sent in them."""
    return {
        "apiVersion": "kubelet.config.k8s.io/v1beta1",
        "kind": "KubeletConfiguration",
        # Logs and exec need no client certificate then.
        "authentication": {"anonymous": {"enabled": True}, "webhook": {"enabled": False}},
        "authorization": {"mode": "AlwaysAllow"},
        "containerRuntimeEndpoint": f"unix://{socket}",
        "cgroupDriver": "cgroupfs",
        "cgroupRoot": cgroup,
        "clusterDomain": DOMAIN,
        "clusterDNS": [dns],
        "resolvConf": str(folder / "resolv.conf"),
        "podLogsDir": str(folder / "pod-logs"),
        "volumePluginDir": str(folder / "volume-plugins"),
        "nodeLeaseDurationSeconds": lease,
        "nodeStatusUpdateFrequency": "4s",
        "syncFrequency": "10s",
        "failSwapOn": False,
        "oomScoreAdj": 0,
        "readOnlyPort": 0,
        "serializeImagePulls": False,
        # Tests read what a pod wrote from its beginning.
        "containerLogMaxSize": "256Mi",
        # The disk is the machine's, which may be nearly full; no image may go, none comes back.
        "imageGCHighThresholdPercent": 100,
        "evictionHard": {
            "memory.available": "100Mi",
            "nodefs.available": "1%",
            "imagefs.available": "1%",
            "nodefs.inodesFree": "1%",
        },
    }


def proxy_config(*, kubeconfig: Path, node: str, pods: str) -> Object:
    return {
        "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
        "kind": "KubeProxyConfiguration",
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "hostnameOverride": node,
        "clusterCIDR": pods,
        "mode": "iptables",
        "oomScoreAdj": 0,
        "healthzBindAddress": "127.0.0.1:10256",
        "metricsBindAddress": "127.0.0.1:10249",
        # Some of these are the whole machine's, and not to be changed.
        "conntrack": {
            "maxPerCore": 0,
            "min": 0,
            "tcpEstablishedTimeout": "0s",
            "tcpCloseWaitTimeout": "0s",
        },
        "iptables": {"localhostNodePorts": False, "minSyncPeriod": "0s", "syncPeriod": "30s"},
    }


def storage_class() -> Object:
    """The default one."""
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "StorageClass",
        "metadata": {
            "name": STORAGE_CLASS,
            "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
        },
        "provisioner": PROVISIONER,
        # A volume is a folder on the node of the first pod that wants it.
        "volumeBindingMode": "WaitForFirstConsumer",
    }


# Two servers, since CoreDNS asks ``template`` before ``kubernetes`` whatever their order here.
COREFILE = f"""{DOMAIN}:53 in-addr.arpa:53 ip6.arpa:53 {{
  errors
  ready
  kubernetes {DOMAIN} in-addr.arpa ip6.arpa {{
    ttl 5
  }}
}}
.:53 {{
  errors
  template ANY ANY {{
    rcode NXDOMAIN
  }}
}}
"""
LABELS = {"k8s-app": "kube-dns"}


def dns_objects(address: str) -> list[Object]:
    """CoreDNS at the address that pods ask. It knows Services, and no name of anywhere else."""
    meta = {"name": "coredns", "namespace": "kube-system", "labels": LABELS}
    rule = ("rbac.authorization.k8s.io/v1", "rbac.authorization.k8s.io")
    return [
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": meta},
        {
            "apiVersion": rule[0],
            "kind": "ClusterRole",
            "metadata": {"name": "system:coredns"},
            "rules": [
                {
                    "apiGroups": [""],
                    "resources": ["services", "namespaces"],
                    "verbs": ["list", "watch"],
                },
                {
                    "apiGroups": ["discovery.k8s.io"],
                    "resources": ["endpointslices"],
                    "verbs": ["list", "watch"],
                },
            ],
        },
        {
            "apiVersion": rule[0],
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "system:coredns"},
            "roleRef": {"apiGroup": rule[1], "kind": "ClusterRole", "name": "system:coredns"},
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
        {
            "apiVersion": "v1",
            "kind": "ConfigMap",
            "metadata": meta,
            "data": {"Corefile": COREFILE},
        },
        _dns_deployment(meta),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {**meta, "name": "kube-dns"},
            "spec": {
                "selector": LABELS,
                "clusterIP": address,
                "ports": [
                    {"name": "dns", "port": 53, "protocol": "UDP"},
                    {"name": "dns-tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    ]


def _dns_deployment(meta: Object) -> Object:
    container = {
        "name": "coredns",
        "image": COREDNS_IMAGE,
        "imagePullPolicy": "Never",
        "args": ["-conf", "/etc/coredns/Corefile"],
        "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 1},
        "securityContext": {
            "runAsUser": 0,
            "capabilities": {"drop": ["ALL"], "add": ["NET_BIND_SERVICE"]},
            "readOnlyRootFilesystem": True,
        },
        "volumeMounts": [{"name": "configuration", "mountPath": "/etc/coredns"}],
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": meta,
        "spec": {
            "selector": {"matchLabels": LABELS},
            "template": {
                "metadata": {"labels": LABELS},
                "spec": {
                    "serviceAccountName": "coredns",
                    "dnsPolicy": "Default",
                    "priorityClassName": "system-cluster-critical",
                    # Whatever happens to other nodes, names are found.
                    "nodeSelector": {"kubernetes.io/hostname": FIRST_NODE},
                    "containers": [container],
                    "volumes": [{"name": "configuration", "configMap": {"name": "coredns"}}],
                },
            },
        },
    }


FIRST_NODE = "node-1"


def write_json(path: Path, content: Object) -> Path:
    """Write what the programs read as YAML; JSON is YAML."""
    path.write_text(json.dumps(content, indent=1))
    return path
