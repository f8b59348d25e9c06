"""helm, for tests that do what an administrator does with the chart."""

import os
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml

from pillion_testbed.binaries import KUBERNETES, find_binaries

CHART = Path(__file__).parents[2] / "charts" / "pillion"
#: The rule files of Prometheus: of deliverers, and of the operator.
ALERT_FILES = tuple(CHART / "files" / name for name in ("alerts.yaml", "operator-alerts.yaml"))
CRDS = Path(__file__).parents[2] / "crds"
RELEASE = "pillion"

Object = dict[str, Any]


class HelmFailed(AssertionError):
    """helm ended with an error; ``printed`` is what it said."""

    def __init__(self, command: str, printed: str) -> None:
        super().__init__(f"{command}: {printed}")
        self.printed = printed


@dataclass(frozen=True, slots=True, kw_only=True)
class Helm:
    """helm, and the cluster that it installs into. ``folder`` keeps what it caches."""

    program: Path
    folder: Path
    kubeconfig: Path | None = None
    chart: Path = field(default=CHART)

    def run(self, *arguments: str) -> str:
        """Run a command and return what it prints; HelmFailed where it fails."""
        # Nothing of the user's own: neither a cluster nor plug-ins nor repositories.
        kept = {key: value for key, value in os.environ.items() if not key.startswith("HELM_")}
        kept |= {f"HELM_{kind}_HOME": str(self.folder / kind) for kind in ("CACHE", "CONFIG")}
        kept |= {"HELM_DATA_HOME": str(self.folder / "data")}
        kept |= {"KUBECONFIG": str(self.kubeconfig or os.devnull)}
        command = [str(self.program), *arguments]
        ran = subprocess.run(command, env=kept, capture_output=True, text=True, check=False)
        if ran.returncode != 0:
            raise HelmFailed(f"helm {' '.join(arguments)}", (ran.stdout + ran.stderr).strip())
        return ran.stdout

    def template(
        self,
        *values: str,
        namespace: str = "pillion-system",
        version: str = KUBERNETES,
        tests: bool = False,
    ) -> list[Object]:
        """Render the chart, with ``--set`` for each of ``values``; no cluster is asked. ``tests``:
        what `helm test` makes is among it.
        """
        command = ["template", RELEASE, str(self.chart), f"--namespace={namespace}"]
        if not tests:
            command.append("--skip-tests")
        printed = self.run(*command, f"--kube-version={version}", *settings(values))
        return [found for found in yaml.safe_load_all(printed) if found]

    def upgrade(self, namespace: str, *values: str, options: Sequence[str] = ()) -> str:
        """``helm upgrade --install``; returns what it prints, NOTES among it."""
        command = ("upgrade", "--install", RELEASE, str(self.chart), f"--namespace={namespace}")
        return self.run(*command, *options, *settings(values))

    def uninstall(self, namespace: str) -> str:
        """``helm uninstall``, until everything is gone."""
        return self.run("uninstall", RELEASE, f"--namespace={namespace}", "--wait")


def settings(values: Sequence[str]) -> list[str]:
    """The options for values: ``key=value`` each, the value as JSON or a plain word."""
    return [part for value in values for part in _setting(value)]


def _setting(value: str) -> tuple[str, str]:
    _key, _, text = value.partition("=")
    return ("--set-json" if text[:1] in '[{"' or text == "null" else "--set", value)


def find_helm(folder: Path, *, kubeconfig: Path | None = None) -> Helm:
    """The helm of the test bed, built if it is not there yet."""
    return Helm(program=find_binaries(os.environ).helm(), folder=folder, kubeconfig=kubeconfig)


def of_kind(objects: Sequence[Object], kind: str) -> list[Object]:
    """The objects of one kind."""
    return [found for found in objects if found["kind"] == kind]


def only(objects: Sequence[Object], kind: str, name: str | None = None) -> Object:
    """The one object of a kind (and a name)."""
    (found,) = [one for one in of_kind(objects, kind) if name in (None, one["metadata"]["name"])]
    return found


