"""A gateway and what sidecars relay to it, over restarts and kills: all of it once, in order."""

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from support.chaos import Child, free_ports
from support.listening import Listening, listening
from support.relay_lines import compact, relayed, statuses
from support.resources import JSON, service, subscription, write
from support.running import Answer, Running, alert_filter, later, listener, running

UID = "uid-of-alerts"
#: Lines of one request, as a sidecar has them.
BATCH = 256
LINES = 10_000


def gateway(*destinations: JSON, uid: str = UID, **settings: Any) -> tuple[JSON, ...]:
    """The configuration of gateway ``shared``, to which the sidecars of ``default`` relay."""
    subscribed = subscription("alerts-to-ops", "ops")
    subscribed["metadata"]["uid"] = uid
    chosen = {"shutdownGracePeriodSeconds": 0, **settings}
    return (
        service("shared", deliverer={"mode": "Gateway"}, **chosen),
        service("default", gatewayRef={"name": "shared"}),
        alert_filter(),
        subscribed,
        *destinations,
    )


def through(name: str, url: str, **spec: Any) -> JSON:
    return listener(name, url, deliverThrough="Gateway", **spec)


def stream(first: int, count: int, *, sidecar: str = "one", **members: Any) -> list[JSON]:
    """Lines of one sidecar, identified by their number."""
    return [
        relayed(str(number), number, uid=UID, context=sidecar, **members)
        for number in range(first, first + count)
    ]


async def relay(run: Running, *lines: JSON, ack: str = "durable") -> Answer:
    return await run.post("/v1/relay", compact(*lines), query={"ack": ack})


def numbers(count: int) -> list[str]:
    return [str(number) for number in range(count)]


async def test_a_gateway_takes_and_delivers_what_is_relayed(config: Path, journal: Path) -> None:
    async with listening() as ops:
        documents = gateway(through("ops", ops.url))
        async with running(config, *documents, journal=journal, service="shared") as run:
            answer = await relay(run, *stream(0, 3), *stream(1, 3, sidecar="two"))
            assert answer.status == 200
            assert answer.document == {
                "accepted": 4,
                "duplicate": 2,
                "refused": [],
                "durable": True,
            }
            await run.settled()
            taken = await run.metric(
                "pillion_intake_indications_total", kind="relay", outcome="accepted"
            )
            assert taken == 4
    assert ops.identifiers == numbers(4)


async def test_identities_and_lifetimes_go_on_over_a_restart(config: Path, journal: Path) -> None:
    async with listening() as ops:
        ops.behave(status=503)
        documents = gateway(
            through("ops", ops.url, retry={"attempts": 1000, "intervalSeconds": 10}),
            indicationLifetimeSeconds=600,
        )
        async with running(config, *documents, journal=journal, service="shared") as run:
            now = run.time.time()
            expired = {"expires": "2001-01-01T00:00:00Z"}
            lines = [
                *stream(0, 2, accepted_at=now - 500, **expired),
                *stream(2, 2, accepted_at=now, **expired),
            ]
            assert (await relay(run, *lines)).document["accepted"] == 4
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        async with running(
            config, journal=journal, service="shared", time=later(run.time, 101.0)
        ) as run:
            answer = await relay(run, *lines)
            # Only the first two are too old by now. Nobody has them, so they are taken again,
            # and are as old as before.
            assert (answer.document["accepted"], answer.document["duplicate"]) == (2, 2)
            ops.behave()
            run.retry("ops")
            await run.settled()
            books = await run.books("ops")
            assert books["discarded"] == 4
    assert ops.identifiers[-2:] == ["2", "3"]


