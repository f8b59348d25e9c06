"""``redeliver=true``: duplicates go to the targets that missed their originals (S0.11, S1.2)."""

import asyncio
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import Any

import pytest

from pillion_sidecar.indication import DiscardReason, Lost, Refusal
from pillion_sidecar.intake import redelivery
from pillion_sidecar.intake.redelivery import Redeliveries
from pillion_sidecar.reliability.duplicates import Original
from pillion_sidecar.reliability.identity import identity_digest
from support.intake import Door, alert, lines, target

FULL = DiscardReason.QUEUE_FULL
SOURCE = "/v1/indications?source=s"
AGAIN = f"{SOURCE}&redeliver=true"
REFUSED = Refusal(2.0, "the queue of destination siem is full", "siem")


class Scripted:
    """Offers what a test lets it."""

    def __init__(self) -> None:
        self.asked: list[list[Lost]] = []
        self.since: list[float | None] = []
        self.does: Callable[[Lost], None] = offer
        self.error: Exception | None = None
        self.came = asyncio.Event()

    async def redeliver(self, lost: Sequence[Lost], *, since: float | None) -> None:
        self.asked.append(list(lost))
        self.since.append(since)
        self.came.set()
        if self.error is not None:
            raise self.error
        for one in lost:
            self.does(one)

    def settle(self, at: int, discarded: DiscardReason | None = None) -> None:
        one = self.asked[-1][at]
        for tracker in one.indication.trackers:
            tracker.settled(one.indication, "siem", discarded)


def offer(lost: Lost) -> None:
    lost.offered, lost.still = 1, None


def full(lost: Lost) -> None:
    lost.refusal = REFUSED


def nothing(_: Lost) -> None: ...


class Watched(Redeliveries):
    """A test may wait for what waits."""

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name == "bytes":
            self.changed.set()

    @cached_property
    def changed(self) -> asyncio.Event:
        return asyncio.Event()

    async def until(self, condition: Callable[[int], bool]) -> None:
        while not condition(self.bytes):
            self.changed.clear()
            await self.changed.wait()


class Setting(Door):
    def __init__(self) -> None:
        super().__init__()
        self.routes.targets = (target(), target("archive", "to-archive"))
        self.again = Scripted()
        self.context.redeliveries = self.of_all = Watched(
            memory=self.memory, clock=self.time, redelivery=self.again
        )

    async def lose(self, *names: str) -> None:
        """Accept lines that siem misses, and the archive has."""
        first = len(self.queues.taken)
        await self.post(lines(*map(alert, names)), path=SOURCE)
        for index in range(first, first + len(names)):
            self.queues.settle(index, discarded=FULL, destination="siem")
            self.queues.settle(index)

    async def repeat(self, *names: str, query: str = "", **given: Any) -> dict[str, Any]:
        body = lines(*map(alert, names))
        _, answer, _ = await self.post(body, path=AGAIN + query, **given)
        return answer  # type: ignore[no-any-return]


async def test_only_duplicates_that_were_discarded_somewhere_are_offered_again() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("lost")
        await door.post(lines(alert("delivered"), alert("pending"), alert("gone")), path=SOURCE)
        for _ in range(2):
            door.queues.settle(1)
            door.queues.settle(3, discarded=FULL)
        door.queues.settle(2, discarded=FULL)
        answer = await door.repeat("lost", "delivered", "pending", "gone", "new")
        assert answer["redelivered"] == 1
        assert (answer["accepted"], answer["duplicate"], answer["refused"]) == (2, 3, [])
        ((one,),) = door.again.asked
        assert one.digest == identity_digest("s", "lost")
        assert door.memory.find(one.digest) == Original(
            pending=True, destination="siem", reason=FULL
        )
        assert (one.indication.identifier, one.indication.digest) == ("lost", None)


async def test_a_clean_replay_asks_nobody() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.post(lines(alert("a")), path=SOURCE)
        door.queues.settle_all()
        assert "redelivered" not in await door.repeat("a", "b")
        assert "redelivered" not in (await door.post(lines(alert("a")), path=SOURCE))[1]
        assert door.again.asked == []


