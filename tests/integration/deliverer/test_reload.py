"""Hot reload: what a changed folder says is in force without a restart, and what it leaves as it
was is left alone."""

import logging
from pathlib import Path
from unittest.mock import patch

import pytest

from support.http_listener import Peer
from support.http_listener import listening as scripted
from support.listening import listening
from support.resources import JSON, alert_filter, secret, subscription
from support.running import alert, alerts, listener, resources, running

OK = b"HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n"
SEVERE = "SELECT * FROM CIM_AlertIndication WHERE PerceivedSeverity >= 5"
REFUSED = "configuration-refused"


async def take(peer: Peer) -> None:
    """Take whatever comes, on one connection for as long as it is kept."""
    while True:
        await peer.request()
        await peer.send(OK)


def events_to(name: str, url: str, **spec: object) -> JSON:
    return listener(name, url, protocol="CloudEvents", **spec)


async def test_a_destination_that_is_added_gets_what_comes_from_then_on(tmp_path: Path) -> None:
    async with listening() as first, listening() as second:
        one, two = listener("one", first.url), listener("two", second.url)
        async with running(tmp_path, *resources(one)) as run:
            await run.publish(*alerts(0, 2))
            await run.delivered("one", 2)
            await run.reload(*resources(one, two))
            await run.publish(*alerts(2, 2))
            await run.settled()
        assert first.identifiers == ["0", "1", "2", "3"]
        assert second.identifiers == ["2", "3"]


async def test_reloads_leave_the_others_queues_and_connections_alone(tmp_path: Path) -> None:
    async with scripted(take) as healthy, listening() as other:
        kept = events_to("kept", healthy.url)
        async with running(tmp_path, *resources(kept)) as run:
            for step, changed in enumerate(
                (
                    resources(kept, listener("other", other.url)),
                    resources(kept, listener("other", other.url, queueSize=7)),
                    resources(kept),
                )
            ):
                await run.publish(*alerts(2 * step, 2))
                queue, context = run.queue("kept"), run.queue("kept").sequence_context
                await run.reload(*changed)
                assert run.queue("kept") is queue
                assert run.queue("kept").sequence_context == context
            await run.publish(*alerts(6, 2))
            await run.settled()
            assert run.queue("kept").statistics.delivered == 8
        assert healthy.connections == 1
        assert other.identifiers == ["2", "3", "4", "5"]


