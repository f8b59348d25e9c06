"""The plug-in's end of a link: taken up, timed, answered once."""

import re
from collections.abc import Iterator

import pytest

from pillion_plugin import Delivery, Refused, Retry, link, log
from support.full_pipe import Full, full_pipe
from support.plugin_link import Gates, Linked


@pytest.fixture
def gates() -> Gates:
    return Gates()


@pytest.fixture
def two(gates: Gates) -> Iterator[Linked]:
    """A link with two in flight."""
    with Linked(gates, in_flight=2) as link:
        link.initialize()
        yield link
        gates.open()


@pytest.fixture
def one(gates: Gates) -> Iterator[Linked]:
    with Linked(gates) as link:
        link.initialize()
        yield link
        gates.open()


def outcome_of(answer: dict[str, object], id: int) -> dict[str, object]:
    assert answer["id"] == id
    result = answer["result"]
    assert isinstance(result, dict)
    return result


def test_a_function_gets_all_of_a_delivery() -> None:
    given: list[Delivery] = []
    with Linked(given.append) as link:
        link.initialize()
        link.deliver(1, sequenceContext="c", sequenceNumber=7)
        assert outcome_of(link.answer(), 1) == {"outcome": "success"}
    (delivery,) = given
    assert (delivery.class_name, delivery.properties) == (
        "CIM_AlertIndication",
        {"PerceivedSeverity": 6},
    )
    assert (delivery.timeout, delivery.attempt, delivery.identifier) == (10.0, 1, "1")
    assert (delivery.sequence_context, delivery.sequence_number) == ("c", 7)
    assert (delivery.destination, delivery.service) == ("pager", "default")
    assert (delivery.url, delivery.filter_name) == ("plugin://pager/team?x=1", "major")
    assert delivery.params["indication"]["class"] == "CIM_AlertIndication"


@pytest.mark.parametrize(
    ("raised", "result"),
    [
        (Refused("no such team"), {"outcome": "fatal", "detail": "no such team"}),
        (
            Retry("too long", indication_only=True),
            {"outcome": "error", "detail": "too long", "refusesIndication": True},
        ),
        (Retry("busy"), {"outcome": "error", "detail": "busy"}),
        (Retry("busy", after=3), {"outcome": "error", "detail": "busy", "retryAfter": 3}),
        (OSError("it\nbroke"), {"outcome": "error", "detail": "OSError: it broke"}),
        (KeyError(), {"outcome": "error", "detail": "KeyError"}),
        (
            ValueError("x" * 5000),
            {"outcome": "error", "detail": ("ValueError: " + "x" * 5000)[:1000]},
        ),
    ],
)
def test_what_a_function_raises_is_the_outcome(
    one: Linked, gates: Gates, raised: Exception, result: dict[str, object]
) -> None:
    gates.let("1", raised)
    one.deliver(1)
    assert outcome_of(one.answer(), 1) == result


def test_a_function_that_exits_ends_nothing() -> None:
    def leave(_delivery: Delivery) -> None:
        raise SystemExit(3)

    with Linked(leave) as link:
        link.initialize()
        for id in (1, 2):
            link.deliver(id)
            assert outcome_of(link.answer(), id) == {"outcome": "error", "detail": "SystemExit: 3"}


# ---------------------------------------------------------------------- time (S2.3)


def test_a_command_that_takes_too_long_is_answered_with_an_error(one: Linked, gates: Gates) -> None:
    one.deliver(1, timeout=5)
    gates.taken()
    one.clock.advance(4)
    one.clock.is_waited_for(1)
    assert not one.has_answered()
    one.clock.advance(1)
    assert outcome_of(one.answer(), 1) == {
        "outcome": "error",
        "detail": "timed out: no result within 5 s",
    }
    gates.let("1")


def test_the_time_of_a_command_runs_from_when_it_is_taken_up(two: Linked, gates: Gates) -> None:
    two.deliver(1, timeout=10)
    two.deliver(2, timeout=100)
    assert {gates.taken(), gates.taken()} == {"1", "2"}
    two.clock.advance(10)
    assert outcome_of(two.answer(), 1)["outcome"] == "error"
    # One worker is stuck and the other is busy: the third waits, and is not timed.
    two.deliver(3, timeout=5)
    two.clock.advance(20)
    assert not two.has_answered()
    gates.let("2")
    assert outcome_of(two.answer(), 2) == {"outcome": "success"}
    assert gates.taken() == "3"
    two.clock.is_waited_for(5)
    assert not two.has_answered()
    two.clock.advance(5)
    assert outcome_of(two.answer(), 3)["outcome"] == "error"
    gates.let("1")
    gates.let("3")


