"""Version v3: messages that are signed, and mostly encrypted (RFC 3412, RFC 3414).

An inform is signed for the receiver's engine: what its engine ID, boots and time are, it tells in
reports. A trap is signed for the deliverer's own engine, which no receiver can ask. All deliverers
of a service are one engine: its boots are always 1, and its time is that of the wall clock. So it
never goes back at a restart, and nothing has to be kept.
"""

import hmac
import secrets
from dataclasses import replace
from typing import Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.usm import AES_BYTES, HASHES, USMUser, aes, localized_key
from pillion_sidecar.handlers.snmp.ber import (
    OCTET_STRING,
    SEQUENCE,
    BERError,
    Reader,
    integer,
    object_identifier,
    octets,
    sequence,
)
from pillion_sidecar.handlers.snmp.messages import GET, REPORT, Answer, make_pdu, read_pdu
from pillion_sidecar.protocols.snmp import AuthProtocol

#: 2020-01-01T00:00:00Z, in seconds since 1970: the engine time is less than 2**31 until 2088.
EPOCH = 1_577_836_800
#: RFC 3411: bytes of an engine ID.
SHORTEST_ENGINE, LONGEST_ENGINE = 5, 32
_V3 = 3
_USM = 3
#: Bytes that an answer may have.
_MOST = 65507
#: Bytes around a PDU, with the longest names, lengths and digest.
_OVERHEAD = 220
_AUTHENTICATED, _ENCRYPTED, _REPORTABLE = 1, 2, 4
_DIGEST_BYTES = {
    AuthProtocol.SHA: 12,
    AuthProtocol.SHA_256: 24,
    AuthProtocol.SHA_384: 32,
    AuthProtocol.SHA_512: 48,
}


def _statistic(number: int) -> bytes:
    """An object of usmStats, as it is in a report."""
    return object_identifier(f"1.3.6.1.6.3.15.1.1.{number}.0")[2:]


_NOT_IN_TIME, _UNKNOWN_ENGINE = _statistic(2), _statistic(4)
_REFUSALS = {
    _statistic(1): "it does not support the security level for this user",
    _NOT_IN_TIME: "the time of the message is not its own",
    _statistic(3): "it does not know the user",
    _UNKNOWN_ENGINE: "it does not know the engine ID",
    _statistic(5): "the digest is wrong: the authentication passphrase or protocol differs",
    _statistic(6): "it cannot decrypt: the privacy passphrase or protocol differs",
}


class _Time(Protocol):
    """``snmpEngineBoots`` and ``snmpEngineTime``."""

    def now(self) -> tuple[int, int]: ...

    def set(self, boots: int, time: int) -> None: ...


class OwnTime:
    def __init__(self, clock: Clock) -> None:
        self._clock = clock

    def now(self) -> tuple[int, int]:
        return 1, max(0, int(self._clock.time()) - EPOCH)

    def set(self, boots: int, time: int) -> None:
        """Nothing: no receiver tells it."""


class PeerTime:
    """The receiver's, unknown at first: it answers to zeros with the truth."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._boots = 0
        self._time = 0
        self._set_at: float | None = None

    def now(self) -> tuple[int, int]:
        if self._set_at is None:
            return 0, 0
        return self._boots, self._time + int(self._clock.monotonic() - self._set_at)

    def set(self, boots: int, time: int) -> None:
        self._boots, self._time, self._set_at = boots, time, self._clock.monotonic()


class _Engine:
    """An engine, and the user's keys for it."""

    def __init__(self, identifier: bytes, user: USMUser, time: _Time) -> None:
        self.identifier = identifier
        self.time = time
        self._hash = HASHES[user.protocol]
        self.digest_bytes = _DIGEST_BYTES[user.protocol]
        self._auth_key = localized_key(user.auth_key, identifier, user.protocol)
        self._priv_key = None
        if user.priv_key is not None:
            self._priv_key = localized_key(user.priv_key, identifier, user.protocol)[:AES_BYTES]
        # RFC 3826, 3.1.2.1: never the same for one key.
        self._salt = secrets.randbits(64)

    @property
    def encrypts(self) -> bool:
        return self._priv_key is not None

    def digest(self, message: bytes) -> bytes:
        return hmac.digest(self._auth_key, message, self._hash)[: self.digest_bytes]

    def encrypt(self, data: bytes, boots: int, time: int) -> tuple[bytes, bytes]:
        """Return salt and result."""
        assert self._priv_key is not None
        self._salt = (self._salt + 1) % 2**64
        salt = self._salt.to_bytes(8)
        encryptor = aes(self._priv_key, _vector(boots, time, salt)).encryptor()
        return salt, encryptor.update(data) + encryptor.finalize()

    def decrypt(self, data: bytes, boots: int, time: int, salt: bytes) -> bytes:
        """Raises BERError."""
        if self._priv_key is None or len(salt) != 8:
            raise BERError("it is encrypted in another way")
        decryptor = aes(self._priv_key, _vector(boots, time, salt)).decryptor()
        return decryptor.update(data) + decryptor.finalize()


def _vector(boots: int, time: int, salt: bytes) -> bytes:
    return (boots % 2**32).to_bytes(4) + (time % 2**32).to_bytes(4) + salt


