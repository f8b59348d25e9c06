"""IndicationReplay: what deliverers get of it, and what its status says of them."""

import asyncio

from pillion_operator.status.conditions import seconds_of
from pillion_operator.store import Key
from pillion_sidecar.config.levels import FIRST_LEVEL
from support.operator_replays import (
    REPLAY,
    SERVICE,
    URL,
    apply,
    complete,
    condition,
    knows,
    message,
    replaying,
    report,
    status,
    uid,
    writes_to,
)
from support.operator_world import NAMESPACE, World, quiet, settled

ARCHIVE = Key("ListenerDestination", NAMESPACE, "archive")


def test_deliverers_get_a_replay_with_its_destination_and_tell_until_all_are_done() -> None:
    async def scenario(world: World) -> None:
        assert world.pods["a"].destinations == {"one"}
        apply(world)
        await settled(world)
        assert knows(world.pods["a"])
        assert world.pods["a"].destinations == {"one", "archive"}
        assert condition(world, "Accepted") == ("True", "Accepted")
        assert condition(world, "Complete") == ("False", "NotFinished")
        report(world, "a", "Running", selected=9, replayed=4, started=1_700_000_100.0)
        await settled(world)
        told = status(world)
        assert (told["state"], told["selected"], told["replayed"]) == ("Running", 9, 4)
        assert (told["deliverers"], told["finishedDeliverers"]) == (2, 0)
        assert told["startTime"] == "2023-11-14T22:15:00Z"
        complete(
            world, "a", selected=9, replayed=8, delivered=7, discarded=1, left_out={"filtered": 1}
        )
        await settled(world)
        assert "completionTime" not in status(world)
        complete(world, "b", selected=1, replayed=1, delivered=1)
        await settled(world)
        told = status(world)
        assert told["state"] == "Complete"
        assert [told[name] for name in ("selected", "replayed", "delivered", "discarded")] == [
            10,
            9,
            8,
            1,
        ]
        assert (told["leftOut"], told["deliverers"], told["finishedDeliverers"]) == (1, 2, 2)
        assert condition(world, "Complete") == ("True", "Finished")
        assert condition(world, "Failed") == ("False", "NoFailure")
        assert "Left out: 1 filtered." in message(world, "Complete")
        # It leaves the configuration, and with it the destination, which holds nothing.
        await settled(world)
        assert not knows(world.pods["a"])
        assert world.pods["a"].destinations == {"one"}
        assert status(world)["state"] == "Complete"
        await quiet(world)

    replaying(scenario)


def test_its_time_ends_with_the_second_of_its_creation_unless_it_says_otherwise() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        apply(world, "later", **{"from": "2999-01-01T00:00:00Z"})
        apply(world, "until", until="2023-11-15T13:00:00Z")
        await settled(world)
        found = {
            one["metadata"]["name"]: (
                one["metadata"]["creationTimestamp"],
                one["spec"].get("until"),
            )
            for one in world.pods["a"].replays.values()
        }
        created, until = found["afternoon"]
        assert seconds_of(until) == (seconds_of(created) or 0.0) + 1
        assert found["later"][1] is None
        assert found["until"][1] == "2023-11-15T13:00:00Z"

    replaying(scenario)


def test_what_it_names_and_does_not_exist_is_told_and_mended() -> None:
    async def scenario(world: World) -> None:
        apply(world, destinationRef={"name": "later"}, filterRef={"name": "gone"})
        await settled(world)
        assert condition(world, "Accepted") == ("False", "DestinationNotFound")
        told = message(world, "Accepted")
        assert "ListenerDestination later" in told
        assert "IndicationFilter gone" in told
        assert condition(world, "Complete") == ("False", "NotAccepted")
        assert not knows(world.pods["a"])
        world.resource("ListenerDestination", "later", URL)
        world.resource("IndicationFilter", "gone", {"query": "SELECT * FROM CIM_Indication"})
        await settled(world)
        assert condition(world, "Accepted") == ("True", "Accepted")
        assert knows(world.pods["a"])
        assert '"name":"gone"' in world.pods["a"].text

    replaying(scenario)


