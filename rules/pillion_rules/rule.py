"""A rule: data that says when an alert is raised, changed, repeated and cleared."""

import dataclasses
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, field
from pathlib import Path
from typing import Any

from pillion_rules.durations import DAY, parse_duration
from pillion_rules.errors import RuleError, nearest, shown
from pillion_rules.fields import Kind, about, declared, problems_of, schema_of, text_of
from pillion_rules.files import load_entries
from pillion_rules.names import levels
from pillion_rules.templates import names_in, parse_template

#: Maximum repeats of one alert without a reading.
MOST_REPEATS = 10_000
#: Maximum parts of a window that no boundary of another one cuts.
MOST_PANES = 1_440
#: Fields that a rule with ``silent`` has no use for.
_NOT_WITH_SILENT = (
    *("clear", "hold", "max_gap", "keep"),
    *("window", "slide", "measure", "rate", "per"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Durations:
    """The durations of a rule in microseconds; None: not in the rule."""

    hold: int
    keep: int
    repeat: int | None
    silent: int | None
    max_gap: int | None
    forget: int
    watermark: int
    ahead: int
    max_age: int
    window: int | None
    #: Without windows 0.
    slide: int
    #: Without rates 0.
    per: int


# No slots: the class has fields with defaults, which Rule.load and the manual read from it.
@dataclass(frozen=True)
class Rule:
    """Checked when it is made: raises RuleError with every problem.

    ::

        Rule("weather.gale", keys=["origin"], event_time="time_hour",
             severity={"Critical": "wind_gust > 60", "Minor": "wind_gust > 40"},
             clear="wind_gust < 30", keep="3 hours", message="{origin}: gusts of {wind_gust} mph")
    """

    name: str = field(
        metadata=about(Kind.NAME, "Name of the rule: part of the identity of every transition")
    )
    _: KW_ONLY
    keys: Sequence[str] = field(
        metadata=about(Kind.COLUMNS, "Columns whose values tell two objects apart")
    )
    event_time: str = field(metadata=about(Kind.COLUMN, "Column with the time of a reading"))
    # Conditions are texts; in Python, a Column of pyspark becomes its text, see ColumnText.
    severity: str | Mapping[str, Any] = field(
        metadata=about(
            Kind.SEVERITY,
            "Condition of each severity, as SQL or, in Python, a Column; the highest that holds "
            "counts. One severity alone for a rule with `silent`",
        )
    )
    clear: Any = field(
        default=None,
        metadata=about(
            Kind.EXPRESSION,
            "Condition under which the alert is over, as SQL or, in Python, a Column",
            default="every condition of `severity` is false",
        ),
    )
    hold: str | None = field(
        default=None,
        metadata=about(Kind.DURATION, "How long a severity must hold before the alert is raised"),
    )
    max_gap: str | None = field(
        default=None,
        metadata=about(
            Kind.DURATION, "Longest time between two readings with a severity that `hold` spans"
        ),
    )
    keep: str | None = field(
        default=None,
        metadata=about(
            Kind.DURATION, "How long readings must be clear before the alert is cleared"
        ),
    )
    repeat: str | None = field(
        default=None,
        metadata=about(Kind.DURATION, "Time after which an alert that lasts is sent again"),
    )
    silent: str | None = field(
        default=None,
        metadata=about(Kind.DURATION, "Time without a reading after which the alert is raised"),
    )
    forget: str = field(
        default="30 days",
        metadata=about(
            Kind.DURATION,
            "Time without a reading after which the state of a key is removed, and its alert "
            "cleared",
        ),
    )
    message: str = field(
        default="{rule}",
        metadata=about(Kind.MESSAGE, "Text of the transitions, with names of columns in braces"),
    )
    alert_type: str = field(
        default="Quality of Service Alert",
        metadata=about(Kind.ALERT_TYPE, "AlertType of the indications"),
    )
    cause: str | None = field(
        default=None,
        metadata=about(
            Kind.CAUSE,
            "ProbableCause of the indications",
            default="`Threshold Crossed`; `Timeout` with `silent`",
        ),
    )
    watermark: str = field(
        default="1 minute",
        metadata=about(
            Kind.DELAY,
            "How far the time of a reading may be behind that of the newest one. Transitions of a "
            "stream are later by as much",
        ),
    )
    input: str | None = field(
        default=None,
        metadata=about(Kind.NAME, "Which of several inputs the rule reads, by its name"),
    )
    window: str | None = field(
        default=None,
        metadata=about(Kind.DURATION, "Length of the windows of `measure`"),
    )
    slide: str | None = field(
        default=None,
        metadata=about(
            Kind.DURATION,
            "Time between the starts of two windows",
            default="`window`",
        ),
    )
    measure: Mapping[str, str] | None = field(
        default=None,
        metadata=about(Kind.EXPRESSIONS, "Aggregates of each window, as SQL, by name"),
    )
    rate: Mapping[str, str] | None = field(
        default=None,
        metadata=about(
            Kind.EXPRESSIONS,
            "Values whose change since the last reading is judged, as SQL, by name",
        ),
    )
    per: str | None = field(
        default=None,
        metadata=about(Kind.DURATION, "Time to which a change of `rate` refers"),
    )
    ahead: str = field(
        default="5 minutes",
        metadata=about(
            Kind.DURATION,
            "How far ahead of the clock the time of a reading may be. In a stream without a "
            "watermark of its own, a reading beyond is left out and counted",
        ),
    )
    max_age: str | None = field(
        default=None,
        metadata=about(
            Kind.DURATION,
            "Age of a transition, when the job starts, beyond which `raise_alerts` does not send "
            "it, unless the alert still lasts when the readings are as new as that",
            default="1 day, and the longest watermark",
        ),
    )
    # Not in the text of a rule, by which a state knows whether the rule was edited.
    unless: Sequence[str] | None = field(
        default=None,
        repr=False,
        metadata=about(
            Kind.NAMES,
            "Other rules of the same `input`, `keys` and `event_time`: while one of them is "
            "raised, nothing of this rule is sent but the clear of an alert that was sent",
        ),
    )
    durations: Durations = field(init=False, repr=False, compare=False)
    #: Columns in the message.
    columns: frozenset[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        given = self.severity
        if isinstance(given, Mapping):
            given = {name: text_of(one) for name, one in given.items()}
        object.__setattr__(self, "severity", text_of(given))
        object.__setattr__(self, "clear", text_of(self.clear))
        problems = [*self._wrong_values()]
        # Whether values fit together is known of right values alone.
        problems = problems or [*self._contradictions()]
        if problems:
            name = shown(self.name).strip("'")
            raise RuleError(f"rule {name}: {problem}" for problem in problems)
        object.__setattr__(self, "keys", tuple(self.keys))
        if self.unless is not None:
            object.__setattr__(self, "unless", tuple(self.unless))
        object.__setattr__(self, "durations", self._durations())
        object.__setattr__(self, "columns", names_in(parse_template(self.message)))

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> "Rule":
        """Make a rule of plain values, as a file has them. Raises RuleError."""
        name = shown(values.get("name", "without a name")).strip("'")
        known = {one: is_required for one, _, is_required in declared(cls)}
        problems = [
            f"rule {name}: {shown(one)} is no field; {nearest(str(one), known)}"
            for one in values
            if one not in known
        ]
        problems += [
            f"rule {name}: {one} is missing; add it"
            for one, is_required in known.items()
            if is_required and one not in values
        ]
        if problems:
            raise RuleError(problems)
        return cls(**values)

    @classmethod
    def load(cls, paths: str | Path) -> tuple["Rule", ...]:
        """Read the rules of a YAML file, or of all files of a pattern such as ``rules/*.yaml``.

        Raises RuleError, also if two rules have one name."""
        return load_entries(paths, "rules", cls.of)

    @property
    def is_silent(self) -> bool:
        """Whether the rule watches for the absence of readings."""
        return self.silent is not None

    @property
    def is_measuring(self) -> bool:
        """Whether conditions are of windows or rates, and not of each reading alone."""
        return self.measure is not None or self.rate is not None

    @property
    def probable_cause(self) -> str:
        return self.cause or ("Timeout" if self.is_silent else "Threshold Crossed")

    @property
    def silent_level(self) -> int:
        """The level of a rule with ``silent``."""
        assert isinstance(self.severity, str)
        return levels()[self.severity]

    def _wrong_values(self) -> Iterator[str]:
        for name, about_it, is_required in declared(type(self)):
            value = getattr(self, name)
            if value is None and not is_required and _has_no_default(name):
                continue
            yield from (f"{name}: {problem}" for problem in problems_of(about_it.kind, value))

    def _contradictions(self) -> Iterator[str]:
        if self.is_silent:
            yield from (
                f"{name}: not with silent; remove one of the two"
                for name in _NOT_WITH_SILENT
                if getattr(self, name) is not None
            )
        if self.is_silent is not isinstance(self.severity, str):
            yield (
                "severity: with silent it is one name; write for example Major"
                if self.is_silent
                else f"severity: {self.severity} has no condition; write {{{self.severity}: SQL}}"
            )
        for name, needed in (
            ("max_gap", "hold"),
            ("slide", "window"),
            ("window", "measure"),
            ("measure", "window"),
            ("rate", "per"),
            ("per", "rate"),
        ):
            if getattr(self, name) is not None and getattr(self, needed) is None:
                yield f"{name}: only with {needed}; add {needed}, or remove {name}"
        if self.window is not None and self.rate is not None:
            yield "rate: not with window; make two rules"
        if self.name in (self.unless or ()):
            yield "unless: names the rule itself; remove it"
        for name in {**(self.measure or {}), **(self.rate or {})}:
            if name in self.keys:
                yield f"measure or rate: {name} is one of keys; use another name"
        yield from self._durations_that_do_not_fit()

    def _durations_that_do_not_fit(self) -> Iterator[str]:
        found = self._durations()
        if found.max_gap is not None and found.max_gap >= found.hold > 0:
            yield f"max_gap: has no effect, as it is not shorter than hold ({self.hold}); use less"
        for name in ("hold", "keep", "silent", "window"):
            if (getattr(found, name) or 0) >= found.forget:
                yield f"{name}: must be shorter than forget ({self.forget}); raise forget"
        if found.max_age <= found.watermark:
            yield f"max_age: must be longer than watermark ({self.watermark}); raise max_age"
        if found.repeat is not None and found.forget // found.repeat > MOST_REPEATS:
            yield (
                f"repeat: more than {MOST_REPEATS:,} repeats before forget ({self.forget}); "
                "use a longer repeat, or a shorter forget"
            )
        if found.window is not None:
            if found.slide > found.window:
                yield f"slide: longer than window ({self.window}) leaves readings out; use less"
            if found.window // math.gcd(found.window, found.slide) > MOST_PANES:
                yield (
                    f"slide: a window of {self.window} would have more than {MOST_PANES:,} parts; "
                    "use a longer slide that divides window"
                )

    def _durations(self) -> Durations:
        watermark = _needed(self.watermark)
        max_age = _micros(self.max_age)
        return Durations(
            hold=_micros(self.hold) or 0,
            keep=_micros(self.keep) or 0,
            repeat=_micros(self.repeat),
            silent=_micros(self.silent),
            max_gap=_micros(self.max_gap),
            forget=_needed(self.forget),
            watermark=watermark,
            ahead=_needed(self.ahead),
            max_age=watermark + DAY if max_age is None else max_age,
            window=_micros(self.window),
            slide=_micros(self.slide) or _micros(self.window) or 0,
            per=_micros(self.per) or 0,
        )


def _has_no_default(name: str) -> bool:
    return any(one.name == name and one.default is None for one in dataclasses.fields(Rule))


def _micros(text: str | None) -> int | None:
    return None if text is None else parse_duration(text)


def _needed(text: str) -> int:
    found = parse_duration(text)
    assert found is not None
    return found


def schema() -> dict[str, Any]:
    """The JSON schema (2020-12) of a file of rules, made from the fields of :class:`Rule`."""
    fields = list(declared(Rule))
    rule = {
        "type": "object",
        "properties": {
            name: {"description": found.text, **schema_of(found.kind)} for name, found, _ in fields
        },
        "required": [name for name, _, is_required in fields if is_required],
        "additionalProperties": False,
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "Rules of Pillion",
        "type": "object",
        "properties": {"rules": {"type": "array", "minItems": 1, "items": rule}},
        "required": ["rules"],
        "additionalProperties": False,
    }
