"""The demo of handlers: a deliverer with a destination of every protocol, and a receiver for each.

    make handlers-demo

Publishes 200 numbered indications. Each receiver in turn is killed (SIGKILL) while deliveries are
under way, and comes back when an attempt has failed. Exits 0 only if each has every number, in
order. A number may repeat, after an attempt whose end was uncertain. The row of a receiver that is
not installed says how to get it.
"""

import json
import logging
import signal
import sys
import tempfile
import urllib.request
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from receivers import IDENTIFIER, RECEIVERS, RESOURCES, File, PlugIn, Receiver, read_lines
from waiting import DemoFailed, say, until

from pillion_sidecar.protocols import PROTOCOLS
from pillion_testbed.processes import ProcessFailed, Running, Spawner

PUBLISHED = 200
#: Before a receiver is killed, and again while it is dead.
BURST = 8
#: Numbers that a message names.
SHOWN = 10
ROW = "{:<17} {:<25} {:>9} {:>8} {:>7} {:>7} {:>8}"


@dataclass
class Deliverer:
    """A deliverer that runs, and what was published to it."""

    running: Running
    intake: str
    published: int = 0

    def publish(self, count: int) -> None:
        """Publish so many more indications, but not more than all."""
        for number in range(self.published + 1, min(self.published + count, PUBLISHED) + 1):
            alert = {
                "IndicationIdentifier": IDENTIFIER.format(number),
                "AlertType": 5,
                "PerceivedSeverity": 6,
                "ProbableCause": 94,
                "Message": f"number {number}",
            }
            body = json.dumps({"class": "CIM_AlertIndication", "properties": alert}).encode()
            url = f"{self.intake}/v1/indications?source=handlers-demo"
            headers = {"Content-Type": "application/json"}
            request = urllib.request.Request(url, body, headers)
            urllib.request.urlopen(request, timeout=30).close()
            self.published = number

    def queue(self, name: str) -> dict[str, Any]:
        with urllib.request.urlopen(f"{self.intake}/v1/queues/{name}", timeout=30) as answer:
            found: dict[str, Any] = json.load(answer)
            return found

    def failures(self, name: str) -> int:
        """How many attempts have failed so far."""
        attempts = self.queue(name)["attemptsByResult"]
        return sum(count for result, count in attempts.items() if result != "success")


@contextmanager
def started_receivers(folder: Path, spawner: Spawner) -> Iterator[Sequence[Receiver]]:
    """Start the receivers that are here; give all."""
    made = [one(folder / one.protocol, spawner) for one in RECEIVERS]
    if unknown := PROTOCOLS.keys() - {one.protocol for one in made}:
        raise DemoFailed(f"no receiver for {', '.join(sorted(unknown))}")
    here = [one for one in made if one.missing() is None]
    with ExitStack() as stack:
        for one in here:
            one.folder.mkdir()
            stack.callback(one.close)
            one.start()
        for one in here:
            one.wait()
            one.prepare()
        yield made


@contextmanager
def started_deliverer(
    folder: Path, spawner: Spawner, receivers: Sequence[Receiver]
) -> Iterator[Deliverer]:
    resources, output = folder / "resources", folder / "deliverer.out"
    resources.mkdir()
    (resources / "service.yaml").write_bytes((RESOURCES / "service.yaml").read_bytes())
    for one in receivers:
        (resources / f"{one.name}.yaml").write_text(one.resource(), encoding="utf-8")
    (file,) = (one for one in receivers if isinstance(one, File))
    (plug_in,) = (one for one in receivers if isinstance(one, PlugIn))
    command = (
        *(sys.executable, "-m", "pillion_cli.main", "sidecar", "--resources", str(resources)),
        *("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0"),
        *("--delivery-folder", str(file.delivery_folder), "--plugin", plug_in.option()),
        *("--log-file", str(folder / "deliverer.log")),
    )
    running = spawner.start("the deliverer", command, log=output, environment=plug_in.environment())
    try:
        until(
            "the deliverer to start",
            lambda: bool(read_lines(output)) or running.exit_code() is not None,
        )
        if running.exit_code() is not None:
            raise running.failed("ended")
        plug_in.deliverer = running
        yield Deliverer(running, json.loads(read_lines(output)[0])["intake"])
    finally:
        running.stop(grace=30)


