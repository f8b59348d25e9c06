"""Query parameters of the administration API. All raise ParameterError."""

import math
from datetime import datetime

from aiohttp import web

from pillion_sidecar.http_errors import ParameterError


def moment(request: web.Request, name: str) -> float | None:
    """Return seconds since the epoch; None if it is not given."""
    text = request.query.get(name)
    if text is None:
        return None
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is not None:
            return found.timestamp()
    except (ValueError, OverflowError):
        # Overflow: at the end of a calendar.
        pass
    raise ParameterError(
        f"{name}={text!r:.40} is no time; write RFC 3339, as in 2026-11-22T09:30:00Z"
    )


def limit_of(request: web.Request, *, default: int, most: int) -> int:
    found = _whole(request.query.get("limit", str(default)))
    if found is None or not 0 < found <= most:
        text = request.query["limit"]
        raise ParameterError(f"limit={text!r:.40}: give a whole number from 1 to {most}")
    return found


def number(request: web.Request, name: str, *, default: int) -> int:
    text = request.query.get(name, str(default))
    found = _whole(text)
    if found is None:
        raise ParameterError(
            f"{name}={text!r:.40}: give a whole number from 0, of 19 digits at most"
        )
    return found


def _whole(text: str) -> int | None:
    # Longer is above every maximum, and int() of a very long text is slow.
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 20 else None


def seconds(request: web.Request, name: str, most: float, *, default: float = 0.0) -> float:
    text = request.query.get(name)
    if text is None:
        return default
    try:
        value = float(text) if "_" not in text else math.nan
    except ValueError:
        value = math.nan
    if not 0 <= value <= most:
        raise ParameterError(f"{name}={text!r:.40}: give seconds from 0 to {most:g}")
    return value


def flag(request: web.Request, name: str) -> bool:
    text = request.query.get(name, "false")
    if text not in ("true", "false"):
        raise ParameterError(f"{name}={text!r:.40}: write true or false")
    return text == "true"
