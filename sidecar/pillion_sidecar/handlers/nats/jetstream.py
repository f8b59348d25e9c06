"""Requests to JetStream over one connection: a subject, and one answer or several."""

import asyncio
import json
from base64 import b64decode
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import msgspec

from pillion_sidecar.handlers.broker.wire import BrokerError
from pillion_sidecar.handlers.nats.reading import Said
from pillion_sidecar.handlers.nats.wire import NO_RESPONDERS, TOO_LARGE, Login, NATSWire
from pillion_sidecar.handlers.transport.exchange import Failure, Headers, Sender, shown
from pillion_sidecar.handlers.transport.wire import NewWire, WireOwner

#: Bytes of a message that a stream returns at most.
RETURNED_LIMIT = 9 << 20
#: Of the answer that ends several.
_END_OF_BATCH = 204
_OK, _NOT_FOUND = 200, 404
_NO_HEADERS = b"NATS/1.0\r\n\r\n"
_ONE, _SEVERAL = b"1", b"*"
#: Nothing is sent: how long may a message be?
_MOST = b"?"
#: JetStream's own, for a message that is not there.
_NO_MESSAGE = 10037
_API = "$JS.API."
_SEQUENCE = b"Nats-Sequence:"


class JetStreamError(Exception):
    """JetStream, or the way to it, does not do what was asked. The text says why."""

    def __init__(self, message: str, *, code: int | None = None) -> None:
        """``code``: JetStream's own."""
        super().__init__(message)
        self.code = code


class JetStreamWire(NATSWire):
    """A request begins with a line: whether messages of a stream come back, and the subject; or it
    asks what the server takes."""

    __slots__ = ("_is_batch", "_messages")

    def __init__(self, owner: WireOwner, *, buffer: memoryview, login: Login) -> None:
        super().__init__(owner, buffer=buffer, login=login, message_limit=RETURNED_LIMIT)
        self._is_batch = False
        self._messages: list[tuple[int, bytes]] = []

    def publish(self, request: bytes) -> None:
        line, _, message = request.partition(b"\n")
        kind, _, subject = line.partition(b" ")
        if kind == _MOST:
            asyncio.get_running_loop().call_soon(self.answered, _OK, b"%d" % self._most)
            return
        self._is_batch = kind == _SEVERAL
        self._messages = []
        self._publish_to(subject, message)

    def _replied(self, said: Said) -> None:
        status = _status(said.headers)
        if not self._is_batch or status not in (_OK, _END_OF_BATCH):
            self.answered(status, said.payload if status == _OK else said.headers)
        elif status == _OK:
            self._messages.append((_sequence(said.headers), said.payload))
        else:
            self.answered(_OK, _encode_messages(self._messages))


_encode_messages = msgspec.msgpack.Encoder().encode
_decode_messages = msgspec.msgpack.Decoder(list[tuple[int, bytes]]).decode


def _status(headers: bytes) -> int:
    words = headers.partition(b"\r\n")[0].split(None, 2)
    if len(words) < 2:
        return _OK
    if not (words[1].isdigit() and len(words[1]) == 3):
        raise BrokerError("the server's message has no status")
    return int(words[1])


def _sequence(headers: bytes) -> int:
    for line in headers.split(b"\r\n"):
        if line.startswith(_SEQUENCE):
            value = line.removeprefix(_SEQUENCE).strip()
            if value.isdigit() and len(value) < 20:
                return int(value)
    raise BrokerError("the server's message has no sequence")


def jetstream_wires(buffer: memoryview, login: Login) -> NewWire:
    return partial(JetStreamWire, buffer=buffer, login=login)


@dataclass(frozen=True, slots=True)
class _Exchange:
    answer: "asyncio.Future[tuple[int, bytes]]"

    def answered(self, status: int, headers: Headers, body: bytes) -> None:
        if not self.answer.done():
            self.answer.set_result((status, body))

    def failed(self, failure: Failure) -> None:
        if not self.answer.done():
            self.answer.set_exception(JetStreamError(failure.detail))