def interrupt(receiver: Receiver, deliverer: Deliverer) -> None:
    """Kill a receiver while deliveries are under way, and bring it back."""
    deliverer.publish(BURST)
    if receiver.may_lose_unread:
        until(
            f"{receiver.title} to read all",
            lambda: not receiver.lacking(deliverer.published),
        )
    before = deliverer.failures(receiver.name)
    receiver.kill()
    deliverer.publish(BURST)
    if receiver.fails:
        until(
            f"a failed attempt at {receiver.title} ({receiver.protocol})",
            lambda: deliverer.failures(receiver.name) > before,
        )
    waiting = deliverer.queue(receiver.name)["depth"]
    receiver.start()
    receiver.wait()
    say(f"{receiver.protocol}: {receiver.title} {receiver.harm}, {waiting} wait for it; it is back")


def settle(receivers: Sequence[Receiver], deliverer: Deliverer) -> None:
    """Wait until nothing is pending, and each receiver has written down what it took. Raises
    DemoFailed."""

    def pending() -> dict[str, int]:
        for one in receivers:
            one.check()
        depths = {one.protocol: int(deliverer.queue(one.name)["depth"]) for one in receivers}
        return {protocol: depth for protocol, depth in depths.items() if depth}

    def lacking() -> dict[str, list[int]]:
        found = {one.protocol: one.lacking(PUBLISHED)[:SHOWN] for one in receivers}
        return {protocol: some for protocol, some in found.items() if some}

    until(lambda: f"what is pending: {pending()}", lambda: not pending())
    until(lambda: f"what receivers lack (the first {SHOWN}): {lacking()}", lambda: not lacking())


def report(receivers: Sequence[Receiver], deliverer: Deliverer) -> bool:
    """Print what happened; return whether it is exactly what should have."""
    heads = ("published", "distinct", "repeats", "failed", "in order")
    print("\n" + ROW.format("protocol", "receiver", *heads))
    exact = True
    for one in receivers:
        if how := one.missing():
            print(f"{one.protocol:<17} {one.title:<25} not here: {how}")
            continue
        arrived = one.arrived()
        distinct = list(dict.fromkeys(arrived))
        in_order = distinct == sorted(distinct)
        counts = (PUBLISHED, len(distinct), len(arrived) - len(distinct))
        failed = deliverer.failures(one.name)
        print(ROW.format(one.protocol, one.title, *counts, failed, "yes" if in_order else "NO"))
        exact &= in_order and len(distinct) == PUBLISHED
    print(flush=True)
    return exact


def demonstrate(folder: Path) -> bool:
    """Run it all; return whether the counts are exact."""
    with ExitStack() as stack:
        spawner = Spawner()
        stack.callback(spawner.close)
        say("the receivers start; Kafka takes longest")
        receivers = stack.enter_context(started_receivers(folder, spawner))
        here = [one for one in receivers if one.missing() is None]
        deliverer = stack.enter_context(started_deliverer(folder, spawner, here))
        say(f"deliverer: intake at {deliverer.intake}, {len(here)} destinations")
        for one in here:
            interrupt(one, deliverer)
        deliverer.publish(PUBLISHED)
        say(f"all {PUBLISHED} are published")
        try:
            settle(here, deliverer)
        except DemoFailed as failure:
            say(str(failure))
        return report(receivers, deliverer)


def end(number: int, _: object) -> None:
    """End as by Ctrl-C, so that everything is cleaned up."""
    raise KeyboardInterrupt


def main() -> int:
    # Of the client libraries: what they say of a broker that is not up yet.
    logging.disable(logging.CRITICAL)
    signal.signal(signal.SIGTERM, end)
    with tempfile.TemporaryDirectory(prefix="pillion-handlers-demo-") as folder:
        try:
            exact = demonstrate(Path(folder))
        except (DemoFailed, ProcessFailed) as failure:
            say(f"FAILED: {failure}")
            return 1
        except KeyboardInterrupt:
            say("ended; all processes are too")
            return 130
    say("every indication arrived, in order" if exact else "FAILED: see above")
    return 0 if exact else 1


if __name__ == "__main__":
    sys.exit(main())
