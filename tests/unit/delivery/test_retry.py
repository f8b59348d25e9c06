import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.resources import Backoff, RetryPolicy
from pillion_sidecar.delivery.retry import lifetime, retry_span, retry_wait
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


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"retry": FIXED}, 900.0),
        ({"retry": EXPONENTIAL}, 1900.0),
        ({"retry": RetryPolicy(attempts=0)}, 0.0),
        ({"retry": FIXED, "indication_lifetime_seconds": 60.0}, 60.0),
    ],
)
def test_lifetime_is_ten_times_the_effective_retry_unless_stated(changes, expected):
    assert lifetime(destination("ops", **changes)) == expected
