"""What the reconciles of filters, subscriptions and destinations have in common."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object
from pillion_operator.controllers.acceptance import Acceptance, accepted_condition, not_ready
from pillion_operator.controllers.readiness import Readiness, Wait
from pillion_operator.controllers.status_writer import StatusWriter
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.status.conditions import Condition
from pillion_operator.store import Key, Store, key_of

#: The longest that a timer is set for, in seconds; then one looks again.
LONGEST_TIMER = 3600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Common:
    """By what a resource is judged, and with what its status is written."""

    store: Store
    acceptance: Acceptance
    readiness: Readiness
    statuses: StatusWriter
    clock: Clock
    #: Has a key reconciled again after so many seconds.
    come_again: Callable[[Key, float], None]

    def conditions(
        self, body: Object, verdict: Verdict, services: Sequence[Key]
    ) -> list[Condition] | None:
        """Accepted and Ready; None where there is nothing to say yet."""
        if not verdict.accepted:
            return [accepted_condition(verdict), not_ready(verdict)]
        ready = self.readiness.of(body, services, now=self.clock.monotonic())
        if isinstance(ready, Wait):
            if ready.seconds is not None:
                self.come_again(key_of(body), ready.seconds)
            return None
        return [accepted_condition(verdict), ready]
