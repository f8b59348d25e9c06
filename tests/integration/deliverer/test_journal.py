"""A deliverer on the folder of the run before: nothing is lost, forgotten, or told anew."""

import asyncio
import logging
from collections import Counter
from pathlib import Path

import pytest

from pillion_cli.listener.sequence import SequenceIdentifier
from pillion_sidecar.history.discards import read_discards
from pillion_sidecar.history.outcome import OutcomeQuery
from pillion_sidecar.history.reading import Kept
from support.listening import Listening, listening
from support.resources import JSON, subscription
from support.running import Running, alerts, later, listener, resources, running


def sequence(ops: Listening) -> list[SequenceIdentifier | None]:
    """The sequence identifiers of what was delivered, in order."""
    return [outcome.identifier for outcome in ops.outcomes if outcome.verdict == "delivered"]


def contexts(ops: Listening) -> list[str]:
    """The sequence contexts of what was delivered, each once, in order."""
    return list(dict.fromkeys(one.context for one in sequence(ops) if one is not None))


def numbers(ops: Listening) -> list[int]:
    return [one.number for one in sequence(ops) if one is not None]


def events(caplog: pytest.LogCaptureFixture, name: str) -> list[JSON]:
    """The log records of one event."""
    return [record.__dict__ for record in caplog.records if record.__dict__.get("event") == name]


def identifying(name: str, url: str, **spec: object) -> JSON:
    """A destination that is sent sequence identifiers."""
    return listener(name, url, sequenceIdentifiers="Send", **spec)


async def given_up(run: Running) -> None:
    """Wait until nothing is pending, where nothing is attempted either."""
    drained = await run.post("/drain")
    assert drained.status == 200


async def failing(run: Running, count: int) -> None:
    """Publish what the listener does not take; return when it is on disk."""
    answer = await run.publish(*alerts(0, count), ack="durable")
    assert (answer.status, answer.document["accepted"]) == (200, count)
    await run.failed("ops", 1)
    await run.kept()


# ---------------------------------------------------------------------- what is pending


async def test_what_was_pending_is_delivered_once_in_order_under_the_same_numbers(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening() as ops:
        documents = resources(identifying("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 3), ack="delivered")
            ops.behave(status=503)
            await run.publish(*alerts(3, 200), ack="durable")
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            await again.settled()
            await again.publish(*alerts(203, 1), ack="delivered")
    assert ops.identifiers == [str(number) for number in range(204)]
    assert numbers(ops) == list(range(204))
    assert len(contexts(ops)) == 1
    assert (ops.summary.duplicates, ops.summary.missing) == (0, 0)
    (recovered,) = events(caplog, "recovered")
    assert (recovered["destination"], recovered["count"]) == ("ops", 200)


async def test_delivered_but_not_noted_is_repeated_with_the_same_number(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening() as ops:
        documents = resources(identifying("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="durable")
            await run.delivered("ops", 2)
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            await again.settled()
            await again.publish(*alerts(2, 1), ack="delivered")
    (recovered,) = events(caplog, "recovered")
    assert ops.identifiers == ["0", "1", "2"]
    assert numbers(ops) == [0, 1, 2]
    # The listener has seen these numbers.
    assert ops.summary.duplicates == recovered["count"] >= 1


async def test_attempts_due_time_and_the_beginning_of_the_failure_survive(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    retry = {"attempts": 3, "intervalSeconds": 30}
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url, retry=retry))
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 1)
            run.retry("ops")
            await run.failed("ops", 2)
            await run.kept()
            offset = run.time.time() - run.time.monotonic()
            queue = run.queue("ops")
            assert queue.health.next_attempt_at is not None
            assert queue.health.failing_since is not None
            due, since = queue.health.next_attempt_at + offset, queue.health.failing_since + offset
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 10)) as again:
            offset = again.time.time() - again.time.monotonic()
            queue = again.queue("ops")
            assert queue.health.next_attempt_at is not None
            assert queue.health.failing_since is not None
            assert queue.health.next_attempt_at + offset == pytest.approx(due, abs=1e-3)
            assert queue.health.failing_since + offset == pytest.approx(since, abs=1e-3)
            # Not one moment before.
            asked = len(ops.bad_answers)
            assert (await again.get("/v1/queues/ops")).document["depth"] == 1
            assert len(ops.bad_answers) == asked == 2
            again.retry("ops")
            await again.failed("ops", 3)
            again.retry("ops")
            await again.settled()
            assert len(ops.bad_answers) == 4
    (discard,) = events(caplog, "indication-discarded")
    assert (discard["reason"], discard["attempts"]) == ("attempts-exceeded", 4)


async def test_a_due_time_that_is_over_is_attempted_at_once(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        async with running(config, *resources(listener("ops", ops.url)), journal=journal) as run:
            await failing(run, 2)
            await run.kill()
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 300)) as again:
            await again.settled()
    assert ops.identifiers == ["0", "1"]


async def test_a_lifetime_counts_over_the_restart(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), indicationLifetimeSeconds=100)
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 2)
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 101)) as again:
            await given_up(again)
            discards = events(caplog, "indication-discarded")
            assert [(one["identifier"], one["reason"]) for one in discards] == [
                ("0", "lifetime-expired"),
                ("1", "lifetime-expired"),
            ]
    assert ops.identifiers == []


