"""The ``pillion`` command: imports and runs one module of :mod:`pillion_cli.commands`."""

import argparse
import difflib
import importlib
import itertools
import re
import sys
from collections.abc import Iterator, Sequence
from contextlib import nullcontext
from typing import Any, NoReturn, Protocol, cast

from pillion_cli.exits import MEANINGS, CommandError, Exit, ended_by_signals, gc_disabled
from pillion_cli.output import OutputError, checked_output

COMMANDS: dict[str, str] = {
    "sidecar": "run a deliverer from a folder of resource files",
    "operator": "run the operator in or for a Kubernetes cluster",
    "init": "make a folder of resources to begin with",
    "validate": "check resource files and list every problem",
    "publish": "send indications to a deliverer",
    "listen": "run a listener that prints what arrives and fails on request",
    "queues": "show the queue of each destination; skip or purge one",
    "outcomes": "show what became of each indication",
    "tail": "show outcomes as they happen: delivered, discarded, relayed",
    "explain": "explain what became of one indication, or which filters would select one",
    "test": "send a test indication to one destination, past its queue",
    "doctor": "check a deliverer and its destinations, and say what to do",
    "suspend": "suspend a destination in the deliverer's folder of resources",
    "resume": "resume a suspended destination",
    "discarded": "list, show, redrive or export the discarded indications",
    "drain": "attempt every pending delivery now, and wait until nothing is pending",
    "context": "name servers, and choose the one that commands use",
    "wait": "wait until a deliverer has started",
    "rules": "test and explain rules, which turn readings into alerts",
    "plugin": "run a script as a plug-in; check a plug-in",
    "journal": "inspect, verify or export a deliverer's journal; list its discards",
    "journals": "list the copies of journals that a gateway keeps",
    "why-not": "explain why a pod has no sidecar",
    "check": "check that Pillion works in a cluster, from the resources to a listener",
    "completion": "print the completion of commands and options for a shell",
    "help": "show the help of a command",
    "version": "print the version",
}

#: Commands that run until a signal.
_RUN_ON = frozenset({"sidecar", "operator", "listen"})
#: Commands that print nothing but their addresses.
_SERVERS = (["sidecar"], ["operator"])

DESCRIPTION = "Pillion delivers CIM indications to every subscribed listener, in order, with retry."


#: An option: not a negative number, no space.
_OPTION = re.compile(r"-[^\d\s][^\s=]+(=.*)?", re.DOTALL)
#: Options by the names that other programs use.
_OTHER_WORDS = {
    "--wait": "--timeout",
    "--url": "--server",
    "--token": "--token-file",
    "--json": "--output json",
    "--dir": "--resources",
    "--folder": "--resources",
}
_LONGEST_ERROR = 1000
_LONGEST_VALUE = 80


class Command(Protocol):
    HELP: str

    def add_arguments(self, parser: argparse.ArgumentParser) -> None: ...

    def run(self, args: argparse.Namespace) -> int: ...


