"""Statuses of services that relay and of what they relay, as an operator writes them."""

import random
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from pillion_operator.store import Key
from pillion_sidecar.config.schema.service import Durability
from support.operator_fakes import run_virtually
from support.operator_world import NAMESPACE, World, settled
from support.store_cases import stream

HUB = {"name": "hub"}
TO_GRAVE = {"deadLetterRef": {"name": "grave"}}
GATEWAY = {"deliverer": {"mode": "Gateway"}}
LISTENER = {
    "destination": "https://listener.example.org/",
    "protocol": "CloudEvents",
    "deliverThrough": "Gateway",
}


def virtually(scenario: Callable[[World], Coroutine[Any, Any, None]]) -> None:
    async def work() -> None:
        world = World(random.Random(1))
        world.calm()
        async with world.leader():
            world.resource("IndicationService", "default", {"gatewayRef": HUB})
            world.resource("IndicationService", "hub", GATEWAY)
            world.resource(
                "IndicationFilter", "all", {"query": "SELECT * FROM CIM_AlertIndication"}
            )
            world.resource("ListenerDestination", "pager", LISTENER)
            world.resource(
                "IndicationSubscription",
                "all",
                {"filterRef": {"name": "all"}, "destinationRef": {"name": "pager"}},
            )
            world.pod("sidecar", service="default")
            await settled(world)
            await scenario(world)

    run_virtually(work())


def condition(world: World, kind: str, name: str, wanted: str) -> tuple[str, str]:
    status = world.api.objects[Key(kind, NAMESPACE, name)]["status"]
    found = [one for one in status["conditions"] if one["type"] == wanted]
    return (found[0]["status"], found[0]["reason"]) if found else ("", "")


def status(world: World, service: str) -> dict[str, Any]:
    found: dict[str, Any] = world.api.objects[Key("IndicationService", NAMESPACE, service)][
        "status"
    ]
    return found


def ready_message(world: World, service: str) -> str:
    (found,) = (one for one in status(world, service)["conditions"] if one["type"] == "Ready")
    return str(found["message"])


def test_a_gateway_that_cannot_start_says_why_and_how_many_serve() -> None:
    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        await settled(world)
        key = Key("Pod", NAMESPACE, "hub-0")
        running = world.api.objects[key]["status"]
        waiting = {"reason": "ImagePullBackOff", "message": 'Back-off pulling image "x".'}
        not_ready = {"type": "Ready", "status": "False"}
        deliverer = {"name": "pillion-deliverer", "state": {"waiting": waiting}}
        held = {**running, "phase": "Pending", "conditions": [not_ready]}
        world.api.put(
            {**world.api.objects[key], "status": {**held, "containerStatuses": [deliverer]}}
        )
        await settled(world)
        assert condition(world, "IndicationService", "hub", "Ready") == (
            "False",
            "GatewayNotRunning",
        )
        assert 'hub-0: ImagePullBackOff (Back-off pulling image "x")' in ready_message(world, "hub")
        assert ready_message(world, "hub").startswith("0/1 pods serve.")
        assert status(world, "hub")["ready"] == "0/1"
        # It waits for a plug-in.
        initializing = {"reason": "PodInitializing"}
        plugin = {"name": "plugin-pager", "state": {"waiting": waiting}}
        statuses = {
            "initContainerStatuses": [plugin],
            "containerStatuses": [{**deliverer, "state": {"waiting": initializing}}],
        }
        world.api.put({**world.api.objects[key], "status": {**held, **statuses}})
        await settled(world)
        told = "hub-0: ImagePullBackOff (container plugin-pager: Back-off pulling image"
        assert told in ready_message(world, "hub")
        # One that cannot be placed, by its scheduler.
        unplaced = {
            "type": "PodScheduled",
            "status": "False",
            "reason": "Unschedulable",
            "message": 'storageclass "nope" not found',
        }
        world.api.put(
            {
                **world.api.objects[key],
                "status": {"phase": "Pending", "conditions": [not_ready, unplaced]},
            }
        )
        await settled(world)
        await settled(world)
        assert 'Unschedulable (storageclass "nope" not found)' in ready_message(world, "hub")
        world.api.put({**world.api.objects[key], "status": running})
        await settled(world)
        assert condition(world, "IndicationService", "hub", "Ready") == ("True", "InForce")

    virtually(scenario)


