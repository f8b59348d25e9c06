"""The page of the operator's performance says what the source and the benchmark do."""

from benchmarks import bench_operator, operator_changes, operator_webhook
from cluster import population
from pillion_operator.controllers.filter_and_subscription import LONGEST, QUIET
from pillion_operator.controllers.readiness import GRACE
from pillion_operator.controllers.triggers import SETTLE
from support.manual import table, text_of

PAGE = "performance.md"


def told() -> str:
    """The page in one line."""
    return " ".join(text_of(PAGE).split())


def test_the_goals_are_those_that_are_measured() -> None:
    goals = " ".join(row[0] for row in table(PAGE, "goal"))
    for goal in (
        f"{population.SUBSCRIPTIONS:,} subscriptions applied at once: all Ready "
        f"≤ {bench_operator.APPLY_GOAL:g} s",
        f"resident ≤ {bench_operator.MEMORY_GOAL:g} MiB",
        f"in the configurations, p99 ≤ {operator_changes.GOAL:g} s",
        f"1 at once, p99 ≤ {operator_webhook.GOAL * 1e3:g} ms",
        f"{operator_webhook.TOGETHER} at once, p99 ≤ {operator_webhook.GOAL * 1e3:g} ms",
        f"{population.OBJECTS * 4:,} objects ≤ {bench_operator.RESYNC_GOAL:g} s, no write",
    ):
        assert goal in goals


def test_what_is_measured_is_what_is_told() -> None:
    assert population.services_of(7) == sorted(set(population.services_of(7)))
    assert len(population.services_of(7)) == 5
    page = told()
    for words in (
        f"over {population.DESTINATIONS} destinations, {population.FILTERS} filters and "
        f"{population.SERVICES} services",
        f"{population.AT_ONCE} server-side applies at a time",
        f"of all {population.OBJECTS:,} objects",
        f"Every {operator_changes.EVERY * 1e3:g} ms another destination gets another URL, "
        f"{operator_changes.CHANGES} times",
        f"{operator_changes.LOADS} changes of destinations",
    ):
        assert words in page


def test_the_operators_own_waits_are_told() -> None:
    assert (QUIET, LONGEST) == (1.0, 10.0)
    page = told()
    assert "for a second after the last new object of the namespace, for ten at most" in page
    assert f"the {SETTLE * 1e3:g} ms for which the operator waits" in page
    assert f"within {GRACE:g} s" in page
