"""Connections to all listeners share what descriptors there are."""

import asyncio
import errno
import os
import socket
from contextlib import AsyncExitStack

import pytest

from pillion_sidecar.handlers.transport.exchange import failure_outcome
from pillion_sidecar.handlers.transport.outgoing import (
    LEAST_OVERDUE_SECONDS,
    LOOK_SECONDS,
    AnswerTimes,
    OutgoingConnections,
)
from pillion_sidecar.handlers.transport.sender import SHORTAGE_SECONDS
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, Recorder, listening, ok, request, sending


class Slot:
    """A holder whose connection a test opens and closes."""

    def __init__(self, outgoing: OutgoingConnections, *, owner: object = None) -> None:
        self.outgoing = outgoing
        self.owner = self if owner is None else owner
        self.is_idle = self.is_overdue = False
        self.failures = 0
        self.has_connection = False

    def ask(self) -> bool:
        self.has_connection = self.outgoing.take(self)
        return self.has_connection

    def close_idle(self) -> None:
        self.has_connection = self.is_idle = False
        self.outgoing.give(self)

    def give_way(self) -> None:
        self.failures += 1
        self.close_idle()

    def admitted(self) -> None:
        self.has_connection = True


def test_an_idle_connection_is_closed_for_another() -> None:
    outgoing = OutgoingConnections(2)
    first, second, third = (Slot(outgoing) for _ in range(3))
    assert first.ask()
    assert second.ask()
    second.is_idle = True
    assert third.ask()
    assert (first.has_connection, second.has_connection) == (True, False)


def test_those_who_wait_are_admitted_in_order() -> None:
    outgoing = OutgoingConnections(1)
    first, second, third = (Slot(outgoing) for _ in range(3))
    assert [one.ask() for one in (first, second, third)] == [True, False, False]
    assert outgoing.is_crowded
    first.close_idle()
    assert (second.has_connection, third.has_connection) == (True, False)
    # A newcomer has no way past those who wait.
    assert not first.ask()
    second.close_idle()
    third.close_idle()
    assert first.has_connection
    assert not outgoing.is_crowded


def test_who_waits_no_more_is_not_admitted() -> None:
    outgoing = OutgoingConnections(1)
    first, second = Slot(outgoing), Slot(outgoing)
    first.ask()
    second.ask()
    outgoing.give(second)
    first.close_idle()
    assert not second.has_connection


def test_a_quarter_is_kept_for_those_that_answer() -> None:
    outgoing = OutgoingConnections(8)
    failing = [Slot(outgoing) for _ in range(10)]
    for one in failing:
        one.failures = 2
        one.ask()
    assert [one.has_connection for one in failing] == [True] * 6 + [False] * 4
    answering = [Slot(outgoing) for _ in range(3)]
    assert [one.ask() for one in answering] == [True, True, False]
    # And goes to them first.
    failing[0].close_idle()
    assert answering[2].has_connection
    assert not failing[6].has_connection
    answering[0].close_idle()
    assert failing[6].has_connection


def test_each_destination_has_its_turn() -> None:
    outgoing = OutgoingConnections(1)
    first = Slot(outgoing)
    first.ask()
    many = [Slot(outgoing, owner="many") for _ in range(3)]
    for one in many:
        one.ask()
    other = Slot(outgoing)
    other.ask()
    order = []
    held = first
    for _ in range(4):
        held.close_idle()
        held = next(one for one in (*many, other) if one.has_connection)
        order.append(held.owner)
    assert order == ["many", other, "many", "many"]


def test_an_eighth_is_for_those_that_fail_while_others_wait() -> None:
    outgoing = OutgoingConnections(8)
    busy, waiting = ([Slot(outgoing) for _ in range(8)] for _ in range(2))
    failed = [Slot(outgoing) for _ in range(3)]
    for number, one in enumerate(failed):
        one.failures = 2 if number else 3
    failed[2].failures = 1
    assert all([one.ask() for one in busy])
    assert not any([one.ask() for one in (*waiting, *failed)])
    # First the one that may have recovered.
    busy[0].close_idle()
    assert failed[2].has_connection
    busy[1].close_idle()
    assert waiting[0].has_connection
    failed[2].close_idle()
    assert (failed[0].has_connection, failed[1].has_connection) == (True, False)