async def test_why_it_fails_is_shown_after_kill_9(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        async with running(config, *resources(listener("ops", ops.url)), journal=journal) as run:
            await failing(run, 2)
            before = (await run.get("/v1/queues/ops")).document
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            after = (await again.get("/v1/queues/ops")).document
    assert after["attempts"] == []
    assert after["lastResult"] == before["lastResult"]
    assert after["lastResult"]["cause"] == "status"
    assert after["failingSince"] == before["failingSince"]


async def test_a_restart_after_a_restart_loses_nothing_either(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        documents = resources(identifying("ops", ops.url))
        time = None
        for start in range(0, 30, 10):
            async with running(config, *documents, journal=journal, time=time) as run:
                await run.publish(*alerts(start, 10), ack="durable")
                time = later(run.time, 1)
                await run.kill()
        ops.behave()
        async with running(config, journal=journal, time=time) as run:
            run.deliverer.delivery.hasten()
            await run.settled()
    assert ops.identifiers == [str(number) for number in range(30)]
    assert len(contexts(ops)) == 1


# ---------------------------------------------------------------------- what is remembered


async def test_duplicates_are_told_what_became_of_the_original_in_the_run_before(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops, listening() as good:
        spec = {"retry": {"attempts": 0}, "queueSize": 2, "queueFullPolicy": "DiscardOldest"}
        only_ops = subscription("to-ops", "ops")
        documents, suspended = (
            resources(
                listener("ops", ops.url, **spec, suspended=is_suspended),
                listener("good", good.url),
                subscriptions=(only_ops,),
            )
            for is_suspended in (False, True)
        )
        async with running(config, *documents, journal=journal) as run:
            # Tried once, and given up.
            await run.publish(*alerts(0, 1), ack="durable")
            await run.settled()
            # The first of these three is too many for the queue, which sends nothing.
            await run.reload(*suspended)
            await run.publish(*alerts(1, 3), ack="durable")
            await run.until(lambda: run.deliverer.delivery.pending == 2)
            await run.kept()
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            pending = await again.publish(*alerts(2, 2), ack="delivered", timeout="0")
            assert (pending.document["duplicate"], pending.document["pending"]) == (2, 2)
            # What was discarded everywhere may come again.
            assert (await again.publish(*alerts(0, 2))).document["accepted"] == 2
            assert (await again.publish(*alerts(4, 1))).document["accepted"] == 1


async def test_what_was_delivered_is_a_duplicate_after_a_restart(
    config: Path, journal: Path
) -> None:
    async with listening() as ops:
        async with running(config, *resources(listener("ops", ops.url)), journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="delivered")
            run.stop.set()
            await run.ended
        async with running(config, journal=journal, time=later(run.time, 5)) as again:
            answer = await again.publish(*alerts(0, 3), ack="delivered")
            assert (answer.document["duplicate"], answer.document["accepted"]) == (2, 1)
            assert answer.document["delivered"] == 3
    assert ops.identifiers == ["0", "1", "2"]


async def test_an_identity_whose_window_is_over_is_forgotten(config: Path, journal: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), duplicateWindowSeconds=60)
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 1), ack="delivered")
            await run.kept()
            await run.kill()
        async with running(config, journal=journal, time=later(run.time, 120)) as again:
            answer = await again.publish(*alerts(0, 1), ack="delivered")
            assert answer.document["accepted"] == 1


# ---------------------------------------------------------------------- what has changed meanwhile


async def test_another_listener_gets_a_context_of_its_own(config: Path, journal: Path) -> None:
    async with listening() as first, listening() as second:
        documents = resources(identifying("ops", first.url))
        async with running(config, *documents, journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="delivered")
            first.behave(status=503)
            await run.publish(*alerts(2, 2), ack="durable")
            await run.failed("ops", 1)
            await run.kept()
            await run.kill()
        documents = resources(identifying("ops", second.url))
        time = later(run.time, 60)
        async with running(config, *documents, journal=journal, time=time) as again:
            await again.settled()
    assert second.identifiers == ["2", "3"]
    assert numbers(second) == [0, 1]
    assert contexts(second) != contexts(first)


