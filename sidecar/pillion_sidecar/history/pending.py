"""Tells which outcomes the journal does not know: their indications are pending still."""

from bisect import bisect_left
from collections.abc import Callable

from pillion_sidecar.history.outcome import Outcome
from pillion_sidecar.journal.ports import Recovered


def pending_in(recovered: Recovered, *, journal_id: str) -> Callable[[Outcome], bool]:
    """Return a predicate: whether the journal still has an outcome's indication pending."""
    held = {indication.id for indication, _ in recovered.held}

    def is_pending(outcome: Outcome) -> bool:
        if journal_id not in (outcome.sequence_context or ""):
            # Of a run in memory: its numbers mean nothing here.
            return False
        if outcome.number is None:
            return outcome.id in held
        queue = recovered.queues.get(outcome.queue)
        if queue is None:
            return False
        at = bisect_left(queue.numbers, outcome.number)
        return at < len(queue.numbers) and queue.numbers[at] == outcome.number

    return is_pending
