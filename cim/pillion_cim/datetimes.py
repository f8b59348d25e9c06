"""CIM datetimes: points in time and intervals, exactly 25 characters (DSP0004 5.2.4). The text is
sent unchanged: it is checked once, and parsed only to be compared or converted."""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import lru_cache

_POINT = re.compile(
    r"(?:\d{4}|\*{4})(?:0[1-9]|1[0-2]|\*\*)(?:0[1-9]|[12]\d|3[01]|\*\*)"
    r"(?:[01]\d|2[0-3]|\*\*)(?:[0-5]\d|\*\*)(?:[0-5]\d|\*\*)\.\d{0,6}\*{0,6}[+-](?:\d{3}|\*{3})",
    re.ASCII,
)
_INTERVAL = re.compile(
    r"(?:\d{8}|\*{8})(?:[01]\d|2[0-3]|\*\*)(?:[0-5]\d|\*\*)(?:[0-5]\d|\*\*)"
    r"\.\d{0,6}\*{0,6}:000",
    re.ASCII,
)
_LENGTH = 25
_DAYS_IN_400_YEARS = 146_097


@dataclass(frozen=True, slots=True)
class CIMDateTime:
    """A CIM datetime: ``yyyymmddhhmmss.mmmmmmsutc`` or, an interval, ``ddddddddhhmmss.mmmmmm:000``.

    ``==`` compares the text; :meth:`compare` compares the time. Raises ValueError for a text that
    is not a datetime of DSP0004.
    """

    text: str

    def __post_init__(self) -> None:
        text = self.text
        if len(text) == _LENGTH:
            pattern = _INTERVAL if text[21] == ":" else _POINT
            if pattern.fullmatch(text) is not None and _is_consistent(text):
                return
        raise ValueError(
            f"not a CIM datetime: {text[:40]!r}; it has 25 characters, like"
            " 20261121133000.000000+000, or 00000001060000.000000:000 for an interval"
        )

    @classmethod
    def checked(cls, text: str) -> "CIMDateTime":
        """Return the datetime of a text that is known to be one: checking takes most of the
        time."""
        datetime = cls.__new__(cls)
        object.__setattr__(datetime, "text", text)
        return datetime

    @classmethod
    def from_datetime(cls, moment: datetime) -> "CIMDateTime":
        """Raises ValueError for a datetime without an offset from UTC."""
        offset = moment.utcoffset()
        if offset is None:
            raise ValueError("a point in time needs an offset from UTC")
        minutes, rest = divmod(offset, timedelta(minutes=1))
        if rest or abs(minutes) > 999:
            moment, minutes = moment.astimezone(UTC), 0
        stamp = moment.replace(tzinfo=None).isoformat(timespec="microseconds")
        digits = stamp.translate({ord(c): None for c in "-T:"})
        return cls(f"{digits}{'-' if minutes < 0 else '+'}{abs(minutes):03d}")

    @property
    def is_interval(self) -> bool:
        return self.text[21] == ":"

    @property
    def is_exact(self) -> bool:
        """Whether no field has asterisks."""
        return "*" not in self.text

    def microseconds(self) -> int | None:
        """Return a number that orders datetimes of one kind; None with asterisks. For an interval,
        its length; for a point in time, the time since the year 1 began, in UTC."""
        if not self.is_exact:
            return None
        text = self.text
        if self.is_interval:
            return int(text[:8]) * 86_400_000_000 + self._clock()
        days = _ordinal(int(text[:4]), int(text[4:6]), int(text[6:8]))
        return days * 86_400_000_000 + self._clock() - int(text[21:]) * 60_000_000

    def compare(self, other: "CIMDateTime") -> int | None:
        """Return -1, 0 or 1 as this is before, at or after the other. Returns None if they cannot
        be compared: a point in time with an interval, or asterisks."""
        if self.is_interval != other.is_interval:
            return None
        mine, theirs = self.microseconds(), other.microseconds()
        if mine is None or theirs is None:
            return None
        return (mine > theirs) - (mine < theirs)

    def _clock(self) -> int:
        """Microseconds since midnight, by the clock fields."""
        text = self.text
        seconds = int(text[8:10]) * 3600 + int(text[10:12]) * 60 + int(text[12:14])
        return seconds * 1_000_000 + int(text[15:21])


def to_rfc3339(text: str) -> str | None:
    """Return ``20261121143000.000000+060`` as ``2026-11-21T13:30:00Z``; None for anything but an
    exact point in time that RFC 3339 can express."""
    if len(text) != _LENGTH or text[14] != "." or not text.isascii():
        return None
    minute = _minute_in_utc(text[:12], text[21:])
    seconds, fraction = text[12:14], text[15:21]
    if minute is None or not (seconds < "60" and seconds.isdigit() and fraction.isdigit()):
        return None
    return f"{minute}:{seconds}Z" if fraction == "000000" else f"{minute}:{seconds}.{fraction}Z"


# Neighbours are mostly of the same minute, and an offset has whole ones.
@lru_cache(maxsize=256)
def _minute_in_utc(local: str, offset: str) -> str | None:
    if _POINT.fullmatch(f"{local}00.000000{offset}") is None:
        return None
    try:
        moment = datetime.fromisoformat(f"{local[:8]}T{local[8:]}") - timedelta(minutes=int(offset))
    except (ValueError, OverflowError):
        # Asterisks, or beyond what Python and RFC 3339 have.
        return None
    return moment.isoformat(timespec="minutes")


def parse_rfc3339(text: str) -> CIMDateTime:
    """Convert ``2026-11-21T13:30:00Z``. Raises ValueError, also without an offset from UTC."""
    if "T" not in text.upper():
        raise ValueError("neither 25 characters of DSP0004 nor an RFC 3339 time")
    return CIMDateTime.from_datetime(datetime.fromisoformat(text))


def _is_consistent(text: str) -> bool:
    """Whether the day exists in its month, and after the first asterisk come only asterisks."""
    if "*" in text:
        return not text[text.index("*") : 21].replace(".", "").strip("*")
    if text[21] == ":" or text[6:8] < "29":
        return True
    try:
        _ordinal(int(text[:4]), int(text[4:6]), int(text[6:8]))
    except ValueError:
        return False
    return True


def _ordinal(year: int, month: int, day: int) -> int:
    """The proleptic Gregorian day number; DSP0004 has a year 0, Python has none."""
    if year == 0:
        return date(400, month, day).toordinal() - _DAYS_IN_400_YEARS
    return date(year, month, day).toordinal()
