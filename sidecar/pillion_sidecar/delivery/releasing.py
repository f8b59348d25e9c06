"""Members of ordered groups whose predecessors have come: they go to their queues in turns of the
event loop (S1.5), and what comes after them in their group goes behind them."""

from collections import Counter, deque
from collections.abc import Callable, Set

from pillion_sidecar.delivery.gaps import run_of
from pillion_sidecar.delivery.settling import Settlements
from pillion_sidecar.indication import Indication

#: Releases before the event loop gets its turn.
RELEASED_PER_TURN = 128


class Releases:
    """Releases members in the order in which they are added."""

    def __init__(
        self,
        *,
        call_soon: Callable[[Callable[[], None]], object],
        release: Callable[[Indication], None],
        settlements: Settlements,
    ) -> None:
        """``call_soon`` is that of the event loop; ``release`` queues one member."""
        self._call_soon = call_soon
        self._release = release
        self._settlements = settlements
        self._waiting: deque[Indication] = deque()
        # How many of each run of a group wait, and the runs that have ended meanwhile: a gap of
        # theirs must be known until the last of them has its number.
        self._of_run: Counter[int] = Counter()
        self._ended: set[int] = set()
        # How many this turn of the event loop may still release.
        self._left = RELEASED_PER_TURN
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._waiting)

    def precede(self, indication: Indication) -> bool:
        """Whether members of its group wait for their turn; of a member."""
        return bool(self._waiting) and run_of(indication) in self._of_run

    def add(self, indication: Indication) -> None:
        """Release a member that is held: at once where this turn has room and none is before it."""
        if not self._waiting and self._left:
            self._left -= 1
            self._release(indication)
        else:
            self._waiting.append(indication)
            self._of_run[run_of(indication)] += 1
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._turn)

    def end_group(self, run: int) -> None:
        """No further member of a group comes, but for those that wait for their turn."""
        if run in self._of_run:
            self._ended.add(run)
        else:
            self._settlements.end_group(run)

    def end_other_groups(self, runs: Set[int]) -> None:
        """No further member comes of any group but these, and those that wait for their turn."""
        going_on = self._of_run.keys() - runs
        self._ended |= going_on
        self._settlements.end_other_groups(runs | going_on)

    def _turn(self) -> None:
        self._scheduled = False
        self._left = RELEASED_PER_TURN
        while self._waiting and self._left:
            self._left -= 1
            self._release_first()
        if self._waiting:
            self._scheduled = True
            self._call_soon(self._turn)

    def _release_first(self) -> None:
        indication = self._waiting.popleft()
        run = run_of(indication)
        self._of_run[run] -= 1
        self._release(indication)
        if not self._of_run[run]:
            del self._of_run[run]
            if run in self._ended:
                self._ended.remove(run)
                self._settlements.end_group(run)
