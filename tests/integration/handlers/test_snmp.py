"""SNMP against a receiver of the tests' own, and its bad days."""

import asyncio
import json
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.schema.listener import Credentials
from pillion_sidecar.config.usm import SNMPCredentials, make_user
from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, Handler, HoldCause
from pillion_sidecar.handlers.snmp.ber import (
    SEQUENCE,
    Reader,
    encode,
    integer,
    object_identifier,
    octets,
    sequence,
)
from pillion_sidecar.handlers.snmp.messages import REPORT
from pillion_sidecar.handlers.snmp.wire import MOST_MESSAGES, PROBATION, SOCKET_SECONDS
from pillion_sidecar.handlers.transport.sender import IDLE_SECONDS
from pillion_sidecar.protocols.snmp import AuthProtocol, Notification, SNMPOptions, SNMPVersion
from pillion_sidecar.testing import FakeTime
from support.protocol_peers import AMPLE, BIG, TIMEOUT, Attempt, destination, registry
from support.snmp_receiver import INFORM, TRAP, bindings_of, kind_of, read, receiving, response

TRAPS = SNMPOptions(version=SNMPVersion.V2C, notification=Notification.TRAP)
USER = make_user("u", AuthProtocol.SHA_256, auth_passphrase="authentic", priv_passphrase="a secret")
SUCCESS = DeliveryOutcome(DeliveryResult.SUCCESS)


@asynccontextmanager
async def handling(
    time: FakeTime, url: str, resolver: Any = None, **given: Any
) -> AsyncIterator[Handler]:
    resolving = {} if resolver is None else {"resolver": resolver}
    async with registry(time, None, **resolving) as made:
        chosen = {"timeout_seconds": AMPLE, **given}
        handler = made.create_handler(destination("SNMP", url, **chosen))
        try:
            yield handler
        finally:
            handler.close()


def closed_port() -> int:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as one:
        one.bind(("127.0.0.1", 0))
        port: int = one.getsockname()[1]
        return port


async def turns(count: int = 200) -> None:
    for _ in range(count):
        await asyncio.sleep(0)


def alert(**properties: Any) -> bytes:
    return json.dumps({"class": "CIM_AlertIndication", "properties": properties}).encode()


async def test_informs_share_a_socket_and_come_in_order(fake_time: FakeTime) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url) as handler:
        for number in range(3):
            body = alert(Message=f"m-{number}")
            assert await Attempt(handler, fake_time, body).outcome() == SUCCESS
    assert [kind_of(one) for one in receiver.received] == 3 * [INFORM]
    assert [str(read(one)["community"]) for one in receiver.received] == 3 * ["sunny-side"]
    messages = [bytes(bindings_of(one)[6][1]) for one in receiver.received]
    assert messages == [b"m-0", b"m-1", b"m-2"]
    assert len(set(receiver.peers)) == 1


async def test_only_the_first_trap_of_a_socket_waits_for_a_refusal(fake_time: FakeTime) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url, options=TRAPS) as handler:
        first = Attempt(handler, fake_time)
        await receiver.arrived.wait()
        await turns()
        assert first.told == []
        fake_time.advance(PROBATION)
        assert first.told == [SUCCESS]
        begun = fake_time.monotonic()
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        assert fake_time.monotonic() - begun < PROBATION
        await turns()
    assert [kind_of(one) for one in receiver.received] == 2 * [TRAP]


@pytest.mark.parametrize("notification", Notification)
async def test_a_port_at_which_nobody_listens_is_an_error(
    fake_time: FakeTime, notification: Notification
) -> None:
    options = SNMPOptions(version=SNMPVersion.V2C, notification=notification)
    url = f"snmp://127.0.0.1:{closed_port()}"
    async with handling(fake_time, url, options=options) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert told.result is DeliveryResult.ERROR
    assert told.detail == (
        "the message was refused: Connection refused before the receiver had the notification"
    )


async def test_a_receiver_that_begins_to_refuse_is_noticed_at_the_next_trap(
    fake_time: FakeTime,
) -> None:
    async with receiving() as receiver:
        url = receiver.url
    async with handling(fake_time, url, options=TRAPS) as handler:
        async with receiving() as receiver:
            pass
        results = []
        for _ in range(2):
            results.append((await Attempt(handler, fake_time).outcome()).result)
            await turns()
    assert results == 2 * [DeliveryResult.ERROR]


class _Addresses:
    """The addresses of every name."""

    def __init__(self, *addresses: str) -> None:
        self._addresses = addresses

    async def resolve(self, host: str) -> Sequence[str]:
        return self._addresses


