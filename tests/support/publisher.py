"""What the publisher's tests share: a pace that is moved by hand, and lines."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa

from pyspark_pillion.options import Options, parse_options
from support.fake_deliverer import FakeDeliverer


@dataclass
class FakePace:
    """A ``Pace`` whose time passes only in its own sleeps; ``jitter`` is always the most."""

    now: float = 1000.0
    slept: list[float] = field(default_factory=list)

    def monotonic(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds

    def jitter(self) -> float:
        return 1.0


def make_options(deliverer: FakeDeliverer, **given: str) -> Options:
    return parse_options({"source": "weather", "url": deliverer.url, **given})


def lines_of(*identifiers: str) -> Any:
    texts = [
        f'{{"class":"CIM_AlertIndication","properties":{{"IndicationIdentifier":"{name}"}}}}'
        for name in identifiers
    ]
    return pa.array(texts, pa.string())


def identifiers_of(deliverer: FakeDeliverer) -> list[str]:
    return [line["properties"]["IndicationIdentifier"] for line in deliverer.accepted]


def texts(arrays: Sequence[Any]) -> list[list[str]]:
    return [array.to_pylist() for array in arrays]
