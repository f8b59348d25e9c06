"""The answers to what a person on call asks a deliverer: ``GET /v1/pending``, ``POST /v1/explain``,
``POST /v1/queues/{name}/test``, ``GET /v1/status`` and ``GET /v1/endpoints``. Unknown members are
ignored. Times are RFC 3339 in UTC."""

from datetime import datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta

from pillion_sidecar.wire.outcomes import OutcomeLine
from pillion_sidecar.wire.queues import AnswerError, Count, Number

#: What a volume may have.
MOST_BYTES = 2**63 - 1
_Bytes = Annotated[int, Meta(ge=0, le=MOST_BYTES)]
_Port = Annotated[int, Meta(ge=0, le=65_535)]
_HostAndPort = Annotated[str, Meta(pattern=r"^.+:[0-9]{1,5}\Z")]


class PendingLine(
    msgspec.Struct, frozen=True, kw_only=True, gc=False, rename="camel", omit_defaults=True
):
    """One indication that waits at one destination."""

    destination: str
    subscription: str
    #: CIM class of the indication.
    class_name: str = msgspec.field(name="class")
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    accepted_time: datetime
    #: Whether an attempt is under way.
    in_flight: bool = False
    #: Indications that are before it in the queue.
    ahead: int = 0
    #: Failed attempts that count.
    attempts: int = 0
    #: The message group.
    group: str | None = None
    #: The indication, if it is asked for.
    indication: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class PendingAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What waits of the indications with one identifier."""

    #: In the order of destinations, and then of their queues.
    pending: list[PendingLine]
    #: Pending indications of the deliverer that were not looked at: too many are only on disk, or
    #: message groups hold them.
    unread: int
    #: Whether the deliverer remembers that it accepted the identity. False without a source, and
    #: where publishers have tokens.
    remembered: bool


class Verdict(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Whether a subscription gets an indication, and why not."""

    subscription: str
    filter: str
    destination: str
    #: Whether an indication like this one would be queued for it now.
    selected: bool
    #: Why not: class, source-namespace, query, or disabled, expired, fatal-error, removal-action,
    #: removed. None: it is selected.
    reason: str | None = None
    #: One line, with what the indication has; may be empty.
    detail: str = ""


