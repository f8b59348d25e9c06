"""The operator has gateways adopt the journals of pods that are gone (S3.7)."""

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from pillion_operator.cluster.api import ApiError
from pillion_operator.controllers.adoptions import (
    ALIVE_SECONDS,
    BUSY_PART,
    MOST_ORDERS,
    MOST_UNDER_WAY,
    RETRY_FIRST,
    UNRESPONSIVE_AFTER,
)
from pillion_operator.status.conditions import rfc3339
from pillion_operator.store import Key
from support.adopting_gateways import Copies, session
from support.operator_fakes import LoopClock, run_virtually
from support.operator_world import NAMESPACE, World

#: Some rounds.
WHILE = 45.0
STORES = ("a", "b", "c")
GATEWAY: dict[str, Any] = {
    "deliverer": {"mode": "Gateway"},
    "journalCopies": {"maximumBytes": "64Mi"},
}
MEMBERS = [{"gatewayRef": {"name": name}} for name in STORES]
SIDECARS: dict[str, Any] = {
    "handOverTo": {"name": "a"},
    "stores": {"groups": [{"name": "g", "members": MEMBERS}], "within": "All"},
}
SERVICE = Key("IndicationService", NAMESPACE, "default")


class Cluster(World):
    """Three gateways that keep copies, of which ``a`` adopts, and pods with stores."""

    def __init__(self, spec: dict[str, Any] = SIDECARS) -> None:
        super().__init__(random.Random(1))
        self.stores = {name: Copies() for name in STORES}
        for name, copies in self.stores.items():
            self.resource("IndicationService", name, GATEWAY)
            self.pod(f"pillion-{name}-0", service=name)
            self.pods[f"pillion-{name}-0"].answers = copies.answer
        self.resource("IndicationService", "default", spec)

    @property
    def adopter(self) -> Copies:
        return self.stores["a"]

    def uid(self, pod: str) -> str:
        return str(self.api.objects[Key("Pod", NAMESPACE, pod)]["metadata"]["uid"])

    def claim(self, number: int, uid: str, *stores: str, service: str = "default") -> None:
        for name in stores or STORES:
            self.stores[name].keep(number, f"{uid}/{service}/{number}")

    def die(self, pod: str = "app", *, number: int = 1) -> None:
        """A pod that writes a session goes without a word."""
        self.pod(pod, service="default")
        self.claim(number, self.uid(pod))
        self.remove_pod(pod)

    def forget(self, number: int) -> None:
        for one in self.stores.values():
            one.copies.pop(session(number), None)

    def condition(self, kind: str = "SessionsPending", key: Key = SERVICE) -> dict[str, Any] | None:
        status = self.api.objects[key].get("status") or {}
        found = (one for one in status.get("conditions") or () if one["type"] == kind)
        return next(found, None)

    def pending(self) -> tuple[str, str]:
        condition = self.condition()
        assert condition is not None
        return condition["status"], condition["reason"]

    def notes(self, reason: str) -> list[str]:
        return [one["note"] for one in self.api.all("Event") if one["reason"] == reason]

    @property
    def ordered(self) -> list[str]:
        return [order["session"] for order in self.adopter.orders]

    def gauge(self) -> float | None:
        name = "pillion_operator_sessions_pending"
        labels = {"namespace": NAMESPACE, "service": "default"}
        return self.metrics.registry.get_sample_value(name, labels)


@asynccontextmanager
async def led(cluster: Cluster) -> AsyncIterator[Cluster]:
    async with cluster.leader():
        await asyncio.sleep(WHILE)
        yield cluster


def test_the_session_of_a_pod_that_is_gone_is_adopted_and_told() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            assert cluster.pending() == ("False", "NoneLeft")
            cluster.die()
            await asyncio.sleep(WHILE)
            (order,) = cluster.adopter.orders
            assert order == {
                "session": session(1),
                "service": "default",
                "stores": {
                    "groups": [{"name": "g", "members": list(STORES), "backups": []}],
                    "within": "All",
                    "between": "Any",
                    "leaseSeconds": 0,
                },
            }
            assert cluster.stores["b"].orders == []
            assert cluster.pending() == ("True", "Adopting")
            assert cluster.gauge() == 1
            assert cluster.api.objects[SERVICE]["status"]["pendingSessions"] == 1
            assert cluster.notes("SessionAdopted") == []
            assert cluster.notes("DelivererLost") == []
            cluster.adopter.finish(1, taken=2, duplicate=1)
            cluster.forget(1)
            await asyncio.sleep(WHILE)
            assert cluster.pending() == ("False", "NoneLeft")
            assert cluster.gauge() == 0
            assert cluster.notes("SessionAdopted") == [
                "The gateway a has adopted 1 journal(s) of pods that are gone: 2 indication(s) "
                f"taken, 1 that it had already, 0 refused, 0 left. Session: {session(1)}."
            ]
            assert cluster.notes("AdoptionWaits") == []

    run_virtually(work())