#: Values that each exercise other templates, by what they are about.
MATRIX: dict[str, tuple[str, ...]] = {
    "default": (),
    "namespaced": ('scope.namespaces=["default","kube-public"]',),
    "replicas": ("replicas=3", "podDisruptionBudget.maxUnavailable=2"),
    "cert-manager": ("injection.certificates.source=CertManager",),
    "cert-manager-issuer": (
        "injection.certificates.source=CertManager",
        'injection.certificates.certManager.issuerRef={"name":"corporate","kind":"ClusterIssuer"}',
    ),
    "no-injection": ("injection.enabled=false", "injection.evict=false"),
    "fail": (
        "injection.failurePolicy=Fail",
        'injection.namespaceSelector={"matchLabels":{"team":"a"},'
        '"matchExpressions":[{"key":"env","operator":"In","values":["prod"]}]}',
    ),
    "console": (
        "console.enabled=true",
        "console.port=8091",
        'networkPolicy.consoleFrom=[{"namespaceSelector":{}}]',
    ),
    "no-poke": ("poke.enabled=false",),
    "nothing-cluster-wide": (
        'scope.namespaces=["default"]',
        "injection.enabled=false",
        "poke.enabled=false",
        "crds.install=false",
        "rbac.aggregateToUserRoles=false",
        "rbac.admissionPolicy=false",
    ),
    "no-roles": ("rbac.create=false", "serviceAccount.create=false", "serviceAccount.name=mine"),
    "digests": (
        "image.repository=registry.example.com:5000/pillion",
        f"image.digest=sha256:{'a' * 64}",
        "deliverer.image.repository=registry.example.com/deliverer",
        f"deliverer.image.digest=sha256:{'b' * 64}",
        "deliverer.image.pullPolicy=Always",
        'imagePullSecrets=[{"name":"pull"}]',
        'deliverer.imagePullSecrets=[{"name":"one"},{"name":"two"}]',
    ),
    "network": (
        'networkPolicy.metricsFrom=[{"namespaceSelector":{}}]',
        'networkPolicy.webhookFrom=[{"ipBlock":{"cidr":"198.18.0.0/15"}}]',
        'networkPolicy.egress=[{"ports":[{"port":443,"protocol":"TCP"}]}]',
    ),
    "gateways": (
        "gateways.certificateAuthority.secretName=corporate-ca",
        "networkPolicy.deliverers.gateways=false",
        "networkPolicy.deliverers.sidecars=SparkExecutors",
        'networkPolicy.deliverers.metricsFrom=[{"podSelector":{}}]',
    ),
    "pod": (
        "runAsUser=null",
        'podLabels={"team":"a"}',
        'podAnnotations={"note":"b"}',
        "priorityClassName=high",
        'nodeSelector={"kubernetes.io/os":"linux"}',
        'tolerations=[{"operator":"Exists"}]',
        'affinity={"podAntiAffinity":{"preferredDuringSchedulingIgnoredDuringExecution":[{"weight":1,'
        '"podAffinityTerm":{"topologyKey":"kubernetes.io/hostname","labelSelector":{}}}]}}',
        'topologySpreadConstraints=[{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone",'
        '"whenUnsatisfiable":"ScheduleAnyway"}]',
        'serviceAccount.annotations={"a":"b"}',
        "fullnameOverride=other",
        "deliverer.allowLoopback=true",
        "deliverer.allowLinkLocal=true",
    ),
    "extra": (
        'commonLabels={"team":"a","app.kubernetes.io/name":"theirs"}',
        'crds.labels={"owner":"platform"}',
        'crds.annotations={"note":"b","helm.sh/resource-policy":"theirs"}',
        'extraArgs=["--gather-interval","5"]',
        'extraEnv=[{"name":"SSL_CERT_FILE","value":"/mnt/ca/ca.crt"}]',
        'extraVolumes=[{"name":"ca","configMap":{"name":"ca"}}]',
        'extraVolumeMounts=[{"name":"ca","mountPath":"/mnt/ca"}]',
        'extraObjects=[{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"one","namespace":'
        '"pillion-system"}},"apiVersion: v1\\nkind: ConfigMap\\nmetadata: {name: two, namespace: '
        '{{ .Release.Namespace }}}"]',
        "proxy.httpsProxy=http://proxy.example:3128",
        "proxy.noProxy=.svc",
        'podSecurityContext={"fsGroup":7}',
        'securityContext={"appArmorProfile":{"type":"RuntimeDefault"}}',
        "monitoring.serviceMonitor.enabled=true",
        'monitoring.serviceMonitor.labels={"team":"b"}',
    ),
    "host-network": (
        "injection.hostNetwork=true",
        "injection.port=10250",
        "telemetryPort=10251",
        "monitoring.serviceMonitor.enabled=true",
    ),
    "alerts": (
        "monitoring.rules.enabled=true",
        "monitoring.prometheusRule.enabled=true",
        'monitoring.alerts={"PillionQueueFilling":{"threshold":0.9,"severity":"warning","for":"5m"},'
        '"PillionGroupStalled":{"enabled":false},'
        '"PillionGatewayCertificateExpiring":{"threshold":7}}',
    ),
    "monitoring": tuple(
        f"monitoring.{part}.enabled=true"
        for part in ("serviceMonitor", "podMonitor", "prometheusRule", "dashboard")
    ),
    "scraping": (
        "monitoring.scrapeConfig.enabled=true",
        "monitoring.rules.enabled=true",
        "monitoring.manual=https://manual.example.com/pillion/",
    ),
    "scraping-namespaced": (
        "monitoring.scrapeConfig.enabled=true",
        "monitoring.podMonitor.enabled=true",
        "monitoring.serviceMonitor.enabled=true",
        'scope.namespaces=["default","kube-public"]',
    ),
}


def alert_groups() -> list[Any]:
    """The groups of all rule files."""
    return [
        group
        for path in ALERT_FILES
        for group in yaml.safe_load(path.read_text(encoding="utf-8"))["groups"]
    ]
