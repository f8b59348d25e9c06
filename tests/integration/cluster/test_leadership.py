"""One leader by a Lease of a real API server."""

import asyncio
import random

import pytest

from pillion_operator.clock import SystemClock
from pillion_operator.cluster.api import Api
from pillion_operator.cluster.types import LEASE
from pillion_operator.leadership import Leadership, LeadershipLost, LeaseTimes

pytestmark = pytest.mark.cluster

#: A busy machine delays no leader for so long that it loses its Lease.
TIMES = LeaseTimes(lease=20.0, renew_deadline=15.0, retry=1.0)
#: As short as a Lease can be: it says whole seconds.
SHORT = LeaseTimes(lease=1.0, renew_deadline=0.8, retry=0.1)


class Replicas:
    """Replicas of one operator, who note when they lead."""

    def __init__(self, api: Api, namespace: str, *, times: LeaseTimes = TIMES) -> None:
        self.times = times
        self.api = api
        self.namespace = namespace
        self.leaders: list[str] = []
        self.history: list[str] = []
        self.most = 0

    def make(self, identity: str) -> Leadership:
        def leads(leading: bool) -> None:
            if leading:
                self.leaders.append(identity)
                self.history.append(identity)
                self.most = max(self.most, len(self.leaders))
            else:
                self.leaders.remove(identity)

        return Leadership(
            self.api,
            namespace=self.namespace,
            name="pillion-operator",
            identity=identity,
            clock=SystemClock(),
            random=random.random,
            leads=leads,
            times=self.times,
        )

    async def lead_once(self, identity: str) -> None:
        """Lead for a few renewals, then leave in order."""
        leadership = self.make(identity)
        await leadership.acquire()
        before = await self.version()
        holding = asyncio.create_task(leadership.hold())
        while await self.version() == before:
            assert not holding.done()
        holding.cancel()
        await asyncio.gather(holding, return_exceptions=True)
        await leadership.release()

    async def version(self) -> str:
        lease = await self.api.get(LEASE, self.namespace, "pillion-operator")
        assert lease is not None
        return str(lease["metadata"]["resourceVersion"])


async def test_replicas_lead_one_after_the_other_and_never_at_once(
    api: Api, namespace: str
) -> None:
    replicas = Replicas(api, namespace)
    names = ["a", "b", "c"]
    await asyncio.gather(*(replicas.lead_once(name) for name in names))
    assert sorted(replicas.history) == names
    assert replicas.most == 1
    lease = await api.get(LEASE, namespace, "pillion-operator")
    assert lease is not None
    assert lease["spec"]["holderIdentity"] == ""
    assert lease["spec"]["leaseTransitions"] == 2


async def test_what_a_killed_leader_leaves_is_taken_once_it_has_expired(
    api: Api, namespace: str
) -> None:
    replicas = Replicas(api, namespace, times=SHORT)
    await replicas.make("killed").acquire()
    await replicas.make("next").acquire()
    lease = await api.get(LEASE, namespace, "pillion-operator")
    assert lease is not None
    assert (lease["spec"]["holderIdentity"], lease["spec"]["leaseTransitions"]) == ("next", 1)


async def test_a_leader_whose_lease_is_deleted_makes_it_anew(api: Api, namespace: str) -> None:
    replicas = Replicas(api, namespace)
    leader = replicas.make("a")
    await leader.acquire()
    await api.delete(LEASE, namespace, "pillion-operator")
    holding = asyncio.create_task(leader.hold())
    while (lease := await api.get(LEASE, namespace, "pillion-operator")) is None:
        assert not holding.done()
    assert lease["spec"]["holderIdentity"] == "a"
    holding.cancel()
    await asyncio.gather(holding, return_exceptions=True)


async def test_a_leader_whose_lease_another_has_taken_ends(api: Api, namespace: str) -> None:
    leader = Replicas(api, namespace).make("a")
    await leader.acquire()
    taken = {"spec": {"holderIdentity": "b"}}
    await api.patch(LEASE, namespace, "pillion-operator", taken)
    with pytest.raises(LeadershipLost, match="held by b"):
        await leader.hold()
