"""The batches of indications that the benchmarks of intake publish. Nothing of the deliverer is
imported, so they serve for the packages of any commit."""

import asyncio
import json
import time

from aiohttp import ClientSession

BATCH = 1000
BATCHES = 300
CONNECTIONS = 2
BAD_IN_A_HUNDRED = 1


def line(run: int, number: int) -> bytes:
    """One line of about 500 B; each hundredth is invalid, each hundredth a duplicate."""
    place = number % 100
    identity = number - 50 if place == 77 else number
    properties = {
        "IndicationIdentifier": f"weather-{run:02d}-{identity:012d}-a81bc81b-dead-4e5d-abff",
        "IndicationTime": "20130114050000.000000-300",
        "AlertType": 6,
        "PerceivedSeverity": 70_000 if place == 33 else 5,
        "ProbableCause": 52,
        "Description": "Wind gust of 41.4 mph at Newark Liberty International Airport. " * 2,
        "AlertingManagedElement": "WX_Station.Name='EWR',SystemName='nycflights13'",
        "EventID": "gust",
        "SystemName": "ewr.weather.example.com",
        "Message": "Gust of 41.4 mph is above 40 mph",
    }
    return json.dumps(
        {"class": "CIM_AlertIndication", "properties": properties}, separators=(",", ":")
    ).encode()


def batches(run: int) -> list[bytes]:
    return [
        b"\n".join(line(run, batch * BATCH + number) for number in range(BATCH)) + b"\n"
        for batch in range(BATCHES)
    ]


async def publish(url: str, bodies: list[bytes]) -> float:
    """Publish all batches over a few connections; return seconds. Every answer is checked."""
    waiting = list(reversed(bodies))
    bad = BATCH * BAD_IN_A_HUNDRED // 100

    async def one(session: ClientSession) -> None:
        while waiting:
            async with session.post(
                url, data=waiting.pop(), headers={"Content-Type": "application/x-ndjson"}
            ) as response:
                answer = await response.json()
            assert response.status == 207
            assert answer["accepted"] == BATCH - 2 * bad, answer["accepted"]
            assert answer["duplicate"] == bad
            assert [refused["line"] % 100 for refused in answer["refused"]] == [33] * bad

    async with ClientSession() as session:
        start = time.perf_counter()
        await asyncio.gather(*(one(session) for _ in range(CONNECTIONS)))
        return time.perf_counter() - start
