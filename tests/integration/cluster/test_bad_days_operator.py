"""The operator dies, is away, or has its hands full: whoever comes next finds the way on."""

import time
from threading import Event

import pytest

from cluster.bad_days import BadDay, looked_at_everything
from cluster.convergence import Object
from cluster.operators import OperatorProcess
from support.api_proxy import Asked, Fault, HangUp
from support.cluster_resources import (
    credentials,
    destination,
    filter_,
    service,
    subscription,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

URL = "https://listener.example.com/events"
GATEWAY = {"mode": "Gateway"}
#: What is not served by the gateway.
ONLY_SIDECARS = ("default", "alerts-to-operations")
#: The lives of an operator that are enough, whatever it writes in each.
LIVES = 40


def resources() -> list[Object]:
    """One of each, and a gateway."""
    return [
        service(),
        service("shared", deliverer=GATEWAY),
        filter_(),
        destination(
            URL,
            removalPolicy="Drain",
            credentials={"bearer": {"secretRef": {"name": "token"}}},
        ),
        credentials(),
        subscription(),
        subscription("shared-to-operations", by="shared"),
    ]


def await_a_write(day: BadDay, operator: OperatorProcess, wrote: Event) -> None:
    """Wait until it writes, or there is nothing to write."""
    day.world.until(
        lambda: wrote.is_set() or looked_at_everything(day, operator), "it writes, or need not"
    )


def test_an_operator_that_is_killed_at_each_of_its_writes_is_followed_by_one_that_goes_on(
    day: BadDay,
) -> None:
    """Each one is killed once the API server has its first write, whose answer it never gets."""
    shared = [one for one in resources() if one["metadata"]["name"] not in ONLY_SIDECARS]
    day.world.apply(*shared)
    written: list[str] = []
    for _ in range(LIVES):
        wrote = Event()

        def plan(asked: Asked, wrote: Event = wrote) -> Fault | None:
            if not asked.is_write:
                return None
            if wrote.is_set():
                return HangUp()
            wrote.set()
            written.append(f"{asked.method} {asked.path}")
            return HangUp(handed_on=True)

        day.proxy.plan = plan
        operator = day.start()
        await_a_write(day, operator, wrote)
        operator.kill()
        if not wrote.is_set():
            break
    else:
        pytest.fail(f"it has something to write in each life: {written}")
    day.proxy.plan = lambda _: None
    day.start()
    day.world.converges("shared")
    names = [one["metadata"]["name"] for one in day.world.all("Secret")]
    assert sorted(names) == ["pillion-shared-0", "pillion-shared-tls", "token"]
    names = [one["metadata"]["name"] for one in day.world.all("StatefulSet")]
    assert names == ["pillion-shared"]
    finalizers = (day.world.get("ListenerDestination", "operations") or {})["metadata"][
        "finalizers"
    ]
    assert finalizers == ["pillion.dev/drain"]


def test_what_is_done_while_the_operator_is_away_is_made_up_for(day: BadDay) -> None:
    first = day.start()
    other = [service("gone", deliverer=GATEWAY), subscription("gone-to-operations", by="gone")]
    kept = [destination(URL, name="kept"), subscription("to-kept", to="kept")]
    day.world.apply(*resources(), *other, *kept)
    day.world.converges("default", "shared", "gone")
    assert first.stop() == 0
    for kind, name in (
        ("IndicationService", "gone"),
        ("IndicationSubscription", "gone-to-operations"),
        ("IndicationSubscription", "alerts-to-operations"),
        ("IndicationSubscription", "shared-to-operations"),
        ("ListenerDestination", "operations"),
        ("Secret", "token"),
        ("Secret", "pillion-default-0"),
        ("StatefulSet", "pillion-shared"),
    ):
        day.world.delete(kind, name)
    day.world.patch("IndicationFilter", "alerts", {"spec": {"query": "SELECT * FROM CIM_New"}})
    second = day.start()
    day.world.until(
        lambda: day.world.get("ListenerDestination", "operations") is None,
        "the destination is let go: there is nothing to be drained",
    )
    day.world.until(
        lambda: day.world.get("StatefulSet", "pillion-shared") is not None, "the gateway is back"
    )
    day.world.converges("default", "shared")
    names = {name for kind, name in day.world.content() or {} if kind == "ListenerDestination"}
    assert names == {"kept"}
    assert second.running.exit_code() is None


def test_an_object_that_is_changed_a_hundred_times_a_second_costs_less_than_its_changes(
    day: BadDay,
) -> None:
    operator = day.start()
    day.world.apply(*resources())
    day.world.converges("default", "shared")
    before = len(day.writes())
    began = time.monotonic()
    edits = 300
    for number in range(edits):
        query = f"SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > {number}"
        day.world.patch("IndicationFilter", "alerts", {"spec": {"query": query}})
        # A pace, not a wait for anything: no more than a hundred in a second.
        time.sleep(max(0.0, began + (number + 1) / 100 - time.monotonic()))
    day.world.converges("default", "shared")
    assert len(day.writes()) - before < edits / 2
    assert operator.running.exit_code() is None
