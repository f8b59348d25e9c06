"""Message groups over a journal on disk: what was held or known is so again after a crash."""

from pathlib import Path
from typing import Any

from support.listening import listening
from support.resources import JSON
from support.running import alert, later, listener, resources, running

HELD: dict[str, Any] = {"group": "g", "ordered": True, "groupMaxIdleSeconds": 600}


def member(sequence: int, **members: Any) -> JSON:
    return alert(f"member {sequence}") | HELD | {"sequence": sequence} | members


async def test_held_members_wait_over_a_crash_and_are_delivered_in_sequence(
    config: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(member(2), member(1), ack="durable")
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            repeat = await again.publish(member(2), ack="accepted")
            assert (repeat.document["accepted"], repeat.document["duplicate"]) == (0, 1)
            answer = await again.publish(member(0), member(3), ack="delivered")
            assert answer.document["delivered"] == 2
            await again.settled()
    assert ops.identifiers == [f"member {number}" for number in range(4)]


async def test_a_group_whose_idle_time_ended_meanwhile_has_failed_after_a_crash(
    config: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(member(1), ack="durable")
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 601)) as again:
            repeat = await again.publish(member(1), ack="delivered")
            (discarded,) = repeat.document["discarded"]
            assert (discarded["destination"], discarded["reason"]) == ("ops", "out-of-order")
    assert ops.identifiers == []


async def test_a_member_without_an_identifier_is_known_by_its_place_after_a_crash(
    config: Path, tmp_path: Path
) -> None:
    journal = tmp_path / "journal"
    line = alert(None) | {"group": "g", "sequence": 5}
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(line, ack="delivered")
            await run.kept()
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            repeat = await again.publish(line, ack="delivered")
            assert (repeat.document["duplicate"], repeat.document["delivered"]) == (1, 1)
    assert len(ops.identifiers) == 1
