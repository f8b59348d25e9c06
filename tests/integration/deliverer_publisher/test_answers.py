"""What the publisher of a Spark task takes for granted of a deliverer, held against a real one."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pyarrow as pa
import pytest

from pillion_sidecar.intake.limits import IntakeLimits
from pillion_sidecar.intake.submission import MAXIMUM_REFUSED
from pyspark_pillion.errors import (
    FlushTimeoutError,
    InvalidIndicationsError,
    PublisherForgottenError,
    RequestRefusedError,
    UndeliveredError,
)
from pyspark_pillion.rejects import RejectsFile
from support.between import lose_answer
from support.fake_deliverer import hang_up
from support.resources import alert_filter, subscription
from support.running import alert, alerts, resources


def lines(*documents: dict[str, Any]) -> Any:
    return pa.array([json.dumps(document) for document in documents], pa.string())


def named(*identifiers: str) -> Any:
    return lines(*map(alert, identifiers))


# ---------------------------------------------------------------------- flushes


def test_a_request_repeated_after_a_lost_answer_counts_once(house: Any) -> None:
    deliverer = house.deliver_to()
    house.between.script += [lose_answer]
    house.pace.meanwhile = deliverer.settled
    sender = house.sender()
    sender.send(named("a", "b"))
    sender.flush()

    counts = sender.finish()
    assert (counts.accepted, counts.duplicate, counts.delivered) == (2, 0, 2)
    assert house.identifiers() == ["a", "b"]


def test_what_earlier_attempts_of_a_task_published_is_no_duplicate(house: Any) -> None:
    house.deliver_to()
    house.sender(publisher="before").send(named("a"))
    house.sender(publisher="task.0").send(named("b", "c"))
    sender = house.sender(publisher="task.1", earlier=["task.0"], flushLevel="delivered")
    sender.send(named("a", "b", "c", "d"))
    sender.flush()

    counts = sender.finish()
    assert (counts.accepted, counts.duplicate, counts.repeated) == (3, 1, 0)
    assert counts.delivered == 3
    assert house.identifiers() == ["a", "b", "c", "d"]


def test_what_was_discarded_and_is_repeated_counts_each_time(house: Any) -> None:
    house.behave(status=503)
    deliverer = house.deliver_to(retry={"attempts": 0, "intervalSeconds": 60})
    house.between.script += [lose_answer]
    house.pace.meanwhile = lambda: give_up_on_two(house)
    sender = house.sender(flushLevel="delivered", onUndelivered="report")
    # Accepted, given up, and repeated for want of an answer: nobody has it, so it is accepted anew.
    sender.send(named("a", "b"))
    sender.send(named("b"))
    sender.flush()

    assert sender.finish().discarded == {"siem: attempts-exceeded": 4}
    deliverer.settled()


def give_up_on_two(house: Any) -> None:
    """The first is given up at once, the second when its one attempt is due."""
    house.deliverer.retry("siem", 1)
    house.deliverer.settled()


def test_a_flush_tells_the_discards_of_another_publishers_originals(house: Any) -> None:
    house.behave(status=503)
    house.deliver_to(retry={"attempts": 0})
    first = house.sender(publisher="spark/1", flushLevel="delivered", onUndelivered="report")
    first.send(named("a"))
    first.flush()
    second = house.sender(publisher="spark/2", onUndelivered="fail")
    second.send(named("a"))
    with pytest.raises(UndeliveredError, match="siem: attempts-exceeded 1"):
        second.flush()


def test_a_duplicate_of_a_class_outside_the_schema_is_recognised(house: Any) -> None:
    house.deliver_to()
    stated = {"IndicationIdentifier": {"type": "string", "value": "a"}}
    line = lines({"class": "ACME_FanIndication", "properties": stated})
    senders = [house.sender(publisher=publisher) for publisher in ("spark/1", "spark/2")]
    for sender in senders:
        sender.send(line)
    assert [sender.counts.accepted for sender in senders] == [1, 0]


def flush_until_told(sender: Any) -> None:
    """Each flush is answered at once, so it is asked until the discard is there."""
    for _ in range(10_000):
        sender.flush()


def test_a_listener_that_has_healed_gets_what_it_missed_when_a_batch_comes_again(
    house: Any,
) -> None:
    deliverer = house.stand_before(
        *resources(house.destination("good"), house.destination("bad", retry={"attempts": 0}))
    )
    house.behave(status=503)
    first = house.sender(publisher="spark/1", flushLevel="accepted", onUndelivered="fail")
    first.send(named("a"))
    deliverer.wait(lambda run: run.failed("good", 1))
    with pytest.raises(UndeliveredError, match="bad: attempts-exceeded 1"):
        flush_until_told(first)
    house.behave()
    deliverer.retry("good", 1)
    deliverer.settled()
    again = house.sender(publisher="spark/2", flushLevel="delivered")
    again.send(named("a"))
    again.flush()

    assert (again.counts.duplicate, again.counts.redelivered) == (1, 1)
    assert again.counts.discarded == {}
    assert house.identifiers("bad") == house.identifiers("good") == ["a"]


def test_a_duplicate_that_was_delivered_adds_nothing_to_what_a_flush_counts(house: Any) -> None:
    house.deliver_to()
    senders = [
        house.sender(publisher=publisher, flushLevel="delivered")
        for publisher in ("spark/1", "spark/2")
    ]
    for sender in senders:
        sender.send(named("a"))
        sender.flush()

    counts = [sender.finish() for sender in senders]
    told = [(count.accepted, count.duplicate, count.delivered) for count in counts]
    assert told == [(1, 0, 1), (0, 1, 0)]
    assert house.identifiers() == ["a"]


def test_a_flush_of_what_is_accepted_is_answered_at_once_and_of_nobody_with_404(
    house: Any,
) -> None:
    house.behave(hang=True)
    house.deliver_to()
    sender = house.sender()
    sender.send(named("a"))
    connection = house.connection()
    asked = {"level": "accepted", "timeout": "3600"}

    known = connection.post("/v1/flush", query={"publisher": "spark/1", **asked})
    assert (known.status, known.document()["complete"]) == (200, True)
    assert connection.post("/v1/flush", query={"publisher": "spark/2", **asked}).status == 404


def ask_without_waiting(between: Any, seen: Any) -> Any:
    """The deliverer's time stands still, and a wait would never end."""
    return between.accept(replace(seen, query={**seen.query, "timeout": "0"}))