def test_what_is_overdue_gives_way_to_those_who_wait_and_what_has_failed_keeps_its_share(
    fake_time: FakeTime,
) -> None:
    outgoing = OutgoingConnections(4, timers=fake_time)
    failing, slow, quick, hung = (Slot(outgoing) for _ in range(4))
    failing.failures = 1
    for one in (failing, slow, quick, hung):
        assert one.ask()
    failing.is_overdue = hung.is_overdue = True
    waiting = [Slot(outgoing) for _ in range(2)]
    assert [one.ask() for one in waiting] == [False, False]
    fake_time.advance(LOOK_SECONDS)
    assert [one.has_connection for one in (failing, slow, quick, hung)] == [True, True, True, False]
    assert [one.has_connection for one in waiting] == [True, False]
    slow.is_overdue = True
    fake_time.advance(LOOK_SECONDS)
    assert waiting[1].has_connection
    fake_time.advance(LOOK_SECONDS)
    assert fake_time.next_due() is None


def test_those_that_hang_give_way_to_one_another(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(4, timers=fake_time)
    hung = [Slot(outgoing) for _ in range(5)]
    for one in hung:
        one.failures = 2
        one.is_overdue = True
        one.ask()
    assert [one.has_connection for one in hung] == [True, True, True, False, False]
    again = Slot(outgoing)
    again.failures = 1
    again.ask()
    fake_time.advance(LOOK_SECONDS)
    assert again.has_connection
    assert sum(one.has_connection for one in hung) == 2


def test_those_that_hang_give_way_where_only_those_that_failed_wait(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(1, timers=fake_time)
    hung, failed = Slot(outgoing), Slot(outgoing)
    assert hung.ask()
    hung.is_overdue = True
    failed.failures = 1
    assert not failed.ask()
    fake_time.advance(LOOK_SECONDS)
    assert failed.has_connection


def test_each_attempt_without_an_answer_has_more_time() -> None:
    times = AnswerTimes()
    found = [times.overdue]
    for now in range(1, 7):
        times.failed(began_at=now, now=now)
        # It was under way at the same time.
        times.failed(began_at=now - 0.5, now=now)
        found.append(times.overdue)
    assert found == [5, 10, 20, 40, 80, 80, 80]
    times.answered(9.0)
    assert (times.failures, times.overdue) == (0, 90)


def test_an_idle_connection_of_one_that_failed_is_closed_for_another_that_fails() -> None:
    outgoing = OutgoingConnections(4)
    failing = [Slot(outgoing) for _ in range(4)]
    for one in failing:
        one.failures = 1
    assert [one.ask() for one in failing[:3]] == [True] * 3
    failing[1].is_idle = True
    assert failing[3].ask()
    assert not failing[1].has_connection


async def test_a_healthy_destination_does_not_wait_for_the_time_out_of_those_that_hang(
    fake_time: FakeTime,
) -> None:
    outgoing = OutgoingConnections(4, timers=fake_time)
    arrived: asyncio.Queue[None] = asyncio.Queue()

    async def hang(peer: Peer) -> None:
        await peer.request()
        arrived.put_nowait(None)
        await peer.closed()

    async with AsyncExitStack() as stack:
        hung = await stack.enter_async_context(listening(hang))
        listener = await stack.enter_async_context(listening(answer_all))
        senders = [
            await stack.enter_async_context(
                sending(hung.url, fake_time, outgoing=outgoing, seconds=600)
            )
            for _ in range(8)
        ]
        healthy = await stack.enter_async_context(
            sending(listener.url, fake_time, outgoing=outgoing, seconds=600)
        )
        ends = [Recorder() for _ in senders]
        for sender, end in zip(senders, ends, strict=True):
            sender.send(request(), end)
        first = Recorder()
        healthy.send(request(), first)
        for _ in range(2):
            for _ in range(4):
                await arrived.get()
            fake_time.advance(LEAST_OVERDUE_SECONDS + LOOK_SECONDS)
        assert (await first.answer())[0] == 200
        preempted = [await end.failure() for end in ends[:5]]
        assert not any(end.future.done() for end in ends[5:])
        assert {failure_outcome(one).preempted for one in preempted} == {True}
        assert all("limit of open files" in one.detail for one in preempted)
        # Those that hang are tried again; from now on they have a share and no more, which they
        # leave to one another.
        again = [Recorder() for _ in preempted]
        for sender, end in zip(senders, again, strict=False):
            sender.send(request(), end)
        for _ in range(20):
            recorder = Recorder()
            healthy.send(request(), recorder)
            fake_time.advance(LOOK_SECONDS)
            assert (await recorder.answer())[0] == 200
        assert sum(end.future.done() for end in again) == 2


async def test_a_listener_that_is_always_slow_does_not_give_way(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(1, timers=fake_time)
    asked, go_on = asyncio.Event(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        while True:
            await peer.request()
            asked.set()
            await go_on.wait()
            go_on.clear()
            await peer.send(ok())

    async with (
        listening(slow) as slow_listener,
        listening(answer_all) as listener,
        sending(slow_listener.url, fake_time, outgoing=outgoing, seconds=600) as first,
        sending(listener.url, fake_time, outgoing=outgoing, seconds=600) as second,
    ):
        for crowded in (False, True):
            busy, waiting = Recorder(), Recorder()
            asked.clear()
            first.send(request(), busy)
            await asked.wait()
            if crowded:
                second.send(request(), waiting)
            for _ in range(20):
                fake_time.advance(1.0)
            go_on.set()
            assert (await busy.answer())[0] == 200
        assert (await waiting.answer())[0] == 200


async def answer_all(peer: Peer) -> None:
    while True:
        await peer.request()
        await peer.send(ok())


async def test_an_idle_destination_gives_way_to_another(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(1)
    async with (
        listening(answer_all) as listener,
        sending(listener.url, fake_time, outgoing=outgoing) as first,
        sending(listener.url, fake_time, outgoing=outgoing) as second,
    ):
        for sender in (first, second, first):
            recorder = Recorder()
            sender.send(request(), recorder)
            assert (await recorder.answer())[0] == 200
        assert listener.connections == 3


async def test_an_attempt_that_waits_for_its_turn_does_not_time_out(fake_time: FakeTime) -> None:
    outgoing = OutgoingConnections(1)
    taken, go_on = asyncio.Event(), asyncio.Event()

    async def slow(peer: Peer) -> None:
        await peer.request()
        taken.set()
        await go_on.wait()
        await peer.send(ok())
        await answer_all(peer)

    async with (
        listening(slow) as slow_listener,
        listening(answer_all) as listener,
        sending(slow_listener.url, fake_time, outgoing=outgoing, seconds=600) as first,
        sending(listener.url, fake_time, outgoing=outgoing, seconds=30) as second,
    ):
        busy, waiting = Recorder(), Recorder()
        first.send(request(), busy)
        await taken.wait()
        second.send(request(), waiting)
        fake_time.advance(100)
        go_on.set()
        assert (await busy.answer())[0] == 200
        assert (await waiting.answer())[0] == 200


async def test_no_descriptor_is_no_failure_of_the_destination(
    fake_time: FakeTime, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = asyncio.Event()

    def refuse(*_: object) -> socket.socket:
        asked.set()
        raise OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    async with listening(answer_all) as listener, sending(listener.url, fake_time) as sender:
        recorder = Recorder()
        with monkeypatch.context() as short:
            short.setattr("pillion_sidecar.handlers.transport.connector.socket.socket", refuse)
            sender.send(request(), recorder)
            await asked.wait()
            await asyncio.sleep(0)
        fake_time.advance(SHORTAGE_SECONDS)
        assert (await recorder.answer())[0] == 200