@pytest.mark.parametrize("notification", Notification)
async def test_after_a_refusal_the_next_address_is_tried_and_kept(
    fake_time: FakeTime, notification: Notification
) -> None:
    options = SNMPOptions(version=SNMPVersion.V2C, notification=notification)
    addresses = _Addresses("127.0.0.2", "127.0.0.3", "127.0.0.1")
    async with (
        receiving() as receiver,
        handling(fake_time, receiver.url, options=options, resolver=addresses) as handler,
    ):
        results = []
        for _ in range(7):
            results.append((await Attempt(handler, fake_time).outcome()).result)
            # The last ones have a socket of their own.
            fake_time.advance(SOCKET_SECONDS / 2)
    assert results == 2 * [DeliveryResult.ERROR] + 5 * [DeliveryResult.SUCCESS]
    assert len(set(receiver.peers)) == 2


async def test_after_silence_the_next_address_is_tried(fake_time: FakeTime) -> None:
    async with receiving(answers=False) as silent:
        port = int(silent.url.rpartition(":")[2])
        async with (
            receiving(address=("127.0.0.2", port)) as receiver,
            handling(
                fake_time,
                receiver.url,
                timeout_seconds=TIMEOUT,
                resolver=_Addresses("127.0.0.1", "127.0.0.2"),
            ) as handler,
        ):
            results = [(await Attempt(handler, fake_time).outcome()).result for _ in range(2)]
    assert results == [DeliveryResult.POST_DELIVERY_ERROR, DeliveryResult.SUCCESS]
    assert len(silent.received) == 1


async def test_the_name_is_resolved_again_after_a_while(fake_time: FakeTime) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url) as handler:
        for _ in range(int(SOCKET_SECONDS) // 20 + 2):
            assert await Attempt(handler, fake_time).outcome() == SUCCESS
            fake_time.advance(20)
    assert len(set(receiver.peers)) == 2


async def test_an_idle_socket_is_closed(fake_time: FakeTime) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url) as handler:
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
        fake_time.advance(AMPLE + IDLE_SECONDS)
        await turns()
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
    assert len(set(receiver.peers)) == 2


@pytest.mark.parametrize(
    ("status", "name", "refuses"),
    [(1, "tooBig", True), (5, "genErr", False), (16, "authorizationError", False)],
)
async def test_an_error_status_is_an_error(
    fake_time: FakeTime, status: int, name: str, refuses: bool
) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url) as handler:
        receiver.error_status = status
        told = await Attempt(handler, fake_time).outcome()
        receiver.error_status = 0
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
    assert told.result is DeliveryResult.ERROR
    assert told.detail == f"the receiver answered {name}"
    assert told.refuses_indication is refuses