def test_a_flush_that_is_not_complete_in_time_says_what_it_waits_for(house: Any) -> None:
    house.behave(hang=True)
    house.deliver_to()
    house.between.flush_steps += [ask_without_waiting] * 4
    first = house.sender(publisher="spark/1", flushLevel="delivered", flushTimeoutSeconds="0.3")
    first.send(named("a"))
    with pytest.raises(FlushTimeoutError, match="pending: siem 1"):
        first.flush()
    second = house.sender(publisher="spark/2", flushLevel="delivered", flushTimeoutSeconds="0.3")
    second.send(named("a"))
    with pytest.raises(FlushTimeoutError, match="pending: originals of duplicates 1"):
        second.flush()


def test_a_deliverer_that_was_restarted_is_found_out(house: Any) -> None:
    house.deliver_to()
    sender = house.sender()
    sender.send(named("a"))
    again = house.start(*resources(house.destination("siem")))
    house.between.lead_to(again.url)
    house.between.script += [hang_up]
    with pytest.raises(PublisherForgottenError):
        sender.send(named("b"))


# ---------------------------------------------------------------------- lines


def test_each_line_of_a_request_is_accounted_for_once(house: Any, tmp_path: Path) -> None:
    deliverer = house.deliver_to(queueSize=3, queueFullPolicy="Reject")
    house.pace.meanwhile = deliverer.settled
    rejects = RejectsFile(directory=str(tmp_path / "rejects"), name="part")
    sender = house.sender(rejects=rejects)
    wrong = [alert("wrong", PerceivedSeverity=70_000), alert("as well", AlertType="x")]
    sender.send(lines(wrong[0], *alerts(0, 2), alert("0"), *alerts(2, 7), wrong[1], alert("1")))
    rejects.keep()

    first = house.between.told()[0]
    refused = [(line["line"], line["status"]) for line in first.document.pop("refused")]
    assert (first.status, first.document) == (
        207,
        {"accepted": 3, "duplicate": 2, "instance": first.document["instance"]},
    )
    assert refused == [(0, 400), *((n, 429) for n in range(5, 11)), (11, 400)]
    assert first.headers == {"Retry-After": "1"}
    assert all(seconds >= 1 for seconds in house.pace.slept)
    assert (sender.counts.accepted, sender.counts.duplicate) == (9, 2)
    assert [row["field"] for row in rejected(tmp_path)] == [
        "properties.PerceivedSeverity",
        "properties.AlertType",
    ]
    deliverer.settled()
    assert house.identifiers() == [str(n) for n in range(9)]


def test_lines_beyond_those_whose_refusal_can_be_told_are_sent_again(
    house: Any, tmp_path: Path
) -> None:
    deliverer = house.deliver_to()
    rejects = RejectsFile(directory=str(tmp_path / "rejects"), name="part")
    sender = house.sender(rejects=rejects)
    wrong = [alert(None, AlertType="x")] * (MAXIMUM_REFUSED + 300)
    sender.send(lines(alert("first"), *wrong, alert("last")))
    rejects.keep()
    deliverer.settled()

    told = [answer.document for answer in house.between.told()]
    assert told[0]["unreadFrom"] == 1 + MAXIMUM_REFUSED
    assert [len(answer["refused"]) for answer in told] == [MAXIMUM_REFUSED, 300]
    assert len(rejected(tmp_path)) == len(wrong)
    assert house.identifiers() == ["first", "last"]


def rejected(folder: Path) -> list[dict[str, Any]]:
    (file,) = (folder / "rejects").iterdir()
    return [json.loads(row) for row in file.read_text().splitlines()]


