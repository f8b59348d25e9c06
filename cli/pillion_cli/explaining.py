"""What a deliverer knows of one indication, and what its subscriptions make of it."""

import json
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.client import DelivererClient
from pillion_cli.diagnosis import answer_of, queue_of
from pillion_cli.outcomes import pages, time_text
from pillion_cli.queue_states import Judged, State, judged, time_of
from pillion_cli.terminal import Cell, Column, Output, Row, Style, cut, table, wrapped
from pillion_cli.units import brief
from pillion_sidecar.wire.diagnosis import (
    Explanation,
    PendingAnswer,
    PendingLine,
    Verdict,
    body_of,
)
from pillion_sidecar.wire.outcomes import OutcomeLine
from pillion_sidecar.wire.queues import AttemptStatus, QueueDetails

PENDING, EXPLAIN = "/v1/pending", "/v1/explain"
#: Outcomes of one identifier, and destinations whose queues are asked for.
MOST_OUTCOMES = 1000
MOST_QUEUES = 100
_RESULT_STYLES = {
    "delivered": Style.GREEN,
    "discarded": Style.ALARM,
    "redriven": Style.YELLOW,
    "pending": Style.YELLOW,
}


@dataclass(slots=True, kw_only=True)
class Known:
    """What a deliverer knows of an identifier."""

    identifier: str
    source: str | None
    pending: PendingAnswer
    outcomes: list[OutcomeLine]
    #: The documents of ``outcomes``.
    told: list[dict[str, Any]]
    #: By destination; none of those that are gone.
    queues: dict[str, tuple[Judged, QueueDetails]] = field(default_factory=dict)
    #: None where the indication itself is not kept.
    explanation: Explanation | None = None
    #: The deliverer's time, in seconds since the epoch.
    now: float

    @property
    def is_found(self) -> bool:
        return bool(self.pending.pending or self.outcomes)

    @property
    def sources(self) -> list[str]:
        return sorted({one.source or "" for one in self.lines})

    @property
    def lines(self) -> Sequence[PendingLine | OutcomeLine]:
        return (*self.pending.pending, *self.outcomes)

    def attempts(self) -> Iterator[tuple[str, AttemptStatus]]:
        """Yield those that are still among the last of their queues, the oldest first."""
        found = [
            (one.time, name, one)
            for name, (_, queue) in self.queues.items()
            for one in queue.attempts
            if one.identifier == self.identifier
        ]
        return ((name, one) for _, name, one in sorted(found, key=lambda one: one[:2]))


def look_up(
    client: DelivererClient, identifier: str, source: str | None, *, now: Callable[[], float]
) -> Known:
    """Ask for everything. Raises CommandError."""
    query = {"identifier": identifier, "source": source, "indication": "true"}
    # Before the outcomes: what is settled meanwhile is there.
    answer = client.get(PENDING, query)
    pending = answer_of(answer, PendingAnswer)
    found = [
        one
        for page in pages(client, query, after=0, limit=MOST_OUTCOMES)
        for one in zip(page.outcomes(), map(json.loads, page.lines), strict=True)
    ]
    known = Known(
        identifier=identifier,
        source=source,
        pending=pending,
        outcomes=[outcome for outcome, _ in found],
        told=[document for _, document in found],
        now=time_of([], answer.headers, now=now),
    )
    destinations = [one.destination for one in known.lines]
    for name in [*dict.fromkeys(destinations)][:MOST_QUEUES]:
        if (queue := queue_of(client, name)) is not None:
            known.queues[name] = judged(queue, now=known.now), queue
    body = next(filter(None, map(body_of, known.lines)), None)
    if body is not None:
        known.explanation = explain(client, body)
    return known


def explain(client: DelivererClient, body: bytes) -> Explanation:
    """Ask what the subscriptions make of an indication. Raises CommandError."""
    answer = client.post(EXPLAIN, body=body, headers={"Content-Type": "application/json"})
    return answer_of(answer, Explanation)


# ---------------------------------------------------------------------- lines


def known_lines(known: Known, output: Output) -> Iterator[str]:
    yield from _head(known, output)
    rows = [_pending_row(one, known, output) for one in known.pending.pending]
    rows += [_outcome_row(one, known, output) for one in known.outcomes]
    if rows:
        columns = [
            Column("destination", least=8),
            Column("result"),
            Column("attempts", is_number=True),
            Column("when", least=8),
        ]
        yield ""
        yield from table(columns, rows, output)
    attempts = [_attempt_row(name, one, known, output) for name, one in known.attempts()]
    if attempts:
        yield ""
        yield from _wrapped("attempts that are among the last 20 of their queues:", output)
        columns = [
            Column("time"),
            Column("destination", least=8),
            Column("attempt", is_number=True),
            Column("ms", is_number=True),
            Column("result", least=10),
        ]
        yield from table(columns, attempts, output)
    yield ""
    if known.explanation is not None:
        yield from _wrapped("the filters in force now:", output)
        yield from verdict_lines(known.explanation, output)
    elif known.is_found:
        yield from _wrapped(
            "The indication itself is not kept (history.bodies of the service says which are), so"
            " the filters cannot be asked. If you have it: pillion explain --file FILE",
            output,
        )


