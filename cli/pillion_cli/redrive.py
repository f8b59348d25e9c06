"""Has a deliverer deliver discarded indications again, page by page (S0.11)."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pillion_cli.client import DelivererClient, Refused
from pillion_sidecar.wire.outcomes import RedriveAnswer, read_redrive
from pillion_sidecar.wire.queues import AnswerError

PATH = "/v1/outcomes/redrive"
#: Outcomes of one request. They are redriven in the order of acceptance within one.
PAGE = 10_000
#: Seconds before the next try at a full queue, whatever the deliverer says.
SHORTEST_PAUSE, LONGEST_PAUSE = 1.0, 30.0


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


class Redrive:
    def __init__(
        self,
        client: DelivererClient,
        query: Mapping[str, object],
        *,
        monotonic: Callable[[], float],
        sleep: Callable[[float], None],
    ) -> None:
        """``query`` selects the outcomes."""
        #: Has the result of :meth:`run`, also after an exception.
        self.totals = Totals()
        self._client = client
        self._query = query
        self._monotonic = monotonic
        self._sleep = sleep
        self._history: str | None = None

    def count(self) -> Totals:
        """Return what :meth:`run` would do now, which covers no later outcomes. Raises
        CommandError."""
        found = Totals()
        more, after = True, 0
        while more:
            answer = self._ask(found, after=after, is_dry=True)
            more, after = answer.more, self._next(answer, after)
        self.totals.through = found.through
        return found

    def run(self, *, timeout: float) -> None:
        """Redrive all, and wait ``timeout`` seconds at most for a full queue to take one more.
        Raises CommandError."""
        more, after = True, 0
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
            self._sleep(wait)

    def _ask(self, totals: Totals, *, after: int, is_dry: bool) -> RedriveAnswer:
        query = {**self._query, "after": after, "through": totals.through, "limit": PAGE}
        if is_dry:
            query["dryRun"] = "true"
        document = self._client.post(PATH, query).document()
        try:
            answer = read_redrive(document)
        except AnswerError as error:
            raise Refused(f"the answer is not from a deliverer: {error}") from None
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
            raise Refused("the answer is not from a deliverer: it does not go on")
        return answer.next
