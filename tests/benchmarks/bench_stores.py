"""A deliverer whose journal three gateways keep, beside one without stores, all in one run.

    python tests/benchmarks/bench_stores.py [--rounds N] [--lines N] [NAME…]

NAMEs choose some of ``ship``, ``deliver`` and ``adopt``. ``ship``: batches of lines of 500 B are
published, with ``ack=stable`` to the one and ``ack=durable`` to the other, and nothing is
delivered. ``deliver``: both deliver a backlog to nginx. ``adopt``: the first delivery by a gateway
that adopts a dead deliverer's session, and by a restart on the dead deliverer's folder without
stores.

Everything is on one machine, so rates are those of a machine that also runs the gateways, nginx and
the publisher. CPU is that of all threads of a process, for each indication. Ratios are within one
round, and the median round counts.
"""

import argparse
import json
import shutil
import statistics
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from http.client import HTTPConnection
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit
from urllib.request import Request, urlopen

from benchmarks.bench_single import body, cpu_microseconds
from support.bench import (
    Sidecar,
    nginx,
    report,
    requests_answered,
    resource,
    sidecar,
    write_resources,
)

#: Lines of a request, and requests of a turn.
BATCHES = {1000: 20, 10: 200}
CONNECTIONS = 2
#: Indications of a backlog that is delivered, and of one that is adopted.
BACKLOG, ADOPTED = 10_000, 100_000
#: Goals.
RATE, DELIVERER, GATEWAY, DELIVERY, ADOPTION = 0.4, 1.3, 0.25, 0.8, 2.0
#: Seconds in which all that was published has arrived, or something is wrong.
LONGEST = 60.0
TOKEN = "operator"
MEMBERS = 3


def documents(*, url: str, suspended: bool, stores: Sequence[str] = ()) -> Iterator[dict[str, Any]]:
    """Of a deliverer. ``stores``: the ports of gateways."""
    given: dict[str, Any] = {"durability": "Disk", "queueSize": 1_000_000}
    if stores:
        members = [{"gatewayRef": {"name": port}} for port in stores]
        given["stores"] = {"groups": [{"name": "all", "members": members}]}
    yield resource("IndicationService", "default", **given)
    yield resource("IndicationFilter", "alerts", query="SELECT * FROM CIM_AlertIndication")
    target: dict[str, Any] = {"destination": url, "protocol": "CloudEvents"}
    yield resource("ListenerDestination", "siem", **target, suspended=suspended)
    names = {"filterRef": {"name": "alerts"}, "destinationRef": {"name": "siem"}}
    yield resource("IndicationSubscription", "alerts-to-siem", **names)


