"""A gateway adopts a session: it claims it, sends what is pending, and releases it (S3.7)."""

import logging
from pathlib import Path

import pytest
from msgspec import structs

from pillion_sidecar.journal.segments import segment_name
from pillion_sidecar.journal_runtime import ADOPTING_NAME
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    IdentitiesRequest,
    ReadRequest,
    ReleaseRequest,
)
from pillion_sidecar.stores.shipping import RETRY_SECONDS
from pillion_sidecar.wire.adoptions import (
    AdoptionOrder,
    OrderedGroup,
    OrderedStores,
    OrderError,
    read_order,
)
from support.adoption import Adopter
from support.adoptions import ORDER, Asked, World, gone, idle, until, until_idle
from support.stores import NAMES, SESSION


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


# ---------------------------------------------------------------------- the whole


async def test_all_that_is_pending_is_taken_and_the_session_is_released(world: World) -> None:
    world.stores.keep(gone())
    status = await world.ended()
    assert (status.state, status.problem) == ("Done", None)
    assert (status.pending, status.taken, status.duplicate, status.refused) == (0, 3, 0, 0)
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    assert world.stores.counts() == [0, 0, 0]
    assert world.scratch() == []
    assert world.open == 0
    assert world.counts[0] == {"done": 1}
    assert +world.counts[1] == {"taken": 3}
    world.adopter.time.advance(7.0)
    assert world.adoptions.statuses[0].ended_seconds == 7.0


async def test_the_claim_names_the_adopter_and_fences_the_deliverer(world: World) -> None:
    world.stores.keep(gone())
    world.adopter.fill()
    world.adoptions.order(ORDER)
    asked = Asked(world.stores, ReadRequest)
    await asked.happened.wait()
    claims = [one for _, one in world.stores.asked if isinstance(one, ClaimRequest)]
    assert claims[-1].number > 1
    assert claims[-1].claimant.startswith("adopter/default/shared-0-")
    await world.adoptions.close()


async def test_the_latest_of_the_copies_is_taken(world: World) -> None:
    deliverer = gone("1")
    world.stores.keep(deliverer, "a")
    deliverer.give_all("2", "3")
    world.stores.keep(deliverer, "b", "c")
    world.stores.away = {"b"}
    world.adoptions.order(ORDER)
    await until(lambda: len(world.adopter.queues.taken) == 3)
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    await world.adoptions.close()


async def test_it_waits_for_enough_stores_and_names_the_missing(world: World) -> None:
    world.stores.keep(gone())
    world.stores.away = {"a", "b"}
    status = world.adoptions.order(ORDER)
    assert status.state == "Waiting"
    await until(lambda: world.adoptions.statuses[0].missing == ["a", "b"])
    (status,) = world.adoptions.statuses
    assert status.state == "Claiming"
    assert "a: a is away" in str(status.problem)
    assert world.adopter.queues.taken == []
    world.stores.away.clear()
    world.adopter.time.advance(RETRY_SECONDS)
    await until_idle(world.adoptions)
    assert [one.state for one in world.adoptions.statuses] == ["Done"]
    assert world.adopter.taken("siem") == ["1", "2", "3"]


# ---------------------------------------------------------------------- again, and others


async def test_it_waits_for_the_lease_of_the_deliverer_after_its_claim(world: World) -> None:
    world.stores.keep(gone())
    stores = structs.replace(ORDER.stores, lease_seconds=30)
    world.adoptions.order(structs.replace(ORDER, stores=stores))
    told = "it waits 30 s for the end of the deliverer's lease"
    await until(lambda: world.adoptions.statuses[0].problem == told)
    assert world.adopter.taken("siem") == []
    world.adopter.time.advance(30)
    await until_idle(world.adoptions)
    assert world.adopter.taken("siem") == ["1", "2", "3"]


async def test_an_order_for_what_is_under_way_or_done_begins_nothing(world: World) -> None:
    world.stores.keep(gone())
    world.adoptions.order(ORDER)
    assert world.adoptions.order(ORDER).state == "Waiting"
    await until_idle(world.adoptions)
    asked = len(world.stores.asked)
    assert world.adoptions.order(ORDER).state == "Done"
    await until_idle(world.adoptions)
    assert [one.state for one in world.adoptions.statuses] == ["Done"]
    # Whether a store has it again.
    assert {type(one) for _, one in world.stores.asked[asked:]} == {IdentitiesRequest}
    assert len(world.adopter.queues.taken) == 3


async def test_a_gateway_that_ended_before_it_was_done_begins_anew(world: World) -> None:
    world.stores.keep(gone())
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    await world.adopter.queues.barrier_asked.wait()
    await world.adoptions.close()
    assert world.stores.counts() == [1, 1, 1]
    world.adopter.queues.barriers = None
    status = await world.ended(world.again())
    assert (status.state, status.taken, status.duplicate) == ("Done", 0, 3)
    assert len(world.adopter.queues.taken) == 3
    assert world.stores.counts() == [0, 0, 0]