def test_a_service_that_comes_later_takes_it_up() -> None:
    async def scenario(world: World) -> None:
        apply(world, serviceRef={"name": "other"})
        await settled(world)
        assert condition(world, "Accepted") == ("False", "ServiceNotFound")
        world.resource("IndicationService", "other", {})
        await settled(world)
        assert condition(world, "Accepted") == ("True", "Accepted")
        # Nobody ran when it was created.
        assert condition(world, "Complete") == ("True", "NoDeliverers")
        assert not knows(world.pods["a"])

    replaying(scenario)


def test_a_time_that_ends_before_it_begins_is_refused_by_field() -> None:
    async def scenario(world: World) -> None:
        apply(world, until="2023-11-14T11:00:00Z")
        await settled(world)
        assert condition(world, "Accepted")[0] == "False"
        assert message(world, "Accepted").startswith("spec.until: is not after from")
        # The service goes on.
        assert world.pods["a"].destinations == {"one"}

    replaying(scenario)


def test_secrets_of_the_destination_come_with_it() -> None:
    async def scenario(world: World) -> None:
        world.secret("token", "one")
        token = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
        world.resource("ListenerDestination", "archive", {**URL, "credentials": token})
        apply(world)
        await settled(world)
        assert "b25l" in world.pods["a"].text

    replaying(scenario)


def test_the_filter_keeps_its_version_in_force_while_an_edit_is_refused() -> None:
    async def scenario(world: World) -> None:
        apply(world, filterRef={"name": "alerts"})
        await settled(world)
        report(world, "a", "Running")
        world.resource("IndicationFilter", "alerts", {"query": "SELECT nonsense"})
        await settled(world)
        assert knows(world.pods["a"])
        assert condition(world, "Accepted") == ("True", "Accepted")

    replaying(scenario)


def test_a_deleted_destination_stops_it_and_is_told() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        report(world, "a", "Running", selected=5, replayed=3)
        await settled(world)
        world.api.remove(ARCHIVE)
        await settled(world)
        assert not knows(world.pods["a"])
        assert condition(world, "Accepted") == ("False", "DestinationNotFound")
        assert (status(world)["state"], status(world)["replayed"]) == ("Waiting", 3)

    replaying(scenario)


def test_suspended_and_the_rate_reach_deliverers_but_not_the_time_to_live() -> None:
    async def scenario(world: World) -> None:
        apply(world, ttlSecondsAfterFinished=60)
        await settled(world)
        revision = world.pods["a"].revision
        apply(world, ttlSecondsAfterFinished=90)
        await settled(world)
        assert world.pods["a"].revision == revision
        apply(world, ttlSecondsAfterFinished=90, suspended=True, rateLimit={"perSecond": 5})
        await settled(world)
        (spec,) = (one["spec"] for one in world.pods["a"].replays.values())
        assert spec["suspended"]
        assert spec["rateLimit"] == {"perSecond": 5}
        assert status(world)["state"] == "Suspended"

    replaying(scenario)


def test_deleted_it_leaves_the_configuration_and_its_destination_stays_until_it_is_empty() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        for pod in ("a", "b"):
            report(world, pod, "Running", replayed=3)
        world.pods["b"].backlog["archive"] = 3
        await settled(world)
        world.api.remove(REPLAY)
        await settled(world)
        assert not knows(world.pods["b"])
        assert "archive" in world.pods["b"].destinations
        # Another leader keeps it too.
        other = world.copied()
        async with other.leader():
            await settled(other)
            assert "archive" in other.pods["b"].destinations
        world.pods["b"].backlog.clear()
        for _ in range(3):
            await settled(world)
        assert "archive" not in world.pods["b"].destinations

    replaying(scenario)


def test_a_deliverer_that_vanishes_is_told_and_not_waited_for() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Running", selected=10, replayed=6, delivered=5)
        complete(world, "b", selected=2, replayed=2, delivered=2)
        await settled(world)
        world.remove_pod("a")
        await settled(world)
        told = status(world)
        assert condition(world, "Complete") == ("True", "DeliverersGone")
        assert [told[name] for name in ("deliverers", "finishedDeliverers", "goneDeliverers")] == [
            2,
            1,
            1,
        ]
        # What it had done, it has done.
        assert (told["selected"], told["replayed"], told["delivered"]) == (12, 8, 7)
        assert "1 ended before they had finished" in message(world, "Complete")

    replaying(scenario)


