"""Statuses are written where they differ, soon enough, and to whom they belong."""

from dataclasses import dataclass, field
from typing import Any, cast

import pytest

from pillion_operator.cluster.api import Api, ApiError
from pillion_operator.cluster.types import Object
from pillion_operator.controllers.status_writer import SLOW_INTERVAL, StatusWriter
from pillion_operator.events import EventRecorder
from pillion_operator.status.conditions import Condition, rfc3339
from pillion_operator.store import Change, Key, Store, version_of
from support.operator_fakes import FakeApi
from support.operator_objects import (
    DESTINATION,
    FILTER,
    changed,
    destination,
    filter_of,
    with_status,
)
from support.operator_time import FakeClock

YES = Condition("Accepted", "True", "Accepted", "It is valid.")
NO = Condition("Accepted", "False", "Invalid", "It is not.")


@dataclass
class Told:
    """The Events, and the keys to come again."""

    events: list[tuple[str, str, str, str, str]] = field(default_factory=list)
    again: list[tuple[Key, float]] = field(default_factory=list)

    def publish(self, regarding: Object, *, type: str, reason: str, note: str, action: str) -> None:
        self.events.append((regarding["metadata"]["name"], type, reason, note, action))

    def come_again(self, key: Key, seconds: float) -> None:
        self.again.append((key, seconds))


class Bench:
    """A writer, and what it writes to."""

    def __init__(self) -> None:
        self.api, self.store, self.told, self.clock = FakeApi(), Store(), Told(), FakeClock()
        self.writer = StatusWriter(
            api=cast(Api, self.api),
            store=self.store,
            recorder=cast(EventRecorder, self.told),
            clock=self.clock,
            requeue=self.told.come_again,
        )
        self.store.subscribe(self.writer.follow)
        self.put(destination())

    def put(self, body: dict[str, Any]) -> None:
        self.store.put(self.api.put(body))

    def live(self, key: Key = DESTINATION) -> dict[str, Any]:
        body = self.store.get(key)
        assert body is not None
        return cast("dict[str, Any]", body)

    async def write(self, *conditions: Condition, body: Any = None, **fields: Any) -> None:
        await self.writer.write(body or self.live(), conditions, fields)

    def written(self) -> list[Any]:
        assert {verb for verb, _, _ in self.api.writes} <= {"patch status"}
        return [body["status"] for _, _, body in self.api.writes]


async def test_a_status_is_written_whole_at_first() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    assert bench.written() == [
        {
            "observedGeneration": 1,
            "conditions": [
                {
                    "type": "Accepted",
                    "status": "True",
                    "observedGeneration": 1,
                    "lastTransitionTime": rfc3339(bench.clock.time()),
                    "reason": "Accepted",
                    "message": "It is valid.",
                }
            ],
            "depth": 3,
        }
    ]
    assert bench.api.writes[0][1] == DESTINATION


async def test_what_was_written_is_known_before_the_watch_tells_of_it() -> None:
    bench = Bench()
    await bench.write(YES)
    assert bench.live()["status"] == bench.api.objects[DESTINATION]["status"] != {}


async def test_what_is_there_already_is_not_written_again() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    await bench.clock.advance(10 * SLOW_INTERVAL)
    await bench.write(YES, depth=3)
    assert len(bench.written()) == 1
    assert bench.told.again == []


async def test_a_condition_is_written_at_once_and_only_what_differs() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    await bench.clock.advance(60.0)
    await bench.write(NO, depth=3)
    assert list(bench.written()[1]) == ["conditions"]
    assert bench.written()[1]["conditions"][0]["lastTransitionTime"] == rfc3339(bench.clock.time())


async def test_the_status_is_of_the_generation_that_was_judged() -> None:
    bench = Bench()
    await bench.write(YES)
    body = changed(bench.live(), generation=7)
    await bench.write(YES, body=body)
    assert bench.written()[1]["observedGeneration"] == 7
    assert bench.written()[1]["conditions"][0]["observedGeneration"] == 7


