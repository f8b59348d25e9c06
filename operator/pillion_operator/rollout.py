"""Which revisions of a service's configuration hold which state of which object. Pure.

An object is in force when every deliverer runs on a revision that holds its present state: a later
change of another object does not make it less so.
"""

from collections.abc import Mapping

from pillion_operator.store import Key

#: Revisions that are remembered. A deliverer on an older one is behind, whatever it holds.
MOST_REVISIONS = 200


class Rollout:
    """The revisions of one service since this process has begun to render them."""

    def __init__(self) -> None:
        self.revision: str | None = None
        self._content: Mapping[Key, str] = {}
        #: The number of the revision that first held the object's present state.
        self._since: dict[Key, int] = {}
        self._numbers: dict[str, int] = {}
        self._latest = 0

    def advance(self, revision: str, content: Mapping[Key, str]) -> set[Key]:
        """A revision was rendered; return the objects that it adds, changes or leaves out."""
        if revision == self.revision:
            return set()
        self._latest += 1
        self._numbers.pop(revision, None)
        self._numbers[revision] = self._latest
        if len(self._numbers) > MOST_REVISIONS:
            del self._numbers[next(iter(self._numbers))]
        changed = {key for key, item in content.items() if self._content.get(key) != item}
        gone = set(self._content) - set(content)
        self._since.update(dict.fromkeys(changed, self._latest))
        for key in gone:
            del self._since[key]
        self._content = content
        self.revision = revision
        return changed | gone

    def holds(self, key: Key, item: str) -> bool:
        """Whether the latest revision holds the object in just this state."""
        return self._content.get(key) == item

    def __contains__(self, key: Key) -> bool:
        return key in self._content

    def revisions_with(self, key: Key) -> frozenset[str]:
        """The revisions that hold the object's present state."""
        since = self._since.get(key, self._latest)
        return frozenset(name for name, number in self._numbers.items() if number >= since)

    @property
    def keys(self) -> frozenset[Key]:
        """Everything that the latest revision holds."""
        return frozenset(self._content)
