"""One leader by a Lease, in memory: every moment is chosen."""

import asyncio
import itertools
from collections.abc import Callable
from typing import Any, cast

import pytest

from pillion_operator.cluster.api import Api, ApiError, Conflict, NotFound
from pillion_operator.cluster.types import Object, ResourceType
from pillion_operator.leadership import Leadership, LeadershipLost, LeaseTimes
from support.operator_time import FakeClock


class Leases:
    """One Lease, written by optimistic concurrency."""

    def __init__(self) -> None:
        self.lease: dict[str, Any] | None = None
        self.failing = False
        self.hanging = False
        self._versions = itertools.count(1)

    async def get(self, kind: ResourceType, namespace: str, name: str) -> Object | None:
        await self._reach()
        return self.lease

    async def create(self, body: Object) -> Object:
        await self._reach()
        if self.lease is not None:
            raise Conflict(409, "AlreadyExists", "it is there")
        return self._write(body)

    async def replace(self, body: Object) -> Object:
        await self._reach()
        if self.lease is None:
            raise NotFound(404, "NotFound", "it is not there")
        if body["metadata"]["resourceVersion"] != self.lease["metadata"]["resourceVersion"]:
            raise Conflict(409, "Conflict", "it has changed")
        return self._write(body)

    def touch(self, **spec: Any) -> None:
        """Somebody else writes it."""
        assert self.lease is not None
        self._write({**self.lease, "spec": {**self.lease["spec"], **spec}})

    @property
    def spec(self) -> dict[str, Any]:
        assert self.lease is not None
        return cast("dict[str, Any]", self.lease["spec"])

    def _write(self, body: Object) -> Object:
        metadata = {**body["metadata"], "resourceVersion": str(next(self._versions))}
        self.lease = {**body, "metadata": metadata}
        return self.lease

    async def _reach(self) -> None:
        await asyncio.sleep(0)
        if self.failing:
            raise ApiError(503, "ServiceUnavailable", "not now")
        while self.hanging:
            await asyncio.Event().wait()


def replica(
    leases: Leases,
    identity: str,
    clock: FakeClock,
    *,
    leads: Callable[[bool], None] = lambda leading: None,
) -> Leadership:
    return Leadership(
        cast("Api", leases),
        namespace="pillion-system",
        name="pillion-operator",
        identity=identity,
        clock=clock,
        random=lambda: 0.5,
        leads=leads,
    )


async def test_the_first_replica_leads_at_once_and_says_so() -> None:
    leases, told = Leases(), list[bool]()
    await replica(leases, "a", FakeClock(), leads=told.append).acquire()
    assert told == [True]
    assert leases.spec == {
        "holderIdentity": "a",
        "leaseDurationSeconds": 15,
        "leaseTransitions": 0,
        "acquireTime": "2023-11-14T22:13:20.000000Z",
        "renewTime": "2023-11-14T22:13:20.000000Z",
    }


async def test_a_lease_that_is_renewed_is_never_taken() -> None:
    leases, clock = Leases(), FakeClock()
    leader, standby = replica(leases, "a", clock), replica(leases, "b", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    waiting = asyncio.create_task(standby.acquire())
    await clock.advance(120)
    assert leader.leading
    assert not standby.leading
    assert leases.spec["renewTime"] == "2023-11-14T22:15:20.000000Z"
    for task in (holding, waiting):
        task.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)


async def test_a_lease_that_is_not_renewed_is_taken_once_it_was_watched_for_its_time() -> None:
    leases, clock = Leases(), FakeClock()
    await replica(leases, "a", clock).acquire()
    # However old it looks: what counts is how long this replica has seen it unchanged.
    leases.touch(renewTime="1999-01-01T00:00:00.000000Z")
    standby = replica(leases, "b", clock)
    waiting = asyncio.create_task(standby.acquire())
    await clock.advance(14.9)
    assert not waiting.done()
    leases.touch(renewTime="1999-01-01T00:00:01.000000Z")
    await clock.advance(15)
    assert not waiting.done()
    await clock.advance(3)
    await waiting
    assert leases.spec["holderIdentity"] == "b"
    assert leases.spec["leaseTransitions"] == 1


async def test_a_longer_lease_of_another_version_is_respected() -> None:
    leases, clock = Leases(), FakeClock()
    await replica(leases, "a", clock).acquire()
    leases.touch(leaseDurationSeconds=60)
    waiting = asyncio.create_task(replica(leases, "b", clock).acquire())
    await clock.advance(59)
    assert not waiting.done()
    await clock.advance(5)
    await waiting


