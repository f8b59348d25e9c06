"""What a real deliverer discards under load, over kill -9: exact by number (S0.11, S0.16)."""

import asyncio
from pathlib import Path

from pillion_sidecar.history.discards import read_discards
from pillion_sidecar.history.outcome import Discard, OutcomeQuery
from pillion_sidecar.history.reading import Kept
from support.listening import listening
from support.resources import write
from support.running import alerts, listener, resources
from support.sidecar import sidecar

#: Runs that are killed, and indications that each of them acknowledges as durable.
KILLED = 4
EACH = 400
ROOM = 50


async def listed(folder: Path) -> list[Discard]:
    return await asyncio.to_thread(
        lambda: list(read_discards(Kept(folder=folder), OutcomeQuery(result="discarded")))
    )


async def test_delivered_and_listed_make_up_what_was_accepted_over_kill_9(tmp_path: Path) -> None:
    journal = tmp_path / "journal"
    async with listening(status=503) as ops:
        full = listener(
            "ops",
            ops.url,
            queueSize=ROOM,
            # Else the listener would wait for the numbers of what was discarded.
            sequenceIdentifiers="Omit",
            queueFullPolicy="DiscardOldest",
            retry={"attempts": 1000, "intervalSeconds": 1},
        )
        folder = write(tmp_path, *resources(full))
        for run in range(KILLED):
            async with sidecar(folder, "--journal", str(journal)) as process:
                for first in range(run * EACH, (run + 1) * EACH, 50):
                    answer = await process.publish(*alerts(first, 50), query="ack=durable")
                    assert answer.document["accepted"] == 50
                process.process.kill()
                await process.ended()
        ops.behave()
        async with sidecar(folder, "--journal", str(journal)) as process:
            last = await process.publish(
                *alerts(KILLED * EACH, 1), query="ack=delivered&timeout=60"
            )
            assert last.document["delivered"] == 1
            told = process.events("discards-counted")
            process.process.kill()
            await process.ended()
    discards = await listed(journal)
    accepted = {str(number) for number in range(KILLED * EACH + 1)}
    delivered = ops.identifiers
    given_up = [one.identifier for one in discards]
    assert len(delivered) == len(set(delivered))
    assert len(given_up) == len(set(given_up))
    assert not set(delivered) & set(given_up)
    assert set(delivered) | set(given_up) == accepted
    assert len({one.number for one in discards}) == len(discards)
    # What the killed run may not have logged is told again.
    assert {one["reason"] for one in told if one.get("run") == "before"} == {"queue-full"}
