"""The faults that a listener injects, set at its start and changed while it runs."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from pillion_cli.exits import CLIError

#: Seconds: longer than any deliverer waits.
LONGEST_WAIT = 86_400.0


class BehaviourError(CLIError, ValueError):
    """A behaviour that there is not; the message names field, value and remedy."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Behaviour:
    """What is done to a request instead of taking the indication; nothing by default.

    The first that is set of ``hang``, ``close``, ``garbage``, ``redirect``, ``cim_error`` and
    ``status`` decides; with ``fail`` alone it is status 503.
    """

    #: Only so many requests are treated badly; None: all of them.
    fail: int | None = None
    #: Answered with this status. Below 300 the indication is taken.
    status: int | None = None
    #: Seconds in the header Retry-After of an answer with a status.
    retry_after: int | None = None
    #: The request is read, and never answered.
    hang: bool = False
    #: The indication is taken, and the connection closed without an answer.
    close: bool = False
    #: Answered with bytes that are no HTTP.
    garbage: bool = False
    #: Answered with this CIM status code in an export response.
    cim_error: int | None = None
    #: Answered with 307 to this URL.
    redirect: str | None = None
    #: Seconds before any answer, a good one too.
    delay: float = 0.0

    def __post_init__(self) -> None:
        _check_range("fail", self.fail, 0, 10**9, "a number of requests")
        _check_range("status", self.status, 200, 599, "a status of HTTP")
        _check_range("retry_after", self.retry_after, 0, int(LONGEST_WAIT), "seconds")
        _check_range("cim_error", self.cim_error, 1, 65535, "a CIM status code")
        for field in ("hang", "close", "garbage"):
            if not isinstance(getattr(self, field), bool):
                raise BehaviourError(f"{field}: {getattr(self, field)!r} is neither true nor false")
        if self.redirect is not None and not _is_url(self.redirect):
            raise BehaviourError(f"redirect: {self.redirect!r} is no URL; give http://HOST/PATH")
        if type(self.delay) not in (int, float) or not 0 <= self.delay <= LONGEST_WAIT:
            raise BehaviourError(f"delay: {self.delay!r} is not seconds from 0 to 86400")

    @property
    def is_bad(self) -> bool:
        """Whether requests are treated badly at all."""
        special = self.hang or self.close or self.garbage or self.redirect is not None
        told = self.cim_error is not None or self.status is not None
        return self.fail != 0 and (special or told or self.fail is not None)

    def after_one(self) -> "Behaviour":
        """The same once one more request has been treated badly."""
        return self if self.fail is None else replace(self, fail=max(0, self.fail - 1))

    def changed(self, changes: object) -> "Behaviour":
        """The behaviour that a JSON object describes; what it leaves out is as by default.

        Raises:
            BehaviourError: no object, an unknown field or a value that cannot be.
        """
        if not isinstance(changes, Mapping):
            raise BehaviourError('give an object, such as {"status": 503, "fail": 3}')
        known = self.as_json()
        for field in changes:
            if field not in known:
                raise BehaviourError(f"there is no field {field!r}; there are {', '.join(known)}")
        return Behaviour(**changes)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def _check_range(field: str, value: object, low: int, high: int, what: str) -> None:
    if value is None:
        return
    if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
        raise BehaviourError(f"{field}: {value!r} is not {what} from {low} to {high}")


def _is_url(value: object) -> bool:
    return (
        isinstance(value, str)
        and value.startswith(("http://", "https://"))
        and value.isascii()
        and value.isprintable()
        and " " not in value
    )
