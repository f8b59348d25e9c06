"""Sends the rows of one task: each is accepted or rejected, or the task fails. Requests can be
repeated safely, because the deliverer recognizes rows by their identity. Temporarily refused lines
are sent again before any later line, which keeps the order at each destination."""

import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import Any, Protocol

import pyarrow as pa

from pyspark_pillion.deliverer import (
    FAILURES,
    Accepted,
    Deliverer,
    Flushed,
    Refused,
    Reply,
    read_accepted,
    read_flushed,
    shortened,
)
from pyspark_pillion.errors import (
    DelivererUnavailableError,
    FlushTimeoutError,
    ProtocolError,
    PublisherForgottenError,
    RequestRefusedError,
    UndeliveredError,
)
from pyspark_pillion.lines import Invalid, body, body_size, halves
from pyspark_pillion.options import Options
from pyspark_pillion.rejects import Rejects

FIRST_PAUSE = 0.1
LONGEST_PAUSE = 10.0
#: Seconds between two polls of a flush that is answered at once.
POLL_PAUSE = 0.2
#: Attempts of a task that are asked for.
MOST_ATTEMPTS = 8


class Pace(Protocol):
    def monotonic(self) -> float: ...

    def sleep(self, seconds: float) -> None: ...

    def jitter(self) -> float:
        """A number from 0 to 1."""


class SystemPace:
    def monotonic(self) -> float:
        return time.monotonic()

    def sleep(self, seconds: float) -> None:
        time.sleep(seconds)

    def jitter(self) -> float:
        return random.random()


class Patience:
    """Doubling pauses with jitter, for at most ``seconds`` without progress."""

    def __init__(self, *, seconds: float, pace: Pace) -> None:
        self._seconds = seconds
        self._pace = pace
        self._pause = FIRST_PAUSE
        self._since: float | None = None
        self.pauses = 0

    def progress(self) -> None:
        self._since = None
        self._pause = FIRST_PAUSE

    def pause(self, trouble: str, *, at_least: float = 0.0) -> None:
        """Wait before a retry: for a doubling pause, or for the Retry-After of the deliverer.

        Raises DelivererUnavailableError with ``trouble`` if the time limit ends before the pause.
        """
        now = self._pace.monotonic()
        if self._since is None:
            self._since = now
        left = self._since + self._seconds - now
        pause = max(self._pause * (0.5 + self._pace.jitter() / 2), at_least)
        if left <= 0 or at_least > left:
            raise DelivererUnavailableError(
                f"the deliverer took nothing for {now - self._since:.0f} of {self._seconds:g} s"
                f" (option retrySeconds): {trouble}"
            )
        self._pause = min(2 * self._pause, LONGEST_PAUSE)
        self.pauses += 1
        self._pace.sleep(min(pause, left))


@dataclass(slots=True)
class Counts:
    """The outcome of rows. ``discarded`` counts by ``DESTINATION: REASON``; ``delivered`` and
    ``discarded`` count targets, so a row with two listeners counts twice. After the flush,
    ``accepted`` has what other attempts of the task published, as far as the deliverer knows."""

    accepted: int = 0
    duplicate: int = 0
    #: Duplicates that an earlier attempt may have published: the deliverer does not know it.
    repeated: int = 0
    #: Duplicates that went again to listeners that had missed them.
    redelivered: int = 0
    rejected: int = 0
    delivered: int = 0
    discarded: dict[str, int] = field(default_factory=dict)
    #: Accepted rows that go to no listener, by reason: unrouted, ended, suppressed.
    unreached: dict[str, int] = field(default_factory=dict)
    requests: int = 0
    pauses: int = 0

    def add(self, other: "Counts") -> None:
        self.accepted += other.accepted
        self.duplicate += other.duplicate
        self.repeated += other.repeated
        self.redelivered += other.redelivered
        self.rejected += other.rejected
        self.delivered += other.delivered
        self.discarded = dict(Counter(self.discarded) + Counter(other.discarded))
        self.unreached = dict(Counter(self.unreached) + Counter(other.unreached))
        self.requests += other.requests
        self.pauses += other.pauses

    def count_new(self, rows: int) -> None:
        """Count so many duplicates as accepted."""
        moved = max(0, min(rows, self.duplicate))
        self.accepted += moved
        self.duplicate -= moved

    @property
    def taken(self) -> int:
        return self.accepted + self.duplicate


