"""Refusal of query parameters that an endpoint does not know, or gets twice."""

from collections.abc import Collection, Mapping
from difflib import get_close_matches

#: Characters of a parameter's name in an error.
MOST_SHOWN = 40


def refuse_parameters(query: Mapping[str, str], known: Collection[str]) -> str | None:
    """Return why a query is refused; None: it is not. A repeated name is a further item."""
    names = set(query)
    if len(names) == len(query) and names.issubset(known):
        return None
    seen: set[str] = set()
    for name, _ in query.items():
        if name not in known:
            return f"{name[:MOST_SHOWN]!r}: there is no such parameter; {suggest(name, known)}"
        if name in seen:
            return f"{name}: is given more than once; give it once"
        seen.add(name)
    return None


def suggest(text: str, known: Collection[str]) -> str:
    """Return the remedy for a name that is not known: the nearest known one, else all."""
    if not known:
        return "leave it out, since nothing can be chosen here"
    near = get_close_matches(text[:MOST_SHOWN].lower(), sorted(known), n=1)
    return f"did you mean {near[0]}?" if near else f"use {', '.join(sorted(known))}"
