"""How far a request has come when it is answered, and what is told later (S1.4, S1.9)."""

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from pillion_sidecar.config.schema.service import Acknowledgement, Durability
from pillion_sidecar.indication import DiscardReason
from support.intake import Door, alert, lines, target

HOOKS = "http://hooks.example:8080/pillion"


def durable_door() -> Door:
    """A door before a disk that takes its time."""
    door = Door()
    door.context.durability = Durability.DISK
    door.queues.barriers = []
    return door


@pytest.mark.parametrize("durability", [Durability.MEMORY, Durability.STATE_ONLY])
async def test_durable_is_refused_where_nothing_is_on_disk_naming_what_is_missing(
    durability: Durability,
) -> None:
    async with Door().open() as door:
        door.context.durability = durability
        for path in ("/v1/indications?ack=durable", "/v1/flush?publisher=p&level=durable"):
            status, document, _ = await door.post(lines(alert("a")), path=path)
            assert status == 400
            assert "durability Disk" in document["reason"]
            assert durability.value in document["reason"]
        assert door.queues.taken == []


async def test_durable_is_answered_after_the_commit_and_not_before() -> None:
    async with durable_door().open() as door:
        asked = asyncio.create_task(
            door.post(lines(alert("1"), alert("2")), path="/v1/indications?ack=durable")
        )
        await door.queues.barrier_asked.wait()
        assert len(door.queues.taken) == 2
        assert not asked.done()
        door.queues.secure()
        status, document, _ = await asked
        assert status == 200
        assert document == {"accepted": 2, "duplicate": 0, "refused": [], "durable": True}


async def test_a_duplicate_is_durable_once_its_original_is() -> None:
    async with durable_door().open() as door:
        await door.post(lines(alert("1")), path="/v1/indications?source=s")
        asked = asyncio.create_task(
            door.post(lines(alert("1")), path="/v1/indications?source=s&ack=durable")
        )
        await door.queues.barrier_asked.wait()
        assert not asked.done()
        door.queues.secure()
        status, document, _ = await asked
        assert (status, document["duplicate"], document["durable"]) == (200, 1, True)


async def test_what_is_not_durable_in_time_is_told_by_the_receipt() -> None:
    async with durable_door().open() as door:
        status, document, _ = await door.post(
            lines(alert("1")), path="/v1/indications?ack=durable&timeout=0"
        )
        assert (status, document["durable"], document["pending"]) == (202, False, 1)
        path = f"/v1/receipts/{document['receipt']}?timeout=0"
        status, document = await door.get(path)
        assert (status, document["durable"], document["pending"]) == (202, False, 1)
        door.queues.secure()
        status, document = await door.get(path)
        assert (status, document["durable"], document["pending"]) == (200, True, 1)
        assert (await door.get(path + "&level=delivered"))[0] == 202
        door.queues.settle(0)
        status, document = await door.get(path + "&level=delivered")
        assert (status, document["delivered"], "receipt" in document) == (200, 1, False)


async def test_a_receipt_for_delivery_does_not_speak_of_the_disk() -> None:
    async with durable_door().open() as door:
        _, document, _ = await door.post(
            lines(alert("1")), path="/v1/indications?ack=delivered&timeout=0"
        )
        assert "durable" not in document
        status, document = await door.get(f"/v1/receipts/{document['receipt']}?level=durable")
        assert (status, "did not ask" in document["reason"]) == (400, True)


async def test_nothing_accepted_waits_for_no_disk() -> None:
    async with durable_door().open() as door:
        status, document, _ = await door.post(b"{}", path="/v1/indications?ack=durable")
        assert (status, "durable" in document) == (400, False)
        assert door.queues.barriers == []


async def test_the_service_may_make_durable_the_default() -> None:
    async with durable_door().open() as door:
        door.context.acknowledgement = Acknowledgement.DURABLE
        status, document, _ = await door.post(lines(alert("1")), path="/v1/indications?timeout=0")
        assert (status, document["durable"]) == (202, False)


@pytest.mark.parametrize(
    ("content_type", "headers", "body"),
    [
        ("application/json", {}, lines(alert("1"))),
        (
            "application/json",
            {"ce-specversion": "1.0", "ce-id": "1", "ce-source": "s", "ce-type": "t"},
            lines(alert("1")),
        ),
    ],
)
async def test_every_form_of_body_can_be_durable(
    content_type: str, headers: Mapping[str, str], body: bytes
) -> None:
    async with durable_door().open() as door:
        status, document, _ = await door.post(
            body,
            path="/v1/indications?ack=durable&timeout=0",
            content_type=content_type,
            headers=dict(headers),
        )
        assert (status, document["accepted"], document["durable"]) == (202, 1, False)


