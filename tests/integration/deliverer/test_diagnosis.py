"""What a person on call asks a deliverer, over HTTP (S0.12)."""

import asyncio
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from pillion_sidecar.delivery import pending
from support.listening import listening
from support.resources import JSON, alert_filter, destination, secret, subscription
from support.running import ANYWHERE, Answer, Running, alert, alerts, listener, resources, running


def retrying(name: str, url: str, **spec: Any) -> JSON:
    """A destination that is tried again after an hour."""
    return listener(name, url, retry={"attempts": 9, "intervalSeconds": 3600}, **spec)


async def find(run: Running, identifier: str, **query: str) -> JSON:
    given = "".join(f"&{name}={value}" for name, value in query.items())
    answer = await run.get(f"/v1/pending?identifier={identifier}{given}")
    assert answer.status == 200
    found: JSON = answer.document
    return found


async def explained(run: Running, line: JSON) -> Answer:
    return await run.post("/v1/explain", json.dumps(line).encode())


@pytest.mark.parametrize("journaled", [False, True])
async def test_what_waits_is_found_wherever_it_is(
    config: Path, journal: Path, journaled: bool
) -> None:
    """In flight, loaded, and on disk alone."""
    async with (
        listening(status=503) as bad,
        listening() as good,
        running(
            config,
            *resources(retrying("bad", bad.url), listener("good", good.url)),
            journal=journal if journaled else None,
        ) as run,
    ):
        await run.publish(*alerts(0, 300))
        await run.failed("bad", 1)
        await run.delivered("good", 300)
        for ahead in (0, 40, 299):
            found = await find(run, str(ahead), source="test")
            (one,) = found["pending"]
            assert (one["destination"], one["subscription"]) == ("bad", "alerts-to-bad")
            assert one.get("ahead", 0) == ahead
            assert one.get("attempts", 0) == (not ahead)
            assert "indication" not in one
            assert (found["unread"], found["remembered"]) == (0, True)
        found = await find(run, "299", indication="true")
        assert found["pending"][0]["indication"]["properties"]["IndicationIdentifier"] == "299"
        assert (await find(run, "299", source="other"))["pending"] == []
        gone = await find(run, "nothing", source="test")
        assert (gone["pending"], gone["remembered"]) == ([], False)


async def test_what_was_not_looked_at_is_counted(config: Path, journal: Path) -> None:
    async with (
        listening(status=503) as bad,
        running(config, *resources(retrying("bad", bad.url)), journal=journal) as run,
    ):
        await run.publish(*alerts(0, 300))
        await run.failed("bad", 1)
        with patch.object(pending.PendingSearch.__init__, "__kwdefaults__", {"most_read": 64}):
            found = await find(run, "299")
        assert found["pending"] == []
        loaded = len(run.queue("bad").waiting.front) + len(run.queue("bad").in_flight)
        assert found["unread"] == 300 - loaded - 64


async def test_a_search_of_a_client_that_goes_ends(config: Path, journal: Path) -> None:
    async with (
        listening(status=503) as bad,
        running(config, *resources(retrying("bad", bad.url)), journal=journal) as run,
    ):
        await run.publish(*alerts(0, 300))
        await run.failed("bad", 1)
        searches = [
            asyncio.create_task(run.get(f"/v1/pending?identifier={number}")) for number in range(3)
        ]
        await asyncio.sleep(0)
        for search in searches:
            search.cancel()
        await asyncio.gather(*searches, return_exceptions=True)
        # Each place is free again, and the deliverer goes on.
        assert len((await find(run, "299"))["pending"]) == 1


