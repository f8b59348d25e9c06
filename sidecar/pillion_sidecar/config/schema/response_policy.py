"""What follows an attempt without success: the defaults, a destination's own rules, and its circuit
breaker."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum

from pillion_sidecar.config.schema.common import INTERVAL
from pillion_sidecar.fields import (
    Integer,
    ListOf,
    Rule,
    cel_text,
    declared,
    resource,
    structure,
    text_matching,
)


class Action(StrEnum):
    RETRY = "Retry"
    DISCARD = "Discard"
    PAUSE = "Pause"
    DISABLE = "Disable"


class NoAnswer(StrEnum):
    """Why an attempt has no answer, in the words of a rule."""

    #: No connection, or it ended before a valid answer.
    CONNECTION = "connection"
    TIMEOUT = "timeout"
    #: The handshake fails, or the certificate is wrong.
    TLS = "tls"


#: Words for answers of any protocol: the credentials are refused, or this indication is.
CREDENTIALS = "credentials"
INDICATION = "indication"
#: Attempts with ``Discard`` by default, and at most.
REFUSALS = 3
MOST_REFUSALS = 100
MOST_RULES = 32
_WORDS = (*NoAnswer, CREDENTIALS, INDICATION)
_ANSWER = text_matching(
    f"[2-5][0-9][0-9]|[2-5]xx|{'|'.join(_WORDS)}",
    max_length=16,
    message="is not an answer",
    remedy=f"Write an HTTP status such as 410, a class such as 5xx, or one of {', '.join(_WORDS)}.",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Default:
    """A line of the table in the manual."""

    answers: tuple[str, ...]
    action: Action
    #: Whether Retry-After lengthens the wait.
    heeds_retry_after: bool = False


#: Any other answer is retried. The first line that has an answer decides.
DEFAULTS = (
    Default(answers=("429", "503"), action=Action.RETRY, heeds_retry_after=True),
    Default(answers=("408", "425", "5xx", *NoAnswer), action=Action.RETRY),
    Default(answers=("400", "413", "415", "422", INDICATION), action=Action.DISCARD),
    Default(answers=("401", "403", "407", CREDENTIALS), action=Action.PAUSE),
    Default(answers=("404", "410", "3xx"), action=Action.RETRY),
)
_OTHERS = Default(answers=(), action=Action.RETRY)


def words_of(status: int) -> tuple[str, str]:
    """How rules name a status."""
    return str(status), f"{status // 100}xx"


def default_of(status: int) -> Default:
    words = words_of(status)
    return next((line for line in DEFAULTS if not set(words).isdisjoint(line.answers)), _OTHERS)


@resource
class ResponseRule:
    answers: tuple[str, ...] = declared(
        type=ListOf(item=_ANSWER, max_items=MOST_RULES),
        description="The answers: HTTP statuses such as 410, classes such as 5xx, and words. "
        "connection: no connection, or it ends before a valid answer. timeout: no answer "
        "within timeoutSeconds. tls: the TLS handshake fails. credentials: the listener or the "
        "proxy refuses the credentials, in any protocol. indication: the listener refuses this "
        "indication, in any protocol.",
    )
    action: Action = declared(
        description="What follows. Retry: the indication is attempted again by the retry "
        "settings. Discard: it is discarded after `attempts`. Pause: nothing more is sent, except "
        "the oldest indication every retry.maximumIntervalSeconds, until one is accepted. "
        "Disable: nothing more is sent until this resource changes or the deliverer restarts, and "
        "lifetimes stop.",
    )
    attempts: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=MOST_REFUSALS),
        description="Attempts at an indication with such an answer before action Discard. More "
        "than 1 needs action Discard.",
    )


_DISCARD = cel_text(Action.DISCARD)
RESPONSE_RULE = structure(
    ResponseRule,
    rules=(
        Rule(
            cel="size(self.answers) > 0",
            holds=lambda rule: len(rule["answers"]) > 0,
            field="answers",
            message="is empty",
            remedy="Write an answer, such as 410.",
        ),
        Rule(
            cel=f"self.attempts == 1 || self.action == {_DISCARD}",
            holds=lambda rule: rule["attempts"] == 1 or rule["action"] == Action.DISCARD,
            field="attempts",
            message="has no effect, since action is not Discard",
            remedy="Remove it, or set action to Discard.",
        ),
    ),
)
RESPONSE_POLICY = ListOf(item=RESPONSE_RULE, max_items=MOST_RULES, atomic=True)
ABOUT_RESPONSE_POLICY = (
    "What follows an attempt without success, by its answer, instead of the defaults. The first "
    "rule that names the answer decides."
)


def rule_for(rules: Iterable[ResponseRule], words: Iterable[str]) -> ResponseRule | None:
    """The first rule that names one of the words."""
    named = set(words)
    return next((rule for rule in rules if not named.isdisjoint(rule.answers)), None)


@resource
class CircuitBreaker:
    failures: int = declared(
        type=Integer(minimum=1, maximum=10_000),
        description="Failed attempts in a row, without a success in between, after which it opens: "
        "nothing more is sent, except the oldest indication every probeIntervalSeconds, until one "
        "is accepted.",
    )
    probe_interval_seconds: float = declared(
        default=60.0,
        type=INTERVAL,
        description="Seconds between two attempts while it is open. They spend no retry.",
    )