def test_a_pod_that_lives_keeps_its_session_whatever_it_answers() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            for name in ("silent", "unlabelled"):
                cluster.pod(name, service="default")
            cluster.pods["silent"].silent = True
            cluster.claim(1, cluster.uid("silent"))
            cluster.claim(2, cluster.uid("unlabelled"))
            key = Key("Pod", NAMESPACE, "unlabelled")
            body = cluster.api.objects[key]
            bare = {**body["metadata"], "labels": {}}
            bare.pop("resourceVersion")
            cluster.api.put({**body, "metadata": bare})
            lists: list[float] = []

            def listed(verb: str, asked: Key) -> None:
                if (verb, asked.kind, asked.namespace) == ("list", "Pod", NAMESPACE):
                    lists.append(asyncio.get_running_loop().time())

            cluster.api.refuse = listed
            await asyncio.sleep(5 * ALIVE_SECONDS)
            assert cluster.ordered == []
            assert cluster.pending() == ("False", "NoneLeft")
            # A list of all pods of a namespace is not asked for in each round.
            assert 4 <= len(lists) <= 6
            cluster.remove_pod("unlabelled")
            await asyncio.sleep(ALIVE_SECONDS + WHILE)
            assert cluster.ordered == [session(2)]

    run_virtually(work())


def test_a_pod_that_has_ended_is_gone_and_one_that_should_have_is_told() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            for number, name in enumerate(("late", "ended"), 1):
                cluster.pod(name, service="default")
                cluster.claim(number, cluster.uid(name))
            ended = cluster.api.objects[Key("Pod", NAMESPACE, "ended")]
            cluster.api.put({**ended, "status": {"phase": "Failed"}})
            key = Key("Pod", NAMESPACE, "late")
            body = cluster.api.objects[key]
            since = rfc3339(LoopClock().time() - UNRESPONSIVE_AFTER - 1)
            going = {**body["metadata"], "deletionTimestamp": since, "finalizers": ["x/y"]}
            going.pop("resourceVersion")
            cluster.api.put({**body, "metadata": going})
            await asyncio.sleep(WHILE)
            assert cluster.ordered == [session(2)]
            cluster.adopter.finish(2)
            cluster.forget(2)
            await asyncio.sleep(WHILE)
            assert cluster.pending() == ("False", "Unresponsive")
            condition = cluster.condition()
            assert condition is not None
            assert condition["message"].startswith("late should have ended and did not")
            assert cluster.ordered == [session(2)]

    run_virtually(work())


def test_nobody_is_proven_to_be_gone_while_the_api_server_does_not_say_so() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            cluster.api.refuse = lambda verb, key: (
                ApiError(503, "ServiceUnavailable", "not now")
                if (verb, key.kind, key.namespace) == ("list", "Pod", NAMESPACE)
                else None
            )
            cluster.die()
            await asyncio.sleep(WHILE)
            assert cluster.ordered == []
            cluster.api.refuse = lambda *_: None
            await asyncio.sleep(WHILE)
            assert cluster.ordered == [session(1)]

    run_virtually(work())


def test_one_round_proves_nothing() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.die()
        async with cluster.leader():
            interval = cluster.settings.gather_interval
            await asyncio.sleep(1.1 * interval)
            assert cluster.ordered == []
            # The next comes soon.
            await asyncio.sleep(BUSY_PART * interval)
            assert cluster.ordered == [session(1)]

    run_virtually(work())


def test_a_session_with_a_given_name_is_its_deliverers_own() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            for name in STORES:
                cluster.stores[name].keep(1, "orders-0-0f0f")
                # Nor is an old claim a reason once another was made.
                cluster.stores[name].keep(2, "u/default/x" if name == "a" else "named", epoch=2)
            cluster.stores["a"].keep(2, "u/default/x", epoch=1)
            await asyncio.sleep(WHILE)
            assert cluster.ordered == []

    run_virtually(work())


def test_what_an_adopter_has_begun_is_ordered_again_after_its_restart() -> None:
    async def work() -> None:
        cluster = Cluster()
        for name in STORES:
            cluster.stores[name].keep(1, "adopter/default/a-0-0f0f", epoch=2)
        async with led(cluster):
            assert cluster.ordered == [session(1)]

    run_virtually(work())