async def test_an_answer_waits_for_what_is_offered_again_and_the_identity_heals() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("a", "b")
        answering = asyncio.create_task(
            door.repeat("a", "b", query="&ack=delivered", headers={"Pillion-Publisher": "p"})
        )
        await door.again.came.wait()
        # A repeat that comes meanwhile waits for the same.
        second = await door.repeat("a", query="&ack=delivered&timeout=0")
        assert (second["duplicate"], second["pending"]) == (1, 1)
        assert len(door.again.asked) == 1
        door.again.settle(0)
        door.again.settle(1, DiscardReason.ATTEMPTS_EXCEEDED)
        answer = await answering
        assert (answer["redelivered"], answer["delivered"], answer["pending"]) == (2, 1, 0)
        assert answer["discarded"] == [
            {"line": 1, "destination": "siem", "reason": "attempts-exceeded"}
        ]
        _, second = await door.get(f"/v1/receipts/{second['receipt']}")
        assert (second["delivered"], second["pending"]) == (1, 0)
        _, third, _ = await door.post(lines(alert("a")), path=f"{SOURCE}&ack=delivered")
        assert (third["delivered"], third["discarded"]) == (1, [])
        _, flushed, _ = await door.post(b"", path="/v1/flush?publisher=p")
        assert flushed["complete"]
        assert flushed["destinations"]["siem"]["discarded"] == {"attempts-exceeded": 1}


async def test_a_full_queue_refuses_the_line_and_what_cannot_be_covered_stays_discarded() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("a")
        door.again.does = full
        answer = await door.repeat("a", "new")
        assert answer["duplicate"] == 0
        assert answer["refused"] == [
            {"line": 0, "status": 429, "reason": REFUSED.reason, "destination": "siem"}
        ]
        door.again.does = nothing
        answer = await door.repeat("a", query="&ack=delivered")
        assert (answer["duplicate"], answer["delivered"]) == (1, 0)
        assert answer["discarded"] == [{"line": 0, "destination": "siem", "reason": "queue-full"}]
        assert "redelivered" not in answer


async def test_where_the_history_cannot_be_read_the_line_is_refused_for_now() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("a")
        door.again.error = OSError(5, "Input/output error")
        answer = await door.repeat("a")
        assert answer["refused"][0]["status"] == 429
        assert "Input/output error" in answer["refused"][0]["reason"]
        door.again.error = None
        assert (await door.repeat("a"))["redelivered"] == 1


async def test_what_waits_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(redelivery, "MOST_LINES", 2)
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("a", "b", "c")
        answer = await door.repeat("a", "b", "c")
        assert (answer["redelivered"], answer["duplicate"]) == (2, 2)
        assert [one["line"] for one in answer["refused"]] == [2]
        assert door.of_all.bytes == 0
        monkeypatch.setattr(redelivery, "MOST_BYTES", 1)
        assert (await door.repeat("c"))["refused"][0]["status"] == 429


async def test_a_body_that_ends_early_keeps_nothing_pending() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        await door.lose("a")
        _, writer = await asyncio.open_connection("127.0.0.1", door.port)
        head = f"POST {AGAIN} HTTP/1.1\r\nHost: x\r\nContent-Type: application/x-ndjson\r\n"
        line = lines(alert("a"))
        writer.write(f"{head}Content-Length: {len(line) + 9}\r\n\r\n".encode() + line)
        await door.of_all.until(lambda held: held > 0)
        writer.close()
        await door.of_all.until(lambda held: held == 0)
        assert (await door.repeat("a"))["duplicate"] == 1


async def test_the_history_is_read_as_far_back_as_identities_are_remembered() -> None:
    async with Setting().open() as door:
        assert isinstance(door, Setting)
        door.memory.configure(window_seconds=60, capacity=1000)
        await door.lose("a")
        await door.repeat("a")
        expiring = {**alert("a"), "expires": "2100-01-01T00:00:00Z"}
        door.again.settle(0, FULL)
        await door.post(lines(expiring), path=AGAIN)
        assert door.again.since == [pytest.approx(door.time.time() - 3660.0), None]


async def test_a_wrong_value_is_refused() -> None:
    async with Setting().open() as door:
        status, answer, _ = await door.post(lines(alert("a")), path="/v1/indications?redeliver=yes")
        assert (status, answer["reason"]) == (400, "redeliver='yes': write true or false")
