"""The way to a stream that is a store: servers, TLS and credentials."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

from pillion_sidecar.config.schema.stores import StreamMember
from pillion_sidecar.handlers.authorization import authorization
from pillion_sidecar.handlers.nats.jetstream import JetStream, jetstream_wires
from pillion_sidecar.handlers.nats.store import Answered, StreamLogs, StreamStore
from pillion_sidecar.handlers.nats.wire import Login
from pillion_sidecar.handlers.redaction import Quotations
from pillion_sidecar.handlers.transport.connector import AddressCheck
from pillion_sidecar.handlers.transport.sender import Connect, SharedParts
from pillion_sidecar.handlers.transport.target import parse_network_target
from pillion_sidecar.protocols.nats import PROTOCOL
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.ports import Answer, Unanswered

#: Follows the session in the subject of the files of identities.
IDENTITIES_SUFFIX = "-identities"
_QUOTES = "the answer quotes the credentials, so it is not shown"


class StreamLink:
    """A ``StoreLink`` to a stream, for one session."""

    def __init__(
        self,
        member: StreamMember,
        *,
        session: str,
        parts: SharedParts,
        address_policy: AddressCheck,
        timeout: float,
    ) -> None:
        """``timeout``: seconds of an answer. Raises InvalidDestinationError."""
        self._member = member
        self._open = partial(
            _open, session=session, parts=parts, address_policy=address_policy, timeout=timeout
        )
        self._store = StreamStore(self._open(member), stream=member.stream)
        self._quotations = Quotations([member.credentials])

    def send(self, request: Request, answered: Answered) -> None:
        self._store.send(request, lambda answer: answered(self._discreet(answer)))

    def renew(self, member: StreamMember) -> None:
        """Use the servers, certificates and credentials that a later configuration has. Raises
        InvalidDestinationError."""
        renewed = replace(
            self._member,
            servers=member.servers,
            tls=member.tls,
            tls_first=member.tls_first,
            credentials=member.credentials,
        )
        if renewed != self._member:
            self._store.use(self._open(renewed))
            self._member = renewed
            self._quotations = Quotations([renewed.credentials])

    def close(self) -> None:
        self._store.close()

    def _discreet(self, answer: Answer) -> Answer:
        if isinstance(answer, Unanswered) and self._quotations.are_in(answer.reason):
            return replace(answer, reason=_QUOTES)
        return answer


class ServersConnector:
    """A ``Connect`` to one of several servers, and after a failure to the next."""

    def __init__(self, connectors: Sequence[Connect]) -> None:
        self._connectors = connectors
        self._at = 0

    def move(self) -> None:
        self._at = (self._at + 1) % len(self._connectors)

    async def connect(self, wire: asyncio.BaseProtocol, stage: Callable[[str], None]) -> None:
        await self._connectors[self._at].connect(wire, stage)


def _open(
    member: StreamMember,
    *,
    session: str,
    parts: SharedParts,
    address_policy: AddressCheck,
    timeout: float,
) -> StreamLogs:
    # Raises if credentials cannot be sent.
    authorization(member.credentials)
    targets = [parse_network_target(url, PROTOCOL) for url in member.servers]
    servers = ServersConnector(
        [
            parts.connect(target, proxy=None, address_policy=address_policy, tls=member.tls)
            for target in targets
        ]
    )
    login = Login(
        subject=b"",
        is_stored=True,
        tls=targets[0].tls,
        tls_first=member.tls_first,
        credentials=member.credentials,
        discreet=False,
    )
    sender = parts.sender(servers, new_wire=jetstream_wires(parts.buffer, login), timeout=timeout)
    subject = f"{member.subject}.{session}"

    def move() -> None:
        servers.move()
        sender.renew()

    return StreamLogs(
        JetStream(sender, stream=member.stream, subject=subject),
        JetStream(sender, stream=member.stream, subject=f"{subject}{IDENTITIES_SUFFIX}"),
        move,
    )