@pytest.mark.parametrize(
    ("change", "reason", "told"),
    [
        ({"handOverTo": None}, "HandOverMissing", "Set it to a service in mode Gateway"),
        ({"stores": None}, "StoresMissing", "Set it as it was"),
        ({"handOverTo": {"name": "gone"}}, "GatewayNotFound", "does not exist in this namespace"),
        ({"handOverTo": {"name": "other"}}, "GatewayNotUsable", "is not in mode Gateway"),
        ({"handOverTo": {"name": "idle"}}, "GatewayNotRunning", "no pod of the gateway idle runs"),
    ],
)
def test_what_is_missing_is_told_with_the_remedy(
    change: dict[str, Any], reason: str, told: str
) -> None:
    async def work() -> None:
        spec = {name: value for name, value in (SIDECARS | change).items() if value is not None}
        cluster = Cluster(spec)
        cluster.resource("IndicationService", "other", {})
        cluster.resource("IndicationService", "idle", {"deliverer": {"mode": "Gateway"}})
        cluster.die()
        async with led(cluster):
            assert cluster.pending() == ("True", reason)
            condition = cluster.condition()
            assert condition is not None
            assert told in condition["message"]
            (note,) = cluster.notes("AdoptionWaits")
            assert note.startswith(f"{reason}: ")
            assert told in note
            assert cluster.ordered == []

    run_virtually(work())


def test_a_gateway_that_refuses_says_why_and_is_asked_again() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.adopter.refusal = 409, "it needs durability Disk"
        cluster.die()
        async with led(cluster):
            assert cluster.pending() == ("True", "GatewayRefuses")
            (note,) = cluster.notes("AdoptionWaits")
            assert "the gateway a: HTTP 409: it needs durability Disk." in note
            cluster.adopter.refusal = None
            await asyncio.sleep(WHILE)
            assert cluster.pending() == ("True", "Adopting")

    run_virtually(work())


def test_an_adoption_that_waits_for_stores_is_told_once() -> None:
    async def work() -> None:
        cluster = Cluster()
        problem = "it waits for stores: b: b is away"
        cluster.adopter.begin = {"state": "Claiming", "problem": problem, "missing": ["b"]}
        cluster.die()
        async with led(cluster):
            await asyncio.sleep(5 * WHILE)
            assert cluster.ordered == [session(1)]
            assert cluster.pending() == ("True", "AdoptionWaits")
            (note,) = cluster.notes("AdoptionWaits")
            assert problem in note

    run_virtually(work())


def test_one_that_has_failed_is_ordered_again_ever_more_seldom() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.adopter.begin = {"state": "Failed", "problem": "fenced", "endedSeconds": 0.0}
        cluster.die()
        async with led(cluster):
            assert cluster.pending() == ("True", "AdoptionFailed")
            before = len(cluster.ordered)
            await asyncio.sleep(40 * RETRY_FIRST)
            assert 1 < len(cluster.ordered) - before < 8

    run_virtually(work())


def test_what_a_store_has_kept_is_ordered_again() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.die()
        async with led(cluster):
            cluster.adopter.finish(1)
            cluster.adopter.change(1, problem="stores keep the session: c: c is away")
            cluster.adopter.begin = {"state": "Sending"}
            await asyncio.sleep(WHILE)
            assert cluster.ordered == [session(1)] * 2

    run_virtually(work())


def test_orders_are_bounded_and_all_come() -> None:
    async def work() -> None:
        cluster = Cluster()
        for number in range(MOST_UNDER_WAY + 4):
            cluster.claim(number, f"gone-{number}")
        async with cluster.leader():
            interval = cluster.settings.gather_interval
            await asyncio.sleep((1.1 + BUSY_PART) * interval)
            assert len(cluster.ordered) == MOST_ORDERS
            await asyncio.sleep(20 * interval)
            assert len(cluster.ordered) == MOST_UNDER_WAY
            for number in range(MOST_UNDER_WAY):
                cluster.adopter.finish(number)
                cluster.forget(number)
            await asyncio.sleep(2 * interval)
            assert len(set(cluster.ordered)) == MOST_UNDER_WAY + 4
            # Together, not one by one.
            assert len(cluster.notes("SessionAdopted")) == 1

    run_virtually(work())


def test_a_store_that_does_not_answer_changes_no_status() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.die()
        async with led(cluster):
            for name in STORES:
                cluster.pods[f"pillion-{name}-0"].silent = True
            await asyncio.sleep(WHILE)
            assert cluster.pending() == ("True", "Adopting")
            assert cluster.gauge() == 1

    run_virtually(work())