def test_a_line_that_is_longer_than_the_deliverer_takes_is_rejected_alone(
    house: Any, tmp_path: Path
) -> None:
    deliverer = house.deliver_to()
    rejects = RejectsFile(directory=str(tmp_path / "rejects"), name="part")
    long = alert("long", Message="x" * IntakeLimits().line_bytes)
    house.sender(rejects=rejects).send(lines(alert("a"), long, alert("b")))
    rejects.keep()
    deliverer.settled()

    assert [len(row["line"]) for row in rejected(tmp_path)] == [len(json.dumps(long))]
    assert house.identifiers() == ["a", "b"]


def test_a_request_that_is_longer_than_the_deliverer_takes_is_sent_in_parts(house: Any) -> None:
    limits = IntakeLimits(stream_bytes=100_000)
    with patch("pillion_sidecar.intake.server.IntakeLimits", lambda: limits):
        deliverer = house.deliver_to()
    # Longer than what a kernel holds for a reader that does not read, so it has to be let go.
    documents = [alert(str(number), Message="x" * 40_000) for number in range(200)]
    sender = house.sender()
    sender.send(lines(*documents))
    deliverer.settled()

    assert house.between.told()[0].status == 413
    assert (sender.counts.accepted, sender.counts.duplicate) == (200, 0)
    assert house.identifiers() == [str(number) for number in range(200)]


@pytest.mark.parametrize(
    ("options", "told"),
    [({"ack": "durable"}, "ack=durable needs durability Disk"), ({"source": "s" * 2000}, "source")],
)
def test_what_a_deliverer_cannot_give_fails_the_task_at_once(
    house: Any, options: dict[str, str], told: str
) -> None:
    house.deliver_to()
    with pytest.raises(RequestRefusedError, match=f"HTTP 400: .*{told}"):
        house.sender(**options).send(named("a"))

    assert house.pace.slept == []


def test_a_flush_level_that_a_deliverer_cannot_give_fails_the_task(house: Any) -> None:
    house.deliver_to()
    sender = house.sender(flushLevel="durable")
    sender.send(named("a"))
    with pytest.raises(RequestRefusedError, match="level=durable needs durability Disk"):
        sender.flush()


def test_a_listener_that_is_down_for_all_tasks_costs_them_nothing_and_gets_all(house: Any) -> None:
    house.behave(status=503)
    deliverer = house.deliver_to()
    for task in ("task.0", "task.1"):
        sender = house.sender(publisher=task)
        sender.send(named(task))
        assert sender.flush().complete
        assert (sender.counts.accepted, sender.counts.delivered) == (1, 0)
    assert house.pace.slept == []
    house.behave()
    deliverer.retry("siem", 1)
    deliverer.settled()
    assert house.identifiers() == ["task.0", "task.1"]


def test_wrong_lines_are_quoted_with_field_and_remedy(house: Any) -> None:
    house.deliver_to()
    sender = house.sender()
    sender.send(lines(alert("a"), alert("b", PerceivedSeverity=70_000)))
    with pytest.raises(
        InvalidIndicationsError, match=r"1 x properties.PerceivedSeverity: [^p].*70000"
    ) as caught:
        sender._rejects.summary.check(where="save")

    assert "uint16" in str(caught.value)


# ---------------------------------------------------------------------- order


def test_only_what_was_refused_is_sent_again_and_order_holds(house: Any) -> None:
    deliverer = house.deliver_to(queueSize=7, queueFullPolicy="Reject")
    house.pace.meanwhile = deliverer.settled
    sender = house.sender()
    for start in (0, 40, 80):
        sender.send(lines(*alerts(start, 40)))
    sender.flush()

    sent = house.between.published
    for seen, following, answer in zip(sent, sent[1:], house.between.told(), strict=False):
        if refused := answer.document["refused"]:
            assert following.lines == tuple(seen.lines[line["line"]] for line in refused)
    assert (sender.counts.accepted, sender.counts.duplicate) == (120, 0)
    deliverer.settled()
    assert house.identifiers() == [str(number) for number in range(120)]
    numbers = [line["number"] for line in house.record()]
    assert numbers == list(range(numbers[0], numbers[0] + 120))


def test_nothing_overtakes_a_line_at_any_of_its_destinations(house: Any) -> None:
    full = house.destination("full", queueSize=2, queueFullPolicy="Reject")
    only_six = alert_filter("six", query="SELECT * FROM CIM_AlertIndication WHERE AlertType = 6")
    house.stand_before(
        *resources(
            *(full, house.destination("free")),
            filters=(only_six,),
            subscriptions=(subscription("s1", "full", "six"), subscription("s2", "free")),
        )
    )
    house.pace.meanwhile = house.deliverer.settled
    sender = house.sender()
    # The third is refused by one of its destinations, and the fourth goes to the other alone.
    sender.send(lines(*alerts(0, 3), alert("3", AlertType=5)))
    sender.flush()

    house.deliverer.settled()
    refused = house.between.told()[0].document["refused"]
    assert [(line["line"], line["destination"]) for line in refused] == [(2, "full"), (3, "full")]
    assert house.identifiers("full") == ["0", "1", "2"]
    assert house.identifiers("free") == ["0", "1", "2", "3"]
