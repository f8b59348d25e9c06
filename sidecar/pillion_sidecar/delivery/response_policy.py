"""What follows a failed attempt: by a rule of its destination, else by the defaults, which an
outcome carries."""

import math
from collections.abc import Sequence
from typing import NamedTuple

from pillion_sidecar.config.schema.response_policy import (
    CREDENTIALS,
    INDICATION,
    REFUSALS,
    Action,
    ResponseRule,
    rule_for,
    words_of,
)
from pillion_sidecar.delivery.handler import (
    GONE,
    GONE_SECONDS,
    HOLD_RETRY_SECONDS,
    DeliveryOutcome,
    HoldCause,
)
from pillion_sidecar.delivery.queue import DestinationQueue

#: At least, in a pause without a breaker, so that a short lifetime does not end before a probe.
PROBES_IN_A_LIFETIME = 4


class Reaction(NamedTuple):
    #: Why the queue is held or paused; None: it is not.
    hold: HoldCause | None = None
    #: Attempts with such an answer after which the indication is discarded; None: no limit of its
    #: own.
    discard_after: int | None = None
    #: Whether a rule says so.
    by_rule: bool = False


def reaction_to(outcome: DeliveryOutcome, rules: Sequence[ResponseRule]) -> Reaction:
    rule = rule_for(rules, _words(outcome)) if rules else None
    if rule is None:
        return Reaction(outcome.hold, REFUSALS if outcome.refuses_indication else None)
    match rule.action:
        case Action.PAUSE:
            refused = outcome.hold is HoldCause.REFUSED
            cause = HoldCause.REFUSED if refused else HoldCause.RESPONSE_POLICY
            return Reaction(cause, by_rule=True)
        case Action.DISABLE:
            return Reaction(HoldCause.DISABLED, by_rule=True)
        case Action.DISCARD:
            return Reaction(discard_after=rule.attempts, by_rule=True)
        case Action.RETRY:
            return Reaction(by_rule=True)


def _words(outcome: DeliveryOutcome) -> list[str]:
    """How rules name the answer. A fault of the destination, such as its address, is none."""
    hold, status = outcome.hold, outcome.status
    if hold is not None and not hold.is_pause and status != GONE:
        return []
    words = [] if status is None else [*words_of(status)]
    if outcome.no_answer is not None:
        words.append(outcome.no_answer)
    if hold is HoldCause.REFUSED:
        words.append(CREDENTIALS)
    if outcome.refuses_indication:
        words.append(INDICATION)
    return words


def refuses_indication(outcome: DeliveryOutcome, discard_after: int | None) -> bool:
    """Whether the answer is about the indication, and so the listener works: by the protocol, or
    where a rule discards after an answer of class 4xx."""
    is_of_client = outcome.status is not None and 400 <= outcome.status < 500
    return outcome.refuses_indication or (discard_after is not None and is_of_client)


def pause_of(
    queue: DestinationQueue, outcome: DeliveryOutcome, reaction: Reaction
) -> HoldCause | None:
    """The cause of a pause that goes on after a failed probe; None: there is none.

    Any failure keeps it, except an answer that is about the indication alone. The configuration may
    have changed since the pause began, in an earlier run.
    """
    hold, destination = queue.health.hold, queue.destination
    if hold is None or not hold.cause.is_pause:
        return None
    if refuses_indication(outcome, reaction.discard_after):
        return None
    match hold.cause:
        case HoldCause.CIRCUIT_BREAKER:
            goes_on = destination.circuit_breaker is not None
        case HoldCause.RESPONSE_POLICY:
            goes_on = any(rule.action is Action.PAUSE for rule in destination.response_policy)
        case _:
            # Unless a rule says otherwise of what has paused it.
            goes_on = not (reaction.by_rule and outcome.hold is HoldCause.REFUSED)
    return hold.cause if goes_on else None


def stopped_seconds(queue: DestinationQueue, outcome: DeliveryOutcome, cause: HoldCause) -> float:
    """The seconds to the next attempt at a queue that is held or paused."""
    if cause is HoldCause.DISABLED:
        return math.inf
    if not cause.is_pause:
        return GONE_SECONDS if outcome.status == GONE else HOLD_RETRY_SECONDS
    retry, breaker = queue.retry, queue.destination.circuit_breaker
    wait = retry.maximum_interval_seconds
    if queue.lifetime:
        wait = min(wait, max(retry.interval_seconds, queue.lifetime / PROBES_IN_A_LIFETIME))
    if cause is HoldCause.CIRCUIT_BREAKER and breaker is not None:
        wait = breaker.probe_interval_seconds
    if retry.respect_retry_after and outcome.retry_after is not None:
        wait = max(wait, min(outcome.retry_after, retry.maximum_interval_seconds))
    return wait


def opens_breaker(queue: DestinationQueue) -> bool:
    breaker = queue.destination.circuit_breaker
    if breaker is None or queue.relay_to is not None or queue.draining:
        return False
    return queue.health.failures >= breaker.failures
