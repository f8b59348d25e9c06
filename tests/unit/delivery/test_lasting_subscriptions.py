"""A subscription's duration and end survive a restart, until its resource changes (D.3, S0.19)."""

from dataclasses import replace

import pytest

from pillion_sidecar.config.schema.common import RemovalAction
from pillion_sidecar.config.schema.subscription import (
    IndicationSubscription,
    RepeatNotification,
    RepeatPolicy,
    SubscriptionState,
)
from pillion_sidecar.delivery.entries import SubscriptionEnd
from pillion_sidecar.delivery.subscription_table import digest_of
from pillion_sidecar.journal.records import Snapshot
from support.crashing_files import RecordingFiles
from support.delivery import destination, subscription
from support.on_disk import OnDisk

OPS = destination("ops")


def subscribed(deliverer: OnDisk, resource: IndicationSubscription) -> OnDisk:
    deliverer.apply([OPS], [resource])
    deliverer.rest()
    return deliverer


def ended(deliverer: OnDisk) -> list[tuple[str, SubscriptionEnd | None, SubscriptionEnd | None]]:
    found = deliverer.service.ended_subscriptions()
    return [(one.resource.name, one.end, one.cause) for one in found]


@pytest.fixture
def deliverer() -> OnDisk:
    return OnDisk(RecordingFiles())


@pytest.mark.parametrize("rolls", [0, 3], ids=["record", "snapshots"])
def test_a_duration_counts_from_the_first_sight_over_restarts(
    deliverer: OnDisk, rolls: int
) -> None:
    resource = subscription("ops", "ops", duration_seconds=50.0)
    subscribed(deliverer, resource)
    for count in range(rolls):
        deliverer.give(f"i{count}", "ops", body=b" " * 7000)
        deliverer.rest()
    deliverer.advance(20.0)
    again = subscribed(deliverer.restart(), resource)
    assert ended(again) == []
    again.advance(50.0 - 20.0 - 2.0 - rolls)
    assert ended(again) == [("ops", SubscriptionEnd.EXPIRED, SubscriptionEnd.EXPIRED)]
    # The same resource, and another edit of it: a duration does not begin anew.
    third = subscribed(again.restart(), resource)
    assert ended(third) == [("ops", SubscriptionEnd.EXPIRED, SubscriptionEnd.EXPIRED)]
    third.apply([OPS], [replace(resource, duration_seconds=40.0)])
    assert ended(third) == [("ops", SubscriptionEnd.EXPIRED, SubscriptionEnd.EXPIRED)]


@pytest.mark.parametrize("restarts", [1, 3])
@pytest.mark.parametrize(
    ("action", "end"),
    [
        (RemovalAction.DISABLE, SubscriptionEnd.FATAL_ERROR),
        (RemovalAction.REMOVE, SubscriptionEnd.REMOVED),
    ],
)
def test_what_an_action_ended_stays_ended_until_its_resource_changes(
    deliverer: OnDisk, action: RemovalAction, end: SubscriptionEnd, restarts: int
) -> None:
    resource = subscription("ops", "ops", on_fatal_error_policy=action)
    subscribed(deliverer, resource)
    table = deliverer.service._table.subscriptions
    table.act(table.get("ops"), action, SubscriptionEnd.FATAL_ERROR)  # type: ignore[arg-type]
    deliverer.rest()
    for _ in range(restarts):
        deliverer = subscribed(deliverer.restart(), resource)
        assert ended(deliverer) == [("ops", end, SubscriptionEnd.FATAL_ERROR)]
        deliverer.give("lost", "ops")
        assert deliverer.queue("ops").depth == 0
    changed = replace(resource, on_fatal_error_policy=RemovalAction.IGNORE)
    deliverer = subscribed(deliverer.restart(), changed)
    assert ended(deliverer) == []
    # And the change is remembered: the old resource is another change.
    assert ended(subscribed(deliverer.restart(), resource)) == []


def test_an_end_is_forgotten_with_its_resource(deliverer: OnDisk) -> None:
    resource = subscription("ops", "ops", duration_seconds=5.0)
    subscribed(deliverer, resource)
    deliverer.advance(10.0)
    assert ended(deliverer) != []
    deliverer.apply([OPS], [])
    deliverer.rest()
    deliverer.apply([OPS], [resource])
    deliverer.rest()
    assert ended(deliverer) == []
    assert ended(subscribed(deliverer.restart(), resource)) == []


def test_a_resource_made_anew_begins_anew(deliverer: OnDisk) -> None:
    resource = subscription("ops", "ops", duration_seconds=5.0)
    subscribed(deliverer, resource)
    deliverer.advance(10.0)
    again = subscribed(deliverer.restart(), replace(resource, uid="made-anew"))
    assert ended(again) == []
    assert again.journal.owner.subscription_records() != []


def test_nothing_is_kept_of_what_a_restart_finds_in_the_resource(deliverer: OnDisk) -> None:
    deliverer.apply(
        [OPS],
        [
            subscription("plain", "ops"),
            subscription("dated", "ops", duration_seconds=50.0, created_at=deliverer.time.time()),
            subscription("off", "ops", state=SubscriptionState.DISABLED),
        ],
    )
    deliverer.rest()
    assert list(deliverer.journal_listener().subscription_records()) == []


def test_a_digest_knows_no_field_that_says_its_default() -> None:
    one = subscription(
        "ops", "ops", repeat_notification=RepeatNotification(policy=RepeatPolicy.NONE)
    )
    assert digest_of(one) == digest_of(replace(one, created_at=5.0))
    assert digest_of(one) != digest_of(replace(one, filter_name="other"))
    delayed = RepeatNotification(policy=RepeatPolicy.DELAY)
    assert digest_of(one) != digest_of(replace(one, repeat_notification=delayed))


def test_the_first_release_reads_a_snapshot_with_subscriptions() -> None:
    # It has no such field, and its own number of fields is what it reads of the array.
    fields = Snapshot.__struct_fields__
    assert fields[-1] == "subscriptions"
    assert fields[:-1] == ("time", "next_id", "next_epoch", "commit", "names", "queues", "groups")
