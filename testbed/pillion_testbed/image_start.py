"""Measure the size and the start of the deliverer's image.

``python -m pillion_testbed.image_start``

From the start of runc to the first 200 of /readyz, and the processor time that it all took; on a
machine that does other things too, the latter is what to compare.
"""

import json
import resource
import statistics
import tempfile
import time
import urllib.request
from pathlib import Path

from pillion_testbed import images
from pillion_testbed.containers import Unpacked, unpack

ROUNDS = 9
MEGABYTE = 1e6
RESOURCES = Path(__file__).parents[2] / "examples" / "first-subscription"


def start_once(image: Unpacked) -> tuple[float, float]:
    """Seconds from a container's start until its deliverer is ready, and of processor time."""
    doors = ("--intake", "127.0.0.1:0", "--telemetry", "127.0.0.1:0")
    command = (*image.entrypoint, "sidecar", "--resources", "/resources", *doors)
    used = _processor_time()
    began = time.perf_counter()
    with image.started(*command, folders={"/resources": RESOURCES}) as process:
        assert process.stdout is not None
        url = json.loads(process.stdout.readline())["telemetry"]
        with urllib.request.urlopen(f"{url}/readyz", timeout=30) as answer:
            assert answer.status == 200
        took = time.perf_counter() - began
        process.terminate()
        process.communicate()
    return took, _processor_time() - used


def _processor_time() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def main() -> None:
    """Print the figures."""
    image = images.deliverer()
    base, *added = (size / MEGABYTE for size in image.contents().sizes)
    print(
        f"{image.name}: {sum(added):.1f} MB over its base of {base:.1f} MB; the last layer, which"
    )
    print(f"changes with our own code, is {added[-1]:.1f} MB")
    with tempfile.TemporaryDirectory() as folder:
        unpacked = unpack(image, Path(folder) / "deliverer")
        taken = [start_once(unpacked) for _ in range(ROUNDS)]
    for name, values in zip(
        ("start to ready", "processor time"), zip(*taken, strict=True), strict=True
    ):
        spread = f"{min(values):.2f} to {max(values):.2f} s"
        print(f"{name}: {statistics.median(values):.2f} s, the median of {ROUNDS} ({spread})")


if __name__ == "__main__":
    main()
