"""The link to a plug-in, on a wire that sends nothing and time that is moved by hand (S2)."""

import asyncio
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import DeliveryOutcome, DeliveryResult, HoldCause
from pillion_sidecar.handlers.http.answers import RETRY_AFTER_LIMIT
from pillion_sidecar.handlers.plugin import messages
from pillion_sidecar.handlers.plugin.link import (
    FIRST_WAIT,
    IDLE_SECONDS,
    LONGEST_WAIT,
    MARGIN_SECONDS,
    MOST_UNASKED,
    OVERDUE_WITH_PROGRESS,
    TURN_SECONDS,
    UNASKED_SECONDS,
)
from pillion_sidecar.handlers.plugin.messages import (
    DETAIL_LIMIT,
    FLUSHES_HINT,
    MOST_ID_CHARACTERS,
    PRINTS_HINT,
    Answer,
)
from pillion_sidecar.handlers.plugin.replies import Command
from pillion_sidecar.handlers.plugin.wire import LinkError
from pillion_sidecar.handlers.plugin_slots import CLOSING_SECONDS, LinkSlots
from pillion_sidecar.handlers.transport.outgoing import LEAST_OVERDUE_SECONDS, OVERDUE_TIMES
from pillion_sidecar.testing import FakeTime
from support.plugins import TIMEOUT, Linked, turns

#: Seconds of the link's own time-out (S2.4).
SILENCE = TIMEOUT + MARGIN_SECONDS
SUCCESS = DeliveryResult.SUCCESS
ERROR = DeliveryResult.ERROR
POST_DELIVERY_ERROR = DeliveryResult.POST_DELIVERY_ERROR


@pytest.fixture
def linked(fake_time: FakeTime) -> Linked:
    return Linked(fake_time)


# ---------------------------------------------------------------------- the cross-link


async def test_nothing_is_started_before_the_first_delivery(linked: Linked) -> None:
    await turns()
    assert linked.opener.begun == 0
    await linked.send()
    assert linked.opener.begun == 1


async def test_the_first_message_is_initialize_and_commands_wait_for_its_answer(
    linked: Linked,
) -> None:
    await linked.send(2)
    wire = linked.opener.wire
    assert [line["method"] for line in wire.lines] == ["initialize"]
    assert wire.lines[0]["params"] == {
        "protocolVersions": [1],
        "destination": "a",
        "url": "plugin://test/",
        "service": "default",
        "timeout": TIMEOUT,
    }
    wire.greets()
    assert wire.delivered == [1]


async def test_a_plug_in_that_does_not_answer_initialize_is_given_up(linked: Linked) -> None:
    await linked.send(2)
    linked.time.advance(SILENCE - 0.1)
    assert linked.outcomes == {}
    linked.time.advance(0.1)
    assert linked.results == {1: ERROR, 2: ERROR}
    said = f"plug-in test: it did not answer initialize within 35 s. {FLUSHES_HINT}"
    assert linked.outcomes[1].detail == said
    assert linked.opener.wire.ended is True


async def test_a_start_that_takes_too_long_is_given_up(linked: Linked) -> None:
    linked.opener.waits = True
    await linked.send()
    linked.time.advance(SILENCE)
    await turns()
    assert linked.outcomes[1].detail == "plug-in test: it could not be started within 35 s"
    assert (linked.opener.gone, linked.slots.taken) == (1, 0)


@pytest.mark.parametrize(
    ("greeting", "words"),
    [
        ({"protocolVersion": 2}, "has the protocolVersion 2, and this deliverer offered 1"),
        ({}, "has the protocolVersion null"),
        ({"protocolVersion": 1, "inFlight": 6}, "has inFlight 6, and not 1 to 5"),
        ({"protocolVersion": 1, "inFlight": 0}, "has inFlight 0, and not 1 to 5"),
        ({"protocolVersion": True}, "has the protocolVersion true"),
    ],
)
async def test_another_version_ends_the_link(
    linked: Linked, greeting: dict[str, Any], words: str
) -> None:
    await linked.send()
    linked.opener.wire.answers(0, **greeting)
    assert linked.results == {1: ERROR}
    assert words in linked.outcomes[1].detail
    assert linked.opener.wire.ended is True


# ---------------------------------------------------------------------- pending and waiting