def test_pods_of_later_have_no_part_in_it() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        world.pod("later", service="default")
        await settled(world)
        complete(world, "a", "b")
        await settled(world)
        assert status(world)["deliverers"] == 2
        assert condition(world, "Complete") == ("True", "Finished")

    replaying(scenario)


def test_one_that_does_not_answer_is_waited_for_and_told() -> None:
    async def scenario(world: World) -> None:
        world.pods["b"].silent = True
        await settled(world)
        apply(world)
        await settled(world)
        complete(world, "a")
        await settled(world)
        assert condition(world, "Complete")[0] == "False"
        assert "1 do not answer the operator" in message(world, "Complete")

    replaying(scenario)


def test_counts_do_not_go_back_when_a_process_begins_anew() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Running", selected=10, replayed=6, delivered=5)
        await settled(world)
        report(world, "a", "Running", selected=1, replayed=1)
        await settled(world)
        assert (status(world)["selected"], status(world)["delivered"]) == (10, 5)

    replaying(scenario)


def test_another_leader_goes_on_from_the_status() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Running", selected=10, replayed=6, delivered=5)
        report(world, "b", "Running", selected=4, replayed=1)
        await settled(world)
        # It goes while nobody leads.
        other = world.copied()
        other.api.objects[REPLAY]["status"] = status(world)
        other.remove_pod("a")
        async with other.leader():
            await settled(other)
            assert status(other)["selected"] == 14
            assert status(other)["goneDeliverers"] == 1
            complete(other, "b", selected=4, replayed=4, delivered=4)
            await settled(other)
            told = status(other)
            assert condition(other, "Complete") == ("True", "DeliverersGone")
            assert (told["selected"], told["replayed"], told["deliverers"]) == (14, 10, 2)

    replaying(scenario)


def test_another_leader_does_not_count_twice_who_answers_it_later() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Running", selected=10, replayed=6, delivered=5)
        report(world, "b", "Running", selected=4, replayed=1)
        await settled(world)
        other = world.copied()
        other.api.objects[REPLAY]["status"] = status(world)
        other.pods["b"].silent = True
        async with other.leader():
            await settled(other)
            assert (status(other)["selected"], status(other)["deliverers"]) == (14, 2)
            report(other, "a", "Running", selected=12, replayed=12, delivered=5)
            await settled(other)
            assert (status(other)["selected"], status(other)["replayed"]) == (14, 12)
            other.pods["b"].silent = False
            await settled(other)
            assert (status(other)["selected"], status(other)["replayed"]) == (16, 13)
            # From now on it keeps what one has done that is gone.
            other.remove_pod("a")
            complete(other, "b", selected=5, replayed=5)
            await settled(other)
            told = status(other)
            assert (told["selected"], told["replayed"], told["goneDeliverers"]) == (17, 17, 1)

    replaying(scenario)


def test_another_leader_counts_once_who_goes_before_it_answers() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Running", selected=10)
        report(world, "b", "Running", selected=4)
        await settled(world)
        other = world.copied()
        other.api.objects[REPLAY]["status"] = status(world)
        other.pods["b"].silent = other.pods["c"].silent = True
        async with other.leader():
            await settled(other)
            other.remove_pod("b")
            await settled(other)
            assert (status(other)["selected"], status(other)["goneDeliverers"]) == (14, 1)
            other.pods["c"].silent = False
            await settled(other)
            complete(other, "a", selected=11)
            await settled(other)
            told = status(other)
            assert (told["selected"], told["deliverers"], told["goneDeliverers"]) == (15, 3, 1)

    replaying(scenario, pods=("a", "b", "c"))


def test_a_failure_is_told_at_once_and_the_others_go_on() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        report(world, "a", "Failed", detail="the history cannot be read")
        report(world, "b", "Running", selected=3)
        await settled(world)
        assert condition(world, "Failed") == ("True", "DelivererFailed")
        assert "a: the history cannot be read" in message(world, "Failed")
        assert status(world)["state"] == "Running"
        complete(world, "b", selected=3)
        await settled(world)
        assert status(world)["state"] == "Failed"
        assert condition(world, "Complete") == ("False", "DelivererFailed")
        assert "completionTime" in status(world)
        assert not knows(world.pods["a"])

    replaying(scenario)


