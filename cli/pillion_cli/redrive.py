"""Has a deliverer deliver discarded indications again, page by page (S0.11)."""

import math
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.client import DelivererClient, NoDeliverer, Refused
from pillion_sidecar.wire.outcomes import RedriveAnswer, read_redrive
from pillion_sidecar.wire.queues import AnswerError

PATH = "/v1/outcomes/redrive"
#: Outcomes of one request. They are redriven in the order of acceptance within one.
PAGE = 10_000
#: Seconds before the next try at a full queue, whatever the deliverer says.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0
#: Seconds between two messages about a full queue.
TELL_SECONDS = 10.0


@dataclass(slots=True)
class Totals:
    redriven: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    newer: int = 0
    #: The last number that is covered.
    through: int | None = None
    #: Why the rest was not taken in time.
    refusal: str | None = None

    def document(self) -> dict[str, Any]:
        return {
            "redriven": self.redriven,
            "skipped": dict(self.skipped),
            "newer": self.newer,
            "refusal": self.refusal,
        }


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """A redrive that waits for a full queue."""

    redriven: int
    left: int
    #: Until the rest is redriven, at the rate since the queue was full; None: not known yet.
    seconds: float | None
    refusal: str


class Redrive:
    def __init__(
        self,
        client: DelivererClient,
        query: Mapping[str, object],
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
        tell: Callable[["Waiting"], None] | None = None,
    ) -> None:
        """``query`` selects the outcomes. ``tell`` is called now and then while a full queue is
        waited for."""
        #: Has the result of :meth:`run`, also after an exception.
        self.totals = Totals()
        self._client = client
        self._query = query
        self._monotonic = monotonic
        self._sleep = sleep
        self._history: str | None = None
        self._tell = tell
        #: How many :meth:`count` has found; None without it.
        self._wanted: int | None = None

    def count(self) -> Totals:
        """Return what :meth:`run` would do now, which covers no later outcomes. Raises
        CommandError."""
        found = self._counted(Totals())
        self.totals.through = found.through
        self._wanted = found.redriven
        return found

    def _counted(self, found: Totals) -> Totals:
        more, after = True, 0
        while more:
            answer = self._ask(found, after=after, is_dry=True)
            more, after = answer.more, self._next(answer, after)
        return found

    def run(self, *, timeout: float) -> None:
        """Redrive all, and wait ``timeout`` seconds at most for a full queue to take one more.
        Raises CommandError."""
        more, after = True, 0
        pace = _Pace(self._monotonic)
        until = self._monotonic() + timeout
        while more:
            answer = self._ask(self.totals, after=after, is_dry=False)
            if answer.redriven:
                until = self._monotonic() + timeout
            if answer.refusal is None:
                more, after = answer.more, self._next(answer, after)
                continue
            after = max(after, answer.next)
            wait = min(LONGEST_PAUSE, max(SHORTEST_PAUSE, answer.retry_after or 0.0))
            if self._monotonic() + wait > until:
                self.totals.refusal = answer.refusal
                return
            self._say(pace, answer.refusal)
            self._sleep(wait)

    def _say(self, pace: "_Pace", refusal: str) -> None:
        if self._tell is None or not pace.is_due():
            return
        done = self.totals.redriven
        if self._wanted is None:
            # What is redriven already is left out of the count.
            self._wanted = done + self._counted(Totals(through=self.totals.through)).redriven
        seconds = pace.seconds_for(self._wanted, done)
        left = max(0, self._wanted - done)
        self._tell(Waiting(redriven=done, left=left, seconds=seconds, refusal=refusal))

    def _ask(self, totals: Totals, *, after: int, is_dry: bool) -> RedriveAnswer:
        query = {**self._query, "after": after, "through": totals.through, "limit": PAGE}
        if is_dry:
            query["dryRun"] = "true"
        document = self._client.post(PATH, query).document()
        try:
            answer = read_redrive(document)
        except AnswerError as error:
            raise NoDeliverer(error) from None
        if self._history not in (None, answer.history):
            raise Refused("the deliverer has begun another history meanwhile, without the others")
        self._history = answer.history
        totals.redriven += answer.redriven
        totals.skipped.update(answer.skipped)
        totals.newer += answer.newer
        totals.through = answer.through
        return answer

    @staticmethod
    def _next(answer: RedriveAnswer, after: int) -> int:
        if answer.more and answer.next <= after:
            raise NoDeliverer("its pages do not go on")
        return answer.next


class _Pace:
    """How fast full queues take more; what they had room for tells nothing."""

    def __init__(self, monotonic: Callable[[], float]) -> None:
        self._monotonic = monotonic
        #: When a queue was full first, and how many were redriven until then.
        self._begin: tuple[float, int] | None = None
        self._due = -math.inf

    def is_due(self) -> bool:
        """Whether it is time to tell; it counts as told."""
        now = self._monotonic()
        if now < self._due:
            return False
        self._due = now + TELL_SECONDS
        return True

    def seconds_for(self, wanted: int, redriven: int) -> float | None:
        now = self._monotonic()
        if self._begin is None:
            self._begin = now, redriven
        since, before = self._begin
        if redriven == before:
            return None
        return max(0, wanted - redriven) * (now - since) / (redriven - before)
