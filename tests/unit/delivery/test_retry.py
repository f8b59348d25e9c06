import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.durability import (
    RETRY_ON_DISK,
    duplicate_window,
    effective_lifetime,
    effective_retry,
    interval_after,
    retry_span,
    waits,
)
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import Backoff, RetryPolicy
from pillion_sidecar.config.schema.service import Durability, IndicationService
from pillion_sidecar.delivery.retry import retry_wait
from support.delivery import destination

FIXED = RetryPolicy(attempts=3, interval_seconds=30.0)
EXPONENTIAL = RetryPolicy(
    attempts=5, interval_seconds=10.0, backoff=Backoff.EXPONENTIAL, maximum_interval_seconds=60.0
)


def wait(policy: RetryPolicy, failures: int, *, after: float | None = None, draw: float = 0.0):
    return retry_wait(policy, failures=failures, retry_after=after, draw=draw)


def test_fixed_interval_is_the_same_after_every_failure():
    assert [wait(FIXED, failures) for failures in (1, 2, 50)] == [30.0, 30.0, 30.0]


def test_exponential_interval_doubles_up_to_its_cap():
    assert [wait(EXPONENTIAL, failures) for failures in range(1, 6)] == [10, 20, 40, 60, 60]


def test_a_year_of_failures_does_not_overflow():
    assert wait(EXPONENTIAL, 10**7) == 60.0


def test_retry_after_lengthens_the_wait_and_never_shortens_it():
    assert wait(EXPONENTIAL, 1, after=45.0) == 45.0
    assert wait(EXPONENTIAL, 4, after=1.0) == 60.0


def test_retry_after_is_capped_by_the_longest_interval():
    assert wait(EXPONENTIAL, 1, after=86_400.0) == 60.0


def test_retry_after_is_ignored_where_the_policy_says_so():
    deaf = RetryPolicy(interval_seconds=30.0, respect_retry_after=False)
    assert wait(deaf, 1, after=120.0) == 30.0


@given(failures=st.integers(1, 200), draw=st.floats(0, 1, exclude_max=True), jitter=st.floats(0, 1))
def test_jitter_only_shortens_and_by_no_more_than_its_share(failures, draw, jitter):
    policy = RetryPolicy(interval_seconds=8.0, backoff=Backoff.EXPONENTIAL, jitter=jitter)
    full = wait(policy, failures)
    jittered = wait(policy, failures, draw=draw)
    assert full * (1 - jitter) - 1e-6 <= jittered <= full


def test_span_sums_the_waits_between_original_and_last_attempt():
    assert retry_span(FIXED) == 90.0
    assert retry_span(EXPONENTIAL) == 10 + 20 + 40 + 60 + 60
    assert retry_span(RETRY_ON_DISK) is None


@given(
    failures=st.integers(1, 100),
    count=st.integers(0, 100),
    backoff=st.sampled_from(Backoff),
    interval=st.sampled_from((0.0, 0.5, 30.0)),
)
def test_a_sum_of_waits_is_that_of_each(failures, count, backoff, interval):
    policy = RetryPolicy(interval_seconds=interval, backoff=backoff, maximum_interval_seconds=300.0)
    each = sum(interval_after(policy, failures + number) for number in range(count))
    assert waits(policy, failures=failures, count=count) == pytest.approx(each)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"retry": FIXED}, 900.0),
        ({"retry": EXPONENTIAL}, 1900.0),
        ({"retry": RetryPolicy(attempts=0)}, 0.0),
        ({"retry": FIXED, "indication_lifetime_seconds": 60.0}, 60.0),
    ],
)
@pytest.mark.parametrize("durability", Durability)
def test_lifetime_is_ten_times_the_effective_retry_unless_stated(changes, expected, durability):
    assert effective_lifetime(destination("ops", **changes), durability) == expected


UNWRITTEN = destination("ops", retry=None)


def test_on_disk_where_no_retry_field_is_written_a_listener_may_be_down_for_a_day():
    assert effective_retry(UNWRITTEN, Durability.DISK) == RetryPolicy(
        attempts=None,
        interval_seconds=30.0,
        backoff=Backoff.EXPONENTIAL,
        maximum_interval_seconds=300.0,
        jitter=0.2,
    )
    assert effective_lifetime(UNWRITTEN, Durability.DISK) == 86_400.0


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.STATE_ONLY])
def test_in_memory_the_defaults_are_those_of_dsp1054(durability):
    assert effective_retry(UNWRITTEN, durability) == RetryPolicy(attempts=3, interval_seconds=30.0)
    assert effective_lifetime(UNWRITTEN, durability) == 900.0


@pytest.mark.parametrize("durability", Durability)
def test_a_written_retry_and_a_written_lifetime_hold_on_any_durability(durability):
    written = destination("ops", retry=FIXED, indication_lifetime_seconds=60.0)
    assert effective_retry(written, durability) == FIXED
    assert effective_lifetime(written, durability) == 60.0


@pytest.mark.parametrize(
    ("durability", "written", "lifetime", "expected"),
    [
        (Durability.DISK, None, None, 90_000.0),
        (Durability.MEMORY, None, None, 86_400.0),
        (Durability.DISK, None, 604_800.0, 608_400.0),
        (Durability.DISK, 60.0, None, 60.0),
        (Durability.DISK, 0.0, None, 0.0),
    ],
)
def test_identities_are_kept_an_hour_longer_than_any_lifetime(
    durability, written, lifetime, expected
):
    made = destination("ops", retry=None, indication_lifetime_seconds=lifetime)
    configuration = Configuration(
        revision="1",
        service=IndicationService(duplicate_window_seconds=written),
        destinations={"ops": made},
    )
    assert duplicate_window(configuration, durability) == expected
