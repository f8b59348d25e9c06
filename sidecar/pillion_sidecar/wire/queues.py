"""The answers to ``GET /v1/queues`` and ``GET /v1/queues/{name}``, after
PG_ListenerDestinationQueue (S0.12), and to ``GET /v1/replays``.

Deliverers write them; the operator and ``pillion queues`` read them. Fields with a default are
missing from older deliverers; to the commands none older than the first release; unknown fields
are ignored; a wrong type or bound invalidates the
answer. Times are RFC 3339 in UTC, to the millisecond; the two sets of counts omit zeros.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import UNSET, Meta, UnsetType

from pillion_sidecar.config.levels import FIRST_LEVEL
from pillion_sidecar.config.schema.service import Durability

#: Maximum queues, and ended subscriptions, in one answer.
MOST_ENTRIES = 1000
#: Beyond it JSON's numbers are no longer exact.
LARGEST_COUNT = 2**53
#: Maximum containers and values in one answer, including those in texts: a megabyte of them would
#: block the event loop.
MOST_NODES = 16 * MOST_ENTRIES
MOST_VALUES = 64 * MOST_ENTRIES
#: The end of the year 9999.
_LATEST = 253_402_300_799.0

Count = Annotated[int, Meta(ge=0, le=LARGEST_COUNT)]
#: Neither infinite nor NaN.
Number = Annotated[float, Meta(ge=-LARGEST_COUNT, le=LARGEST_COUNT)]
_Name = Annotated[str, Meta(pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?\Z")]
_Revision = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._:-]{1,128}\Z")]
_Word = Annotated[str, Meta(pattern=r"^[A-Za-z]{1,64}\Z")]
_Cause = Annotated[str, Meta(pattern=r"^[a-z-]{1,64}\Z")]
_Uid = Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{0,64}\Z")]
_State = Annotated[str, Meta(pattern=r"^(Waiting|Running|Suspended|Complete|Failed)\Z")]
_Result = Annotated[str, Meta(pattern=r"^(success|error|fatal-error|post-delivery-error)\Z")]


class AnswerError(Exception):
    """Not the answer of a deliverer. The message repeats nothing of it: it is not trusted."""


class Moment(float):
    """Seconds since the epoch; RFC 3339 in JSON."""

    def __str__(self) -> str:
        moment = datetime.fromtimestamp(self, UTC)
        return moment.isoformat(timespec="milliseconds").replace("+00:00", "Z")


class _Record(msgspec.Struct, rename="camel", kw_only=True, frozen=True): ...


class HoldStatus(_Record, kw_only=True, frozen=True):
    """Why nothing is delivered: a fault of the destination, or a pause."""

    cause: _Cause
    message: str = ""
    since: Moment | None = None


class OutcomeStatus(_Record, kw_only=True, frozen=True):
    """The result of the last attempt."""

    result: _Result
    #: Why it failed, in the words of the metric `pillion_destination_failing`.
    cause: _Cause | None = None
    detail: str = ""
    #: Of HTTP.
    status: int | None = None


class RateLimitStatus(_Record, kw_only=True, frozen=True):
    per_second: Number
    burst: Count
    #: Whether indications wait now that only the limit delays.
    limiting: bool = False


class QueueStatus(_Record, kw_only=True, frozen=True):
    name: _Name
    uid: str | None = None
    protocol: str = ""
    #: The service of the gateway that it relays to.
    relay_to: _Name | None = None
    suspended: bool = False
    hold: HoldStatus | None = None
    #: Only its oldest indication is tried, now and then.
    pause: HoldStatus | None = None
    #: Its destination is no longer configured.
    draining: bool = False
    depth: Count
    #: Held by message groups.
    held: Count = 0
    capacity: Count
    high_water: Count
    in_flight: Count = 0
    oldest_indication_age_seconds: Number | None = None
    oldest_indication_time: Moment | None = None
    creation_time: Moment | None = None
    delivered: Count = 0
    suppressed: Count = 0
    handed_over: Count = 0
    attempts_by_result: dict[str, Count] = {}
    discarded: dict[str, Count] = {}
    last_discard_time: Moment | None = None
    last_attempt_time: Moment | None = None
    last_success_time: Moment | None = None
    last_result: OutcomeStatus | None = None
    failing_since: Moment | None = None
    #: Since when it delivers late, and fewer than arrive.
    slow_since: Moment | None = None
    #: Over the last 20 seconds; None from older deliverers.
    accepted_per_second: Number | None = None
    delivered_per_second: Number | None = None
    #: When it is full at these rates.
    full_time: Moment | None = None
    next_attempt_time: Moment | None = None
    #: None: no limit, and from older deliverers.
    rate_limit: RateLimitStatus | None = None
    first_loss_due_time: Moment | None = None
    #: A ``DiscardReason``; None: none is due, and from older deliverers.
    first_loss_reason: _Cause | None = None
    sequence_context: str | None = None
    next_sequence_number: int | None = None


class RetryStatus(_Record, kw_only=True, frozen=True):
    #: None: no limit.
    attempts: int | None
    interval_seconds: Number
    backoff: str
    maximum_interval_seconds: Number
    jitter_percent: int


class AttemptStatus(_Record, kw_only=True, frozen=True):
    time: Moment
    identifier: str | None
    sequence_number: int | None
    attempt: int
    result: _Result
    detail: str
    status: int | None
    seconds: Number


class QueueDetails(QueueStatus, kw_only=True, frozen=True):
    """With the retry and the latest attempts, newest first."""

    #: 0: no lifetime.
    indication_lifetime_seconds: Number = 0
    #: Missing from older deliverers.
    retry: RetryStatus | None = None
    #: The IndicationIdentifier of what ``skip`` would discard now; empty: nothing is loaded.
    front_identifiers: list[str | None] = []
    attempts: list[AttemptStatus] = []


class SubscriptionEnd(_Record, kw_only=True, frozen=True):
    """A subscription that ended by itself."""

    name: _Name
    #: None for resources in plain files.
    uid: _Uid | None = None
    state: str = ""
    #: ``FatalError``, ``RemovalAction`` or ``Expired``.
    reason: _Word


class KeptFilter(_Record, kw_only=True, frozen=True):
    """A filter whose last good version stays in force, and why."""

    name: str
    problem: str


class ReplayStatus(_Record, kw_only=True, frozen=True):
    """How far this deliverer is with an IndicationReplay."""

    name: _Name
    #: A resource in a file may have any name of an object.
    uid: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,253}\Z")]
    #: A ``ReplayState``.
    state: _State
    #: Outcomes that it selects and has reached: those replayed and those left out.
    selected: Count = 0
    #: Indications that were queued again; after a crash some of them twice, counted once.
    replayed: Count = 0
    #: Replayed ones that were delivered, or relayed to a gateway.
    delivered: Count = 0
    #: Replayed ones that were discarded.
    discarded: Count = 0
    #: Selected outcomes that were not replayed, by reason: ``not-kept``, ``filtered`` or
    #: ``repeated`` (another outcome of the same indication).
    left_out: dict[_Cause, Count] = {}
    #: Whether the history goes back to the begin of the replay. If not, how many are missing is
    #: unknown.
    covers_from: bool = True
    #: The time of the oldest outcome, if it does not.
    oldest_outcome_time: Moment | None = None
    started: Moment | None = None
    finished: Moment | None = None
    #: Why it failed, or what it waits for.
    detail: str = ""


class ReplayPage(_Record, kw_only=True, frozen=True):
    """The answer to ``GET /v1/replays``, in the order of creation."""

    replays: Annotated[list[ReplayStatus], Meta(max_length=MOST_ENTRIES)]


class QueuePage(_Record, kw_only=True, frozen=True):
    """The last four fields are on the first page only."""

    #: The revision in force; None before the first.
    revision: _Revision | None = None
    durability: Durability | None = None
    #: See ``config.levels``.
    schema_level: Count = FIRST_LEVEL
    queues: Annotated[list[QueueStatus], Meta(max_length=MOST_ENTRIES)]
    #: The next page's ``after``; None on the last.
    next: _Name | None = None
    #: Why the journal's folder is not read yet, so that nothing is delivered.
    starting: str | UnsetType = UNSET
    ended_subscriptions: Annotated[list[SubscriptionEnd], Meta(max_length=MOST_ENTRIES)] | (
        UnsetType
    ) = UNSET
    ended_subscriptions_count: int | UnsetType = UNSET
    kept_filters: list[KeptFilter] | UnsetType = UNSET
    #: Missing from older deliverers, and if there are none.
    replays: Annotated[list[ReplayStatus], Meta(max_length=MOST_ENTRIES)] | UnsetType = UNSET


_Answer = TypeVar("_Answer", QueuePage, QueueDetails)

#: What each deliverer since the first release says. Half an answer must not look as if nothing was
#: wrong.
_OF_QUEUE = frozenset(
    (
        *("name", "uid", "protocol", "relayTo", "suspended", "draining"),
        *("depth", "capacity", "highWater", "inFlight"),
        *("oldestIndicationAgeSeconds", "oldestIndicationTime", "creationTime"),
        *("delivered", "handedOver", "attemptsByResult", "discarded"),
        *("lastAttemptTime", "lastSuccessTime", "lastResult", "failingSince", "nextAttemptTime"),
        *("sequenceContext", "nextSequenceNumber"),
    )
)
_OF_DETAILS = _OF_QUEUE | {"attempts"}
_OF_PAGE = frozenset(("revision", "durability", "queues", "next"))


def json_bytes(answer: QueuePage) -> bytes:
    return msgspec.json.encode(answer, enc_hook=str)


def written(answer: QueueDetails | ReplayPage | AttemptStatus) -> Any:
    return msgspec.to_builtins(answer, enc_hook=str)


def read_page(body: bytes) -> QueuePage:
    """Read a page of an untrusted deliverer. Raises only AnswerError."""
    if body.count(b"{") + body.count(b"[") > MOST_NODES or body.count(b",") > MOST_VALUES:
        raise AnswerError("the answer is made of too many parts")
    try:
        return _PAGES.decode(body)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    except (msgspec.DecodeError, UnicodeError, RecursionError):
        raise AnswerError("the answer is not JSON") from None


def converted(document: Mapping[str, Any], kind: type[_Answer]) -> _Answer:
    """Read a decoded answer, of which no member may be missing that the first release has. Raises
    AnswerError."""
    try:
        answer = msgspec.convert(document, kind, dec_hook=_read_moment)
    except msgspec.ValidationError as error:
        raise _invalid(error) from None
    if kind is QueueDetails:
        _check_members(document, _OF_DETAILS)
        return answer
    _check_members(document, _OF_PAGE)
    for at, queue in enumerate(document["queues"]):
        _check_members(queue, _OF_QUEUE, f"queues[{at}].")
    return answer


def _check_members(document: Mapping[str, Any], names: frozenset[str], where: str = "") -> None:
    if missing := names - document.keys():
        raise AnswerError(f"{where}{min(missing)} is missing")


def _invalid(error: msgspec.ValidationError) -> AnswerError:
    # The text before the field may quote the value. Of the whole answer no field is named.
    _, named, field = str(error).rpartition(" - at `$")
    what = field.strip(".`") if named else ""
    return AnswerError(f"{what or 'the answer'} is not what it should be")


def _read_moment(_: type, text: Any) -> Moment:
    """Raises ValueError and TypeError, which msgspec converts."""
    moment = datetime.fromisoformat(text)
    # Without an offset it would count as local time.
    seconds = -1.0 if moment.tzinfo is None else moment.timestamp()
    if not 0 <= seconds <= _LATEST:
        raise ValueError
    return Moment(seconds)


_PAGES = msgspec.json.Decoder(QueuePage, dec_hook=_read_moment)
