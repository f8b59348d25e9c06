"""What a sidecar relays arrives once, in order, whatever becomes of the two on the way."""

import io
import json
import time
from pathlib import Path
from typing import Any

import aiohttp
import trustme

from support.relayhouse import Door
from support.running import alert, alerts
from support.token_issuer import TokenIssuer


def expected(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def publish(house: Any, first: int, count: int, *, ack: str = "durable") -> None:
    answer = await house.sidecar.publish(*alerts(first, count), query=f"ack={ack}&timeout=60")
    assert (answer.status, answer.document["accepted"]) == (200, count), answer.document


async def queue(house: Any, name: str = "siem") -> dict[str, Any]:
    answer = await house.sidecar.get(f"/v1/queues/{name}")
    return dict(answer.document)


async def test_what_is_relayed_arrives_in_order_by_way_of_the_gateway(house: Any) -> None:
    house.configure("siem", "other")
    await house.start_gateway()
    await house.start_sidecar()
    await publish(house, 0, 2000, ack="delivered")
    shown = await queue(house)
    assert (shown["protocol"], shown["relayTo"], shown["delivered"]) == ("Relay", "shared", 2000)
    for name in ("siem", "other"):
        await house.listener.until(lambda name=name: len(house.listener.at(name)) >= 2000)
        assert house.listener.at(name) == expected(2000)


async def test_a_gateway_that_is_away_costs_no_attempt_and_no_order(house: Any) -> None:
    retry = {"attempts": 1, "intervalSeconds": 1}
    house.configure("siem", retry=retry, indicationLifetimeSeconds=0)
    await house.start_sidecar()
    await publish(house, 0, 500)
    await house.sidecar.logged("delivery-failing")
    due: set[str] = set()
    while len(due) < 4:
        due |= {(await queue(house))["nextAttemptTime"]} - {None}
    await house.start_gateway()
    await publish(house, 500, 100)
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 600)
    assert house.listener.at("siem") == expected(600)
    assert (await queue(house))["discarded"] == {}


async def test_the_gateway_alone_limits_the_rate_of_what_is_relayed(house: Any) -> None:
    house.configure("siem", rateLimit={"perSecond": 0.001, "burst": 3})
    await house.start_gateway()
    await house.start_sidecar()
    await publish(house, 0, 20)
    while (shown := await queue(house))["delivered"] < 20:
        assert shown["rateLimit"] is None
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 3)
    shown = (await house.gateway.get("/v1/queues/siem")).document
    while shown["delivered"] < 3:
        shown = (await house.gateway.get("/v1/queues/siem")).document
    assert (shown["depth"], shown["rateLimit"]["limiting"]) == (17, True)
    assert house.listener.at("siem") == expected(3)


async def test_nothing_durable_is_lost_or_told_twice_when_both_are_killed(house: Any) -> None:
    house.configure("siem")
    house.listener.status = 503
    await house.start_gateway()
    await house.start_sidecar()
    for number in range(6):
        await publish(house, 100 * number, 100)
        if number % 2:
            await house.kill(house.sidecar)
            await house.start_sidecar()
        else:
            await house.kill(house.gateway)
            await house.start_gateway()
    house.listener.status = 204
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 600)
    assert house.listener.at("siem") == expected(600)


async def test_a_line_that_comes_again_is_known_to_the_gateway_over_all_sidecars(
    house: Any,
) -> None:
    house.configure("siem")
    await house.start_gateway()
    await house.start_sidecar()
    await publish(house, 0, 10, ack="delivered")
    await house.terminate(house.sidecar)
    # Another pod, which knows nothing of it.
    (house.folder / "journal-default").rename(house.folder / "journal-of-the-first")
    await house.start_sidecar()
    await publish(house, 0, 11, ack="delivered")
    await house.listener.until(lambda: "10" in house.listener.at("siem"))
    assert house.listener.at("siem") == expected(11)


async def test_a_line_as_long_as_any_is_relayed_too(house: Any) -> None:
    house.configure("siem")
    await house.start_gateway()
    await house.start_sidecar()
    lines = [alert("0"), alert("1", Message="x" * (1024 * 1024 - 200)), alert("2")]
    body = b"".join(json.dumps(line).encode() + b"\n" for line in lines)
    headers = {"Content-Type": "application/x-ndjson"}
    url = f"{house.sidecar.intake}/v1/indications?source=test&ack=delivered&timeout=60"
    async with (
        aiohttp.ClientSession() as session,
        session.post(url, data=io.BytesIO(body), headers=headers) as answer,
    ):
        document = await answer.json()
    assert (document["accepted"], document["delivered"]) == (3, 3), document
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 3)
    assert house.listener.at("siem") == expected(3)


async def test_over_tls_with_a_token_that_rotates_and_an_authority_that_changes(
    house: Any, tmp_path: Path
) -> None:
    issuer, first, second = TokenIssuer(), trustme.CA(), trustme.CA()
    door = Door(tmp_path)
    door.serve(first)
    door.keys.write_bytes(issuer.document())
    door.trust(second)
    door.token.write_text(issuer.token(now=time.time() - 7200))
    house.secure(door)
    house.configure("siem", publishers=[{"namespace": "team"}])
    await house.start_gateway()
    await house.start_sidecar()
    await publish(house, 0, 10)
    await house.sidecar.logged("delivery-failing")
    while "certificate" not in await detail(house):
        pass
    door.trust(first)
    while "expired" not in await detail(house):
        pass
    token = issuer.token(now=time.time())
    door.token.write_text(token)
    await house.listener.until(lambda: len(house.listener.at("siem")) >= 10)
    assert house.listener.at("siem") == expected(10)
    logged = json.dumps(house.sidecar.log + house.gateway.log)
    shown = await house.sidecar.get("/v1/queues/siem")
    assert token not in logged + json.dumps(shown.document)


async def detail(house: Any) -> str:
    """What the last attempt came to."""
    return str(((await queue(house))["lastResult"] or {}).get("detail", ""))


async def test_members_that_wait_here_and_are_relayed_are_each_delivered_once_over_a_crash(
    house: Any,
) -> None:
    house.configure("siem", direct=("ops",))
    await house.start_gateway()
    await house.start_sidecar()
    member = {"group": "run", "ordered": True, "groupMaxIdleSeconds": 3600}
    late = [{**alert(str(number)), **member, "sequence": number} for number in (2, 1)]
    answer = await house.sidecar.publish(*late, query="ack=durable&timeout=60")
    assert answer.document["accepted"] == 2
    while (await queue(house))["delivered"] < 2:
        pass
    assert house.listener.arrived == {}
    await house.kill(house.sidecar)
    await house.start_sidecar()
    again = await house.sidecar.publish(*late, query="ack=durable&timeout=60")
    assert again.document["duplicate"] == 2
    first = {**alert("0"), **member, "sequence": 0}
    answer = await house.sidecar.publish(first, query="ack=delivered&timeout=60")
    assert answer.document["delivered"] == 1
    for name in ("ops", "siem"):
        await house.listener.until(lambda name=name: len(house.listener.at(name)) >= 3)
        assert house.listener.at(name) == expected(3)
