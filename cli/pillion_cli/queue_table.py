"""``pillion queues`` on a terminal of any width, and in a pipe."""

from collections.abc import Iterator, Sequence

from pillion_cli.queue_states import Judged, State, due_in
from pillion_cli.terminal import Cell, Column, Output, Row, Style, table, wrapped
from pillion_cli.units import brief, brief_number, brief_rate, duration
from pillion_sidecar.wire.queues import (
    AttemptStatus,
    HoldStatus,
    QueueDetails,
    RateLimitStatus,
    RetryStatus,
)

#: Columns of a terminal that has room for all, and for those that matter.
WIDE, MEDIUM = 190, 64
_STYLES = {
    State.FAILING: Style.ALARM,
    State.HELD: Style.ALARM,
    State.PAUSED: Style.RED,
    State.UNANSWERED: Style.RED,
    State.SUSPENDED: Style.YELLOW,
    State.SLOW: Style.YELLOW,
    State.BEHIND: Style.YELLOW,
    State.OK: Style.GREEN,
}
_NAME = Column("name", least=8)
_WIDE = (
    _NAME,
    Column("state"),
    Column("depth", is_number=True),
    Column("oldest", is_number=True),
    Column("since", is_number=True),
    Column("in/s", is_number=True),
    Column("out/s", is_number=True),
    Column("next", is_number=True),
    Column("first loss", is_number=True),
    Column("full", is_number=True),
    Column("in flight", is_number=True),
    Column("delivered", is_number=True),
    Column("discarded", is_number=True),
    Column("high water", is_number=True),
    Column("why", least=40),
)


def queue_lines(found: Sequence[Judged], output: Output, *, is_wide: bool) -> Iterator[str]:
    """Yield a table of queues. ``is_wide`` has all columns on any terminal."""
    if not output.is_terminal or is_wide or (output.width or 0) >= WIDE:
        rows = [Row(_cells(one, output)) for one in found]
        yield from table(_WIDE, rows, output.widened() if is_wide else output)
    elif (output.width or 0) >= MEDIUM:
        rows = [Row(_cells(one, output)[:7], _below(one, with_next=True)) for one in found]
        yield from table(_WIDE[:7], rows, output)
    else:
        rows = [Row(_cells(one, output)[:3], _below_narrow(one)) for one in found]
        yield from table(_WIDE[:3], rows, output)


def _cells(one: Judged, output: Output) -> tuple[Cell, ...]:
    queue = one.queue
    # A script reads the pipe: it gets the number itself.
    number = brief_number if output.is_terminal else "{:,}".format
    rate = brief_rate if output.is_terminal else "{:,.1f}".format
    age = queue.oldest_indication_age_seconds
    rates = queue.accepted_per_second, queue.delivered_per_second
    return (
        Cell(queue.name),
        Cell(str(one.state), _STYLES.get(one.state, Style.PLAIN)),
        Cell(f"{number(queue.depth)} / {number(queue.capacity)}", _depth_style(one)),
        Cell("" if age is None else brief(age)),
        Cell("" if one.since is None else brief(one.since)),
        *(Cell("" if one_way is None else rate(one_way)) for one_way in rates),
        Cell(one.next_attempt),
        Cell(one.with_reason(_in(one.loss)), Style.RED),
        Cell(_in(one.full)),
        Cell(number(queue.in_flight)),
        Cell(number(queue.delivered)),
        Cell(number(sum(queue.discarded.values()))),
        Cell(number(queue.high_water)),
        Cell(one.why_and_lost),
    )


def _depth_style(one: Judged) -> Style:
    return Style.RED if one.queue.depth >= one.queue.capacity else Style.PLAIN


def _in(seconds: float | None) -> str:
    return "" if seconds is None else due_in(seconds)


def _below(one: Judged, *, with_next: bool = False) -> list[Cell]:
    """What has no column. Why is last, because it may be long; losses have a line of their own."""
    parts = (
        one.first_loss,
        _following(one) if with_next else "",
        f"full {_in(one.full)}" if _is_full_first(one) else "",
        one.why,
    )
    text = "; ".join(filter(None, parts))
    style = Style.PLAIN if one.is_trouble else Style.DIM
    lost = Cell(one.lost, Style.RED if one.is_trouble else Style.DIM)
    return [cell for cell in (Cell(text, style), lost) if cell.text]


