"""Who reads the log learns which stores are missed."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

import pytest

from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.stores import (
    Fencing,
    StoreGroupMembers,
    StoreMember,
    StoresPolicy,
    StreamMember,
)
from pillion_sidecar.diagnosis.status import stores_status
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.stores.messages import Request
from pillion_sidecar.stores.notices import STALL_SECONDS, ResponseNotices, StallNotice
from pillion_sidecar.stores.ports import Answer, Unanswered
from pillion_sidecar.stores_access import check_access
from pillion_sidecar.stores_runtime import (
    READ_SECONDS,
    JournalStores,
)
from pillion_sidecar.testing import FakeTime
from support.crashing_files import RecordingFiles


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
        (policy("a", "b", "c", stability_lifetime=1), "to change it"),
        (policy("a", "b", "c", fencing=Fencing.LEASE), "to change it"),
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
        clock=fake_time,
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
        clock=fake_time,
        timers=fake_time,
    )
    assert stores.wait_reason() == (
        "the start waits for stores of the journal: a (no answer yet); b (no answer yet); it goes"
        " on by itself once they answer, so see to them and publish again"
    )


def policy_of(*servers: str) -> StoresPolicy:
    stream = StreamMember(name="nats", servers=servers, stream="journals")
    group = StoreGroupMembers(name="g", members=(StoreMember(stream=stream),))
    return StoresPolicy(groups=(group,))


@dataclass
class Away:
    """A transport to stores that never answer anything but a refusal of the login."""

    servers: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    asked: asyncio.Event = field(default_factory=asyncio.Event)

    def send(self, store: str, _: Request, answered: Callable[[Answer], None]) -> None:
        self.asked.set()
        told = Unanswered(reason="the server refuses: Authorization Violation")
        asyncio.get_running_loop().call_soon(answered, told)

    def renew(self, streams: Sequence[StreamMember], /) -> None:
        if streams[0].servers == ("nats://wrong",):
            raise InvalidDestinationError("it is wrong")
        self.servers += streams[0].servers

    def close(self) -> None: ...


async def test_a_start_that_waits_for_a_stream_looks_for_other_servers_and_credentials(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture, tmp_path: Path
) -> None:
    away = Away()
    found = iter(["nats://b", "nats://wrong", "nats://c"])
    read = asyncio.Event()

    def load() -> StoresPolicy | None:
        server = next(found, None)
        loop.call_soon_threadsafe(read.set)
        if server is None:
            raise ConfigurationError([])
        return policy_of(server)

    loop = asyncio.get_running_loop()
    stores = JournalStores(
        policy_of("nats://a"),
        service="alerts",
        session_name=None,
        pod_uid=None,
        connect=lambda *_, **__: away,
        clock=fake_time,
        timers=fake_time,
        load=load,
    )
    claiming = asyncio.create_task(stores.claim(RecordingFiles(), tmp_path))
    await away.asked.wait()
    async with asyncio.timeout(10):
        for _ in range(4):
            while not read.is_set():
                fake_time.advance(READ_SECONDS)
                await asyncio.sleep(0)
            read.clear()
    assert away.servers == ["nats://b", "nats://c"]
    assert "the stores are reached as before: it is wrong" in caplog.text
    assert "nats (the server refuses: Authorization Violation)" in caplog.text
    assert stores.stalled == {"nats": "the server refuses: Authorization Violation"}
    claiming.cancel()
    with suppress(asyncio.CancelledError):
        await claiming
    stores.close()


def test_gateways_alone_need_a_way_to_gateways() -> None:
    check_access(policy_of("nats://a"), service="alerts", gateway=None)
    group = StoreGroupMembers(
        name="g",
        members=(StoreMember(gateway="one"), *policy_of("nats://a").groups[0].members),
    )
    mixed = StoresPolicy(groups=(group,))
    with pytest.raises(ConfigurationError, match="needs gateways"):
        check_access(mixed, service="alerts", gateway=None)
    # There is one gateway.
    check_access(mixed, service="alerts", gateway="http://one")


def _not_yet(*_: object, **__: object) -> NoReturn:
    raise AssertionError("the start has not begun")
