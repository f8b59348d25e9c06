"""What of a subscription outlives a restart: when its duration began, and how it ended (D.3)."""

import dataclasses
import hashlib
from typing import Any

from pillion_sidecar.config.resources import IndicationSubscription
from pillion_sidecar.delivery.subscriptions import Subscription, SubscriptionEnd
from pillion_sidecar.journal.ports import SubscriptionRecord

#: Not of the subscription's meaning: a file may gain it with the next edit of another tool.
_LEFT_OUT = frozenset(("created_at",))


def record_of(subscription: Subscription) -> SubscriptionRecord | None:
    """Return what the journal keeps of a subscription; None where a restart finds all of it in its
    resource."""
    resource = subscription.resource
    counts = resource.duration_seconds is not None and resource.created_at is None
    if subscription.cause is None and not counts:
        return None
    return SubscriptionRecord(
        uid=resource.uid,
        began_at=subscription.began_at,
        resource=digest_of(resource),
        end=None if subscription.end is None else subscription.end.value,
        cause=None if subscription.cause is None else subscription.cause.value,
    )


def forgotten(resource: IndicationSubscription) -> SubscriptionRecord:
    """Return the record of a subscription of which nothing is kept any more."""
    return SubscriptionRecord(uid=resource.uid)


def resume(subscription: Subscription, record: SubscriptionRecord) -> None:
    """Let a subscription go on as it was in the run before: ended, where its resource has not
    changed since."""
    if record.began_at is not None:
        subscription.began_at = min(subscription.began_at, record.began_at)
    if record.cause is None or record.end is None or not subscription.active:
        return
    if record.resource == digest_of(subscription.resource):
        subscription.end = SubscriptionEnd(record.end)
        subscription.cause = SubscriptionEnd(record.cause)


def digest_of(resource: IndicationSubscription) -> bytes:
    """Return 16 bytes that stand for all that a subscription's resource says.

    Fields that have their defaults are left out, so that a later version, which knows more fields,
    finds the same.
    """
    return hashlib.sha256(repr(_said(resource)).encode()).digest()[:16]


def _said(value: Any) -> Any:
    if not dataclasses.is_dataclass(value):
        return value
    return [
        (field.name, _said(getattr(value, field.name)))
        for field in sorted(dataclasses.fields(value), key=lambda one: one.name)
        if field.name not in _LEFT_OUT and getattr(value, field.name) != field.default
    ]
