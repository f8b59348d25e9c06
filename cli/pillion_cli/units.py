"""Durations and numbers as people read them."""

#: Longest duration that is written (seconds), 9,999 days; a peer may name any.
_LONGEST = 9_999 * 86_400.0
_UNITS = (("d", 86_400), ("h", 3_600), ("min", 60))


def duration(seconds: float) -> str:
    """Format seconds as 4 s, 3 min 20 s, 2 h 5 min or 4 d 2 h."""
    left = int(min(seconds, _LONGEST))
    for unit, size, below, part in (
        ("d", 86400, "h", 3600),
        ("h", 3600, "min", 60),
        ("min", 60, "s", 1),
    ):
        if left >= size:
            rest = left % size // part
            return f"{left // size} {unit}" + (f" {rest} {below}" if rest else "")
    return f"{left} s"


def brief(seconds: float) -> str:
    """Format seconds with one unit, of which there are two at least: 90 s, 3 min, 36 h, 4 d."""
    left = int(min(max(seconds, 0.0), _LONGEST))
    for unit, size in _UNITS:
        if left >= 2 * size:
            return f"{left // size} {unit}"
    return f"{left} s"


def brief_number(number: int) -> str:
    """Format a number with three digits at least: 9,999, 42.9 K, 1 M. Rounded down, so that what
    is not full does not look full."""
    if number < 10_000:
        return f"{number:,}"
    for letter, size in (("T", 10**12), ("G", 10**9), ("M", 10**6), ("K", 10**3)):
        if number >= size:
            tenths = number * 10 // size
            return f"{tenths // 10}{_fraction(tenths)} {letter}"
    raise AssertionError(number)


def brief_rate(rate: float) -> str:
    """Format a number per second with a tenth below 10: 0.5, 9.9, 10, 42.9 K."""
    tenths = round(min(rate, 1e15) * 10)
    if tenths >= 100:
        return brief_number(tenths // 10)
    return f"{tenths // 10}{_fraction(tenths)}"


def _fraction(tenths: int) -> str:
    return f".{tenths % 10}" if tenths % 10 and tenths < 1000 else ""
