"""``pillion context``: named servers."""

import argparse
import json
import os
from pathlib import Path

from pillion_cli.arguments import Options, add_output_argument, deliverer_url
from pillion_cli.client import DEFAULT_URL
from pillion_cli.contexts import (
    NAME_RULE,
    Context,
    Contexts,
    contexts_path,
    is_name,
    read_contexts,
    write_contexts,
)
from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.config.problems import escape_controls, without_password

HELP = """
Name the servers that you work with, and choose the one that commands use: each command that has
--server takes the server, the CA certificates and the token file of a context by --context NAME.
--server and --context come first, then PILLION_SERVER, then PILLION_CONTEXT, then the current
context, which `use` sets.

The contexts are in pillion/contexts.json of $XDG_CONFIG_HOME or ~/.config, which only you may read.
A token is not in it: --token-file names the file with the token, which is read for each request.

`set` defines a context, or replaces it as a whole. `delete` removes one; if it is the current one,
there is none afterwards.

examples:
  pillion context set hub --server https://pillion-hub.shop.svc:8288 --ca ca.crt --token-file token
  pillion context use hub
  pillion context list
  pillion queues --context hub

exit codes: 0 done; 1 the file cannot be written; 2 a wrong command line, no such context, or a file
that cannot be read.
"""

ACTIONS = ("list", "use", "set", "delete")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=ACTIONS, help="action")
    parser.add_argument("name", metavar="NAME", nargs="?", help="name of the context")
    options = Options(parser)
    options.value(
        "--server URL", f"of set: URL of a deliverer, such as {DEFAULT_URL}", deliverer_url
    )
    options.file("--ca FILE", "of set: CA certificates of an https URL, in PEM [the system's]")
    options.file("--token-file FILE", "of set: file with the token for a gateway")
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    _check(args)
    path = contexts_path()
    found = read_contexts(path)
    match args.action:
        case "list":
            _list(found, path, args.output)
            return Exit.OK
        case "set":
            found.contexts[args.name] = _context(args)
            done = "set"
        case "use":
            found.named(args.name, path=path, by="use")
            found.current = args.name
            done = "the current context"
        case _:
            found.named(args.name, path=path, by="delete")
            del found.contexts[args.name]
            if found.current == args.name:
                found.current = None
            done = "deleted"
    write_contexts(path, found)
    if args.output == "json":
        print(json.dumps(found.document()))
    else:
        print(f"{args.name}: {done}")
    return Exit.OK


def _check(args: argparse.Namespace) -> None:
    if (args.name is None) is not (args.action == "list"):
        text = "NAME: not for list" if args.action == "list" else "NAME is missing"
        raise CommandError(text, code=Exit.USAGE)
    of_set = {"--server": args.server, "--ca": args.ca, "--token-file": args.token_file}
    if args.action != "set":
        if given := [name for name, value in of_set.items() if value is not None]:
            raise CommandError(f"{', '.join(given)}: only for set", code=Exit.USAGE)
        return
    if not is_name(args.name):
        raise CommandError(
            f"{escape_controls(args.name[:80])!r} is no name of a context: write {NAME_RULE}",
            code=Exit.USAGE,
        )
    if args.server is None:
        raise CommandError("set NAME needs --server URL", code=Exit.USAGE)


def _context(args: argparse.Namespace) -> Context:
    if not args.server.startswith("https://"):
        for option, value in (("--ca", args.ca), ("--token-file", args.token_file)):
            if value is not None:
                raise CommandError(f"{option} needs an https URL", code=Exit.USAGE)
    return Context(
        server=args.server, ca_file=_absolute(args.ca), token_file=_absolute(args.token_file)
    )


def _absolute(file: Path | None) -> str | None:
    """The commands that use it run in other folders."""
    return None if file is None else os.path.abspath(file)


def _list(found: Contexts, path: Path | None, output: str) -> None:
    if output == "json":
        print(json.dumps(found.document()))
        return
    if not found.contexts:
        where = "" if path is None else f" in {path}"
        print(f"no contexts{where}; pillion context set NAME --server URL defines one")
        return
    width = max(map(len, found.contexts))
    for name, one in sorted(found.contexts.items()):
        mark = "*" if name == found.current else " "
        print(escape_controls(f"{mark} {name:<{width}}  {without_password(one.server)}"))
