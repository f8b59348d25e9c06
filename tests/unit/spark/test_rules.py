"""The task of ``transitions()``, without Spark: rows in order to transitions."""

import json
from itertools import product
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_rules import Reading, Rule
from pillion_rules.durations import MINUTE
from pyspark_pillion import stepping
from pyspark_pillion.judging import grouped
from support.rules_reference import expected

RULES = (
    Rule(
        "held",
        keys=["k"],
        event_time="t",
        severity={"Major": "a", "Minor": "b"},
        hold="4 minutes",
        max_gap="3 minutes",
        keep="5 minutes",
        repeat="7 minutes",
        forget="1 hour",
    ),
    Rule("plain", keys=["k"], event_time="t", severity={"Major": "a"}, forget="1 hour"),
    Rule(
        "silent", keys=["k"], event_time="t", severity="Minor", silent="6 minutes", forget="1 hour"
    ),
)
READINGS = st.lists(
    st.tuples(st.integers(0, 90), st.sampled_from([None, 0, 4, 5])), min_size=1, max_size=25
)


@settings(max_examples=100)
@given(keys=st.dictionaries(st.sampled_from("xyz"), READINGS, min_size=1), cut=st.integers(0, 90))
def test_each_key_gives_what_the_model_without_state_tells(
    keys: dict[str, list[tuple[int, int | None]]], cut: int
) -> None:
    until = cut * MINUTE
    (group,) = grouped(RULES)
    rows: list[Any] = [
        (json.dumps([group, key]), at * MINUTE, [level] * len(RULES), [])
        for key, readings in sorted(keys.items())
        for at, level in sorted(readings, key=lambda pair: pair[0])
    ]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(stepping, "_PART", 3)
        groups = stepping.RuleGroups(RULES)
        found = list(stepping.batch_transitions(groups, iter(rows), until=until))
    for rule, (key, readings) in product(RULES, keys.items()):
        told = [
            (one.transition.value, one.level, one.at, one.since, one.count, one.raised_at)
            for one in found
            if (one.rule, one.key) == (rule.name, (key,))
        ]
        given_now = [Reading(at * MINUTE, level) for at, level in readings if at <= cut]
        assert sorted(told) == sorted(expected(rule, given_now, until=until))
