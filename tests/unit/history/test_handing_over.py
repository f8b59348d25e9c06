"""A sidecar's history on its way to a gateway, without either's process (S0.11, S0.14)."""

import asyncio
import logging
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from pillion_sidecar.config.schema.history import HistoryBodies, HistoryPolicy
from pillion_sidecar.history import handing_over
from pillion_sidecar.history.handed_over import (
    MOST_OUTCOMES,
    HandedOver,
    Part,
    WrongPart,
    encode_part,
    read_part,
)
from pillion_sidecar.history.handing_over import RETRY_SECONDS, HistoryHandOver, Reply
from pillion_sidecar.history.outcome import Numbered, Outcome, OutcomeQuery, redrive_note
from pillion_sidecar.history.recorder import History
from pillion_sidecar.history.taking_over import WRITE_SECONDS, NotWritten, TakenHistories
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE
from pillion_sidecar.testing import FakeTime
from support.outcomes import BEGAN, Recording, outcome

BODY = b'{"class":"C","properties":{}}'
DISCARDS = OutcomeQuery(result="discarded")


def kept_in_memory(time: FakeTime, bodies: HistoryBodies = HistoryBodies.DISCARDED) -> History:
    history = History(clock=time, timers=time)
    history.configure(HistoryPolicy(bodies=bodies), size=1 << 20)
    return history


def found(history: History, query: OutcomeQuery = OutcomeQuery()) -> Sequence[Numbered]:  # noqa: B008
    return history.page(query, after=0, limit=9999)().found


def part_of(*handed_over: HandedOver, discards: bool = True, **given: Any) -> Part:
    names = {"pod": "pod-1", "history": "h" * 16, **given}
    return Part(discards=discards, outcomes=handed_over, **names)


def read(part: Part) -> Part:
    return read_part(encode_part(part), sound_body=lambda one: one.body)


class Gateway:
    """Takes parts; its answers may be lost, or others."""

    def __init__(self, history: History, time: FakeTime) -> None:
        self.taken = TakenHistories(history=history, clock=time)
        self._time = time
        self.parts: list[Part] = []
        self.lost = 0
        self.replies: list[Reply] = []

    async def __call__(self, body: bytes) -> Reply:
        if self.replies:
            reply = self.replies.pop(0)
            self._pass(reply.retry_after or 0.0)
            return reply
        part = read_part(body, sound_body=lambda one: one.body)
        self.parts.append(part)
        answer = await self.taken.take(part)
        if self.lost:
            self.lost -= 1
            self._pass(RETRY_SECONDS)
            return Reply(0, detail="the gateway: timeout")
        return Reply(200, msgspec.json.encode(answer))

    def _pass(self, seconds: float) -> None:
        """Once the sidecar waits, let time pass."""
        asyncio.get_running_loop().call_soon(self._time.advance, seconds)


class Setting:
    def __init__(self, time: FakeTime) -> None:
        self.time = time
        self.own = kept_in_memory(time, HistoryBodies.ALL)
        self.there = kept_in_memory(time)
        self.gateway = Gateway(self.there, time)

    async def end(
        self, post: Any = None, *, seconds: float = 30.0, own: History | None = None
    ) -> None:
        hand_over = HistoryHandOver(
            history=own or self.own,
            pod="pod-1",
            clock=self.time,
            timers=self.time,
        )
        until = self.time.monotonic() + seconds
        await hand_over.run(post or self.gateway, gateway="shared", until=until)


@pytest.fixture
def setting(fake_time: FakeTime) -> Setting:
    return Setting(fake_time)