def test_a_sidecar_that_cannot_be_heard_is_shown_by_number_and_takes_no_readiness() -> None:
    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        world.pod("silent", service="default")
        world.pods["silent"].silent = True
        await settled(world)
        assert condition(world, "IndicationService", "default", "Ready") == ("True", "InForce")
        assert status(world, "default")["ready"] == "1/2"
        assert status(world, "default")["unreachableDeliverers"] == 1
        world.pods["sidecar"].silent = True
        await settled(world)
        await settled(world)
        assert condition(world, "IndicationService", "default", "Ready") == ("True", "Unreported")

    virtually(scenario)


def test_a_journal_that_goes_with_its_pod_is_told_of_and_leaves_the_service_ready() -> None:
    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        await settled(world)
        durable = ("IndicationService", "default", "NotDurableBeyondPod")
        ready = ("IndicationService", "default", "Ready")
        assert condition(world, *durable) == ("True", "VolumeOfPod")
        assert condition(world, *ready)[0] == "True"
        # A gateway's journal lies in a claim.
        assert condition(world, "IndicationService", "hub", durable[2]) == ("", "")
        world.resource("IndicationService", "default", {"gatewayRef": HUB, "handOverTo": HUB})
        await settled(world)
        assert condition(world, *durable) == ("False", "HandedOver")
        world.resource("IndicationService", "default", {"durability": "Memory"})
        world.pods["sidecar"].durability = Durability.MEMORY
        await settled(world)
        assert condition(world, *durable) == ("False", "NothingDurable")

    virtually(scenario)


COPIES = {"journalCopies": {"maximumBytes": "64Mi"}}


def test_nobody_adopts_what_a_stream_has() -> None:
    async def scenario(world: World) -> None:
        durable = ("IndicationService", "default", "NotDurableBeyondPod")
        stores = {"groups": [{"name": "all", "members": [stream()]}]}
        world.resource("IndicationService", "default", {"stores": stores})
        await settled(world)
        assert condition(world, *durable) == ("True", "NotAdopted")
        assert condition(world, "IndicationService", "default", "GatewayReady") == ("", "")
        # Nor with a gateway beside it.
        stores["groups"][0]["members"].append({"gatewayRef": HUB})
        world.resource("IndicationService", "hub", GATEWAY | COPIES)
        world.resource("IndicationService", "default", {"stores": stores})
        await settled(world)
        assert condition(world, *durable) == ("True", "NotAdopted")
        world.resource("IndicationService", "default", {"stores": stores, "handOverTo": HUB})
        await settled(world)
        assert condition(world, *durable) == ("False", "HandedOver")

    virtually(scenario)


