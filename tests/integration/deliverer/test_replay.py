"""An afternoon is replayed to a destination, also over kill -9 (S0.11)."""

from pathlib import Path
from typing import Any

from support.asking import asked, settled
from support.listening import Listening, listening
from support.resources import JSON, document, write
from support.running import alerts, listener, resources
from support.sidecar import Sidecar, sidecar

KEPT = {"history": {"bodies": "All"}}
AFTERNOON = "2000-01-01T12:00:00Z"


def replay(name: str = "afternoon", to: str = "new", **spec: Any) -> JSON:
    given = {"destinationRef": {"name": to}, "from": AFTERNOON, **spec}
    return document("IndicationReplay", name, given)


async def replays(process: Sidecar) -> dict[str, Any]:
    """How far each replay is, by name."""
    answer = await process.get("/v1/replays")
    return {one["name"]: one for one in answer.document["replays"]}


async def in_state(process: Sidecar, state: str, name: str = "afternoon") -> dict[str, Any]:
    """Wait until a replay is in a state."""
    while True:
        found = (await replays(process)).get(name, {})
        if found.get("state") == state:
            return dict(found)


async def gone(process: Sidecar) -> None:
    """Wait until there is no replay."""
    while True:
        if not await replays(process):
            return


async def published(process: Sidecar, count: int) -> None:
    for first in range(0, count, 100):
        many = min(100, count - first)
        answer = await process.publish(*alerts(first, many), query="ack=durable")
        assert answer.document["accepted"] == many
    await settled(process, count, "result=delivered")


def unmarked(arrived: Listening) -> list[str | None]:
    """The identifiers of what arrived without a mark."""
    return [
        identifier
        for identifier, arrival in zip(arrived.identifiers, arrived.arrivals, strict=True)
        if arrival.properties.get("CorrelatedIndications") != [identifier]
    ]


async def test_an_afternoon_is_replayed_to_a_new_destination_over_kill_9(tmp_path: Path) -> None:
    count, journal = 1200, tmp_path / "journal"
    async with listening() as ops, listening() as new:
        common = (listener("ops", ops.url), listener("new", new.url, queueSize=40))
        to_ops = resources(*common, **KEPT)[:-1]
        folder = write(tmp_path, *to_ops)
        async with sidecar(folder, "--journal", str(journal)) as process:
            await published(process, count)
            assert not new.identifiers
            write(tmp_path, *to_ops, replay(rateLimit={"perSecond": 2000}))
            # In its second page or later.
            await new.delivered(400)
            process.process.kill()
            await process.ended()
        async with sidecar(folder, "--journal", str(journal)) as process:
            found = await in_state(process, "Complete")
            outcomes, _ = await asked(process, "destination=new&limit=10000")
            page = (await process.get("/v1/queues")).document
        # It is over, also after another start.
        before = len(new.identifiers)
        async with sidecar(folder, "--journal", str(journal)) as process:
            again = await in_state(process, "Complete")
    assert set(new.identifiers) == {str(number) for number in range(count)}
    assert unmarked(new) == []
    assert len(new.identifiers) == before <= count + 256
    assert len(ops.identifiers) == count
    assert (found["selected"], found["replayed"], found["delivered"]) == (count, count, count)
    assert (found["leftOut"], found["coversFrom"]) == ({}, True)
    assert {one["replay"] for one in outcomes} == {found["uid"]}
    assert page["replays"] == [found] == [again]


async def test_what_a_dead_listener_would_lose_stays_in_the_history(tmp_path: Path) -> None:
    count = 60
    async with listening() as ops, listening(status=503) as new:
        retry = {"attempts": 3, "intervalSeconds": 1}
        common = (listener("ops", ops.url), listener("new", new.url, queueSize=10, retry=retry))
        to_ops = resources(*common, **KEPT)[:-1]
        folder = write(tmp_path, *to_ops, replay())
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await published(process, count)
            # A replay that began before has nothing to do.
            await in_state(process, "Complete")
            write(tmp_path, *to_ops, replay(), replay("second"))
            await new.treated_badly(2)
            new.behave()
            found = await in_state(process, "Complete", "second")
    lost = found["discarded"]
    assert found["delivered"] + lost == found["replayed"] == count
    assert lost <= 5
    assert len(set(new.identifiers)) == count - lost


async def test_a_suspended_replay_stops_and_a_deleted_one_ends(tmp_path: Path) -> None:
    count = 100
    async with listening() as ops, listening() as new:
        common = (listener("ops", ops.url), listener("new", new.url))
        to_ops = resources(*common, **KEPT)[:-1]
        folder = write(tmp_path, *to_ops)
        async with sidecar(folder, "--journal", str(tmp_path / "journal")) as process:
            await published(process, count)
            slow = {"rateLimit": {"perSecond": 20, "burst": 1}}
            write(tmp_path, *to_ops, replay(**slow), replay("next", results=["Discarded"]))
            await new.delivered(3)
            waiting = (await replays(process))["next"]
            write(tmp_path, *to_ops, replay(**slow, suspended=True))
            stopped = await in_state(process, "Suspended")
            await process.logged("replay-cancelled")
            write(tmp_path, *to_ops, replay())
            found = await in_state(process, "Complete")
            write(tmp_path, *to_ops)
            await gone(process)
    assert waiting["state"] == "Waiting"
    assert waiting["detail"] == "waits for replay afternoon"
    assert 3 <= stopped["replayed"] < count
    # Neither repeated nor left out at the stop.
    assert new.identifiers == [str(number) for number in range(count)]
    assert found["delivered"] == count
    assert [one["replay"] for one in process.events("replay-cancelled")] == ["next"]