async def test_each_answer_finds_its_command_in_any_order(linked: Linked) -> None:
    await linked.begin(3, inFlight=3)
    linked.opener.wire.answers(3, outcome="error", detail="third")
    linked.opener.wire.answers(1, outcome="fatal", detail="first")
    linked.opener.wire.succeeds(2)
    assert linked.results == {3: ERROR, 1: DeliveryResult.FATAL_ERROR, 2: SUCCESS}
    assert [linked.outcomes[number].detail for number in (1, 2, 3)] == ["first", "", "third"]


@pytest.mark.parametrize(
    ("greeting", "most"), [({}, 1), ({"inFlight": 3}, 3), ({"inFlight": 5}, 5)]
)
async def test_so_many_commands_are_pending_and_the_others_wait(
    linked: Linked, greeting: dict[str, Any], most: int
) -> None:
    await linked.begin(7, **greeting)
    wire = linked.opener.wire
    assert wire.delivered == list(range(1, most + 1))
    wire.succeeds(1)
    assert wire.delivered == list(range(1, most + 2))


async def test_what_waits_is_not_timed(linked: Linked) -> None:
    await linked.begin(4)
    for number in (1, 2, 3):
        linked.time.advance(SILENCE - 1)
        linked.opener.wire.succeeds(number)
    linked.time.advance(SILENCE - 1)
    assert linked.results == {1: SUCCESS, 2: SUCCESS, 3: SUCCESS}
    linked.opener.wire.succeeds(4)
    assert linked.results[4] is SUCCESS


@pytest.mark.parametrize("number", [7, 0, None, "1", True, 1.5])
async def test_an_answer_with_an_unknown_id_ends_the_link(linked: Linked, number: Any) -> None:
    await linked.begin()
    linked.opener.wire.succeeds(number)
    assert linked.results == {1: POST_DELIVERY_ERROR}
    assert linked.opener.wire.ended is True


@pytest.mark.parametrize(
    ("number", "shown"),
    [(7, "7"), ("7", '"7"'), ("it's", '"it\'s"'), (None, "null"), (7.5, "7.5"), ("\n", r'"\n"')],
)
async def test_an_unknown_id_is_shown_as_json(linked: Linked, number: Any, shown: str) -> None:
    await linked.begin()
    linked.opener.wire.succeeds(number)
    assert linked.outcomes[1].detail == f"plug-in test: it answered the unknown id {shown}"