def test_stores_are_told_of_until_they_keep_copies() -> None:
    async def scenario(world: World) -> None:
        stores = {"groups": [{"name": "all", "members": [{"gatewayRef": HUB}]}]}
        copies = GATEWAY | COPIES
        ready = ("IndicationService", "default", "GatewayReady")
        durable = ("IndicationService", "default", "NotDurableBeyondPod")
        world.pod("hub-0", service="hub")
        world.resource("IndicationService", "default", {"stores": stores})
        await settled(world)
        assert condition(world, *ready) == ("False", "GatewayNotUsable")
        assert "journalCopies" in ready_message(world, "default")
        assert condition(world, *durable) == ("True", "StoresNotReady")
        world.resource("IndicationService", "hub", copies)
        await settled(world)
        assert condition(world, *ready) == ("True", "GatewayServes")
        assert condition(world, *durable) == ("False", "CopiesKept")
        # The pods' service account is not among the publishers.
        account = [{"namespace": NAMESPACE, "serviceAccount": "other"}]
        world.resource("IndicationService", "hub", {**copies, "publishers": account})
        await settled(world)
        assert condition(world, *ready) == ("False", "GatewayNotUsable")
        assert "pods: default. Add" in ready_message(world, "default")
        # Nor is that of the gateway that would adopt.
        pods = [{"namespace": NAMESPACE, "serviceAccount": "default"}]
        world.resource("IndicationService", "hub", {**copies, "publishers": pods})
        await settled(world)
        assert condition(world, *ready) == ("True", "GatewayServes")
        spec = {"stores": stores, "handOverTo": {"name": "hub"}}
        world.resource("IndicationService", "default", spec)
        await settled(world)
        assert condition(world, *ready) == ("False", "GatewayNotUsable")
        assert "pillion-hub. Add" in ready_message(world, "default")
        world.resource("IndicationService", "default", {"stores": stores})
        world.resource("IndicationService", "hub", copies)
        await settled(world)
        world.remove_pod("hub-0")
        await settled(world)
        assert condition(world, *ready) == ("False", "GatewayNotRunning")
        assert "takes no copies" in ready_message(world, "default")
        assert condition(world, *durable) == ("True", "StoresNotReady")

    virtually(scenario)


def test_a_retry_that_leaves_no_time_to_act_is_told_of_until_it_is_taken_out() -> None:
    async def scenario(world: World) -> None:
        short = ("ListenerDestination", "pager", "RetryTooShort")
        assert condition(world, *short) == ("", "")
        written = {"deliveryRetryAttempts": 3, "deliveryRetryIntervalSeconds": 30}
        world.resource("IndicationService", "default", {"gatewayRef": HUB, **written})
        await settled(world)
        assert condition(world, *short) == ("True", "ShortRetryWritten")
        world.resource("IndicationService", "default", {"gatewayRef": HUB})
        await settled(world)
        assert condition(world, *short) == ("", "")

    virtually(scenario)


def test_a_gateway_without_a_pod_does_not_serve_and_with_one_it_does() -> None:
    async def scenario(world: World) -> None:
        service = ("IndicationService", "default", "GatewayReady")
        assert condition(world, *service) == ("False", "GatewayNotRunning")
        # Neither the gateway is ready, nor who depends on it.
        for name in ("default", "hub"):
            ready = condition(world, "IndicationService", name, "Ready")
            assert ready == ("False", "GatewayNotRunning")
        assert status(world, "hub")["ready"] == "0/1"
        assert status(world, "default")["ready"] == "1/1"
        world.pod("hub-0", service="hub")
        await settled(world)
        assert condition(world, *service) == ("True", "GatewayServes")
        assert condition(world, "IndicationService", "default", "Ready") == ("True", "InForce")
        assert status(world, "hub")["ready"] == "1/1"
        # What is rendered otherwise than it stands in its resource is in force all the same.
        for kind, name in (
            ("IndicationSubscription", "all"),
            ("ListenerDestination", "pager"),
            ("IndicationFilter", "all"),
            ("IndicationService", "hub"),
        ):
            assert condition(world, kind, name, "Ready") == ("True", "InForce")
        world.pods["hub-0"].silent = True
        await settled(world)
        assert condition(world, *service) == ("Unknown", "Unreachable")
        world.remove_pod("hub-0")
        await settled(world)
        assert condition(world, *service) == ("False", "GatewayNotRunning")
        # Without a name there is nothing to say, of that service or of the gateway.
        world.resource("IndicationService", "default", {})
        await settled(world)
        assert condition(world, *service) == ("", "")
        assert condition(world, "IndicationService", "hub", "GatewayReady") == ("", "")

    virtually(scenario)


def test_a_subscription_is_ready_once_the_gateway_runs_on_it_too() -> None:
    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        await settled(world)
        world.pods["hub-0"].stuck = True
        spec = {
            "filterRef": {"name": "all"},
            "destinationRef": {"name": "pager"},
            "onFatalErrorPolicy": "Disable",
        }
        world.resource("IndicationSubscription", "all", spec)
        await settled(world)
        ready = ("IndicationSubscription", "all", "Ready")
        assert condition(world, *ready) == ("False", "RollingOut")
        world.pods["hub-0"].stuck = False
        await settled(world)
        assert condition(world, *ready) == ("True", "InForce")

    virtually(scenario)


