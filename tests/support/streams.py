"""A JetStream stream in memory, and stores on subjects of it."""

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pillion_sidecar.handlers.journals import StoreLink
from pillion_sidecar.handlers.nats.jetstream import JetStreamError
from pillion_sidecar.stores.copies import Copy
from pillion_sidecar.stores.messages import (
    IdentitiesRequest,
    ReadRequest,
    Request,
    decode_identities,
)
from pillion_sidecar.stores.ports import Answer
from support.nats_server import Message

#: What a stream must be to keep copies.
CONFIGURATION = {
    "name": "journals",
    "storage": "file",
    "num_replicas": 3,
    "retention": "limits",
    "discard": "new",
    "max_age": 0,
    "max_msgs_per_subject": -1,
    "max_msg_size": -1,
    "allow_direct": True,
}
WRONG_LAST = 10071


@dataclass(slots=True)
class FakeStream:
    """Implements ``SubjectLog``: one subject. Sequences have gaps: other subjects have theirs."""

    configured: dict[str, Any] = field(default_factory=lambda: dict(CONFIGURATION))
    messages: dict[int, bytes] = field(default_factory=dict)
    sequence: int = 0
    #: Bytes of a message at most.
    payload: int = 1 << 20
    #: Called before each message that is published; may raise JetStreamError, and publish others.
    before: Callable[["FakeStream"], None] = lambda _: None
    refuses_purge: bool = False
    #: Called after each.
    after: Callable[["FakeStream"], None] = lambda _: None
    #: The subject beside it, of the files of identities; None: nobody has asked for it.
    beside: "FakeStream | None" = None

    @property
    def identities(self) -> "FakeStream":
        if self.beside is None:
            self.beside = FakeStream()
        return self.beside

    async def configuration(self) -> dict[str, Any]:
        return self.configured

    async def most_payload(self) -> int:
        return self.payload

    async def publish(self, body: bytes, *, after: int | None) -> int:
        self.before(self)
        if after is not None and after != max(self.messages, default=0):
            raise JetStreamError("wrong last sequence", code=WRONG_LAST)
        sequence = self.add(body)
        self.after(self)
        return sequence

    def add(self, body: bytes) -> int:
        self.sequence += 2
        self.messages[self.sequence] = body
        return self.sequence

    async def last(self) -> tuple[int, bytes] | None:
        return max(self.messages.items(), default=None)

    async def next(self, sequence: int) -> tuple[int, bytes] | None:
        found = ((at, body) for at, body in self.messages.items() if at >= sequence)
        return min(found, default=None)

    async def following(self, sequence: int, *, count: int, size: int) -> list[tuple[int, bytes]]:
        found: list[tuple[int, bytes]] = []
        for at, body in sorted(self.messages.items()):
            if at >= sequence and len(found) < count and size > 0:
                found.append((at, body))
                size -= len(body)
        return found

    async def purge(self, sequence: int) -> None:
        if self.refuses_purge:
            raise JetStreamError("no answer")
        self.messages = {at: body for at, body in self.messages.items() if at >= sequence}

    def close(self) -> None: ...

    async def answered(self, message: Message) -> bytes:
        """Answer as JetStream does, for ``NATSServer.script``."""
        name = message.subject.removeprefix("$JS.API.").rpartition(".")[0]
        asked = json.loads(message.payload or b"{}") if name in _ASKED else {}
        if name == "STREAM.INFO":
            return said({"config": self.configured})
        if name == "STREAM.PURGE":
            await self.purge(asked["seq"])
            return said({"success": True})
        if name == "STREAM.MSG.GET":
            seq = asked.get("seq")
            return _message(await self.last() if seq is None else await self.next(seq))
        if name == "DIRECT.GET":
            count, size = asked["batch"], asked["max_bytes"]
            found = await self.following(asked["seq"], count=count, size=size)
            return b"".join(_returned(*one) for one in found) + _END if found else NOT_FOUND
        after = message.headers.get("Nats-Expected-Last-Subject-Sequence")
        try:
            sequence = await self.publish(
                message.payload, after=None if after is None else int(after)
            )
        except JetStreamError as error:
            return said({"error": {"err_code": error.code, "description": str(error)}})
        return said({"stream": "journals", "seq": sequence})


_ASKED = ("STREAM.PURGE", "STREAM.MSG.GET", "DIRECT.GET")
_END = b"HMSG REPLY 1 20 20\r\nNATS/1.0 204 EOB\r\n\r\n\r\n"
NOT_FOUND = b"HMSG REPLY 1 26 26\r\nNATS/1.0 404 Not Found\r\n\r\n\r\n"


def said(answer: dict[str, Any]) -> bytes:
    """Return what a server sends, with REPLY for the subject."""
    body = json.dumps(answer).encode()
    return b"MSG REPLY 1 %d\r\n%b\r\n" % (len(body), body)


def _message(found: tuple[int, bytes] | None) -> bytes:
    if found is None:
        return said({"error": {"err_code": 10037, "description": "no message found"}})
    return said({"message": {"seq": found[0], "data": b64encode(found[1]).decode()}})


def _returned(sequence: int, body: bytes) -> bytes:
    head = b"NATS/1.0\r\nNats-Stream: journals\r\nNats-Sequence: %d\r\n\r\n" % sequence
    return b"HMSG REPLY 1 %d %d\r\n%b%b\r\n" % (len(head), len(head) + len(body), head, body)


async def asked(store: StoreLink, request: Request) -> Answer:
    answer: asyncio.Future[Answer]
    answer = asyncio.get_running_loop().create_future()
    store.send(request, answer.set_result)
    return await answer


async def copied(store: StoreLink, request: Request) -> Copy:
    """Return the copy that a request is answered with."""
    answer = await asked(store, request)
    assert isinstance(answer, Copy), answer
    return answer


async def content(store: StoreLink, copy: Copy, *, size: int = 1 << 20) -> dict[int, bytes]:
    """Read the segments of a copy."""
    found: dict[int, bytes] = {}
    for extent in copy.extents:
        data = b""
        while len(data) < extent.size:
            position = extent.number << 32 | len(data)
            part = await asked(store, ReadRequest(position=position, size=size))
            assert isinstance(part, bytes), part
            assert part
            data += part
        found[extent.number] = data
    return found


async def identities(store: StoreLink, *, size: int = 40) -> dict[int, bytes]:
    """Read all files of identities."""
    listed = await asked(store, IdentitiesRequest())
    assert isinstance(listed, bytes), listed
    found: dict[int, bytes] = {}
    for number, total in decode_identities(listed):
        data = b""
        while len(data) < total:
            position = number << 32 | len(data)
            part = await asked(store, ReadRequest(identities=True, position=position, size=size))
            assert isinstance(part, bytes), part
            assert part
            data += part
        found[number] = data
    return found