async def test_discards_go_first_and_come_under_new_numbers(setting: Setting) -> None:
    setting.there.add(outcome(900))
    setting.own.add(outcome(1, result="delivered", reason=None))
    setting.own.add(outcome(2, body=BODY, digest=b"d" * 16, languages=("de",)))
    setting.own.add(outcome(3, result="delivered", reason=None, redrives=1))
    await setting.end()
    _, lost, first, second = found(setting.there)
    assert [one.number for one in (lost, first, second)] == [2, 3, 4]
    assert [one.outcome.identifier for one in (lost, first, second)] == ["i2", "i1", "i3"]
    there = lost.outcome
    assert (there.time, there.reason, there.body) == (BEGAN + 2, "queue-full", BODY)
    assert (there.destination, there.subscription, there.languages) == ("siem", "to-siem", ("de",))
    assert there.origin is not None
    assert (there.origin.pod, there.origin.history) == ("pod-1", setting.own.id)
    # The numbers of the sidecar's journal and history mean nothing here.
    assert (there.number, there.digest) == (None, None)
    # Though it is known there that it is no original.
    assert (there.redrives, second.outcome.redrives) == (None, REDRIVEN_ELSEWHERE)
    # Bodies as the gateway's service wants them.
    assert first.outcome.body is None


async def test_what_was_redriven_before_is_not_redriven_at_the_gateway(setting: Setting) -> None:
    setting.own.add(outcome(1, body=BODY))
    setting.own.add(outcome(2, body=BODY))
    setting.own.add(redrive_note(outcome(1), 1, at=BEGAN))
    await setting.end()
    numbers = [one.number for one in found(setting.there, DISCARDS)]
    assert set(setting.there.redriven(numbers)()) == {1}


async def test_a_lost_answer_doubles_nothing(setting: Setting) -> None:
    for number in range(5):
        setting.own.add(outcome(number))
    setting.own.add(outcome(9, result="delivered", reason=None))
    setting.gateway.lost = 3
    await setting.end()
    assert len(setting.gateway.parts) == 5
    assert [one.outcome.identifier for one in found(setting.there)] == [
        *("i0", "i1", "i2", "i3", "i4"),
        "i9",
    ]


async def test_large_histories_go_in_parts_and_only_once(
    setting: Setting, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handing_over, "PART_BYTES", 2000)
    for number in range(20):
        setting.own.add(outcome(number, body=BODY * 10))
    await setting.end()
    parts = len(setting.gateway.parts)
    assert parts > 5
    setting.own.add(outcome(20, body=BODY))
    # A later end asks with its first part, and sends what is new.
    await setting.end()
    assert len(found(setting.there, DISCARDS)) == 21
    assert len(setting.gateway.parts) <= parts + 2