def test_what_the_gateway_cannot_deliver_to_is_said_of_the_subscription() -> None:
    async def scenario(world: World) -> None:
        secret = {"bearer": {"secretRef": {"name": "token"}}}
        world.resource("ListenerDestination", "pager", {**LISTENER, "credentials": secret})
        await settled(world)
        accepted = ("IndicationSubscription", "all", "Accepted")
        assert condition(world, *accepted) == ("False", "DestinationNotAccepted")
        delivering = ("ListenerDestination", "pager", "Delivering")
        assert condition(world, *delivering) == ("False", "CredentialsMissing")

    virtually(scenario)


def test_identifiers_that_are_forced_where_several_deliver_are_told_of() -> None:
    async def scenario(world: World) -> None:
        shared = ("ListenerDestination", "pager", "SequenceIdentifiersShared")
        assert condition(world, *shared) == ("", "")
        world.resource("ListenerDestination", "pager", {**LISTENER, "sequenceIdentifiers": "Send"})
        await settled(world)
        assert condition(world, *shared) == ("False", "OneDeliverer")
        world.resource(
            "IndicationService", "hub", {"deliverer": {"mode": "Gateway", "replicas": 2}}
        )
        await settled(world)
        assert condition(world, *shared) == ("True", "SeveralDeliverers")

    virtually(scenario)


def test_a_relayed_destination_drains_in_the_sidecars_and_then_at_the_gateway() -> None:
    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        world.resource("ListenerDestination", "pager", {**LISTENER, "removalPolicy": "Drain"})
        await settled(world)
        sidecar, hub = world.pods["sidecar"], world.pods["hub-0"]
        sidecar.backlog["pager"] = hub.backlog["pager"] = 5
        key = Key("ListenerDestination", NAMESPACE, "pager")
        world.api.remove(key)
        await settled(world)
        # The gateway takes what the sidecar has left.
        assert sidecar.draining == {"pager"}
        assert "pager" in hub.destinations
        sidecar.backlog["pager"] = 0
        await settled(world)
        assert hub.draining == {"pager"}
        assert key in world.api.objects
        hub.backlog["pager"] = 0
        await settled(world)
        assert key not in world.api.objects

    virtually(scenario)


def test_without_a_sidecar_a_relayed_destination_drains_at_the_gateway_alone() -> None:
    async def scenario(world: World) -> None:
        world.remove_pod("sidecar")
        world.resource("ListenerDestination", "pager", {**LISTENER, "removalPolicy": "Drain"})
        await settled(world)
        key = Key("ListenerDestination", NAMESPACE, "pager")
        world.api.remove(key)
        await settled(world)
        assert key not in world.api.objects

    virtually(scenario)


def test_a_service_that_names_itself_as_its_gateway_is_not_ready() -> None:
    async def scenario(world: World) -> None:
        world.resource("IndicationService", "default", {"gatewayRef": {"name": "default"}})
        await settled(world)
        for kind in ("GatewayReady", "Ready"):
            found = condition(world, "IndicationService", "default", kind)
            assert found == ("False", "GatewayNotUsable")
        assert "gatewayRef names the service itself" in ready_message(world, "default")

    virtually(scenario)


def test_services_that_name_each_other_as_gateways_are_not_ready() -> None:
    async def scenario(world: World) -> None:
        world.resource("IndicationService", "default", {"gatewayRef": {"name": "ring"}})
        world.resource("IndicationService", "ring", {"gatewayRef": {"name": "default"}})
        await settled(world)
        for name in ("default", "ring"):
            found = condition(world, "IndicationService", name, "Ready")
            assert found == ("False", "GatewayNotUsable")

    virtually(scenario)


