"""CPU that a deliverer takes from its start until it is ready.

    python tests/benchmarks/bench_start.py

One destination, no journal; byte code is there, as in the image. The first start is not counted.
"""

import statistics
import sys
import tempfile
from pathlib import Path

from benchmarks.bench_memory import resources
from support.bench import report, sidecar, write_resources

#: Seconds.
GOAL = 0.3
ROUNDS = 7


def start(folder: Path) -> float:
    with sidecar(folder) as deliverer:
        return deliverer.cpu_seconds()


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = write_resources(Path(name), [*resources(1)])
        start(folder)
        used = statistics.median(start(folder) for _ in range(ROUNDS))
    report(
        goal=f"From start to ready <= {GOAL:g} s of CPU",
        figure=f"{used:.2f} s",
        met=used <= GOAL,
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
