"""What an operator is told on its command line, as opposed to by resources."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

from pillion_sidecar.config.addresses import AddressPolicy


@dataclass(frozen=True, slots=True)
class Address:
    """Where to listen. Port 0: any free one."""

    host: str
    port: int


class SidecarPolicy(StrEnum):
    """Which pods with a sidecar get a NetworkPolicy that opens the port of its telemetry.

    A pod that no other policy selects is closed by it to everything else.
    """

    NONE = "None"
    #: Those that Spark 4.2 and newer puts behind a policy of its own.
    SPARK_EXECUTORS = "SparkExecutors"
    ALL = "All"


@dataclass(frozen=True, slots=True, kw_only=True)
class NetworkSettings:
    """The NetworkPolicies that are made for deliverers."""

    gateways: bool = True
    sidecars: SidecarPolicy = SidecarPolicy.NONE
    #: Who reaches the telemetry of deliverers, as peers of a NetworkPolicy; empty: anybody in the
    #: cluster.
    telemetry_from: tuple[Mapping[str, Any], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class DelivererDefaults:
    """What a deliverer's container is made of where its IndicationService does not say."""

    image: str
    image_pull_policy: str | None = None
    #: The Secrets with which it is pulled where neither the pod nor a gateway's template names any.
    pull_secrets: tuple[str, ...] = ()
    #: ``requests`` and ``limits``, as in a container.
    resources: Mapping[str, Any] = field(
        default_factory=lambda: {
            "requests": {"cpu": "50m", "memory": "96Mi"},
            "limits": {"memory": "384Mi"},
        }
    )
    #: Which addresses destinations may lead to.
    addresses: AddressPolicy = field(default_factory=AddressPolicy)
    network: NetworkSettings = field(default_factory=NetworkSettings)


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    """The injecting webhook. Certificates are the operator's own unless a folder has them."""

    address: Address = Address("0.0.0.0", 9443)
    #: The Service by which the API server reaches it.
    service: str = "pillion-webhook"
    #: The Secret, in the operator's namespace, with its own CA and certificate.
    secret: str = "pillion-webhook"
    #: The MutatingWebhookConfiguration whose caBundle is kept up to date; None: somebody else does.
    configuration: str | None = "pillion-injector"
    #: A folder with tls.crt and tls.key, such as cert-manager's Secret mounted.
    certificates: Path | None = None
    #: Names and addresses that its own certificate is made out to besides the Service's name.
    hosts: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OperatorSettings:
    """The settings of one operator process."""

    deliverer: DelivererDefaults
    #: The namespaces to serve; empty: all of them.
    namespaces: tuple[str, ...] = ()
    #: Of which namespaces the API server asks the webhook, as a label selector in the form that a
    #: request takes; None: of all.
    namespace_selector: str | None = None
    #: Where the operator itself lives: its Lease, its Secrets.
    namespace: str = "pillion-system"
    #: Who this process is among its replicas.
    identity: str = "pillion-operator"
    #: The Lease that makes one replica the leader; None: this process alone is there.
    lease: str | None = "pillion-operator"
    #: The Secret, in the operator's namespace, from which deliverers' bearer tokens are derived.
    token_secret: str = "pillion-operator"
    #: The Secret, in the operator's namespace, with the authority of gateways that is kept there.
    gateway_secret: str = "pillion-gateways"
    #: A Secret of somebody else's, in the same namespace, with the authority to take instead of
    #: one of the operator's own (tls.crt, tls.key); None: its own.
    gateway_authority: str | None = None
    #: None: no injection.
    webhook: WebhookSettings | None = field(default_factory=WebhookSettings)
    telemetry: Address = Address("0.0.0.0", 8081)
    #: Seconds between two looks at a deliverer's queues in calm, as long as deliverers are few.
    gather_interval: float = 10.0
    #: Whether pods are annotated so that the kubelet refreshes their configuration at once.
    poke: bool = True
    #: Seconds from one listing of everything to the next, which finds what the watches have missed.
    resync_interval: float = 300.0
    kubeconfig: Path | None = None
    context: str | None = None

    @property
    def installation(self) -> str:
        """What tells this installation from others of the cluster; its replicas have the same, and
        so has each life of one that elects no leader."""
        return f"{self.namespace}/{self.lease or self.token_secret}"
