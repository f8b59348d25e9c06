"""Publishing, and sending again what was refused for now."""

import io
import json
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from pillion_cli.client import Answer, DelivererClient, Unreachable
from pillion_cli.exits import Exit
from pillion_cli.indications import Kind, batches
from pillion_cli.publisher import Publisher, PublishOptions, summary_document, summary_lines
from pillion_sidecar.testing import FakeTime


@dataclass
class Sent:
    """One request."""

    path: str
    query: Mapping[str, object]
    body: bytes
    headers: Mapping[str, str]

    @property
    def lines(self) -> list[str]:
        return self.body.decode().split("\n")


class ScriptedClient(DelivererClient):
    """Gives the answers that it was told, one for each request."""

    def __init__(self, *answers: Answer | Unreachable) -> None:
        super().__init__("http://127.0.0.1:1", timeout=1)
        self.sent: list[Sent] = []
        self._answers = list(answers)

    def post(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        self.sent.append(Sent(path, query or {}, body, headers or {}))
        answer = self._answers.pop(0)
        if isinstance(answer, Unreachable):
            raise answer
        return answer


def _answer(status: int = 200, *, retry_after: float | None = None, **content: object) -> Answer:
    content = {"accepted": 0, "duplicate": 0, "refused": [], **content}
    return Answer(status, json.dumps(content).encode(), retry_after)


def _refused(line: int, status: int, **more: object) -> dict[str, object]:
    return {"line": line, "status": status, "reason": "queue is full", **more}


def _publisher(client: ScriptedClient, time: FakeTime, **options: object) -> Publisher:
    return Publisher(
        client,
        PublishOptions(**options),  # type: ignore[arg-type]
        monotonic=time.monotonic,
        sleep=time.advance,
    )


def _publish(publisher: Publisher, content: str, kind: Kind = Kind.NDJSON, size: int = 3) -> None:
    publisher.publish(batches(io.BytesIO(content.encode()), kind, size=size))


def test_batches_are_sent_in_order_with_level_source_and_publisher(fake_time: FakeTime) -> None:
    client = ScriptedClient(_answer(accepted=3), _answer(accepted=0, duplicate=1))
    publisher = _publisher(
        client, fake_time, ack="delivered", source="s", publisher="me", timeout=5
    )
    _publish(publisher, "1\n2\n3\n4\n")
    assert [sent.lines for sent in client.sent] == [["1", "2", "3"], ["4"]]
    assert client.sent[0].query == {"ack": "delivered", "source": "s", "timeout": "5"}
    assert client.sent[0].headers["Pillion-Publisher"] == "me"
    assert client.sent[0].headers["Content-Type"] == "application/x-ndjson"
    assert (publisher.summary.accepted, publisher.summary.duplicate) == (3, 1)
    assert publisher.summary.exit_code == Exit.OK


def test_only_lines_refused_for_now_are_sent_again_after_what_the_deliverer_asked(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(
        _answer(
            207,
            accepted=1,
            refused=[_refused(0, 429, destination="siem"), _refused(1, 400, field="class")],
            retry_after=7.0,
        ),
        _answer(accepted=1),
        _answer(accepted=1),
    )
    publisher = _publisher(client, fake_time)
    started = fake_time.monotonic()
    _publish(publisher, "1\n\n2\n3\n4\n")
    assert [sent.lines for sent in client.sent] == [["1", "2", "3"], ["1"], ["4"]]
    assert fake_time.monotonic() - started == 7
    summary = publisher.summary
    assert (summary.accepted, summary.refused, summary.resent) == (3, 1, 1)
    (refusal,) = summary.refusals
    assert (refusal.number, refusal.reason) == (3, "class: queue is full")
    assert summary.exit_code == Exit.PARTLY


def test_lines_that_were_not_read_are_sent_again(fake_time: FakeTime) -> None:
    client = ScriptedClient(
        _answer(207, refused=[_refused(0, 400)], unreadFrom=1), _answer(accepted=2)
    )
    publisher = _publisher(client, fake_time)
    _publish(publisher, "1\n2\n3\n")
    assert client.sent[1].lines == ["2", "3"]
    assert (publisher.summary.accepted, publisher.summary.refused) == (2, 1)


def test_no_progress_for_the_timeout_gives_up_and_sends_nothing_past_the_gap(
    fake_time: FakeTime,
) -> None:
    full = _answer(429, refused=[_refused(0, 429, destination="siem")], retry_after=20.0)
    client = ScriptedClient(_answer(accepted=1), full, full, full)
    publisher = _publisher(client, fake_time, timeout=50.0)
    started = fake_time.monotonic()
    _publish(publisher, "1\n2\n3\n", size=1)
    assert [sent.lines for sent in client.sent] == [["1"], ["2"], ["2"], ["2"]]
    assert fake_time.monotonic() - started == 40
    summary = publisher.summary
    assert summary.failure == "no progress in 50 s: siem: queue is full"
    assert (summary.accepted, summary.refused, summary.unsettled_from) == (1, 1, 2)
    assert summary.exit_code == Exit.PARTLY


def test_waits_grow_where_the_deliverer_does_not_say_how_long(fake_time: FakeTime) -> None:
    busy = Answer(503, b"starting")
    client = ScriptedClient(busy, busy, busy, _answer(accepted=1))
    publisher = _publisher(client, fake_time)
    started = fake_time.monotonic()
    _publish(publisher, "1\n")
    assert fake_time.monotonic() - started == 0.5 + 1 + 2
    assert publisher.summary.exit_code == Exit.OK


def test_an_unreachable_deliverer_says_what_was_not_sent(fake_time: FakeTime) -> None:
    client = ScriptedClient(_answer(accepted=1), Unreachable("no answer"))
    publisher = _publisher(client, fake_time)
    _publish(publisher, "1\n2\n3\n", size=1)
    summary = publisher.summary
    assert (summary.failure, summary.unsettled_from) == ("no answer", 2)
    assert summary.exit_code == Exit.PARTLY


def test_nothing_accepted_is_a_failure(fake_time: FakeTime) -> None:
    client = ScriptedClient(_answer(400, refused=[_refused(0, 400)]))
    publisher = _publisher(client, fake_time)
    _publish(publisher, "1\n")
    assert publisher.summary.exit_code == Exit.FAILED


def test_a_request_refused_as_a_whole_ends_it_with_the_deliverers_words(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(Answer(400, b'{"reason": "ack=stable needs stores"}'))
    publisher = _publisher(client, fake_time, ack="stable")
    _publish(publisher, "1\n2\n3\n4\n")
    assert publisher.summary.failure == "HTTP 400: ack=stable needs stores"
    assert publisher.summary.exit_code == Exit.FAILED


def test_a_request_broken_off_at_its_first_line_is_not_sent_again(fake_time: FakeTime) -> None:
    reason = "line 0 is longer than 1048576 bytes"
    client = ScriptedClient(
        _answer(207, accepted=1, unreadFrom=1, reason=reason),
        _answer(413, unreadFrom=0, reason=reason),
    )
    publisher = _publisher(client, fake_time)
    _publish(publisher, "1\n2\n3\n")
    assert [sent.lines for sent in client.sent] == [["1", "2", "3"], ["2", "3"]]
    assert publisher.summary.failure == f"HTTP 413: {reason}"
    assert publisher.summary.unsettled_from == 2


def test_discards_and_what_is_pending_make_a_delivered_publish_partial(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(
        _answer(
            202,
            accepted=3,
            delivered=1,
            pending=1,
            receipt="r",
            discarded=[{"line": 1, "destination": "siem", "reason": "fatal-error"}],
        )
    )
    publisher = _publisher(client, fake_time, ack="delivered")
    _publish(publisher, "1\n2\n3\n")
    summary = publisher.summary
    assert (summary.delivered, summary.pending) == (1, 1)
    assert +summary.discarded == {"fatal-error": 1}
    assert summary.exit_code == Exit.PARTLY


@pytest.mark.parametrize(
    ("content", "refusals"),
    [
        ("<CIM><SIMPLEEXPRSP/></CIM>", []),
        ('<CIM><ERROR CODE="4" DESCRIPTION="no &quot;class&quot;"/></CIM>', ['no "class"']),
        ('<CIM><ERROR CODE="4"/></CIM>', ['<ERROR CODE="4"/>']),
    ],
)
def test_a_cim_xml_answer_is_an_acceptance_or_an_error(
    content: str, refusals: list[str], fake_time: FakeTime
) -> None:
    client = ScriptedClient(Answer(200, content.encode()))
    publisher = _publisher(client, fake_time)
    _publish(publisher, "<CIM/>", Kind.CIM_XML)
    assert [refusal.reason for refusal in publisher.summary.refusals] == refusals
    assert publisher.summary.accepted == 1 - len(refusals)
    assert client.sent[0].headers["CIMExport"] == "MethodRequest"


def test_what_reaches_no_listener_is_summed_whatever_the_level(fake_time: FakeTime) -> None:
    client = ScriptedClient(
        _answer(accepted=3, unrouted=1, ended=1), _answer(accepted=1, suppressed=1)
    )
    publisher = _publisher(client, fake_time)
    _publish(publisher, "{}\n" * 4)
    (counts,) = list(summary_lines(publisher.summary))
    assert counts == (
        "4 accepted, 0 duplicate, 0 refused, 3 for no listener (1 unrouted, 1 ended, 1 suppressed)"
    )
    document = summary_document(publisher.summary)
    assert (document["unrouted"], document["ended"], document["suppressed"]) == (1, 1, 1)


def test_an_export_that_reaches_no_listener_is_counted(fake_time: FakeTime) -> None:
    client = ScriptedClient(Answer(200, b"<CIM/>", unreached="unrouted"))
    publisher = _publisher(client, fake_time)
    _publish(publisher, "<CIM/>", Kind.CIM_XML)
    assert publisher.summary.unreached == {"unrouted": 1}


def test_a_flush_waits_for_delivery_and_tells_of_discards(fake_time: FakeTime) -> None:
    told = {"complete": True, "destinations": {"siem": {"delivered": 1, "discarded": {}}}}
    client = ScriptedClient(_answer(accepted=1), Answer(200, json.dumps(told).encode()))
    publisher = _publisher(client, fake_time, publisher="me", timeout=9)
    _publish(publisher, "1\n")
    publisher.flush()
    assert client.sent[1].path == "/v1/flush"
    # A deliverer of the first release names no instance.
    assert client.sent[1].query == {
        "publisher": "me",
        "level": "delivered",
        "timeout": "9",
        "instance": None,
    }
    assert publisher.summary.exit_code == Exit.OK


@pytest.mark.parametrize(
    "told",
    [
        {"complete": False, "destinations": {}},
        {"complete": True, "destinations": {"siem": {"discarded": {"fatal-error": 1}}}},
    ],
)
def test_a_flush_that_is_incomplete_or_has_discards_is_partial(
    told: dict[str, object], fake_time: FakeTime
) -> None:
    client = ScriptedClient(_answer(accepted=1), Answer(202, json.dumps(told).encode()))
    publisher = _publisher(client, fake_time, publisher="me")
    _publish(publisher, "1\n")
    publisher.flush()
    assert publisher.summary.exit_code == Exit.PARTLY


def test_what_is_not_known_to_be_on_disk_makes_a_durable_publish_partial(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(
        _answer(accepted=3, durable=True),
        _answer(202, accepted=1, duplicate=1, durable=False, receipt="r"),
    )
    publisher = _publisher(client, fake_time, ack="durable", timeout=5)
    _publish(publisher, "1\n2\n3\n4\n5\n")
    assert client.sent[0].query == {"ack": "durable", "source": None, "timeout": "5"}
    assert publisher.summary.not_durable == 2
    assert publisher.summary.exit_code == Exit.PARTLY
    assert "2 not known to be on disk" in next(summary_lines(publisher.summary))


def test_what_is_not_known_to_be_in_stores_makes_a_stable_publish_partial(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(
        _answer(accepted=1, durable=True, stable=True),
        _answer(202, accepted=1, duplicate=1, durable=True, stable=False, receipt="r"),
    )
    publisher = _publisher(client, fake_time, ack="stable", timeout=5)
    _publish(publisher, "1\n2\n3\n4\n")
    assert publisher.summary.not_stable == 2
    assert publisher.summary.exit_code == Exit.PARTLY
    assert "2 not known to be in enough stores" in next(summary_lines(publisher.summary))


# ---------------------------------------------------------------------- over a restart


def _flushed(status: int = 200, **content: object) -> Answer:
    counts = {"delivered": 1, "discarded": {}, "pending": 0}
    content = {"complete": True, "destinations": {"siem": counts}, **content}
    return Answer(status, json.dumps(content).encode())


def test_a_flush_names_the_instance_that_took_the_lines(fake_time: FakeTime) -> None:
    client = ScriptedClient(_answer(accepted=3, instance="a"), _flushed(instance="a"))
    publisher = _publisher(client, fake_time, publisher="me", follows=True)
    _publish(publisher, "1\n2\n3\n")
    publisher.flush()
    assert client.sent[-1].query["instance"] == "a"
    assert publisher.summary.exit_code is Exit.OK


@pytest.mark.parametrize("status", [404, 409])
def test_a_flush_of_a_deliverer_that_has_forgotten_is_no_success(
    status: int, fake_time: FakeTime
) -> None:
    reason = Answer(status, b'{"reason": "restarted"}')
    client = ScriptedClient(_answer(accepted=3, instance="a"), reason)
    publisher = _publisher(client, fake_time, publisher="me", follows=True)
    _publish(publisher, "1\n2\n3\n")
    publisher.flush()
    summary = publisher.summary
    assert (summary.forgotten, summary.exit_code) == (3, Exit.PARTLY)
    assert "the outcome of 3 indications is unknown" in (summary.failure or "")
    assert "3 with unknown outcome" in next(iter(summary_lines(summary)))


def test_what_a_run_before_took_is_not_certified_by_the_flush_of_another(
    fake_time: FakeTime,
) -> None:
    client = ScriptedClient(
        _answer(accepted=3, instance="a"), _answer(accepted=1, instance="b"), _flushed(instance="b")
    )
    publisher = _publisher(client, fake_time, publisher="me", follows=True)
    _publish(publisher, "1\n2\n3\n4\n")
    publisher.flush()
    # All is published; what became of the first three nobody knows.
    assert client.sent[-1].query["instance"] == "b"
    assert publisher.summary.accepted == 4
    assert (publisher.summary.forgotten, publisher.summary.exit_code) == (3, Exit.PARTLY)


def test_who_asks_nothing_later_goes_on_over_a_restart(fake_time: FakeTime) -> None:
    client = ScriptedClient(_answer(accepted=3, instance="a"), _answer(accepted=1, instance="b"))
    publisher = _publisher(client, fake_time, publisher="me")
    _publish(publisher, "1\n2\n3\n4\n")
    assert publisher.summary.exit_code is Exit.OK


def test_an_answer_of_another_shape_is_refused_in_a_sentence(fake_time: FakeTime) -> None:
    publisher = _publisher(ScriptedClient(_answer(accepted="many")), fake_time)
    _publish(publisher, "1\n")
    assert publisher.summary.failure is not None
    assert publisher.summary.failure.startswith("the answer is not from a deliverer: ")
