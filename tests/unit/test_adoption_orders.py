"""Orders of adoptions that come again, late, at two gateways, or for what is in no store (S3.7)."""

import asyncio
import logging
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from pillion_sidecar.adoption_attempts import FIND_SECONDS
from pillion_sidecar.adoption_runtime import MOST_DONE
from pillion_sidecar.adoption_status import Adoption
from pillion_sidecar.intake.adoption import Progress
from pillion_sidecar.journal_runtime import ADOPTING_NAME
from pillion_sidecar.stores.copies import Epoch
from pillion_sidecar.stores.messages import (
    ClaimRequest,
    IdentitiesRequest,
    ReadRequest,
    ReleaseRequest,
)
from pillion_sidecar.stores.quorum import Membership, StoreGroup
from pillion_sidecar.wire.adoptions import OrderError, read_order
from support.adoption import Adopter
from support.adoptions import (
    ORDER,
    Asked,
    World,
    gone,
    idle,
    order_of,
    turns,
    until,
    until_idle,
)
from support.stores import NAMES, SESSION


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


def claims(world: World) -> int:
    return sum(isinstance(one, ClaimRequest) for _, one in world.stores.asked)


# ---------------------------------------------------------------------- again


async def test_a_session_that_began_anew_after_its_adoption_is_adopted_again(world: World) -> None:
    world.stores.keep(gone("1", "2"))
    assert (await world.ended()).state == "Done"
    # Its next deliverer had claimed beyond what was released, shipped, and died.
    world.stores.keep(gone("1", "2", "3", "4"), epoch=Epoch(1000, "second"))
    assert world.adoptions.order(ORDER).state == "Done"
    await until_idle(world.adoptions)
    (status,) = world.adoptions.statuses
    assert (status.state, status.taken, status.duplicate) == ("Done", 2, 2)
    assert world.adopter.taken("siem") == ["1", "2", "3", "4"]
    assert world.stores.counts() == [0, 0, 0]
    assert +world.counts[1] == {"taken": 4, "duplicate": 2}


async def without_one_store(world: World) -> None:
    """An adoption that c has missed the release of."""
    world.stores.keep(gone())
    asked = Asked(world.stores, ReleaseRequest)
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    await world.adopter.queues.barrier_asked.wait()
    world.stores.away = {"c"}
    world.adopter.queues.secure()
    await asked.happened.wait()
    await until(lambda: idle(world))
    world.adopter.queues.barriers = None


async def test_a_store_that_missed_the_release_is_released_by_the_next_order(world: World) -> None:
    await without_one_store(world)
    before = claims(world)
    status = await world.ended()
    assert "stores keep the session, since they could not be asked: c: " in str(status.problem)
    assert claims(world) == before
    world.stores.away.clear()
    assert (await world.ended()).problem is None
    assert world.stores.counts() == [0, 0, 0]
    assert len(world.adopter.queues.taken) == 3


async def test_a_store_that_has_dropped_the_session_meanwhile_keeps_none(world: World) -> None:
    await without_one_store(world)
    claim = next(one for _, one in reversed(world.stores.asked) if isinstance(one, ReleaseRequest))
    world.stores.sessions["c"].perform(SESSION, claim, account="")
    world.stores.away.clear()
    before = claims(world)
    assert (await world.ended()).problem is None
    assert claims(world) == before


async def test_the_same_order_a_hundred_times_is_one_adoption(world: World) -> None:
    world.stores.keep(gone())
    for _ in range(100):
        world.adoptions.order(ORDER)
    await until_idle(world.adoptions)
    before = claims(world)
    for _ in range(100):
        assert world.adoptions.order(ORDER).state == "Done"
    await until_idle(world.adoptions)
    assert world.adoptions._tasks == set()
    assert claims(world) == before
    assert len(world.adopter.queues.taken) == 3
    assert world.counts[0] == {"done": 1}
    assert world.scratch() == []


