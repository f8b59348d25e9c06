"""What a filter demands of an indication before anything else, so that many filters can share one
look-up."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Demand:
    """A property that must have a value: ``EventID = 'gust'``, alone or ANDed with more.

    An instance whose ``values`` have another value *of the same type* under ``column`` does not
    meet the condition. One that has none there, or one of another type, has to be evaluated.
    """

    column: str
    value: str | int
