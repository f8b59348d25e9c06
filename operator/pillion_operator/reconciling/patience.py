"""What a subscription lacks may be on its way: of that nothing is said too soon.

Whoever applies a folder applies subscriptions before what they name, as often as not. Saying at
once that it is missing would cost two writes and two Events for each, and a fright.
"""

from collections import OrderedDict

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import OURS
from pillion_operator.evaluation.relaying import GATEWAY_NOT_FOUND
from pillion_operator.evaluation.verdict import Verdict
from pillion_operator.store import Change, Key

#: Seconds for which nothing new must have come in a namespace before something is called missing.
QUIET = 1.0
#: Seconds after which it is called so, whatever comes.
LONGEST = 10.0

_KINDS = frozenset(kind.kind for kind in OURS)
_MISSING = frozenset(
    {"ServiceNotFound", "FilterNotFound", "DestinationNotFound", GATEWAY_NOT_FOUND}
)


class Patience:
    """Says how long to wait until a subscription is told that something is missing."""

    def __init__(self, *, clock: Clock) -> None:
        self._clock = clock
        #: Since when (monotonic) each subscription lacks something.
        self._since: dict[Key, float] = {}
        #: When something last came in each namespace, where that is not long ago; oldest first.
        self._newest: OrderedDict[str, float] = OrderedDict()

    def follow(self, change: Change) -> None:
        """Take a change of the store into account."""
        if change.after is None:
            self._since.pop(change.key, None)
        elif change.before is None and change.key.kind in _KINDS:
            now = self._clock.monotonic()
            self._newest[change.key.namespace] = now
            self._newest.move_to_end(change.key.namespace)
            while self._newest and next(iter(self._newest.values())) + QUIET <= now:
                self._newest.popitem(last=False)

    def wait(self, subscription: Key, verdict: Verdict) -> float:
        """Seconds until ``verdict`` may be told; 0 where it may be now."""
        if verdict.reason not in _MISSING:
            self._since.pop(subscription, None)
            return 0.0
        now = self._clock.monotonic()
        since = self._since.setdefault(subscription, now)
        newest = max(since, self._newest.get(subscription.namespace, since))
        return max(0.0, min(newest + QUIET, since + LONGEST) - now)
