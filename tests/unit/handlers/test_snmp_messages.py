"""SNMP's messages, read and written by pyasn1 and by the examples of the RFCs."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyasn1.codec.ber import decoder, encoder
from pyasn1.type import univ

from pillion_sidecar.config.usm import USMUser, aes, localized_key, make_user, passphrase_key
from pillion_sidecar.handlers.snmp import ber
from pillion_sidecar.handlers.snmp.messages import (
    PDU_BYTES,
    RESPONSE,
    CommunitySecurity,
    make_pdu,
    read_pdu,
)
from pillion_sidecar.handlers.snmp.usm import EPOCH, LONGEST_ENGINE, OwnTime, UserSecurity
from pillion_sidecar.protocols.snmp import AuthProtocol
from pillion_sidecar.testing import FakeTime

ENGINE = bytes.fromhex("000000000000000000000002")
USERS = {
    protocol: make_user("u", protocol, auth_passphrase="maplesyrup", priv_passphrase="maplesyrup")
    for protocol in AuthProtocol
}
USER = USERS[AuthProtocol.SHA_256]


@given(st.integers(-(2**63), 2**63 - 1))
def test_integers_are_read_as_written(value: int) -> None:
    encoded = ber.integer(value)
    assert decoder.decode(encoded) == (univ.Integer(value), b"")
    assert encoded == encoder.encode(univ.Integer(value))
    assert ber.Reader(encoded).integer() == value


@given(st.lists(st.integers(0, 2**32 - 1), max_size=8))
def test_object_identifiers_are_written_as_pyasn1_writes_them(arcs: list[int]) -> None:
    dotted = ".".join(map(str, (1, 3, *arcs)))
    assert ber.object_identifier(dotted) == encoder.encode(univ.ObjectIdentifier(dotted))


@given(st.sampled_from([0, 1, 127, 128, 255, 256, 65507]))
def test_contents_of_any_length_are_read_as_written(size: int) -> None:
    encoded = ber.octets(bytes(size))
    assert encoded == encoder.encode(univ.OctetString(bytes(size)))
    reader = ber.Reader(encoded + b"rest")
    assert reader.read(ber.OCTET_STRING) == bytes(size)
    assert reader.rest == 4


def reading(message: bytes, time: FakeTime) -> list[str]:
    """Read it as each kind of answer; the errors."""
    known = UserSecurity(USER, clock=time, own_engine=ENGINE)
    unknown = UserSecurity(USER, clock=time, own_engine=None)
    told = []
    for security in (CommunitySecurity("c"), known, unknown):
        try:
            security.open(message, 1)
        except ber.BERError as error:
            told.append(str(error))
    return told


@given(st.binary(max_size=200))
def test_no_bytes_raise_anything_else(message: bytes) -> None:
    time = FakeTime()
    assert len(reading(message, time)) == 3
    assert len(reading(ber.encode(ber.SEQUENCE, message), time)) == 3


def answer(time: FakeTime, user: USMUser = USER, *, number: int = 1) -> bytes:
    """A response of an engine that the deliverer knows."""
    security = UserSecurity(user, clock=time, own_engine=ENGINE)
    return security.seal(make_pdu(RESPONSE, number, b""), number)


@given(st.integers(0, 10_000), st.integers(1, 255))
def test_a_changed_answer_confirms_nothing(place: int, change: int) -> None:
    time = FakeTime()
    message = bytearray(answer(time))
    message[place % len(message)] ^= change
    with pytest.raises(ber.BERError):
        UserSecurity(USER, clock=time, own_engine=ENGINE).open(bytes(message), 1)


@pytest.mark.parametrize("protocol", AuthProtocol)
def test_an_answer_is_read_as_written(fake_time: FakeTime, protocol: AuthProtocol) -> None:
    user = USERS[protocol]
    read = UserSecurity(user, clock=fake_time, own_engine=ENGINE).open(answer(fake_time, user), 1)
    assert (read.tag, read.number, read.error_status) == (RESPONSE, 1, 0)
    assert read.is_authentic


def test_an_answer_that_is_only_signed_is_none_to_an_encrypted_message(
    fake_time: FakeTime,
) -> None:
    signed = answer(fake_time, replace(USER, priv_key=None))
    with pytest.raises(ber.BERError, match="not signed and encrypted"):
        UserSecurity(USER, clock=fake_time, own_engine=ENGINE).open(signed, 1)


def test_an_answer_of_another_key_is_none(fake_time: FakeTime) -> None:
    other = make_user("u", AuthProtocol.SHA_256, auth_passphrase="8 others", priv_passphrase=None)
    with pytest.raises(ber.BERError, match="digest is wrong"):
        UserSecurity(USER, clock=fake_time, own_engine=ENGINE).open(answer(fake_time, other), 1)


def test_an_answer_to_another_message_is_none(fake_time: FakeTime) -> None:
    with pytest.raises(ber.BERError, match="answers something else"):
        UserSecurity(USER, clock=fake_time, own_engine=ENGINE).open(answer(fake_time), 2)


# RFC 3414, A.3.2.
def test_keys_are_those_of_the_rfc() -> None:
    key = passphrase_key("maplesyrup", AuthProtocol.SHA)
    assert key.hex() == "9fb5cc0381497b3793528939ff788d5d79145211"
    localized = localized_key(key, ENGINE, AuthProtocol.SHA)
    assert localized.hex() == "6695febc9288e36282235fc7151f128497b38f3f"


def test_aes_has_the_feedback_of_128_bits() -> None:
    # NIST SP 800-38A, F.3.13.
    key = bytes.fromhex("2b7e151628aed2a6abf7158809cf4f3c")
    encryptor = aes(key, bytes(range(16))).encryptor()
    plain = bytes.fromhex("6bc1bee22e409f96e93d7e117393172aae2d8a571e03ac9c9eb76fac45af8e51")
    assert encryptor.update(plain).hex() == (
        "3b3fd92eb72dad20333449f8e83cfb4ac8a64537a0b3a93fcde3cdad9f1ce58b"
    )


def test_no_two_messages_have_one_salt(fake_time: FakeTime) -> None:
    security = UserSecurity(USER, clock=fake_time, own_engine=ENGINE)
    pdu = make_pdu(RESPONSE, 1, bytes(100))
    assert len({security.seal(pdu, 1) for _ in range(100)}) == 100


def test_the_time_of_the_engine_is_the_wall_clocks(fake_time: FakeTime) -> None:
    before = OwnTime(fake_time).now()
    assert before == (1, int(fake_time.time()) - EPOCH)
    fake_time.advance(10)
    # A restart does not set it back.
    assert OwnTime(fake_time).now() == (1, before[1] + 10)
    fake_time.step(-2e9)
    assert OwnTime(fake_time).now() == (1, 0)


def test_no_message_is_longer_than_was_said(fake_time: FakeTime) -> None:
    engine = bytes(range(1, LONGEST_ENGINE + 1))
    bindings = bytes(60_000)
    pdu = make_pdu(RESPONSE, 2**31 - 1, bindings)
    assert len(pdu) - len(bindings) <= PDU_BYTES
    user = replace(USERS[AuthProtocol.SHA_512], name=32 * "u")
    for security in (
        UserSecurity(user, clock=fake_time, own_engine=engine),
        CommunitySecurity(255 * "c"),
    ):
        message = security.seal(pdu, 2**31 - 1)
        assert 0 <= security.overhead - (len(message) - len(pdu)) < 20


def test_passphrases_and_keys_are_not_shown() -> None:
    assert repr(USER) == "USMUser(…)"


def test_an_answer_without_values_has_no_first_one() -> None:
    read = read_pdu(ber.Reader(make_pdu(RESPONSE, 7, b"")))
    assert (read.number, read.first) == (7, b"")


def test_a_request_is_no_answer() -> None:
    with pytest.raises(ber.BERError, match="no answer's"):
        read_pdu(ber.Reader(make_pdu(0xA6, 7, b"")))
