"""Where records have been copied to while others were read. Pure."""

from collections import deque


class Spell:
    """Some loads that began one after the other, and what was moved since the first of them."""

    __slots__ = ("loads", "moved")

    def __init__(self) -> None:
        self.loads = 0
        #: By old position: new position, size.
        self.moved: dict[int, tuple[int, int]] = {}


class Moves:
    """Remembers what was moved for as long as a load is under way that began before it.

    In two spells: there may always be a load under way, and yet no move is kept for ever.
    """

    def __init__(self) -> None:
        self._spells = deque([Spell()])

    def __len__(self) -> int:
        return sum(len(spell.moved) for spell in self._spells)

    def begin(self) -> Spell:
        """A load begins; what is returned is to be given back at its end."""
        spell = self._spells[-1]
        spell.loads += 1
        return spell

    def end(self, spell: Spell) -> None:
        """A load has ended."""
        spell.loads -= 1
        spells = self._spells
        while len(spells) > 1 and not spells[0].loads:
            spells.popleft()
        if len(spells) == 1:
            if spells[0].loads:
                spells.append(Spell())
            else:
                spells[0].moved.clear()

    def note(self, old_position: int, position: int, size: int) -> None:
        """A record has been copied forward."""
        if len(self._spells) > 1 or self._spells[0].loads:
            self._spells[-1].moved[old_position] = position, size

    def find(self, position: int) -> tuple[int, int] | None:
        """Return where a record was copied to, and its size there."""
        for spell in self._spells:
            found = spell.moved.get(position)
            if found is not None:
                return found
        return None
