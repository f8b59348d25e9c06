"""A test of a destination changes nothing in how a listener judges the sequence (S0.12, D.2)."""

from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest

from support.listening import Listening, listening
from support.resources import JSON
from support.running import Running, alerts, listener, resources, running

ORDERING = pytest.mark.parametrize("protocol", ["CIM-XML", "CloudEvents"])


def ops(to: Listening, protocol: str, **spec: Any) -> tuple[JSON, ...]:
    return resources(listener("ops", to.url, protocol=protocol, **spec))


async def trial_at(run: Running) -> str:
    """Test it, and return the identifier of the test, which the listener has answered well."""
    told = (await run.post("/v1/queues/ops/test")).document
    assert told["result"] == "success"
    identifier: str = told["identifier"]
    return identifier


def verdicts(to: Listening, test: str) -> list[str]:
    return [
        outcome.verdict.value
        for outcome in to.outcomes
        if outcome.item.text("IndicationIdentifier") == test
    ]


def delivered(to: Listening, *tests: str) -> list[str | None]:
    return [identifier for identifier in to.identifiers if identifier not in tests]


def numbers(found: Iterable[int]) -> list[str]:
    return [str(number) for number in found]


@ORDERING
async def test_before_and_between_deliveries(config: Path, protocol: str) -> None:
    async with listening() as good, running(config, *ops(good, protocol)) as run:
        first = await trial_at(run)
        await run.publish(*alerts(0, 2), ack="delivered")
        second = await trial_at(run)
        await run.publish(*alerts(2, 2), ack="delivered")
    assert delivered(good, first) == numbers(range(4))
    # The listener has answered the second one; for its consumers it is a repeat.
    assert (verdicts(good, first), verdicts(good, second)) == (["delivered"], ["duplicate"])
    assert (good.summary.late, good.summary.held) == (0, 0)


@ORDERING
async def test_before_a_queue_that_has_discarded_is_resumed(config: Path, protocol: str) -> None:
    async with (
        listening() as good,
        running(config, *ops(good, protocol, queueSize=5, suspended=True)) as run,
    ):
        await run.publish(*alerts(0, 8))
        test = await trial_at(run)
        await run.reload(*ops(good, protocol, queueSize=5))
        await run.delivered("ops", 5)
    assert delivered(good, test) == numbers(range(3, 8))
    assert verdicts(good, test) == ["delivered"]


@ORDERING
async def test_at_a_listener_whose_first_answer_was_lost(config: Path, protocol: str) -> None:
    async with (
        listening(close=True, fail=1) as good,
        running(config, *ops(good, protocol)) as run,
    ):
        await run.publish(*alerts(0, 2))
        await run.failed("ops", 1)
        test = await trial_at(run)
        run.retry("ops")
        await run.settled()
    assert delivered(good) == numbers(range(2))
    assert verdicts(good, test) == ["late"]
    assert good.summary.duplicates == 1


@ORDERING
async def test_at_a_listener_that_knows_the_deliverer_of_before(
    config: Path, protocol: str
) -> None:
    async with listening() as good:
        async with running(config, *ops(good, protocol)) as run:
            await run.publish(*alerts(0, 2), ack="delivered")
        async with running(config, *ops(good, protocol)) as run:
            test = await trial_at(run)
            await run.publish(*alerts(2, 2), ack="delivered")
    assert delivered(good, test) == numbers(range(4))


@ORDERING
async def test_after_a_restart(config: Path, journal: Path, protocol: str) -> None:
    async with listening() as good:
        async with running(config, *ops(good, protocol), journal=journal) as run:
            await run.publish(*alerts(0, 2), ack="delivered")
            await run.kept()
        async with running(config, journal=journal) as run:
            test = await trial_at(run)
            await run.publish(*alerts(2, 2), ack="delivered")
    assert delivered(good, test) == numbers(range(4))
    assert verdicts(good, test) == ["duplicate"]


async def test_without_identifiers_it_has_none(config: Path) -> None:
    async with (
        listening() as good,
        running(config, *ops(good, "CIM-XML", sequenceIdentifiers="Omit")) as run,
    ):
        await run.publish(*alerts(0, 1), ack="delivered")
        test = await trial_at(run)
    assert good.identifiers == ["0", test]
    assert good.outcomes[-1].identifier is None
