"""Subscriptions and their policies, and sequence identifiers, through real resources (D.2, D.3)."""

import json
import logging
import signal
import sys
from asyncio.subprocess import PIPE, create_subprocess_exec
from collections.abc import Callable
from pathlib import Path
from typing import Any

import aiohttp
import pytest

from pillion_cli.listener.sequence import Verdict
from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult, Handler
from pillion_sidecar.handlers.transport.exchange import later
from pillion_sidecar.indication import Indication, Selection
from support.listening import Listening, listening
from support.resources import JSON, subscription
from support.running import Running, alert, alerts, listener, resources, running

UNSAYABLE = alert("unsayable")


class Refusing:
    """A handler before another: it finds that one indication can never be sent (S0.8).

    Intake accepts nothing that no handler could send, so no resource and no indication of a
    publisher's brings that about.
    """

    def __init__(self, handler: Handler) -> None:
        self._handler = handler

    def deliver(self, delivery: Delivery, done: Callable[[DeliveryOutcome], None]) -> None:
        if delivery.indication.identifier == "unsayable":
            later(done, DeliveryResult.FATAL_ERROR, "it cannot be said")
        else:
            self._handler.deliver(delivery, done)

    def prepare(self, indication: Indication, selection: Selection | None) -> None:
        self._handler.prepare(indication, selection)

    def close(self) -> None:
        self._handler.close()


def refuse(run: Running) -> None:
    queue = run.queue("ops")
    queue.handler = Refusing(queue.handler)


def to(name: str = "alerts-to-ops", **spec: Any) -> JSON:
    return subscription(name, "ops", **spec)


def ending(policy: str, **spec: Any) -> JSON:
    """A subscription that ends between the second attempt that fails and the third."""
    return to(onFatalErrorPolicy=policy, failureTriggerTimeIntervalSeconds=45, **spec)


# ---------------------------------------------------------------------- policies


@pytest.mark.parametrize(("policy", "reason"), [("Disable", "FatalError"), ("Remove", "Removed")])
async def test_a_lasting_failure_ends_a_subscription_whose_policy_says_so(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, policy: str, reason: str
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening(status=503) as ops:
        documents = resources(listener("ops", ops.url), subscriptions=(ending(policy),))
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            for failures in (1, 2):
                await run.failed("ops", failures)
                run.retry("ops")
            await run.settled()
            after = await run.publish(*alerts(2, 1), ack="delivered")
            assert after.document["accepted"] == 1
        assert ops.identifiers == []
    discards = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "indication-discarded"]
    assert [(one["identifier"], one["reason"]) for one in discards] == [
        ("0", "subscription-not-active"),
        ("1", "subscription-not-active"),
    ]
    (ended,) = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "subscription-ended"]
    assert (ended["subscription"], ended["reason"]) == ("alerts-to-ops", reason)


async def test_a_fatal_error_costs_the_one_indication(tmp_path: Path) -> None:
    async with listening() as ops:
        # Without numbers, so that the listener does not wait for the one that is missing.
        there = listener("ops", ops.url, sequenceIdentifiers="Omit")
        ends = to(onFatalErrorPolicy="Disable", failureTriggerTimeIntervalSeconds=1)
        async with running(tmp_path, *resources(there, subscriptions=(ends,))) as run:
            refuse(run)
            await run.publish(alert("0"), UNSAYABLE, alert("1"))
            await run.settled()
            (_, attempt, _) = (await run.get("/v1/queues/ops")).document["attempts"]
            assert (attempt["result"], attempt["identifier"]) == ("fatal-error", "unsayable")
            assert attempt["detail"] == "it cannot be said"
        assert ops.identifiers == ["0", "1"]


async def test_a_subscription_that_ended_is_put_in_force_again_by_its_resource(
    tmp_path: Path,
) -> None:
    async with listening(fail=2) as ops:
        there = listener("ops", ops.url)
        failing = ending("Disable")
        async with running(tmp_path, *resources(there, subscriptions=(failing,))) as run:
            await run.publish(alert("lost"))
            for failures in (1, 2):
                await run.failed("ops", failures)
                run.retry("ops")
            await run.settled()
            off = ending("Disable", subscriptionState="Disabled")
            await run.reload(*resources(there, subscriptions=(off,)))
            await run.publish(*alerts(0, 1))
            await run.reload(*resources(there, subscriptions=(failing,)))
            await run.publish(*alerts(1, 1))
            await run.settled()
        assert ops.identifiers == ["1"]


