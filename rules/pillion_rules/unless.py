"""``unless``: rules that are judged before others, and hide what these tell."""

from collections.abc import Iterator, Mapping, Sequence
from graphlib import CycleError, TopologicalSorter
from itertools import pairwise

from pillion_rules.errors import nearest, shown
from pillion_rules.maintenance import Span, joined
from pillion_rules.rule import Rule
from pillion_rules.state import FOREVER

#: Fields that a rule has in common with the rules of its ``unless``.
_SAME = ("input", "keys", "event_time")


def unless_problems(rules: Sequence[Rule]) -> Iterator[str]:
    """What is wrong with ``unless`` of rules that are judged together."""
    known = {rule.name: rule for rule in rules}
    for rule in rules:
        for name in rule.unless or ():
            where = f"rule {rule.name}: unless:"
            if name not in known:
                others = [one for one in known if one != rule.name]
                hint = nearest(name, others) if others else "give this rule, too, or remove it"
                yield f"{where} no rule has the name {shown(name)}; {hint}"
                continue
            for field in _SAME:
                if getattr(known[name], field) != getattr(rule, field):
                    yield f"{where} {name} has another {field}; give both the same, or remove it"
    try:
        TopologicalSorter(_graph(known)).prepare()
    except CycleError as error:
        # Each is named by the next one.
        names = error.args[1][::-1]
        chain = ", ".join(f"{one} names {other}" for one, other in pairwise(names))
        yield f"rule {names[0]}: unless: a cycle: {chain}; remove one of these names"


def judging_order(rules: Sequence[Rule]) -> Sequence[int]:
    """The places of rules without problems, those first that others name; else as they are."""
    known = {rule.name: rule for rule in rules}
    depths: dict[str, int] = {}
    for name in TopologicalSorter(_graph(known)).static_order():
        depths[name] = max((depths[one] + 1 for one in known[name].unless or ()), default=0)
    return sorted(range(len(rules)), key=lambda place: depths[rules[place].name])


def named_by(rule: Rule, rules: Mapping[str, Rule]) -> Sequence[Rule]:
    """The rules that decide what a rule tells, by any number of ``unless``; unknown names are left
    out."""
    found: dict[str, Rule] = {}
    left = [*(rule.unless or ())]
    while left:
        name = left.pop()
        if name in rules and name not in found and name != rule.name:
            found[name] = rules[name]
            left += rules[name].unless or ()
    return [*found.values()]


def spans_of(turns: Sequence[int]) -> Sequence[Span]:
    """The spans between the times at which an alert was raised, cleared, raised, and so on."""
    ends = [*turns[1::2], FOREVER][: len(turns[::2])]
    return joined(one for one in zip(turns[::2], ends, strict=True) if one[0] < one[1])


def turns_after(turns: Sequence[int], through: int) -> list[int]:
    """What of turns is known by nothing else once everything up to a time was taken: that an alert
    is raised is in its state. By the clock alerts are ahead of the readings."""
    pairs = zip(turns[::2], turns[1::2], strict=False)
    left = [at for begin, end in pairs if end > through for at in (begin, end)]
    if len(turns) % 2 and (left or turns[-1] > through):
        left.append(turns[-1])
    return left


def _graph(rules: Mapping[str, Rule]) -> Mapping[str, Sequence[str]]:
    return {
        name: [one for one in rule.unless or () if one in rules] for name, rule in rules.items()
    }
