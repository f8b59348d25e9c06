"""Packets of MQTT, read in any pieces and from anybody."""

from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.handlers.broker.wire import BrokerError
from pillion_sidecar.handlers.mqtt.packets import (
    DISCONNECT,
    PUBACK,
    Packet,
    Reader,
    length,
    publish,
    read_answer,
    read_connack,
)


@pytest.mark.parametrize(
    ("value", "encoded"),
    [
        # The examples of the specification, 1.5.5.
        (0, b"\x00"),
        (127, b"\x7f"),
        (128, b"\x80\x01"),
        (16_383, b"\xff\x7f"),
        (16_384, b"\x80\x80\x01"),
        (2_097_151, b"\xff\xff\x7f"),
        (2_097_152, b"\x80\x80\x80\x01"),
        (268_435_455, b"\xff\xff\xff\x7f"),
    ],
)
def test_a_length_is_a_variable_byte_integer(value: int, encoded: bytes) -> None:
    assert length(value) == encoded


def test_a_message_is_what_the_specification_says() -> None:
    given: dict[str, bytes] = {"topic": b"a/b", "properties": b"\x01\x01"}
    sent = publish(b"{}", qos=1, retain=False, number=10, **given)
    assert sent == b"\x32\x0c\x00\x03a/b\x00\x0a\x02\x01\x01{}"
    assert (
        publish(b"", qos=0, retain=True, number=10, **given) == b"\x31\x08\x00\x03a/b\x02\x01\x01"
    )


@given(st.lists(st.binary(max_size=300), max_size=5), st.integers(1, 50))
def test_packets_are_read_in_any_pieces(bodies: list[bytes], piece: int) -> None:
    data = b"".join(b"\x40" + length(len(body)) + body for body in bodies)
    reader, found = Reader(), list[Packet]()
    for at in range(0, len(data), piece):
        found += reader.feed(data[at : at + piece])
    assert found == [Packet(PUBACK, body) for body in bodies]


@given(st.binary(max_size=200), st.sampled_from([PUBACK, DISCONNECT]))
def test_anything_else_is_an_error_of_the_broker(data: bytes, kind: int) -> None:
    for read in (
        lambda: list(Reader().feed(data)),
        lambda: read_connack(data),
        lambda: read_answer(Packet(kind, data)),
    ):
        with suppress(BrokerError):
            read()