def _below_narrow(one: Judged) -> list[Cell]:
    if not one.is_trouble:
        return _below(one)
    age = one.queue.oldest_indication_age_seconds
    parts = (
        f"for {brief(one.since)}" if one.since is not None else "",
        _following(one),
        f"oldest {brief(age)}" if age is not None else "",
    )
    times = ", ".join(filter(None, parts))
    return [*([Cell(times)] if times else []), *_below(one)]


def _is_full_first(one: Judged) -> bool:
    """Whether publishers will be refused before anything is lost."""
    if one.full is None or one.refuses:
        return False
    return one.loss is None or one.full < one.loss


def _following(one: Judged) -> str:
    due = one.next_attempt
    return f"next {due}" if due and not one.queue.in_flight else due


# ---------------------------------------------------------------------- one queue


def details_lines(
    one: Judged, queue: QueueDetails, output: Output, *, now: float, is_wide: bool
) -> Iterator[str]:
    """Yield one queue with its settings and latest attempts."""
    yield from queue_lines([one], output, is_wide=is_wide)
    if output.is_terminal and not (is_wide or (output.width or 0) >= WIDE):
        yield ""
        yield from wrapped(
            f"{brief_number(queue.delivered)} delivered, "
            f"{brief_number(sum(queue.discarded.values()))} discarded, "
            f"high water {brief_number(queue.high_water)}",
            output.width,
        )
    yield ""
    for word, hold in (("held", queue.hold), ("paused", queue.pause)):
        if hold is not None:
            yield from wrapped(_hold(word, hold), output.width)
    if queue.retry is not None:
        text = _retry(queue.retry, lifetime=queue.indication_lifetime_seconds)
        yield from wrapped(text, output.width)
    if queue.rate_limit is not None:
        yield from wrapped(_rate_limit(queue.rate_limit), output.width)
    yield ""
    yield from _attempts(queue.attempts, output, now=now, is_wide=is_wide)


def _hold(word: str, hold: HoldStatus) -> str:
    since = "" if hold.since is None else f" since {hold.since}"
    return f"{word}{since}: {hold.message or hold.cause}"


def _retry(retry: RetryStatus, *, lifetime: float) -> str:
    wait = f"{duration(retry.interval_seconds)} apart"
    if retry.backoff == "Exponential":
        wait += f", doubling to {duration(retry.maximum_interval_seconds)}"
    if retry.jitter_percent:
        wait += f", jitter {retry.jitter_percent} %"
    number = "no limit of retries" if retry.attempts is None else f"{retry.attempts:,} retries"
    number = "1 retry" if retry.attempts == 1 else number
    kept = f"lifetime {duration(lifetime)}" if lifetime else "no lifetime"
    return f"retry: {number}, {wait}; {kept}"


def _rate_limit(limit: RateLimitStatus) -> str:
    limiting = "; indications wait for it" if limit.limiting else ""
    return f"rate limit: {limit.per_second:g} a second, bursts of {limit.burst:,}{limiting}"


def _attempts(
    attempts: Sequence[AttemptStatus], output: Output, *, now: float, is_wide: bool
) -> Iterator[str]:
    is_whole = is_wide or output.width is None or output.width >= WIDE
    columns = [
        Column("time"),
        Column("identifier", least=10),
        *([Column("sequence", is_number=True)] if is_whole else []),
        Column("attempt", is_number=True),
        Column("ms", is_number=True),
        Column("result", least=10),
    ]
    rows = []
    for one in attempts:
        number = "" if one.sequence_number is None else str(one.sequence_number)
        is_success = one.result == "success"
        rows.append(
            Row(
                [
                    Cell(str(one.time) if is_whole else f"{brief(now - one.time)} ago"),
                    Cell(one.identifier or ""),
                    *([Cell(number)] if is_whole else []),
                    Cell(str(one.attempt)),
                    Cell(f"{one.seconds * 1000:,.1f}"),
                    Cell(_result(one), Style.GREEN if is_success else Style.RED),
                ]
            )
        )
    yield from table(columns, rows, output.widened() if is_wide else output)


def _result(outcome: AttemptStatus) -> str:
    return f"{outcome.result}: {outcome.detail}" if outcome.detail else outcome.result
