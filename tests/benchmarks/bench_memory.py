"""What a deliverer holds: resident when idle, and for each pending (indication, destination).

    python tests/benchmarks/bench_memory.py

The bookkeeping is what is resident for N pending indications beside their bodies, divided by the
pending (indication, destination) pairs: identities to recognise duplicates by are switched down to
a few, since they have a bound of their own (``duplicateWindowEntries``).
"""

import json
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from support.bench import report, resource, sidecar, write_resources

INDICATIONS, BATCH = 100_000, 1_000
BODY_BYTES = 500
IDLE_GOAL, PENDING_GOAL = 44.0, 100.0
ROUNDS = 3


def resources(destinations: int) -> Iterator[dict[str, Any]]:
    """So many suspended destinations of everything."""
    yield resource("IndicationService", "default", queueSize=1_000_000, duplicateWindowEntries=1000)
    yield resource("IndicationFilter", "all", query="SELECT * FROM CIM_AlertIndication")
    for number in range(destinations):
        name = f"listener-{number}"
        yield resource(
            "ListenerDestination",
            name,
            destination=f"http://127.0.0.1:9/{number}",
            protocol="CIM-XML",
            suspended=True,
        )
        yield resource(
            "IndicationSubscription",
            name,
            filterRef={"name": "all"},
            destinationRef={"name": name},
        )


def line(number: int) -> bytes:
    properties = {
        "IndicationIdentifier": f"alert-{number:012d}",
        "AlertType": 6,
        "PerceivedSeverity": 5,
        "ProbableCause": 52,
        "Description": "",
    }
    document = {"class": "CIM_AlertIndication", "properties": properties}
    encoded = json.dumps(document, separators=(",", ":")).encode()
    return encoded[:-3] + b"d" * (BODY_BYTES - len(encoded)) + encoded[-3:]


def idle(folder: Path) -> float:
    """Resident MiB of a deliverer with one destination that has been up for a second."""
    with sidecar(write_resources(folder / "idle", [*resources(1)])) as deliverer:
        time.sleep(1.0)
        deliverer.metric("pillion_destination_queue_depth")
        return deliverer.resident_bytes() / 2**20


def pending(folder: Path, destinations: int) -> float:
    """Resident bytes for each pending pair, beside the body (its bytes alone)."""
    given = write_resources(folder / str(destinations), [*resources(destinations)])
    with sidecar(given) as deliverer:
        # What is needed once, by the first batches, is none of the pending ones'.
        for batch in range(5):
            _publish(deliverer, batch)
        before = deliverer.resident_bytes()
        for batch in range(5, 5 + INDICATIONS // BATCH):
            _publish(deliverer, batch)
        held = deliverer.resident_bytes() - before
        depth = deliverer.metric("pillion_destination_queue_depth")
        assert depth == (INDICATIONS + 5 * BATCH) * destinations, depth
    return (held - INDICATIONS * BODY_BYTES) / (INDICATIONS * destinations)


def _publish(deliverer: Any, batch: int) -> None:
    body = b"\n".join(line(batch * BATCH + number) for number in range(BATCH))
    answer = deliverer.request(
        "/v1/indications?source=bench", body=body, content_type="application/x-ndjson"
    )
    assert answer["accepted"] == BATCH, answer


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        resident = statistics.median(idle(folder) for _ in range(ROUNDS))
        report(
            goal=f"Resident when idle <= {IDLE_GOAL:.0f} MiB",
            figure=f"{resident:.1f} MiB",
            met=resident <= IDLE_GOAL,
        )
        for destinations in (1, 10):
            bytes_each = pending(folder, destinations)
            report(
                goal=f"Bookkeeping for each pending pair, {destinations} for each indication"
                f" <= {PENDING_GOAL:.0f} B",
                figure=f"{bytes_each:.0f} B",
                met=bytes_each <= PENDING_GOAL,
                note=f"bodies of {BODY_BYTES} B",
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