async def test_a_dry_run_tells_who_selects_and_why_the_others_do_not(config: Path) -> None:
    filters = (
        alert_filter(
            "major", query="SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity > 5"
        ),
        alert_filter("other", query="SELECT * FROM CIM_InstIndication"),
        alert_filter("spaced", sourceNamespaces=["root/cimv2"]),
    )
    subscriptions = (
        subscription("a-major", of="major"),
        subscription("b-other", of="other"),
        subscription("c-spaced", of="spaced"),
        subscription("d-disabled", subscriptionState="Disabled"),
        subscription("e-all"),
        subscription(
            "f-repeats",
            repeatNotificationPolicy="Suppress",
            repeatNotificationCount=1,
            repeatNotificationIntervalSeconds=60,
        ),
    )
    documents = resources(destination("ops"), filters=filters, subscriptions=subscriptions)
    async with running(config, *documents) as run:
        answer = await explained(run, alert("a-1"))
        assert answer.status == 200
        assert (answer.document["selected"], answer.document["total"]) == (2, 6)
        told = {one["subscription"]: one for one in answer.document["subscriptions"]}
        assert [*told] == ["e-all", "f-repeats", "a-major", "b-other", "c-spaced", "d-disabled"]
        assert {name: one["reason"] for name, one in told.items()} == {
            "a-major": "query",
            "b-other": "class",
            "c-spaced": "source-namespace",
            "d-disabled": "disabled",
            "e-all": None,
            "f-repeats": None,
        }
        assert told["a-major"]["detail"].startswith("WHERE is false, since PerceivedSeverity is 5;")
        assert "CIM_InstIndication" in told["b-other"]["detail"]
        assert told["c-spaced"]["detail"].endswith("it has none; the filter: root/cimv2")
        assert "subscriptionState: Disabled" in told["d-disabled"]["detail"]
        assert "Suppress" in told["f-repeats"]["detail"]
        there = await explained(run, alert("a-1") | {"sourceNamespace": "root/cimv2"})
        assert there.document["selected"] == 3
        # Nothing was published.
        assert not run.deliverer.delivery.pending
        assert (await run.get("/v1/outcomes")).document == ""


async def spaces() -> AsyncIterator[bytes]:
    """More than an indication may have."""
    for _ in range(17):
        yield b" " * (1 << 16)


async def test_an_indication_that_is_wrong_is_refused_with_the_reason(config: Path) -> None:
    async with running(config, *resources(destination("ops"))) as run:
        for body, reason in (
            (b"", "not JSON"),
            (b"[]", "not an object"),
            (b'{"class": "CIM_No", "properties": {"a": 1}}', "no class of that name is known"),
            (b"{" * 5000, "not JSON"),
        ):
            answer = await run.post("/v1/explain", body)
            assert answer.status == 400
            assert reason in answer.document["reason"]
        long = await run.post("/v1/explain", spaces())
        assert long.status == 413
        assert "1,048,576 bytes" in long.document["reason"]
        assert (await run.get("/v1/pending")).status == 400


async def test_a_test_indication_goes_past_the_queue(config: Path) -> None:
    async with (
        listening() as good,
        listening(status=503) as bad,
        running(
            config,
            *resources(listener("good", good.url, suspended=True), retrying("bad", bad.url)),
        ) as run,
    ):
        await run.publish(*alerts(0, 2))
        await run.failed("bad", 1)
        before = [(await run.get(f"/v1/queues/{name}")).document for name in ("good", "bad")]
        told = (await run.post("/v1/queues/good/test")).document
        assert (told["result"], told["cause"], told["status"]) == ("success", None, 200)
        assert good.identifiers == [told["identifier"]]
        assert good.filters == ["pillion-test"]
        assert good.arrivals[0].text("Description").startswith("A test of this destination")
        told = (await run.post("/v1/queues/bad/test")).document
        assert (told["result"], told["cause"], told["detail"]) == ("error", "status", "HTTP 503")
        # Neither counts, waits nor is tried again.
        after = [(await run.get(f"/v1/queues/{name}")).document for name in ("good", "bad")]
        for one in (*before, *after):
            del one["oldestIndicationAgeSeconds"]
        assert after == before
        assert (await run.get("/v1/outcomes")).document == ""


async def test_a_test_at_a_dead_or_faulty_destination_says_what_is_wrong(
    config: Path, unused_tcp_port: int
) -> None:
    dead = listener("dead", f"http://127.0.0.1:{unused_tcp_port}/")
    faulty = destination("faulty", protocol="File", destination="file:///alerts.ndjson")
    async with running(config, *resources(dead, faulty)) as run:
        told = (await run.post("/v1/queues/dead/test")).document
        assert (told["result"], told["cause"]) == ("error", "refused")
        told = (await run.post("/v1/queues/faulty/test")).document
        assert told["result"] == "fatal-error"
        assert "--delivery-folder" in told["detail"]
        unknown = await run.post("/v1/queues/deat/test")
        assert (unknown.status, unknown.document["reason"]) == (
            404,
            "no destination queue named 'deat'; did you mean dead?",
        )


