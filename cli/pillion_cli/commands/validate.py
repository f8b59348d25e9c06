"""``pillion validate``: report every problem of a resource folder."""

import argparse
import json
from dataclasses import asdict
from pathlib import Path

from pillion_cli.arguments import Options, add_output_argument
from pillion_cli.exits import CommandError, Exit
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.resources import Configuration

HELP = """
Check a folder of resource files (*.yaml, *.yml, *.json, *.mof) with the deliverer's own loader, and
print every problem, one per line:

  file:line: kind/name: field: message (value ...). remedy

examples:
  pillion validate examples/first-subscription
  pillion validate DIR --output json | jq -r '.problems[] | .file + ": " + .remedy'

exit codes: 0 valid, 1 there are problems, 2 a wrong command line or no such folder.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("directory", type=Path, metavar="DIR", help="folder of resource files")
    Options(parser).value("--service NAME", "IndicationService to check [the only one]")
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    if not args.directory.is_dir():
        message = f"{args.directory} is not a folder. Name the folder that holds the files."
        raise CommandError(message, code=Exit.USAGE)
    configuration: Configuration | None = None
    problems: tuple[Problem, ...] = ()
    try:
        configuration = load_folder(args.directory, service=args.service)
        warnings = configuration.warnings
    except ConfigurationError as error:
        problems, warnings = error.problems, error.warnings
    if args.output == "json":
        document = {**_document(configuration, problems), "warnings": list(warnings)}
        print(json.dumps(document, indent=2))
    else:
        _print_text(configuration, problems, warnings)
    return Exit.FAILED if problems else Exit.OK


def _counts(configuration: Configuration) -> dict[str, int]:
    return {
        "destinations": len(configuration.destinations),
        "filters": len(configuration.filters),
        "subscriptions": len(configuration.subscriptions),
    }


def _counted(number: int, what: str) -> str:
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def _document(
    configuration: Configuration | None, problems: tuple[Problem, ...]
) -> dict[str, object]:
    if configuration is None:
        return {"valid": False, "problems": [asdict(problem) for problem in problems]}
    return {
        "valid": True,
        "revision": configuration.revision,
        "service": configuration.service.name,
        **_counts(configuration),
    }


def _print_text(
    configuration: Configuration | None, problems: tuple[Problem, ...], warnings: tuple[str, ...]
) -> None:
    for problem in problems:
        print(problem)
    for warning in warnings:
        print(f"warning: {warning}")
    if configuration is None:
        files = len({problem.file for problem in problems})
        print(f"{_counted(len(problems), 'problem')} in {_counted(files, 'file')}")
        return
    counted = ", ".join(
        _counted(number, what.removesuffix("s")) for what, number in _counts(configuration).items()
    )
    service = configuration.service.name
    print(f"valid: service {service}, {counted}; revision {configuration.revision}")
