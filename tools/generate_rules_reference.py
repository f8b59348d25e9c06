"""Writes ``docs/reference/rules.md`` from the fields of rules, and the rules and timelines of
``docs/rules.md`` from ``examples/rules``.

A block after the comment ``<!-- rule: NAME -->`` shows that rule; one after
``<!-- timeline: NAME -->`` shows what the rule makes of the case of that name.
"""

import dataclasses
import re
from collections.abc import Iterable
from pathlib import Path

from pillion_rules import Reading, Rule, Transition, TransitionKind
from pillion_rules.cases import Case, load_cases, transitions_of
from pillion_rules.durations import HOUR
from pillion_rules.fields import declared
from pillion_rules.maintenance import Span
from pillion_rules.names import level_names

ROOT = Path(__file__).resolve().parent.parent
REFERENCE = ROOT / "docs" / "reference" / "rules.md"
MANUAL = ROOT / "docs" / "rules.md"
EXAMPLES = ROOT / "examples" / "rules"
RULES = EXAMPLES / "weather.yaml"
CASES = EXAMPLES / "cases" / "weather.yaml"
STORM_CASES = CASES.with_name("storm.yaml")

_HEAD = """\
# Fields of rules

<!-- Made by `make generate` from pillion_rules.rule; do not edit. -->

[Rules](../rules.md) explains them. `pillion rules schema` prints the JSON schema. A field that is
not listed here is refused. Durations are texts such as `90 minutes` or `1 hour 30 minutes`, up to
3,660 days; names of severities, types and causes are those of the value maps of
CIM_AlertIndication.

| Field | Type | Default | Meaning |
| --- | --- | --- | --- |
"""
_BLOCK = re.compile(r"<!-- (rule|timeline): ([^>]+) -->\n\n```(yaml|text)\n.*?```", re.DOTALL)


def reference_page() -> str:
    defaults = {one.name: one.default for one in dataclasses.fields(Rule)}
    rows = []
    for name, found, is_required in declared(Rule):
        default = defaults[name]
        text = found.default or (
            "required" if is_required else f"`{default}`" if default else "none"
        )
        rows.append(f"| `{name}` | {found.kind} | {text} | {found.text}. |\n")
    return _HEAD + "".join(rows)


def manual_page(text: str) -> str:
    """The page with its blocks made anew."""
    cases = {case.name: case for case in example_cases()}

    def block(found: re.Match[str]) -> str:
        kind, name, language = found.groups()
        body = rule_text(name) if kind == "rule" else timeline(cases[name])
        return f"<!-- {kind}: {name} -->\n\n```{language}\n{body}```"

    return _BLOCK.sub(block, text)


def example_cases() -> list[Case]:
    """The cases of the examples that give levels."""
    rules = Rule.load(str(EXAMPLES / "*.yaml"))
    return [case for path in (CASES, STORM_CASES) for case in load_cases(path, rules)]


def rule_text(name: str) -> str:
    """The lines of a rule in the examples, as a file of its own."""
    entries = [
        entry
        for file in sorted(EXAMPLES.glob("*.yaml"))
        for entry in file.read_text(encoding="utf-8").split("  - name: ")[1:]
    ]
    entry = next(one for one in entries if one.splitlines()[0] == name)
    return f"rules:\n  - name: {entry.rstrip()}\n"


def timeline(case: Case) -> str:
    """Three lines: hours, levels of readings, transitions; more for what hides these."""
    found = transitions_of(case)
    readings = {one.at: _level(one, case.rule) for one in case.readings}
    told = {one.at: _told(one) for one in found}
    windows = _marked(case.maintenance, "start", "end")
    raised = _marked(case.unless, TransitionKind.RAISED, TransitionKind.CLEARED)
    others = ", ".join(case.rule.unless or ())
    times = sorted({*readings, *told, *windows, *raised, case.until})
    columns = [
        ("hour", "reading", "maintenance" if windows else "", others if raised else "", "alert"),
        *(
            (
                f"{(at - case.start) / HOUR:g}",
                *(of_time.get(at, "") for of_time in (readings, windows, raised, told)),
            )
            for at in times
        ),
    ]
    widths = [max(map(len, column)) + 2 for column in columns]
    lines = [line for line in zip(*columns, strict=True) if any(line)]
    padded = (
        "".join(text.ljust(width) for text, width in zip(line, widths, strict=True))
        for line in lines
    )
    return "".join(f"{line.rstrip()}\n" for line in padded)


def _marked(spans: Iterable[Span], start: str, end: str) -> dict[int, str]:
    return {at: text for span in spans for at, text in zip(span, (start, end), strict=True)}


def _level(reading: Reading, rule: Rule) -> str:
    if rule.is_silent:
        return "any"
    if reading.level is None:
        return "null"
    return level_names().get(reading.level, "clear")


def _told(one: Transition) -> str:
    if one.transition in (TransitionKind.RAISED, TransitionKind.CHANGED):
        return f"{one.transition.value} {one.level}"
    return one.transition.value


def main() -> None:
    REFERENCE.write_text(reference_page(), encoding="utf-8")
    MANUAL.write_text(manual_page(MANUAL.read_text(encoding="utf-8")), encoding="utf-8")


if __name__ == "__main__":
    main()
