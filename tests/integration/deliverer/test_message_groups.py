"""Message groups the whole way (S1.5 to S1.7), in memory and on disk: order, discards, and what the
publisher is told of them by receipt, poll and flush."""

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from support.listening import listening
from support.resources import JSON
from support.running import Running, alert, later, listener, resources, running


@pytest.fixture(params=["Memory", "Disk"])
def journal(request: pytest.FixtureRequest, tmp_path: Path) -> Path | None:
    return tmp_path / "journal" if request.param == "Disk" else None


def member(sequence: int, **members: Any) -> JSON:
    """A member of an ordered group, identified by its sequence."""
    return alert(str(sequence)) | {"group": "g", "ordered": True, "sequence": sequence} | members


IDLE = {"groupMaxIdleSeconds": 600}


async def told(run: Running, publisher: str = "task") -> list[tuple[int, str, str]]:
    """The faults of a publisher: sequence, destination, reason."""
    answer = await run.get(f"/v1/faults?publisher={publisher}")
    assert answer.status == 200
    faults = answer.document["faults"]
    return [(fault["sequence"], fault["destination"], fault["reason"]) for fault in faults]


async def test_members_that_come_in_any_order_are_delivered_in_theirs(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops, listening() as other:
        documents = resources(listener("ops", ops.url), listener("other", other.url))
        async with running(config, *documents, journal=journal) as run:
            early = await run.publish(member(2, **IDLE), member(3, **IDLE))
            assert early.document["accepted"] == 2
            # Accepted, and nowhere to be seen in the queues.
            assert run.deliverer.delivery.pending == 4
            assert (await run.get("/v1/queues/ops")).document["depth"] == 0
            await run.publish(alert("of no group"), ack="delivered")
            await run.publish(member(0, **IDLE), ack="delivered")
            assert ops.identifiers == ["of no group", "0"]
            answer = await run.publish(member(1, **IDLE), member(4, last=True, **IDLE))
            assert answer.document["accepted"] == 2
            await run.settled()
    for listened in (ops, other):
        assert listened.identifiers == ["of no group", "0", "1", "2", "3", "4"]


async def test_a_publisher_who_waits_for_a_held_member_hears_when_it_is_delivered(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            waiting = await run.begun(
                run.publish(member(1, **IDLE), ack="delivered", timeout="300", publisher="task")
            )
            flushing = await run.begun(run.post("/v1/flush?publisher=task&timeout=300"))
            early = await run.post("/v1/flush?publisher=task&timeout=0")
            assert early.document["destinations"]["ops"]["pending"] == 1
            assert not waiting.done()
            await run.publish(member(0, **IDLE), ack="delivered")
            assert (await waiting).document["delivered"] == 1
            assert (await flushing).document["complete"] is True
            assert await told(run) == []
    assert ops.identifiers == ["0", "1"]


async def test_nothing_is_accepted_behind_the_last_member_and_then_a_new_group_begins(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            lines = (member(0, **IDLE), member(2, last=True, **IDLE), member(1, **IDLE))
            await run.publish(*lines[:2], ack="accepted")
            behind = await run.publish(member(3, **IDLE))
            assert behind.status == 400
            assert behind.document["refused"][0]["field"] == "sequence"
            assert (await run.publish(lines[2], ack="delivered")).document["delivered"] == 1
            again = await run.publish(*lines, ack="delivered")
            assert (again.document["duplicate"], again.document["delivered"]) == (3, 3)
            # It came while something was missing: the group goes on until it is idle (t3.2).
            run.time.advance(600.0)
            new = alert("new") | {"group": "g", "ordered": True, "sequence": 3, **IDLE}
            assert (await run.publish(new, ack="accepted")).document["accepted"] == 1
            assert run.deliverer.delivery.pending == 1
    assert ops.identifiers == ["0", "1", "2"]


async def test_d1_what_is_held_is_discarded_when_the_group_expires(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            end = datetime.fromtimestamp(run.time.time() + 100, UTC).isoformat()
            waiting = await run.begun(
                run.publish(
                    member(0, groupExpires=end),
                    member(2, groupExpires=end),
                    ack="delivered",
                    timeout="300",
                    publisher="task",
                )
            )
            await run.delivered("ops", 1)
            run.time.advance(99.0)
            assert await told(run) == []
            run.time.advance(1.0)
            answer = await waiting
            assert answer.document["discarded"] == [
                {"line": 1, "destination": "ops", "reason": "out-of-order"}
            ]
            assert await told(run) == [(2, "ops", "out-of-order")]
            late = await run.publish(member(1, groupExpires=end))
            assert late.status == 400
            assert late.document["refused"][0]["field"] == "groupExpires"
    assert ops.identifiers == ["0"]


async def test_d2_what_is_held_is_discarded_when_no_member_has_come_for_long(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(member(1, **IDLE), publisher="task", ack="accepted")
            run.time.advance(599.0)
            # It counts from the last member.
            await run.publish(member(3, **IDLE), publisher="task", ack="accepted")
            run.time.advance(599.0)
            assert await told(run) == []
            run.time.advance(1.0)
            assert await told(run) == [(1, "ops", "out-of-order"), (3, "ops", "out-of-order")]
            flushed = await run.post("/v1/flush?publisher=task&timeout=0")
            assert flushed.status == 200
            counts = flushed.document["destinations"]["ops"]
            assert counts == {"delivered": 0, "discarded": {"out-of-order": 2}, "pending": 0}
            again = await run.publish(member(1, **IDLE), ack="delivered")
            assert again.document["duplicate"] == 1
            assert again.document["discarded"][0]["reason"] == "out-of-order"
    assert ops.identifiers == []


async def test_d3_where_nobody_says_how_long_to_wait_nothing_is_held(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            answer = await run.publish(member(0), member(2), ack="delivered", publisher="task")
            # Acknowledged all the same.
            assert answer.document["accepted"] == 2
            assert answer.document["discarded"] == [
                {"line": 1, "destination": "ops", "reason": "out-of-order"}
            ]
            assert await told(run) == [(2, "ops", "out-of-order")]
            await run.settled()
    assert ops.identifiers == ["0"]


async def test_a_discard_at_one_listener_does_not_stop_the_group_at_the_others(
    config: Path, journal: Path | None
) -> None:
    async with listening() as good, listening(status=503) as bad:
        documents = resources(
            listener("good", good.url), listener("bad", bad.url, retry={"attempts": 0})
        )
        async with running(config, *documents, journal=journal) as run:
            lines = [member(number, **IDLE) for number in (1, 0)]
            await run.publish(*lines, publisher="task", ack="accepted")
            await run.failed("bad", 1)
            bad.behave()
            run.retry("bad")
            await run.settled()
            # It ends where its member is lost, and nowhere else.
            assert await told(run) == [(0, "bad", "attempts-exceeded"), (1, "bad", "out-of-order")]
    assert good.identifiers == ["0", "1"]
    assert bad.identifiers == []


async def test_groups_of_two_sources_have_nothing_to_do_with_each_other(
    config: Path, journal: Path | None
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(member(1, **IDLE), source="one", ack="accepted")
            await run.publish(member(0, **IDLE), source="two", ack="delivered")
            assert ops.identifiers == ["0"]
            await run.publish(member(0, **IDLE), source="one", ack="delivered")
            await run.settled()
    assert ops.identifiers == ["0", "0", "1"]


async def test_the_end_discards_what_is_held_in_memory_and_keeps_it_on_disk(
    config: Path, journal: Path | None, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(member(1, **IDLE), ack="accepted")
            run.stop.set()
            await run.ended
        told = [record.__dict__ for record in caplog.records]
        discarded = [(one["identifier"], one["reason"]) for one in told if "reason" in one]
        assert discarded == ([] if journal is not None else [("1", "shutdown")])
        left = [one["count"] for one in told if one.get("event") == "left-at-shutdown"]
        assert left == ([] if journal is not None else [1])
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            on_disk = journal is not None
            repeat = await again.publish(member(1, **IDLE), ack="accepted")
            assert repeat.document["duplicate"] == int(on_disk)
            await again.publish(member(0, **IDLE), ack="delivered")
            await again.settled()
    assert ops.identifiers == ["0", "1"]


async def test_what_has_expired_is_refused_and_what_was_accepted_is_delivered_after_it(
    config: Path, journal: Path | None
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            soon = datetime.fromtimestamp(run.time.time() + 10, UTC).isoformat()
            await run.publish(alert("in time") | {"expires": soon}, ack="accepted")
            await run.failed("ops", 1)
            run.time.advance(10.0)
            late = await run.publish(alert("late") | {"expires": soon})
            assert late.status == 400
            assert late.document["refused"][0]["field"] == "expires"
            ops.behave()
            run.retry("ops")
            await run.settled()
    assert ops.identifiers == ["in time"]
