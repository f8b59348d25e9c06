"""Destination queues as a deliverer tells of them, for the tests of those who read that."""

from typing import Any

from pillion_sidecar.wire.queues import Moment, OutcomeStatus, QueueStatus

NOW = 1_800_000_000.0


def told(name: str = "siem", **members: Any) -> QueueStatus:
    """A queue without trouble, but for ``members``."""
    usual = {"depth": 0, "capacity": 1_000_000, "high_water": 0}
    return QueueStatus(name=name, **{**usual, **members})


def failing(
    name: str = "siem", *, detail: str = "HTTP 503", cause: str | None = None, **members: Any
) -> QueueStatus:
    """One whose listener has failed for a minute."""
    return told(
        name,
        **{
            "depth": 1,
            "failing_since": Moment(NOW - 60),
            "last_result": OutcomeStatus(result="error", cause=cause, detail=detail),
            **members,
        },
    )


def slow(name: str = "siem", **members: Any) -> QueueStatus:
    """One whose listener has been slow for 15 seconds."""
    rates = {"accepted_per_second": 512.3, "delivered_per_second": 9.71}
    return told(name, **{"slow_since": Moment(NOW - 15), **rates, **waiting(25), **members})


def waiting(seconds: float, **members: Any) -> dict[str, Any]:
    """Members of a queue whose oldest indication has waited for so long."""
    return {
        "depth": 5,
        "oldest_indication_age_seconds": seconds,
        "oldest_indication_time": Moment(NOW - seconds),
        **members,
    }