async def test_a_flush_waits_for_the_disk() -> None:
    async with durable_door().open() as door:
        await door.post(lines(alert("1")), headers={"Pillion-Publisher": "p"})
        path = "/v1/flush?publisher=p&level=durable"
        status, document, _ = await door.post(b"", path=path + "&timeout=0")
        assert (status, document["complete"], document["durable"]) == (202, False, False)
        door.queues.secure()
        door.queues.barrier_asked.clear()
        asked = asyncio.create_task(door.post(b"", path=path))
        await door.queues.barrier_asked.wait()
        assert not asked.done()
        door.queues.secure()
        status, document, _ = await asked
        assert (status, document["complete"], document["durable"]) == (200, True, True)
        assert document["destinations"]["siem"]["pending"] == 1


# ---------------------------------------------------------------------- faults by poll


async def test_faults_are_polled_for_by_publisher_and_in_order() -> None:
    async with Door().open() as door:
        mine = {"Pillion-Publisher": "p"}
        await door.post(
            lines(*(alert(str(n)) for n in range(3))),
            path="/v1/indications?source=s",
            headers=mine,
        )
        door.queues.settle(2, discarded=DiscardReason.OUT_OF_ORDER)
        door.queues.settle(1)
        door.queues.settle(0, discarded=DiscardReason.QUEUE_FULL)
        status, document = await door.get("/v1/faults?publisher=p")
        assert status == 200
        assert document == {
            "faults": [
                {
                    "number": 1,
                    "destination": "siem",
                    "reason": "out-of-order",
                    "source": "s",
                    "identifier": "2",
                },
                {
                    "number": 3,
                    "destination": "siem",
                    "reason": "queue-full",
                    "source": "s",
                    "identifier": "0",
                },
            ],
            "dropped": 0,
            "last": 3,
            "instance": door.history.id,
        }
        _, document = await door.get("/v1/faults?publisher=p&after=1&limit=5")
        assert [one["number"] for one in document["faults"]] == [3]
        _, document = await door.get("/v1/faults?publisher=p&limit=1")
        assert ([one["number"] for one in document["faults"]], document["last"]) == ([1], 3)
        _, document = await door.get("/v1/faults?publisher=p&limit=0")
        assert (document["faults"], document["last"]) == ([], 3)


async def test_the_fault_of_a_duplicates_original_is_told_too() -> None:
    async with Door().open() as door:
        path = "/v1/indications?source=s"
        await door.post(lines(alert("1")), path=path, headers={"Pillion-Publisher": "one"})
        await door.post(lines(alert("1")), path=path, headers={"Pillion-Publisher": "two"})
        door.queues.settle(0, discarded=DiscardReason.LIFETIME_EXPIRED)
        door.time.advance(0)
        _, document = await door.get("/v1/faults?publisher=two")
        assert document["faults"] == [
            {"number": 2, "destination": "siem", "reason": "lifetime-expired", "duplicate": True}
        ]


@pytest.mark.parametrize(
    ("query", "status", "says"),
    [
        ("", 400, "Pillion-Publisher"),
        ("publisher=p&after=7", 409, "begun anew"),
        ("publisher=p&instance=0123456789abcdef", 409, "begun anew"),
        ("publisher=p&instance=", 409, "begun anew"),
        ("publisher=p&instance={id}.9.1.r1", 409, "begun anew"),
        ("publisher=p&instance={id}.0.253402300800000.r1", 409, "begun anew"),
        ("publisher=p&instance={id}.0." + "9" * 5000 + ".r1", 409, "begun anew"),
        ("publisher=p&after=-1", 400, "after"),
        ("publisher=p&after=1e3", 400, "after"),
        ("publisher=p&limit=10001", 400, "10000"),
        ("publisher=p&limit=" + "9" * 5000, 400, "limit"),
    ],
)
async def test_a_wrong_poll_is_told_what_is_wrong(query: str, status: int, says: str) -> None:
    async with Door().open() as door:
        await door.post(lines(alert("1")), headers={"Pillion-Publisher": "p"})
        got, document = await door.get(f"/v1/faults?{query.format(id=door.history.id)}")
        assert (got, says in document["reason"]) == (status, True)