def test_a_gateway_that_does_not_list_its_copies_is_logged_once(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.stores["c"].keeps = False
        cluster.die()
        async with led(cluster):
            # The others have it, too.
            assert cluster.ordered == [session(1)]
            cluster.stores["c"].keeps = True
            await asyncio.sleep(WHILE)
            cluster.stores["c"].keeps = False
            await asyncio.sleep(WHILE)

    run_virtually(work())
    told = [one.getMessage() for one in caplog.records if "copies of journals" in one.getMessage()]
    assert len(told) == 2
    assert told[0].endswith(
        "IndicationService shop/c does not list its copies of journals, so "
        "what only it has is not adopted: HTTP 404: no copies"
    )


def test_sessions_of_a_service_that_is_gone_are_told_at_a_gateway() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.claim(1, "gone-1", service="former")
        async with led(cluster):
            (note,) = cluster.notes("AdoptionWaits")
            assert "IndicationService former does not exist any more" in note
            assert cluster.ordered == []

    run_virtually(work())


def test_another_leader_goes_on_and_repeats_no_event() -> None:
    async def work() -> None:
        cluster = Cluster()
        cluster.die()
        async with led(cluster):
            cluster.adopter.finish(1)
            cluster.adopter.change(1, endedSeconds=1000.0)
            assert cluster.pending() == ("True", "Adopting")
            cluster.forget(1)
        other = cluster.copied()
        for key, body in cluster.api.objects.items():
            if key.kind == "IndicationService":
                other.api.objects[key]["status"] = body["status"]
        async with other.leader():
            await asyncio.sleep(0.5 * cluster.settings.gather_interval)
            assert other.said()[str(SERVICE)]["status"]["conditions"]
            await asyncio.sleep(WHILE)
        status = other.api.objects[SERVICE]["status"]
        reasons = {one["type"]: one["reason"] for one in status["conditions"]}
        assert reasons["SessionsPending"] == "NoneLeft"
        assert [one["reason"] for one in other.api.all("Event")].count("SessionAdopted") <= 1

    run_virtually(work())


def stateful_set(cluster: Cluster, name: str) -> dict[str, Any]:
    key = Key("StatefulSet", NAMESPACE, f"pillion-{name}")
    pod = cluster.api.objects[key]["spec"]["template"]["spec"]
    assert isinstance(pod, dict)
    return pod


def test_the_adopter_alone_reaches_stores_and_goes_on_to_do_so() -> None:
    async def work() -> None:
        async with led(Cluster()) as cluster:
            pod = stateful_set(cluster, "a")
            args = pod["containers"][0]["args"]
            assert args[args.index("--gateway") + 1].startswith(
                "https://pillion-{service}.shop.svc"
            )
            assert {"--gateway-ca", "--gateway-token"} < set(args)
            mounts = {one["name"] for one in pod["containers"][0]["volumeMounts"]}
            named = {one["name"] for one in pod["volumes"]}
            assert "pillion-token" in mounts & named
            other = stateful_set(cluster, "b")
            assert "--gateway" not in other["containers"][0]["args"]
            assert "pillion-token" not in {one["name"] for one in other["volumes"]}
            # A service of a job that is over must not restart the gateway.
            cluster.api.remove(SERVICE)
            cluster.resource("IndicationService", "a", GATEWAY | {"shutdownGracePeriodSeconds": 9})
            await asyncio.sleep(WHILE)
            assert stateful_set(cluster, "a")["terminationGracePeriodSeconds"] == 19
            assert stateful_set(cluster, "a")["containers"][0]["args"] == args

    run_virtually(work())


def test_without_stores_nobody_is_asked_and_nothing_is_said() -> None:
    async def work() -> None:
        # As a sidecar's gateway and for its hand-over.
        gateway = {"name": "a"}
        cluster = Cluster({"gatewayRef": gateway, "handOverTo": gateway})
        asked: list[str] = []

        def answer(_: str, path: str, __: bytes | None) -> tuple[int, bytes]:
            asked.append(path)
            return 404, b""

        for name in STORES:
            cluster.resource("IndicationService", name, {"deliverer": {"mode": "Gateway"}})
            cluster.pods[f"pillion-{name}-0"].answers = answer
        async with led(cluster):
            assert asked == []
            assert cluster.condition() is None
            assert cluster.gauge() is None
            for name in STORES:
                assert "--gateway" not in stateful_set(cluster, name)["containers"][0]["args"]

    run_virtually(work())
