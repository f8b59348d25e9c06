"""What is told of a logged event."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    name: str
    level: str
    meaning: str
    #: Beyond the common fields of every record.
    fields: tuple[str, ...] = ()