def test_a_result_in_time_is_the_only_answer(one: Linked, gates: Gates) -> None:
    one.deliver(1, timeout=5)
    gates.taken()
    gates.let("1")
    assert outcome_of(one.answer(), 1) == {"outcome": "success"}
    one.clock.advance(100)
    assert not one.has_answered()


def test_a_late_result_is_dropped_and_its_worker_goes_on(one: Linked, gates: Gates) -> None:
    one.deliver(1, timeout=5)
    gates.taken()
    one.clock.advance(5)
    assert outcome_of(one.answer(), 1)["outcome"] == "error"
    gates.let("1")
    gates.let("2")
    # The worker may still be on its way back: then the answer is an error.
    id = 1
    while True:
        id += 1
        gates.let(str(id))
        one.deliver(id)
        if outcome_of(one.answer(), id)["outcome"] == "success":
            break
    assert not one.has_answered()


def test_where_all_are_stuck_what_follows_fails_at_once(one: Linked, gates: Gates) -> None:
    one.deliver(1, timeout=5)
    gates.taken()
    one.clock.advance(5)
    one.answer()
    one.deliver(2)
    assert outcome_of(one.answer(), 2) == {
        "outcome": "error",
        "detail": "each of 1 in flight is still at a command that timed out",
    }
    gates.let("1")


def test_where_all_are_stuck_for_a_whole_time_out_the_link_ends(one: Linked, gates: Gates) -> None:
    one.deliver(1, timeout=5)
    gates.taken()
    one.clock.advance(5)
    one.answer()
    one.clock.advance(4)
    one.deliver(2, timeout=5)
    one.answer()
    assert not one.has_answered()
    one.clock.advance(1)
    one.deliver(3, timeout=5)
    assert outcome_of(one.answer(), 3)["outcome"] == "error"
    one.ended()
    gates.let("1")


def test_what_waits_fails_when_the_last_worker_gets_stuck(two: Linked, gates: Gates) -> None:
    two.deliver(1, timeout=5)
    two.deliver(2, timeout=6)
    gates.taken()
    gates.taken()
    two.clock.advance(5)
    two.answer()
    two.deliver(3)
    assert not two.has_answered()
    two.clock.advance(1)
    assert outcome_of(two.answer(), 2)["detail"] == "timed out: no result within 6 s"
    assert "each of 2 in flight" in str(outcome_of(two.answer(), 3)["detail"])
    gates.let("1")
    gates.let("2")


# ---------------------------------------------------------------------- standard error


@pytest.fixture
def full(monkeypatch: pytest.MonkeyPatch) -> Iterator[Full]:
    """Standard error, which is full until the test reads it."""
    with full_pipe() as found:
        monkeypatch.setattr(link, "STANDARD_ERROR", found.log)
        monkeypatch.setattr(log, "STANDARD_ERROR", found.log)
        yield found


def test_a_full_standard_error_delays_no_answer(full: Full, one: Linked, gates: Gates) -> None:
    gates.let("1", ValueError("x" * 100_000))
    one.deliver(1)
    assert str(outcome_of(one.answer(), 1)["detail"]).startswith("ValueError: xxx")
    one.deliver(2, timeout=5)
    gates.taken()
    gates.taken()
    one.clock.advance(5)
    assert str(outcome_of(one.answer(), 2)["detail"]).startswith("timed out")
    # The timer says that all are stuck, too.
    one.deliver(3)
    assert "each of 1 in flight" in str(outcome_of(one.answer(), 3)["detail"])
    assert full.read() == b""


def test_a_time_out_names_a_standard_error_that_is_full(
    full: Full, two: Linked, gates: Gates
) -> None:
    two.deliver(1, timeout=5)
    two.deliver(2, timeout=6)
    assert {gates.taken(), gates.taken()} == {"1", "2"}
    two.clock.advance(5)
    assert outcome_of(two.answer(), 1)["detail"] == (
        "timed out: no result within 5 s; standard error is full: more is written to it than is"
        " read from it (a deliverer reads 64 KiB in a second)"
    )
    full.read()
    two.clock.advance(1)
    assert outcome_of(two.answer(), 2)["detail"] == "timed out: no result within 6 s"


