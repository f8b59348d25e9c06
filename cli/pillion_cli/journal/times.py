"""Times as a line of JSON has them."""

from datetime import UTC, datetime


def rfc_3339(seconds: float) -> str:
    """Return seconds since the epoch as RFC 3339 in UTC: 2026-11-21T13:30:00.25Z."""
    text = datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%S.%f")
    return text.rstrip("0").rstrip(".") + "Z"