async def test_a_test_of_a_relayed_destination_is_for_its_gateway(config: Path) -> None:
    relayed = destination("ops", deliverThrough="Gateway")
    async with running(config, *resources(relayed, gatewayRef={"name": "edge"})) as run:
        refused = await run.post("/v1/queues/ops/test")
        assert refused.status == 409
        assert "gateway edge" in refused.document["reason"]
        (endpoint,) = (await run.get("/v1/endpoints")).document["endpoints"]
        assert (endpoint["relayTo"], endpoint["host"]) == ("edge", None)


async def test_a_few_tests_are_under_way_at_a_time(config: Path) -> None:
    async with (
        listening(hang=True) as hung,
        running(config, *resources(listener("hung", hung.url))) as run,
    ):
        tests = [asyncio.create_task(run.post("/v1/queues/hung/test")) for _ in range(4)]
        await hung.treated_badly(4)
        refused = await run.post("/v1/queues/hung/test")
        assert (refused.status, refused.headers["Retry-After"]) == (503, "1")
        for test in tests:
            test.cancel()
        await asyncio.gather(*tests, return_exceptions=True)


async def test_the_status_says_what_is_wrong_with_the_deliverer(
    config: Path, journal: Path
) -> None:
    documents = resources(destination("ops"))
    async with running(config, *documents, journal=journal) as run:
        status = (await run.get("/v1/status")).document
        assert status["configurationProblem"] is None
        assert (status["resources"], status["isRendered"]) == (str(config), False)
        assert status["durability"] == "Disk"
        assert status["journal"]["folder"] == str(journal)
        assert 0 < status["journal"]["freeBytes"] < status["journal"]["volumeBytes"]
        assert status["journal"]["maximumPendingBytes"] > status["journal"]["pendingBytes"]
        assert status["history"] == {
            "isOnDisk": True,
            "last": 0,
            "unkeptDiscards": 0,
            "isBehind": False,
            "problem": None,
            "waiting": 0,
            "givenWay": 0,
        }
        await run.reload(*documents, destination("wrong", timeoutSeconds=-1))
        status = (await run.get("/v1/status")).document
        assert "timeoutSeconds" in status["configurationProblem"]


async def test_before_the_first_configuration_there_is_a_status(config: Path) -> None:
    config.joinpath("wrong.yaml").write_text("kind: Wrong\n")
    async with running(config, wait_for_configuration=True, administration=ANYWHERE) as run:
        url = run.deliverer.administration_url
        status = (await run.ask(f"{url}/v1/status")).document
        assert (status["revision"], status["journal"], status["pending"]) == (None, None, 0)
        assert "wrong.yaml" in status["configurationProblem"]
        assert (await run.ask(f"{url}/v1/pending?identifier=x")).status == 503
        assert (await run.ask(f"{url}/v1/endpoints")).document == {"endpoints": [], "next": None}


async def test_endpoints_tell_where_connections_lead_and_no_secret(config: Path) -> None:
    documents: list[Any] = [
        secret("hook", {"url": "https://hooks.example.com/services/T0P/SECRET"}),
        *resources(
            destination("a-tls", tls={"serverName": "siem.example.com"}),
            destination("b-plain", destination="http://192.0.2.7:5990/x?token=1"),
            destination("c-snmp", destination="snmp://192.0.2.8", protocol="SNMP"),
            destination(
                "d-tls",
                destination="tls://nats.example.com",
                protocol="NATS",
                nats={"subject": "x"},
            ),
        ),
    ]
    hook = destination("e-hook", protocol="CloudEvents")
    del hook["spec"]["destination"]
    hook["spec"]["destinationFrom"] = {"secretKeyRef": {"name": "hook", "key": "url"}}
    async with running(config, *documents, hook) as run:
        page = (await run.get("/v1/endpoints?limit=4")).document
        assert page["next"] == "d-tls"
        assert [
            (one["destination"], one["host"], one["port"], one["tls"], one["datagrams"])
            for one in page["endpoints"]
        ] == [
            ("a-tls", "listener.example", 5989, "tls", False),
            ("b-plain", "192.0.2.7", 5990, "none", False),
            ("c-snmp", "192.0.2.8", 162, "none", True),
            ("d-tls", "nats.example.com", 4222, "starttls", False),
        ]
        assert page["endpoints"][0]["serverName"] == "siem.example.com"
        page = (await run.get("/v1/endpoints?after=d-tls")).document
        (one,) = page["endpoints"]
        assert (one["destination"], one["host"]) == ("e-hook", None)
        assert one["note"] == "its URL is in a Secret"
        assert "hooks" not in json.dumps(page)