async def test_without_an_answer_the_receiver_may_have_it(fake_time: FakeTime) -> None:
    async with (
        receiving(answers=False) as receiver,
        handling(fake_time, receiver.url, timeout_seconds=TIMEOUT) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await receiver.arrived.wait()
        fake_time.advance(TIMEOUT)
        (told,) = attempt.told
        await turns()
    assert told.result is DeliveryResult.POST_DELIVERY_ERROR
    assert told.detail == "timed out after 30 s; the receiver may have the notification"
    # The next attempt belongs to delivery.
    assert len(receiver.received) == 1


@pytest.mark.parametrize(
    ("garbage", "says"),
    [
        (b"0\x05\x02\x01", "it ends too early"),
        (b"\x00" * 65000, "it has the tag 0x00 instead of 0x30"),
        (b"0\x84\xff\xff\xff\xff", "it has an invalid length"),
        (b"another", "it has the tag 0x61 instead of 0x30"),
    ],
)
async def test_garbage_is_ignored_and_told_at_the_time_out(
    fake_time: FakeTime, garbage: bytes, says: str
) -> None:
    async with (
        receiving(answers=False) as receiver,
        handling(fake_time, receiver.url, timeout_seconds=TIMEOUT) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await receiver.arrived.wait()
        receiver.send(garbage, receiver.peers[0])
        await turns()
        assert attempt.told == []
        fake_time.advance(TIMEOUT)
        (told,) = attempt.told
    assert f"(an answer was ignored: {says})" in told.detail


async def test_an_answer_to_something_else_confirms_nothing(fake_time: FakeTime) -> None:
    async with (
        receiving(answers=False) as receiver,
        handling(fake_time, receiver.url) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await receiver.arrived.wait()
        (asked,), (peer,) = receiver.received, receiver.peers
        receiver.send(response(asked, number=1), peer)
        # The question itself is no answer.
        receiver.send(asked, peer)
        await turns()
        assert attempt.told == []
        receiver.send(response(asked), peer)
        # Nobody waits for a second one.
        receiver.send(response(asked), peer)
        await turns()
        assert attempt.told == [SUCCESS]


async def test_a_message_of_somebody_else_does_not_arrive(fake_time: FakeTime) -> None:
    async with (
        receiving(answers=False) as receiver,
        receiving() as other,
        handling(fake_time, receiver.url) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        await receiver.arrived.wait()
        other.send(response(receiver.received[0]), receiver.peers[0])
        await turns()
        assert attempt.told == []


async def test_an_address_that_is_not_allowed_holds_the_destination(fake_time: FakeTime) -> None:
    policy = AddressPolicy(allow_loopback=False)
    async with receiving() as receiver, registry(fake_time, None, address_policy=policy) as made:
        handler = made.create_handler(destination("SNMP", receiver.url, timeout_seconds=AMPLE))
        told = await Attempt(handler, fake_time).outcome()
        handler.close()
        await turns()
    assert told.hold is HoldCause.ADDRESS
    assert receiver.received == []


@pytest.mark.parametrize(
    ("version", "given"),
    [
        (SNMPVersion.V2C, None),
        (SNMPVersion.V2C, Credentials(snmp=SNMPCredentials(user=USER))),
        (SNMPVersion.V3, Credentials(snmp=SNMPCredentials(community="c"))),
        (SNMPVersion.V3, Credentials(username="a", password="b")),
    ],
)
async def test_without_its_credentials_a_destination_is_held(
    fake_time: FakeTime, version: SNMPVersion, given: Credentials | None
) -> None:
    options = SNMPOptions(version=version)
    chosen = {"credentials": given, "options": options}
    async with handling(fake_time, "snmp://localhost", **chosen) as handler:
        told = await Attempt(handler, fake_time).outcome()
    assert (told.result, told.hold) == (DeliveryResult.FATAL_ERROR, HoldCause.CREDENTIALS)


async def test_without_an_engine_id_the_receiver_has_nothing(fake_time: FakeTime) -> None:
    given = {
        "credentials": Credentials(snmp=SNMPCredentials(user=USER)),
        "options": SNMPOptions(),
        "timeout_seconds": TIMEOUT,
    }
    async with (
        receiving(answers=False) as receiver,
        handling(fake_time, receiver.url, **given) as handler,
    ):
        attempt = Attempt(handler, fake_time, alert(Message="planted"))
        await receiver.arrived.wait()
        fake_time.advance(TIMEOUT)
        (told,) = attempt.told
    assert told.result is DeliveryResult.ERROR
    assert told.detail == "timed out after 30 s before the receiver had the notification"
    # It was asked only.
    (question,) = receiver.received
    assert len(question) < 80
    assert b"planted" not in question


@dataclass(slots=True)
class Reporting:
    """A receiver of v3 whose engine ID is another one in each report."""

    number: int = 0

    def report(self, question: bytes) -> bytes:
        self.number += 1
        whole = Reader(Reader(question).read(SEQUENCE))
        whole.integer()
        asked = Reader(whole.read(SEQUENCE)).integer()
        value = sequence(object_identifier("1.3.6.1.6.3.15.1.1.4.0"), integer(self.number))
        pdu = encode(REPORT, integer(asked) + integer(0) + integer(0) + encode(SEQUENCE, value))
        nothing, engine = octets(b""), octets(self.number.to_bytes(8))
        header = sequence(integer(asked), integer(65507), octets(b"\0"), integer(3))
        parameters = sequence(engine, integer(1), integer(1), nothing, nothing, nothing)
        return sequence(integer(3), header, octets(parameters), sequence(engine, nothing, pdu))


async def test_reports_without_end_are_an_error(fake_time: FakeTime) -> None:
    given = {
        "credentials": Credentials(snmp=SNMPCredentials(user=USER)),
        "options": SNMPOptions(),
    }
    reporting = Reporting()
    async with (
        receiving(answers=False) as receiver,
        handling(fake_time, receiver.url, **given) as handler,
    ):
        attempt = Attempt(handler, fake_time)
        while not attempt.told:
            await receiver.arrived.wait()
            receiver.arrived.clear()
            receiver.send(reporting.report(receiver.received[-1]), receiver.peers[-1])
            await turns(20)
    (told,) = attempt.told
    assert told.result is DeliveryResult.ERROR
    assert "it sends reports without end" in told.detail
    assert len(receiver.received) == MOST_MESSAGES


async def test_what_is_no_instance_is_fatal(fake_time: FakeTime) -> None:
    async with receiving() as receiver, handling(fake_time, receiver.url) as handler:
        told = await Attempt(handler, fake_time, b'{"class": "A"}').outcome()
        assert told.result is DeliveryResult.FATAL_ERROR
        assert await Attempt(handler, fake_time).outcome() == SUCCESS
    assert len(receiver.received) == 1


@pytest.mark.parametrize("most", [1024, 1400, 65507])
async def test_no_message_is_longer_than_its_limit(fake_time: FakeTime, most: int) -> None:
    options = SNMPOptions(version=SNMPVersion.V2C, max_bytes=most)
    async with (
        receiving() as receiver,
        handling(fake_time, receiver.url, options=options) as handler,
    ):
        assert await Attempt(handler, fake_time, BIG).outcome() == SUCCESS
    (message,) = receiver.received
    assert most - 80 < len(message) <= most
