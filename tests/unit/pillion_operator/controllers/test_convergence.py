"""Whatever happens, in whatever order: once it is quiet, the cluster says what a new leader would
say of it. The real leader, on an API server in memory and on virtual time.
"""

import asyncio
import difflib
import random
from collections.abc import Callable
from typing import Any

import pytest

from pillion_operator.certificates.authority import STEP
from pillion_operator.certificates.gateways import INTERVAL
from pillion_operator.controllers import service
from pillion_operator.names import configuration_secret
from pillion_operator.status.conditions import find_condition
from pillion_operator.store import Key
from support.operator_fakes import canonical, run_virtually
from support.operator_world import NAMESPACE, World, quiet, settled

SEEDS = range(24)
OPERATIONS = 30

URL = "http://listener.example.org/"


def random_operation(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    """One thing that a user or the cluster may do now."""
    kind = draw.choice(_OPERATIONS)
    return kind(world, draw)


def _name(draw: random.Random, prefix: str, most: int = 3) -> str:
    return f"{prefix}-{draw.randrange(most)}"


def _service(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "service", 2)
    spec: dict[str, Any] = draw.choice(
        (
            {},
            {"deliveryRetryIntervalSeconds": draw.choice((1, 60))},
            {"deliveryRetryAttempts": -1},
            {"deliverer": {"podSelector": {"matchLabels": {"app": draw.choice("ab")}}}},
            {"deliverer": {"image": draw.choice(("one", "two"))}},
            {"deliverer": {"mode": "Gateway", "replicas": draw.choice((1, 1, 2))}},
            {draw.choice(("gatewayRef", "handOverTo")): {"name": _name(draw, "service", 2)}},
            {"gatewayRef": {"name": _name(draw, "service", 2)}},
        )
    )
    return f"service {name} {spec}", lambda: world.resource("IndicationService", name, spec)


def _destination(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "destination")
    spec: dict[str, Any] = {"destination": URL, "protocol": "CloudEvents"}
    spec |= draw.choice(
        (
            {},
            {"suspended": True},
            {"deliverThrough": "Gateway"},
            {"sequenceIdentifiers": "Send"},
            {"destination": "http://127.0.0.1/"},
            {"destination": "nonsense"},
            {"removalPolicy": "Drain"},
            {"removalPolicy": "Drain"},
            {"retry": {"backoff": "Exponential", "maximumIntervalSeconds": 30}},
            {
                "destination": "https://listener.example.org/",
                "credentials": {"bearer": {"secretRef": {"name": _name(draw, "secret", 2)}}},
            },
        )
    )
    return f"destination {name} {spec}", lambda: world.resource("ListenerDestination", name, spec)


def _filter(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "filter")
    spec = draw.choice(
        (
            {"query": "SELECT * FROM CIM_AlertIndication"},
            {"query": "SELECT * FROM CIM_InstIndication"},
            {"query": "SELECT nonsense"},
            {"query": ""},
        )
    )
    return f"filter {name} {spec}", lambda: world.resource("IndicationFilter", name, spec)


def _subscription(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "subscription", 4)
    spec: dict[str, Any] = {
        "serviceRef": {"name": _name(draw, "service", 2)},
        "filterRef": {"name": _name(draw, "filter")},
        "destinationRef": {"name": _name(draw, "destination")},
    }
    spec |= draw.choice(({}, {}, {}, {"subscriptionState": "Disabled"}, {"onFatalErrorPolicy": 7}))
    return (
        f"subscription {name} {spec}",
        lambda: world.resource("IndicationSubscription", name, spec),
    )


def _secret(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "secret", 2)
    permitted = draw.random() < 0.7
    token = draw.choice(("one", "two"))
    return (
        f"secret {name} {permitted} {token}",
        lambda: world.secret(name, token, permitted=permitted),
    )


def _remove(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    kinds = (
        "IndicationService",
        "ListenerDestination",
        "IndicationFilter",
        "IndicationSubscription",
        "Secret",
    )
    known = [key for key in sorted(world.api.objects) if key.kind in kinds]
    if not known:
        return "nothing to remove", lambda: None
    key = draw.choice(known)
    return f"remove {key}", lambda: world.api.remove(key)


def _pod(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name, service = _name(draw, "pod", 4), _name(draw, "service", 2)
    label = draw.choice("ab")
    return f"pod {name} of {service}", lambda: world.pod(name, service=service, app=label)


def _remove_pod(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    name = _name(draw, "pod", 4)
    return f"remove pod {name}", lambda: world.remove_pod(name)


def _deliverer(world: World, draw: random.Random) -> tuple[str, Callable[[], None]]:
    if not world.pods:
        return "no pod", lambda: None
    name = draw.choice(sorted(world.pods))
    what = draw.choice(("silent", "stuck", "failing", "backlog"))
    destination, yes = _name(draw, "destination"), draw.random() < 0.5

    def change() -> None:
        deliverer = world.pods[name]
        if what == "failing":
            (deliverer.failing.add if yes else deliverer.failing.discard)(destination)
        elif what == "backlog":
            deliverer.backlog[destination] = 5 if yes else 0
        else:
            setattr(deliverer, what, yes)

    return f"pod {name} {what} {destination} {yes}", change


_OPERATIONS = (
    _service,
    _destination,
    _filter,
    _subscription,
    _subscription,
    _secret,
    _remove,
    _pod,
    _remove_pod,
    _deliverer,
)


def begin(world: World, draw: random.Random) -> None:
    """Something that works, for random operations to disturb."""
    for number in range(2):
        world.resource("IndicationService", f"service-{number}", {})
    for number in range(3):
        listener = {"destination": URL, "protocol": "CloudEvents"}
        world.resource("ListenerDestination", f"destination-{number}", listener)
        query = {"query": "SELECT * FROM CIM_AlertIndication"}
        world.resource("IndicationFilter", f"filter-{number}", query)
    for number in range(4):
        spec = {
            "serviceRef": {"name": _name(draw, "service", 2)},
            "filterRef": {"name": _name(draw, "filter")},
            "destinationRef": {"name": _name(draw, "destination")},
        }
        world.resource("IndicationSubscription", f"subscription-{number}", spec)
        world.pod(f"pod-{number}", service=_name(draw, "service", 2))


async def _history(seed: int) -> None:
    draw = random.Random(seed)
    world = World(draw, failing=draw.choice((0.0, 0.0, 0.1)))
    trace: list[str] = []
    async with world.leader():
        if draw.random() < 0.8:
            begin(world, draw)
        for _ in range(draw.randrange(OPERATIONS)):
            told, operation = random_operation(world, draw)
            trace.append(f"{asyncio.get_running_loop().time():.3f} {told}")
            operation()
            await asyncio.sleep(draw.choice((0.0, 0.0, 0.02, 0.07, 0.3, 1.2, 5.0, 40.0)))
        world.calm()
        # An authority that was given up goes in steps.
        await asyncio.sleep(2 * (STEP + INTERVAL))
        await settled(world)
        await quiet(world)
    if forgotten(world):
        return
    later = world.said()
    anew = world.copied()
    async with anew.leader():
        await settled(anew)
    assert differences(later, anew.said()) == "", "\n".join(trace)


def forgotten(world: World) -> bool:
    """Whether the configuration of a refused service was removed. Nobody repairs it until the
    service is accepted, so only this leader knows what its deliverers use."""
    for key, body in world.api.objects.items():
        status = body.get("status") or {}
        accepted = find_condition(status.get("conditions"), "Accepted")
        refused = accepted is not None and accepted["status"] == "False"
        if key.kind == "IndicationService" and refused and status.get("revision"):
            secret = Key("Secret", NAMESPACE, configuration_secret(key.name, 0))
            if secret not in world.api.objects:
                return True
    return False


def differences(later: Any, anew: Any) -> str:
    """What the old leader says (-) and the new one says instead (+)."""
    lines = (canonical(said).splitlines() for said in (later, anew))
    return "\n".join(difflib.unified_diff(*lines, n=12, lineterm=""))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_long_history_ends_as_a_new_leader_would_have_it(seed: int) -> None:
    run_virtually(_history(seed))


@pytest.mark.parametrize("seed", SEEDS)
def test_a_history_of_large_services_ends_the_same(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All services are evaluated in the thread, except by the new leader."""
    monkeypatch.setattr(service, "MANY", -1)
    copied = World.copied

    def copied_small(world: World) -> World:
        monkeypatch.setattr(service, "MANY", 1_000_000)
        return copied(world)

    monkeypatch.setattr(World, "copied", copied_small)
    run_virtually(_history(seed))