async def test_a_destination_that_moves_takes_its_backlog_with_it_under_a_new_context(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as before, listening() as after:
        async with running(tmp_path, *resources(listener("ops", before.url))) as run:
            await run.publish(*alerts(0, 3))
            await run.failed("ops", 1)
            context = run.queue("ops").sequence_context
            await run.reload(*resources(listener("ops", after.url)))
            # Another listener: worth an attempt at once, not after the interval.
            await run.settled()
            assert run.queue("ops").sequence_context != context
        assert after.identifiers == ["0", "1", "2"]
        sequences = [arrival.sequence() for arrival in after.arrivals]
        assert [sequence.number for sequence in sequences if sequence] == [0, 1, 2]


async def test_a_destination_that_is_removed_has_its_backlog_discarded_and_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening() as healthy, listening(status=503) as failing:
        good, bad = listener("good", healthy.url), listener("bad", failing.url)
        async with running(tmp_path, *resources(good, bad)) as run:
            await run.publish(*alerts(0, 3), publisher="task-1")
            await run.failed("bad", 1)
            await run.reload(*resources(good))
            flush = await run.post("/v1/flush?publisher=task-1&timeout=5")
            assert flush.document["complete"] is True
            assert flush.document["destinations"] == {
                "bad": {"delivered": 0, "discarded": {"destination-removed": 3}, "pending": 0},
                "good": {"delivered": 3, "discarded": {}, "pending": 0},
            }
            assert (await run.get("/v1/queues/bad")).status == 404
        assert healthy.identifiers == ["0", "1", "2"]
    told = [record.__dict__ for record in caplog.records if "reason" in record.__dict__]
    assert [(one["identifier"], one["reason"]) for one in told] == [
        (identifier, "destination-removed") for identifier in ("0", "1", "2")
    ]


async def test_a_destination_that_is_removed_to_drain_still_delivers_its_backlog(
    tmp_path: Path,
) -> None:
    async with listening() as healthy, listening(status=503) as failing:
        good = listener("good", healthy.url)
        bad = listener("bad", failing.url, removalPolicy="Drain")
        async with running(tmp_path, *resources(good, bad)) as run:
            await run.publish(*alerts(0, 3))
            await run.failed("bad", 1)
            draining = run.queue("bad")
            await run.reload(*resources(good))
            await run.publish(*alerts(3, 1))
            failing.behave()
            assert draining.health.next_attempt_at is not None
            run.time.advance(draining.health.next_attempt_at - run.time.monotonic())
            await run.settled()
            assert "bad" not in [queue.name for queue in run.deliverer.delivery.queues()]
        assert failing.identifiers == ["0", "1", "2"]
        assert healthy.identifiers == ["0", "1", "2", "3"]


async def test_a_subscription_that_is_removed_takes_its_queued_indications_with_it(
    tmp_path: Path,
) -> None:
    async with listening(status=503) as ops:
        to_ops = listener("ops", ops.url)
        severe = alert_filter("severe", query=SEVERE)
        all_of = subscription("all-to-ops", "ops", "alerts")
        some_of = subscription("severe-to-ops", "ops", "severe")
        both = resources(to_ops, filters=(severe,), subscriptions=(all_of, some_of))
        async with running(tmp_path, *both) as run:
            # In flight at the first failure is what `alerts` has selected.
            await run.publish(alert("mild", PerceivedSeverity=2), alert("grave"))
            await run.failed("ops", 1)
            await run.reload(*resources(to_ops, filters=(severe,), subscriptions=(all_of,)))
            reason = {"destination": "ops", "reason": "subscription-not-active"}
            assert await run.metric("pillion_indications_discarded_total", **reason) == 1
            ops.behave()
            run.retry("ops")
            await run.settled()
        assert (ops.identifiers, ops.filters) == (["mild", "grave"], ["alerts", "alerts"])


async def test_a_changed_filter_decides_from_the_next_indication_on(tmp_path: Path) -> None:
    async with listening() as ops:
        to_ops = listener("ops", ops.url)
        async with running(tmp_path, *resources(to_ops)) as run:
            await run.publish(alert("0", PerceivedSeverity=2))
            changed = [
                alert_filter(query=SEVERE) if document["kind"] == "IndicationFilter" else document
                for document in resources(to_ops)
            ]
            await run.reload(*changed)
            await run.publish(alert("1", PerceivedSeverity=2), alert("2", PerceivedSeverity=6))
            await run.settled()
        assert ops.identifiers == ["0", "2"]


async def test_a_wrong_revision_is_reported_and_the_last_good_one_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with listening() as ops:
        good = resources(listener("ops", ops.url))
        async with running(tmp_path, *good) as run:
            revision = (await run.get("/v1/queues")).document["revision"]
            await run.publish(*alerts(0, 1))
            await run.reload(
                *resources(
                    listener("ops", "ftp://example.org/", queueSize=-1),
                    subscriptions=(subscription("to-nobody", "nobody"),),
                )
            )
            (record,) = [r for r in caplog.records if r.__dict__["event"] == REFUSED]
            for wrong in ("ftp://example.org/", "queueSize", "nobody"):
                assert wrong in record.getMessage()
            assert await run.metric("pillion_configuration_last_reload_successful") == 0
            assert (await run.get("/v1/queues")).document["revision"] == revision
            await run.publish(*alerts(1, 1))
            await run.settled()
            # Put right again by the very files from before: nothing is failing any more.
            await run.reload(*good)
            assert await run.metric("pillion_configuration_last_reload_successful") == 1
            assert run.queue("ops").statistics.delivered == 2
        assert ops.identifiers == ["0", "1"]


@pytest.mark.parametrize("host", ["[::1::2]", "[1.2.3.4]", "[:]"])
async def test_a_host_that_is_no_address_is_refused_and_the_last_good_revision_stays(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, host: str
) -> None:
    caplog.set_level(logging.ERROR)
    async with listening() as ops:
        async with running(tmp_path, *resources(listener("ops", ops.url))) as run:
            await run.reload(*resources(listener("ops", f"http://{host}/")))
            (record,) = [r for r in caplog.records if r.__dict__["event"] == REFUSED]
            assert "ListenerDestination/ops: spec.destination: " in record.getMessage()
            await run.publish(*alerts(0, 1))
            await run.reload(*resources(listener("ops", ops.url, timeoutSeconds=3599)))
            await run.settled()
        assert ops.identifiers == ["0"]


async def test_a_defect_in_reading_resources_is_a_refusal_and_ends_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.ERROR)
    async with listening() as ops:
        good = resources(listener("ops", ops.url))
        async with running(tmp_path, *good) as run:
            broken = ValueError("holds a password")
            with patch("pillion_sidecar.revisions.load_folder", side_effect=broken):
                await run.reload(*resources(listener("ops", ops.url, timeoutSeconds=3599)))
            (record,) = [r for r in caplog.records if r.__dict__["event"] == REFUSED]
            assert "ValueError at" in record.getMessage()
            assert "password" not in record.getMessage()
            await run.publish(*alerts(0, 1))
            await run.reload(*resources(listener("ops", ops.url, timeoutSeconds=3598)))
            await run.settled()
            assert await run.metric("pillion_configuration_last_reload_successful") == 1
        assert ops.identifiers == ["0"]


async def test_a_renewed_credential_is_used_from_the_next_attempt_on(tmp_path: Path) -> None:
    seen: list[str] = []

    async def keep(peer: Peer) -> None:
        while True:
            head, _ = await peer.request()
            seen.extend(
                line.decode()
                for line in head.split(b"\r\n")
                if line.lower().startswith(b"authorization:")
            )
            await peer.send(OK)

    credentials = {"bearer": {"secretRef": {"name": "token", "key": "token"}}}
    async with scripted(keep) as strict:
        url = strict.url.replace("localhost", "127.0.0.1")
        to = events_to("strict", url, credentials=credentials)
        async with running(tmp_path, *resources(to), secret("token", {"token": "old"})) as run:
            await run.publish(*alerts(0, 1))
            await run.settled()
            await run.reload(*resources(to), secret("token", {"token": "new"}))
            await run.publish(*alerts(1, 1))
            await run.settled()
    assert seen == ["Authorization: Bearer old", "Authorization: Bearer new"]
