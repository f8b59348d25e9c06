"""The semantics of rules once more, written over the whole list of readings: no state, no steps.

It knows levels, times and counts, and no texts.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import zip_longest

from pillion_rules import CLEAR, Reading, Rule
from pillion_rules.durations import LONGEST
from pillion_rules.names import level_names

# Rules of each sort.
HELD = Rule(
    "held",
    keys=["k"],
    event_time="t",
    severity={"Major": "a", "Minor": "b"},
    hold="4 minutes",
    max_gap="3 minutes",
    keep="5 minutes",
    repeat="7 minutes",
    forget="1 hour",
)
PLAIN = Rule("plain", keys=["k"], event_time="t", severity={"Major": "a"}, forget="1 hour")
SILENT = Rule(
    "silent", keys=["k"], event_time="t", severity="Minor", silent="6 minutes", forget="1 hour"
)
RULES = (HELD, PLAIN, SILENT)

#: Kind, level, at, since, count, time of the raise.
Told = tuple[str, str, int, int, int, int]
Signals = list[tuple[int, int]]


@dataclass(frozen=True)
class Segment:
    """Readings without a gap in which the key is forgotten."""

    times: list[int]
    #: Times and levels of the readings that tell something.
    signals: Signals
    #: The end of what may be told, and whether the key is forgotten there.
    end: int
    is_forgotten: bool


def expected(rule: Rule, readings: list[Reading], *, until: int) -> list[Told]:
    """What the rule tells of all readings up to ``until``."""
    found: list[Told] = []
    for segment in segments(rule, readings, until):
        tell = silent_alerts if rule.is_silent else alerts
        found += tell(rule, segment)
    return found


def segments(rule: Rule, readings: list[Reading], until: int) -> Iterator[Segment]:
    worst: dict[int, int | None] = {}
    for one in readings:
        if one.at <= until:
            before = worst.get(one.at)
            worst[one.at] = max((-1 if each is None else each) for each in (before, one.level))
    levels = {at: None if level == -1 else level for at, level in worst.items()}
    group: list[int] = []
    for at in [*sorted(levels), LONGEST * 100]:
        if group and at > group[-1] + rule.durations.forget:
            end = group[-1] + rule.durations.forget
            signals = [(one, found) for one in group if (found := levels[one]) is not None]
            yield Segment(group, signals, min(end, until), end <= until)
            group = []
        group.append(at)


def silent_alerts(rule: Rule, segment: Segment) -> Iterator[Told]:
    silent = rule.durations.silent
    assert silent is not None
    for at, following in zip(segment.times, [*segment.times[1:], None], strict=True):
        raised = at + silent
        if raised > segment.end or (following is not None and following <= raised):
            continue
        end = segment.end if following is None else following
        tells = [("raised", rule.silent_level, raised, 0)]
        yield from written(
            rule, tells, since=at, raised=raised, before=end, is_open=following is None
        )
        if following is not None or segment.is_forgotten:
            yield told("cleared", rule.silent_level, end, at, 0, raised)


def alerts(rule: Rule, segment: Segment) -> Iterator[Told]:
    left = segment.signals
    while left:
        start = next_raise(rule, left, segment.end)
        if start is None:
            return
        since, raised = start
        seen = [one for one in left if since <= one[0] <= raised]
        later = [one for one in left if one[0] > raised]
        tells = [("raised", seen[-1][1], raised, len(seen))]
        cleared = first_clear(rule, later)
        closed = cleared is not None and cleared <= segment.end
        end = cleared if cleared is not None and closed else segment.end
        level, count = seen[-1][1], len(seen)
        for at, following in later:
            if at > end or following == CLEAR:
                continue
            count += 1
            if following != level:
                tells.append(("changed", following, at, count))
                level = following
        counts = [at for at, found in [*seen, *later] if found != CLEAR]
        yield from written(
            rule, tells, since=since, raised=raised, before=end, is_open=not closed, counts=counts
        )
        if closed or segment.is_forgotten:
            yield told("cleared", level, end, since, count, raised)
        if not closed:
            return
        assert cleared is not None
        left = [one for one in later if one[0] > cleared]


def next_raise(rule: Rule, signals: Signals, end: int) -> tuple[int, int] | None:
    """Since when a severity holds that holds long enough, and when it has."""
    hold, gap = rule.durations.hold, rule.durations.max_gap
    runs: list[list[int]] = []
    before: tuple[int, int] | None = None
    for at, level in signals:
        if level != CLEAR:
            is_new = before is None or before[1] == CLEAR
            if is_new or (gap is not None and before is not None and at - before[0] > gap):
                runs.append([])
            runs[-1].append(at)
        before = (at, level)
    for run in runs:
        raised = run[0] + hold
        last = max(at for at in run if at <= raised)
        ending = [at for at, _ in signals if at > run[-1]]
        if raised > end or (gap is not None and raised > last + gap):
            continue
        # A clear reading at the very end of the time comes before it.
        if ending and ending[0] <= raised:
            continue
        return run[0], raised
    return None


def first_clear(rule: Rule, signals: Signals) -> int | None:
    """When readings have been clear for long enough."""
    since: int | None = None
    for at, level in signals:
        if since is not None and at > since + rule.durations.keep:
            return since + rule.durations.keep
        if level != CLEAR:
            since = None
        elif since is None:
            since = at
    return None if since is None else since + rule.durations.keep


def written(
    rule: Rule,
    tells: list[tuple[str, int, int, int]],
    *,
    since: int,
    raised: int,
    before: int,
    is_open: bool,
    counts: list[int] | None = None,
) -> Iterator[Told]:
    """The raise and the changes, with the repeats between them and up to the end."""
    repeat = rule.durations.repeat
    for (kind, level, at, count), following in zip(tells, [*tells[1:], None], strict=True):
        yield told(kind, level, at, since, count, raised)
        limit = before if following is None else following[2]
        # What ends an alert, or changes it, comes before a repeat of the same time.
        includes_limit = following is None and is_open
        due = at
        while repeat is not None:
            due += repeat
            if due > limit or (due == limit and not includes_limit):
                break
            number = sum(since <= one <= due for one in counts or [])
            yield told("repeated", level, due, since, number, raised)


def raised_spans(found: list[Told]) -> list[tuple[int, int]]:
    """When alerts of which everything was told were raised."""
    begins = [at for kind, _, at, *_ in found if kind == "raised"]
    ends = [at for kind, _, at, *_ in found if kind == "cleared"]
    return [*zip_longest(begins, ends, fillvalue=LONGEST * 100)]


def hidden(found: list[Told], windows: list[tuple[int, int]], *, until: int) -> list[Told]:
    """What of alerts without repeats is told with maintenance windows, or with the spans of other
    rules. The count is 0: transitions do not say what it is at the end of a window."""
    left = list(found)
    made: list[Told] = []
    while left:
        size = next((n for n, one in enumerate(left, 1) if one[0] == "cleared"), len(left))
        made += hidden_alert(left[:size], windows, until=until)
        left = left[size:]
    return made


def hidden_alert(
    alert: list[Told], windows: list[tuple[int, int]], *, until: int
) -> Iterator[Told]:
    cleared = alert[-1] if alert[-1][0] == "cleared" else None
    levels = [(at, level) for kind, level, at, *_ in alert if kind != "cleared"]
    begin, since = levels[0][0], alert[0][3]
    last = until if cleared is None else cleared[2] - 1
    ends = {end for _, end in windows if begin <= end <= last}
    said, raised = None, begin
    for at in sorted({at for at, _ in levels} | ends):
        level = max(one for one in levels if one[0] <= at)[1]
        if level == said or any(start <= at < end for start, end in windows):
            continue
        raised = at if said is None else raised
        yield ("raised" if said is None else "changed", level, at, since, 0, raised)
        said = level
    if cleared is not None and said is not None:
        yield ("cleared", cleared[1], cleared[2], since, 0, raised)


def told(kind: str, level: int, at: int, since: int, count: int, raised: int) -> Told:
    return (kind, level_names()[level], at, since, count, raised)
