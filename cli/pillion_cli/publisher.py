"""Publishes batches in order, and repeats only lines that were refused temporarily.

A batch is settled or abandoned before the next one is sent: otherwise later lines would overtake a
line that waits for a full queue.
"""

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from html import unescape
from typing import Any, Protocol

from pillion_cli.client import Answer, DelivererClient, NoDeliverer, Refused, Unreachable
from pillion_cli.exits import Exit
from pillion_cli.indications import Batch, Item, Kind
from pillion_sidecar.trace_context import TraceContext, header_fields
from pillion_sidecar.wire.submission import RefusedLine, SubmissionAnswer, read_submission

QUOTED_REFUSALS = 10
#: Default seconds between tries, doubled up to the maximum.
FIRST_WAIT = 0.5
LONGEST_WAIT = 30.0
#: Reasons why an accepted indication goes to no listener.
UNREACHED = ("unrouted", "ended", "suppressed")
#: Required of an export message (DSP0200 6.3.4).
_EXPORT_HEADERS = (("CIMExport", "MethodRequest"), ("CIMExportMethod", "ExportIndication"))
_XML_ERROR = re.compile(rb"<ERROR\b[^>]*?>")
_XML_DESCRIPTION = re.compile(rb"\bDESCRIPTION\s*=\s*[\"']([^\"'>]*)")


@dataclass(frozen=True, slots=True)
class Refusal:
    number: int
    reason: str


@dataclass(frozen=True, slots=True)
class Fault:
    """An accepted indication, discarded at one destination."""

    #: None if unknown.
    number: int | None
    destination: str
    reason: str

    def __str__(self) -> str:
        line = "a line" if self.number is None else f"line {self.number}"
        return f"{line} was discarded at {self.destination}: {self.reason}"


@dataclass(slots=True)
class Summary:
    accepted: int = 0
    duplicate: int = 0
    refused: int = 0
    #: The first ones.
    refusals: list[Refusal] = field(default_factory=list)
    #: With ``--ack durable``: not known to be on disk.
    not_durable: int = 0
    #: With ``--ack stable``: not known to be in enough stores.
    not_stable: int = 0
    #: With ``--ack delivered``.
    delivered: int = 0
    #: Accepted for no listener, by reason.
    unreached: Counter[str] = field(default_factory=Counter)
    pending: int = 0
    discarded: Counter[str] = field(default_factory=Counter)
    resent: int = 0
    #: Why publishing stopped early, and the first line that was not settled.
    failure: str | None = None
    unsettled_from: int | None = None
    #: The answer to a flush.
    flush: dict[str, Any] | None = None
    #: With ``--group``: the number of polled discards, the first ones, and the group at its end.
    faulted: int = 0
    faults: list[Fault] = field(default_factory=list)
    group: dict[str, Any] | None = None
    #: Accepted or duplicate, with unknown outcome: the deliverer has forgotten this publisher.
    forgotten: int = 0

    def refuse(self, number: int, reason: str) -> None:
        self.refused += 1
        if len(self.refusals) < QUOTED_REFUSALS:
            self.refusals.append(Refusal(number, reason))

    @property
    def is_empty(self) -> bool:
        settled = self.accepted + self.duplicate + self.refused
        return not settled and self.failure is None

    @property
    def exit_code(self) -> Exit:
        taken = self.accepted + self.duplicate
        if self.failure is not None or self.refused:
            return Exit.PARTLY if taken else Exit.FAILED
        if self.forgotten or self.not_durable or self.not_stable or self.pending:
            return Exit.PARTLY
        if self.discarded.total() or not _arrived(self.flush):
            return Exit.PARTLY
        return Exit.OK


def _arrived(flush: dict[str, Any] | None) -> bool:
    if flush is None:
        return True
    destinations = flush.get("destinations", {}).values()
    return bool(flush.get("complete")) and not any(one.get("discarded") for one in destinations)


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishOptions:
    ack: str = "accepted"
    source: str | None = None
    publisher: str | None = None
    #: Seconds to wait for an acknowledgement, and to retry without progress.
    timeout: float = 60.0
    #: Whether the deliverer is polled later for the outcome.
    follows: bool = False
    #: The trace that the lines belong to.
    trace: TraceContext | None = None


class Watch(Protocol):
    def sending(self, batch: Batch) -> None:
        """Before each request. Raises :class:`Refused` to prevent it."""

    def answered(self, acknowledged: Sequence[Item], wrong: Sequence[Item]) -> None:
        """``acknowledged`` were accepted or duplicate, ``wrong`` were refused."""