async def test_what_merely_moves_is_written_later_and_comes_again() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    await bench.clock.advance(10.0)
    await bench.write(YES, depth=4)
    assert len(bench.written()) == 1
    assert bench.told.again == [(DESTINATION, SLOW_INTERVAL - 10.0)]

    await bench.clock.advance(SLOW_INTERVAL - 10.0)
    await bench.write(YES, depth=5)
    assert bench.written()[1] == {"depth": 5}
    # From now on the interval counts from the second.
    await bench.write(YES, depth=6)
    assert bench.told.again[1:] == [(DESTINATION, SLOW_INTERVAL)]


async def test_what_has_to_wait_comes_again_under_the_key_that_is_said() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    key = Key("IndicationService/status", "shop", "default")
    await bench.writer.write(bench.live(), [YES], {"depth": 4}, again_as=key)
    assert bench.told.again == [(key, SLOW_INTERVAL)]


async def test_each_object_has_an_interval_of_its_own() -> None:
    bench = Bench()
    bench.put(filter_of())
    await bench.write(YES, depth=3)
    await bench.write(YES, body=bench.live(FILTER), depth=3)
    assert len(bench.written()) == 2
    assert bench.told.again == []


# ---------------------------------------------------------------- objects that go


async def test_one_that_is_gone_gets_no_status_and_tells_no_event() -> None:
    bench = Bench()
    body = bench.live()
    bench.api.remove(DESTINATION)
    await bench.write(NO, body=body)
    assert bench.api.writes == []
    assert bench.told.events == []
    # It was not written, so the next of that name need not wait.
    assert bench.writer._written == {}


async def test_of_one_that_went_while_it_was_written_nothing_is_told() -> None:
    """The watch told of its end before the answer came."""
    bench = Bench()
    patch = bench.api.patch

    async def and_gone(*args: Any, **options: Any) -> Object:
        answer = await patch(*args, **options)
        bench.store.remove(DESTINATION, version=version_of(answer) + 1)
        return answer

    bench.api.patch = and_gone  # type: ignore[method-assign]
    await bench.write(NO)
    assert len(bench.written()) == 1
    assert bench.told.events == []
    assert bench.store.get(DESTINATION) is None
    assert bench.writer._written == {}


async def test_what_is_gone_is_forgotten_so_that_the_next_is_written_at_once() -> None:
    bench = Bench()
    await bench.write(YES, depth=3)
    bench.writer.follow(Change(FILTER, filter_of(), None))
    bench.writer.follow(Change(DESTINATION, None, destination()))
    assert list(bench.writer._written) == [DESTINATION]
    bench.store.remove(DESTINATION)
    assert bench.writer._written == {}


@pytest.mark.parametrize(
    "error", [ApiError(503, "ServiceUnavailable", "not now"), TimeoutError("late")]
)
async def test_what_could_not_be_written_is_raised_and_not_told(error: Exception) -> None:
    bench = Bench()
    before = bench.api.patch

    async def failing(*_args: Any, **_options: Any) -> Object:
        raise error

    bench.api.patch = failing  # type: ignore[method-assign]
    with pytest.raises(type(error)):
        await bench.write(NO, depth=3)
    assert bench.told.events == []

    # It was never written, so nothing has to wait.
    bench.api.patch = before  # type: ignore[method-assign]
    await bench.write(NO, depth=4)
    assert bench.written()[0]["depth"] == 4
    assert len(bench.told.events) == 1


# ---------------------------------------------------------------- Events


async def test_a_transition_is_told_once_with_what_was_written() -> None:
    bench = Bench()
    for _ in range(2):
        await bench.write(NO)
    assert bench.told.events == [
        ("d", "Warning", "NotAccepted", "Invalid: It is not.", "Reconcile")
    ]
    await bench.write(YES)
    assert bench.told.events[1:] == [("d", "Normal", "Accepted", "It is valid.", "Reconcile")]


async def test_what_an_earlier_leader_has_told_is_not_told_again() -> None:
    bench = Bench()
    await bench.write(NO)
    later = Bench()
    later.put(with_status(destination(), **bench.live()["status"]))
    await later.write(NO, depth=9)
    assert len(later.written()) == 1
    assert later.told.events == []
