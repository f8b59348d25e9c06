"""``pillion operator``: run the operator."""

import argparse
import asyncio
import json
import logging
import os
import socket
from pathlib import Path
from typing import Any

from pillion_cli.arguments import add_cluster_arguments, seconds_from, whole_number
from pillion_cli.exits import CommandError, Exit
from pillion_cli.serving import (
    add_logging_arguments,
    heed_signals,
    host_and_port,
    start_logging,
)
from pillion_operator.app import Operator, StartFailed
from pillion_operator.injection.selectors import rendered
from pillion_operator.leadership import LeadershipLost
from pillion_operator.settings import (
    Address,
    DelivererDefaults,
    NetworkSettings,
    OperatorSettings,
    SidecarPolicy,
    WebhookSettings,
)
from pillion_operator.telemetry.kopf_log import renamed_records
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.supervision import first

HELP = """\
Run the operator, which runs deliverers for IndicationServices, ListenerDestinations,
IndicationFilters and IndicationSubscriptions.

In a pod it uses the pod's service account; elsewhere KUBECONFIG or ~/.kube/config. Without
--namespace it serves all namespaces. Of several replicas one leads, by a Lease; the others answer
the webhook, and one of them takes over if the leader fails.

The first line of output is {"telemetry": URL, "webhook": URL}; logs go to standard error, or to
--log-file.

examples:
  pillion operator --deliverer-image registry.example/pillion:0.1.0
  pillion operator --deliverer-image IMAGE --namespace payments --namespace shipping
  pillion operator --deliverer-image IMAGE --no-webhook --no-leader-election

exit codes: 0 stopped by SIGTERM or Ctrl-C, 1 the start or the run failed, or the leadership was
lost, 2 a wrong command line.
"""
_DEFAULTS = WebhookSettings()


def add_gateways(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--gateway-secret",
        metavar="NAME",
        default="pillion-gateways",
        help="Secret of the operator's own certificate authority for gateways, created if missing "
        "[%(default)s]",
    )
    group.add_argument(
        "--gateway-authority",
        metavar="NAME",
        help="Secret of another certificate authority, in the operator's namespace: tls.crt and "
        "tls.key, as cert-manager writes them",
    )


def add_network(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--no-network-policies", action="store_true", help="create no NetworkPolicies for gateways"
    )
    group.add_argument(
        "--sidecar-network-policy",
        choices=[policy.value for policy in SidecarPolicy],
        default=SidecarPolicy.NONE.value,
        help="create NetworkPolicies that allow metrics scraping of pods with a sidecar: for "
        "SparkExecutors, which Spark 4.2 and newer closes, or for All. Caution: a pod that no "
        "other policy selects then rejects all other ingress [%(default)s]",
    )
    group.add_argument(
        "--telemetry-from",
        metavar="JSON",
        type=_peers,
        default=(),
        help="clients of the metrics of deliverers, as a list of NetworkPolicy peers "
        "[every pod of the cluster]",
    )


