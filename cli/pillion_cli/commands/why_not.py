"""``pillion why-not``: explain why a pod has no sidecar."""

import argparse
import asyncio
import json
from collections.abc import Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any

from pillion_cli.arguments import Options, add_cluster_arguments, add_output_argument
from pillion_cli.exits import CommandError, Exit

if TYPE_CHECKING:
    from pillion_operator.cluster.api import Api
    from pillion_operator.injection.explaining import Explanation

HELP = """
Explain which rule keeps a pod without a sidecar, and what to do.

It applies the operator's own rules to the pod as it is now. It reads the pod, the
IndicationServices of its namespace, the namespace, and the webhook's configuration. You may lack
the rights for the last two: then it says what it has not checked.

examples:
  pillion why-not web-6d5f --namespace shop
  pillion why-not web-6d5f --namespace shop --output json

exit codes: 0 an explanation, or the pod has a sidecar; 1 there is no such pod, or the API server
cannot be reached; 2 a wrong command line.
"""
#: Seconds for all requests together.
TIMEOUT = 30.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("pod", metavar="POD", help="name of the pod")
    options = Options(parser)
    options.value("--namespace -n NAME", "its namespace", default="default")
    options.value(
        "--operator-namespace NAME",
        "the operator's namespace, if the webhook's configuration does not name it",
        default="pillion-system",
    )
    add_cluster_arguments(options)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    import aiohttp

    from pillion_operator.cluster.api import ApiError

    try:
        found = asyncio.run(asyncio.wait_for(_explained(args), TIMEOUT))
    except ApiError as error:
        raise CommandError(f"the API server refuses: {error}") from error
    except TimeoutError as error:
        raise CommandError(f"the API server did not answer within {TIMEOUT:g} s") from error
    except (aiohttp.ClientError, OSError, ValueError) as error:
        raise CommandError(f"the API server cannot be reached: {error}") from error
    print(shown(found, namespace=args.namespace, pod=args.pod, output=args.output))
    return Exit.OK


def shown(found: "Explanation", *, namespace: str, pod: str, output: str) -> str:
    injected = found.rule == "HasOne"
    if output == "json":
        return json.dumps(
            {
                "namespace": namespace,
                "pod": pod,
                "injected": injected,
                "rule": found.rule,
                "message": found.message,
                "remedy": found.remedy,
                "notChecked": found.unchecked,
            },
            ensure_ascii=False,
        )
    head = f"{namespace}/{pod} has {'a' if injected else 'no'} sidecar: {found.rule}"
    unchecked = [f"Not checked, since you may not read {what}." for what in found.unchecked]
    return "\n".join(line for line in (head, found.message, found.remedy, *unchecked) if line)


async def _explained(args: argparse.Namespace) -> "Explanation":
    from pillion_operator.cluster.connecting import connected

    async with connected(args.kubeconfig, context=args.context) as cluster:
        return await explained(
            cluster,
            namespace=args.namespace,
            pod=args.pod,
            operator_namespace=args.operator_namespace,
        )


async def explained(
    cluster: "Api", *, namespace: str, pod: str, operator_namespace: str
) -> "Explanation":
    """Raises CommandError if there is no such pod."""
    from pillion_operator.cluster.types import POD, our_type
    from pillion_operator.injection.explaining import Surroundings, explain

    found = await cluster.get(POD, namespace, pod)
    if found is None:
        raise CommandError(
            f"there is no pod {pod} in the namespace {namespace}; --namespace names another"
        )
    around = Surroundings(
        services=await cluster.list(our_type("IndicationService"), namespace),
        operator_namespace=operator_namespace,
        **await _cluster_wide(cluster, namespace),
    )
    return explain(found, around)


async def _cluster_wide(cluster: "Api", namespace: str) -> dict[str, Any]:
    """Read what a user of one namespace may not be allowed to read."""
    from pillion_operator.cluster.api import ApiError
    from pillion_operator.cluster.types import MUTATING_WEBHOOK, NAMESPACE

    reads: dict[str, Callable[[], Awaitable[Any]]] = {
        "namespace": partial(cluster.get, NAMESPACE, None, namespace),
        "configurations": partial(cluster.list, MUTATING_WEBHOOK),
    }
    found: dict[str, Any] = dict.fromkeys(reads)
    for name, read in reads.items():
        try:
            found[name] = await read()
        except ApiError as error:
            if error.status != 403:
                raise
    return found
