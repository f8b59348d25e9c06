"""Hundreds of wrong resources: each author is told, nobody is told Ready, and nobody else waits."""

import time
from collections import Counter
from dataclasses import dataclass, field

import pytest

from cluster.convergence import Object, World, condition
from cluster.operators import Operators, judging
from pillion_testbed.control_plane import ControlPlane
from pillion_testbed.kubectl import Kubectl
from pillion_testbed.rest import Refused
from support.cluster_resources import classes, destination, filter_, service, subscription
from support.wrong_resources import SHARED, Outcome, Wrong, secrets, wrong_resources

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(300)]

WITNESS = "https://witness.example.com/events"
#: Wrong resources between two changes of the good one.
BATCH = 50


@dataclass(slots=True)
class Told:
    """How the authors were told so far."""

    counts: Counter[Outcome] = field(default_factory=Counter)
    #: Where something else was said than had to be.
    otherwise: list[str] = field(default_factory=list)
    #: Seconds until a condition said it, at most as long, and of which.
    slowest: tuple[float, str] = (0.0, "")
    slowest_change: float = 0.0


def apply(world: World, wrong: Wrong, told: Told) -> bool:
    """Apply one; return whether it is stored."""
    try:
        world.apply(wrong.resource)
    except Refused as refusal:
        told.counts[Outcome.REFUSED] += 1
        if wrong.outcome is not Outcome.REFUSED or wrong.says not in refusal.body:
            told.otherwise.append(f"{wrong}\n  refused: {refusal.body}")
        return False
    if wrong.outcome is Outcome.REFUSED:
        told.otherwise.append(f"{wrong}\n  is stored; warnings: {world.warnings}")
    elif wrong.outcome is Outcome.WARNED:
        told.counts[Outcome.WARNED] += 1
        if not any(wrong.says in warning for warning in world.warnings):
            told.otherwise.append(f"{wrong}\n  warnings: {world.warnings}")
    else:
        told.counts[Outcome.CONDITION] += 1
    world.apply(*wrong.beside)
    return True


def is_told(body: Object, wrong: Wrong) -> bool:
    """Whether the status is of this generation, and says what is wrong."""
    assert wrong.condition is not None
    type_, *rest = wrong.condition
    status = body.get("status") or {}
    return (
        status.get("observedGeneration") == body["metadata"]["generation"]
        and list(condition(body, type_)) == rest
    )


def until_told(
    world: World, stored: dict[tuple[str, str], tuple[Wrong, float]], told: Told
) -> None:
    """Wait until a condition of each of these says what is wrong."""
    waiting = dict(stored)

    def all_told() -> bool:
        for body in world.ours():
            key = (body["kind"], body["metadata"]["name"])
            if key in waiting and is_told(body, waiting[key][0]):
                wrong, applied = waiting.pop(key)
                told.slowest = max(told.slowest, (time.monotonic() - applied, str(wrong)))
        return not waiting

    names = [str(wrong) for wrong, _ in waiting.values()]
    try:
        world.until(all_told, f"each of {names} has its condition")
    except AssertionError as error:
        left = "\n".join(f"{wrong}\n  not {wrong.condition}" for wrong, _ in waiting.values())
        told.otherwise.append(f"{left}\n{error}")


def change_reaches_deliverers(world: World, timeout: int, told: Told) -> None:
    """Change the good destination, and wait until the configuration has it."""
    began = time.monotonic()
    world.patch("ListenerDestination", "operations", {"spec": {"timeoutSeconds": timeout}})

    def rendered() -> bool:
        spec = (world.content() or {}).get(("ListenerDestination", "operations")) or {}
        return bool(spec.get("timeoutSeconds") == timeout)

    world.until(rendered, "the change of the good destination is in the configuration")
    told.slowest_change = max(told.slowest_change, time.monotonic() - began)


def untrue(body: Object, wrong: Wrong) -> str:
    """What the status says that it must not; empty: nothing."""
    conditions = (body.get("status") or {}).get("conditions") or ()
    if any(one["reason"] == "InternalError" for one in conditions):
        return f"{wrong}: InternalError"
    strange = wrong.outcome is Outcome.WARNED
    if condition(body, "Ready")[0] == "True" and not strange:
        return f"{wrong}: Ready"
    return ""


def test_of_each_wrong_resource_its_author_is_told_and_nobody_else_waits(
    world: World,
    operators: Operators,
    admin_kubectl: Kubectl,
    namespace: str,
    control_plane: ControlPlane,
    capsys: pytest.CaptureFixture[str],
) -> None:
    operator = operators.start(loopback=False)
    world.apply(service(), filter_(), destination(WITNESS), subscription(), *secrets())
    world.apply(service("shared", deliverer=SHARED))
    world.apply(classes("class ACME_Known : CIM_AlertIndication { };"))
    world.converges()
    everything = wrong_resources()
    told = Told()
    kept: dict[tuple[str, str], Wrong] = {}
    with judging(operator, admin_kubectl, namespace=namespace):
        world.apply(service("right", mofFrom=[{"configMapRef": {"name": "vendors"}}]))
        for number in range(0, len(everything), BATCH):
            stored = {}
            for wrong in everything[number : number + BATCH]:
                if apply(world, wrong, told) and wrong.condition is not None:
                    key = (wrong.resource["kind"], wrong.resource["metadata"]["name"])
                    stored[key] = (wrong, time.monotonic())
                    kept[key] = wrong
            change_reaches_deliverers(world, 100 + number, told)
            until_told(world, stored, told)
    bodies = {(body["kind"], body["metadata"]["name"]): body for body in world.ours()}
    lies = [lie for key, wrong in kept.items() if (lie := untrue(bodies[key], wrong))]
    with capsys.disabled():
        counts = ", ".join(f"{one.value} {told.counts[one]}" for one in Outcome)
        print(
            f"\n{len(everything)} wrong resources: {counts}; slowest condition "
            f"{told.slowest[0]:.1f} s ({told.slowest[1][:60]}); "
            f"slowest change of the good one {told.slowest_change:.1f} s"
        )
    assert not told.otherwise, "\n".join(told.otherwise)
    assert not lies, "\n".join(lies)
    assert world.condition("ListenerDestination", "operations", "Ready")[0] == "True"
    assert len(everything) >= 300
    assert operator.running.exit_code() is None