class JetStream:
    """Asks one stream, one request at a time. All calls raise JetStreamError."""

    def __init__(self, sender: Sender, *, stream: str, subject: str) -> None:
        self._sender = sender
        self._stream = stream
        self._subject = subject

    def close(self) -> None:
        """Requests under way are never answered."""
        self._sender.close()

    async def configuration(self) -> Mapping[str, Any]:
        answer = _object(await self._call(f"STREAM.INFO.{self._stream}", b""))
        self._check(answer)
        return _mapping(answer, "config")

    async def most_payload(self) -> int:
        """Return how many bytes of a message the server takes."""
        return int(await self._ask(_MOST, self._subject, b""))

    async def publish(self, body: bytes, *, after: int | None) -> int:
        """Append a message if the last one of the subject has the sequence ``after``; None: in any
        case. Return its sequence."""
        head = f"NATS/1.0\r\nNats-Expected-Stream: {self._stream}\r\n"
        if after is not None:
            head += f"Nats-Expected-Last-Subject-Sequence: {after}\r\n"
        message = b"%b\r\n%b" % (head.encode("ascii"), body)
        answer = _object(await self._ask(_ONE, self._subject, message))
        self._check(answer)
        sequence = answer.get("seq")
        if type(sequence) is not int or sequence <= (after or 0):
            raise JetStreamError("its answer is not an acknowledgement of a stream")
        return sequence

    async def last(self) -> tuple[int, bytes] | None:
        """Return the last message of the subject, as the stream's leader knows it."""
        return await self._message({"last_by_subj": self._subject})

    async def next(self, sequence: int) -> tuple[int, bytes] | None:
        """Return the first message of the subject from ``sequence`` on, as the leader knows it."""
        return await self._message({"seq": sequence, "next_by_subj": self._subject})

    async def following(self, sequence: int, *, count: int, size: int) -> list[tuple[int, bytes]]:
        """Return messages of the subject from ``sequence`` on, as any replica knows them: at most
        ``count``, of which all but the last have at most ``size`` bytes together."""
        wanted = {
            "seq": sequence,
            "next_by_subj": self._subject,
            "batch": count,
            "max_bytes": size,
        }
        subject = f"{_API}DIRECT.GET.{self._stream}"
        message = _NO_HEADERS + json.dumps(wanted).encode("ascii")
        status, answer = await self._exchange(_SEVERAL, subject, message)
        if status == _NOT_FOUND:
            return []
        self._check_status(status, answer)
        try:
            return _decode_messages(answer)
        except msgspec.MsgspecError:
            raise JetStreamError("its answer is none of a stream") from None

    async def purge(self, sequence: int) -> None:
        """Remove the messages of the subject before ``sequence``."""
        wanted = json.dumps({"filter": self._subject, "seq": sequence}).encode("ascii")
        self._check(_object(await self._call(f"STREAM.PURGE.{self._stream}", wanted)))

    async def _message(self, wanted: Mapping[str, Any]) -> tuple[int, bytes] | None:
        body = json.dumps(wanted).encode("ascii")
        answer = _object(await self._call(f"STREAM.MSG.GET.{self._stream}", body))
        try:
            self._check(answer)
        except JetStreamError as error:
            if error.code == _NO_MESSAGE:
                return None
            raise
        message = _mapping(answer, "message")
        sequence, data = message.get("seq"), message.get("data", "")
        try:
            content = b64decode(data, validate=True)
        except (ValueError, TypeError):
            content = None
        if type(sequence) is not int or content is None:
            raise JetStreamError("its answer has no message of a stream")
        return sequence, content

    async def _call(self, name: str, body: bytes) -> bytes:
        return await self._ask(_ONE, _API + name, _NO_HEADERS + body)

    async def _ask(self, kind: bytes, subject: str, message: bytes) -> bytes:
        status, body = await self._exchange(kind, subject, message)
        self._check_status(status, body)
        return body

    async def _exchange(self, kind: bytes, subject: str, message: bytes) -> tuple[int, bytes]:
        exchange = _Exchange(asyncio.get_running_loop().create_future())
        line = b"%b %b\n" % (kind, subject.encode("ascii"))
        self._sender.send(line + message, exchange)
        return await exchange.answer

    def _check_status(self, status: int, body: bytes) -> None:
        if status == NO_RESPONDERS:
            raise JetStreamError(f"no stream {self._stream} answers, or JetStream is off (503)")
        if status == TOO_LARGE:
            raise JetStreamError(f"{body.decode()}; let it take 1 MiB (max_payload)")
        if status != _OK:
            raise JetStreamError(f"the server answered {status}{_words(body)}")

    def _check(self, answer: Mapping[str, Any]) -> None:
        error = answer.get("error")
        if error is None:
            return
        code = error.get("err_code") if isinstance(error, dict) else None
        text = str(error.get("description", "")) if isinstance(error, dict) else ""
        number = code if type(code) is int else None
        words = _words(text.encode("utf-8", "replace"))
        raise JetStreamError(f"JetStream error {number or 'without a code'}{words}", code=number)


def _words(text: bytes) -> str:
    return f": {shown(text)}" if text else ""


def _object(body: bytes) -> Mapping[str, Any]:
    try:
        told = json.loads(body)
    except (ValueError, RecursionError):
        told = None
    if not isinstance(told, dict):
        raise JetStreamError("its answer is none of JetStream")
    return told


def _mapping(value: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    found = value.get(name)
    if not isinstance(found, dict):
        raise JetStreamError(f"its answer has no {name}")
    return found