def test_the_next_message_tells_what_was_left_out(full: Full, one: Linked, gates: Gates) -> None:
    gates.let("1", KeyError())
    one.deliver(1)
    one.answer()
    full.read()
    assert not one.has_answered()
    assert re.fullmatch(rb"pillion_plugin: \d+ lines left out\n", full.read())


def test_the_end_of_a_link_tells_what_was_left_out(full: Full, gates: Gates) -> None:
    gates.let("1", KeyError())
    with Linked(gates) as link:
        link.initialize()
        link.deliver(1)
        link.answer()
        full.read()
    assert re.fullmatch(rb"pillion_plugin: \d+ lines left out\n", full.read())


# ---------------------------------------------------------------------- bounds


def test_so_many_are_taken_up_as_were_announced(two: Linked, gates: Gates) -> None:
    for id in (1, 2, 3):
        two.deliver(id)
    assert outcome_of(two.answer(), 3) == {
        "outcome": "error",
        "detail": "more than 2 pending; inFlight is 2",
    }
    gates.let("1")
    gates.let("2")
    assert {two.answer()["id"], two.answer()["id"]} == {1, 2}


def test_an_id_that_is_pending_is_refused(two: Linked, gates: Gates) -> None:
    two.deliver(1)
    gates.taken()
    two.deliver(1)
    assert two.answer()["error"] == {
        "code": -32600,
        "message": "id: 1 is that of a command which is pending",
    }
    gates.let("1")
    assert outcome_of(two.answer(), 1) == {"outcome": "success"}


# ---------------------------------------------------------------------- messages


def test_initialize_is_answered_with_what_the_plug_in_is(gates: Gates) -> None:
    with Linked(gates, in_flight=3) as link:
        assert link.initialize()["result"] == {
            "protocolVersion": 1,
            "name": "example",
            "version": "1.2",
            "inFlight": 3,
        }


@pytest.mark.parametrize(
    ("method", "params", "code", "message"),
    [
        ("initialize", {"protocolVersions": [2]}, -32602, "protocolVersions: [2] lacks 1"),
        ("initialize", {}, -32602, "protocolVersions: None lacks 1"),
        ("initialize", {"protocolVersions": [1], "url": 1}, -32602, "url: not a string"),
        ("deliver", {}, -32600, "initialize has not come yet; it is the first message"),
        ("nonsense", {}, -32601, "'nonsense' is not a method; use initialize or deliver"),
    ],
)
def test_a_wrong_request_is_answered_with_what_is_wrong(
    gates: Gates, method: str, params: object, code: int, message: str
) -> None:
    with Linked(gates) as link:
        link.send(method, params, id=9)
        answer = link.answer()
        assert (answer["id"], answer["error"]) == (9, {"code": code, "message": message})


def test_a_delivery_with_a_wrong_parameter_is_answered_with_its_name(one: Linked) -> None:
    one.deliver(1, timeout=0)
    error = one.answer()["error"]
    assert error["code"] == -32602
    assert error["message"].startswith("timeout: not a number of seconds")


def test_a_notification_and_an_answer_are_not_answered(one: Linked) -> None:
    one.send("unknown")
    one.send_line(b'{"jsonrpc":"2.0","id":5,"result":{}}\n')
    assert not one.has_answered()


def test_a_line_that_is_no_message_is_answered_and_the_next_is_served(
    one: Linked, gates: Gates
) -> None:
    one.send_line(b"garbage\n")
    answer = one.answer()
    assert (answer["id"], answer["error"]["code"]) == (None, -32700)
    gates.let("1")
    one.deliver(1)
    assert outcome_of(one.answer(), 1) == {"outcome": "success"}


# ---------------------------------------------------------------------- the end


def test_what_is_under_way_is_answered_after_a_shutdown(one: Linked, gates: Gates) -> None:
    one.deliver(1)
    gates.taken()
    one.send("shutdown")
    gates.let("1")
    one.ended()
    assert outcome_of(one.answer(), 1) == {"outcome": "success"}


def test_a_function_that_does_not_return_does_not_keep_an_ended_link(gates: Gates) -> None:
    with Linked(gates) as link:
        link.initialize()
        link.deliver(1, timeout=5)
        gates.taken()
        link.send("shutdown")
        link.clock.advance(5)
        link.ended()
        assert outcome_of(link.answer(), 1)["outcome"] == "error"
        gates.let("1")


def test_the_link_ends_where_nobody_reads_its_answers(one: Linked, gates: Gates) -> None:
    one.deliver(1)
    gates.taken()
    one.is_cut = True
    gates.let("1")
    one.end()