def test_a_finished_one_is_not_given_to_deliverers_again_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        complete(world, "a", "b", selected=3)
        await settled(world)
        finished = status(world)
        other = world.copied()
        other.api.objects[REPLAY]["status"] = finished
        async with other.leader():
            await settled(other)
            assert not knows(other.pods["a"])
            assert status(other) == finished

    replaying(scenario)


def test_after_the_loss_of_its_status_deliverers_know_its_uid() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        known = uid(world)
        complete(world, "a", "b", selected=3)
        await settled(world)
        other = world.copied()
        async with other.leader():
            await settled(other)
            assert uid(other) == known
            assert (status(other)["state"], status(other)["selected"]) == ("Complete", 6)

    replaying(scenario)


def test_its_time_to_live_ends_it_also_after_a_restart() -> None:
    async def scenario(world: World) -> None:
        apply(world, ttlSecondsAfterFinished=1000)
        await settled(world)
        complete(world, "a", "b")
        await settled(world)
        assert status(world)["state"] == "Complete"
        other = world.copied()
        other.api.objects[REPLAY]["status"] = status(world)
        async with other.leader():
            await settled(other)
            assert REPLAY in other.api.objects
            await asyncio.sleep(1000)
            assert REPLAY not in other.api.objects

    replaying(scenario)


def test_a_time_to_live_of_zero_and_one_that_is_set_later() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        complete(world, "a", "b")
        await settled(world)
        assert REPLAY in world.api.objects
        apply(world, ttlSecondsAfterFinished=0)
        await settled(world)
        assert REPLAY not in world.api.objects

    replaying(scenario)


def test_numbers_are_written_every_few_seconds_at_most() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await settled(world)
        with writes_to(world) as writes:
            for number in range(100):
                report(world, "a", "Running", selected=number)
                report(world, "b", ("Running", "Waiting")[number % 2])
                await asyncio.sleep(1)
        assert 5 <= len(writes) <= 20

    replaying(scenario)


def test_an_older_deliverer_is_not_given_what_it_does_not_know() -> None:
    async def scenario(world: World) -> None:
        world.pods["b"].schema_level = FIRST_LEVEL
        await settled(world)
        apply(world)
        await settled(world)
        assert "IndicationReplay" not in world.pods["a"].text
        assert condition(world, "Complete") == ("False", "OlderDeliverers")
        assert status(world)["state"] == "Waiting"
        assert condition(world, "OlderDeliverers", SERVICE) == ("True", "FieldsLeftOut")
        assert "IndicationReplay afternoon" in message(world, "OlderDeliverers", SERVICE)
        world.remove_pod("b")
        await settled(world)
        assert knows(world.pods["a"])
        complete(world, "a")
        await settled(world)
        assert status(world)["state"] == "Complete"

    replaying(scenario)


def test_two_services_have_their_own() -> None:
    async def scenario(world: World) -> None:
        world.resource("IndicationService", "other", {})
        world.pod("c", service="other")
        await settled(world)
        apply(world, "theirs", serviceRef={"name": "other"})
        await settled(world)
        assert knows(world.pods["c"], "theirs")
        assert not world.pods["a"].replays

    replaying(scenario)


def test_a_pod_that_is_younger_than_the_time_has_no_part_in_it() -> None:
    async def scenario(world: World) -> None:
        world.pod("young", service="default")
        await settled(world)
        older = world.api.objects[Key("Pod", NAMESPACE, "a")]["metadata"]
        apply(world, until=older["creationTimestamp"])
        await settled(world)
        assert status(world)["deliverers"] == 2
        complete(world, "a", "b")
        await settled(world)
        assert condition(world, "Complete") == ("True", "Finished")

    replaying(scenario)


def test_an_older_pod_that_becomes_known_a_little_later_is_waited_for() -> None:
    async def scenario(world: World) -> None:
        apply(world)
        await asyncio.sleep(3)
        assert condition(world, "Complete") == ("False", "NotFinished")
        assert "completionTime" not in status(world)
        await settled(world)
        assert condition(world, "Complete") == ("True", "NoDeliverers")

    replaying(scenario, pods=())
