"""Connections to all listeners share what descriptors there are."""

import asyncio
import errno
import os
import socket

import pytest

from pillion_sidecar.handlers.http.channel import SHORTAGE_SECONDS
from pillion_sidecar.handlers.http.outgoing import OutgoingConnections
from pillion_sidecar.testing import FakeTime
from support.http_listener import Peer, Recorder, listening, ok, request, sending


class Slot:
    """A holder whose connection a test opens and closes."""

    def __init__(self, outgoing: OutgoingConnections) -> None:
        self.outgoing = outgoing
        self.is_idle = False
        self.has_connection = False

    def ask(self) -> bool:
        self.has_connection = self.outgoing.take(self)
        return self.has_connection

    def close_idle(self) -> None:
        self.has_connection = self.is_idle = False
        self.outgoing.give(self)

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
            short.setattr("pillion_sidecar.handlers.http.connector.socket.socket", refuse)
            sender.send(request(), recorder)
            await asked.wait()
            await asyncio.sleep(0)
        fake_time.advance(SHORTAGE_SECONDS)
        assert (await recorder.answer())[0] == 200
