"""Events: said once, bounded, and never in anybody's way."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any, cast

import aiohttp
import pytest

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import Object
from pillion_operator.events import MOST_REMEMBERED, MOST_WAITING, EventRecorder
from support.in_background import in_background
from support.operator_time import FakeClock

POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "job-1", "namespace": "shop", "uid": "u1"},
    "spec": {"secret": "s3cret"},
}


class Events:
    """The API server's events; they fail or hang as a test says."""

    def __init__(self) -> None:
        self.created: list[Any] = []
        self.failure: Exception | None = None
        self.hangs = False

    async def create(self, body: Object) -> Object:
        if self.hangs:
            await asyncio.Event().wait()
        if self.failure is not None:
            raise self.failure
        self.created.append(body)
        return body


class Bed:
    """A recorder, its API server, and what was lost."""

    def __init__(self) -> None:
        self.events = Events()
        self.clock = FakeClock()
        self.dropped = 0
        self.recorder = EventRecorder(
            cast("Api", self.events),
            instance="operator-1",
            clock=self.clock,
            dropped=self.drop,
        )

    def drop(self) -> None:
        self.dropped += 1

    def publish(self, regarding: Object = POD, *, note: str = "It has none.") -> None:
        self.recorder.publish(
            regarding, type="Warning", reason="InjectionMissed", note=note, action="Inject"
        )

    def said(self) -> list[str]:
        return [event["note"] for event in self.events.created]


@pytest.fixture
async def bed() -> AsyncIterator[Bed]:
    bed = Bed()
    running = asyncio.create_task(bed.recorder.run())
    yield bed
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)


async def test_an_event_is_written_as_the_api_server_takes_it(bed: Bed) -> None:
    bed.publish()
    await bed.recorder.drained()
    (event,) = bed.events.created
    name = event["metadata"].pop("name")
    assert name.startswith("job-1.")
    assert event == {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": "shop"},
        "eventTime": "2023-11-14T22:13:20.000000Z",
        "reportingController": "pillion.dev/operator",
        "reportingInstance": "operator-1",
        "type": "Warning",
        "reason": "InjectionMissed",
        "action": "Inject",
        "note": "It has none.",
        "regarding": {
            "apiVersion": "v1",
            "kind": "Pod",
            "namespace": "shop",
            "name": "job-1",
            "uid": "u1",
        },
    }


async def test_the_same_is_said_again_after_an_hour(bed: Bed) -> None:
    bed.publish()
    bed.clock.skip(3599)
    bed.publish()
    await bed.recorder.drained()
    assert len(bed.events.created) == 1
    bed.clock.skip(1)
    bed.publish()
    await bed.recorder.drained()
    names = {event["metadata"]["name"] for event in bed.events.created}
    assert len(names) == 2


async def test_another_note_another_object_and_a_new_object_of_that_name_are_news(bed: Bed) -> None:
    bed.publish()
    bed.publish(note="It has none still.")
    bed.publish({**POD, "metadata": {**POD["metadata"], "name": "job-2"}})  # type: ignore[dict-item]
    bed.publish({**POD, "metadata": {**POD["metadata"], "uid": "u2"}})  # type: ignore[dict-item]
    await bed.recorder.drained()
    assert len(bed.events.created) == 4


@pytest.mark.parametrize(
    "failure",
    [
        ApiError(403, "Forbidden", "the namespace is being terminated"),
        aiohttp.ClientConnectionError("no route"),
        TimeoutError(),
    ],
)
async def test_one_that_cannot_be_written_is_counted_and_the_next_is_written(
    bed: Bed, failure: Exception
) -> None:
    bed.events.failure = failure
    bed.publish(note="first")
    await bed.recorder.drained()
    assert bed.dropped == 1
    bed.events.failure = None
    bed.publish(note="second")
    await bed.recorder.drained()
    assert bed.said() == ["second"]


async def test_an_api_server_that_hangs_is_given_up(bed: Bed) -> None:
    bed.events.hangs = True
    bed.publish(note="first")
    await bed.clock.advance(10)
    assert bed.dropped == 1
    bed.events.hangs = False
    bed.publish(note="second")
    await bed.recorder.drained()
    assert bed.said() == ["second"]


async def test_more_than_can_wait_is_counted_and_may_be_said_later() -> None:
    bed = Bed()
    for number in range(MOST_WAITING + 1):
        bed.publish(note=f"{number}")
    assert bed.dropped == 1
    async with in_background(bed.recorder.run()):
        await bed.recorder.drained()
        bed.publish(note=f"{MOST_WAITING}")
        bed.publish(note="0")
        await bed.recorder.drained()
    assert bed.said() == [f"{number}" for number in range(MOST_WAITING + 1)]


async def test_what_is_remembered_is_bounded(bed: Bed) -> None:
    for number in range(MOST_REMEMBERED + 1):
        bed.publish(note=f"{number}")
        if number % 500 == 0:
            await bed.recorder.drained()
    # The first was forgotten, the last was not.
    bed.publish(note="0")
    bed.publish(note=f"{MOST_REMEMBERED}")
    await bed.recorder.drained()
    assert len(bed.events.created) == MOST_REMEMBERED + 2
    assert bed.dropped == 0


async def test_a_note_is_cut_to_what_the_api_server_takes(bed: Bed) -> None:
    bed.publish(note="ü" * 2000)
    await bed.recorder.drained()
    (note,) = bed.said()
    assert len(note.encode()) <= 1024
    assert note.startswith("ü")
    assert note.endswith("…")


async def test_an_object_of_the_cluster_has_its_events_in_the_default_namespace(bed: Bed) -> None:
    bed.publish({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}})
    await bed.recorder.drained()
    (event,) = bed.events.created
    assert event["metadata"]["namespace"] == "default"
    assert event["regarding"]["namespace"] == ""


async def test_a_long_name_leaves_room_for_the_event_s_own(bed: Bed) -> None:
    bed.publish({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n" * 253}})
    await bed.recorder.drained()
    assert len(bed.events.created[0]["metadata"]["name"]) <= 253