# ---------------------------------------------------------------------- callbacks


async def call_me_back(door: Door, body: bytes, **query: str) -> tuple[int, Any]:
    door.context.callbacks = (HOOKS,)
    asked = "&".join(f"{name}={value}" for name, value in query.items())
    status, document, _ = await door.post(
        body, path=f"/v1/indications?callback={HOOKS}/job-7&{asked}"
    )
    return status, document


async def test_a_callback_tells_what_became_of_all_lines_once_they_are_settled() -> None:
    door = Door()
    door.routes.targets = (target("a"), target("b", "second"))
    async with door.open():
        status, document = await call_me_back(door, lines(alert("1"), alert("2"), b"{}"))
        assert (status, document["accepted"], document["pending"]) == (202, 2, 2)
        assert len(document["refused"]) == 1
        door.queues.settle(0, destination="a")
        door.queues.settle(0, destination="b")
        door.queues.settle(1, destination="a", discarded=DiscardReason.FATAL_ERROR)
        door.time.advance(0)
        # The other target of it is still pending.
        assert not door.poster.posted
        door.queues.settle(1, destination="b")
        door.time.advance(0)
        ((url, told),) = door.poster.posted
        assert url == f"{HOOKS}/job-7"
        assert told == {
            "receipt": document["receipt"],
            "complete": True,
            "delivered": 1,
            "discarded": [{"line": 1, "destination": "a", "reason": "fatal-error"}],
            "pending": 0,
        }
        door.poster.answer()
        assert door.observer.callbacks == {True: 1}
        door.time.advance(3600)
        assert len(door.poster.posted) == 1


async def test_a_callback_comes_at_the_timeout_and_says_what_is_pending() -> None:
    async with Door().open() as door:
        _, document = await call_me_back(door, lines(alert("1")), timeout="5")
        door.time.advance(5)
        ((_, told),) = door.poster.posted
        assert (told["complete"], told["pending"]) == (False, 1)
        door.queues.settle(0)
        door.time.advance(10)
        assert len(door.poster.posted) == 1
        status, polled = await door.get(f"/v1/receipts/{document['receipt']}")
        assert (status, polled["delivered"]) == (200, 1)


async def test_a_callback_says_whether_it_is_durable_where_that_was_asked_for() -> None:
    async with durable_door().open() as door:
        status, document = await call_me_back(door, lines(alert("1")), ack="durable")
        assert (status, document["durable"]) == (202, False)
        door.queues.secure()
        door.queues.settle(0)
        door.time.advance(0)
        ((_, told),) = door.poster.posted
        assert (told["durable"], told["delivered"]) == (True, 1)


async def test_nobody_is_called_back_about_nothing() -> None:
    async with Door().open() as door:
        status, document = await call_me_back(door, b"{}")
        assert (status, "receipt" in document) == (400, False)
        door.time.advance(3600)
        assert door.poster.posted == []


async def test_a_callback_that_the_service_does_not_allow_is_refused_before_anything_is_taken() -> (
    None
):
    async with Door().open() as door:
        path = f"/v1/indications?callback={HOOKS}"
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert status == 400
        assert "IndicationService.callbacks" in document["reason"]
        door.context.callbacks = ("http://hooks.example/pillion",)
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert (status, "below none" in document["reason"]) == (400, True)
        assert door.queues.taken == []


async def test_an_export_message_is_never_answered_by_callback() -> None:
    async with Door().open() as door:
        door.context.callbacks = (HOOKS,)
        status, document, _ = await door.post(
            b"<CIM/>",
            path=f"/CIMListener?callback={HOOKS}",
            content_type="application/xml",
        )
        assert (status, "response alone" in document["reason"]) == (400, True)


async def test_a_discard_counts_once_though_its_request_was_repeated_meanwhile() -> None:
    async with Door().open() as door:
        mine = {"Pillion-Publisher": "p"}
        for _ in range(2):
            await door.post(lines(alert("1")), path="/v1/indications?source=s", headers=mine)
        door.queues.settle(0, discarded=DiscardReason.ATTEMPTS_EXCEEDED)
        _, document, _ = await door.post(b"", path="/v1/flush?publisher=p&timeout=0")
        assert document["destinations"]["siem"]["discarded"] == {"attempts-exceeded": 1}
        door.time.advance(0)
        _, document = await door.get("/v1/faults?publisher=p")
        assert [one["identifier"] for one in document["faults"]] == ["1"]


