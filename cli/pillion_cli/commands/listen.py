"""``pillion listen``: a real CIM-XML and CloudEvents listener for trying things (D.5)."""

import argparse
import asyncio
import math
import ssl
from collections.abc import Callable
from typing import TYPE_CHECKING

from pillion_cli.arguments import (
    DAY,
    Options,
    add_output_argument,
    port_number,
    seconds_from,
    whole_number,
)
from pillion_cli.exits import CommandError, Exit
from pillion_cli.output import OutputError
from pillion_cli.serving import heed_signals

if TYPE_CHECKING:
    from pillion_cli.listener.server import Behaviour

HELP = """
Run a listener: accept indications as CIM-XML export messages or CloudEvents (structured JSON) at
any path, order them by the seven rules of DSP1054, and print them. The first line is the
URL; the last, at Ctrl-C or SIGTERM, is a summary.

  delivered   in order, or without a sequence identifier
  held        its number is too high: delivered when the gap fills, or its lifetime ends
  duplicate   its number came before: dropped, and answered with success
  late        its number is too low, or its context an old one: dropped, answered with success
  gap         missing numbers: the deliverer discarded them
  answered    a request with an injected fault ("as told"), or an invalid request

The summary counts requests with an injected fault as `refused`, and invalid requests as `wrong`.

It can fail as a real listener does. --fail N limits a fault to the first N requests (by itself it
means status 503). The behaviour can be changed while it runs: POST the options as JSON to
/-/behaviour ({} removes every fault). GET /-/summary returns the counts; GET /-/arrivals?after=0
returns the indications, one JSON object per line, each with the index for the next `after`.

examples:
  pillion listen --port 5990
  pillion listen --port 5990 --fail 3 --retry-after 5     503 three times, then good
  pillion listen --port 5990 --fail 1 --close             take it, close: the retry is a duplicate
  pillion listen --port 5990 --hang                       never answer
  pillion listen --port 5990 --cim-error 1                200, with a CIM error inside
  pillion listen --output json | jq -r 'select(.verdict == "delivered").identifier'
  curl -d '{"status": 503}' http://127.0.0.1:5990/-/behaviour

exit codes: 0 ended by --count or a signal, 1 it cannot listen, 2 a wrong command line.
"""

#: Seconds: 3 attempts x 30 s x 10, the defaults of DSP1054.
LIFETIME = 900.0
#: Indications that /-/arrivals returns: default and maximum.
KEPT = 1000
MOST_KEPT = 1_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    options = Options(parser)
    options.value("--port PORT", "port to listen on; 0 takes a free one", port_number, 5988)
    options.value("--address ADDRESS", "address to listen on", default="127.0.0.1")
    options.value("--tls-certificate FILE", "serve HTTPS with this certificate chain, in PEM")
    options.value("--tls-key FILE", "private key, if that file has none")
    add_output_argument(parser)
    options.value("--count N", "end after N delivered indications", whole_number(1, 10**9))
    options.value("--keep N", "keep the last N for /-/arrivals", whole_number(0, MOST_KEPT), KEPT)
    options.value(
        "--lifetime SECONDS",
        "lifetime of a sequence identifier: the sender's attempts x interval x 10",
        seconds_from(0, maximum=math.inf),
        LIFETIME,
    )
    _add_behaviour(options.group("faults"))


def _add_behaviour(options: Options) -> None:
    options.value("--fail N", "apply the fault only to the first N requests", int)
    options.value("--status CODE", "answer with this HTTP status", int)
    options.value("--retry-after SECONDS", "add Retry-After to the answer of --status", int)
    options.flag("--hang", "read the request, and never answer")
    options.flag("--close", "take the indication, and close without an answer")
    options.flag("--garbage", "answer with bytes that are not HTTP")
    options.value("--cim-error CODE", "answer with this CIM status code", int)
    options.value("--redirect URL", "answer with 307 to this URL")
    options.value(
        "--delay SECONDS",
        "time before any answer, a successful one too",
        seconds_from(0, maximum=DAY),
        0.0,
    )


def run(args: argparse.Namespace) -> int:
    from pillion_cli.listener.server import ListenError

    if args.tls_key and not args.tls_certificate:
        raise CommandError("--tls-key needs --tls-certificate", code=Exit.USAGE)
    behaviour, tls = _behaviour(args), _tls(args)
    try:
        asyncio.run(_listen(args, behaviour=behaviour, tls=tls))
    except ListenError as error:
        raise CommandError(
            f"cannot listen on {args.address} port {args.port}: {error};"
            " choose another --address or --port, or --port 0 for any"
        ) from error
    return Exit.OK


def _behaviour(args: argparse.Namespace) -> "Behaviour":
    from pillion_cli.listener.server import Behaviour, BehaviourError

    try:
        return Behaviour(
            fail=args.fail,
            status=args.status,
            retry_after=args.retry_after,
            hang=args.hang,
            close=args.close,
            garbage=args.garbage,
            cim_error=args.cim_error,
            redirect=args.redirect,
            delay=args.delay,
        )
    except BehaviourError as error:
        field, _, rest = str(error).partition(":")
        message = f"--{field.replace('_', '-')}:{rest}"
        raise CommandError(message, code=Exit.USAGE) from error


def _tls(args: argparse.Namespace) -> ssl.SSLContext | None:
    if not args.tls_certificate:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(args.tls_certificate, args.tls_key)
    except (OSError, ssl.SSLError) as error:
        raise CommandError(
            f"{_tls_options(args)}: cannot be read: {error};"
            " certificate and key must be PEM, without a password"
        ) from error
    return context


def _tls_options(args: argparse.Namespace) -> str:
    given = {"--tls-certificate": args.tls_certificate, "--tls-key": args.tls_key}
    return " and ".join(f"{option} {file}" for option, file in given.items() if file)


class _Output:
    """When standard output cannot be written, the listener ends."""

    def __init__(self) -> None:
        self.on_lost: Callable[[], None] = lambda: None
        self.lost: OutputError | None = None

    def write(self, line: str) -> None:
        try:
            print(line, end="", flush=True)
        except OutputError as error:
            self.lost = error
            self.on_lost()


async def _listen(
    args: argparse.Namespace, *, behaviour: "Behaviour", tls: ssl.SSLContext | None
) -> None:
    from pillion_cim.schema import load_schema
    from pillion_cli.listener.arrivals import JSONReporter, TextReporter
    from pillion_cli.listener.sequence import Sequencer
    from pillion_cli.listener.server import Listener, serve
    from pillion_sidecar.clock import LoopTimers, SystemClock

    loop = asyncio.get_running_loop()
    timers, output = LoopTimers(loop=loop), _Output()
    reporter = (JSONReporter if args.output == "json" else TextReporter)(output.write)
    listener = Listener(
        schema=load_schema(),
        clock=SystemClock(),
        timers=timers,
        reporter=reporter,
        sequencer=Sequencer(lifetime=args.lifetime),
        behaviour=behaviour,
        count=args.count,
        keep=args.keep,
    )
    output.on_lost = listener.finished.set
    heed_signals(listener.finished)
    try:
        async with serve(listener, address=args.address, port=args.port, tls=tls) as url:
            reporter.started(url)
            await listener.finished.wait()
        listener.end()
    finally:
        timers.close()
    if output.lost is not None:
        raise output.lost