class Parser(argparse.ArgumentParser):
    """Accepts no abbreviations, and reports a wrong command line in one line.

    A command that takes a program after ``--`` declares it by ``set_defaults(program=[])``.
    """

    def __init__(self, **given: Any) -> None:
        super().__init__(
            allow_abbrev=False, formatter_class=argparse.RawDescriptionHelpFormatter, **given
        )
        self.register("type", int, _whole_number)
        self.register("type", float, _number)

    def parse_args(  # type: ignore[override]
        self, args: Sequence[str] | None = None, namespace: None = None
    ) -> argparse.Namespace:
        given = list(sys.argv[1:] if args is None else args)
        program: list[str] = []
        if self.get_default("program") is not None and "--" in given:
            # Before argparse, which would remove a later -- of the program's own.
            end = given.index("--")
            given, program = given[:end], given[end + 1 :]
        # Before argparse, which would report a missing option instead of a misspelt one.
        for name in self._unknown_options(given):
            meant = self._meant(name)
            hint = f": did you mean {meant}?" if meant else ""
            self.error(f"unrecognized arguments: {name}{hint}")
        found, unknown = self.parse_known_args(given, namespace)
        if unknown:
            # As other commands take it: pillion queues NAME.
            named = "--destination" in self._option_string_actions
            hint = f": did you mean --destination {unknown[0]}?" if named else ""
            self.error(f"unrecognized arguments: {' '.join(unknown)}{hint}")
        if program:
            found.program = program
        return found

    def _unknown_options(self, args: Sequence[str]) -> Iterator[str]:
        options = itertools.takewhile(lambda one: one != "--", args)
        for name in (one.partition("=")[0] for one in options if _OPTION.fullmatch(one)):
            if name not in self._option_string_actions:
                yield name

    def _meant(self, name: str) -> str | None:
        known = [
            option
            for option, action in self._option_string_actions.items()
            if action.help is not argparse.SUPPRESS
        ]
        other = _OTHER_WORDS.get(name, "")
        if other.partition(" ")[0] in known:
            return other
        near = difflib.get_close_matches(name[:100], known, n=1, cutoff=0.7)
        # As --acknowledge, which is not similar enough to --ack.
        longer = [option for option in known if len(option) > 4 and name.startswith(option)]
        return next(iter([*near, *longer]), None)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Raises ArgumentError with the nearest choice, else with all."""
        if action.choices is None or value in action.choices:
            return
        choices = list(map(str, action.choices))
        near = difflib.get_close_matches(str(value)[:100], choices, n=1)
        remedy = f"did you mean {near[0]}?" if near else f"use {', '.join(choices)}"
        raise argparse.ArgumentError(
            action, f"invalid choice: {str(value)[:_LONGEST_VALUE]!r}: {remedy}"
        )

    def error(self, message: str) -> NoReturn:
        from pillion_sidecar.config.problems import escape_controls  # only for an error

        shown = message if len(message) <= _LONGEST_ERROR else f"{message[:_LONGEST_ERROR]}…"
        end = "" if shown.endswith("?") else ";"
        line = escape_controls(f"{self.prog}: {shown}{end} {self.prog} --help shows more")
        self.exit(Exit.USAGE, f"{line}\n")


def _whole_number(text: str) -> int:
    try:
        return int(text)
    except ValueError:
        shown = text[:_LONGEST_VALUE]
        raise argparse.ArgumentTypeError(f"{shown!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        shown = text[:_LONGEST_VALUE]
        raise argparse.ArgumentTypeError(f"{shown!r} is not a number") from None


class VersionAction(argparse.Action):
    def __call__(self, parser: argparse.ArgumentParser, *_args: object) -> NoReturn:
        print(version())
        parser.exit()


def version() -> str:
    from importlib import metadata  # takes as long as all other imports of this module

    return f"pillion {metadata.version('pillion')}"


def main(argv: Sequence[str] | None = None) -> int:
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        with checked_output(may_be_closed=arguments[:1] in _SERVERS):
            return _exit_code(arguments)
    except OutputError as failure:
        if failure.code is not Exit.BROKEN_PIPE:
            program = " ".join(["pillion", *arguments[:1]])
            print(f"{program}: {failure}", file=sys.stderr)
        return failure.code


def _exit_code(arguments: Sequence[str]) -> int:
    """Raises OutputError."""
    name = _chosen(arguments)
    try:
        # Before the imports, which take most of the start.
        with ended_by_signals() if _runs_on(name, arguments[1:]) else nullcontext():
            return _run(name, arguments[1:])
    except CommandError as failure:
        print(f"pillion {name}: {failure}", file=sys.stderr)
        return failure.code
    except KeyboardInterrupt:
        return Exit.INTERRUPTED


def _runs_on(name: str, arguments: Sequence[str]) -> bool:
    """Whether it runs until a signal. As the first process of a container it would never get one
    without a handler."""
    options = itertools.takewhile(lambda one: one != "--", arguments)
    return name in _RUN_ON or (name == "plugin" and "exec" in options)


def _run(name: str, arguments: Sequence[str]) -> int:
    # Imported objects stay, and the collector would take a tenth of the start.
    with gc_disabled():
        command = load(name)
    args = command_parser(name, command).parse_args(arguments)
    return int(command.run(args))


def _chosen(arguments: Sequence[str]) -> str:
    """Return the subcommand; exit for ``--help``, ``--version`` and mistakes."""
    parser = top_parser()
    later = next((one for one in arguments[1:] if one in COMMANDS), None)
    if arguments and later is not None and _is_misplaced(arguments[0]):
        parser.error(f"{arguments[0][:100]!r} is not a command: write pillion {later} first")
    args = parser.parse_args(arguments[:1])
    if args.command is None:
        parser.print_help(sys.stderr)
        parser.exit(Exit.USAGE)
    if args.command not in COMMANDS:
        near = difflib.get_close_matches(args.command[:100], COMMANDS, n=1)
        hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(COMMANDS)}"
        parser.error(f"there is no command {args.command[:100]!r}: {hint}")
    return str(args.command)


def _is_misplaced(word: str) -> bool:
    """Whether a word is no command, not similar to one, and no option of ``pillion`` itself."""
    known = word in COMMANDS or word in ("--help", "-h", "--version")
    return not known and not difflib.get_close_matches(word[:100], COMMANDS, n=1)


def top_parser() -> argparse.ArgumentParser:
    width = max(map(len, COMMANDS))
    commands = "\n".join(f"  {name:<{width}}  {text}" for name, text in COMMANDS.items())
    codes = "\n".join(f"  {code:<3}  {meaning}" for code, meaning in MEANINGS.items())
    parser = Parser(
        prog="pillion",
        usage="pillion COMMAND …",
        description=f"{DESCRIPTION}\n\ncommands:\n{commands}",
        epilog=f"exit codes:\n{codes}\n\npillion COMMAND --help shows more, with examples.",
    )
    parser.add_argument("--version", action=VersionAction, nargs=0, help="print the version")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    return parser


def load(name: str) -> Command:
    """Raises CommandError if a package is missing."""
    extra = "cli,operator" if name in ("operator", "check", "why-not") else "cli"
    if name == "sidecar":
        from pillion_cli.aiohttp_server import defer_client  # of no use to other commands

        defer_client()
    try:
        return cast(
            Command, importlib.import_module(f"pillion_cli.commands.{name.replace('-', '_')}")
        )
    except ModuleNotFoundError as error:
        raise CommandError(
            f"{error}; `pip install 'pillion[{extra}]'` installs what this command needs"
        ) from error


def command_parser(name: str, command: Command) -> argparse.ArgumentParser:
    parser = Parser(prog=f"pillion {name}", description=command.HELP.strip())
    command.add_arguments(parser)
    return parser


if __name__ == "__main__":
    sys.exit(main())
