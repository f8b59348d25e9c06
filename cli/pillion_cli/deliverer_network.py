"""The options of ``pillion operator`` about gateways, and about who reaches deliverers."""

import argparse
import json
from typing import Any

from pillion_operator.settings import NetworkSettings, SidecarPolicy


def add_gateways(group: "argparse._ArgumentGroup") -> None:
    """Declare the options about gateways."""
    group.add_argument(
        "--gateway-secret",
        metavar="NAME",
        default="pillion-gateways",
        help="the Secret with the authority of gateways' certificates that the operator keeps; "
        "made where it is missing [%(default)s]",
    )
    group.add_argument(
        "--gateway-authority",
        metavar="NAME",
        help="the Secret, in the operator's namespace, of an authority to take instead of one of "
        "its own: tls.crt and tls.key, as cert-manager writes them",
    )


def add_network(group: "argparse._ArgumentGroup") -> None:
    """Declare the options about NetworkPolicies."""
    group.add_argument("--no-network-policies", action="store_true", help="make none for gateways")
    group.add_argument(
        "--sidecar-network-policy",
        choices=[policy.value for policy in SidecarPolicy],
        default=SidecarPolicy.NONE.value,
        help="open the port of metrics of pods with a sidecar. A pod that no other policy selects "
        "is closed by it to all else, so: SparkExecutors where Spark closes its executors (4.2 "
        "and newer), All where every pod is closed [%(default)s]",
    )
    group.add_argument(
        "--telemetry-from",
        metavar="JSON",
        type=_peers,
        default=(),
        help="who reaches the metrics of deliverers, as a list of peers of a NetworkPolicy "
        "[anybody in the cluster]",
    )


def _peers(text: str) -> tuple[dict[str, Any], ...]:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from error
    if not isinstance(value, list) or not all(isinstance(peer, dict) for peer in value):
        raise argparse.ArgumentTypeError("is no list of peers")
    return tuple(value)


def network_of(args: argparse.Namespace) -> NetworkSettings:
    """The NetworkPolicies that a command line asks for."""
    return NetworkSettings(
        gateways=not args.no_network_policies,
        sidecars=SidecarPolicy(args.sidecar_network_policy),
        telemetry_from=args.telemetry_from,
    )
