"""``pillion operator``: run the operator."""

import argparse
import asyncio
import json
import logging
import os
import socket
from typing import Any

from pillion_cli.arguments import Options, add_cluster_arguments, seconds_from, whole_number
from pillion_cli.exits import CommandError, Exit, short_collections
from pillion_cli.output import OutputError
from pillion_cli.serving import (
    add_logging_arguments,
    check_listeners,
    heed_signals,
    host_and_port,
    start_logging,
)
from pillion_operator.app import Operator, StartFailed
from pillion_operator.injection.selectors import rendered
from pillion_operator.leadership import LeadershipLost
from pillion_operator.settings import (
    DelivererDefaults,
    NetworkSettings,
    OperatorSettings,
    SidecarPolicy,
    WebhookSettings,
)
from pillion_operator.watching import renamed_records
from pillion_sidecar.config.addresses import Address, AddressPolicy
from pillion_sidecar.supervision import first

HELP = """\
Run the operator, which runs deliverers for IndicationServices, ListenerDestinations,
IndicationFilters, IndicationSubscriptions and IndicationReplays.

In a pod it uses the pod's service account; elsewhere KUBECONFIG or ~/.kube/config. Without
--namespace it serves all namespaces. Of several replicas one leads, by a Lease; the others answer
the webhook, and one of them takes over if the leader fails.

The first line of output is {"telemetry": URL, "webhook": URL}, with --console also "console"; logs
go to standard error, or to --log-file.

examples:
  pillion operator --deliverer-image registry.example/pillion:0.1.0
  pillion operator --deliverer-image IMAGE --namespace payments --namespace shipping
  pillion operator --deliverer-image IMAGE --no-webhook --no-leader-election

exit codes: 0 stopped by SIGTERM or Ctrl-C, 1 the start or the run failed, or the leadership was
lost, 2 a wrong command line.
"""


def add_gateways(options: Options) -> None:
    options.value(
        "--gateway-secret NAME",
        "Secret of the operator's own certificate authority for gateways, created if missing",
        default="pillion-gateways",
    )
    options.value(
        "--gateway-authority NAME",
        "Secret of another certificate authority, in the operator's namespace: tls.crt and "
        "tls.key, as cert-manager writes them",
    )


