"""What is said of a revision that is not taken over: once, and as what it is."""

import pytest

from pillion_sidecar.clock import SystemClock
from pillion_sidecar.config.problems import EMPTY, INCOMPLETE, ConfigurationError, Problem
from pillion_sidecar.delivery.table import TooManyDestinations
from pillion_sidecar.revisions import Refusals
from pillion_sidecar.telemetry.metrics import Metrics

AWAITED = "no configuration is loaded: no complete one has come yet"
REFUSED = "no configuration is loaded: what has come was refused, and the log says why"


def error(reason: str, message: str = "is wrong") -> ConfigurationError:
    return ConfigurationError([Problem(reason=reason, message=message, remedy="Mend it.")])


class Refused:
    """Refusals of a deliverer that has no configuration yet."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level("INFO")
        self.configured = False
        self._caplog = caplog
        self._metrics = Metrics(clock=SystemClock(), version="0", queues=lambda: [])
        self.rules = Refusals(metrics=self._metrics, configured=lambda: self.configured)

    @property
    def said(self) -> list[str]:
        return [f"{one.levelname} {one.event} {one.getMessage()}" for one in self._caplog.records]  # type: ignore[attr-defined]

    @property
    def failures(self) -> int:
        """How many revisions the metrics have as refused."""
        begin = 'pillion_configuration_reloads_total{outcome="failure"} '
        text = "".join(self._metrics.exposition())
        (count,) = [line for line in text.splitlines() if line.startswith(begin)]
        return int(count.removeprefix(begin))


@pytest.fixture
def refused(caplog: pytest.LogCaptureFixture) -> Refused:
    return Refused(caplog)


@pytest.mark.parametrize("reason", [INCOMPLETE, EMPTY])
def test_at_the_start_what_has_not_come_yet_is_awaited(refused: Refused, reason: str) -> None:
    refused.rules.note(error(reason))
    assert refused.said == [
        "INFO configuration-awaited the configuration has not come yet: is wrong. Mend it."
    ]
    assert refused.failures == 0
    assert refused.rules.problem() == AWAITED


def test_later_on_only_a_part_is_awaited_and_a_folder_that_was_emptied_is_refused(
    refused: Refused,
) -> None:
    refused.configured = True
    refused.rules.note(error(INCOMPLETE))
    assert refused.failures == 0
    refused.rules.note(error(EMPTY, "is empty"))
    assert refused.failures == 1
    assert refused.said[1] == (
        "ERROR configuration-refused the changed resources are not taken over: is empty. Mend it."
    )
    # What is in force is loaded all the same.
    assert refused.rules.problem() is None


@pytest.mark.parametrize(
    "wrong", [error("Invalid"), TooManyDestinations(3, maximum=2)], ids=["invalid", "too many"]
)
def test_what_is_wrong_is_refused_and_what_it_is_stands_in_the_log_alone(
    refused: Refused, wrong: ConfigurationError | TooManyDestinations
) -> None:
    refused.rules.note(wrong)
    assert refused.said == [
        f"ERROR configuration-refused the first resources are not taken over: {wrong}"
    ]
    assert refused.failures == 1
    assert refused.rules.problem() == REFUSED


def test_what_is_met_again_is_said_once_until_something_else_comes(refused: Refused) -> None:
    refused.rules.note(error("Invalid"))
    refused.rules.note(error("Invalid"))
    assert refused.failures == 1
    refused.rules.note(error("Invalid", "is wrong too"))
    refused.rules.note(error("Invalid"))
    assert refused.failures == 3
    refused.rules.clear()
    assert refused.rules.last is None
    refused.rules.note(error("Invalid"))
    assert refused.failures == 4
    assert len(refused.said) == 4