class House:
    """Three gateways, and deliverers with and without them."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack = stack
        self.folder = folder
        self.port = stack.enter_context(nginx(folder))
        self.url = f"http://127.0.0.1:{self.port}/"
        copies = {"journalCopies": {"maximumBytes": "1Gi"}, "deliverer": {"mode": "Gateway"}}
        given = write_resources(
            folder / "gateway", [resource("IndicationService", "store", **copies)]
        )
        self.gateways = [self.start(given, folder / f"store-{number}") for number in range(MEMBERS)]

    @property
    def members(self) -> list[str]:
        return [str(urlsplit(one.intake_url).port) for one in self.gateways]

    def start(self, resources: Path, journal: Path, *options: str) -> Sidecar:
        return self._stack.enter_context(sidecar(resources, "--journal", str(journal), *options))

    def deliverer(self, name: str, *, suspended: bool, ships: bool) -> Sidecar:
        stores = self.members if ships else ()
        given = [*documents(url=self.url, suspended=suspended, stores=stores)]
        return self.start(
            write_resources(self.folder / name, given),
            self.folder / f"journal-{name}",
            *("--gateway", "http://127.0.0.1:{service}"),
        )


def bodies(name: str, *, lines: int, batches: int) -> list[bytes]:
    made = iter(range(lines * batches))
    return [b"\n".join(body(name, next(made)) for _ in range(lines)) for _ in range(batches)]


def publish(url: str, given: Sequence[bytes], *, ack: str, lines: int) -> float:
    """Publish batches over a few connections; return seconds. Every answer is checked."""
    waiting, taken = list(reversed(given)), []
    headers = {"Content-Type": "application/x-ndjson"}

    def one() -> None:
        connection = HTTPConnection(urlsplit(url).netloc)
        while waiting:
            path = f"/v1/indications?source=bench&ack={ack}"
            connection.request("POST", path, waiting.pop(), headers)
            taken.append(json.load(connection.getresponse())["accepted"])
        connection.close()

    threads = [threading.Thread(target=one) for _ in range(CONNECTIONS)]
    began = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - began
    assert taken == [lines] * len(given), taken
    return seconds


@dataclass(frozen=True)
class Turn:
    rate: float
    #: Microseconds for each indication: of the deliverer, and of one gateway.
    deliverer: float
    gateway: float


def take_turn(
    house: House, process: Sidecar, *, ack: str, lines: int, name: str, arrives: bool = False
) -> Turn:
    batches = BACKLOG // lines if arrives else BATCHES[lines]
    given, count = bodies(name, lines=lines, batches=batches), lines * batches
    pids = [process.pid, *(one.pid for one in house.gateways)]
    before, answered = [*map(cpu_microseconds, pids)], requests_answered(house.port)
    began = time.perf_counter()
    seconds = publish(process.intake_url, given, ack=ack, lines=lines)
    asked = 0
    while arrives and requests_answered(house.port) - answered - (asked := asked + 1) < count:
        seconds = time.perf_counter() - began
        assert seconds < LONGEST
        time.sleep(0.01)
    # The slowest gateway goes on.
    time.sleep(0.3)
    used = [(cpu_microseconds(pid) - then) / count for pid, then in zip(pids, before, strict=True)]
    return Turn(count / seconds, used[0], statistics.mean(used[1:]))


def compare(
    house: House, processes: Sequence[Sidecar], *, rounds: int, acks: Sequence[str], **given: Any
) -> list[tuple[Turn, Turn]]:
    """Take turns of a deliverer without stores and one with them. The first round warms up."""
    turns = []
    for number in range(rounds + 1):
        alone, shipped = (
            take_turn(house, process, ack=ack, name=f"{number}-{given['lines']}", **given)
            for process, ack in zip(processes, acks, strict=True)
        )
        print(given, alone, shipped, flush=True)
        turns.append((alone, shipped))
    return turns[1:]


def median(ratios: Iterator[float]) -> float:
    return statistics.median(ratios)


def tell(goal: str, figure: float, least: float | None, most: float | None, note: str = "") -> None:
    met = figure >= least if least is not None else figure <= (most or 0.0)
    bound = f">= {least:g}" if least is not None else f"<= {most:g}"
    report(goal=f"stores: {goal} {bound}", figure=f"{figure:.2f}", met=met, note=note)


def ship(rounds: int, sizes: Sequence[int]) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        house = House(stack, Path(name))
        processes = [
            house.deliverer(one, suspended=True, ships=one == "shipped")
            for one in ("alone", "shipped")
        ]
        for lines in sizes:
            acks = ("durable", "stable")
            turns = compare(house, processes, rounds=rounds, acks=acks, lines=lines)
            what = f"batches of {lines:,}, 500 B"
            tell(
                f"ack=stable in {what}: rate, of ack=durable",
                median(shipped.rate / alone.rate for alone, shipped in turns),
                RATE,
                None,
                f"{median(shipped.rate for _, shipped in turns):,.0f}/s",
            )
            tell(
                "the same: CPU of the deliverer, of one without stores",
                median(shipped.deliverer / alone.deliverer for alone, shipped in turns),
                None,
                DELIVERER,
                f"{median(shipped.deliverer for _, shipped in turns):.1f} us",
            )
            tell(
                "the same: CPU of each gateway, of the deliverer's",
                median(shipped.gateway / shipped.deliverer for _, shipped in turns),
                None,
                GATEWAY,
                f"{median(shipped.gateway for _, shipped in turns):.1f} us",
            )


def deliver(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        house = House(stack, Path(name))
        processes = [
            house.deliverer(one, suspended=False, ships=one == "shipped")
            for one in ("alone", "shipped")
        ]
        acks = ("durable", "durable")
        turns = compare(house, processes, rounds=rounds, acks=acks, lines=250, arrives=True)
    tell(
        "delivery beside shipping: rate, of delivery without stores",
        median(shipped.rate / alone.rate for alone, shipped in turns),
        DELIVERY,
        None,
        f"CPU of the deliverer "
        f"{median(shipped.deliverer / alone.deliverer for alone, shipped in turns):.2f} of that "
        "without, of each gateway "
        f"{median(shipped.gateway / shipped.deliverer for _, shipped in turns):.2f} of the "
        "deliverer's",
    )


class Dead:
    """What a killed deliverer has left: its folder and its session at three gateways."""

    def __init__(self, house: House) -> None:
        self._house = house
        given = bodies("adopted", lines=1000, batches=ADOPTED // 1000)
        process = house.deliverer("dead", suspended=True, ships=True)
        publish(process.intake_url, given, ack="stable", lines=1000)
        process.process.kill()
        process.process.wait()
        self.folder = house.folder / "journal-dead"
        (self.session,) = (one.name for one in (house.folder / "store-0/copies/_").glob("?" * 32))

    def _wait(self, answered: int) -> None:
        """Until nginx has got something since it had answered so many requests."""
        asked, began = 0, time.perf_counter()
        while requests_answered(self._house.port) - answered <= (asked := asked + 1):
            assert time.perf_counter() - began < LONGEST
            time.sleep(0.002)

    def restart(self, number: int) -> tuple[float, float]:
        """Seconds to the first delivery, and of CPU, of a start on the folder without stores."""
        house = self._house
        folder = house.folder / f"restart-{number}"
        shutil.copytree(self.folder, folder)
        given = write_resources(
            house.folder / "restarted", [*documents(url=house.url, suspended=False)]
        )
        answered, began = requests_answered(house.port), time.perf_counter()
        with sidecar(given, "--journal", str(folder)) as process:
            self._wait(answered)
            return time.perf_counter() - began, process.cpu_seconds()

    def adopt(self, number: int) -> tuple[float, float]:
        """The same of an adoption, from the order on."""
        house = self._house
        folder = house.folder / f"adopter-{number}"
        folder.mkdir()
        (folder / "token").write_text(TOKEN)
        # The gateway to which the deliverer's service hands over knows its subscriptions.
        given = [*documents(url=house.url, suspended=False)]
        given[0]["spec"] |= {"gatewayRef": {"name": "shared"}, "handOverTo": {"name": "shared"}}
        given.append(resource("IndicationService", "shared", deliverer={"mode": "Gateway"}))
        with sidecar(
            write_resources(folder / "resources", given),
            *("--service", "shared"),
            *("--journal", str(folder / "journal")),
            *("--gateway", "http://127.0.0.1:{service}"),
            *("--operator-token-file", str(folder / "token")),
        ) as process:
            used, answered = process.cpu_seconds(), requests_answered(house.port)
            began = time.perf_counter()
            self._order(process)
            self._wait(answered)
            return time.perf_counter() - began, process.cpu_seconds() - used

    def _order(self, process: Sidecar) -> None:
        groups = [{"name": "all", "members": self._house.members}]
        order = {"session": self.session, "service": "default", "stores": {"groups": groups}}
        request = Request(
            f"{process.telemetry_url}/v1/adoptions",
            data=json.dumps(order).encode(),
            headers={"Authorization": f"Bearer {TOKEN}"},
        )
        with urlopen(request, timeout=60) as response:
            assert response.status == 202, response.read()


def adopt(rounds: int) -> None:
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        dead = Dead(House(stack, Path(name)))
        turns = []
        for number in range(rounds):
            turns.append((dead.restart(number), dead.adopt(number)))
            print(turns[-1], flush=True)
    tell(
        f"adoption of {ADOPTED:,}: first delivery, of a restart's",
        median(adoption[0] / restart[0] for restart, adoption in turns),
        None,
        ADOPTION,
        f"{median(adoption[0] for _, adoption in turns):.2f} s; CPU "
        f"{median(adoption[1] / restart[1] for restart, adoption in turns):.2f} of the restart's",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", metavar="NAME", nargs="*")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--lines", type=int, choices=sorted(BATCHES))
    arguments = parser.parse_args()
    names = arguments.names or ["ship", "deliver", "adopt"]
    if "ship" in names:
        ship(arguments.rounds, [arguments.lines] if arguments.lines else [*BATCHES])
    if "deliver" in names:
        deliver(arguments.rounds)
    if "adopt" in names:
        adopt(min(arguments.rounds, 3))


if __name__ == "__main__":
    main()
