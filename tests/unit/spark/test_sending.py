"""A task's rows are accepted, rejected, or fail the task; only what may be is sent again."""

import http.client
import json
import os
import re
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from pyspark_pillion.deliverer import Accepted, Refused, Reply
from pyspark_pillion.errors import (
    DelivererUnavailableError,
    FlushTimeoutError,
    InvalidIndicationsError,
    ProtocolError,
    PublisherForgottenError,
    PublishError,
    RequestRefusedError,
    UndeliveredError,
)
from pyspark_pillion.rejects import RejectsFile
from pyspark_pillion.sending import MOST_ATTEMPTS, Sender, Verdict, again, verdict
from support.fake_deliverer import (
    Answer,
    FakeDeliverer,
    accept_and_hang_up,
    full,
    hang_up,
    restart,
    status,
)
from support.publisher import FakePace, identifiers_of, lines_of

WRONG = '{"class":"CIM_AlertIndication","properties":{"PerceivedSeverity":99}}'


def with_wrong(*identifiers: str, at: int) -> Any:
    found = lines_of(*identifiers).to_pylist()
    return pa.array([*found[:at], WRONG, *found[at:]], pa.string())


@pytest.mark.parametrize(
    ("code", "body", "expected"),
    [
        (200, b"{}", Verdict.ANSWERED),
        (207, b"{}", Verdict.ANSWERED),
        (400, b'{"refused": []}', Verdict.ANSWERED),
        (429, b'{"refused": []}', Verdict.ANSWERED),
        (400, b'{"reason": "ack durable is not available"}', Verdict.REFUSED),
        (429, b"{}", Verdict.LATER),
        (413, b"{}", Verdict.TOO_LONG),
        (408, b"", Verdict.LATER),
        (500, b"", Verdict.LATER),
        (502, b"", Verdict.LATER),
        (503, b"", Verdict.LATER),
        (202, b"", Verdict.LATER),
        (301, b"", Verdict.REFUSED),
        (404, b"", Verdict.REFUSED),
        (415, b"", Verdict.REFUSED),
    ],
)
def test_the_status_says_what_to_do_with_the_request(
    code: int, body: bytes, expected: Verdict
) -> None:
    assert verdict(Reply(code, {}, body)) is expected


def test_only_what_was_refused_for_now_or_not_read_is_sent_again_in_order() -> None:
    refused = (Refused(4, 429, "full"), Refused(1, 429, "full"), Refused(2, 400, "wrong"))
    answer = Accepted(accepted=2, duplicate=0, refused=refused, unread_from=5)

    assert again(lines_of(*"abcdefg"), answer).equals(lines_of(*"befg"))


