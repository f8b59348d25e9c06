"""A history from the records of publishers and listeners that ran as processes."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from support.chaos import read_lines
from support.chaos_publisher import group, identifier, read_record
from support.history import History, Published


def read_history(
    *,
    line: Callable[[str, Published], str | None],
    publishers: Mapping[str, Path],
    listeners: Mapping[str, Path],
    places: Iterable[str],
) -> History:
    """Return what the records say. ``publishers`` by source, ``listeners`` by destination;
    ``places``: the destinations of each indication."""
    history = History(line=line)
    for source, record in publishers.items():
        notes = read_record(record)
        for number in range(1 + max(note["last"] for note in notes)):
            history.publish(
                identifier(source, number), frozenset(places), f"{source}/{group(number)}"
            )
        for note in notes:
            if note["what"] == "acknowledged":
                for number in range(note["first"], note["last"] + 1):
                    history.acknowledge(identifier(source, number))
    for name, record in listeners.items():
        for told in read_lines(record):
            history.arrive(
                name,
                str(told["identifier"]),
                told["context"],  # type: ignore[arg-type]
                told["number"],  # type: ignore[arg-type]
                session=str(told["connection"]),
            )
    return history