class Publisher:
    def __init__(
        self,
        client: DelivererClient,
        options: PublishOptions,
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        settled: Callable[[int, int], None] = lambda items, octets: None,
    ) -> None:
        """``settled(items, bytes)`` is called for settled indications."""
        self.summary = Summary()
        self.options = options
        self.watch: Watch | None = None
        #: The deliverer's instance of this publisher, from its last answer; None before the first
        #: answer and with deliverers of the first release.
        self.instance: str | None = None
        self._known_from = 0
        self._client = client
        self._options = options
        self._monotonic = monotonic
        self._sleep = sleep
        self._settled = settled

    def publish(self, batches: Iterable[Batch]) -> None:
        """The ``summary`` has the result, also after an exception."""
        for batch in batches:
            if not self.publish_batch(batch):
                return

    def publish_batch(self, batch: Batch) -> bool:
        """False if the batch was abandoned."""
        try:
            return self._finish(batch)
        except (Unreachable, Refused) as failure:
            self.summary.failure = str(failure)
            return False

    def flush(self) -> None:
        """Wait until everything accepted from this publisher is delivered or discarded."""
        query = {
            "publisher": self._options.publisher,
            "level": "delivered",
            "timeout": f"{self._options.timeout:g}",
            "instance": self.instance,
        }
        try:
            answer = self._client.post("/v1/flush", query)
        except Unreachable as failure:
            self.summary.failure = str(failure)
            return
        if self.is_forgotten(answer):
            return
        self.summary.flush = answer.json() if answer.status in (200, 202) else None
        if self.summary.flush is None:
            self.summary.failure = f"flush: HTTP {answer.status}: {answer.text()}"

    def is_forgotten(self, answer: Answer) -> bool:
        """The summary then counts the indications with unknown outcome."""
        if answer.status not in (404, 409):
            return False
        self._forget(self.summary.accepted + self.summary.duplicate)
        return True

    def _forget(self, taken: int) -> None:
        summary = self.summary
        summary.forgotten += taken - self._known_from
        self._known_from = taken
        summary.failure = (
            f"the outcome of {summary.forgotten:,} indications is unknown: the deliverer was"
            " restarted, or has forgotten this publisher, after it had accepted them; publish them"
            " again (with a source and identifiers, repeats are recognised)"
        )

    def _meet(self, instance: str | None) -> None:
        """Compare the instance, before the accepted lines are counted."""
        if instance is not None and self.instance not in (None, instance):
            self._forget(self.summary.accepted + self.summary.duplicate)
        self.instance = instance or self.instance

    def _finish(self, batch: Batch) -> bool:
        """False if the batch was abandoned."""
        tries = 0
        deadline = self._monotonic() + self._options.timeout
        while True:
            self.summary.unsettled_from = batch.items[0].number
            if self.watch is not None:
                self.watch.sending(batch)
            answer = self._post(batch)
            left = self._take(answer, batch)
            gone = len(batch.items) - len(left)
            self._settled(gone, _weight(batch.items) - _weight(left))
            if not left:
                self.summary.unsettled_from = None
                return True
            if gone:
                tries = 0
                deadline = self._monotonic() + self._options.timeout
            batch = batch.of(left)
            wait = answer.retry_after or min(LONGEST_WAIT, FIRST_WAIT * 2**tries)
            if self._monotonic() + wait > deadline:
                self._give_up(batch, answer)
                return False
            tries += 1
            self.summary.resent += 1
            self._sleep(wait)

    def _give_up(self, batch: Batch, answer: Answer) -> None:
        refused = _submission(answer.json() or {}).refused
        reasons = [_reason(line) for line in refused if line.status == 429]
        why = reasons[0] if reasons else f"HTTP {answer.status}: {answer.text()}"
        for item in batch.items:
            self.summary.refuse(item.number, why)
        self.summary.failure = f"no progress in {self._options.timeout:g} s: {why}"

    def _post(self, batch: Batch) -> Answer:
        options = self._options
        headers = dict(_EXPORT_HEADERS if batch.kind is Kind.CIM_XML else ())
        headers["Content-Type"] = batch.kind.value
        if options.publisher is not None:
            headers["Pillion-Publisher"] = options.publisher
        if options.trace is not None:
            headers |= header_fields(options.trace)
        query: dict[str, object] = {"ack": options.ack, "source": options.source}
        if options.ack != "accepted":
            query["timeout"] = f"{options.timeout:g}"
        return self._client.post("/v1/indications", query, body=batch.body(), headers=headers)

    def _take(self, answer: Answer, batch: Batch) -> list[Item]:
        """Count the settled items; return the items to send again."""
        content = answer.json()
        if content is None or "accepted" not in content:
            return self._take_bare(answer, batch)
        told = _submission(content)
        if self._options.follows:
            self._meet(told.instance or None)
        summary = self.summary
        summary.accepted += told.accepted
        summary.duplicate += told.duplicate
        summary.delivered += told.delivered or 0
        summary.unreached.update({reason: getattr(told, reason) or 0 for reason in UNREACHED})
        summary.pending += told.pending or 0
        summary.discarded.update(one.reason for one in told.discarded or ())
        summary.discarded["without detail"] += told.discarded_beyond or 0
        if told.durable is False:
            summary.not_durable += told.accepted + told.duplicate
        if told.stable is False:
            summary.not_stable += told.accepted + told.duplicate
        unread = told.unread_from if isinstance(told.unread_from, int) else len(batch.items)
        left, wrong = [], []
        for line in told.refused:
            item = batch.items[line.line]
            if line.status == 429:
                left.append(item)
            else:
                wrong.append(item)
                summary.refuse(item.number, _reason(line))
        if self.watch is not None:
            refused = {id(item) for item in (*left, *wrong)}
            taken = [item for item in batch.items[:unread] if id(item) not in refused]
            self.watch.answered(taken, wrong)
        left += batch.items[unread:]
        if isinstance(told.reason, str) and len(left) == len(batch.items):
            # The request failed at its first line, and would fail again.
            raise answer.refusal()
        return left

    def _take_bare(self, answer: Answer, batch: Batch) -> list[Item]:
        """Read an answer without counts: to a CIM-XML message or to the whole request."""
        if answer.status in (429, 503):
            return list(batch.items)
        if batch.kind is not Kind.CIM_XML or answer.status != 200:
            raise answer.refusal()
        error = _XML_ERROR.search(answer.body)
        if error is None:
            self.summary.accepted += 1
            if answer.unreached in UNREACHED:
                self.summary.unreached[answer.unreached] += 1
        else:
            found = _XML_DESCRIPTION.search(error[0])
            reason = unescape((found[1] if found else error[0]).decode(errors="replace"))
            self.summary.refuse(batch.items[0].number, reason)
        return []