@pytest.mark.parametrize(
    "query", ["source=%ff", "source=s&timeout=%ff", "timeout=1_0", "timeout=%2B5", "timeout=%205"]
)
async def test_a_parameter_in_a_wrong_encoding_or_form_is_refused_by_name(query: str) -> None:
    async with durable_door().open() as door:
        status, document, _ = await door.post(lines(alert("1")), path=f"/v1/indications?{query}")
        assert status == 400
        assert query.rpartition("=")[0].rpartition("&")[2] in document["reason"]
        path = "/v1/indications?source=%EF%BF%BD"
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert document["duplicate"] == 0


# ---------------------------------------------------------------------- stable


class Stores:
    """Stores outside the pod, which have something when a test says so."""

    def __init__(self, door: Door) -> None:
        self.barriers: list[Callable[[], None]] = []
        self.asked = asyncio.Event()
        door.context.stable = self._barrier

    def _barrier(self, done: Callable[[], None]) -> None:
        self.barriers.append(done)
        self.asked.set()

    def have_all(self) -> None:
        barriers, self.barriers = self.barriers, []
        for done in barriers:
            done()


async def test_stable_is_answered_once_enough_stores_have_it() -> None:
    door = durable_door()
    stores = Stores(door)
    async with door.open():
        asking = asyncio.create_task(
            door.post(lines(alert("1"), alert("2")), path="/v1/indications?ack=stable")
        )
        await stores.asked.wait()
        door.queues.secure()
        # It waits for others, not to be read.
        assert (door.gate.reading.taken, door.gate.waiting.taken) == (0, 1)
        assert not asking.done()
        stores.have_all()
        status, document, _ = await asking
        assert status == 200
        assert document == {
            "accepted": 2,
            "duplicate": 0,
            "refused": [],
            "durable": True,
            "stable": True,
        }


async def test_what_is_not_stable_in_time_is_told_by_the_receipt() -> None:
    door = durable_door()
    stores = Stores(door)
    async with door.open():
        path = "/v1/indications?ack=stable&timeout=0"
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert (status, document["durable"], document["stable"]) == (202, False, False)
        door.queues.secure()
        url = f"/v1/receipts/{document['receipt']}"
        status, document = await door.get(f"{url}?timeout=0")
        assert (status, document["durable"], document["stable"]) == (202, True, False)
        assert (await door.get(f"{url}?level=durable&timeout=0"))[0] == 200
        stores.have_all()
        for level in ("", "?level=stable"):
            status, document = await door.get(url + level)
            assert (status, document["stable"], document["pending"]) == (200, True, 1)


async def test_a_receipt_of_less_never_becomes_stable() -> None:
    door = durable_door()
    Stores(door)
    async with door.open():
        path = "/v1/indications?ack=durable&timeout=0"
        _, document, _ = await door.post(lines(alert("1")), path=path)
        assert "stable" not in document
        status, document = await door.get(f"/v1/receipts/{document['receipt']}?level=stable")
        assert status == 400
        assert "did not ask for stable" in document["reason"]


async def test_a_flush_waits_for_the_stores() -> None:
    door = durable_door()
    stores = Stores(door)
    async with door.open():
        await door.post(lines(alert("1")), headers={"Pillion-Publisher": "p"})
        path = "/v1/flush?publisher=p&level=stable"
        status, document, _ = await door.post(b"", path=f"{path}&timeout=0")
        assert (status, document["complete"], document["stable"]) == (202, False, False)
        stores.asked.clear()
        asking = asyncio.create_task(door.post(b"", path=path))
        await stores.asked.wait()
        stores.have_all()
        status, document, _ = await asking
        assert (status, document["complete"], document["stable"]) == (200, True, True)


async def test_without_stores_stable_is_refused_and_with_them_it_is_offered() -> None:
    async with durable_door().open() as door:
        path = "/v1/indications?ack=stable"
        status, document, _ = await door.post(lines(alert("1")), path=path)
        assert (status, "needs stores" in document["reason"]) == (400, True)
        Stores(door)
        _, document, _ = await door.post(lines(alert("1")), path="/v1/indications?ack=sure")
        assert "use accepted, durable, stable or delivered" in document["reason"]
