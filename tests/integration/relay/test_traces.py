"""The trace of a publisher reaches listeners, through a gateway, over kills and redrive."""

import json
from typing import Any

from support.running import alerts

IDS = "4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7"
TRACE = {"traceparent": f"00-{IDS}-01", "tracestate": "congo=t61"}
FATAL = [{"answers": ["5xx"], "action": "Discard", "attempts": 1}]


async def publish(house: Any, number: int, **headers: str) -> None:
    query = "ack=durable&timeout=60"
    answer = await house.sidecar.publish(*alerts(number, 1), query=query, headers=headers)
    assert (answer.status, answer.document["accepted"]) == (200, 1), answer.document


def attributes(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name.startswith("trace")}


async def test_a_trace_reaches_the_listener_through_a_gateway_over_kills(house: Any) -> None:
    house.configure("siem")
    await house.start_sidecar()
    await publish(house, 0, **TRACE)
    await publish(house, 1, traceparent="not a trace", tracestate="a=1")
    await house.kill(house.sidecar)
    house.listener.status = 503
    await house.start_sidecar()
    await house.start_gateway()
    await house.gateway.logged("delivery-failing")
    await house.kill(house.gateway)
    house.listener.status = 204
    await house.start_gateway()
    await house.listener.until(lambda: len(house.listener.at("siem")) == 2)
    first, second = house.listener.events["/siem"]
    assert (attributes(first), attributes(second)) == (TRACE, {})
    headers = house.listener.headers["/siem"]
    assert [one.get("traceparent") for one in headers] == [TRACE["traceparent"], None]
    assert [one.get("tracestate") for one in headers] == [TRACE["tracestate"], None]


async def test_what_is_redriven_has_the_trace_of_its_publisher(house: Any) -> None:
    house.configure(direct=("siem",), responsePolicy=FATAL)
    house.listener.status = 500
    await house.start_sidecar()
    await publish(house, 0, **TRACE)
    # Once it is there, a kill does not bring it back to the queue.
    await house.sidecar.get("/v1/outcomes?result=discarded&wait=60")
    await house.kill(house.sidecar)
    house.listener.status = 204
    await house.start_sidecar()
    outcomes = await house.sidecar.get("/v1/outcomes?result=discarded")
    assert json.loads(outcomes.document)["traceparent"] == TRACE["traceparent"]
    await house.sidecar.post("/v1/outcomes/redrive")
    await house.listener.until(lambda: house.listener.at("siem") == ["0"])
    assert attributes(house.listener.last["/siem"]) == TRACE
