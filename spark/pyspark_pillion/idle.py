"""Whether the whole input of a stream is idle, as a key can see it: the watermark stands still."""

from typing import NamedTuple

#: Looks within ``silent``, at least. A job may stand still, too, so the time between two counts
#: for no more than this part.
LOOKS = 4


class Look(NamedTuple):
    """One look at a key. All times have one unit."""

    watermark: int
    #: When its micro-batch began.
    clock: int
    #: For how long the watermark had not moved, as far as it was looked at.
    still: int


def look(before: Look | None, *, watermark: int, clock: int, silent: int) -> Look:
    """Look once more."""
    if before is None or before.watermark != watermark:
        return Look(watermark, clock, 0)
    seen = min(max(0, clock - before.clock), silent // LOOKS)
    return Look(watermark, clock, before.still + seen)


def idle_until(before: Look | None, now: Look, *, silent: int) -> int | None:
    """Return the time up to which all readings have been read; None: the input is not idle.

    The watermark of a micro-batch has the readings of those before. So the time is that of the
    look before, and never the present. A backlog may be read in small parts, some of which do not
    move the watermark: it stands still for less than ``silent``, or readings at their usual
    distance would be alerts by the watermark, too.
    """
    if before is None or before.clock >= now.clock or now.still < silent:
        return None
    return before.clock