class Verdict(Enum):
    ANSWERED = auto()
    TOO_LONG = auto()
    LATER = auto()
    REFUSED = auto()


def verdict(reply: Reply) -> Verdict:
    if reply.status in (200, 207):
        return Verdict.ANSWERED
    if reply.status == 413:
        return Verdict.TOO_LONG
    if reply.status in (400, 429):
        # Without refused lines the answer is about the whole request.
        if b'"refused"' in reply.body:
            return Verdict.ANSWERED
        return Verdict.LATER if reply.status == 429 else Verdict.REFUSED
    # 202: all was accepted, and ack=durable was not reached in time. Repeated, it waits again.
    return Verdict.LATER if reply.status in (202, 408, 500, 502, 503, 504) else Verdict.REFUSED


def again(lines: Any, answer: Accepted) -> Any:
    """The lines to send again, in order: refused temporarily, or not read."""
    waiting = [refused.line for refused in answer.refused if refused.for_now]
    indices = sorted(waiting) + list(range(answer.unread_from, len(lines)))
    return lines.take(pa.array(indices, pa.int64()))


class Sender:
    def __init__(
        self,
        deliverer: Deliverer,
        *,
        options: Options,
        publisher: str,
        rejects: Rejects,
        pace: Pace,
        earlier: Sequence[str] = (),
        speculative: Sequence[str] = (),
        trace: Mapping[str, str] | None = None,
    ) -> None:
        """``earlier``: publisher IDs of the task's earlier attempts; ``speculative``: of those that
        Spark may run beside this one. ``trace``: header fields of each request."""
        self.counts = Counts()
        self._deliverer = deliverer
        self._options = options
        self._publisher = publisher
        self._earlier = earlier
        self._speculative = speculative
        self._rejects = rejects
        self._pace = pace
        self._patience = Patience(seconds=options.retry, pace=pace)
        self._query = {"ack": options.ack, "source": options.source}
        if options.redeliver:
            self._query["redeliver"] = "true"
        self._level = options.flush_level or "durable"
        if options.ack != "accepted":
            # Shorter than this side's own timeout.
            self._query["timeout"] = f"{options.timeout / 2:g}"
        self._headers = {
            "Content-Type": "application/x-ndjson",
            "Pillion-Publisher": publisher,
            **(trace or {}),
        }
        #: The deliverer's instance of this publisher, which each later request names.
        self._instance = ""
        #: The last connection on which a deliverer without instances remembered this publisher.
        self._connection = 0

    def send(self, lines: Any) -> None:
        """Return once every line of one request is accepted, known as a duplicate, or rejected.

        Raises a PublishError.
        """
        while len(lines):
            reply = self._post(body(lines))
            if verdict(reply) is Verdict.TOO_LONG:
                self._send_less(lines, reply)
                return
            answer = read_accepted(reply, sent=len(lines))
            self._count(answer)
            self._reject(lines, answer)
            lines = again(lines, answer)
            if len(lines):
                self._patience.pause(_back_pressure(answer), at_least=reply.retry_after())

    def _send_less(self, lines: Any, reply: Reply) -> None:
        if len(lines) > 1:
            for part in halves(lines, body_size(lines) // 2 + 1):
                self.send(part)
            return
        reason = f"longer than the deliverer takes: {reply.excerpt()}"
        self._rejects.add([Invalid(lines[0].as_py(), reason)])

    def _count(self, answer: Accepted) -> None:
        if answer.accepted or answer.duplicate:
            self._instance = answer.instance
        self.counts.accepted += answer.accepted
        self.counts.duplicate += answer.duplicate
        self.counts.redelivered += answer.redelivered
        self.counts.unreached = dict(Counter(self.counts.unreached) + Counter(answer.unreached))
        if answer.accepted or answer.duplicate:
            self._patience.progress()

    def _reject(self, lines: Any, answer: Accepted) -> None:
        wrong = [refused for refused in answer.refused if not refused.for_now]
        if wrong:
            self._patience.progress()
            self._rejects.add(
                [Invalid(lines[bad.line].as_py(), bad.reason, bad.field) for bad in wrong]
            )

    def _post(self, content: bytes) -> Reply:
        """Raises a PublishError."""
        while True:
            reply = self._try("/v1/indications", self._query, content)
            if reply is None:
                continue
            if reply.status == 409:
                raise self._forgotten()
            judged = verdict(reply)
            if judged is Verdict.REFUSED:
                if self._without_redelivery(reply):
                    continue
                raise self._refused(reply)
            if judged is not Verdict.LATER:
                return reply
            self._later(reply)

    def _without_redelivery(self, reply: Reply) -> bool:
        """Whether an older deliverer refuses ``redeliver``; later requests are then without it."""
        if reply.status != 400 or b"redeliver" not in reply.body:
            return False
        return self._query.pop("redeliver", None) is not None

    def _try(self, path: str, query: Mapping[str, str], content: bytes = b"") -> Reply | None:
        """Make one request; return None after a pause if there is no answer."""
        try:
            self._deliverer.connect()
            if self._remembered():
                self.counts.requests += 1
                if self._instance:
                    query = {**query, "instance": self._instance}
                return self._deliverer.post(path, query=query, body=content, headers=self._headers)
        except FAILURES as error:
            trouble = str(error) or type(error).__name__
            self._patience.pause(f"{self._deliverer.address}: {trouble}")
        return None

    def _remembered(self) -> bool:
        """Whether a deliverer of the first release still knows this publisher. It is asked once per
        connection; later releases get the instance with each request.

        A restarted deliverer may have lost accepted rows, and the flush would not count them.
        Raises PublisherForgottenError.
        """
        if self._instance or not self.counts.taken:
            self._connection = self._deliverer.connections
        if self._connection == self._deliverer.connections:
            return True
        asked = self._deliverer.connections
        query = {"publisher": self._publisher, "level": "accepted", "timeout": "1"}
        reply = self._deliverer.post("/v1/flush", query=query)
        if reply.status == 404:
            raise self._forgotten()
        if reply.status not in (200, 202):
            self._later(reply)
            return False
        self._connection = asked
        return asked == self._deliverer.connections

    def flush(self) -> Flushed:
        """Wait until all accepted rows have reached ``flushLevel``.

        Raises FlushTimeoutError, PublisherForgottenError, another PublishError or, if
        ``onUndelivered`` is ``fail``, UndeliveredError.
        """
        flushed = Flushed(complete=True, delivered=0, discarded={}, waiting={})
        if not self.counts.taken:
            return flushed
        deadline = self._pace.monotonic() + self._options.flush_timeout
        self._patience.progress()
        while (left := deadline - self._pace.monotonic()) > 0:
            answer = self._poll(min(left, self._options.timeout / 2))
            if answer is None:
                continue
            flushed = answer
            self._judge(flushed)
            if flushed.complete:
                self._conclude(flushed)
                return flushed
            self._pace.sleep(POLL_PAUSE)
        raise self._too_late(flushed)

    def _conclude(self, flushed: Flushed) -> None:
        """Take the deliverer's counts: it counts a row once, also if an answer was lost. What other
        attempts of this task have published is new, too."""
        counts = self.counts
        counts.delivered, counts.discarded = flushed.delivered, _by_reason(flushed)
        known: Mapping[str, Flushed] = {}
        if flushed.accepted is not None:
            counts.unreached = dict(flushed.unreached)
            counts.count_new(flushed.accepted - counts.accepted)
            if counts.duplicate:
                known = self._known_of((*self._earlier[-MOST_ATTEMPTS:], *self._speculative))
        for attempt in known.values():
            counts.count_new(attempt.accepted or 0)
            counts.delivered += attempt.delivered
            counts.unreached = dict(Counter(counts.unreached) + Counter(attempt.unreached))
        if not known.keys() >= set(self._earlier):
            counts.repeated = counts.duplicate

    def _known_of(self, attempts: Sequence[str]) -> Mapping[str, Flushed]:
        """Return what the deliverer knows of other attempts. Without an answer the rest is not
        asked for: a count is not worth a retry."""
        known = {}
        for publisher in attempts:
            query = {"publisher": publisher, "level": "accepted", "timeout": "0"}
            try:
                reply = self._deliverer.post("/v1/flush", query=query)
                if reply.status == 200:
                    known[publisher] = read_flushed(reply)
            except (*FAILURES, ProtocolError):
                break
        return known

    def _poll(self, seconds: float) -> Flushed | None:
        """None without an answer."""
        query = {
            "publisher": self._publisher,
            "level": self._level,
            "timeout": f"{seconds:.3f}",
        }
        reply = self._try("/v1/flush", query)
        if reply is None:
            return None
        if reply.status in (404, 409):
            raise self._forgotten()
        if reply.status in (200, 202):
            self._patience.progress()
            return read_flushed(reply)
        if reply.status == 400 and self._options.flush_level is None and self._level == "durable":
            # A deliverer without a disk: what it has accepted is as safe as it gets.
            self._level = "accepted"
            return None
        if verdict(reply) is not Verdict.LATER:
            raise self._refused(reply, f"flushLevel {self._level}")
        self._later(reply)
        return None

    def _judge(self, flushed: Flushed) -> None:
        if flushed.discarded and self._options.on_undelivered == "fail":
            what = ", ".join(f"{name} {count}" for name, count in _by_reason(flushed).items())
            raise UndeliveredError(
                f"indications were accepted and then discarded: {what} (option onUndelivered can"
                " report this instead)"
            )

    def _later(self, reply: Reply) -> None:
        trouble = f"{self._deliverer.address} answers HTTP {reply.status}: {reply.excerpt()}"
        self._patience.pause(trouble, at_least=reply.retry_after())

    def _refused(self, reply: Reply, what: str = "the request") -> RequestRefusedError:
        return RequestRefusedError(
            f"{self._deliverer.address} (option url) refuses {what} with HTTP {reply.status}:"
            f" {reply.excerpt()}"
        )

    def _forgotten(self) -> PublisherForgottenError:
        return PublisherForgottenError(
            f"the deliverer at {self._deliverer.address} was restarted, or has forgotten this"
            f" publisher, after it had accepted"
            f" {self.counts.taken} rows of this task; their outcome is unknown, so the"
            " task has to run again"
        )

    def _too_late(self, flushed: Flushed) -> FlushTimeoutError:
        waiting = ", ".join(f"{name} {count}" for name, count in flushed.waiting.items())
        return FlushTimeoutError(
            f"not all had reached {self._level} within"
            f" {self._options.flush_timeout:g} s (option flushTimeoutSeconds); pending:"
            f" {waiting or 'not known'}"
        )

    def finish(self) -> Counts:
        self.counts.rejected = self._rejects.count
        self.counts.pauses = self._patience.pauses
        return self.counts


def _by_reason(flushed: Flushed) -> dict[str, int]:
    return {f"{where}: {why}": count for (where, why), count in flushed.discarded.items()}


def _back_pressure(answer: Accepted) -> str:
    busy = sorted({refused.destination for refused in answer.refused if refused.for_now} - {""})
    first: Refused | None = next((r for r in answer.refused if r.for_now), None)
    reason = shortened(first.reason) if first else "lines were not read"
    return f"back-pressure{' of ' + ', '.join(busy[:5]) if busy else ''}: {reason}"
