"""Who reads the log learns which stores are missed."""

import logging
from typing import Any, NoReturn

import pytest

from pillion_sidecar.config.schema.stores import StoreGroupMembers, StoreMember, StoresPolicy
from pillion_sidecar.diagnosis.status import stores_status
from pillion_sidecar.stores_runtime import (
    STALL_SECONDS,
    JournalStores,
    ResponseNotices,
    StallNotice,
)
from pillion_sidecar.testing import FakeTime


def _events(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.__dict__["event"] for record in caplog.records]


def test_missed_stores_are_told_of_once_and_when_they_are_back(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillion.stores")
    notice, stalled = StallNotice(timers=fake_time), {"a": "a is away", "b": "no answer yet"}
    notice.change(lambda: stalled)
    stalled["b"] = "b has no room"
    fake_time.advance(STALL_SECONDS)
    (record,) = caplog.records
    assert record.__dict__["stores"] == ["a", "b"]
    assert record.getMessage().endswith("missed are: a (a is away); b (b has no room)")
    fake_time.advance(10 * STALL_SECONDS)
    stalled.clear()
    notice.change(lambda: stalled)
    assert _events(caplog) == ["stores-missed", "stores-back"]


def test_a_store_that_is_restarted_is_not_told_of(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillion.stores")
    notice = StallNotice(timers=fake_time)
    for _ in range(3):
        notice.change(lambda: {"a": "a is away"})
        fake_time.advance(STALL_SECONDS / 2)
        notice.change(dict)
        fake_time.advance(STALL_SECONDS)
    assert _events(caplog) == []


def test_a_deliverer_that_ends_tells_nothing_more(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    notice = StallNotice(timers=fake_time)
    notice.change(lambda: {"a": "a is away"})
    notice.close()
    fake_time.advance(STALL_SECONDS)
    assert _events(caplog) == []


def test_a_store_that_does_not_respond_is_told_of_once_and_when_it_is_back(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, logger="pillion.stores")
    notices = ResponseNotices(timers=fake_time)
    for name in "ab":
        notices.change(name, f"{name} is away")
    fake_time.advance(STALL_SECONDS / 2)
    notices.change("b", None)
    fake_time.advance(10 * STALL_SECONDS)
    (record,) = caplog.records
    assert record.__dict__["store"] == "a"
    assert record.getMessage() == "store a does not take the journal: a is away"
    notices.change("a", None)
    notices.change("b", "b is away")
    notices.close()
    fake_time.advance(STALL_SECONDS)
    assert _events(caplog) == ["store-unresponsive", "store-responsive"]


def test_a_start_that_waits_misses_all_stores(fake_time: FakeTime) -> None:
    members = tuple(StoreMember(gateway=name) for name in "ab")
    stores = JournalStores(
        StoresPolicy(groups=(StoreGroupMembers(name="g", members=members),), flight_size=100),
        service="alerts",
        session_name=None,
        pod_uid=None,
        connect=_not_yet,
        clock=fake_time,
        timers=fake_time,
    )
    status = stores_status(stores)
    assert status is not None
    assert (status.unstable_bytes, status.flight_size_bytes) == (0, 100)
    assert [(one.name, one.is_up, one.is_missed) for one in status.members] == [
        ("a", False, True),
        ("b", False, True),
    ]


def policy(*names: str, **given: Any) -> StoresPolicy:
    members = tuple(StoreMember(gateway=name) for name in names)
    return StoresPolicy(groups=(StoreGroupMembers(name="g", members=members),), **given)


@pytest.mark.parametrize(
    ("wanted", "says"),
    [
        (policy("a", "b", "c"), None),
        (policy("a", "b", "d"), "to change it"),
        (policy("a", "b", "c", flight_size=1), "to change it"),
        (policy("c", "d", "e"), "with its folder: of the stores that have its journal, 1 would"),
        (None, "to change it"),
    ],
)
def test_a_change_of_stores_is_told_of_and_what_it_may_cost(
    wanted: StoresPolicy | None,
    says: str | None,
    fake_time: FakeTime,
    caplog: pytest.LogCaptureFixture,
) -> None:
    stores = JournalStores(
        policy("a", "b", "c"),
        service="alerts",
        session_name=None,
        pod_uid=None,
        connect=_not_yet,
        timers=fake_time,
    )
    stores.warn_of_change(wanted)
    assert stores.is_changed is (says is not None)
    assert _events(caplog) == (["configuration-warning"] if says else [])
    if says:
        message = caplog.records[0].getMessage()
        assert says in message if "folder" in says else message.endswith(says)
        stores.warn_of_change(policy("a", "b", "c"))
        assert not stores.is_changed


def test_publishers_are_told_what_a_start_waits_for(fake_time: FakeTime) -> None:
    members = tuple(StoreMember(gateway=name) for name in "ab")
    stores = JournalStores(
        StoresPolicy(groups=(StoreGroupMembers(name="g", members=members),)),
        service="alerts",
        session_name=None,
        pod_uid=None,
        connect=_not_yet,
        timers=fake_time,
    )
    assert stores.wait_reason() == (
        "the start waits for stores of the journal: a (no answer yet); b (no answer yet); it goes"
        " on by itself once they answer, so see to them and publish again"
    )


def _not_yet(*_: object, **__: object) -> NoReturn:
    raise AssertionError("the start has not begun")
