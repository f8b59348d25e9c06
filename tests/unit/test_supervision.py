"""What fails on the event loop itself, where no caller sees it."""

import asyncio
from collections.abc import Callable
from typing import Any
from unittest.mock import Mock

import pytest

from pillion_sidecar.clock import LoopTimers
from pillion_sidecar.delivery.dispatcher import Dispatcher
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult
from pillion_sidecar.supervision import LoopSupervisor, PartFailed, first, goes_on
from pillion_sidecar.testing import FakeTime


class FailingDispatcher(Dispatcher):
    """Raises in a turn and where an attempt ends, which no dispatcher may."""

    def __init__(self, error: Exception) -> None:
        super().__init__(
            clock=FakeTime(),
            timers=FakeTime(),
            call_soon=asyncio.get_running_loop().call_soon,
            table=Mock(),
            settlements=Mock(),
            observer=Mock(),
            draw=Mock(),
            triggers=Mock(),
        )
        self._error = error

    def _attempt(self, *_: object) -> None:
        raise self._error


class Queue:
    def is_outdated(self, entry: object) -> bool:
        return False

    def complete(self, entry: object) -> bool:
        raise RuntimeError("the books are wrong")


async def fail_in_a_timer() -> None:
    LoopTimers(loop=asyncio.get_running_loop()).call_later(0.0, failing_dispatcher()._attempt)


async def fail_in_a_turn() -> None:
    dispatcher = failing_dispatcher()
    dispatcher._join_round(Queue())  # type: ignore[arg-type]


async def fail_in_a_connection() -> None:
    class Answer(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            done: Callable[..., None] = failing_dispatcher()._done
            done(Queue(), None, 0.0, DeliveryOutcome(DeliveryResult.ERROR))

    await exchange(Answer)


def failing_dispatcher() -> Dispatcher:
    return FailingDispatcher(RuntimeError("the books are wrong"))


async def exchange(protocol: Callable[[], asyncio.Protocol]) -> None:
    """Let a protocol receive one byte."""
    loop = asyncio.get_running_loop()
    server = await loop.create_server(protocol, "127.0.0.1", 0)
    async with server:
        host, port = server.sockets[0].getsockname()
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(b"x")
        assert await reader.read() == b""
        writer.close()
        await writer.wait_closed()


@pytest.mark.parametrize("fail", [fail_in_a_timer, fail_in_a_turn, fail_in_a_connection])
async def test_what_fails_where_no_caller_sees_it_is_raised(fail, caplog):
    with LoopSupervisor(asyncio.get_running_loop()) as supervisor:
        await fail()
        with pytest.raises(RuntimeError, match="the books are wrong"):
            await supervisor.failure()
    assert "deliverer-failed" in [getattr(record, "event", None) for record in caplog.records]


async def test_what_fails_in_a_connection_of_others_is_logged_and_ends_that_connection(caplog):
    class Faulty(asyncio.Protocol):
        def data_received(self, data: bytes) -> None:
            raise RuntimeError("not ours")

    with LoopSupervisor(asyncio.get_running_loop()) as supervisor:
        waiting = asyncio.create_task(supervisor.failure())
        await exchange(Faulty)
        await asyncio.sleep(0)
        assert not waiting.done()
        waiting.cancel()
    assert [record.name for record in caplog.records] == ["asyncio"]


async def test_the_loop_gets_its_handler_back():
    loop = asyncio.get_running_loop()
    seen: list[dict[str, Any]] = []

    def before(_: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        seen.append(context)

    loop.set_exception_handler(before)
    with LoopSupervisor(loop):
        loop.call_exception_handler({"message": "something"})
    assert loop.get_exception_handler() is before
    assert [context["message"] for context in seen] == ["something"]


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", list(errors))


def test_the_first_of_a_kind_is_found_however_deep():
    wanted, later = RuntimeError("one"), RuntimeError("two")
    deep = group(ValueError(), group(OSError(), group(wanted)), later)
    assert first(deep, RuntimeError) is wanted
    assert first(group(later, deep), RuntimeError) is later
    assert first(wanted, RuntimeError) is wanted


def test_without_one_of_the_kind_there_is_none():
    assert first(group(ValueError(), group(OSError())), RuntimeError) is None
    assert first(OSError(), RuntimeError) is None


def test_an_exception_of_a_narrower_kind_is_one_of_the_kind():
    reset = ConnectionResetError()
    assert first(group(ValueError(), reset), OSError) is reset


async def test_what_a_part_tells_of_its_failure_is_logged_in_one_line_without_a_traceback(caplog):
    with LoopSupervisor(asyncio.get_running_loop()) as supervisor:
        dispatcher = FailingDispatcher(PartFailed("the disk failed; see to it"))
        dispatcher._join_round(Queue())  # type: ignore[arg-type]
        with pytest.raises(PartFailed, match="the disk failed; see to it"):
            await supervisor.failure()
    (record,) = caplog.records
    assert record.exc_info is None
    assert record.getMessage() == (
        "the deliverer stops, since a part of it failed: the disk failed; see to it"
    )


async def test_a_start_goes_on_once_it_has_loaded_or_is_slow() -> None:
    stop, slow, loaded = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def load() -> None:
        await loaded.wait()

    loading = asyncio.create_task(load())
    slow.set()
    assert await goes_on(loading, stop=stop, slow=slow)
    assert not loading.done()
    loaded.set()
    assert await goes_on(loading, stop=stop, slow=asyncio.Event())
    assert loading.done()


async def test_a_start_that_is_stopped_ends_and_one_that_fails_raises() -> None:
    stop, slow = asyncio.Event(), asyncio.Event()
    loading = asyncio.create_task(asyncio.Event().wait())
    stop.set()
    assert not await goes_on(loading, stop=stop, slow=slow)
    assert loading.cancelled()

    async def fail() -> None:
        raise PartFailed("no store")

    with pytest.raises(PartFailed):
        await goes_on(asyncio.create_task(fail()), stop=asyncio.Event(), slow=slow)
