"""``pillion init``: a folder of resources to begin with."""

import argparse
import json
import shutil
import sys
import tempfile
from pathlib import Path

from pillion_cli.arguments import Options, add_output_argument, file_path
from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, escape_controls
from pillion_sidecar.protocols import PROTOCOLS

HELP = """
Make a folder with the resources of a first deliverer: a service, a destination, a filter, and the
subscription that joins them, each in a file with comments. They are valid as they are; edit them,
and run `pillion validate DIR`. A destination of a protocol that needs more than a URL, such as a
topic, is for you to write: docs/listeners.md.

`pillion sidecar --resources DIR` runs them, and with --namespace `kubectl apply -f DIR` applies
them in a cluster, where a listener must not be on loopback.

examples:
  pillion init pillion.d
  pillion init pillion.d --name siem --url https://siem.example.com/events --protocol CloudEvents
  pillion init manifests --namespace shop --name siem --url https://siem.example.com/events

exit codes: 0 done, 1 the resources would not be valid, or the folder cannot be written; 2 a wrong
command line, or there is such a folder, and it is not empty.
"""

_HEAD = "apiVersion: pillion.dev/v1alpha1\nkind: {kind}\nmetadata: {{{metadata}}}\nspec:\n"
_SPECS = {
    "service": (
        "IndicationService",
        "# How patiently to deliver, and what is kept. Every field has a default.\n",
        "  # Seconds for which a deliverer that is stopped goes on delivering.\n"
        "  shutdownGracePeriodSeconds: 10\n",
    ),
    "destination": (
        "ListenerDestination",
        "# A listener.{how}\n",
        "  destination: {url}\n  protocol: {protocol}\n",
    ),
    "filter": (
        "IndicationFilter",
        "# Which indications: here alerts of severity 5 (major) and worse.\n",
        "  query: SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity >= 5\n",
    ),
    "subscription": (
        "IndicationSubscription",
        "# Who gets what: the filter and the destination.\n",
        "  filterRef: {{name: major-alerts}}\n  destinationRef: {{name: {name}}}\n",
    ),
}

_TRY_URL = "http://127.0.0.1:5990/"
_HOW_TO_TRY = " `pillion listen --port 5990` runs one for a first try."
#: Protocols whose destinations need nothing but a URL.
_PLAIN = [
    name
    for name, one in PROTOCOLS.items()
    if not (one.options_required or one.required_credentials)
]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=file_path, metavar="DIR", help="folder to make")
    options = Options(parser)
    options.value("--name NAME", "name of the destination", default="operations")
    options.value("--url URL", f"URL of the listener [{_TRY_URL}; none for a cluster]")
    options.choice("--protocol", _PLAIN, "protocol of the listener", "CIM-XML")
    options.value("--namespace -n NAME", "namespace of the resources, for a cluster [none]")
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    url = _url(args)
    folder: Path = args.directory
    shown = escape_controls(str(folder))
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        text = f"{shown} is there, and is no empty folder: name another one"
        raise CommandError(text, code=Exit.USAGE)
    try:
        names = _make(folder, args, url)
    except OSError as error:
        raise CommandError(f"{shown} cannot be written: {error.strerror}") from error
    if args.output == "json":
        print(json.dumps({"folder": str(folder), "files": names}))
        return Exit.OK
    for name in names:
        print(escape_controls(str(folder / name)))
    run_it = f"pillion sidecar --resources {folder}"
    print(
        escape_controls(f"next: kubectl apply -f {folder}" if args.namespace else f"next: {run_it}")
    )
    return Exit.OK


def _url(args: argparse.Namespace) -> str:
    """Raises CommandError where the one for a first try is none."""
    if args.url is not None:
        return str(args.url)
    if args.namespace is not None:
        text = "--namespace needs --url: in a cluster a listener must not be on loopback"
        raise CommandError(text, code=Exit.USAGE)
    schemes = [scheme.name for scheme in PROTOCOLS[args.protocol].schemes]
    if "http" not in schemes:
        text = f"--protocol {args.protocol} needs --url, which begins with {schemes[0]}://"
        raise CommandError(text, code=Exit.USAGE)
    return _TRY_URL


def _make(folder: Path, args: argparse.Namespace, url: str) -> list[str]:
    """Write the folder in one step, once it is valid; return the names of its files."""
    made = Path(tempfile.mkdtemp(prefix=".pillion-", dir=folder.absolute().parent))
    try:
        files = files_of(args.name, url, args.protocol, args.namespace)
        for name, text in files.items():
            (made / name).write_text(text, encoding="utf-8")
        try:
            load_folder(made)
        except ConfigurationError as error:
            for problem in error.problems:
                print(problem, file=sys.stderr)
            raise CommandError("nothing was written: the resources would not be valid") from error
        made.chmod(0o755)
        made.rename(folder)
    finally:
        shutil.rmtree(made, ignore_errors=True)
    return [*files]


def files_of(name: str, url: str, protocol: str, namespace: str | None) -> dict[str, str]:
    """Return the texts of the files by their names."""
    names = {
        "service": "default",
        "destination": name,
        "filter": "major-alerts",
        "subscription": f"major-alerts-to-{name}",
    }
    files = {}
    for part, (kind, comment, spec) in _SPECS.items():
        metadata = f"name: {json.dumps(names[part])}"
        if namespace is not None:
            metadata += f", namespace: {json.dumps(namespace)}"
        values = {"url": json.dumps(url), "protocol": protocol, "name": json.dumps(name)}
        head = _HEAD.format(kind=kind, metadata=metadata)
        told = comment.format(how=_HOW_TO_TRY if url == _TRY_URL else "")
        files[f"{part}.yaml"] = f"{told}{head}{spec.format(**values)}"
    return files