def _submission(content: dict[str, Any]) -> SubmissionAnswer:
    """Raises Refused."""
    try:
        return read_submission(content)
    except ValueError as error:
        raise NoDeliverer(error) from None


def _reason(line: RefusedLine) -> str:
    if line.field and not line.reason.startswith(line.field):
        return f"{line.field}: {line.reason}"
    if line.destination and line.destination not in line.reason:
        return f"{line.destination}: {line.reason}"
    return line.reason


def _weight(items: Iterable[Item]) -> int:
    return sum(len(item.body) for item in items)


def summary_lines(summary: Summary) -> Iterator[str]:
    yield ", ".join(_counts(summary))
    yield from (f"  {fault}" for fault in summary.faults)
    if summary.faulted > len(summary.faults) > 0:
        yield f"  … and {summary.faulted - len(summary.faults):,} more faults"
    for refusal in summary.refusals:
        yield f"  line {refusal.number}: {refusal.reason}"
    if summary.refused > len(summary.refusals):
        yield f"  … and {summary.refused - len(summary.refusals):,} more"
    for name, counted in (summary.flush or {}).get("destinations", {}).items():
        yield f"  {name}: {_destination(counted)}"
    if summary.failure is not None and summary.unsettled_from is not None:
        yield _stopped(summary, summary.unsettled_from)


def _stopped(summary: Summary, line: int) -> str:
    if not (summary.accepted or summary.duplicate or summary.refused):
        return "nothing was accepted"
    return f"stopped at line {line}: no line from there on is known to be accepted"


def _counts(summary: Summary) -> Iterator[str]:
    yield f"{summary.accepted:,} accepted"
    yield f"{summary.duplicate:,} duplicate"
    yield f"{summary.refused:,} refused"
    if summary.not_durable:
        yield f"{summary.not_durable:,} not known to be on disk"
    if summary.not_stable:
        yield f"{summary.not_stable:,} not known to be in enough stores"
    if summary.delivered or summary.pending or summary.discarded.total():
        yield f"{summary.delivered:,} delivered"
        yield f"{summary.pending:,} pending"
        yield from (f"{n:,} discarded ({reason})" for reason, n in summary.discarded.items() if n)
    if summary.unreached.total():
        reasons = ", ".join(f"{n:,} {reason}" for reason, n in summary.unreached.items() if n)
        yield f"{summary.unreached.total():,} for no listener ({reasons})"
    if summary.faulted:
        yield f"{summary.faulted:,} {'fault' if summary.faulted == 1 else 'faults'}"
    if summary.forgotten:
        yield f"{summary.forgotten:,} with unknown outcome"


def _destination(counted: dict[str, object]) -> str:
    parts = [f"{counted.get('delivered', 0):,} delivered", f"{counted.get('pending', 0):,} pending"]
    discarded = counted.get("discarded")
    if isinstance(discarded, dict):
        parts += [f"{number:,} discarded ({reason})" for reason, number in discarded.items()]
    return ", ".join(parts)


def summary_document(summary: Summary) -> dict[str, object]:
    return {
        "accepted": summary.accepted,
        "duplicate": summary.duplicate,
        "refused": summary.refused,
        "refusals": [
            {"line": refusal.number, "reason": refusal.reason} for refusal in summary.refusals
        ],
        "notDurable": summary.not_durable,
        "notStable": summary.not_stable,
        "delivered": summary.delivered,
        **{reason: summary.unreached[reason] for reason in UNREACHED},
        "pending": summary.pending,
        "discarded": dict(+summary.discarded),
        "resent": summary.resent,
        "failure": summary.failure,
        "unsettledFrom": summary.unsettled_from,
        "flush": summary.flush,
        "forgotten": summary.forgotten,
        "faulted": summary.faulted,
        "faults": [
            {"line": fault.number, "destination": fault.destination, "reason": fault.reason}
            for fault in summary.faults
        ],
        "group": summary.group,
    }
