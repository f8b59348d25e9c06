"""Which deliverer a command talks to: by option, environment or context."""

import argparse
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from pillion_cli.client import (
    CA_VARIABLE,
    DEFAULT_URL,
    TOKEN_VARIABLE,
    Access,
    DelivererClient,
    read_url,
)
from pillion_cli.contexts import CONTEXT_VARIABLE, contexts_path, read_contexts
from pillion_cli.exits import CommandError, Exit

#: The second one is the earlier name, which the Spark data source reads.
SERVER_VARIABLES = ("PILLION_SERVER", "PILLION_URL")


@dataclass(frozen=True, slots=True, kw_only=True)
class Server:
    url: str
    access: Access
    #: The option, variable or file to change, for messages.
    named_by: str


@contextmanager
def connected(args: argparse.Namespace, *, timeout: float) -> Iterator[DelivererClient]:
    """Yield a client of the deliverer that is named. Raises CommandError."""
    _check_pod(args)
    if args.pod is None:
        server = server_of(args)
        with DelivererClient(
            server.url, timeout=timeout, access=server.access, named_by=server.named_by
        ) as client:
            yield client
        return
    from pillion_cli.pods import Pod, forwarded

    pod = Pod(
        name=args.pod,
        namespace=args.namespace,
        kubeconfig=args.kubeconfig,
        kube_context=args.kube_context,
    )
    access = Access(ca=args.ca, token_file=args.token_file)
    with (
        forwarded(pod) as url,
        DelivererClient(
            url, timeout=timeout, access=access, named_by="--pod", shown=str(pod)
        ) as client,
    ):
        yield client


def server_of(args: argparse.Namespace) -> Server:
    """``--server`` and ``--context`` come before PILLION_SERVER, that before PILLION_CONTEXT and
    the current context. A context brings its own files: a token goes to no other server. Raises
    CommandError."""
    if args.server is not None:
        return _plain(args, args.server, "--server or PILLION_SERVER")
    if args.context is not None:
        return _of_context(args, args.context, "--context")
    for variable in SERVER_VARIABLES:
        if url := os.environ.get(variable):
            try:
                read_url(url)
            except CommandError as failure:
                raise CommandError(f"{variable}: {failure}", code=failure.code) from None
            return _plain(args, url, "--server or PILLION_SERVER")
    if name := os.environ.get(CONTEXT_VARIABLE):
        return _of_context(args, name, CONTEXT_VARIABLE)
    path = contexts_path()
    current = read_contexts(path).current
    if current is not None:
        return _of_context(args, current, f"current of {path}")
    return _plain(args, DEFAULT_URL, "--server or PILLION_SERVER")


def _plain(args: argparse.Namespace, url: str, named_by: str) -> Server:
    assumed = os.environ if urlsplit(url).scheme == "https" else {}
    access = Access(
        ca=args.ca or _path(assumed.get(CA_VARIABLE)),
        token_file=args.token_file or _path(assumed.get(TOKEN_VARIABLE)),
        ca_name="--ca" if args.ca else CA_VARIABLE,
        token_name="--token-file" if args.token_file else TOKEN_VARIABLE,
    )
    return Server(url=url, access=access, named_by=named_by)


def _of_context(args: argparse.Namespace, name: str, by: str) -> Server:
    path = contexts_path()
    found = read_contexts(path).named(name, path=path, by=by)
    where = f"the context {name}"
    try:
        read_url(found.server)
    except CommandError as failure:
        raise CommandError(f"{where} of {path}: {failure}", code=failure.code) from None
    access = Access(
        ca=args.ca or _path(found.ca_file),
        token_file=args.token_file or _path(found.token_file),
        ca_name="--ca" if args.ca else f"{where}: caFile",
        token_name="--token-file" if args.token_file else f"{where}: tokenFile",
    )
    return Server(url=found.server, access=access, named_by=f"--context or --server ({where})")


def _check_pod(args: argparse.Namespace) -> None:
    """Raises CommandError for options that would have no effect."""
    of_a_pod = {
        "--namespace": args.namespace,
        "--kubeconfig": args.kubeconfig,
        "--kube-context": args.kube_context,
    }
    given = [option for option, value in of_a_pod.items() if value is not None]
    if given and args.pod is None:
        raise CommandError(f"{', '.join(given)}: only with --pod", code=Exit.USAGE)


def _path(text: str | None) -> Path | None:
    return Path(text) if text else None