async def test_the_end_of_the_time_ends_it_and_is_told(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    setting.own.add(outcome(1))
    setting.own.add(outcome(2, result="delivered", reason=None))
    setting.gateway.replies = [Reply(503, detail="it starts", retry_after=7.0)] * 99
    with caplog.at_level(logging.INFO):
        await setting.end(seconds=20.0)
        await setting.end(seconds=0.0)
    first, second = caplog.records
    assert vars(first)["event"] == vars(second)["event"] == "history-not-handed-over"
    assert (vars(first)["count"], vars(first)["discards"]) == (2, 1)
    assert (vars(first)["reason"], vars(second)["reason"]) == ("it starts", "no time was left")
    # 0, 7 and 14 seconds.
    assert len(setting.gateway.replies) == 96


@pytest.mark.parametrize(
    ("reply", "says"),
    [
        (Reply(404), "earlier version"),
        (Reply(403), "HTTP 403"),
        (Reply(200, b"[]"), "not understood"),
    ],
)
async def test_who_takes_no_histories_is_asked_once(
    setting: Setting, caplog: pytest.LogCaptureFixture, reply: Reply, says: str
) -> None:
    setting.own.add(outcome(1))
    setting.gateway.replies = [reply]
    with caplog.at_level(logging.INFO):
        await setting.end()
    (record,) = caplog.records
    assert says in vars(record)["reason"]
    assert setting.gateway.parts == []


async def test_an_empty_history_is_not_mentioned(
    setting: Setting, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO):
        await setting.end()
    assert (caplog.records, setting.gateway.parts) == ([], [])


def test_a_later_run_on_the_volume_redrives_none_that_the_gateway_has(
    setting: Setting, tmp_path: Path
) -> None:
    recording = Recording(tmp_path, setting.time)
    recording.add(outcome(1, body=BODY))
    recording.commit()
    asyncio.run(setting.end(own=recording.history))
    recording.commit()
    assert set(recording.history.redriven({1})()) == {1}


def test_after_a_restart_the_gateway_knows_what_it_has(setting: Setting, tmp_path: Path) -> None:
    part = part_of(HandedOver(3, outcome(3)), HandedOver(8, outcome(8), True))
    others = part_of(HandedOver(5, outcome(5, result="delivered", reason=None)), discards=False)

    def take(recording: Recording, part: Part) -> tuple[int, int, int]:
        recording.asks = recording.commit
        taken = TakenHistories(history=recording.history, clock=setting.time)
        answer = asyncio.run(taken.take(read(part)))
        return answer.taken, answer.known, answer.last

    first = Recording(tmp_path, setting.time)
    assert take(first, part) == (2, 0, 8)
    assert take(first, others) == (1, 0, 5)
    first.crash()
    second = Recording(tmp_path, setting.time)
    assert take(second, part) == (0, 2, 8)
    more = part_of(HandedOver(8, outcome(8)), HandedOver(9, outcome(9)))
    assert take(second, more) == (1, 1, 9)
    assert take(second, others) == (0, 1, 5)
    another = part_of(HandedOver(8, outcome(8)), history="another")
    assert take(second, another) == (1, 0, 8)


def test_what_is_not_written_is_not_taken(setting: Setting, tmp_path: Path) -> None:
    recording = Recording(tmp_path, setting.time)

    def troubled() -> None:
        # The disk takes nothing while time passes.
        asyncio.get_running_loop().call_soon(setting.time.advance, 2 * WRITE_SECONDS)

    recording.asks = troubled
    taken = TakenHistories(history=recording.history, clock=setting.time)
    part = read(part_of(HandedOver(1, outcome(1))))
    with pytest.raises(NotWritten):
        asyncio.run(taken.take(part))
    recording.commit()
    assert asyncio.run(taken.take(part)).known == 1


def changed(**fields: Any) -> Part:
    return part_of(HandedOver(1, outcome(1, **fields)))


@pytest.mark.parametrize(
    "part",
    [
        changed(time=float("nan")),
        changed(time=1e300),
        changed(accepted=-1.0),
        changed(first_attempt=float("inf")),
        changed(result="vanished"),
        changed(result="delivered"),
        changed(attempts=1 << 63),
        part_of(HandedOver(1, outcome(1)), discards=False),
        part_of(HandedOver(0, outcome(1))),
        part_of(HandedOver(2, outcome(1)), HandedOver(2, outcome(1))),
        part_of(HandedOver(1 << 62, outcome(1))),
        part_of(*(HandedOver(at + 1, outcome(1)) for at in range(MOST_OUTCOMES + 1))),
        part_of(pod=""),
        part_of(pod="a\nb"),
        part_of(history="h" * 254),
    ],
)
def test_a_wrong_part_is_refused(part: Part) -> None:
    with pytest.raises(WrongPart):
        read(part)


@pytest.mark.parametrize("body", [b"", b"[]", b"\xc1", b"{}", msgspec.msgpack.encode({"pod": 1})])
def test_what_is_no_part_is_refused(body: bytes) -> None:
    with pytest.raises(WrongPart):
        read_part(body, sound_body=lambda one: one.body)


def test_a_later_sidecar_may_know_more() -> None:
    encoded = msgspec.msgpack.decode(encode_part(changed()))
    encoded["later"] = 1
    encoded["outcomes"][0].append("later")
    encoded["outcomes"][0][1].append("later")
    part = read_part(msgspec.msgpack.encode(encoded), sound_body=lambda one: one.body)
    assert isinstance(part.outcomes[0].outcome, Outcome)
