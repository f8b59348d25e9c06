"""LIKE patterns: the basic regular expressions of DSP0202, matching the whole text.

``.`` is any character, ``x*`` any number of the character x, ``|`` separates alternatives, and a
backslash makes the next character literal. There are no groups. A match takes linear time: patterns
that ``re`` would backtrack over are matched by sets of states.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

from pillion_cim import CIMDataError

#: Literal here, special in other pattern languages: refused without a backslash.
_RESERVED = frozenset("()[]{}+?^$")

Matcher = Callable[[str], bool]


class PatternError(CIMDataError, ValueError):
    """The problem, its position (from 0), and the remedy."""

    def __init__(self, message: str, position: int, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.position = position
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class _Atom:
    """One character (None: any), once or any number of times."""

    character: str | None
    starred: bool = False


def compile_pattern(pattern: str, *, percent: bool) -> Matcher:
    """Return a function that tests whether a whole text matches.

    ``percent``: whether a bare % is literal. (In other kinds of WQL it means .* of these patterns.)

    Raises:
        PatternError: the pattern is invalid or misleading.
    """
    alternatives = _parse(pattern, percent=percent)
    if all(_is_linear(atoms) for atoms in alternatives):
        source = "|".join(_expression(atoms) for atoms in alternatives)
        fullmatch = re.compile(source, re.DOTALL).fullmatch
        return lambda text: fullmatch(text) is not None
    machines = [_Machine(atoms) for atoms in alternatives]
    return lambda text: any(machine.matches(text) for machine in machines)


def _parse(pattern: str, *, percent: bool) -> list[list[_Atom]]:
    alternatives: list[list[_Atom]] = [[]]
    position = 0
    while position < len(pattern):
        atoms, character = alternatives[-1], pattern[position]
        if character == "|":
            alternatives.append([])
        elif character == "*":
            _star(atoms, position)
        elif character == "\\":
            position += 1
            if position == len(pattern):
                raise PatternError(
                    "a backslash ends this pattern", position - 1, "Write \\\\ for a backslash."
                )
            atoms.append(_Atom(pattern[position]))
        else:
            _check_plain(character, position, percent=percent)
            atoms.append(_Atom(None if character == "." else character))
        position += 1
    return [_collapsed(atoms) for atoms in alternatives]


def _star(atoms: list[_Atom], position: int) -> None:
    if not atoms or atoms[-1].starred:
        raise PatternError(
            "a * follows the character that it repeats",
            position,
            "Write .* for any text, or \\* for the character itself.",
        )
    atoms[-1] = _Atom(atoms[-1].character, starred=True)


def _check_plain(character: str, position: int, *, percent: bool) -> None:
    if character in _RESERVED:
        raise PatternError(
            f"{character} has no meaning in a LIKE pattern (it knows . * | and \\)",
            position,
            f"Write \\{character} for the character itself.",
        )
    if character == "%" and not percent:
        raise PatternError(
            "% has no meaning in a LIKE pattern (it knows . * | and \\)",
            position,
            "Write .* for any text, or \\% for the character itself.",
        )


def _collapsed(atoms: list[_Atom]) -> list[_Atom]:
    """Drop a starred atom that follows itself: a*a* is a*."""
    return [
        atom
        for atom, before in zip(atoms, [None, *atoms], strict=False)
        if not (atom.starred and atom == before)
    ]


def _is_linear(atoms: list[_Atom]) -> bool:
    """Whether ``re`` needs no nested backtracking: one star, or only ``.*``."""
    starred = [atom for atom in atoms if atom.starred]
    return len(starred) <= 1 or all(atom.character is None for atom in starred)


def _expression(atoms: list[_Atom]) -> str:
    """Return the expression for ``re``. Between two ``.*`` the leftmost match suffices, so an
    atomic group chooses once."""
    pieces: list[str] = [""]
    for atom in atoms:
        if atom.starred and atom.character is None:
            pieces.append("")
        else:
            plain = "." if atom.character is None else re.escape(atom.character)
            pieces[-1] += plain + ("*" if atom.starred else "")
    if len(pieces) == 1:
        return pieces[0]
    first, *middle, last = pieces
    return first + "".join(f"(?>.*?{piece})" for piece in middle) + f".*{last}"


class _Machine:
    """A chain of states, one before each atom and one at the end, as the bits of an integer."""

    def __init__(self, atoms: list[_Atom]) -> None:
        self._starred = 0
        self._any = 0
        self._characters: dict[str, int] = {}
        for position, atom in enumerate(atoms):
            bit = 1 << position
            if atom.starred:
                self._starred |= bit
            if atom.character is None:
                self._any |= bit
            else:
                self._characters[atom.character] = self._characters.get(atom.character, 0) | bit
        self._final = 1 << len(atoms)
        self._lowest = self._starred & ~(self._starred << 1)
        self._behind = (self._starred << 1) & ~self._starred
        self._blocks = self._starred | self._behind
        self._start = self._skip(1)

    def matches(self, text: str) -> bool:
        states = self._start
        for character in text:
            taken = states & (self._any | self._characters.get(character, 0))
            if not taken:
                return False
            stays = taken & self._starred
            states = self._skip(((taken & ~stays) << 1) | stays)
        return bool(states & self._final)

    def _skip(self, states: int) -> int:
        """Add the states that are reached past starred atoms.

        In each block (a run of starred atoms and the state behind it) every state above the lowest
        one is reached too. Subtracting the block's lowest bit borrows up to exactly that state
        (Navarro and Raffinot); the state behind the run is set for it, so nothing borrows further.
        """
        filled = states | self._behind
        return states | (self._blocks & ~(filled ^ (filled - self._lowest)))
