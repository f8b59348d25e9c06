"""A filter's list of properties selects what is delivered: by the filter in force, over a restart,
in both protocols (D.3)."""

from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.config.levels import FIRST_LEVEL, without_newer
from support.listening import Listening, listening
from support.relay_lines import compact, relayed
from support.resources import JSON, alert_filter, service, subscription
from support.running import Running, alert, listener, resources, running

#: What each delivery carries, beside what is listed.
ADDED = {"IndicationIdentifier", "IndicationFilterName", "SequenceContext", "SequenceNumber"}
ALERT = {"Message": "gust", "EventID": "e"}
PROTOCOLS = pytest.mark.parametrize("protocol", ["CIM-XML", "CloudEvents"])


def selecting(listed: str, **spec: Any) -> JSON:
    return alert_filter(query=f"SELECT {listed} FROM CIM_AlertIndication", **spec)


def documents(ops: Listening, listed: str, **spec: Any) -> tuple[JSON, ...]:
    """One destination, and the filter that lists these."""
    chosen, _, *others = resources(listener("ops", ops.url, **spec))
    return (chosen, selecting(listed), *others)


async def attempted(run: Running) -> None:
    """Have what waits attempted now, whenever its next attempt is due, and delivered."""
    assert (await run.post("/drain")).status == 200


def carried(ops: Listening) -> list[set[str]]:
    """The names of the properties of what was delivered, in order."""
    return [set(arrival.properties) for arrival in ops.arrivals]


@PROTOCOLS
async def test_a_listener_gets_what_the_filter_lists(protocol: str, tmp_path: Path) -> None:
    async with listening() as ops:
        given = documents(ops, "message", protocol=protocol)
        async with running(tmp_path, *given) as run:
            await run.publish(alert("a", **ALERT), ack="delivered")
        assert carried(ops) == [{"Message", *ADDED}]
        assert ops.arrivals[0].text("Message") == "gust"


async def test_two_subscriptions_of_one_listener_carry_their_own(tmp_path: Path) -> None:
    async with listening() as ops:
        given = resources(
            listener("ops", ops.url),
            filters=(selecting("EventID", name="events"),),
            subscriptions=(
                subscription("all-to-ops", "ops"),
                subscription("events-to-ops", "ops", filterRef={"name": "events"}),
            ),
        )
        async with running(tmp_path, *given) as run:
            await run.publish(alert("a", **ALERT), ack="delivered")
        by_filter = {arrival.text("IndicationFilterName"): arrival for arrival in ops.arrivals}
        assert set(by_filter["events"].properties) == {"EventID", *ADDED}
        assert set(by_filter["alerts"].properties) >= {"EventID", "Message", "AlertType", *ADDED}


@PROTOCOLS
async def test_what_waits_over_a_restart_carries_what_the_filter_lists_then(
    protocol: str, config: Path, journal: Path
) -> None:
    async with listening() as ops:
        ops.behave(status=503)
        given = documents(ops, "Message", protocol=protocol)
        async with running(config, *given, journal=journal) as run:
            await run.publish(alert("a", **ALERT), alert("b", **ALERT), ack="durable")
            await run.failed("ops", 1)
            await run.kept()
        ops.behave()
        async with running(config, *given, journal=journal) as run:
            await attempted(run)
            assert carried(ops) == [{"Message", *ADDED}] * 2
            ops.behave(status=503)
            await run.publish(alert("c", **ALERT), ack="durable")
            await run.failed("ops", 1)
            await run.kept()
        ops.behave()
        edited = documents(ops, "EventID", protocol=protocol)
        async with running(config, *edited, journal=journal) as run:
            await attempted(run)
        assert carried(ops)[2:] == [{"EventID", *ADDED}]


async def test_an_edit_of_a_running_deliverers_filter_applies_to_what_waits(tmp_path: Path) -> None:
    async with listening() as ops:
        ops.behave(status=503)
        async with running(tmp_path, *documents(ops, "Message")) as run:
            await run.publish(alert("a", **ALERT))
            await run.failed("ops", 1)
            await run.reload(*documents(ops, "EventID"))
            ops.behave()
            run.retry("ops")
            await run.settled()
            await run.reload(*documents(ops, "*"))
            await run.publish(alert("b", **ALERT), ack="delivered")
        first, second = carried(ops)
        assert first == {"EventID", *ADDED}
        assert second >= {"EventID", "Message", "AlertType", *ADDED}


async def test_a_list_that_names_no_property_of_the_class_is_refused(tmp_path: Path) -> None:
    async with listening() as ops, running(tmp_path, *documents(ops, "Message")) as run:
        wrong = documents(ops, "Mesage")
        await run.reload(*wrong)
        await run.publish(alert("a", **ALERT), ack="delivered")
        assert carried(ops) == [{"Message", *ADDED}]


def gateway(ops: Listening, listed: str) -> tuple[JSON, ...]:
    """The configuration of a gateway to which the sidecars of ``default`` relay."""
    subscribed = subscription("alerts-to-ops", "ops")
    subscribed["metadata"]["uid"] = "uid-of-alerts"
    return (
        service("shared", deliverer={"mode": "Gateway"}, shutdownGracePeriodSeconds=0),
        service("default", gatewayRef={"name": "shared"}),
        selecting(listed),
        subscribed,
        listener("ops", ops.url, deliverThrough="Gateway"),
    )


async def relay(run: Running, identifier: str, number: int) -> None:
    line = relayed(identifier, number, uid="uid-of-alerts", context="one")
    line["properties"] |= ALERT
    answer = await run.post("/v1/relay", compact(line), query={"ack": "durable"})
    assert answer.document["accepted"] == 1


async def test_a_gateway_selects_what_sidecars_relay(config: Path, journal: Path) -> None:
    async with listening() as ops:
        given = gateway(ops, "Message")
        async with running(config, *given, journal=journal, service="shared") as run:
            await relay(run, "a", 0)
            await run.settled()
            ops.behave(status=503)
            await relay(run, "b", 1)
            await run.failed("ops", 1)
            await run.kept()
        ops.behave()
        async with running(config, *given, journal=journal, service="shared") as run:
            await attempted(run)
        assert carried(ops) == [{"Message", *ADDED}] * 2


async def test_the_query_for_older_deliverers_delivers_all(tmp_path: Path) -> None:
    async with listening() as ops:
        given = [
            dict(without_newer(one, level=FIRST_LEVEL)[0]) for one in documents(ops, "Message")
        ]
        async with running(tmp_path, *given) as run:
            await run.publish(alert("a", **ALERT), ack="delivered")
        assert carried(ops)[0] >= {"EventID", "Message", "AlertType", *ADDED}