def _json(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(f"is not JSON: {error}") from error


def _peers(text: str) -> tuple[dict[str, Any], ...]:
    value = _json(text)
    if not isinstance(value, list) or not all(isinstance(peer, dict) for peer in value):
        raise argparse.ArgumentTypeError("is not a list of peers")
    return tuple(value)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    _add_cluster(parser.add_argument_group("the cluster"))
    _add_deliverers(parser.add_argument_group("deliverers"))
    _add_webhook(parser.add_argument_group("injection"))
    add_gateways(parser.add_argument_group("gateways"))
    add_network(parser.add_argument_group("network policies"))
    _add_process(parser.add_argument_group("the process"))


def _add_cluster(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--namespace",
        metavar="NAME",
        action="append",
        default=[],
        help="serve only this namespace; may be repeated [all namespaces]",
    )
    group.add_argument(
        "--operator-namespace",
        metavar="NAME",
        default=os.environ.get("POD_NAMESPACE", "pillion-system"),
        help="namespace of the operator's Lease and Secrets [$POD_NAMESPACE, else %(default)s]",
    )
    add_cluster_arguments(group)
    group.add_argument(
        "--no-poke",
        action="store_true",
        help="do not annotate pods; the kubelet updates a configuration in its own interval",
    )
    group.add_argument(
        "--resync-interval",
        metavar="SECONDS",
        type=whole_number(1, 86_400),
        default=300,
        help="interval between full lists, which find what a watch missed [%(default)s]",
    )


def _add_deliverers(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--deliverer-image",
        metavar="IMAGE",
        required=True,
        help="default image of deliverers",
    )
    group.add_argument(
        "--deliverer-image-pull-policy",
        choices=["Always", "IfNotPresent", "Never"],
        help="imagePullPolicy of the default image [the default of Kubernetes]",
    )
    group.add_argument(
        "--deliverer-pull-secret",
        metavar="NAME",
        action="append",
        default=[],
        help="default image pull Secret, in the pod's namespace; may be repeated",
    )
    group.add_argument(
        "--deliverer-resources",
        metavar="JSON",
        type=_resources,
        help='default requests and limits, such as {"requests": {"cpu": "50m"}}',
    )
    group.add_argument(
        "--gather-interval",
        metavar="SECONDS",
        type=seconds_from(0.1),
        default=10.0,
        help="interval between polls of a deliverer's queues, longer with many deliverers "
        "[%(default)s]",
    )
    group.add_argument(
        "--allow-loopback",
        action="store_true",
        help="allow destinations in the deliverer's own pod",
    )
    group.add_argument(
        "--allow-link-local",
        action="store_true",
        help="allow link-local destinations; metadata services stay refused",
    )
    group.add_argument(
        "--token-secret",
        metavar="NAME",
        default="pillion-operator",
        help="Secret with the key of deliverers' tokens, created if missing [%(default)s]",
    )


def _add_webhook(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--webhook",
        metavar="HOST:PORT",
        type=_address,
        default=_DEFAULTS.address,
        help="address of the webhook [0.0.0.0:9443]",
    )
    group.add_argument("--no-webhook", action="store_true", help="do not inject sidecars")
    group.add_argument(
        "--namespace-selector",
        metavar="JSON",
        type=_selector,
        help="the webhook's namespaceSelector, such as "
        '{"matchLabels": {"pillion": "yes"}}; pods of other namespaces need no sidecar '
        "[all namespaces]",
    )
    group.add_argument(
        "--webhook-service",
        metavar="NAME",
        default=_DEFAULTS.service,
        help="Service of the webhook [%(default)s]",
    )
    group.add_argument(
        "--webhook-host",
        metavar="NAME",
        action="append",
        default=[],
        help="additional name or address in the certificate, for a webhook outside the cluster; "
        "may be repeated",
    )
    group.add_argument(
        "--webhook-secret",
        metavar="NAME",
        default=_DEFAULTS.secret,
        help="Secret with the operator's own CA and certificate, created if missing [%(default)s]",
    )
    group.add_argument(
        "--webhook-configuration",
        metavar="NAME",
        default=_DEFAULTS.configuration,
        help="MutatingWebhookConfiguration whose caBundle is updated [%(default)s]",
    )
    group.add_argument(
        "--no-webhook-configuration",
        action="store_true",
        help="do not write caBundle",
    )
    group.add_argument(
        "--webhook-certificates",
        metavar="DIR",
        type=Path,
        help="use tls.crt and tls.key in this folder, such as a mounted cert-manager Secret",
    )


def _add_process(group: "argparse._ArgumentGroup") -> None:
    group.add_argument(
        "--telemetry",
        metavar="HOST:PORT",
        type=_address,
        default=Address("0.0.0.0", 8081),
        help="address of /metrics and the probes [0.0.0.0:8081]",
    )
    group.add_argument(
        "--identity",
        metavar="NAME",
        help="unique name of this replica in the Lease [host name and process]",
    )
    group.add_argument(
        "--lease",
        metavar="NAME",
        default="pillion-operator",
        help="Lease of the leading replica [%(default)s]",
    )
    group.add_argument(
        "--no-leader-election", action="store_true", help="use no Lease; for a single replica"
    )
    add_logging_arguments(group)


def _address(text: str) -> Address:
    return Address(*host_and_port(text, example="0.0.0.0:8081"))


def _selector(text: str) -> str | None:
    value = _json(text)
    if not isinstance(value, dict) or not set(value) <= {"matchLabels", "matchExpressions"}:
        raise argparse.ArgumentTypeError("is not an object with matchLabels and matchExpressions")
    try:
        found = rendered(value)
    except (AttributeError, KeyError, TypeError) as error:
        raise argparse.ArgumentTypeError("is not a label selector") from error
    if found is None and any(value.values()):
        raise argparse.ArgumentTypeError(
            "has an operator other than In, NotIn, Exists and DoesNotExist"
        )
    return found


def _resources(text: str) -> dict[str, dict[str, str]]:
    value = _json(text)
    if not isinstance(value, dict) or not set(value) <= {"requests", "limits"}:
        raise argparse.ArgumentTypeError("is not an object with requests and limits")
    return value


def settings_of(args: argparse.Namespace) -> OperatorSettings:
    defaults = DelivererDefaults(
        image=args.deliverer_image,
        image_pull_policy=args.deliverer_image_pull_policy,
        pull_secrets=tuple(args.deliverer_pull_secret),
        addresses=AddressPolicy(
            allow_loopback=args.allow_loopback, allow_link_local=args.allow_link_local
        ),
        network=NetworkSettings(
            gateways=not args.no_network_policies,
            sidecars=SidecarPolicy(args.sidecar_network_policy),
            telemetry_from=args.telemetry_from,
        ),
        **({} if args.deliverer_resources is None else {"resources": args.deliverer_resources}),
    )
    webhook = WebhookSettings(
        address=args.webhook,
        service=args.webhook_service,
        secret=args.webhook_secret,
        configuration=None if args.no_webhook_configuration else args.webhook_configuration,
        certificates=args.webhook_certificates,
        hosts=tuple(args.webhook_host),
    )
    return OperatorSettings(
        deliverer=defaults,
        namespaces=tuple(args.namespace),
        namespace_selector=args.namespace_selector,
        namespace=args.operator_namespace,
        identity=args.identity or f"{socket.gethostname()}-{os.getpid()}",
        lease=None if args.no_leader_election else args.lease,
        token_secret=args.token_secret,
        gateway_secret=args.gateway_secret,
        gateway_authority=args.gateway_authority,
        webhook=None if args.no_webhook else webhook,
        telemetry=args.telemetry,
        gather_interval=args.gather_interval,
        poke=not args.no_poke,
        resync_interval=args.resync_interval,
        kubeconfig=args.kubeconfig,
        context=args.context,
    )


def run(args: argparse.Namespace) -> int:
    output = start_logging(args)
    if args.log_level != "DEBUG":
        # kopf logs every event.
        logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        with renamed_records():
            asyncio.run(_serve(settings_of(args)))
    except ExceptionGroup as group:
        # Expected failures are one sentence; others show a trace.
        failure = first(group, StartFailed) or first(group, LeadershipLost)
        if failure is None:
            raise
        raise CommandError(str(failure)) from group
    finally:
        output.close()
    return Exit.OK


async def _serve(settings: OperatorSettings) -> None:
    stop = asyncio.Event()
    heed_signals(stop)
    operator = Operator(settings)
    async with asyncio.TaskGroup() as tasks:
        announcement = tasks.create_task(_announce(operator, stop))
        await operator.run(stop)
        announcement.cancel()


async def _announce(operator: Operator, stop: asyncio.Event) -> None:
    await operator.started.wait()
    # kopf has replaced the signal handlers, and would wait five seconds for tasks of others.
    heed_signals(stop)
    addresses = {"telemetry": operator.telemetry_url, "webhook": operator.webhook_url}
    # In one write: the log may go to the same file.
    print(json.dumps(addresses) + "\n", end="", flush=True)
