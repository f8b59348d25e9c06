"""Durations and times: whole microseconds, as Spark has them, and the texts of rules and cases."""

import re
from datetime import UTC, datetime, timedelta

SECOND = 1_000_000
MINUTE = 60 * SECOND
HOUR = 60 * MINUTE
DAY = 24 * HOUR
#: The longest duration of a rule: ten years.
LONGEST = 3_660 * DAY

_UNITS = {
    "microsecond": 1,
    "millisecond": 1_000,
    "second": SECOND,
    "minute": MINUTE,
    "hour": HOUR,
    "day": DAY,
    "week": 7 * DAY,
}
_NAMES = "|".join(_UNITS)
_PART = re.compile(rf"([0-9]{{1,12}}) +({_NAMES})s?")
#: The schema of rules has it too.
PATTERN = rf"^[0-9]{{1,12}} +({_NAMES})s?( +[0-9]{{1,12}} +({_NAMES})s?)*$"
_WHOLE = re.compile(PATTERN)
_LONGEST_TEXT = 200
_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


def parse_duration(text: str) -> int | None:
    """Microseconds of a text such as ``1 hour 30 minutes``; None if it is no duration."""
    if len(text) > _LONGEST_TEXT or not _WHOLE.fullmatch(text):
        return None
    found = sum(int(number) * _UNITS[unit] for number, unit in _PART.findall(text))
    return found if found <= LONGEST else None


def duration_text(micros: int) -> str:
    """The text that :func:`parse_duration` reads back."""
    parts = []
    left = micros
    for unit in ("day", "hour", "minute", "second", "millisecond", "microsecond"):
        number, left = divmod(left, _UNITS[unit])
        if number:
            parts.append(f"{number} {unit}{'' if number == 1 else 's'}")
    return " ".join(parts) or "0 seconds"


def parse_time(text: str) -> int | None:
    """Microseconds since 1970 of an ISO 8601 time with a zone; None if it is none."""
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        return None
    if found.tzinfo is None:
        return None
    return (found - _EPOCH) // timedelta(microseconds=1)


def time_text(micros: int) -> str:
    """An event time in UTC. A time outside the calendar is shown as a number."""
    try:
        found = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        return f"{micros} us"
    return found.isoformat().replace("+00:00", "Z")