async def test_what_a_sidecar_redrives_is_marked_over_a_restart(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops:
        documents = gateway(
            through("ops", ops.url, retry={"attempts": 1000, "intervalSeconds": 10})
        )
        async with running(config, *documents, journal=journal, service="shared") as run:
            repeated = {"Pillion-Repeated": "1,3"}
            body, durable = compact(*stream(0, 4)), {"ack": "durable"}
            await run.post("/v1/relay", body, query=durable, headers=repeated)
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        ops.behave()
        async with running(
            config, journal=journal, service="shared", time=later(run.time, 20.0)
        ) as run:
            await run.settled()
    marks = {one.text("IndicationIdentifier"): one.properties for one in ops.arrivals}
    assert ops.identifiers == numbers(4)
    correlated = [marks[number].get("CorrelatedIndications") for number in numbers(4)]
    # The first had been attempted before the end.
    assert correlated[1:] == [["1"], None, ["3"]]


async def test_the_groups_of_two_sidecars_are_in_order_over_a_restart(
    config: Path, journal: Path
) -> None:
    said = {"group": "g", "ordered": True, "groupMaxIdleSeconds": 5}

    def member(sequence: int, sidecar: str, **members: Any) -> JSON:
        return stream(sequence, 1, sidecar=sidecar, sequence=sequence, **said, **members)[0]

    async with listening() as ops:
        documents = gateway(through("ops", ops.url), indicationLifetimeSeconds=86400)
        async with running(config, *documents, journal=journal, service="shared") as run:
            # Accepted an hour ago: the gateway was away, and they were not idle meanwhile.
            ago = {"accepted_at": run.time.time() - 3600}
            await relay(run, member(0, "one", **ago), member(2, "one", **ago))
            await run.delivered("ops", 1)
            await run.kept()
            await run.kill()
        async with running(
            config, journal=journal, service="shared", time=later(run.time, 3600.0)
        ) as run:
            # The listener has the first; the rest was held.
            repeated = await relay(run, member(0, "one", **ago), member(2, "two", **ago))
            assert repeated.document["duplicate"] == 2
            await relay(run, member(1, "two", **ago), member(3, "one", **ago))
            await run.settled()
    assert ops.identifiers == numbers(4)


async def test_a_subscription_that_the_gateway_does_not_know_yet_waits(
    config: Path, journal: Path
) -> None:
    async with listening() as ops:
        documents = gateway(through("ops", ops.url), uid="another")
        async with running(config, *documents, journal=journal, service="shared") as run:
            refused = await relay(run, *stream(0, 3))
            assert refused.status == 429
            assert statuses(refused.document, 3) == [429] * 3
            assert UID in refused.document["refused"][0]["reason"]
            await run.reload(*gateway(through("ops", ops.url)))
            assert (await relay(run, *stream(0, 3))).document["accepted"] == 3
            await run.settled()
    assert ops.identifiers == numbers(3)


async def test_a_sidecar_takes_nothing_from_another(config: Path) -> None:
    async with running(config, *gateway(through("ops", "http://127.0.0.1:9/")), service="default"):
        pass
    async with running(config, service="default") as run:
        answer = await relay(run, *stream(0, 1), ack="accepted")
        assert answer.status == 404
        assert "is no gateway" in answer.document["reason"]


# ---------------------------------------------------------------------- a process, killed


class Relay:
    """A sidecar's side: sends batches, and again what was not answered."""

    def __init__(self, url: str, session: aiohttp.ClientSession) -> None:
        self._url = url
        self._session = session
        self.accepted = self.duplicate = 0

    async def send(self, body: bytes | AsyncIterator[bytes], lines: int) -> None:
        """Send lines; raises ClientError where they are not answered."""
        async with self._session.post(
            f"{self._url}/v1/relay?ack=durable",
            data=body,
            headers={"Content-Type": "application/x-ndjson"},
        ) as response:
            document = await response.json()
        assert response.status == 200, document
        assert document["durable"] is True
        self.accepted += document["accepted"]
        self.duplicate += document["duplicate"]
        assert document["accepted"] + document["duplicate"] == lines


def batches(lines: list[JSON]) -> Iterable[list[JSON]]:
    return (lines[begin : begin + BATCH] for begin in range(0, len(lines), BATCH))


@pytest.mark.timeout(180)
async def test_kill_nine_amid_ten_thousand_lines_loses_and_repeats_nothing(tmp_path: Path) -> None:
    resources = tmp_path / "resources"
    resources.mkdir()
    (intake, telemetry) = free_ports(2)
    child = Child(
        "gateway",
        *("pillion_cli.main", "sidecar", "--resources", str(resources), "--service", "shared"),
        *("--journal", str(tmp_path / "journal")),
        *("--intake", f"127.0.0.1:{intake}", "--telemetry", f"127.0.0.1:{telemetry}"),
        folder=tmp_path,
    )
    now = {"accepted_at": time.time()}
    lines = stream(0, LINES, **now)
    async with listening() as ops, aiohttp.ClientSession() as session:
        write(resources, *gateway(through("ops", ops.url, maxInFlight=1)))
        assert await child.start()
        try:
            client = Relay(f"http://127.0.0.1:{intake}", session)
            for number, batch in enumerate(batches(lines)):
                if number in (13, 26):
                    await cut_off(client, child, ops, batch)
                await client.send(compact(*batch), len(batch))
            assert client.accepted + client.duplicate == LINES
            # Half of the two batches was on disk already, some of the rest perhaps.
            assert client.duplicate > 0
            # Another sidecar had the same: nothing of it is delivered again.
            other = Relay(f"http://127.0.0.1:{intake}", session)
            for batch in batches(stream(0, LINES, sidecar="two", **now)):
                await other.send(compact(*batch), len(batch))
            assert (other.accepted, other.duplicate) == (0, LINES)
            await ops.until(lambda: ops.summary.delivered >= LINES)
        finally:
            child.send(signal.SIGKILL)
            await child.running.wait()
    assert ops.identifiers == numbers(LINES)


async def cut_off(client: Relay, child: Child, ops: Listening, batch: list[JSON]) -> None:
    """Kill the gateway when it has taken half of a request, and start it again."""
    half = len(batch) // 2
    killed = asyncio.Event()

    async def body() -> AsyncIterator[bytes]:
        yield compact(*batch[:half])
        await killed.wait()
        yield compact(*batch[half:])

    sending = asyncio.create_task(client.send(body(), len(batch)))
    wanted = batch[half - 1]["relay"]["number"]
    await ops.until(lambda: ops.summary.delivered > wanted)
    child.send(signal.SIGKILL)
    await child.running.wait()
    killed.set()
    with suppress(aiohttp.ClientError):
        await sending
        raise AssertionError("it was answered")
    assert await child.start()