def _head(known: Known, output: Output) -> Iterator[str]:
    title = output.paint(cut(known.identifier, output.width), Style.BOLD)
    yield title
    if known.lines:
        first = min(known.lines, key=lambda one: one.accepted_time)
        by = ", ".join(name or "a publisher without source" for name in known.sources)
        ago = brief(known.now - first.accepted_time.timestamp())
        text = f"{first.class_name} from {by}, accepted {time_text(first.accepted_time)}"
        yield from _wrapped(f"{text} ({ago} ago)", output)
        if len(known.sources) > 1:
            yield from _wrapped("several sources use this identifier: --source chooses one", output)
    elif known.pending.remembered:
        yield from _wrapped(
            "It was accepted, and nothing of it is pending: no subscription selected it, or its"
            " outcomes have left the history. If you have it: pillion explain --file FILE",
            output,
        )
    if known.pending.unread:
        yield from _wrapped(
            f"{known.pending.unread:,} pending indications were not looked at: they are too many,"
            " or message groups hold them",
            output,
        )


def _wrapped(text: str, output: Output) -> list[str]:
    return wrapped(text, output.width)


def _below(text: str, output: Output) -> list[Cell]:
    width = None if output.width is None else output.width - 2
    return [Cell(line) for line in wrapped(text, width)] if text else []


def _pending_row(one: PendingLine, known: Known, output: Output) -> Row:
    queue = known.queues.get(one.destination)
    when, why, next_attempt = "", "", ""
    if queue is not None:
        state, _ = queue
        next_attempt = state.next_attempt
        # The queue attempts its first one, and not this one while others are before it.
        when = "" if one.ahead else next_attempt
        # What the queue has discarded is not this one.
        why = "" if state.state is State.OK else f"{state.state}: {state.why}".rstrip(": ")
    place = "an attempt is under way" if one.in_flight else _place(one.ahead, next_attempt)
    details = (place, why, f"for {one.subscription}")
    return Row(
        [
            Cell(one.destination),
            Cell("pending", _RESULT_STYLES["pending"]),
            Cell(f"{one.attempts:,}"),
            Cell(f"next {when}" if when.startswith("in ") else when),
        ],
        _below("; ".join(filter(None, details)), output),
    )


def _place(ahead: int, next_attempt: str) -> str:
    if not ahead:
        return "first in its queue"
    if not next_attempt:
        return f"{ahead:,} before it"
    is_under_way = next_attempt == "under way"
    tried = next_attempt if is_under_way else f"tried {next_attempt}"
    return f"{ahead:,} before it, and the first of them is {tried}"


def _outcome_row(one: OutcomeLine, known: Known, output: Output) -> Row:
    at = time_text(one.time)
    ago = f"{brief(known.now - one.time.timestamp())} ago"
    why = ": ".join(text for text in (one.reason, one.detail) if text)
    answer = f"HTTP {one.status}" if one.status and str(one.status) not in why else ""
    cause = f"cause {one.cause}" if one.cause else ""
    other = f"dead letter to {one.dead_letter}" if one.dead_letter else ""
    again = f"repeats outcome {one.redrives}" if one.redrives else ""
    forced = "before enough stores had it" if one.forced else ""
    details = (why, forced, cause, answer, other, again, f"for {one.subscription}")
    return Row(
        [
            Cell(one.destination),
            Cell(one.result, _RESULT_STYLES.get(one.result, Style.PLAIN)),
            Cell(f"{one.attempts:,}"),
            Cell(ago if output.is_terminal else at),
        ],
        _below("; ".join(filter(None, details)), output),
    )


def _attempt_row(name: str, one: AttemptStatus, known: Known, output: Output) -> Row:
    is_success = one.result == "success"
    return Row(
        [
            Cell(f"{brief(known.now - one.time)} ago" if output.is_terminal else str(one.time)),
            Cell(name),
            Cell(str(one.attempt)),
            Cell(f"{one.seconds * 1000:,.1f}"),
            Cell(
                f"{one.result}: {one.detail}" if one.detail else one.result,
                Style.GREEN if is_success else Style.RED,
            ),
        ]
    )


def verdict_lines(explanation: Explanation, output: Output) -> Iterator[str]:
    """Yield a table of subscriptions, and what each makes of the indication."""
    text = f"{explanation.selected:,} of {explanation.total:,} subscriptions select it"
    listed = len(explanation.subscriptions)
    more = f"; {listed:,} are listed" if listed < explanation.total else ""
    yield from _wrapped(text + more, output)
    if not explanation.subscriptions:
        return
    columns = (
        Column("subscription", least=12),
        Column("selects"),
        Column("filter", least=6),
        Column("destination", least=6),
    )
    yield from table(
        columns, [_verdict_row(one, output) for one in explanation.subscriptions], output
    )


def _verdict_row(one: Verdict, output: Output) -> Row:
    word = Cell("yes", Style.GREEN) if one.selected else Cell(f"no: {one.reason}", Style.YELLOW)
    return Row(
        [Cell(one.subscription), word, Cell(one.filter), Cell(one.destination)],
        _below(one.detail, output),
    )
