"""What a rule does, in plain sentences."""

from collections.abc import Iterator, Mapping

from pillion_rules.names import levels
from pillion_rules.rule import Rule


def explain(rule: Rule) -> list[str]:
    """Sentences in the order in which an alert lives."""
    return [*_subject(rule), *_raising(rule), *_lasting(rule), *_clearing(rule), *_sending(rule)]


def _subject(rule: Rule) -> Iterator[str]:
    of = f" of the input {rule.input}" if rule.input else ""
    yield f"It reads {rule.event_time} as the time of each reading{of}."
    yield f"Each value of {_keys(rule)} has an alert of its own."
    if rule.measure is not None:
        slide = f", of which one begins every {rule.slide}" if rule.slide else ""
        yield f"It judges windows of {rule.window}{slide}: {_named(rule.measure)}."
    if rule.rate is not None:
        change = f"the change per {rule.per} since the last reading"
        yield f"It judges {change}: {_named(rule.rate)}."


def _raising(rule: Rule) -> Iterator[str]:
    if isinstance(rule.severity, str):
        after = f"after {rule.silent} without a reading"
        yield f"An alert of severity {rule.severity} is raised {after}."
        return
    conditions = rule.severity
    for name in sorted(conditions, key=lambda one: -levels()[one]):
        yield f"The severity is {name} when {_one_line(conditions[name])}."
    if len(conditions) > 1:
        yield "If several conditions hold, the highest severity counts."
    if rule.hold is None:
        yield f"An alert is raised at the first {_judged(rule)} with a severity."
    else:
        yield f"An alert is raised when {_judged(rule)}s have had a severity for {rule.hold}."
    if rule.max_gap is not None:
        yield f"That time begins again after {rule.max_gap} without such a {_judged(rule)}."
    yield f"A {_judged(rule)} for which a condition is null, and none holds, changes nothing."


def _lasting(rule: Rule) -> Iterator[str]:
    if not rule.is_silent:
        yield f"While it lasts, a {_judged(rule)} with another severity changes it at once."
    if rule.repeat is not None:
        yield f"While it lasts, it is sent again every {rule.repeat}."


def _clearing(rule: Rule) -> Iterator[str]:
    if rule.is_silent:
        yield "The next reading clears it."
    else:
        when = _one_line(rule.clear) if rule.clear else "every condition above is false"
        if rule.keep is None:
            yield f"It is cleared at the first {_judged(rule)} for which {when}."
        else:
            after = f"and no severity follows for {rule.keep}"
            yield f"It is cleared when {when} for a {_judged(rule)}, {after}."
    yield f"After {rule.forget} without a reading it is cleared and the state removed."


def _sending(rule: Rule) -> Iterator[str]:
    if rule.unless:
        while_raised = f"While {' or '.join(rule.unless)} is raised for the same {_keys(rule)}"
        yield f"{while_raised}, nothing is sent but the clear of an alert that was sent."
        yield "What it is at the end of that time is sent then."
    yield f"Readings may arrive {rule.watermark} later than newer ones."
    yield f"Its text is: {_one_line(rule.message)}"
    yield f"Its AlertType is {rule.alert_type}, its ProbableCause {rule.probable_cause}."


def _keys(rule: Rule) -> str:
    return " and ".join(rule.keys)


def _judged(rule: Rule) -> str:
    return "reading" if rule.measure is None else "window"


def _named(expressions: Mapping[str, str]) -> str:
    return ", ".join(f"{name} is {_one_line(one)}" for name, one in expressions.items())


def _one_line(text: str) -> str:
    return " ".join(text.split())