@pytest.mark.parametrize("service", ["nobody", "default"])
def test_every_missing_reference_of_a_subscription_is_named(service: str) -> None:
    async def scenario(world: World) -> None:
        references = {"filterRef": {"name": "no-filter"}, "destinationRef": {"name": "no-listener"}}
        spec = {**references, "serviceRef": {"name": service}}
        world.resource("IndicationSubscription", "lost", spec)
        await settled(world)
        status = world.api.objects[Key("IndicationSubscription", NAMESPACE, "lost")]["status"]
        (accepted,) = (one for one in status["conditions"] if one["type"] == "Accepted")
        reason = "ServiceNotFound" if service == "nobody" else "FilterNotFound"
        assert (accepted["status"], accepted["reason"]) == ("False", reason)
        missing = {"no-filter", "no-listener"} | ({service} - {"default"})
        assert all(
            f" {name} does not exist in this namespace" in accepted["message"] for name in missing
        )

    virtually(scenario)


def test_a_gateway_gets_and_keeps_what_only_dead_letters_are_relayed_to() -> None:
    async def scenario(world: World) -> None:
        def there() -> bool:
            return "grave" in world.pods["hub-0"].destinations

        world.pod("hub-0", service="hub")
        local = {name: value for name, value in LISTENER.items() if name != "deliverThrough"}
        token = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
        grave = {**LISTENER, "destination": "https://grave.example.org/", "credentials": token}
        world.secret("token", "one")
        world.resource("ListenerDestination", "grave", grave)
        world.resource("ListenerDestination", "pager", local)
        await settled(world)
        assert world.pods["hub-0"].destinations == set()
        world.resource("ListenerDestination", "pager", {**local, **TO_GRAVE})
        await settled(world)
        assert "grave" in world.pods["sidecar"].destinations
        assert there()
        assert "b25l" in world.pods["hub-0"].text
        # A new token reaches the one that delivers.
        world.secret("token", "two")
        await settled(world)
        assert "dHdv" in world.pods["hub-0"].text
        # What is queued stays when the service relays no more, until the destination is deleted.
        world.resource("IndicationService", "default", {})
        await settled(world)
        assert there()
        world.api.remove(Key("ListenerDestination", NAMESPACE, "grave"))
        await settled(world)
        assert not there()

    virtually(scenario)


@pytest.mark.parametrize("last", ["grave", "zulu"])
def test_a_gateway_gets_one_that_a_service_has_kept_for_dead_letters(last: str) -> None:
    grave = {**LISTENER, "destination": "https://grave.example.org/"}
    at_last = {
        "grave": ("ListenerDestination", grave),
        "zulu": ("IndicationService", {"gatewayRef": HUB}),
    }

    async def scenario(world: World) -> None:
        world.pod("hub-0", service="hub")
        world.pod("z", service="zulu")
        for name, (kind, spec) in at_last.items():
            unused = {"gatewayRef", "deliverThrough"} if name == last else set()
            world.resource(kind, name, {key: spec[key] for key in spec.keys() - unused})
        local = {name: value for name, value in LISTENER.items() if name != "deliverThrough"}
        loser = {**local, "destination": "https://a.example.org/", **TO_GRAVE}
        world.resource("ListenerDestination", "loser", loser)
        refs = {"filterRef": "all", "destinationRef": "loser", "serviceRef": "zulu"}
        users = {field: {"name": name} for field, name in refs.items()}
        world.resource("IndicationSubscription", "to-loser", users)
        await settled(world)
        for kind, name in (
            ("IndicationSubscription", "to-loser"),
            ("ListenerDestination", "loser"),
        ):
            world.api.remove(Key(kind, NAMESPACE, name))
        await settled(world)
        assert world.pods["z"].destinations == {"grave"}
        assert "grave" not in world.pods["hub-0"].destinations
        kind, spec = at_last[last]
        # Another leader may begin with it, and with the gateway before the service.
        other = world.copied()
        for one in (other, world):
            one.resource(kind, last, spec)
        await settled(world)
        assert "grave" in world.pods["hub-0"].destinations
        async with other.leader():
            await settled(other)
            assert "grave" in other.pods["hub-0"].destinations

    virtually(scenario)