async def test_a_long_unknown_id_is_shortened(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.succeeds("x" * 50_000)
    assert linked.outcomes[1].detail.endswith("unknown id " + '"' + "x" * 99)


async def test_a_second_answer_has_an_unknown_id(linked: Linked) -> None:
    await linked.begin(2)
    linked.opener.wire.succeeds(1)
    linked.opener.wire.succeeds(1)
    assert linked.results == {1: SUCCESS, 2: POST_DELIVERY_ERROR}
    assert linked.outcomes[2].detail == "plug-in test: it answered the unknown id 1"


# ---------------------------------------------------------------------- the time-out of the link


async def test_silence_while_something_is_pending_ends_the_link(linked: Linked) -> None:
    await linked.begin(2)
    linked.time.advance(SILENCE - 0.1)
    assert linked.outcomes == {}
    linked.time.advance(0.1)
    assert linked.results == {1: POST_DELIVERY_ERROR, 2: ERROR}
    said = f"plug-in test: it sent nothing within 35 s. {FLUSHES_HINT}"
    assert linked.outcomes[1].detail == said


@pytest.mark.parametrize(
    "message",
    [
        {"jsonrpc": "2.0", "method": "progress"},
        {"jsonrpc": "2.0", "method": "log", "params": {"level": "info", "message": "works"}},
        {"jsonrpc": "2.0", "method": "unknown", "params": [1]},
        {"jsonrpc": "2.0", "method": "ask", "id": 1},
    ],
)
async def test_each_message_resets_the_time_out(linked: Linked, message: dict[str, Any]) -> None:
    await linked.begin()
    linked.time.advance(SILENCE - 0.1)
    linked.opener.wire.says(message)
    linked.time.advance(SILENCE - 0.1)
    assert linked.outcomes == {}
    linked.time.advance(0.1)
    assert linked.results == {1: POST_DELIVERY_ERROR}


async def test_silence_is_allowed_while_nothing_is_pending(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.succeeds(1)
    linked.time.advance(IDLE_SECONDS - 1)
    assert linked.opener.wire.ended is None
    await linked.send()
    linked.time.advance(SILENCE - 0.1)
    assert 2 not in linked.outcomes
    linked.opener.wire.succeeds(2)
    assert linked.results[2] is SUCCESS
    assert linked.opener.begun == 1


async def test_an_idle_link_is_ended_and_the_next_delivery_starts_another(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.succeeds(1)
    linked.time.advance(IDLE_SECONDS)
    first = linked.opener.wire
    assert first.ended is False
    assert first.lines[-1] == {"jsonrpc": "2.0", "method": "shutdown"}
    assert linked.slots.taken == 0
    await linked.begin()
    assert linked.opener.wire is not first
    assert linked.opener.wire.delivered == [2]


async def test_messages_that_answer_nothing_do_not_keep_an_idle_link(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.succeeds(1)
    for _ in range(5):
        linked.time.advance(IDLE_SECONDS / 5 - 1)
        linked.opener.wire.says({"jsonrpc": "2.0", "method": "log", "params": {"message": "a"}})
    assert linked.opener.wire.ended is None
    linked.time.advance(5.0)
    assert linked.opener.wire.ended is False


# ---------------------------------------------------------------------- link errors


async def test_a_hang_up_is_an_error_for_each_command(linked: Linked) -> None:
    await linked.begin(4, inFlight=2)
    linked.opener.wire.breaks()
    assert linked.results == {
        1: POST_DELIVERY_ERROR,
        2: POST_DELIVERY_ERROR,
        3: ERROR,
        4: ERROR,
    }
    assert {outcome.detail for outcome in linked.outcomes.values()} == {
        "plug-in test: it closed the connection"
    }


async def test_what_was_not_written_whole_was_not_handled(linked: Linked) -> None:
    await linked.begin(2, inFlight=2)
    linked.opener.wire.unsent = 1
    linked.opener.wire.breaks()
    assert linked.results == {1: POST_DELIVERY_ERROR, 2: ERROR}


async def test_what_was_written_to_a_closed_wire_was_not_handled(linked: Linked) -> None:
    await linked.begin(1, inFlight=4)
    linked.opener.wire.is_closed = True
    await linked.send(2)
    linked.opener.wire.breaks()
    assert linked.results == {1: POST_DELIVERY_ERROR, 2: ERROR, 3: ERROR}


@pytest.mark.parametrize(
    ("line", "words"),
    [
        (b"hello", f"a line that is not JSON: hello. {PRINTS_HINT}"),
        (b"", "a line that is not JSON"),
        (b"\xff\xfe", "a line with text that is not valid Unicode: "),
        (rb'{"a":"a\ud800b"}', 'a line with text that is not valid Unicode: {"a":"a\\ud800b"}'),
        (rb'{"a":"\udc00","b":1e999', "a line that is not JSON: "),
        (b'{"a":1e999}', "a line with a number that is out of range: "),
        (b'{"a":NaN}', "a line that is not JSON: "),
        (b"[" * 60_000, "a line that is not JSON: [[[["),
        (b"[]", "not JSON-RPC 2.0"),
        (b"7", "not JSON-RPC 2.0"),
        (b'{"id":1,"result":{}}', "not JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0"}', "no message of JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0","id":1}', "no message of JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0","id":1,"result":{},"error":{}}', "no message of JSON-RPC 2.0"),
        (b'{"jsonrpc":"2.0","id":{},"result":{}}', "no message of JSON-RPC 2.0"),
        (b'[{"jsonrpc":"2.0","id":1,"result":{}}]', "not JSON-RPC 2.0"),
    ],
)
async def test_garbage_ends_the_link(linked: Linked, line: bytes, words: str) -> None:
    await linked.begin()
    linked.opener.wire.says(line)
    assert linked.results == {1: POST_DELIVERY_ERROR}
    assert words in linked.outcomes[1].detail
    assert len(linked.outcomes[1].detail) < 300
    assert linked.opener.wire.ended is True


async def test_nothing_is_heard_of_a_wire_that_has_ended(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.breaks()
    linked.opener.wire.succeeds(1)
    linked.opener.wire.breaks()
    assert linked.results == {1: POST_DELIVERY_ERROR}


async def test_too_many_messages_that_answer_nothing_end_the_link(linked: Linked) -> None:
    await linked.begin()
    progress = {"jsonrpc": "2.0", "method": "progress"}
    for _ in range(3):
        linked.time.advance(UNASKED_SECONDS)
        for _ in range(MOST_UNASKED):
            linked.opener.wire.says(progress)
    assert linked.outcomes == {}
    linked.opener.wire.says(progress)
    assert linked.results == {1: POST_DELIVERY_ERROR}
    assert f"more than {MOST_UNASKED} messages" in linked.outcomes[1].detail


async def test_a_request_of_the_plug_in_is_refused(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.says({"jsonrpc": "2.0", "id": "x", "method": "ask"})
    assert linked.opener.wire.lines[-1]["id"] == "x"
    assert linked.opener.wire.lines[-1]["error"]["code"] == -32601


async def test_a_plug_in_that_does_not_read_is_not_written_to_for_ever(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.unsent = 32 << 20
    linked.opener.wire.says({"jsonrpc": "2.0", "id": "x", "method": "ask"})
    assert "does not read" in linked.outcomes[1].detail


async def test_messages_that_answer_nothing_keep_a_command_for_three_time_outs(
    linked: Linked,
) -> None:
    await linked.begin()
    timeout = SILENCE
    for _ in range(5):
        linked.time.advance(timeout / 2)
        linked.opener.wire.says({"jsonrpc": "2.0", "method": "progress"})
    assert 1 not in linked.outcomes
    linked.time.advance(timeout / 2)
    assert f"it did not answer within {3 * timeout:g} s" in linked.outcomes[1].detail


async def test_it_starts_again_after_a_wait_that_doubles(linked: Linked) -> None:
    waits = []
    for number in range(1, 9):
        await linked.begin()
        linked.opener.wire.breaks()
        await linked.send()
        refused = linked.outcomes[2 * number]
        assert refused.result is ERROR
        # No program was asked.
        assert not refused.spends_attempt
        assert "it closed the connection; it starts again in" in refused.detail
        assert refused.retry_after is not None
        waits.append(refused.retry_after)
        linked.time.advance(refused.retry_after)
    assert waits == [1.0, 2.0, 4.0, 8.0, 16.0, 32.0, LONGEST_WAIT, LONGEST_WAIT]
    assert linked.opener.begun == 8


async def test_an_answer_to_a_delivery_resets_the_wait(linked: Linked) -> None:
    for _ in range(3):
        await linked.begin()
        linked.opener.wire.breaks()
        linked.time.advance(LONGEST_WAIT)
    await linked.begin()
    linked.opener.wire.succeeds(4)
    linked.opener.wire.breaks()
    await linked.send()
    assert linked.outcomes[5].retry_after == 1.0


async def test_a_program_that_cannot_be_run_holds_the_destination(linked: Linked) -> None:
    linked.opener.failure = LinkError("the program 'a' does not exist", hold=HoldCause.PROTOCOL)
    await linked.send()
    assert linked.outcomes[1].hold is HoldCause.PROTOCOL
    assert linked.outcomes[1].detail == "plug-in test: the program 'a' does not exist"
    linked.opener.failure = None
    await linked.begin()
    linked.opener.wire.succeeds(1)
    assert linked.results[2] is SUCCESS


async def test_a_shortage_of_the_machine_spends_no_attempt(linked: Linked) -> None:
    linked.opener.failure = LinkError("too many open files", spends_attempt=False)
    await linked.send()
    assert linked.results == {1: ERROR}
    assert not linked.outcomes[1].spends_attempt


async def test_a_fault_of_ours_at_a_start_is_an_error(linked: Linked) -> None:
    linked.opener.failure = RuntimeError("a fault")
    await linked.send()
    assert linked.results == {1: ERROR}
    assert "a fault" in linked.outcomes[1].detail


@pytest.mark.parametrize("digits", [309, 4000])
async def test_a_huge_retry_after_is_limited(linked: Linked, digits: int) -> None:
    await linked.begin(2)
    linked.opener.wire.answers(1, outcome="error", retryAfter=10**digits)
    assert linked.outcomes[1].retry_after == RETRY_AFTER_LIMIT
    linked.opener.wire.succeeds(2)
    assert linked.results[2] is SUCCESS


async def test_a_huge_negative_retry_after_is_invalid(linked: Linked) -> None:
    await linked.begin()
    linked.opener.wire.answers(1, outcome="error", retryAfter=-(10**4000))
    assert "retryAfter is -1000" in linked.outcomes[1].detail
    assert len(linked.outcomes[1].detail) < 300


async def test_the_code_of_an_error_is_limited(linked: Linked) -> None:
    await linked.begin()
    error = {"code": 10**4000, "message": "no disk"}
    linked.opener.wire.says({"jsonrpc": "2.0", "id": 1, "error": error})
    assert len(linked.outcomes[1].detail) == DETAIL_LIMIT


@pytest.mark.parametrize("is_hidden", [False, True])
async def test_a_fault_of_ours_in_a_message_ends_the_link(
    fake_time: FakeTime,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    is_hidden: bool,
) -> None:
    def fail(answer: Answer) -> DeliveryOutcome:
        raise RuntimeError("planted")

    monkeypatch.setattr(messages, "outcome_of", fail)
    linked = Linked(fake_time, is_hidden=is_hidden)
    await linked.begin(2, inFlight=2)
    linked.opener.wire.succeeds(1)
    assert linked.results == {1: POST_DELIVERY_ERROR, 2: POST_DELIVERY_ERROR}
    assert "a fault of the deliverer: RuntimeError" in linked.outcomes[1].detail
    assert linked.opener.wire.ended is True
    assert ("planted" in caplog.text) is not is_hidden


# ---------------------------------------------------------------------- close, and the bound


@pytest.mark.parametrize("when", ["opening", "initializing", "pending", "refused"])
async def test_after_close_there_is_no_outcome(linked: Linked, when: str) -> None:
    linked.opener.waits = when == "opening"
    if when in ("opening", "initializing"):
        await linked.send(2)
    else:
        await linked.begin(2)
    if when == "refused":
        linked.opener.wire.breaks()
        linked.outcomes.clear()
        linked.link.send(Command(b"{}", linked.done(3)))
    linked.link.close()
    await turns()
    if when == "pending":
        linked.opener.wire.succeeds(1)
    linked.time.advance(2 * SILENCE)
    await turns()
    assert linked.outcomes == {}
    assert linked.slots.taken == 0


async def test_a_link_that_is_closed_before_its_start_leaves_nothing(linked: Linked) -> None:
    linked.opener.waits = True
    linked.link.send(Command(b"{}", linked.done(1)))
    linked.link.close()
    await turns()
    assert (linked.opener.begun, linked.opener.gone, linked.slots.taken) == (1, 1, 0)


@pytest.mark.parametrize("end", ["close", "time-out"])
async def test_a_start_that_completes_as_it_is_given_up_leaves_nothing(
    linked: Linked, end: str
) -> None:
    linked.opener.waits = True
    await linked.send()
    linked.opener.proceed()
    if end == "close":
        linked.link.close()
    else:
        linked.time.advance(SILENCE)
    await turns()
    assert linked.opener.wire.ended is True
    assert (linked.opener.gone, linked.slots.taken) == (1, 0)
    assert linked.results == ({} if end == "close" else {1: ERROR})


async def test_a_close_within_an_outcome_keeps_the_others_silent(linked: Linked) -> None:
    told: list[DeliveryOutcome] = []

    def first(outcome: DeliveryOutcome) -> None:
        told.append(outcome)
        linked.link.close()

    linked.link.send(Command(b"{}", first))
    await linked.begin(2, inFlight=3)
    linked.opener.wire.breaks()
    assert len(told) == 1
    assert linked.outcomes == {}


async def test_an_idle_link_ends_for_another_which_waits_until_nothing_of_it_is_left(
    fake_time: FakeTime,
) -> None:
    first, second, third = several(fake_time, slots=LinkSlots(timers=fake_time, most=2))
    await first.begin()
    await second.begin()
    second.opener.wire.succeeds(1)
    second.opener.wire.ends_slowly = True
    await third.send()
    assert second.opener.wire.ended is False
    assert (third.opener.begun, third.outcomes) == (0, {})
    second.opener.wire.goes()
    await turns()
    third.opener.wire.greets()
    third.opener.wire.succeeds(1)
    assert third.results == {1: SUCCESS}
    assert first.outcomes == {}


async def test_a_wait_for_a_slot_is_not_timed(fake_time: FakeTime) -> None:
    first, second = several(fake_time, 2, slots=LinkSlots(timers=fake_time, most=1))
    await first.begin(2)
    # From now on a long answer is usual.
    fake_time.advance(2 * LEAST_OVERDUE_SECONDS)
    first.opener.wire.succeeds(1)
    await second.send()
    for _ in range(20):
        fake_time.advance(LEAST_OVERDUE_SECONDS - 1)
        first.opener.wire.says({"jsonrpc": "2.0", "method": "log", "params": {}})
    assert second.outcomes == {}
    assert first.results == {1: SUCCESS}


async def test_a_link_with_progress_and_without_an_answer_gives_way(fake_time: FakeTime) -> None:
    first, second = several(fake_time, 2, slots=LinkSlots(timers=fake_time, most=1))
    await first.begin()
    await second.send()
    for _ in range(OVERDUE_WITH_PROGRESS):
        assert first.outcomes == {}
        fake_time.advance(LEAST_OVERDUE_SECONDS - 0.5)
        first.opener.wire.says({"jsonrpc": "2.0", "method": "progress", "params": {}})
    fake_time.advance(3.0)
    assert first.outcomes[1].preempted
    assert "it answered nothing for 20 s" in first.outcomes[1].detail


async def test_an_end_of_the_link_is_no_attempt_for_what_it_was_not_sent(
    fake_time: FakeTime,
) -> None:
    linked = Linked(fake_time)
    await linked.begin(3, inFlight=1)
    linked.opener.wire.breaks()
    assert linked.outcomes[1].spends_attempt
    for number in (2, 3):
        outcome = linked.outcomes[number]
        assert (outcome.spends_attempt, outcome.preempted) == (False, True)
        assert outcome.detail == linked.outcomes[1].detail


async def test_a_start_that_fails_is_an_attempt_for_the_first_alone(fake_time: FakeTime) -> None:
    linked = Linked(fake_time)
    linked.opener.failure = LinkError("no such program")
    await linked.send(3)
    assert [one.spends_attempt for one in linked.outcomes.values()] == [True, False, False]


@pytest.mark.parametrize("id", ["x" * (MOST_ID_CHARACTERS + 1), [1], {"a": 1}])
async def test_a_request_with_a_large_id_ends_the_link(fake_time: FakeTime, id: Any) -> None:
    linked = Linked(fake_time)
    await linked.begin()
    linked.opener.wire.says({"jsonrpc": "2.0", "id": "x" * MOST_ID_CHARACTERS, "method": "ask"})
    assert linked.outcomes == {}
    linked.opener.wire.says({"jsonrpc": "2.0", "id": id, "method": "ask"})
    assert "an id of over 256 characters" in linked.outcomes[1].detail


async def test_a_link_that_others_wait_for_ends_its_turn_after_the_last_answer(
    fake_time: FakeTime,
) -> None:
    first, second = several(fake_time, 2, slots=LinkSlots(timers=fake_time, most=1))
    await first.begin(3)
    await second.send()
    first.opener.wire.succeeds(1)
    assert first.opener.wire.delivered == [1, 2]
    fake_time.advance(TURN_SECONDS)
    assert first.opener.gone == 0
    first.opener.wire.succeeds(2)
    assert first.opener.wire.ended is False
    await turns()
    second.opener.wire.greets()
    second.opener.wire.succeeds(1)
    fake_time.advance(TURN_SECONDS)
    await turns()
    # The third command waited for the next turn.
    first.opener.wire.greets()
    assert first.opener.wire.delivered == [3]


async def test_a_link_that_nobody_waits_for_keeps_its_slot(fake_time: FakeTime) -> None:
    linked = Linked(fake_time, slots=LinkSlots(timers=fake_time, most=1))
    await linked.begin()
    fake_time.advance(2 * TURN_SECONDS)
    linked.opener.wire.succeeds(1)
    fake_time.advance(2 * TURN_SECONDS)
    await linked.send()
    linked.opener.wire.succeeds(2)
    assert linked.opener.begun == 1


async def test_a_silent_link_gives_way_and_its_attempt_does_not_count(fake_time: FakeTime) -> None:
    first, second = several(fake_time, 2, slots=LinkSlots(timers=fake_time, most=1))
    await first.begin()
    await second.send()
    fake_time.advance(LEAST_OVERDUE_SECONDS - 0.5)
    assert first.outcomes == {}
    fake_time.advance(1.0)
    outcome = first.outcomes[1]
    assert outcome.detail == (
        "plug-in test: it answered nothing for 5 s, and other plug-ins wait for a link"
    )
    assert outcome.preempted
    assert not outcome.spends_attempt
    await turns()
    assert second.opener.begun == 1


async def test_an_answer_that_takes_as_long_as_others_did_is_not_overdue(
    fake_time: FakeTime,
) -> None:
    first, second = several(fake_time, 2, slots=LinkSlots(timers=fake_time, most=1))
    await first.begin(2)
    fake_time.advance(2.0)
    first.opener.wire.succeeds(1)
    await second.send()
    fake_time.advance(OVERDUE_TIMES * 2.0 - 1.0)
    assert first.opener.gone == 0
    fake_time.advance(2.0)
    assert first.opener.wire.ended is True


async def test_silent_plug_ins_leave_a_quarter_of_the_slots_to_those_that_answer(
    fake_time: FakeTime,
) -> None:
    hung = several(fake_time, 5, slots=(slots := LinkSlots(timers=fake_time, most=4)))
    for one in hung[:4]:
        await one.begin()
    # They have not answered.
    fake_time.advance(SILENCE)
    fake_time.advance(FIRST_WAIT)
    for one in hung[:4]:
        await one.send()
    assert slots.taken == 3
    answering = Linked(fake_time, slots=slots)
    await answering.begin()
    answering.opener.wire.succeeds(1)
    assert answering.results == {1: SUCCESS}
    assert hung[3].outcomes.keys() == {1}


async def test_a_link_that_is_closed_while_it_waits_gives_its_turn_back(
    fake_time: FakeTime,
) -> None:
    first, second = several(fake_time, 2, slots=(slots := LinkSlots(timers=fake_time, most=1)))
    await first.begin()
    await second.send()
    second.link.close()
    # So it ends no turn.
    fake_time.advance(TURN_SECONDS)
    first.opener.wire.succeeds(1)
    assert first.opener.gone == 0
    first.link.close()
    await turns()
    assert (second.opener.begun, slots.taken) == (0, 0)


async def test_a_stopping_deliverer_waits_for_its_links_but_not_for_ever(
    fake_time: FakeTime,
) -> None:
    slots = LinkSlots(timers=fake_time)
    slot = slots.take(Linked(fake_time).link)
    slots.take(Linked(fake_time).link)
    closing = asyncio.create_task(slots.close())
    await turns()
    slot.give()
    await turns()
    assert not closing.done()
    fake_time.advance(CLOSING_SECONDS)
    await closing


def several(time: FakeTime, count: int = 3, *, slots: LinkSlots) -> list[Linked]:
    return [Linked(time, slots=slots) for _ in range(count)]


async def test_of_a_secret_url_nothing_is_shown(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture
) -> None:
    linked = Linked(fake_time, is_hidden=True)
    await linked.begin(3)
    message = {"level": "error", "message": "planted-secret"}
    linked.opener.wire.says({"jsonrpc": "2.0", "method": "log", "params": message})
    linked.opener.wire.answers(1, outcome="error", detail="planted-secret")
    linked.opener.wire.says(
        {"jsonrpc": "2.0", "id": 2, "error": {"code": 1, "message": "planted-secret"}}
    )
    linked.opener.wire.says(b"planted-secret")
    assert len(linked.outcomes) == 3
    assert all("in a Secret" in outcome.detail for outcome in linked.outcomes.values())
    assert "planted-secret" not in str(linked.outcomes)
    assert "planted-secret" not in caplog.text


@pytest.mark.parametrize(
    ("failure", "shown"),
    [
        (LinkError("no socket '/run/planted'", hidden="no socket"), "the plug-in: no socket"),
        (LinkError("too many open files"), "the plug-in: too many open files"),
        (OSError(2, "planted"), "the plug-in: it could not be started: FileNotFoundError"),
    ],
)
async def test_of_a_secret_url_no_program_is_named(
    fake_time: FakeTime, caplog: pytest.LogCaptureFixture, failure: Exception, shown: str
) -> None:
    linked = Linked(fake_time, is_hidden=True)
    linked.opener.failure = failure
    await linked.send()
    assert linked.outcomes[1].detail == shown
    assert "planted" not in caplog.text
