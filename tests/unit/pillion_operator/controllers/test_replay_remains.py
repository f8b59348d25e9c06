"""What a gateway keeps of a replay that is over, by what its sidecars and it say."""

from typing import Any

import pytest

from pillion_operator.controllers.replay_remains import Remains
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.evaluation.references import References
from pillion_operator.evaluation.service import ServiceEvaluation
from pillion_operator.evaluation.verdict import ACCEPTED, Verdict
from pillion_operator.polling.reports import DelivererReport, QueueReport
from pillion_operator.store import Key, Store
from support.operator_context import Keys, context_of
from support.operator_objects import NAMESPACE, POD, SERVICE, destination, pod, service
from support.operator_time import FakeClock

HUB = Key("IndicationService", NAMESPACE, "hub")
REFUSED = Verdict(False, "Wrong", "It is wrong.")


class Deliverers:
    """What deliverers have last said."""

    def __init__(self) -> None:
        self.said: dict[str, DelivererReport] = {}

    def reports(self, namespace: str, service: str) -> tuple[DelivererReport, ...]:
        return (self.said[service],) if service in self.said else ()

    def has_synced(self, namespace: str, service: str) -> bool:
        return True


class Bench:
    """A gateway that a replay of ``default`` to ``d`` has just left."""

    def __init__(self) -> None:
        self.clock, self.store, self.states = FakeClock(), Store(), ServiceStates()
        self.deliverers, references = Deliverers(), References()
        self.store.subscribe(references.follow)
        self.remains = Remains(
            context_of(
                clock=self.clock,
                store=self.store,
                references=references,
                states=self.states,
                deliverers=self.deliverers,
                queue=Keys(),
            )
        )
        self.hub = service("hub", deliverer={"mode": "Gateway"})
        self.guest = service(gatewayRef={"name": "hub"})
        for body in (self.hub, self.guest, destination(), pod(), pod("hub-0", deliverer="hub")):
            self.store.put(body)
        self.judged(self.hub, direct=frozenset({"d"}))
        self.judged(self.guest)

    def judged(self, body: dict[str, Any], *, verdict: Verdict = ACCEPTED, **more: Any) -> None:
        state = self.states.put(body, ServiceEvaluation(verdict=verdict, **more))
        state.rollout.advance("now", {})

    async def says(self, service: str, *, depth: int = 0, revision: str = "now") -> None:
        await self.clock.advance(1.0)
        queue = QueueReport(name="d", depth=depth, capacity=9, high_water=9)
        self.deliverers.said[service] = DelivererReport(
            pod=f"{service}-0" if service == "hub" else "p",
            revision=revision,
            queues={"d": queue},
            at=self.clock.time(),
        )

    def kept(self) -> bool:
        return self.remains.of(HUB, replays=(), before=()) == {"d"}


@pytest.fixture
async def bench() -> Bench:
    bench = Bench()
    await bench.says("default")
    await bench.says("hub")
    assert bench.kept()
    return bench


async def test_the_gateway_is_asked_after_its_sidecars(bench: Bench) -> None:
    await bench.says("hub")
    assert bench.kept()
    # The last that they have relayed may have come after that.
    await bench.says("default")
    assert bench.kept()
    await bench.says("hub", depth=1)
    assert bench.kept()
    await bench.says("hub")
    assert not bench.kept()


async def test_sidecars_that_relay_again_are_waited_for_again(bench: Bench) -> None:
    await bench.says("default")
    assert bench.kept()
    await bench.says("default", depth=1)
    await bench.says("hub")
    assert bench.kept()
    await bench.says("default")
    assert bench.kept()
    await bench.says("hub")
    assert not bench.kept()


@pytest.mark.parametrize("obstacle", ["refused", "kept", "older", "unknown"])
async def test_sidecars_that_may_yet_relay_are_waited_for(bench: Bench, obstacle: str) -> None:
    if obstacle == "refused":
        # They continue with what they have, such as the replay.
        bench.judged(bench.guest, verdict=REFUSED)
    elif obstacle == "kept":
        bench.judged(bench.guest, direct=frozenset({"d"}))
    elif obstacle == "unknown":
        del bench.states[SERVICE]
    await bench.says("default", revision="before" if obstacle == "older" else "now")
    await bench.says("hub")
    assert bench.kept()
    await bench.says("hub")
    assert bench.kept()
    # Without pods, none does.
    bench.store.remove(POD)
    assert bench.kept()
    await bench.says("hub")
    assert not bench.kept()
