"""The log events of delivery, each with a stable name (S0.11)."""

import logging
from collections.abc import Mapping, Sequence
from typing import TypeAlias

from pillion_sidecar.delivery.entries import QueueEntry, Subscription
from pillion_sidecar.delivery.handler import DeliveryOutcome, Hold
from pillion_sidecar.delivery.queue import DestinationQueue
from pillion_sidecar.indication import DiscardReason, Indication

logger = logging.getLogger("pillion.delivery")


#: Destination and reason.
DiscardKind: TypeAlias = tuple[str, str]
#: Kinds of discards that get a line of their own in a count; the rest share one.
COUNTED_KINDS = 100
#: Maximum identifiers in one line at shutdown.
IDENTIFIERS_IN_A_LINE = 100


def discarded(
    queue: DestinationQueue,
    entry: QueueEntry,
    reason: DiscardReason,
    *,
    detail: str,
    sequence_number: int | None,
    forced: bool,
) -> None:
    """``forced``: too few stores have it."""
    logger.warning(
        "indication discarded%s: %s",
        " before it was stable" if forced else "",
        f"{reason.value}: {detail}" if detail else reason.value,
        extra={
            "event": "indication-discarded",
            "reason": reason.value,
            "detail": detail or None,
            "destination": queue.name,
            "subscription": entry.subscription.resource.name,
            "identifier": entry.indication.identifier,
            "source": entry.indication.source,
            "sequence_context": queue.sequence.context,
            "sequence_number": sequence_number,
            "attempts": entry.attempts,
            "forced": forced or None,
        },
    )


def discards_counted(counts: Mapping[DiscardKind, int], *, earlier: bool = False) -> None:
    """Discards beyond those with their own line; ``earlier``: by the previous run."""
    kinds = sorted(((count, kind) for kind, count in counts.items() if count > 0), reverse=True)
    for count, (destination, reason) in kinds[:COUNTED_KINDS]:
        _count_discards(count, f"{destination}: {reason}", destination, reason, earlier)
    rest = sum(count for count, _ in kinds[COUNTED_KINDS:])
    if rest:
        others = f"{len(kinds) - COUNTED_KINDS} other destinations and reasons"
        _count_discards(rest, others, None, None, earlier)


def _count_discards(
    count: int, what: str, destination: str | None, reason: str | None, earlier: bool
) -> None:
    more = "discards at the end of the run before" if earlier else "more discards"
    logger.warning(
        "%s %s for %s; identifiers: pillion journal discards, or GET /v1/discards, which says as"
        " unlisted how many the list had no room for",
        f"{count:,}",
        more,
        what,
        extra={
            "event": "discards-counted",
            "destination": destination,
            "reason": reason,
            "count": count,
            "run": "before" if earlier else None,
        },
    )


def discarded_at_shutdown(destination: str, identifiers: Sequence[str | None]) -> None:
    """Discards at shutdown beyond those with their own line, with identifiers: nothing else may
    outlive the process."""
    for begin in range(0, len(identifiers), IDENTIFIERS_IN_A_LINE):
        some = identifiers[begin : begin + IDENTIFIERS_IN_A_LINE]
        logger.warning(
            "%d more discards for %s: shutdown",
            len(some),
            destination,
            extra={
                "event": "discards-counted",
                "destination": destination,
                "reason": DiscardReason.SHUTDOWN.value,
                "count": len(some),
                "identifiers": [str(one or "") for one in some],
            },
        )


def dead_letter_refused(queue: DestinationQueue, name: str, *, reason: str, count: int) -> None:
    """``count``: since the line before."""
    logger.warning(
        "%s of %s not taken as dead letters by %s: %s",
        f"{count:,}",
        queue.name,
        name,
        reason,
        extra={
            "event": "dead-letter-refused",
            "destination": queue.name,
            "dead_letter_destination": name,
            "count": count,
            "reason": reason,
        },
    )


def delivery_failed(queue: DestinationQueue, outcome: DeliveryOutcome) -> None:
    """A destination has begun to fail; later attempts appear only in the metrics."""
    logger.warning(
        "delivery to %s fails: %s",
        queue.name,
        outcome.detail,
        extra={
            "event": "delivery-failing",
            "destination": queue.name,
            "result": outcome.result.value,
            "detail": outcome.detail,
            "status": outcome.status,
        },
    )


def destination_held(queue: DestinationQueue, hold: Hold) -> None:
    logger.error(
        "destination %s is held, its indications wait: %s",
        queue.name,
        hold.message,
        extra={
            "event": "destination-held",
            "destination": queue.name,
            "cause": hold.cause.value,
            "detail": hold.message,
            "depth": queue.depth,
        },
    )