async def test_a_subscription_ends_with_its_duration(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(
            listener("ops", ops.url), subscriptions=(to(subscriptionDurationSeconds=60),)
        )
        async with running(tmp_path, *documents) as run:
            run.time.advance(59.0)
            await run.publish(*alerts(0, 1))
            await run.settled()
            ops.behave(status=503)
            await run.publish(*alerts(1, 2))
            await run.failed("ops", 1)
            run.time.advance(1.0)
            await run.settled()
            ops.behave()
            await run.publish(*alerts(3, 1))
            reason = {"destination": "ops", "reason": "subscription-not-active"}
            assert await run.metric("pillion_indications_discarded_total", **reason) == 2
        assert ops.identifiers == ["0"]


async def test_a_change_of_the_folder_does_not_lengthen_a_duration(tmp_path: Path) -> None:
    async with listening() as ops:
        there = listener("ops", ops.url)
        first = to(subscriptionDurationSeconds=60)
        async with running(tmp_path, *resources(there, subscriptions=(first,))) as run:
            run.time.advance(40.0)
            edited = to(subscriptionDurationSeconds=60, onFatalErrorPolicy="Disable")
            await run.reload(*resources(there, subscriptions=(edited,)))
            run.time.advance(10.0)
            await run.publish(*alerts(0, 1))
            await run.settled()
            run.time.advance(10.0)
            await run.publish(*alerts(1, 1))
            await run.settled()
        assert ops.identifiers == ["0"]


async def test_suppress_sends_the_first_few_repeats_of_an_event_in_an_interval(
    tmp_path: Path,
) -> None:
    suppressing = to(
        repeatNotificationPolicy="Suppress",
        repeatNotificationIntervalSeconds=60,
        repeatNotificationCount=2,
        repeatKey=["EventID"],
    )
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), subscriptions=(suppressing,))
        async with running(tmp_path, *documents) as run:
            hot = [alert(f"hot-{number}", EventID="hot") for number in range(4)]
            told = await run.publish(*hot, alert("cold-0", EventID="cold"), ack="delivered")
            # What was suppressed has no target, and so nothing to wait for.
            assert (told.document["accepted"], told.document["pending"]) == (5, 0)
            assert told.document["suppressed"] == 2
            assert run.queue("ops").statistics.suppressed == 2
            run.time.advance(60.0)
            await run.publish(alert("hot-4", EventID="hot"))
            await run.settled()
        assert ops.identifiers == ["hot-0", "hot-1", "cold-0", "hot-4"]
        numbers = [one.number for arrival in ops.arrivals if (one := arrival.sequence())]
        assert numbers == [0, 1, 2, 3]


async def test_delay_sends_an_event_once_it_has_come_often_enough_and_then_leaves_a_gap(
    tmp_path: Path,
) -> None:
    delaying = to(
        repeatNotificationPolicy="Delay",
        repeatNotificationIntervalSeconds=60,
        repeatNotificationGapSeconds=120,
        repeatNotificationCount=2,
        repeatKey=["EventID"],
    )
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), subscriptions=(delaying,))
        async with running(tmp_path, *documents) as run:
            await run.publish(*(alert(f"a-{number}", EventID="hot") for number in range(4)))
            run.time.advance(121.0)
            await run.publish(*(alert(f"b-{number}", EventID="hot") for number in range(3)))
            await run.settled()
        assert ops.identifiers == ["a-2", "b-2"]


async def test_a_listener_that_fails_too_long_has_the_removal_action_taken(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.WARNING)
    async with listening(status=503) as ops:
        documents = resources(
            listener("ops", ops.url),
            deliveryRetryAttempts=100,
            subscriptionRemovalAction="Disable",
            subscriptionRemovalTimeIntervalSeconds=60,
        )
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            for failures in (1, 2):
                await run.failed("ops", failures)
                run.retry("ops")
            await run.settled()
            ops.behave()
            await run.publish(*alerts(2, 1))
        assert ops.identifiers == []
    (ended,) = [r.__dict__ for r in caplog.records if r.__dict__["event"] == "subscription-ended"]
    assert ended["reason"] == "RemovalAction"


