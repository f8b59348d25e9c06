"""Prints what a large installation needs, part by part: the tables of ``docs/large.md``.

    python tools/scale.py [--sidecars N …] [--rate PER_SECOND] …

``--rate`` is for each sidecar. The figures of one of each were measured on two cores; the page
names how. What comes of them for thousands is a sum, and no measurement.
"""

import argparse
import dataclasses
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass

GIB = 1024**3
#: CPU seconds for an indication of 2 KB: of a sidecar with a journal, and of a gateway that accepts
#: and delivers it.
SIDECAR_SECONDS, GATEWAY_SECONDS = 106e-6, 154e-6
#: Bytes resident of a sidecar without work, and its share of a core.
SIDECAR_BYTES, IDLE_SHARE = 58 * 1024**2, 0.002
#: Connections of a gateway's pod, and its most replicas.
CONNECTIONS, MOST_REPLICAS = 675, 100
#: Bytes of the operator for an object or a pod, and its polls a second for deliverers without
#: changes.
OBJECT_BYTES, POLLS = 15_000, 50
#: Pods that the operator annotates a second.
ANNOTATED = 50
#: Secrets that a kubelet watches for each service of its pods, and bytes of the API server for
#: each.
SECRETS, WATCH_BYTES = 16, 73_000
#: Series of a sidecar, of each protocol, and of each destination.
SERIES, SERIES_OF_PROTOCOL, SERIES_OF_DESTINATION = 83, 36, 27
#: Bytes of Prometheus for a series, in its first minutes.
SERIES_BYTES = 2_200
#: Messages a second of three NATS servers with three replicas, on two cores together.
NATS_MESSAGES = 22_500


@dataclass(frozen=True, slots=True, kw_only=True)
class Installation:
    sidecars: int = 100_000
    #: Indications a second that a sidecar accepts.
    rate: float = 10.0
    #: Indications of a publisher's request, each of which is a sync of the disk.
    batch: int = 10
    #: Sidecars of a service.
    pods: int = 100
    #: Destinations of a service, and those of them that an indication goes to.
    destinations: int = 20
    targets: float = 1.0
    #: Sidecars of a node.
    density: int = 50

    @property
    def services(self) -> int:
        return -(-self.sidecars // self.pods)

    @property
    def nodes(self) -> int:
        return -(-self.sidecars // self.density)

    @property
    def delivered(self) -> float:
        """Indications that are delivered a second, all together."""
        return self.sidecars * self.rate * self.targets

    @property
    def series(self) -> int:
        one = SERIES + SERIES_OF_PROTOCOL + self.destinations * SERIES_OF_DESTINATION
        return self.sidecars * one

    @property
    def watches(self) -> int:
        """Of Secrets, by kubelets: pods of a node rarely share a service."""
        return self.nodes * min(self.services, self.density) * SECRETS

    @property
    def objects(self) -> int:
        """A service's own, its destinations and subscriptions, a filter, and pods."""
        return self.services * (2 + 2 * self.destinations) + self.sidecars


@dataclass(frozen=True, slots=True)
class Part:
    name: str
    need: Callable[[Installation], str]


def _gib(size: float) -> str:
    return f"{size / GIB:,.1f} GiB"


def _cores(share: float) -> str:
    return f"{share:,.1f} cores"


PARTS = (
    Part("indications delivered a second", lambda one: f"{one.delivered:,.0f}"),
    Part(
        "sidecars: CPU to deliver",
        lambda one: _cores(one.delivered * SIDECAR_SECONDS),
    ),
    Part("sidecars: CPU while nothing happens", lambda one: _cores(one.sidecars * IDLE_SHARE)),
    Part("sidecars: memory of a node", lambda one: _gib(one.density * SIDECAR_BYTES)),
    Part(
        "sidecars: syncs of a node's disk a second",
        lambda one: f"{one.density * one.rate / one.batch:,.0f}",
    ),
    Part(
        "gateways, if all is relayed: CPU",
        lambda one: _cores(one.delivered * GATEWAY_SECONDS),
    ),
    Part(
        "gateways, one relayed destination each: pods for their connections",
        lambda one: f"{-(-one.sidecars // CONNECTIONS):,}",
    ),
    Part("API server: memory for kubelets' watches", lambda one: _gib(one.watches * WATCH_BYTES)),
    Part("operator: memory", lambda one: _gib(one.objects * OBJECT_BYTES)),
    Part(
        "operator: a round of polls",
        lambda one: f"{max(10, one.sidecars / POLLS):,.0f} s",
    ),
    Part(
        "operator: a change that concerns every pod, until all are annotated",
        lambda one: f"{one.sidecars / ANNOTATED:,.0f} s",
    ),
    Part("Prometheus: series", lambda one: f"{one.series:,}"),
    Part("Prometheus: memory", lambda one: _gib(one.series * SERIES_BYTES)),
    Part(
        "NATS as the listener, one message each: clusters of three servers",
        lambda one: f"{one.delivered / NATS_MESSAGES:,.1f}",
    ),
)


def table(installations: Sequence[Installation]) -> str:
    """In Markdown: a column for each."""
    heads = ["", *(f"{one.sidecars:,} sidecars" for one in installations)]
    rows = [[part.name, *(part.need(one) for one in installations)] for part in PARTS]
    lines = [heads, ["---"] * len(heads), *rows]
    return "".join(f"| {' | '.join(line)} |\n".replace("|  |", "| |", 1) for line in lines)


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument(
        "--sidecars", type=int, nargs="+", default=[1_000, 10_000, 100_000], metavar="N"
    )
    for field in dataclasses.fields(Installation):
        if field.name != "sidecars":
            parser.add_argument(f"--{field.name}", type=type(field.default), default=field.default)
    given = vars(parser.parse_args(arguments))
    print(table([Installation(**given | {"sidecars": one}) for one in given["sidecars"]]), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
