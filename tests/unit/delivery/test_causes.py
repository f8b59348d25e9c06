"""The outcome of an indication has the cause of its last attempt (S0.11)."""

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, FailureCause
from pillion_sidecar.history.recorder import History
from pillion_sidecar.testing import FakeTime
from support.delivery import Deliverer, destination
from support.outcomes import EVERY

REFUSED = DeliveryOutcome(DeliveryResult.ERROR, "refused", cause=FailureCause.REFUSED)
UNSAYABLE = DeliveryOutcome(DeliveryResult.FATAL_ERROR, "CIM-XML cannot express this")


@pytest.mark.parametrize("fails_before", [False, True])
def test_a_fatal_error_has_its_own_cause(fake_time: FakeTime, fails_before: bool) -> None:
    history = History(clock=fake_time, timers=fake_time)
    deliverer = Deliverer(time=fake_time, history=history)
    deliverer.answer = REFUSED if fails_before else UNSAYABLE
    deliverer.apply([destination("ops")])
    deliverer.publish("a")
    deliverer.run()
    deliverer.handlers["ops"].answer = UNSAYABLE
    deliverer.advance(31)
    (one,) = history.page(EVERY, after=0, limit=10)().found
    assert (one.outcome.reason, one.outcome.cause) == ("fatal-error", "indication")
    assert one.outcome.attempts == 1 + fails_before
    assert one.outcome.last_attempt is not None
