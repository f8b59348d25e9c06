"""``pillion check``: whether an installation works, from the resources to a listener."""

import argparse
import asyncio
import signal
import time
import uuid
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from pillion_cli.arguments import (
    Options,
    add_cluster_arguments,
    add_output_argument,
    port_number,
    seconds_from,
)
from pillion_cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from pillion_cli.cluster_check import Arrived

HELP = """
Check that Pillion works in a Kubernetes cluster. The command creates an IndicationService in mode
Gateway, a destination, a filter and a subscription; waits until the operator has applied them;
publishes an indication to the gateway with the token of a service account; receives it itself;
and deletes the resources. It prints each step, and for a failed one the cause and where to look.

In a pod it uses the pod's service account; elsewhere KUBECONFIG or ~/.kube/config. It needs the
rights to get, create and delete Pillion's resources in the namespace and to get the ConfigMap
pillion-NAME; with --injection to create pods (as a dry run). `helm test` runs it.

examples:
  pillion check --namespace weather --address 10.1.2.3 --publisher weather:tester
  pillion check --namespace trial --address $POD_IP --publisher trial:tester --injection

exit codes: 0 it works, 1 a step failed, 2 a wrong command line,
130 interrupted with Ctrl-C or by SIGTERM.
"""

TOKEN = Path("/var/run/secrets/pillion/token")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.value("--namespace NAME", "namespace of the resources", required=True)
    options.value("--name NAME", "name of the resources", default="pillion-check")
    options.value(
        "--address ADDRESS",
        "address of this machine or pod, as the gateway can reach it",
        required=True,
    )
    options.value("--port PORT", "port to listen on; 0 takes a free one", port_number, 5988)
    options.value(
        "--publisher NAMESPACE:NAME", "service account of the token", _account, required=True
    )
    options.file("--token-file FILE", "file with its token for the audience pillion", TOKEN)
    options.value("--gateway URL", "URL of the gateway [https://pillion-NAME.NAMESPACE.svc:8288]")
    options.flag("--injection", "also check that a new pod gets a sidecar")
    options.value("--timeout SECONDS", "maximum time of each step", seconds_from(0.001), 120.0)
    add_cluster_arguments(options)
    add_output_argument(parser, "output format; json prints one object per line")


def _account(text: str) -> tuple[str, str]:
    namespace, _, name = text.partition(":")
    if not namespace or not name:
        raise argparse.ArgumentTypeError(f"{text!r} is not NAMESPACE:NAME")
    return namespace, name


def run(args: argparse.Namespace) -> int:
    from pillion_cli.listener.server import ListenError

    try:
        return Exit.OK if asyncio.run(_check(args)) else Exit.FAILED
    except asyncio.CancelledError:
        return Exit.INTERRUPTED
    except ListenError as error:
        raise CommandError(
            f"cannot listen on port {args.port}: {error}; choose another --port, or 0 for any"
        ) from error
    except (OSError, ValueError) as error:
        raise CommandError(f"the API server cannot be reached: {error}") from error


async def _check(args: argparse.Namespace) -> bool:
    from pillion_cli.cluster_check import Arrived, Check, HTTPSGateway, Plan, World
    from pillion_operator.cluster.connecting import connected
    from pillion_operator.names import gateway

    arrivals = Arrived()
    default = f"https://{gateway(args.name)}.{args.namespace}.svc:8288"
    numbers, mark = count(1), uuid.uuid4().hex
    async with (
        connected(args.kubeconfig, context=args.context) as cluster,
        _listening(args, arrivals) as port,
    ):
        plan = Plan(
            namespace=args.namespace,
            name=args.name,
            listener=f"http://{_in_url(args.address)}:{port}/check",
            publisher=args.publisher,
        )
        world = World(
            cluster=cluster,
            gateway=HTTPSGateway(args.gateway or default),
            arrivals=arrivals,
            monotonic=time.monotonic,
            sleep=asyncio.sleep,
            report=lambda step: print(
                step.as_json() if args.output == "json" else step.as_text(), flush=True
            ),
            # The kubelet replaces the token long before it expires.
            token=lambda: args.token_file.read_text(encoding="utf-8").strip(),
        )
        _end_at_sigterm()
        check = Check(
            plan,
            world,
            identifier=lambda: f"check-{mark}-{next(numbers)}",
            timeout=args.timeout,
            injection=args.injection,
        )
        return await check.run()


def _end_at_sigterm() -> None:
    """Cancel this task at SIGTERM; it then deletes its resources."""
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)


def _in_url(address: str) -> str:
    return f"[{address}]" if ":" in address else address


@asynccontextmanager
async def _listening(args: argparse.Namespace, arrivals: "Arrived") -> AsyncIterator[int]:
    from urllib.parse import urlsplit

    from pillion_cim.schema import load_schema
    from pillion_cli.commands.listen import LIFETIME
    from pillion_cli.listener.sequence import Sequencer
    from pillion_cli.listener.server import Behaviour, Listener, serve
    from pillion_sidecar.clock import LoopTimers, SystemClock

    timers = LoopTimers(loop=asyncio.get_running_loop())
    listener = Listener(
        schema=load_schema(),
        clock=SystemClock(),
        timers=timers,
        reporter=arrivals,
        sequencer=Sequencer(lifetime=LIFETIME),
        behaviour=Behaviour(),
    )
    # The gateway's pod is elsewhere.
    everywhere = "::" if ":" in args.address else "0.0.0.0"
    try:
        async with serve(listener, address=everywhere, port=args.port) as url:
            yield urlsplit(url).port or args.port
    finally:
        listener.end()
        timers.close()
