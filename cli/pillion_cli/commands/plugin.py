"""``pillion plugin``: scripts as plug-ins, and a check of plug-ins."""

import argparse
import os
import shutil
from contextlib import suppress
from pathlib import Path

from pillion_cli.arguments import Options, add_output_argument, seconds_from, whole_number
from pillion_cli.exits import CommandError, Exit

HELP = """
Help to write plug-ins: programs that deliver indications for a deliverer.

exec is a plug-in that runs COMMAND once for each delivery. The parameters of the delivery are JSON
on its standard input; PILLION_CLASS, PILLION_IDENTIFIER, PILLION_ATTEMPT, PILLION_FILTER,
PILLION_DESTINATION and PILLION_URL are in its environment. Exit code 0 means success, 65 that the
indication is refused, and any other code (75 by convention) that the attempt failed; the last line
of standard error says why. A process that takes longer than 9/10 of the delivery's time-out is
ended with its process group.

check starts the plug-in COMMAND, or connects to the socket of one that runs, as a deliverer does.
It prints one line for each check, and a summary. The plug-in really delivers some ten indications.
COMMAND gets PATH, LANG, TZ, HOME and PILLION_PLUGIN_… of the environment, as from a deliverer.

examples:
  pillion plugin check -- python3 my_plugin.py
  pillion plugin check --socket /run/pillion/my.sock
  pillion plugin check -- pillion plugin exec -- ./deliver.sh
  pillion plugin exec --in-flight 5 -- ./deliver.sh --verbose

exit codes: 0 all checks passed, or the deliverer has ended the link, 1 a check failed, or the
socket cannot be made, 2 a wrong command line.
"""

ACTIONS = ("exec", "check")
TIMEOUT = 10.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.usage = "pillion plugin ACTION [options] [-- COMMAND …]"
    parser.set_defaults(program=[])
    parser.add_argument("action", choices=ACTIONS, help="action")
    options = Options(parser)
    options.file(
        "--socket FILE",
        "exec: serve this Unix socket [$PILLION_PLUGIN_SOCKET]; check: that of a running plug-in",
    )
    options.value(
        "--in-flight NUMBER",
        "exec: processes at once on a link, from 1 to 5 [1]",
        whole_number(1, 5),
    )
    options.value(
        "--timeout SECONDS",
        f"check: time-out of each delivery [{TIMEOUT:g}]",
        seconds_from(0.1, maximum=300),
    )
    options.value("--url URL", "check: URL of the destination [plugin://check]")
    add_output_argument(parser, "check: output format; json prints one object per line")


def run(args: argparse.Namespace) -> int:
    _check_options(args)
    return _exec(args) if args.action == "exec" else _check(args)


def _check_options(args: argparse.Namespace) -> None:
    others = (
        {"--timeout": args.timeout, "--url": args.url}
        if args.action == "exec"
        else {"--in-flight": args.in_flight}
    )
    given = [name for name, value in others.items() if value is not None]
    if given:
        raise CommandError(f"{', '.join(given)}: not for {args.action}", code=Exit.USAGE)
    if args.action == "check" and bool(args.program) == bool(args.socket):
        raise CommandError(
            "check: give either -- and the command of a plug-in, or --socket", code=Exit.USAGE
        )
    if args.action == "exec" and not args.program:
        raise CommandError("exec: give -- and a command", code=Exit.USAGE)
    if args.program and shutil.which(args.program[0]) is None:
        raise CommandError(f"COMMAND: {_why_not(args.program[0])}", code=Exit.USAGE)


def _why_not(program: str) -> str:
    shown = repr(program[:200])
    if program and Path(program).is_dir():
        return f"{shown} is a folder; give the path of a program"
    if program and shutil.which(program, mode=os.F_OK) is not None:
        return f"{shown} is not executable; make it so by chmod +x"
    return f"there is no program {shown} to run; give its path"


def _exec(args: argparse.Namespace) -> int:
    from importlib import metadata

    from pillion_cli.plugin.ending import ended_at_once
    from pillion_cli.plugin.scripts import Scripts
    from pillion_plugin.serving import SocketError, serve

    scripts = Scripts(args.program)
    sockets: list[Path] = []

    def end() -> None:
        scripts.end_all()
        for path in sockets:
            # Whatever happens, the process must end.
            with suppress(OSError):
                path.unlink()

    with ended_at_once(end):
        try:
            serve(
                scripts.deliver,
                name=f"pillion plugin exec {Path(args.program[0]).name}",
                version=metadata.version("pillion"),
                in_flight=args.in_flight or 1,
                socket=args.socket,
                sockets=sockets,
            )
        except SocketError as failure:
            raise CommandError(f"--socket: {failure.strerror or failure}") from failure
        finally:
            # A signal meanwhile ends the scripts, too.
            scripts.end_all()
    return Exit.OK


def _check(args: argparse.Namespace) -> int:
    from pillion_cli.plugin.checks import Plan, run_checks, summary
    from pillion_cli.plugin.peer import Peer, ProcessPeer, SocketPeer

    timeout = args.timeout or TIMEOUT

    def connect() -> Peer:
        if args.socket is None:
            return ProcessPeer(args.program)
        return SocketPeer(args.socket, within=timeout)

    results = []
    plan = Plan(connect=connect, timeout=timeout, url=args.url or "plugin://check")
    for result in run_checks(plan):
        print(result.as_json() if args.output == "json" else result.as_text(), flush=True)
        results.append(result)
    if args.output != "json":
        print(summary(results))
    return Exit.OK if all(result.passed for result in results) else Exit.FAILED