async def test_a_lease_that_is_given_back_is_taken_at_once() -> None:
    leases, clock, told = Leases(), FakeClock(), list[bool]()
    leader, standby = replica(leases, "a", clock, leads=told.append), replica(leases, "b", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    waiting = asyncio.create_task(standby.acquire())
    await clock.settle()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await leader.release()
    assert leases.spec["holderIdentity"] == ""
    await clock.advance(2.4)
    await waiting
    assert leases.spec["holderIdentity"] == "b"
    assert told == [True, False]


async def test_what_is_not_held_is_not_given_back() -> None:
    leases, clock = Leases(), FakeClock()
    await replica(leases, "a", clock).acquire()
    await replica(leases, "b", clock).release()
    assert leases.spec["holderIdentity"] == "a"


@pytest.mark.parametrize("trouble", ["failing", "hanging"])
async def test_a_leader_that_cannot_renew_writes_nothing_until_it_has(trouble: str) -> None:
    leases, clock, told = Leases(), FakeClock(), list[bool]()
    leader = replica(leases, "a", clock, leads=told.append)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await clock.advance(4)
    setattr(leases, trouble, True)
    await clock.advance(9.9)
    assert told == [True]
    assert not holding.done()
    await clock.advance(0.1)
    assert not leader.leading
    assert told == [True, False]
    # A minute ends nothing, where nobody else takes the Lease.
    await clock.advance(50)
    assert not holding.done()
    recover(leases)
    await clock.advance(14)
    assert leader.leading
    assert told == [True, False, True]
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


def recover(leases: Leases) -> None:
    leases.failing = leases.hanging = False


async def test_of_a_leader_that_could_not_renew_and_a_standby_one_leads() -> None:
    leases, clock, told = Leases(), FakeClock(), list[bool]()
    leader, standby = replica(leases, "a", clock, leads=told.append), replica(leases, "b", clock)
    await leader.acquire()
    waiting = asyncio.create_task(standby.acquire())
    await clock.settle()
    await clock.advance(20)
    await waiting
    # The leader had not run: it finds that another has the Lease, and has written nothing.
    assert not leader.leading
    with pytest.raises(LeadershipLost, match="held by b"):
        await asyncio.gather(leader.hold(), clock.advance(3))
    assert standby.leading
    assert leases.spec["holderIdentity"] == "b"


async def test_an_outage_that_is_shorter_than_the_deadline_is_survived() -> None:
    leases, clock = Leases(), FakeClock()
    leader = replica(leases, "a", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    leases.failing = True
    await clock.advance(7)
    leases.failing = False
    await clock.advance(60)
    assert leader.leading
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_a_process_that_slept_does_not_think_that_it_leads() -> None:
    leases, clock = Leases(), FakeClock()
    leader = replica(leases, "a", clock)
    await leader.acquire()
    clock.skip(3600)
    assert not leader.leading
    leases.touch(holderIdentity="b")
    with pytest.raises(LeadershipLost):
        await asyncio.gather(leader.hold(), clock.advance(3))


async def test_a_leader_whose_lease_another_has_ends_at_once_and_leaves_it() -> None:
    leases, clock = Leases(), FakeClock()
    leader = replica(leases, "a", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await clock.settle()
    leases.touch(holderIdentity="b")
    await clock.advance(2)
    with pytest.raises(LeadershipLost, match="held by b"):
        await holding
    await leader.release()
    assert leases.spec["holderIdentity"] == "b"


async def test_a_label_that_somebody_puts_on_the_lease_ends_no_leadership() -> None:
    leases, clock = Leases(), FakeClock()
    leader = replica(leases, "a", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    await clock.settle()
    leases.touch()
    await clock.advance(30)
    assert leader.leading
    assert not holding.done()
    leases.touch()
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)
    await leader.release()
    assert leases.spec["holderIdentity"] == ""


async def test_a_lease_that_is_deleted_is_made_anew_by_its_leader() -> None:
    leases, clock = Leases(), FakeClock()
    leader, standby = replica(leases, "a", clock), replica(leases, "b", clock)
    await leader.acquire()
    holding = asyncio.create_task(leader.hold())
    waiting = asyncio.create_task(standby.acquire())
    await clock.settle()
    leases.lease = None
    await clock.advance(2)
    assert leases.spec["holderIdentity"] == "a"
    await clock.advance(30)
    assert leader.leading
    assert not waiting.done()
    for task in (holding, waiting):
        task.cancel()
    await asyncio.gather(holding, waiting, return_exceptions=True)


async def test_a_lease_that_is_deleted_is_not_made_anew_to_be_given_back() -> None:
    leases = Leases()
    leader = replica(leases, "a", FakeClock())
    await leader.acquire()
    leases.lease = None
    await leader.release()
    assert leases.lease is None


async def test_a_replica_waits_for_an_api_server_that_is_away() -> None:
    leases, clock = Leases(), FakeClock()
    leases.failing = True
    waiting = asyncio.create_task(replica(leases, "a", clock).acquire())
    await clock.advance(60)
    assert not waiting.done()
    leases.failing = False
    await clock.advance(3)
    await waiting


async def test_one_of_two_that_try_at_the_same_moment_leads() -> None:
    leases, clock = Leases(), FakeClock()
    replicas = [replica(leases, name, clock) for name in "abc"]
    tasks = [asyncio.create_task(one.acquire()) for one in replicas]
    await clock.settle()
    assert [one.leading for one in replicas].count(True) == 1
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def test_times_under_which_two_could_lead_are_refused() -> None:
    with pytest.raises(ValueError, match="outlast the deadline"):
        LeaseTimes(lease=10, renew_deadline=10)
    with pytest.raises(ValueError, match="several retries"):
        LeaseTimes(renew_deadline=2, retry=2)