def destination_paused(queue: DestinationQueue, hold: Hold) -> None:
    logger.error(
        "destination %s is paused, only its oldest indication is tried now and then: %s",
        queue.name,
        hold.message,
        extra={
            "event": "destination-paused",
            "destination": queue.name,
            "cause": hold.cause.value,
            "detail": hold.message,
            "depth": queue.depth,
        },
    )


def destination_released(queue: DestinationQueue, hold: Hold, *, seconds: float) -> None:
    """The end of a hold or a pause, unless its begin was not logged."""
    if not hold.is_told:
        return
    if hold.cause.is_pause:
        _destination_resumed(queue, hold, seconds=seconds)
        return
    logger.info(
        "destination %s is released after %.1f s",
        queue.name,
        seconds,
        extra={
            "event": "destination-released",
            "destination": queue.name,
            "cause": hold.cause.value,
            "seconds": round(seconds, 3),
            "depth": queue.depth,
        },
    )


def _destination_resumed(queue: DestinationQueue, hold: Hold, *, seconds: float) -> None:
    logger.info(
        "destination %s is resumed after %.1f s",
        queue.name,
        seconds,
        extra={
            "event": "destination-resumed",
            "destination": queue.name,
            "cause": hold.cause.value,
            "seconds": round(seconds, 3),
            "depth": queue.depth,
        },
    )


def delivery_resumed(queue: DestinationQueue, *, seconds: float) -> None:
    logger.info(
        "delivery to %s works again after %.1f s",
        queue.name,
        seconds,
        extra={
            "event": "delivery-resumed",
            "destination": queue.name,
            "seconds": round(seconds, 3),
            "depth": queue.depth,
        },
    )


def subscription_ended(subscription: Subscription) -> None:
    end = subscription.end
    logger.warning(
        "subscription %s ended: %s",
        subscription.resource.name,
        end.value if end else "",
        extra={
            "event": "subscription-ended",
            "subscription": subscription.resource.name,
            "destination": subscription.resource.destination_name,
            "reason": end.value if end else None,
        },
    )


def left_at_shutdown(queue: DestinationQueue, count: int) -> None:
    """Indications that the stop discards, or that a failed journal may have lost (S0.14)."""
    logger.warning(
        "%s left for %s at shutdown",
        _indications(count),
        queue.name,
        extra={"event": "left-at-shutdown", "destination": queue.name, "count": count},
    )


def kept_at_shutdown(queue: DestinationQueue, count: int) -> None:
    """Pending indications that the journal keeps for the next start (S0.14)."""
    logger.info(
        "the journal keeps %s for %s",
        _indications(count),
        queue.name,
        extra={"event": "kept-at-shutdown", "destination": queue.name, "count": count},
    )


def handed_over(queue: DestinationQueue, gateway: str, *, delivered: int, seconds: float) -> None:
    """Result of the hand-over at shutdown (S0.14)."""
    logger.info(
        "%d indications for %s handed over to %s, %d delivered, %d left, in %.1f s",
        queue.statistics.handed_over,
        queue.name,
        gateway,
        delivered,
        queue.depth,
        seconds,
        extra={
            "event": "handed-over",
            "destination": queue.name,
            "gateway": gateway,
            "delivered": delivered,
            "handed_over": queue.statistics.handed_over,
            "left": queue.depth,
            "seconds": round(seconds, 3),
        },
    )


def recovered(queue: DestinationQueue, count: int) -> None:
    logger.info(
        "the journal has %s for %s",
        _indications(count),
        queue.name,
        extra={"event": "recovered", "destination": queue.name, "count": count},
    )


def group_ended_at(queue: DestinationQueue, indication: Indication) -> None:
    """A member of an ordered group was lost, which ends the group here (S1.5)."""
    member = indication.member
    logger.warning(
        "an ordered message group ends at %s: member %s is lost there",
        queue.name,
        None if member is None else member.sequence,
        extra={
            "event": "group-ended-at-destination",
            "destination": queue.name,
            "group": indication.group,
            "source": indication.source,
            "sequence": None if member is None else member.sequence,
        },
    )


def gap_forgotten(queue: DestinationQueue) -> None:
    """More ordered groups have ended here than are remembered (S1.5)."""
    logger.warning(
        "more ordered message groups have ended at %s than are remembered; of the oldest of them"
        " later members may be delivered",
        queue.name,
        extra={"event": "group-gap-forgotten", "destination": queue.name},
    )


def delivery_ends(left: int) -> None:
    """``left``: (indication, subscription) pairs that are not settled."""
    logger.info(
        "delivery ends with %d indications left",
        left,
        extra={"event": "deliverer-stopping", "left": left},
    )


def _indications(count: int) -> str:
    return "1 indication" if count == 1 else f"{count} indications"


def replay_not_changed(name: str) -> None:
    logger.warning(
        "IndicationReplay/%s: only rateLimit, suspended and ttlSecondsAfterFinished can be changed,"
        " so it goes on as it began; give another replay another name",
        name,
        extra={"event": "configuration-warning"},
    )
