"""Stores that have lost what they had promised to a writer. Pure.

Such a store would take the bytes of a writer that another has fenced there before. So it counts no
more, until the others say that nobody has claimed the session since.
"""

from collections.abc import Collection

from pillion_sidecar.stores.quorum import Membership, is_enough


class Doubts:
    def __init__(self, membership: Membership) -> None:
        self._membership = membership
        self._doubted: set[str] = set()
        #: They have answered a request that was sent after the last loss.
        self._confirmed: set[str] = set()
        #: Their next answer is to an earlier request.
        self._asked_before: set[str] = set()

    def __contains__(self, store: str) -> bool:
        return store in self._doubted

    def add(self, store: str, *, asked: Collection[str]) -> None:
        """``asked``: the stores that have not answered their last request."""
        self._doubted.add(store)
        self._confirmed.clear()
        self._asked_before = set(asked)

    def take_answer(self, store: str) -> bool:
        """A store has taken a request of the writer. Return whether the doubts end with it."""
        if store in self._asked_before:
            self._asked_before.remove(store)
            return False
        if not self._doubted:
            return False
        self._confirmed.add(store)
        if not is_enough(self._membership, self._confirmed - self._doubted) and (
            # Where several have lost it, their own word is all there is.
            self._confirmed < set(self._membership.stores)
        ):
            return False
        self._doubted.clear()
        return True

    def drop_answer(self, store: str) -> None:
        """The last request of a store got no answer, or a refusal."""
        self._asked_before.discard(store)