def add_network(options: Options) -> None:
    options.flag("--no-network-policies", "create no NetworkPolicies for gateways")
    options.choice(
        "--sidecar-network-policy",
        SidecarPolicy,
        "create NetworkPolicies that allow metrics scraping of pods with a sidecar: for "
        "SparkExecutors, which Spark 4.2 and newer closes, or for All. Caution: a pod that no "
        "other policy selects then rejects all other ingress",
        SidecarPolicy.NONE,
    )
    options.value(
        "--telemetry-from JSON",
        "clients of the metrics of deliverers, as a list of NetworkPolicy peers "
        "[every pod of the cluster]",
        _peers,
        (),
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
    options = Options(parser)
    _add_cluster(options.group("the cluster"))
    _add_deliverers(options.group("deliverers"))
    _add_webhook(options.group("injection"))
    add_gateways(options.group("gateways"))
    add_network(options.group("network policies"))
    _add_process(options.group("the process"))


def _add_cluster(options: Options) -> None:
    options.several(
        "--namespace NAME", "serve only this namespace; may be repeated [all namespaces]"
    )
    namespace = os.environ.get("POD_NAMESPACE", "pillion-system")
    options.value(
        "--operator-namespace NAME",
        f"namespace of the operator's Lease and Secrets [$POD_NAMESPACE, else {namespace}]",
        default=namespace,
    )
    add_cluster_arguments(options)
    options.flag(
        "--no-poke",
        "do not annotate pods; the kubelet updates a configuration in its own interval",
    )
    options.value(
        "--resync-interval SECONDS",
        "interval between full lists, which find what a watch missed",
        whole_number(1, 86_400),
        300,
    )


def _add_deliverers(options: Options) -> None:
    options.value("--deliverer-image IMAGE", "default image of deliverers", required=True)
    options.choice(
        "--deliverer-image-pull-policy",
        ("Always", "IfNotPresent", "Never"),
        "imagePullPolicy of the default image [the default of Kubernetes]",
    )
    options.several(
        "--deliverer-pull-secret NAME",
        "default image pull Secret, in the pod's namespace; may be repeated",
    )
    options.value(
        "--deliverer-resources JSON",
        'default requests and limits, such as {"requests": {"cpu": "50m"}}',
        _resources,
    )
    options.value(
        "--gather-interval SECONDS",
        "interval between polls of a deliverer's queues, longer with many deliverers",
        seconds_from(0.1),
        10.0,
    )
    options.flag("--allow-loopback", "allow destinations in the deliverer's own pod")
    options.flag(
        "--allow-link-local", "allow link-local destinations; metadata services stay refused"
    )
    options.value(
        "--token-secret NAME",
        "Secret with the key of deliverers' tokens, created if missing",
        default="pillion-operator",
    )


def _add_webhook(options: Options) -> None:
    defaults = WebhookSettings()
    options.value(
        "--webhook HOST:PORT",
        "address of the webhook [0.0.0.0:9443]",
        _address,
        defaults.address,
    )
    options.flag("--no-webhook", "do not inject sidecars")
    options.value(
        "--namespace-selector JSON",
        "the webhook's namespaceSelector, such as "
        '{"matchLabels": {"pillion": "yes"}}; pods of other namespaces need no sidecar '
        "[all namespaces]",
        _selector,
    )
    options.value("--webhook-service NAME", "Service of the webhook", default=defaults.service)
    options.several(
        "--webhook-host NAME",
        "additional name or address in the certificate, for a webhook outside the cluster; "
        "may be repeated",
    )
    options.value(
        "--webhook-secret NAME",
        "Secret with the operator's own CA and certificate, created if missing",
        default=defaults.secret,
    )
    options.value(
        "--webhook-configuration NAME",
        "MutatingWebhookConfiguration whose caBundle is updated",
        default=defaults.configuration,
    )
    options.flag("--no-webhook-configuration", "do not write caBundle")
    options.file(
        "--webhook-certificates DIR",
        "use tls.crt and tls.key in this folder, such as a mounted cert-manager Secret",
    )


def _add_process(options: Options) -> None:
    options.value(
        "--telemetry HOST:PORT",
        "address of /metrics and the probes [0.0.0.0:8081]",
        _address,
        Address("0.0.0.0", 8081),
    )
    options.value(
        "--console HOST:PORT",
        "address of the console, a web page that shows all deliverers to the bearer of a token "
        "of Kubernetes; it has no TLS, so use 127.0.0.1 with kubectl port-forward, or a proxy "
        "with TLS [no console]",
        _address,
    )
    options.value(
        "--identity NAME", "unique name of this replica in the Lease [host name and process]"
    )
    options.value("--lease NAME", "Lease of the leading replica", default="pillion-operator")
    options.flag("--no-leader-election", "use no Lease; for a single replica")
    add_logging_arguments(options)


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
        console=args.console is not None,
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
        console=args.console,
        gather_interval=args.gather_interval,
        poke=not args.no_poke,
        resync_interval=args.resync_interval,
        kubeconfig=args.kubeconfig,
        context=args.context,
    )


def run(args: argparse.Namespace) -> int:
    webhook = None if args.no_webhook else args.webhook
    check_listeners(
        {"--telemetry": args.telemetry, "--webhook": webhook, "--console": args.console}
    )
    output = start_logging(args)
    if args.log_level != "DEBUG":
        # kopf logs every event.
        logging.getLogger("kopf").setLevel(logging.WARNING)
    try:
        with renamed_records(), short_collections():
            asyncio.run(_serve(settings_of(args)))
    except ExceptionGroup as group:
        # Expected failures are one sentence; others show a trace.
        failure = first(group, StartFailed) or first(group, LeadershipLost)
        if failure is None:
            raise first(group, OutputError) or group from None
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
    if operator.console_url:
        addresses["console"] = operator.console_url
    # In one write: the log may go to the same file.
    print(json.dumps(addresses) + "\n", end="", flush=True)