async def test_what_a_crash_left_of_a_copy_is_taken_anew(world: World) -> None:
    world.stores.keep(gone())
    left = world.folder / ADOPTING_NAME / SESSION
    left.mkdir(parents=True)
    (left / segment_name(1)).write_bytes(b"x" * 100)
    assert (await world.ended()).taken == 3


async def test_a_second_adopter_after_the_first_finds_nothing(world: World) -> None:
    world.stores.keep(gone())
    await world.ended()
    other = Adopter()
    status = await world.ended(world.again(other))
    assert status.state == "Failed"
    assert str(status.problem).startswith("none of the stores a, b, c has the session: it was")
    assert other.queues.taken == []
    assert world.stores.counts() == [0, 0, 0]


async def test_an_adopter_that_another_has_fenced_says_so_and_keeps_the_session(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.stores.keep(gone())
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    await world.adopter.queues.barrier_asked.wait()
    for name in NAMES:
        world.stores.sessions[name].perform(
            SESSION, ClaimRequest(number=9, claimant="other"), account=""
        )
    world.adopter.queues.secure()
    await until_idle(world.adoptions)
    (status,) = world.adoptions.statuses
    assert status.state == "Failed"
    assert world.counts == ({"failed": 1}, {"taken": 3, "duplicate": 0, "refused": 0})
    assert status.problem == "other has claimed the session under epoch 9"
    assert world.stores.counts() == [1, 1, 1]
    (record,) = [one for one in caplog.records if one.levelno == logging.ERROR]
    assert "what it has pending stays at its stores" in record.getMessage()


async def test_one_that_has_failed_begins_anew_when_it_is_ordered_again(world: World) -> None:
    world.stores.keep(gone())
    blocked = world.folder / ADOPTING_NAME
    blocked.write_text("no folder")
    status = await world.ended()
    assert (status.state, status.problem) == ("Failed", "the disk refuses: Not a directory")
    blocked.unlink()
    assert (await world.ended()).state == "Done"


async def test_stores_that_are_away_at_the_release_are_named(world: World) -> None:
    world.stores.keep(gone())
    asked = Asked(world.stores, ReleaseRequest)
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    await world.adopter.queues.barrier_asked.wait()
    world.stores.away = {"c"}
    world.adopter.queues.secure()
    await asked.happened.wait()
    await until(lambda: idle(world))
    (status,) = world.adoptions.statuses
    assert status.state == "Done"
    assert status.problem == (
        "stores keep the session, since they could not be asked: c: c is away"
    )
    assert world.stores.counts() == [0, 0, 1]


async def test_a_store_that_was_away_at_the_release_brings_nothing_back(world: World) -> None:
    await test_stores_that_are_away_at_the_release_are_named(world)
    world.stores.away.clear()
    other = Adopter()
    assert (await world.ended(world.again(other))).state == "Done"
    assert other.queues.taken == []
    assert world.stores.counts() == [0, 0, 0]


async def test_what_a_store_has_kept_is_adopted_again_once_it_is_ordered(world: World) -> None:
    await test_stores_that_are_away_at_the_release_are_named(world)
    world.stores.away.clear()
    world.adopter.queues.barriers = None
    status = await world.ended()
    assert (status.state, status.problem) == ("Done", None)
    assert world.stores.counts() == [0, 0, 0]
    assert len(world.adopter.queues.taken) == 3


async def test_a_copy_that_breaks_the_adoption_ends_no_gateway(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fails(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    world.stores.keep(gone())
    monkeypatch.setattr("pillion_sidecar.adoption_attempts.recover_copy", fails)
    status = await world.ended()
    assert (status.state, status.problem) == ("Failed", "a defect; see the gateway's log")
    assert any(one.exc_info for one in caplog.records)
    assert world.stores.counts() == [1, 1, 1]


async def test_the_gateways_memory_is_not_trimmed_for_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That takes its time, on the event loop of a busy gateway."""
    monkeypatch.setattr("pillion_sidecar.journal_runtime._give_back_memory", None)
    world.stores.keep(gone())
    assert (await world.ended()).state == "Done"


# ---------------------------------------------------------------------- orders


def test_an_order_names_what_is_wrong_with_it() -> None:
    for body, told in (
        (b"{", "the order: "),
        (b"{}", "session"),
        (b'{"session":"x","service":"a","stores":{"groups":[]}}', "$.session"),
    ):
        with pytest.raises(OrderError) as found:
            read_order(body)
        assert told in str(found.value)


async def test_a_store_that_is_named_twice_is_refused(world: World) -> None:
    stores = OrderedStores(groups=[OrderedGroup(name="g", members=["a", "a"])])
    with pytest.raises(OrderError, match="stores: a store is named twice: a; name each once"):
        world.adoptions.order(AdoptionOrder(session=SESSION, service="default", stores=stores))


async def test_a_deliverer_that_can_adopt_nothing_refuses(world: World) -> None:
    world.problem = "this deliverer is no gateway"
    with pytest.raises(OrderError, match="this deliverer is no gateway"):
        world.adoptions.order(ORDER)
    assert world.adoptions.statuses == []
