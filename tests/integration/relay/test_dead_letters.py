"""Dead letters of a sidecar by way of its gateway, and those of the gateway itself."""

from typing import Any

from support.running import alerts

FATAL = [{"answers": ["5xx"], "action": "Discard", "attempts": 1}]


async def publish(house: Any, count: int) -> None:
    answer = await house.sidecar.publish(*alerts(0, count), query="ack=durable&timeout=60")
    assert (answer.status, answer.document["accepted"]) == (200, count), answer.document


def discard_of(event: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in event.items() if name.startswith("pillion")}


async def test_a_sidecars_dead_letters_are_relayed_with_their_reason(house: Any) -> None:
    house.configure(direct=("siem", "noc"), grave="grave", responsePolicy=FATAL)
    house.listener.statuses = {"/siem": 500, "/noc": 500}
    await house.start_sidecar()
    await publish(house, 20)
    await house.sidecar.logged("delivery-failing")
    # They wait in the sidecar, over a kill.
    await house.kill(house.sidecar)
    await house.start_sidecar()
    await house.start_gateway()
    arrived = house.listener
    # Each of two destinations has lost each one.
    await arrived.until(lambda: len(arrived.at("grave")) >= 40)
    assert sorted(arrived.at("grave"), key=int) == [str(number // 2) for number in range(40)]
    found = discard_of(arrived.last["/grave"])
    assert found.pop("pilliondiscarddestination") in ("siem", "noc")
    assert found == {
        "pilliondiscardreason": "fatal-error",
        "pilliondiscarddetail": "HTTP 500",
        "pilliondiscardattempts": 1,
    }


async def test_what_a_gateway_discards_is_its_own_dead_letter(house: Any) -> None:
    house.configure("siem", grave="grave", responsePolicy=FATAL)
    house.listener.statuses = {"/siem": 500}
    await house.start_gateway()
    await house.start_sidecar()
    await publish(house, 20)
    await house.listener.until(lambda: len(house.listener.at("grave")) >= 20)
    assert house.listener.at("grave") == [str(number) for number in range(20)]
    assert discard_of(house.listener.last["/grave"])["pilliondiscarddestination"] == "siem"
