from typing import Any

import pytest

from pillion_operator.names import DELIVERER_LABEL
from pillion_operator.polling.reports import NO_TOKEN, DelivererReport, Unreachable
from pillion_operator.status.deliverers import (
    DelivererCounts,
    count_deliverers,
    count_fields,
    injection_condition,
    ready_condition,
)


def pod(name: str, **changes: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {
        "name": name,
        "labels": {DELIVERER_LABEL: changes.get("service", "default")},
    }
    if changes.get("ending"):
        metadata["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    return {"metadata": metadata, "status": {"phase": changes.get("phase", "Running")}}


def report(name: str, revision: str | None = "two") -> DelivererReport:
    return DelivererReport(pod=name, revision=revision, queues={}, at=0.0)


def silence(name: str, reason: str = "timed out") -> Unreachable:
    return Unreachable(pod=name, reason=reason, since=0.0)


def counts(ready: int = 0, behind: int = 0, starting: int = 0, unreachable: int = 0) -> Any:
    return DelivererCounts(
        deliverers=ready + behind + starting + unreachable,
        ready=ready,
        behind=behind,
        starting=starting,
        unreachable=unreachable,
    )


def test_deliverers_are_counted_by_what_they_report() -> None:
    pods = [
        *(pod(name) for name in ("ready", "as-good", "behind", "starting", "silent", "new")),
        pod("pending", phase="Pending"),
        pod("ending", ending=True),
        pod("done", phase="Succeeded"),
        pod("failed", phase="Failed"),
        pod("other", service="other"),
        {"metadata": {"name": "plain"}},
    ]
    reports: list[DelivererReport | Unreachable] = [
        report("ready"),
        report("as-good", "one"),
        report("behind", "zero"),
        report("starting", None),
        silence("silent"),
        # Its token comes with its configuration.
        silence("new", NO_TOKEN),
        report("ending"),
        report("vanished"),
    ]

    counted = count_deliverers(pods, reports, service="default", revisions={"two", "one"})

    assert counted == DelivererCounts(deliverers=7, ready=2, behind=1, starting=2, unreachable=1)


@pytest.mark.parametrize(
    ("counted", "status", "reason"),
    [
        (counts(), "True", "NoDeliverers"),
        (
            DelivererCounts(deliverers=2, ready=0, behind=0, starting=0, unreachable=0),
            "True",
            "NoDeliverers",
        ),
        (counts(ready=2), "True", "InForce"),
        (counts(ready=2, unreachable=3), "True", "InForce"),
        (counts(ready=2, starting=1), "True", "InForce"),
        (counts(ready=2, behind=1), "False", "RollingOut"),
        (counts(behind=1, unreachable=1), "False", "RollingOut"),
        (counts(starting=1), "False", "RollingOut"),
        (counts(unreachable=3), "True", "Unreported"),
    ],
    ids=str,
)
def test_ready_is_about_those_that_serve_and_can_be_reached(
    counted: DelivererCounts, status: str, reason: str
) -> None:
    condition = ready_condition(counted)

    assert (condition.type, condition.status, condition.reason) == ("Ready", status, reason)


def test_those_that_cannot_be_reached_are_told_of() -> None:
    assert "Others do not answer" in ready_condition(counts(ready=1, unreachable=3)).message
    assert "Others do not answer" in ready_condition(counts(behind=1, unreachable=3)).message
    assert "do not answer" not in ready_condition(counts(behind=1)).message
    assert "No deliverer answers" in ready_condition(counts(unreachable=3)).message
    assert ready_condition(counts(behind=2, starting=1)).message.startswith("3 deliverer(s)")


def test_one_more_that_cannot_be_reached_changes_nothing_that_is_said_of_all_objects() -> None:
    # They are not looked at again: see ``running_on``.
    assert ready_condition(counts(unreachable=1)) == ready_condition(counts(unreachable=2))
    one, two = (ready_condition(counts(ready=1, unreachable=number)) for number in (1, 2))
    assert one == two


def test_a_pod_that_was_missed_is_named() -> None:
    missed = injection_condition(3, ["b", "a"])

    assert (missed.status, missed.reason) == ("False", "PodsMissed")
    assert missed.message.startswith("a, b should have")


def test_only_some_of_many_missed_pods_are_named() -> None:
    missed = injection_condition(0, [f"pod-{number}" for number in range(9)])

    assert "pod-4 and 4 more" in missed.message
    assert "pod-5" not in missed.message


@pytest.mark.parametrize(("injected", "reason"), [(0, "NoPods"), (4, "AllInjected")])
def test_an_injection_without_a_miss_is_complete(injected: int, reason: str) -> None:
    condition = injection_condition(injected, [])

    assert (condition.status, condition.reason) == ("True", reason)


def test_the_counts_are_fields_of_status() -> None:
    counted = counts(ready=2, behind=1, unreachable=1)
    assert count_fields(counted, ready="2/4", injected=3, missing=1) == {
        "ready": "2/4",
        "deliverers": 4,
        "readyDeliverers": 2,
        "unreachableDeliverers": 1,
        "injected": 3,
        "missing": 1,
    }
    assert "injected" not in count_fields(counts(), ready="0/0", injected=None, missing=None)
