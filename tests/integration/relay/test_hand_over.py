"""What a sidecar that ends hands over to a gateway."""

from typing import Any

import pytest

from support.running import alerts


async def begin(house: Any, count: int = 50) -> None:
    await house.start_sidecar()
    answer = await house.sidecar.publish(*alerts(0, count), query="ack=durable")
    assert answer.document["accepted"] == count


def told(house: Any) -> dict[str, Any]:
    (record,) = house.sidecar.events("handed-over")
    return dict(record)


@pytest.mark.parametrize("is_hung", [False, True])
async def test_what_a_dead_listener_does_not_take_is_handed_over(house: Any, is_hung: bool) -> None:
    house.configure("siem", through="Deliverer")
    listener = house.listener
    listener.hangs, listener.status = is_hung, 503
    await house.start_gateway()
    await begin(house)
    assert await house.terminate(house.sidecar) == 0
    record = told(house)
    assert (record["handed_over"], record["delivered"], record["left"]) == (50, 0, 0)
    assert record["gateway"] == "shared"
    listener.hangs, listener.status = False, 204
    # Those that hung are answered too; the gateway's tries come after.
    listener.status = 503
    listener.let_go()
    listener.status = 204
    await listener.until(lambda: len(set(listener.at("siem"))) >= 50)
    assert list(dict.fromkeys(listener.at("siem"))) == [str(n) for n in range(50)]


async def test_what_no_gateway_takes_stays_in_the_journal(house: Any) -> None:
    house.configure("siem", through="Deliverer")
    house.listener.status = 503
    await begin(house)
    assert await house.terminate(house.sidecar) == 0
    assert (told(house)["handed_over"], told(house)["left"]) == (0, 50)
    (kept,) = house.sidecar.events("kept-at-shutdown")
    assert kept["count"] == 50
    house.listener.status = 204
    await house.start_sidecar()
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 50)
    assert house.listener.at("siem") == [str(number) for number in range(50)]


async def test_what_is_hastened_before_the_end_is_not_handed_over(house: Any) -> None:
    house.configure("siem", through="Deliverer")
    house.listener.status = 503
    await house.start_gateway()
    await begin(house, 3)
    session = house.sidecar._session
    async with session.post(f"{house.sidecar.administration}/drain?timeout=0.5") as answer:
        assert (await answer.json())["pending"] == 3
    assert not house.sidecar.events("handed-over")
