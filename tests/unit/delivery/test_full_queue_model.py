"""``Adaptive`` against a model: a publisher that obeys Retry-After and a listener that answers
within its time-out all but once in N lose nothing, whatever the times (S0.4, S0.15)."""

from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_sidecar.config.schema.destination import Backoff, RetryPolicy
from support.delivery import ERROR, SUCCESS, Deliverer, ScriptedHandler, destination

PUBLISHED = 60
#: Seconds between two tries of a publisher that was refused.
RETRY_AFTER = 1.0


@settings(max_examples=60, deadline=None)
@given(
    once_in=st.integers(2, 12),
    interval=st.sampled_from([1.0, 30.0, 300.0]),
    backoff=st.sampled_from(Backoff),
    timeout=st.sampled_from([0.5, 30.0, 600.0]),
    takes=st.sampled_from([0.01, 0.4]),
    size=st.integers(1, 20),
    burst=st.integers(1, 10),
)
def test_nothing_is_lost_where_a_listener_fails_once_in_a_while(
    once_in: int,
    interval: float,
    backoff: Backoff,
    timeout: float,
    takes: float,
    size: int,
    burst: int,
) -> None:
    made = Deliverer()
    made.answer = None
    retry = RetryPolicy(attempts=10_000, interval_seconds=interval, backoff=backoff)
    ops = destination(
        "ops",
        retry=retry,
        queue_size=size,
        indication_lifetime_seconds=0.0,
    )
    made.apply([ops])
    listener = Listener(made, once_in=once_in, takes=takes, timeout=timeout)
    published = 0
    while published < PUBLISHED:
        for _ in range(burst):
            if published == PUBLISHED or made.publish(str(published)) is not None:
                break
            published += 1
            made.run()
        listener.go_on(RETRY_AFTER)
    while made.service.pending:
        listener.go_on(interval)
    assert made.settlements.delivered == [str(number) for number in range(PUBLISHED)]


class Listener:
    """Answers after a while; once in N requests it hangs until the time-out."""

    def __init__(self, made: Deliverer, *, once_in: int, takes: float, timeout: float) -> None:
        self._made, self._once_in = made, once_in
        self._takes, self._timeout = takes, timeout
        self._seen = 0
        self._handler: ScriptedHandler = made.handlers["ops"]

    def go_on(self, seconds: float) -> None:
        """Let time pass, and answer what is due meanwhile."""
        made = self._made
        made.run()
        end = made.time.monotonic() + seconds
        self._take_up()
        while (due := made.time.next_due()) is not None and due <= end:
            made.time.advance(max(0.0, due - made.time.monotonic()))
            made.run()
            self._take_up()
        made.time.advance(end - made.time.monotonic())

    def _take_up(self) -> None:
        while self._handler.held:
            done = self._handler.held.popleft()
            self._seen += 1
            hangs = self._seen % self._once_in == 0
            outcome, after = (ERROR, self._timeout) if hangs else (SUCCESS, self._takes)
            self._made.time.call_later(after, lambda done=done, outcome=outcome: done(outcome))
