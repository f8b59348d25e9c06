"""What a check makes in the cluster. Pure."""

from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.types import our_type
from pillion_operator.names import INJECT_LABEL

#: The labels of everything that a check creates.
PART_OF = {"app.kubernetes.io/part-of": "pillion", "app.kubernetes.io/component": "check"}

#: The kinds of the resources, in the order in which they are made; they go the other way round.
KINDS = (
    "IndicationService",
    "ListenerDestination",
    "IndicationFilter",
    "IndicationSubscription",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """What is checked: ``name`` is that of all resources, ``listener`` a URL that the gateway's pod
    reaches, ``publisher`` the namespace and service account of the token."""

    namespace: str
    name: str
    listener: str
    publisher: tuple[str, str]
    #: The image of the pod that injection is tried with; it never runs.
    image: str = "pillion-check"

    def documents(self) -> list[dict[str, Any]]:
        """The resources: a gateway, and one listener that takes all alerts."""
        account = {"namespace": self.publisher[0], "serviceAccount": self.publisher[1]}
        reference = {"name": self.name}
        specs: dict[str, dict[str, Any]] = {
            "IndicationService": {
                "deliverer": {"mode": "Gateway"},
                "publishers": [account],
                # So that an unreachable listener is reported within the check's time.
                "deliveryRetryIntervalSeconds": 1,
            },
            "ListenerDestination": {"destination": self.listener, "protocol": "CIM-XML"},
            "IndicationFilter": {"query": "SELECT * FROM CIM_AlertIndication"},
            "IndicationSubscription": {
                "serviceRef": reference,
                "filterRef": reference,
                "destinationRef": reference,
            },
        }
        return [
            {
                "apiVersion": our_type(kind).api_version,
                "kind": kind,
                "metadata": self._metadata(),
                "spec": specs[kind],
            }
            for kind in KINDS
        ]

    def pod(self) -> dict[str, Any]:
        """A pod with an injection label, for a dry run."""
        metadata = self._metadata()
        # A service that is not there injects as well as one that is, and the check's own does not.
        metadata["labels"] = {**metadata["labels"], INJECT_LABEL: f"{self.name}-sidecar"}
        security = {
            "allowPrivilegeEscalation": False,
            "capabilities": {"drop": ["ALL"]},
        }
        container = {
            "name": "application",
            "image": self.image,
            "securityContext": security,
            "resources": {
                "requests": {"cpu": "10m", "memory": "16Mi"},
                "limits": {"cpu": "10m", "memory": "16Mi"},
            },
        }
        context = {
            "runAsNonRoot": True,
            "runAsUser": 65532,
            "seccompProfile": {"type": "RuntimeDefault"},
        }
        return {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": metadata,
            "spec": {
                "automountServiceAccountToken": False,
                "securityContext": context,
                "containers": [container],
            },
        }

    def _metadata(self) -> dict[str, Any]:
        return {"name": self.name, "namespace": self.namespace, "labels": dict(PART_OF)}


def indication(identifier: str) -> dict[str, Any]:
    return {
        "class": "CIM_AlertIndication",
        "properties": {
            "IndicationIdentifier": identifier,
            "AlertType": 5,
            "PerceivedSeverity": 2,
            "ProbableCause": 1,
            "Description": "A check of the installation of Pillion: nothing has happened.",
        },
    }