async def test_an_order_while_the_folder_goes_begins_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its copy would be removed with that of the attempt before."""
    remove, states = shutil.rmtree, list[str]()
    loop = asyncio.get_running_loop()

    def removes(folder: Path) -> None:
        if world.adopter.queues.taken:
            asked = asyncio.run_coroutine_threadsafe(ordered(), loop)
            states.append(asked.result())
        remove(folder)

    async def ordered() -> str:
        return world.adoptions.order(ORDER).state

    world.stores.keep(gone())
    monkeypatch.setattr("pillion_sidecar.adoption_attempts.shutil.rmtree", removes)
    assert (await world.ended()).state == "Done"
    assert states == ["Releasing"]
    assert world.scratch() == []


# ---------------------------------------------------------------------- in no store


async def test_a_session_that_no_store_has_fails_and_is_not_begun(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    status = await world.ended()
    assert (status.state, status.problem) == (
        "Failed",
        "none of the stores a, b, c has the session: it was adopted or dropped, or stores of the"
        " service are not those that keep it",
    )
    assert claims(world) == 0
    assert world.stores.counts() == [0, 0, 0]
    assert any(one.levelno == logging.ERROR for one in caplog.records)


async def test_stores_that_do_not_answer_may_have_the_session(world: World) -> None:
    world.stores.away = {"b", "c"}
    world.adoptions.order(ORDER)
    await until(lambda: world.adoptions.statuses[0].missing == ["b", "c"])
    (status,) = world.adoptions.statuses
    assert (status.state, status.problem) == (
        "Claiming",
        "it waits for stores: b: b is away; c: c is away",
    )
    world.stores.away = set()
    world.adopter.time.advance(FIND_SECONDS)
    await until_idle(world.adoptions)
    assert world.adoptions.statuses[0].state == "Failed"


async def test_a_session_of_which_nothing_was_shipped_is_done(world: World) -> None:
    for name in NAMES:
        claim = ClaimRequest(number=1, claimant="pod/default/host")
        world.stores.sessions[name].perform(SESSION, claim, account="")
    status = await world.ended()
    assert (status.state, status.problem, status.taken) == ("Done", None, 0)
    assert world.stores.counts() == [0, 0, 0]


# ---------------------------------------------------------------------- ends, and two gateways


def _is_asked(kind: type[object]) -> Callable[[World], bool]:
    return lambda world: any(isinstance(one, kind) for _, one in world.stores.asked)


@pytest.mark.parametrize(
    "reached",
    [
        pytest.param(lambda world: True, id="Waiting"),
        pytest.param(_is_asked(IdentitiesRequest), id="Finding"),
        pytest.param(_is_asked(ClaimRequest), id="Claiming"),
        pytest.param(_is_asked(ReadRequest), id="Copying"),
        pytest.param(lambda world: world.adoptions.statuses[0].state == "Reading", id="Reading"),
        pytest.param(lambda world: world.adopter.queues.barrier_asked.is_set(), id="Sending"),
    ],
)
async def test_a_gateway_that_ends_in_any_state_begins_anew(
    world: World, reached: Callable[[World], bool]
) -> None:
    world.stores.keep(gone())
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    for _ in range(100_000):
        if reached(world):
            break
        await asyncio.sleep(0)
    await world.adoptions.close()
    world.adopter.queues.barriers = None
    # What kill -9 leaves.
    left = world.folder / ADOPTING_NAME / SESSION
    left.mkdir(parents=True, exist_ok=True)
    (left / "epochs.json").write_bytes(b"{")
    status = await world.ended(world.again())
    assert (status.state, status.taken + status.duplicate) == ("Done", 3)
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    assert world.stores.counts() == [0, 0, 0]
    assert world.scratch() == []


async def test_a_gateway_that_ends_while_stores_forget_has_taken_all(world: World) -> None:
    world.stores.keep(gone())
    world.adopter.queues.barriers = []
    world.adoptions.order(ORDER)
    await world.adopter.queues.barrier_asked.wait()
    world.stores.away = {"b", "c"}
    world.adopter.queues.secure()
    await until(lambda: world.stores.counts() == [0, 1, 1])
    await world.adoptions.close()
    world.stores.away, world.adopter.queues.barriers = set(), None
    assert (await world.ended(world.again())).state == "Done"
    assert world.adopter.taken("siem") == ["1", "2", "3"]
    assert world.stores.counts() == [0, 0, 0]


async def test_of_two_gateways_one_is_fenced_and_nothing_is_lost(
    world: World, tmp_path: Path
) -> None:
    world.stores.keep(gone())
    other = Adopter()
    world.folder = tmp_path / "other"
    world.folder.mkdir()
    second = world.again(other)
    world.adoptions.order(ORDER)
    second.order(ORDER)
    for adoptions in (world.adoptions, second):
        # The claim of one may come in the middle of the other's.
        while adoptions._tasks:
            world.adopter.time.advance(1.0)
            other.time.advance(1.0)
            async for _ in turns():
                break
    states = sorted(one.statuses[0].state for one in (world.adoptions, second))
    assert states in (["Done", "Failed"], ["Done", "Done"])
    taken = {*world.adopter.taken("siem"), *other.taken("siem")}
    assert taken == {"1", "2", "3"}
    assert world.stores.counts() == [0, 0, 0]


# ---------------------------------------------------------------------- bounds, and what is told


async def test_the_latest_done_ones_are_told(world: World) -> None:
    for number in range(MOST_DONE + 5):
        order = order_of(number)
        world.others[order.session] = stores = type(world.stores)()
        claim = ClaimRequest(number=1, claimant="pod/default/host")
        for name in NAMES:
            stores.sessions[name].perform(SESSION, claim, account="")
        world.adoptions.order(order)
    await until_idle(world.adoptions)
    assert len(world.adoptions.statuses) == MOST_DONE
    assert world.counts[0] == {"done": MOST_DONE + 5}


async def test_more_adoptions_than_can_be_remembered_are_refused_unless_one_has_failed(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pillion_sidecar.adoption_runtime.MOST_KNOWN", 20)
    world.stores.keep(gone())
    world.adopter.fill()
    for number in range(19):
        world.adoptions.order(order_of(number))
    world.adoptions.order(ORDER)
    with pytest.raises(OrderError, match="20 adoptions are under way; order it again once some"):
        world.adoptions.order(order_of(20))
    await until(lambda: len(world.adoptions._tasks) == 1)
    assert world.counts[0] == {"failed": 19}
    world.adoptions.order(order_of(20))
    assert len(world.adoptions.statuses) == 20
    await world.adoptions.close()


def test_two_queues_of_one_destination_are_told_as_one() -> None:
    membership = Membership(groups=(StoreGroup(name="g", members=NAMES),))
    adoption = Adoption(
        ORDER,
        membership,
        progress=[
            Progress(name="siem", pending=2, taken=1),
            Progress(name="ops", pending=1),
            Progress(name="siem", pending=3, taken=4, problem="full"),
        ],
    )
    status = adoption.status(0.0)
    assert (status.pending, status.taken) == (6, 5)
    assert [(one.name, one.pending, one.problem) for one in status.destinations] == [
        ("siem", 5, "full"),
        ("ops", 1, None),
    ]


def test_what_a_status_tells_is_bounded() -> None:
    membership = Membership(groups=(StoreGroup(name="g", members=NAMES),))
    adoption = Adoption(ORDER, membership)
    adoption.progress = [
        Progress(name=f"siem-{number}", pending=1, problem="x" * 1000) for number in range(200)
    ]
    adoption.wait([f"store-{number}" for number in range(50)], {"a": "y" * 1000}, now=0.0)
    status = adoption.status(0.0, most=7)
    assert (len(status.destinations), len(status.missing)) == (7, 10)
    assert len(status.problem or "") == 300
    assert {len(one.problem or "") for one in status.destinations} == {300}


@pytest.mark.parametrize("name", ["a..b", ".a", "a.", "-a", "a-.b", "a" * 64, "A", "a/b"])
def test_an_order_names_gateways_that_have_a_host_name(name: str) -> None:
    order = (
        f'{{"session":"{SESSION}","service":"s","stores":{{"groups":'
        f'[{{"name":"g","members":["{name}"]}}]}}}}'
    )
    with pytest.raises(OrderError, match=r"\$\.stores\.groups\[0\]\.members\[0\]"):
        read_order(order.encode())
    assert read_order(order.replace(f'"{name}"', '"a.b"').encode()).stores.groups[0].members