async def test_a_suspended_destination_waits_and_its_time_does_not_count(tmp_path: Path) -> None:
    async with listening() as ops:
        waiting = listener("ops", ops.url, suspended=True, indicationLifetimeSeconds=60)
        async with running(tmp_path, *resources(waiting)) as run:
            await run.publish(*alerts(0, 2))
            run.time.advance(3600.0)
            assert run.deliverer.delivery.pending == 2
            going = listener("ops", ops.url, indicationLifetimeSeconds=60)
            await run.reload(*resources(going))
            await run.settled()
        assert ops.identifiers == ["0", "1"]


# ---------------------------------------------------------------------- sequence identifiers


async def give_up_one(run: Running, ops: Listening) -> None:
    """Have one indication discarded for its attempts."""
    ops.behave(status=503)
    await run.publish(alert("lost"))
    await run.failed("ops", 1)
    run.retry("ops")
    await run.settled()
    ops.behave()


async def test_what_was_discarded_is_a_gap_to_the_listener(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url), deliveryRetryAttempts=1)
        async with running(tmp_path, *documents) as run:
            await run.publish(*alerts(0, 2))
            await run.settled()
            await give_up_one(run, ops)
            await run.publish(*alerts(2, 2))
            await run.settled()
        assert ops.identifiers == ["0", "1"]
        # The listener holds what follows for its lifetime, and then counts one as missing.
        assert ops.summary.held == 2
        ops.time.advance(900.0)
        assert ops.identifiers == ["0", "1", "2", "3"]
        assert (ops.summary.gaps, ops.summary.missing) == (1, 1)


async def test_a_restart_begins_a_new_context_at_0(tmp_path: Path) -> None:
    async with listening() as ops:
        documents = resources(listener("ops", ops.url))
        for start in (0, 2):
            async with running(tmp_path, *documents) as run:
                await run.publish(*alerts(start, 2))
                await run.settled()
        assert ops.identifiers == ["0", "1", "2", "3"]
        sequences = [one for arrival in ops.arrivals if (one := arrival.sequence())]
        assert [one.number for one in sequences] == [0, 1, 0, 1]
        assert len({one.context for one in sequences}) == 2


async def test_two_destinations_with_one_url_send_no_identifiers(tmp_path: Path) -> None:
    async with listening() as ops:
        one, two = listener("one", ops.url), listener("two", ops.url)
        async with running(tmp_path, *resources(one, two)) as run:
            await run.publish(*alerts(0, 3))
            await run.settled()
            assert [arrival.sequence() for arrival in ops.arrivals] == [None] * 6
            # Alone again, it numbers what it sends.
            await run.reload(*resources(one))
            await run.publish(*alerts(3, 1))
            await run.settled()
        (last,) = [arrival.sequence() for arrival in ops.arrivals][6:]
        assert last is not None
        assert {outcome.verdict for outcome in ops.outcomes} == {Verdict.DELIVERED}


async def test_pillion_listen_sees_neither_gap_nor_repeat(tmp_path: Path) -> None:
    command = ("-m", "pillion_cli.main", "listen", "--port", "0", "--output", "json")
    process = await create_subprocess_exec(sys.executable, *command, stdout=PIPE)
    assert process.stdout is not None
    url = json.loads(await process.stdout.readline())["listening"]
    async with (
        aiohttp.ClientSession() as session,
        running(tmp_path, *resources(listener("ops", f"{url}/"))) as run,
    ):
        await run.publish(*alerts(0, 10))
        await run.settled()
        # It takes the next one and hangs up: the outcome is uncertain, so it is sent again.
        for behaviour in ({"close": True, "fail": 1}, {"status": 503, "fail": 1}):
            failures = run.queue("ops").health.failures
            async with session.post(f"{url}/-/behaviour", json=behaviour) as response:
                assert response.status == 200
            await run.publish(*alerts(run.queue("ops").statistics.delivered, 5))
            await run.failed("ops", failures + 1)
            run.retry("ops")
            await run.settled()
    process.send_signal(signal.SIGTERM)
    printed = [json.loads(line) async for line in process.stdout]
    assert await process.wait() == 0
    summary = printed.pop()["summary"]
    delivered = [line for line in printed if line["verdict"] == "delivered"]
    assert [line["identifier"] for line in delivered] == [str(n) for n in range(20)]
    assert [line["number"] for line in delivered] == list(range(20))
    assert (summary["delivered"], summary["duplicates"], summary["gaps"]) == (20, 1, 0)
    (repeat,) = [line for line in printed if line["verdict"] == "duplicate"]
    assert (repeat["identifier"], repeat["number"]) == ("10", 10)
