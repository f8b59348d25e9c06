"""The descriptors of a process, and who may use how many."""

import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.descriptors import (
    FEWEST_OUTGOING,
    INTAKE_CONNECTIONS,
    KEPT_BACK,
    MOST_DESCRIPTORS,
    SMALL_CONNECTIONS,
    DescriptorShares,
)


@given(st.integers(min_value=256, max_value=1 << 20))
def test_the_shares_fit_and_some_descriptors_are_kept_back(available: int) -> None:
    shares = DescriptorShares.of(available)
    used = shares.intake + shares.telemetry + shares.administration + shares.outgoing
    assert used + KEPT_BACK <= available
    assert shares.outgoing >= FEWEST_OUTGOING


def test_ten_thousand_destinations_have_a_connection_each_at_the_raised_limit() -> None:
    shares = DescriptorShares.of(MOST_DESCRIPTORS - 64)
    assert shares.outgoing > 6 * 10_000
    assert (shares.intake, shares.telemetry) == (INTAKE_CONNECTIONS, SMALL_CONNECTIONS)


def test_few_descriptors_leave_each_part_some() -> None:
    shares = DescriptorShares.of(0)
    assert min(shares.intake, shares.telemetry, shares.administration, shares.outgoing) > 0


@pytest.mark.parametrize(("available", "outgoing"), [(0, 4), (30, 10), (60, 16), (220, 16)])
def test_few_descriptors_are_not_all_for_connections_to_listeners(
    available: int, outgoing: int
) -> None:
    assert DescriptorShares.of(available).outgoing == outgoing


PROGRAM = """
import resource
from pillion_sidecar.descriptors import DescriptorShares, raise_limit
resource.setrlimit(resource.RLIMIT_NOFILE, ({soft}, {hard}))
raise_limit()
print(resource.getrlimit(resource.RLIMIT_NOFILE)[0], DescriptorShares.of_process().available)
"""


@pytest.mark.parametrize(("soft", "hard"), [(256, 4096), (300, 300)])
def test_the_soft_limit_becomes_the_hard_one_and_what_is_open_is_not_divided(
    soft: int, hard: int
) -> None:
    program = PROGRAM.format(soft=soft, hard=hard)
    said = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    limit, available = map(int, said.stdout.split())
    assert limit == hard
    assert hard - 32 < available < hard
