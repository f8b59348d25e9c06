"""The figures on the manual's page of injection are those of the source."""

import pytest

from pillion_operator.certificates.authority import CA_SECONDS, OVERLAP, SERVING_SECONDS
from pillion_operator.injection.container import (
    DRAIN_SECONDS,
    INTAKE_PORT,
    STOP_MARGIN_SECONDS,
    TELEMETRY_PORT,
)
from pillion_operator.injection.decision import SYSTEM_NAMESPACES
from pillion_operator.injection.missed import (
    FIRST_PAUSE,
    INTERVAL,
    LONGEST_PAUSE,
    MOST_EVICTIONS,
    REASON,
)
from pillion_operator.injection.patch import UNPRIVILEGED_USER
from support.manual import text_of


@pytest.mark.parametrize(
    "sentence",
    [
        f"it runs as user {UNPRIVILEGED_USER}",
        f"and {DRAIN_SECONDS + STOP_MARGIN_SECONDS} seconds more",
        f"for at most {DRAIN_SECONDS} seconds. Intake stays open",
        f"Ports {INTAKE_PORT} and {TELEMETRY_PORT}",
        f"Every {INTERVAL:g} seconds",
        f"Event `{REASON}`",
        f"at most {MOST_EVICTIONS} in each",
    ],
)
def test_a_figure_is_the_constant(sentence: str) -> None:
    assert sentence in " ".join(text_of("injection.md").split())


def test_figures_in_words_are_the_constants() -> None:
    year, hour = 365 * 86_400, 3600
    assert (10 * year, year, hour) == (CA_SECONDS, SERVING_SECONDS, OVERLAP)
    assert (60, hour) == (FIRST_PAUSE, LONGEST_PAUSE)


def test_every_namespace_that_is_left_out_is_named() -> None:
    assert all(name in text_of("injection.md") for name in SYSTEM_NAMESPACES)
