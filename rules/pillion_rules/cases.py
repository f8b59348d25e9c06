"""Cases: series of levels, and the transitions that a rule must make of them."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pillion_rules.durations import duration_text, parse_duration, parse_time, time_text
from pillion_rules.errors import RuleError, nearest, shown
from pillion_rules.files import entries_of
from pillion_rules.machine import Step, step
from pillion_rules.maintenance import Span, joined
from pillion_rules.names import level_names, levels
from pillion_rules.rule import Rule
from pillion_rules.rule_set import KeyStep
from pillion_rules.state import NEVER
from pillion_rules.transitions import CLEAR, Reading, Reason, Transition, TransitionKind
from pillion_rules.unless import named_by

T = TypeVar("T")

#: Maximum cases of a file, and readings of a case.
MOST_CASES = 10_000
MOST_READINGS = 100_000
#: The time at which a case begins, unless it says so.
START = "2000-01-01T00:00:00Z"

_CASE_FIELDS = (
    "name",
    "rule",
    "key",
    "start",
    "readings",
    "every",
    "levels",
    "until",
    "maintenance",
    "unless",
    "late",
    "expect",
)
_WINDOW_FIELDS = ("start", "end")
_EXPECT_FIELDS = ("transition", "at", "level", "since", "count", "text", "reason")
#: The levels of readings, besides severities. Both null and an empty text are no level.
_OTHER_LEVELS: Mapping[str, int | None] = {"clear": CLEAR, "null": None, "": None, "~": None}


@dataclass(frozen=True, slots=True, kw_only=True)
class Expected:
    """A transition that must be there; None: any value will do."""

    transition: TransitionKind
    at: int
    level: str | None = None
    since: int | None = None
    count: int | None = None
    text: str | None = None
    reason: Reason | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    name: str
    rule: Rule
    #: Rules that are judged before it, if the conditions decide.
    others: tuple[Rule, ...]
    key: tuple[str, ...]
    start: int
    #: In the order of arrival.
    readings: tuple[Reading, ...]
    #: Whether the levels of the readings are given; else the rule's conditions decide.
    has_levels: bool
    until: int
    #: Windows in order, without overlaps.
    maintenance: Sequence[Span]
    #: When a rule of ``unless`` is raised; in order, without overlaps.
    unless: Sequence[Span]
    #: Readings that must be late.
    late: int
    expect: tuple[Expected, ...]


@dataclass(frozen=True, slots=True)
class Difference:
    #: ``missing``, ``unexpected``, ``differs``, ``late``, or ``refused``: the rule does not fit.
    kind: str
    text: str


# ---------------------------------------------------------------------- running


def run_case(case: Case) -> list[Difference]:
    """What differs from the expectation by the given levels; nothing if the case passes."""
    return differences_of(case, *_run(case))


def differences_of(case: Case, found: list[Transition], late: int) -> list[Difference]:
    """What differs from the expectation in transitions and the number of late readings."""
    differences = [*_compare(case, found)]
    if late != case.late:
        differences.append(Difference("late", f"expected {case.late} late readings, got {late}"))
    return differences


def transitions_of(case: Case) -> list[Transition]:
    """What the rule makes of the readings."""
    return _run(case)[0]


def _run(case: Case) -> tuple[list[Transition], int]:
    windows = [case.maintenance] if case.maintenance else []
    unless = [case.unless] if case.unless else []

    def by_level(state: bytes | None, readings: Sequence[Reading], watermark: int) -> Step:
        return step(
            *(case.rule, case.key, state, readings),
            watermark=watermark,
            maintenance=windows,
            unless=unless,
        )

    return play(case, [(one.at, one) for one in case.readings], by_level)


def play(
    case: Case,
    readings: Iterable[tuple[int, T]],
    take: Callable[[bytes | None, Sequence[T], int], Step | KeyStep],
) -> tuple[list[Transition], int]:
    """Take readings, each with its time, in the order of their arrival. Return the transitions, and
    how many were late. ``take`` has the state, at most one reading, and the watermark."""
    found: list[Transition] = []
    state, newest, late = None, NEVER, 0
    for at, reading in readings:
        # A job takes a batch with the watermark of the batches before it.
        watermark = NEVER if newest == NEVER else newest - case.rule.durations.watermark
        is_late = at <= watermark
        made = take(state, [] if is_late else [reading], watermark)
        state, late = made.state, late + is_late + made.late
        found += made.transitions
        newest = max(newest, at)
    return [*found, *take(state, [], case.until).transitions], late


def _compare(case: Case, found: list[Transition]) -> Iterator[Difference]:
    left = list(found)
    for wanted in case.expect:
        match = next(
            (one for one in left if (one.transition, one.at) == (wanted.transition, wanted.at)),
            None,
        )
        if match is None:
            yield Difference("missing", _told(case, wanted.transition, wanted.level, wanted.at))
            continue
        left.remove(match)
        for text in _unequal(case, wanted, match):
            told = _told(case, match.transition, match.level, match.at)
            yield Difference("differs", f"{told}: {text}")
    for one in left:
        yield Difference("unexpected", _told(case, one.transition, one.level, one.at))


def _unequal(case: Case, wanted: Expected, got: Transition) -> Iterator[str]:
    for name in ("level", "since", "count", "text", "reason"):
        expected, value = getattr(wanted, name), getattr(got, name)
        if expected is None or expected == value:
            continue
        if name == "since":
            expected, value = _when(case, expected), _when(case, value)
        elif name == "text":
            expected, value = repr(expected), repr(value)
        yield f"{name}: expected {expected}, got {'none' if value is None else value}"


def _told(case: Case, transition: TransitionKind, level: str | None, at: int) -> str:
    return f"{transition.value}{f' {level}' if level else ''} at {_when(case, at)}"


def _when(case: Case, at: int) -> str:
    return (
        f"{duration_text(at - case.start)} ({time_text(at)})" if at >= case.start else time_text(at)
    )


# ---------------------------------------------------------------------- reading


def load_cases(path: str | Path, rules: Sequence[Rule]) -> tuple[Case, ...]:
    """Read the cases of a YAML file. Raises RuleError with every problem."""
    entries = entries_of(Path(path), "cases", most=MOST_CASES)
    known = {rule.name: rule for rule in rules}
    found: list[Case] = []
    problems: list[str] = []
    for number, entry in enumerate(entries, 1):
        try:
            found.append(_Reader(entry, known).case())
        except RuleError as error:
            name = entry.get("name") if isinstance(entry, Mapping) else None
            problems += (f"{path}: case {name or number}: {one}" for one in error.problems)
    if problems:
        raise RuleError(problems)
    return tuple(found)


def _has_level(rule: Rule, level: int) -> bool:
    # Of a rule with silent the levels do not matter.
    return rule.is_silent or level_names()[level] in rule.severity


class _Reader:
    """Reads one case. Every method raises RuleError."""

    def __init__(self, entry: object, rules: Mapping[str, Rule]) -> None:
        self._entry = _object(entry, "the case", _CASE_FIELDS)
        self._rules = rules
        start = self._text("start", default=START)
        at = parse_time(start)
        if at is None:
            raise RuleError([f"start: {shown(start)} is no time; write for example {START}"])
        self._start = at

    def case(self) -> Case:
        rule = self._rule()
        readings = tuple(self._readings(rule))
        for one in readings:
            if one.level and not _has_level(rule, one.level):
                name = level_names()[one.level]
                raise RuleError([f"level: {name} is no severity of {rule.name}; use one of it"])
        last = max((one.at for one in readings), default=self._start)
        until = self._entry.get("until")
        return Case(
            name=self._text("name"),
            rule=rule,
            others=tuple(self._others(rule)),
            key=self._key(rule),
            start=self._start,
            readings=readings,
            has_levels="levels" in self._entry
            or any("level" in one for one in self._entry["readings"]),
            until=last if until is None else self._time(until, "until"),
            maintenance=joined(self._windows("maintenance")),
            unless=joined(self._windows("unless")),
            late=_number(self._entry.get("late", "0"), "late"),
            expect=tuple(self._expected()),
        )

    def _text(self, name: str, *, default: str | None = None) -> str:
        value = self._entry.get(name, default)
        if not isinstance(value, str) or not value:
            raise RuleError([f"{name}: is missing, or no text; write {name}: with a text"])
        return value

    def _rule(self) -> Rule:
        name = self._text("rule")
        if name not in self._rules:
            hint = nearest(name, self._rules)
            raise RuleError([f"rule: no rule has the name {shown(name)}; {hint}"])
        return self._rules[name]

    def _others(self, rule: Rule) -> Sequence[Rule]:
        """The rules to judge before a rule, unless the case says when they are raised."""
        if "unless" not in self._entry:
            return named_by(rule, self._rules)
        if not rule.unless:
            raise RuleError([f"unless: {rule.name} names no other rule; remove it"])
        return ()

    def _key(self, rule: Rule) -> tuple[str, ...]:
        given = _object(self._entry.get("key"), "key", rule.keys)
        missing = [name for name in rule.keys if not isinstance(given.get(name), str)]
        if missing:
            raise RuleError([f"key: {missing[0]} is missing, or no text; write a value for it"])
        return tuple(given[name] for name in rule.keys)

    def _readings(self, rule: Rule) -> Iterator[Reading]:
        if ("readings" in self._entry) is ("levels" in self._entry):
            raise RuleError(["readings: write either readings, or every and levels"])
        if "readings" in self._entry:
            for number, entry in enumerate(_list(self._entry["readings"], "readings"), 1):
                where = f"readings {number}"
                reading = self._reading(entry, where)
                for name in rule.keys:
                    if name in reading.values:
                        raise RuleError([f"{where}: {name} is one of keys; write it in key alone"])
                yield reading
            return
        every = parse_duration(self._text("every"))
        if not every:
            raise RuleError([f"every: {shown(self._entry['every'])} is no duration; write 1 hour"])
        for number, level in enumerate(_list(self._entry["levels"], "levels")):
            yield Reading(self._start + number * every, _level(level, f"levels {number + 1}"))

    def _reading(self, entry: object, where: str) -> Reading:
        found = _object(entry, where)
        if "at" not in found:
            raise RuleError([f"{where}: at is missing; write for example at: 1 hour"])
        values = {name: text for name, text in found.items() if name not in ("at", "level")}
        for name, text in values.items():
            if not isinstance(text, str):
                raise RuleError([f"{where}: {name}: {shown(text)} is no text; write one value"])
        level = _level(found.get("level", ""), f"{where}: level")
        return Reading(self._time(found["at"], f"{where}: at"), level, values)

    def _windows(self, field: str) -> Iterator[Span]:
        for number, entry in enumerate(_list(self._entry.get(field, []), field), 1):
            where = f"{field} {number}"
            found = _object(entry, where, _WINDOW_FIELDS)
            for name in _WINDOW_FIELDS:
                if name not in found:
                    raise RuleError([f"{where}: {name} is missing; add it"])
            start, end = (self._time(found[name], f"{where}: {name}") for name in _WINDOW_FIELDS)
            if start >= end:
                raise RuleError([f"{where}: start is not before end; correct one of them"])
            yield start, end

    def _expected(self) -> Iterator[Expected]:
        if "expect" not in self._entry:
            raise RuleError(["expect: is missing; write [] if nothing is expected"])
        for number, entry in enumerate(_list(self._entry["expect"], "expect"), 1):
            where = f"expect {number}"
            found = _object(entry, where, _EXPECT_FIELDS)
            for name in ("transition", "at"):
                if name not in found:
                    raise RuleError([f"{where}: {name} is missing; add it"])
            level = found.get("level")
            if level is not None:
                _choice(level, levels(), f"{where}: level")
            reason = found.get("reason")
            kind = _choice(found["transition"], list(TransitionKind), f"{where}: transition")
            yield Expected(
                transition=TransitionKind(kind),
                at=self._time(found["at"], f"{where}: at"),
                level=level,
                since=self._time(found["since"], f"{where}: since") if "since" in found else None,
                count=_number(found["count"], f"{where}: count") if "count" in found else None,
                text=found.get("text"),
                reason=None
                if reason is None
                else Reason(_choice(reason, list(Reason), f"{where}: reason")),
            )

    def _time(self, value: object, where: str) -> int:
        if isinstance(value, str):
            after, at = parse_duration(value), parse_time(value)
            if after is not None:
                return self._start + after
            if at is not None:
                return at
        raise RuleError(
            [f"{where}: {shown(value)} is no time; write a duration from start, or {START}"]
        )


def _object(value: object, where: str, names: Iterable[str] | None = None) -> Mapping[str, Any]:
    if not isinstance(value, Mapping):
        raise RuleError([f"{where}: is missing, or no object; write names with values"])
    if names is not None:
        for name in value:
            if name not in names:
                raise RuleError([f"{where}: {shown(name)} is no field; {nearest(name, names)}"])
    return value


def _list(value: object, where: str) -> list[Any]:
    if not isinstance(value, list):
        raise RuleError([f"{where}: {shown(value)} is no list; write one"])
    if len(value) > MOST_READINGS:
        raise RuleError([f"{where}: {len(value):,} entries; write {MOST_READINGS:,} at most"])
    return value


def _level(value: object, where: str) -> int | None:
    if isinstance(value, str) and value in _OTHER_LEVELS:
        return _OTHER_LEVELS[value]
    return levels()[_choice(value, [*levels(), "clear", "null"], where)]


def _choice(value: object, names: Iterable[str], where: str) -> str:
    known = list(names)
    if not isinstance(value, str) or value not in known:
        raise RuleError([f"{where}: {shown(value)} is unknown; {nearest(str(value), known)}"])
    return value


def _number(value: object, where: str) -> int:
    if not isinstance(value, str) or not value.isascii() or not value.isdigit() or len(value) > 9:
        raise RuleError([f"{where}: {shown(value)} is no whole number; write for example 2"])
    return int(value)
