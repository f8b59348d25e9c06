"""The operator's settings, from its command line."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pillion_sidecar.config.addresses import Address, AddressPolicy

_WEBHOOK = Address("0.0.0.0", 9443)
_TELEMETRY = Address("0.0.0.0", 8081)


class SidecarPolicy(StrEnum):
    """Which pods with a sidecar get a NetworkPolicy that opens the telemetry port. It closes every
    other port of a pod that no other policy selects."""

    NONE = "None"
    #: Executors, for which Spark 4.2 and newer has a policy of its own.
    SPARK_EXECUTORS = "SparkExecutors"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    gateways: bool = True
    sidecars: SidecarPolicy = SidecarPolicy.NONE
    #: The peers of a NetworkPolicy that may reach telemetry; empty: every pod of the cluster.
    telemetry_from: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererDefaults:
    """For fields that its IndicationService leaves out."""

    image: str
    image_pull_policy: str | None = None
    #: Unless the pod or the gateway's template names any.
    pull_secrets: tuple[str, ...] = ()
    #: ``requests`` and ``limits``, as in a container.
    resources: Mapping[str, Any] = field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "384Mi"},
        }
    )
    #: Those that destinations may have.
    addresses: AddressPolicy = field(default_factory=AddressPolicy)
    network: NetworkSettings = field(default_factory=NetworkSettings)
    #: Whether the operator's console reaches them.
    console: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The certificate is the operator's own, unless a folder is set."""

    address: Address = _WEBHOOK
    service: str = "pillion-webhook"
    #: The Secret, in the operator's namespace, with its own CA and certificate.
    secret: str = "pillion-webhook"
    #: The MutatingWebhookConfiguration whose caBundle the operator writes; None: it writes none.
    configuration: str | None = "pillion-injector"
    #: A folder with tls.crt and tls.key, such as cert-manager's Secret mounted.
    certificates: Path | None = None
    #: Names and addresses of its own certificate besides the Service's name.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    deliverer: DelivererDefaults
    #: Empty: all.
    namespaces: tuple[str, ...] = ()
    #: The namespaces for which the API server calls the webhook, as a label selector of a query;
    #: None: all.
    namespace_selector: str | None = None
    #: The operator's own namespace, with its Lease and Secrets.
    namespace: str = "pillion-system"
    identity: str = "pillion-operator"
    #: The Lease of the leader; None: there is one replica only.
    lease: str | None = "pillion-operator"
    #: The Secret, in the operator's namespace, from which deliverers' bearer tokens are derived.
    token_secret: str = "pillion-operator"
    #: The Secret, in the operator's namespace, that keeps the authority of gateways.
    gateway_secret: str = "pillion-gateways"
    #: A user's Secret in the same namespace (tls.crt, tls.key) with the authority to use; None: the
    #: operator makes one.
    gateway_authority: str | None = None
    #: None: no injection.
    webhook: WebhookSettings | None = field(default_factory=WebhookSettings)
    telemetry: Address = _TELEMETRY
    #: The web page for the whole cluster; None: there is none.
    console: Address | None = None
    #: Seconds between two polls of a deliverer's queues, when idle and with few deliverers.
    gather_interval: float = 10.0
    #: Whether to annotate pods, so that the kubelet refreshes their configuration at once.
    poke: bool = True
    #: Seconds between two full listings, which find what the watches have missed.
    resync_interval: float = 300.0
    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def installation(self) -> str:
        """Unique in the cluster, and the same for all replicas and restarts."""
        return f"{self.namespace}/{self.lease or self.token_secret}"