def test_lines_are_sent_with_publisher_source_and_level(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender(ack="durable", source="wind & rain")
    sender.send(lines_of("a", "b"))

    (seen,) = deliverer.published
    assert seen.query == {
        "ack": "durable",
        "source": "wind & rain",
        "redeliver": "true",
        "timeout": "15",
    }
    assert seen.headers["pillion-publisher"] == "spark/test/1"
    assert seen.headers["content-type"] == "application/x-ndjson"
    assert identifiers_of(deliverer) == ["a", "b"]
    assert (sender.counts.accepted, sender.counts.duplicate) == (2, 0)


def test_what_is_not_durable_in_time_is_sent_again_until_it_is(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    late = {"accepted": 1, "duplicate": 0, "refused": [], "durable": False, "receipt": "r"}
    deliverer.script += [status(202, document=late), status(202, document=late)]
    sender = make_sender(ack="durable")
    sender.send(lines_of("a"))
    sender.flush()

    assert len(deliverer.published) == 3
    assert len(pace.slept) == 2
    assert [seen.query["level"] for seen in deliverer.flushed] == ["durable"]


def test_one_connection_serves_the_whole_task(make_sender: Any, deliverer: FakeDeliverer) -> None:
    sender = make_sender()
    for name in "abc":
        sender.send(lines_of(name))
    sender.flush()

    assert sender._deliverer.connections == 1
    assert len(deliverer.requests) == 4


def test_back_pressure_holds_what_follows_until_it_ends(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    deliverer.script += [full(1, 2), full(0, 1), full(1)]
    sender = make_sender()
    sender.send(lines_of("a", "b", "c"))
    sender.send(lines_of("d"))

    assert [len(seen.lines) for seen in deliverer.published] == [3, 2, 2, 1, 1]
    assert identifiers_of(deliverer) == ["a", "b", "c", "d"]
    assert len(pace.slept) == 3


def test_a_request_refused_for_now_as_a_whole_waits_as_long_as_asked(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    deliverer.script += [status(503, retry_after="4"), status(429, retry_after="2"), status(500)]
    make_sender().send(lines_of("a"))

    assert pace.slept == [4.0, 2.0, 0.4]
    assert identifiers_of(deliverer) == ["a"]


def test_lines_that_were_not_read_are_sent_again(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.script += [full(0, unread_from=2)]
    make_sender().send(lines_of("a", "b", "c", "d"))

    assert identifiers_of(deliverer) == ["b", "a", "c", "d"]


@pytest.mark.parametrize("trouble", [hang_up, accept_and_hang_up])
def test_a_connection_that_breaks_is_made_anew_and_nothing_is_accepted_twice(
    make_sender: Any, deliverer: FakeDeliverer, trouble: Any
) -> None:
    deliverer.script += [trouble]
    sender = make_sender()
    sender.send(lines_of("a", "b"))
    sender.flush()

    assert identifiers_of(deliverer) == ["a", "b"]
    assert sender.counts.taken == 2
    assert sender._deliverer.connections == 2


def test_a_deliverer_that_is_not_there_ends_patience(make_sender: Any, pace: FakePace) -> None:
    sender = make_sender(url="http://127.0.0.1:1", retrySeconds="3")
    with pytest.raises(DelivererUnavailableError, match=r"127\.0\.0\.1:1: .*refused"):
        sender.send(lines_of("a"))

    assert sum(pace.slept) == pytest.approx(3.0)


def test_endless_back_pressure_ends_patience_naming_the_destination(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.script += [full(0, destination="slow")] * 100
    with pytest.raises(DelivererUnavailableError, match="back-pressure of slow: queue full"):
        make_sender(retrySeconds="5").send(lines_of("a"))


def test_back_pressure_with_progress_never_ends_patience(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    names = [str(number) for number in range(40)]
    deliverer.script += [full(*range(1, left)) for left in range(40, 1, -1)]
    make_sender(retrySeconds="0.15").send(lines_of(*names))

    assert identifiers_of(deliverer) == names
    assert sum(pace.slept) > 1


def failure(sender: Any) -> str:
    with pytest.raises(InvalidIndicationsError) as caught:
        sender._rejects.summary.check(where="save")
    return str(caught.value)


def test_a_wrong_line_fails_the_save_and_is_quoted(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender()
    sender.send(with_wrong("a", at=1))

    assert identifiers_of(deliverer) == ["a"]
    text = failure(sender)
    assert "\nproperties.PerceivedSeverity: 99 is no uint16 that CIM knows, in {" in text
    assert "onInvalid" in text


def test_only_the_first_wrong_lines_are_quoted_shortened(make_sender: Any) -> None:
    wrong = pa.array([WRONG[:-1] + " " * n + ',"x":"' + "y" * 5000 + '"}' for n in range(8)])
    sender = make_sender()
    sender.send(wrong)

    assert len(failure(sender).splitlines()) == 8
    assert failure(sender).startswith("8 rows")
    assert len(failure(sender)) < 2000


def test_wrong_lines_go_to_the_rejects_and_the_others_are_accepted(
    make_sender: Any, deliverer: FakeDeliverer, tmp_path: Path
) -> None:
    deliverer.script += [full(3)]
    rejects = RejectsFile(directory=str(tmp_path / "new"), name="part-0")
    sender = make_sender(rejects=rejects)
    sender.send(with_wrong("a", "b", "c", at=1))
    assert os.listdir(tmp_path / "new") == [".part-0.ndjson.tmp"]
    rejects.keep()

    assert identifiers_of(deliverer) == ["a", "b", "c"]
    assert sender.finish().rejected == 1
    assert os.listdir(tmp_path / "new") == ["part-0.ndjson"]
    (row,) = (tmp_path / "new" / "part-0.ndjson").read_text().splitlines()
    assert json.loads(row) == {
        "line": WRONG,
        "reason": "properties.PerceivedSeverity: 99 is no uint16 that CIM knows",
        "field": "properties.PerceivedSeverity",
    }


def test_the_rejects_of_a_failed_attempt_go(make_sender: Any, tmp_path: Path) -> None:
    rejects = RejectsFile(directory=str(tmp_path), name="part-0")
    make_sender(rejects=rejects).send(with_wrong(at=0))
    rejects.drop()

    assert os.listdir(tmp_path) == []


def test_a_body_that_is_too_long_is_sent_in_parts(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.longest_body = 200
    make_sender().send(lines_of(*"abcdefg"))

    assert identifiers_of(deliverer) == list("abcdefg")


def test_a_line_that_is_too_long_by_itself_is_invalid(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.longest_body = 50
    sender = make_sender()
    sender.send(lines_of("a", "b"))
    assert re.search(r"2 x longer than the deliverer takes: .*50 bytes", failure(sender))


@pytest.mark.parametrize("code", [301, 400, 401, 404, 415])
def test_a_request_that_would_be_refused_again_fails_at_once(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace, code: int
) -> None:
    deliverer.script += [status(code, document={"reason": "not here"})]
    with pytest.raises(RequestRefusedError, match=f"HTTP {code}.*not here"):
        make_sender().send(lines_of("a"))

    assert pace.slept == []


def test_an_answer_that_does_not_add_up_fails_the_task(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.script += [status(200, document={"accepted": 1, "duplicate": 0, "refused": []})]
    with pytest.raises(ProtocolError, match="2 lines does not add up"):
        make_sender().send(lines_of("a", "b"))


def test_an_answer_without_end_is_not_read_to_the_end(
    make_sender: Any, deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("pyspark_pillion.deliverer.LONGEST_ANSWER", 100)
    deliverer.script += [status(200, document={"reason": "x" * 200})]
    with pytest.raises(ProtocolError, match="more than 100 bytes"):
        make_sender().send(lines_of("a"))


def test_a_restart_between_requests_fails_the_task_rather_than_lose_rows(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.script += [restart]
    with pytest.raises(PublisherForgottenError, match="1 rows"):
        sender.send(lines_of("b"))

    assert identifiers_of(deliverer) == ["a"]


def test_a_restart_that_left_the_connection_fails_the_task_too(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender()
    sender.send(lines_of("a"))
    # Behind a proxy, and another attempt made the name known again.
    deliverer.forget()
    with pytest.raises(PublisherForgottenError, match="1 rows"):
        sender.send(lines_of("b"))
    assert identifiers_of(deliverer) == ["a"]
    with pytest.raises(PublisherForgottenError, match="1 rows"):
        sender.flush()


def test_a_broken_connection_without_a_restart_costs_nothing(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.script += [hang_up]
    sender.send(lines_of("b"))
    assert identifiers_of(deliverer) == ["a", "b"]
    assert deliverer.flushed == []
    assert [seen.query.get("instance") for seen in deliverer.published] == [
        None,
        deliverer.instance,
        deliverer.instance,
    ]


def test_a_broken_connection_without_a_restart_costs_one_question(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    # One of the first release, which names no instance.
    deliverer.instance = None
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.script += [hang_up]
    sender.send(lines_of("b"))
    sender.send(lines_of("c"))

    assert [seen.query["level"] for seen in deliverer.flushed] == ["accepted"]
    assert identifiers_of(deliverer) == ["a", "b", "c"]


def test_the_question_is_put_again_while_the_deliverer_is_not_ready(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    deliverer.instance = None
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.script += [hang_up]
    deliverer.flush_script += [Answer(503, {}, {"Retry-After": "3"})]
    sender.send(lines_of("b"))

    assert identifiers_of(deliverer) == ["a", "b"]
    assert 3.0 in pace.slept


def test_flush_waits_for_the_level(make_sender: Any, deliverer: FakeDeliverer) -> None:
    deliverer.pending_flushes = 3
    sender = make_sender(flushLevel="delivered")
    sender.send(lines_of("a", "b"))
    flushed = sender.flush()

    assert flushed.complete
    assert flushed.delivered == sender.counts.delivered == 2
    assert [seen.query["level"] for seen in deliverer.flushed] == ["delivered"] * 4
    assert {seen.query["publisher"] for seen in deliverer.flushed} == {"spark/test/1"}


def test_flush_waits_for_duplicates_as_well(make_sender: Any, deliverer: FakeDeliverer) -> None:
    make_sender(publisher="spark/test/0").send(lines_of("a"))
    deliverer.requests.clear()
    sender = make_sender()
    sender.send(lines_of("a"))
    sender.flush()

    assert (sender.counts.accepted, sender.counts.duplicate) == (0, 1)
    assert len(deliverer.flushed) == 1


def test_nothing_accepted_asks_for_no_flush(make_sender: Any, deliverer: FakeDeliverer) -> None:
    assert make_sender().flush().complete
    assert deliverer.requests == []


def test_flush_asks_for_no_longer_than_the_answer_may_take(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender(timeoutSeconds="8")
    sender.send(lines_of("a"))
    sender.flush()

    assert deliverer.flushed[0].query["timeout"] == "4.000"


def test_a_flush_that_does_not_complete_fails_the_task_naming_who_is_late(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    deliverer.pending_flushes = 10_000
    sender = make_sender(flushLevel="delivered", flushTimeoutSeconds="5")
    sender.send(lines_of("a", "b"))
    with pytest.raises(FlushTimeoutError, match=r"delivered within 5 s .*pending: sink 2"):
        sender.flush()

    assert sum(pace.slept) == pytest.approx(5.0, abs=0.3)


def test_what_was_discarded_fails_the_task_naming_destination_and_reason(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.discards = {"wbem": {"attempts-exceeded": 2}}
    sender = make_sender(flushLevel="delivered")
    sender.send(lines_of("a"))
    with pytest.raises(UndeliveredError, match=r"wbem: attempts-exceeded 2"):
        sender.flush()


def test_what_was_discarded_can_be_reported_instead(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.discards = {"wbem": {"attempts-exceeded": 2}}
    sender = make_sender(flushLevel="delivered", onUndelivered="report")
    sender.send(lines_of("a"))
    sender.flush()

    assert sender.counts.discarded == {"wbem: attempts-exceeded": 2}


def test_by_default_no_listener_costs_a_task_anything(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    deliverer.discards = {"wbem": {"attempts-exceeded": 2}}
    deliverer.pending_flushes = 10_000
    sender = make_sender()
    sender.send(lines_of("a"))
    sender.flush()

    assert [seen.query["level"] for seen in deliverer.flushed] == ["durable"]
    assert pace.slept == []
    assert sender.counts.discarded == {"wbem: attempts-exceeded": 2}


def test_without_a_disk_a_task_waits_for_what_is_accepted(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    deliverer.flush_script += [Answer(400, {"reason": "level=durable needs durability Disk"})]
    sender = make_sender()
    sender.send(lines_of("a"))
    assert sender.flush().complete
    assert [seen.query["level"] for seen in deliverer.flushed] == ["durable", "accepted"]


def published(sender: Sender, *identifiers: str) -> tuple[int, int, int]:
    """Publish, and return what is accepted, duplicate and, of these, repeated."""
    sender.send(lines_of(*identifiers))
    sender.flush()
    counts = sender.counts
    return counts.accepted, counts.duplicate, counts.repeated


def test_rows_whose_answer_was_lost_are_no_duplicates(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    make_sender(publisher="before").send(lines_of("a"))
    deliverer.script += [accept_and_hang_up]
    assert published(make_sender(), "a", "b", "c") == (2, 1, 0)


def test_rows_of_other_attempts_of_the_task_are_no_duplicates(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    make_sender(publisher="before").send(lines_of("a"))
    make_sender(publisher="task.0").send(lines_of("a", "b"))
    make_sender(publisher="task.2").send(lines_of("c"))
    sender = make_sender(publisher="task.1", earlier=["task.0"], speculative=["task.2"])
    assert published(sender, *"abcd") == (3, 1, 0)
    assert sender.counts.delivered == 3
    assert [seen.query["publisher"] for seen in deliverer.flushed] == [
        "task.1",
        "task.0",
        "task.2",
    ]


def test_duplicates_of_an_attempt_that_the_deliverer_forgot_are_told_apart(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    make_sender(publisher="task.1").send(lines_of("b"))
    make_sender(publisher="before").send(lines_of("a"))
    sender = make_sender(publisher="task.2", earlier=["task.0", "task.1"])
    assert published(sender, *"abc") == (2, 1, 1)


def test_a_count_that_cannot_be_asked_for_costs_no_more_than_the_count(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    make_sender(publisher="task.0").send(lines_of("a"))
    deliverer.flush_script += [
        Answer(200, {"complete": True, "accepted": 0}),
        Answer(200, []),
        Answer(500, {}),
    ]
    sender = make_sender(publisher="task.2", earlier=["task.0", "task.1"])
    assert published(sender, "a") == (0, 1, 1)
    assert len(deliverer.flushed) == 2
    assert pace.slept == []


def test_the_attempts_that_are_asked_for_are_bounded(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    make_sender(publisher="before").send(lines_of("a"))
    earlier = [f"task.{number}" for number in range(20)]
    for name in earlier:
        make_sender(publisher=name).send(lines_of("a"))
    sender = make_sender(publisher="task.20", earlier=earlier)
    assert published(sender, "a") == (0, 1, 1)
    assert len(deliverer.flushed) == 1 + MOST_ATTEMPTS


def test_duplicates_are_redelivered_and_counted(make_sender: Any, deliverer: FakeDeliverer) -> None:
    healed = {"accepted": 0, "duplicate": 2, "redelivered": 1, "refused": []}
    deliverer.script += [status(200, document=healed)]
    sender = make_sender()
    sender.send(lines_of("a", "b"))
    assert (sender.counts.duplicate, sender.counts.redelivered) == (2, 1)
    make_sender(redeliver="false").send(lines_of("c"))
    assert [seen.query.get("redeliver") for seen in deliverer.published] == ["true", None]


def test_an_older_deliverer_is_asked_for_no_redelivery(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    older = {"reason": "unknown parameter 'redeliver': known are ack, callback, instance"}
    deliverer.script += [status(400, document=older)]
    sender = make_sender()
    sender.send(lines_of("a"))
    sender.send(lines_of("b"))

    assert identifiers_of(deliverer) == ["a", "b"]
    found = [seen.query.get("redeliver") for seen in deliverer.published]
    assert found == ["true", None, None]


def test_a_deliverer_that_forgot_the_publisher_fails_the_flush(
    make_sender: Any, deliverer: FakeDeliverer
) -> None:
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.forget()
    with pytest.raises(PublisherForgottenError):
        sender.flush()


def test_a_flush_that_is_refused_fails_the_task(make_sender: Any, deliverer: FakeDeliverer) -> None:
    sender = make_sender(flushLevel="stable")
    sender.send(lines_of("a"))
    deliverer.flush_script += [Answer(400, {"reason": "level=stable needs stores"})]
    with pytest.raises(RequestRefusedError, match=r"flushLevel stable .* needs stores"):
        sender.flush()
    # No lower level is taken in its place.
    assert [seen.query["level"] for seen in deliverer.flushed] == ["stable"]


def test_a_flush_is_asked_for_again_while_the_deliverer_shuts_down(
    make_sender: Any, deliverer: FakeDeliverer, pace: FakePace
) -> None:
    sender = make_sender()
    sender.send(lines_of("a"))
    deliverer.flush_script += [Answer(503, {}, {"Retry-After": "1"})]

    assert sender.flush().complete
    assert pace.slept == [1.0]


@pytest.mark.parametrize(
    "failure", [http.client.BadStatusLine("garbage"), TimeoutError("timed out")]
)
def test_any_failure_of_the_connection_is_tried_again(
    make_sender: Any, deliverer: FakeDeliverer, monkeypatch: pytest.MonkeyPatch, failure: Exception
) -> None:
    sender = make_sender()
    original, failures = http.client.HTTPConnection.getresponse, [failure]

    def getresponse(connection: http.client.HTTPConnection) -> http.client.HTTPResponse:
        if failures:
            raise failures.pop()
        return original(connection)

    monkeypatch.setattr(http.client.HTTPConnection, "getresponse", getresponse)
    sender.send(lines_of("a"))

    assert identifiers_of(deliverer) == ["a"]
    assert isinstance(failure, OSError | http.client.HTTPException)
    assert not isinstance(failure, PublishError)