class Explanation(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Which subscriptions would get one indication. Nothing is published."""

    #: The revision in force.
    revision: str
    #: CIM class of the indication.
    class_name: str = msgspec.field(name="class")
    source: str | None = None
    #: IndicationIdentifier.
    identifier: str | None = None
    #: The selected ones first, then the others, each by name.
    subscriptions: list[Verdict]
    #: The number of selected ones, and of all.
    selected: int
    total: int


class TrialAnswer(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """What came of one test indication."""

    destination: str
    protocol: str
    #: IndicationIdentifier of the test indication.
    identifier: str
    #: success, error, fatal-error or post-delivery-error.
    result: str
    #: Why it failed, as `lastResult` of a queue has it.
    cause: str | None = None
    #: One line of the answer.
    detail: str = ""
    #: HTTP status of the answer.
    status: int | None = None
    #: Whether the destination sends credentials to the listener; None: not known, since the proxy
    #: has answered, or an earlier version.
    credentials: bool | None = None
    #: From the begin to the answer, with the connection.
    seconds: float


class JournalStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """The journal on disk, in bytes."""

    folder: str
    #: All its files of records, and what of them is pending.
    total_bytes: _Bytes
    pending_bytes: _Bytes
    #: Maximum of what is pending.
    maximum_pending_bytes: _Bytes
    #: Of the volume, for this process; None: unknown.
    free_bytes: _Bytes | None = None
    volume_bytes: _Bytes | None = None
    #: Whether the volume is full: nothing is accepted.
    is_full: bool
    #: Damaged stretches found at the start, and damaged records read since.
    damaged: Count


class HistoryStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: Whether it survives a restart.
    is_on_disk: bool
    #: The number of the last outcome.
    last: Count
    #: Discards that are not in it any more.
    unkept_discards: Count
    #: Whether outcomes wait for the disk.
    is_behind: bool
    #: Why the disk does not take the outcomes that wait in memory; None: it does.
    problem: str | None = None
    #: These outcomes.
    waiting: int = 0
    #: Outcomes that it does not have because the disk was full, since the start.
    given_way: int = 0


class StoreStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """A store of the journal."""

    name: str
    #: Whether it did what it was last asked for.
    is_up: bool
    #: Whether it is missed: without it and others nothing becomes stable.
    is_missed: bool
    #: Bytes of the journal that it does not have.
    behind_bytes: _Bytes
    #: Why its last request failed; None: it did not.
    problem: str | None


class StoresStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    #: Bytes of the journal that are in too few stores.
    unstable_bytes: _Bytes
    #: Maximum of them (stores.flightSize).
    flight_size_bytes: _Bytes
    #: Since the oldest write of the journal that is in too few stores; 0: all is in enough.
    unstable_seconds: Number = 0.0
    #: Which position of the stores that respond is announced (stores.consensus).
    consensus: str = "Majority"
    #: Bytes of the journal behind that position.
    unannounced_bytes: _Bytes = 0
    #: With stores.fencing Lease: for how long deliveries may begin; 0: none begins.
    lease_seconds: Number | None = None
    #: Since the start: discards of indications that were in too few stores.
    forced_discards: Count = 0
    #: Segments of the journal that were removed while they were in too few stores.
    forced_segments: Count = 0
    #: Indications that were accepted while more than flight_size_bytes was in too few stores.
    unprotected: Count = 0
    members: list[StoreStatus]
    #: Whether the service wants other stores since, from the next start on.
    is_changed: bool = False


class DelivererStatus(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    version: str
    #: The deliverer's clock.
    time: Annotated[datetime, Meta(tz=True)]
    #: The revision in force; None before the first.
    revision: str | None
    #: Why the last content of the folder is not in force; None: it is.
    configuration_problem: str | None
    #: Sentences about the revision in force.
    warnings: list[str]
    #: The folder of resources, as the deliverer's machine names it.
    resources: str
    #: Whether the operator has written it: its resources are in Kubernetes.
    is_rendered: bool
    durability: str
    #: None without a journal on disk.
    journal: JournalStatus | None
    history: HistoryStatus
    #: (Indication, subscription) pairs that are not settled.
    pending: Count
    #: The stores of the journal; None without any.
    stores: StoresStatus | None = None
    #: Why the journal's folder is not read yet; None: it is, or there is none.
    starting: str | None = None


class Endpoint(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Where the connection to a destination leads. A URL from a Secret is not shown."""

    destination: str
    protocol: str
    #: None: it is in a Secret, no network address, or not valid; ``note`` says which.
    host: str | None = None
    port: _Port | None = None
    #: none, tls, or starttls: TLS begins after the protocol's greeting.
    tls: str = "none"
    #: Whether it is UDP.
    datagrams: bool = False
    #: The name that the certificate must have; None: the host.
    server_name: str | None = None
    #: Whether the deliverer verifies the certificate, and accepts a common name in it.
    verify: bool = True
    allow_common_name: bool = False
    #: The CA certificates of the destination in PEM; None: those of the deliverer's system.
    ca: str | None = None
    #: Whether the deliverer presents a certificate of its own.
    client_certificate: bool = False
    #: Host and port of the HTTP proxy.
    proxy: _HostAndPort | None = None
    #: The gateway that it is relayed to.
    relay_to: str | None = None
    note: str = ""


class EndpointPage(msgspec.Struct, frozen=True, kw_only=True, rename="camel"):
    """Endpoints by the names of their destinations."""

    endpoints: list[Endpoint]
    #: The next page's ``after``; None on the last.
    next: str | None = None


Diagnosed = TypeVar("Diagnosed", bound=msgspec.Struct)


def read_answer(body: bytes, kind: type[Diagnosed]) -> Diagnosed:
    """Raises only AnswerError."""
    try:
        return msgspec.json.decode(body, type=kind)
    except (msgspec.MsgspecError, UnicodeError, RecursionError):
        raise AnswerError("it lacks what it should have") from None


def document_of(answer: msgspec.Struct) -> dict[str, Any]:
    """Return an answer as JSON has it."""
    document: dict[str, Any] = msgspec.json.decode(msgspec.json.encode(answer))
    return document


def body_of(line: PendingLine | OutcomeLine) -> bytes | None:
    """Return the indication, if the line has it."""
    return bytes(line.indication) if isinstance(line.indication, msgspec.Raw) else None