async def test_what_waits_for_a_destination_that_is_gone_is_discarded_and_told(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops, listening() as other:
        to_other = listener("other", other.url)
        documents = resources(listener("ops", ops.url), to_other)
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 3)
            await run.kill()
        caplog.clear()
        time = later(run.time, 60)
        async with running(config, *resources(to_other), journal=journal, time=time) as again:
            await given_up(again)
            discards = events(caplog, "indication-discarded")
            assert [one["identifier"] for one in discards] == ["0", "1", "2"]
            assert {(one["destination"], one["reason"]) for one in discards} == {
                ("ops", "destination-removed")
            }
            answer = await again.publish(*alerts(0, 1), ack="delivered")
            assert answer.document["discarded"] == [
                {"line": 0, "destination": "ops", "reason": "destination-removed"}
            ]
            await again.publish(*alerts(3, 1), ack="durable")
            await again.kept()
            await again.kill()
        caplog.clear()
        time = later(again.time, 60)
        async with running(config, journal=journal, time=time) as third:
            await third.settled()
        # Settled once.
        assert events(caplog, "indication-discarded") == []
    assert other.identifiers == ["0", "1", "2", "3"]


async def test_what_waits_for_a_subscription_that_is_gone_is_discarded_and_told(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops:
        # A number that is never sent would have the listener wait for it.
        to_ops = listener("ops", ops.url, sequenceIdentifiers="Omit")
        both = (subscription("kept", "ops"), subscription("gone", "ops"))
        documents = resources(to_ops, subscriptions=both)
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 2)
            assert run.deliverer.delivery.pending == 4
            await run.kill()
        ops.behave()
        documents = resources(to_ops, subscriptions=both[:1])
        caplog.clear()
        time = later(run.time, 60)
        async with running(config, *documents, journal=journal, time=time) as again:
            await again.settled()
    assert ops.identifiers == ["0", "1"]
    discards = events(caplog, "indication-discarded")
    assert [(one["subscription"], one["identifier"]) for one in discards] == [
        ("gone", "0"),
        ("gone", "1"),
    ]
    assert {one["reason"] for one in discards} == {"subscription-not-active"}


async def test_a_start_that_waits_for_its_configuration_delivers_what_is_pending_then(
    config: Path, journal: Path
) -> None:
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url))
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 2)
            await run.kill()
        ops.behave()
        (config / "resources.yaml").unlink()
        time = later(run.time, 60)
        waiting = running(config, journal=journal, time=time, wait_for_configuration=True)
        async with waiting as again:
            assert (await again.publish(*alerts(2, 1))).status == 503
            assert (await again.get("/v1/queues")).document["queues"] == []
            await again.reload(*documents)
            await again.settled()
            await again.publish(*alerts(2, 1), ack="delivered")
    assert ops.identifiers == ["0", "1", "2"]


# ---------------------------------------------------------------------- the end


async def test_what_is_left_at_the_end_stays_and_is_delivered_after_the_next_start(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    async with listening(status=503) as ops:
        documents = resources(identifying("ops", ops.url), shutdownGracePeriodSeconds=20)
        async with running(config, *documents, journal=journal) as run:
            await failing(run, 3)
            run.stop.set()
            await run.failed("ops", 2)
            run.time.advance(20.0)
            await run.ended
        (kept,) = events(caplog, "kept-at-shutdown")
        assert (kept["destination"], kept["count"]) == ("ops", 3)
        assert events(caplog, "indication-discarded") == []
        assert events(caplog, "left-at-shutdown") == []
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            await again.settled()
    assert ops.identifiers == ["0", "1", "2"]
    assert numbers(ops) == [0, 1, 2]


async def test_a_purge_of_what_lies_on_disk_alone_is_listed_and_final(
    config: Path, journal: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with listening(status=503) as ops:
        async with running(config, *resources(listener("ops", ops.url)), journal=journal) as run:
            # Far more than are kept loaded.
            await failing(run, 500)
            purged = await run.post("/v1/queues/ops/purge")
            assert purged.document == {"name": "ops", "discarded": 500}
            await given_up(run)
            await run.kept()
            await run.kill()
        query = OutcomeQuery(result="discarded", destination="ops")
        discards = await asyncio.to_thread(lambda: list(read_discards(Kept(folder=journal), query)))
        assert Counter(one.reason for one in discards) == {"purged": 500}
        assert len({one.sequence_number for one in discards}) == 500
        told = len(events(caplog, "indication-discarded"))
        counted = events(caplog, "discards-counted")
        assert told + sum(one["count"] for one in counted if not one.get("run")) == 500
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 60)) as again:
            assert again.deliverer.delivery.pending == 0
            answer = await again.publish(*alerts(0, 501), ack="delivered")
            # Nobody has what was purged, so it may come again.
            assert (answer.document["duplicate"], answer.document["accepted"]) == (0, 501)
    assert ops.identifiers == [str(number) for number in range(501)]


async def test_a_drain_delivers_what_a_restart_has_found(config: Path, journal: Path) -> None:
    async with listening(status=503) as ops:
        async with running(config, *resources(listener("ops", ops.url)), journal=journal) as run:
            await failing(run, 100)
            await run.kill()
        ops.behave()
        async with running(config, journal=journal, time=later(run.time, 1)) as again:
            drained = await again.post("/drain")
            assert (drained.status, drained.document["pending"]) == (200, 0)
    assert ops.identifiers == [str(number) for number in range(100)]