class UserSecurity:
    """One user. Without an engine of its own it is for informs."""

    def __init__(self, user: USMUser, *, clock: Clock, own_engine: bytes | None) -> None:
        self.overhead = _OVERHEAD
        self._user = user
        self._clock = clock
        self._reportable = _REPORTABLE if own_engine is None else 0
        self._engine = None
        if own_engine is not None:
            self._engine = _Engine(own_engine, user, OwnTime(clock))

    @property
    def is_ready(self) -> bool:
        return self._engine is not None

    def seal(self, pdu: bytes, number: int) -> bytes:
        engine = self._engine
        if engine is None:
            return self._question(number)
        boots, time = engine.time.now()
        scoped = sequence(octets(engine.identifier), octets(b""), pdu)
        flags, salt = _AUTHENTICATED | self._reportable, b""
        if engine.encrypts:
            flags |= _ENCRYPTED
            salt, encrypted = engine.encrypt(scoped, boots, time)
            scoped = octets(encrypted)
        end = octets(salt)
        parameters = sequence(
            octets(engine.identifier),
            integer(boots),
            integer(time),
            octets(self._user.name.encode()),
            octets(bytes(engine.digest_bytes)),
            end,
        )
        message = _message(number, flags, parameters, scoped)
        # The digest is of the message with zeros in its place.
        after = len(message) - len(scoped) - len(end)
        before = after - engine.digest_bytes
        return message[:before] + engine.digest(message) + message[after:]

    def open(self, message: bytes, number: int) -> Answer:
        whole = Reader(message)
        outer = Reader(whole.read(SEQUENCE))
        flags = _flags(outer, number)
        inner = Reader(outer.read(OCTET_STRING))
        parameters = Reader(inner.read(SEQUENCE))
        identifier = parameters.read(OCTET_STRING)
        boots, time = parameters.integer(), parameters.integer()
        parameters.read(OCTET_STRING)
        digest = parameters.read(OCTET_STRING)
        rest = whole.rest + outer.rest + inner.rest + parameters.rest
        salt = parameters.read(OCTET_STRING)
        engine = self._engine
        is_authentic = bool(flags & _AUTHENTICATED)
        if is_authentic:
            if engine is None or identifier != engine.identifier:
                raise BERError("it is of another engine")
            _verify(engine, message, digest, end=len(message) - rest)
        if flags & _ENCRYPTED:
            if engine is None or not is_authentic:
                raise BERError("it is encrypted, and not signed")
            encrypted = outer.read(OCTET_STRING)
            scoped = Reader(Reader(engine.decrypt(encrypted, boots, time, salt)).read(SEQUENCE))
        else:
            scoped = Reader(outer.read(SEQUENCE))
        scoped.read(OCTET_STRING)
        scoped.read(OCTET_STRING)
        answer = replace(read_pdu(scoped), engine=identifier, is_authentic=is_authentic)
        if answer.tag == REPORT:
            if engine is not None and is_authentic:
                # It is new: it has our number, which is random.
                engine.time.set(boots, time)
            return answer
        if engine is None or answer.number != number:
            raise BERError("it answers something else")
        if not is_authentic or (engine.encrypts and not flags & _ENCRYPTED):
            raise BERError("it is not signed and encrypted as the message was")
        return answer

    def learn(self, report: Answer, *, of_question: bool) -> str | None:
        if report.first == _NOT_IN_TIME and report.is_authentic:
            return None
        known = b"" if self._engine is None else self._engine.identifier
        if report.first == _UNKNOWN_ENGINE and report.engine != known:
            if not SHORTEST_ENGINE <= len(report.engine) <= LONGEST_ENGINE:
                return f"it told an engine ID of {len(report.engine)} bytes"
            self._engine = _Engine(report.engine, self._user, PeerTime(self._clock))
            return None
        if report.first == _UNKNOWN_ENGINE and of_question:
            # Another socket was told just before.
            return None
        return _REFUSALS.get(report.first, "for a reason that is not known here")

    def _question(self, number: int) -> bytes:
        """Ask for the engine ID (RFC 3414, section 4)."""
        nothing = octets(b"")
        parameters = sequence(nothing, integer(0), integer(0), nothing, nothing, nothing)
        scoped = sequence(nothing, nothing, make_pdu(GET, number, b""))
        return _message(number, _REPORTABLE, parameters, scoped)


def _message(number: int, flags: int, parameters: bytes, scoped: bytes) -> bytes:
    header = sequence(integer(number), integer(_MOST), octets(bytes((flags,))), integer(_USM))
    return sequence(integer(_V3), header, octets(parameters), scoped)


def _flags(outer: Reader, number: int) -> int:
    """Read version and header. Raises BERError."""
    if outer.integer() != _V3:
        raise BERError("it has another version than v3")
    header = Reader(outer.read(SEQUENCE))
    if header.integer() != number:
        raise BERError("it answers something else")
    header.integer()
    flags = header.read(OCTET_STRING)
    if len(flags) != 1 or header.integer() != _USM:
        raise BERError("it has another security model")
    return flags[0]


def _verify(engine: _Engine, message: bytes, digest: bytes, *, end: int) -> None:
    """``end``: of the digest in the message. Raises BERError."""
    begin = end - len(digest)
    zeros = message[:begin] + bytes(len(digest)) + message[end:]
    if not hmac.compare_digest(engine.digest(zeros), digest):
        raise BERError("its digest is wrong")
