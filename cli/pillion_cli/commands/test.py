"""``pillion test``: a test indication for one destination."""

import argparse
import json

from pillion_cli.arguments import add_deliverer_arguments, add_output_argument, destination_name
from pillion_cli.diagnosis import answer_of
from pillion_cli.exits import Exit
from pillion_cli.remedies import remedy
from pillion_cli.servers import connected
from pillion_cli.terminal import Output, Style, wrapped
from pillion_sidecar.delivery.handler import DeliveryResult
from pillion_sidecar.wire.diagnosis import TrialAnswer, document_of

HELP = """
Have a deliverer send one test indication to one destination, and show what came of it: the result,
the cause, the answer of the listener and the seconds, with the connection.

The test goes past the queue: it is no delivery of any subscription, waits behind no indication and
delays none, is not tried again, and counts in no queue and no history. A destination that is
suspended, held or failing is tested, too, and stays so. The listener gets a CIM_AlertIndication of
severity 2 (Information); its IndicationIdentifier begins with pillion-test-, and its filter is
pillion-test. It repeats the sequence number before the first pending one, so that the order of the
deliveries does not change: a listener that orders by numbers answers it, and may drop it as a
repeat. A destination that a gateway delivers for is tested at the gateway.

It waits as long as the destination's timeoutSeconds.

examples:
  pillion test siem
  pillion test siem --output json | jq .seconds

exit codes: 0 the listener has it; 1 it has not, there is no such destination, or no deliverer;
2 a wrong command line.
"""

#: Seconds beyond the longest time-out of a destination.
TIMEOUT = 3660.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "name", type=destination_name, metavar="DESTINATION", help="name of the destination"
    )
    add_deliverer_arguments(parser)
    add_output_argument(parser)


def run(args: argparse.Namespace) -> int:
    with connected(args, timeout=TIMEOUT) as client:
        answer = answer_of(client.post(f"/v1/queues/{args.name}/test"), TrialAnswer)
    if args.output == "json":
        print(json.dumps(document_of(answer)))
    else:
        for line in _lines(answer, Output.of_process()):
            print(line)
    return Exit.OK if answer.result == DeliveryResult.SUCCESS else Exit.FAILED


def _lines(answer: TrialAnswer, output: Output) -> list[str]:
    is_success = answer.result == DeliveryResult.SUCCESS
    told = answer.detail or (f"HTTP {answer.status}" if answer.status else "")
    text = f"{answer.destination}: {answer.result} after {answer.seconds * 1000:,.1f} ms"
    first, *more = wrapped(f"{text}: {told}" if told else text, output.width)
    lines = [output.paint(first, Style.GREEN if is_success else Style.ALARM), *more]
    if answer.cause is not None:
        do = remedy(answer.cause, answer.detail, has_credentials=answer.credentials)
        lines += wrapped(f"cause {answer.cause}" + (f": {do}" if do else ""), output.width)
    return [*lines, *wrapped(f"{answer.protocol}, {answer.identifier}", output.width)]
