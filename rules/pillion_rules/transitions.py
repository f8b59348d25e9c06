"""What goes into a rule and what comes out: readings and transitions."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

#: The level of a reading that is clear.
CLEAR = 0


class TransitionKind(StrEnum):
    RAISED = "raised"
    CHANGED = "changed"
    REPEATED = "repeated"
    CLEARED = "cleared"


class Reason(StrEnum):
    """Why an alert was cleared, if not by readings."""

    FORGOTTEN = "forgotten"
    REMOVED = "rule-removed"


class Untold(StrEnum):
    """Why a transition is not told to listeners."""

    AGE = "tooOld"
    MAINTENANCE = "maintenance"
    UNLESS = "unless"


@dataclass(frozen=True, slots=True)
class Reading:
    """One reading of one key, judged by one rule."""

    #: Event time, in microseconds since 1970.
    at: int
    #: A number of :func:`pillion_rules.names.levels`, or CLEAR. None: neither a severity nor
    #: ``clear`` holds, as with a null.
    level: int | None
    #: Texts of columns, for the message.
    values: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A change of one alert. Times are microseconds since 1970."""

    rule: str
    key: tuple[str, ...]
    transition: TransitionKind
    #: Name of the severity; of a cleared alert the last one.
    level: str
    at: int
    #: When the condition began.
    since: int
    #: Times with a severity since then.
    count: int
    text: str
    #: Time and level of the raise of this alert.
    raised_at: int
    raised_level: str
    reason: Reason | None = None
    #: None: it is told.
    untold: Untold | None = None

    def identity(self, source: str) -> str:
        """Depends on the content alone, so a repeat of the job makes the same one."""
        return self._identity(source, self.transition, self.level, self.at)

    def raise_identity(self, source: str) -> str:
        """The identity of the raise, to which the other transitions of the alert refer."""
        return self._identity(source, TransitionKind.RAISED, self.raised_level, self.raised_at)

    @property
    def alert(self) -> str:
        """One alert of one key: from a raise to its clear."""
        return _digest(self.rule, self.key, self.raised_at)

    def _identity(self, source: str, transition: TransitionKind, level: str, at: int) -> str:
        return _digest(source, self.rule, self.key, transition.value, level, at)


def _digest(*parts: object) -> str:
    return hashlib.sha256(json.dumps(parts, separators=(",", ":")).encode()).hexdigest()
