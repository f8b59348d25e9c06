"""Publishing one message group, and stopping at its first fault (S1.10)."""

import io
import json
import re
from collections.abc import Mapping
from typing import Any

import pytest

from pillion_cli.client import Answer, DelivererClient, Unreachable
from pillion_cli.exits import CommandError, Exit
from pillion_cli.group_publisher import GroupPublisher, Moment, SenderGroup, with_members
from pillion_cli.indications import Kind, batches
from pillion_cli.publisher import Publisher, PublishOptions, summary_document, summary_lines
from pillion_sidecar.testing import FakeTime

NO_FAULTS: dict[str, Any] = {"faults": [], "dropped": 0, "last": 0}


def fault(number: int, sequence: int | None, reason: str = "queue-full") -> dict[str, Any]:
    given = {} if sequence is None else {"sequence": sequence}
    return {"number": number, "destination": "siem", "reason": reason, **given}


def faults(*given: dict[str, Any], dropped: int = 0) -> dict[str, Any]:
    return {"faults": list(given), "dropped": dropped, "last": len(given) + dropped}


class Deliverer(DelivererClient):
    """Accepts lines but for those that it is told to refuse, and tells the faults it is given."""

    def __init__(self) -> None:
        super().__init__("http://127.0.0.1:1", timeout=1)
        self.requests: list[list[dict[str, Any]]] = []
        #: How to answer publish requests, in order; what is not said is accepted.
        self.refusals: list[list[dict[str, Any]] | Unreachable] = []
        #: How to answer polls, in order; then nothing has failed.
        self.polls: list[dict[str, Any] | Answer | Unreachable] = []
        self.polled: list[Mapping[str, object]] = []
        self.flush: dict[str, Any] = {"complete": True, "destinations": {}}

    def post(
        self,
        path: str,
        query: Mapping[str, object] | None = None,
        *,
        body: bytes = b"",
        headers: Mapping[str, str] | None = None,
    ) -> Answer:
        if path == "/v1/flush":
            return Answer(200, json.dumps(self.flush).encode())
        lines = [json.loads(line) for line in body.split(b"\n")]
        self.requests.append(lines)
        refused = self.refusals.pop(0) if self.refusals else []
        if isinstance(refused, Unreachable):
            raise refused
        content = {"accepted": len(lines) - len(refused), "duplicate": 0, "refused": refused}
        return Answer(207 if refused else 200, json.dumps(content).encode())

    def get(self, path: str, query: Mapping[str, object] | None = None) -> Answer:
        assert path == "/v1/faults"
        self.polled.append(dict(query or {}))
        answer = self.polls.pop(0) if self.polls else NO_FAULTS
        if isinstance(answer, Unreachable):
            raise answer
        return answer if isinstance(answer, Answer) else Answer(200, json.dumps(answer).encode())

    @property
    def sequences(self) -> list[list[int]]:
        return [[line["sequence"] for line in lines] for lines in self.requests]


class World:
    def __init__(self, time: FakeTime, *, timeout: float = 60, **group: Any) -> None:
        self.time = time
        self.client = Deliverer()
        self.publisher = Publisher(
            self.client,
            PublishOptions(publisher="me", timeout=timeout),
            monotonic=time.monotonic,
            sleep=time.advance,
        )
        self.group = SenderGroup("g", **({"ordered": True} | group))
        self.sender = GroupPublisher(
            self.publisher,
            self.client,
            self.group,
            now=lambda: Moment(time.monotonic(), time.time()),
            sleep=time.advance,
        )
        self.summary = self.publisher.summary

    def publish(self, lines: int, *, size: int = 2, kind: Kind = Kind.NDJSON) -> None:
        content = "".join(f'{{"class":"C{n}"}}\n\n' for n in range(lines))
        self.sender.publish(batches(io.BytesIO(content.encode()), kind, size=size))


def test_lines_are_numbered_and_the_last_is_marked(fake_time: FakeTime) -> None:
    world = World(fake_time, max_idle_seconds=60.0, expires=1_900_000_000.5)
    world.publish(3)
    assert world.client.sequences == [[0, 1], [2]]
    (first, _), (last,) = world.client.requests
    assert first == {
        "class": "C0",
        "group": "g",
        "sequence": 0,
        "ordered": True,
        "groupExpires": "2030-03-17T17:46:40.500000Z",
        "groupMaxIdleSeconds": 60.0,
    }
    assert last["last"] is True
    assert world.summary.exit_code is Exit.OK
    assert world.summary.group == {
        "name": "g",
        "sent": 3,
        "unacknowledged": 0,
        "termination": "t3.1",
    }


def test_the_last_line_is_marked_where_the_input_ends_with_a_whole_batch(
    fake_time: FakeTime,
) -> None:
    world = World(fake_time, ordered=False)
    world.publish(4)
    assert [[line.get("last") for line in lines] for lines in world.client.requests] == [
        [None, None],
        [None, True],
    ]
    assert "ordered" not in world.client.requests[0][0]


def test_no_input_is_no_group(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.publish(0)
    assert world.client.requests == []
    assert world.client.polled == []


def test_the_first_fault_ends_the_group_and_names_the_lines(fake_time: FakeTime) -> None:
    world = World(fake_time, max_idle_seconds=60.0)
    world.client.polls = [NO_FAULTS, faults(fault(1, 2), fault(2, 3, "purged"), fault(3, None))]
    world.publish(6)
    assert world.client.sequences == [[0, 1], [2, 3]]
    summary = world.summary
    assert summary.failure == "group g has failed: line 5 was discarded at siem: queue-full"
    assert summary.unsettled_from == 9
    assert summary.exit_code is Exit.PARTLY
    assert summary_document(summary)["faults"] == [
        {"line": 5, "destination": "siem", "reason": "queue-full"},
        {"line": 7, "destination": "siem", "reason": "purged"},
        {"line": None, "destination": "siem", "reason": "queue-full"},
    ]
    told = list(summary_lines(summary))
    assert told[0] == "4 accepted, 0 duplicate, 0 refused, 3 faults"
    assert "  line 7 was discarded at siem: purged" in told
    assert "  a line was discarded at siem: queue-full" in told


def test_faults_are_asked_for_after_the_last_one_seen(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.client.polls = [
        {"faults": [fault(number, 0) for number in range(3, 6)], "dropped": 2, "last": 6},
        {"faults": [fault(6, 1)], "dropped": 0, "last": 6},
    ]
    world.publish(2)
    assert [query["after"] for query in world.client.polled] == [0, 5]
    assert {query["publisher"] for query in world.client.polled} == {"me"}
    assert world.summary.faulted == 6
    assert world.group.failure == "group g has failed: 2 faults without detail"


def test_a_member_refused_for_now_is_sent_again_before_what_follows(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.client.refusals = [
        [
            {"line": 0, "status": 429, "reason": "full"},
            {"line": 1, "status": 429, "reason": "full"},
        ],
        [{"line": 1, "status": 429, "reason": "full"}],
    ]
    world.publish(3)
    assert world.client.sequences == [[0, 1], [0, 1], [1], [2]]
    assert world.summary.exit_code is Exit.OK


def test_a_wrong_line_ends_an_ordered_group(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.client.refusals = [[{"line": 1, "status": 400, "reason": "no"}]]
    world.publish(4)
    assert world.client.sequences == [[0, 1]]
    assert world.summary.failure is not None
    assert "line 3 was refused" in world.summary.failure
    assert world.summary.unsettled_from == 5
    assert world.summary.exit_code is Exit.PARTLY


def test_a_wrong_line_beside_one_refused_for_now_leaves_that_unsent(fake_time: FakeTime) -> None:
    world = World(fake_time, max_idle_seconds=600.0)
    world.client.refusals = [
        [
            {"line": 0, "status": 400, "reason": "no"},
            {"line": 1, "status": 429, "reason": "full"},
        ]
    ]
    world.publish(4)
    assert world.client.sequences == [[0, 1]]
    assert world.summary.unsettled_from == 3


def test_a_wrong_line_leaves_a_gap_in_a_group_without_order(fake_time: FakeTime) -> None:
    world = World(fake_time, ordered=False)
    world.client.refusals = [[{"line": 1, "status": 400, "reason": "no"}]]
    world.publish(4)
    assert world.client.sequences == [[0, 1], [2, 3]]
    assert world.summary.failure is None
    assert world.summary.group is not None
    assert world.summary.group["termination"] == "t4.2"
    assert world.summary.group["unacknowledged"] == 1


def test_a_group_that_was_idle_while_it_was_refused_is_not_gone_on_with(
    fake_time: FakeTime,
) -> None:
    world = World(fake_time, max_idle_seconds=0.25)
    world.client.refusals = [[{"line": 0, "status": 429, "reason": "full"}]]
    world.publish(2)
    assert world.client.sequences == [[0, 1]]
    assert world.summary.failure is not None
    assert "t2" in world.summary.failure


@pytest.mark.parametrize(("timeout", "polls"), [(60, 1), (5, 0)])
def test_d2_a_missing_acknowledgement_is_followed_by_a_poll_where_that_comes_soon_enough(
    fake_time: FakeTime, timeout: float, polls: int
) -> None:
    world = World(fake_time, timeout=timeout, max_idle_seconds=20.0)
    world.client.refusals = [Unreachable("no answer")]
    world.client.polls = [faults(fault(1, 1, "out-of-order"))]
    world.publish(2)
    assert world.summary.failure == "no answer"
    assert len(world.client.polled) == polls
    assert world.summary.faulted == polls


@pytest.mark.parametrize(
    "answer",
    [Answer(404, b'{"reason": "nothing is known of this publisher"}'), Unreachable("gone")],
)
def test_where_the_faults_cannot_be_known_nothing_more_is_sent(
    fake_time: FakeTime, answer: Answer | Unreachable
) -> None:
    world = World(fake_time)
    world.client.polls = [answer]
    world.publish(4)
    assert world.client.sequences == [[0, 1]]
    assert world.summary.failure is not None
    assert re.search("its faults are unknown|the outcome of 2", world.summary.failure)
    assert world.summary.exit_code is Exit.PARTLY


@pytest.mark.parametrize(("until_told", "polls"), [(5, 6), (99, 8)])
def test_where_a_member_is_held_behind_a_gap_its_fault_is_waited_for(
    fake_time: FakeTime, until_told: int, polls: int
) -> None:
    world = World(fake_time, max_idle_seconds=20.0, timeout=60)
    world.client.refusals = [[{"line": 0, "status": 400, "reason": "no"}]]
    world.client.polls = [NO_FAULTS] * until_told + [faults(fault(1, 1, "out-of-order"))]
    started = fake_time.monotonic()
    world.publish(2)
    assert len(world.client.polled) == polls
    assert fake_time.monotonic() - started <= 60
    assert world.summary.faulted == (1 if until_told < polls else 0)
    assert world.summary.exit_code is Exit.PARTLY


def test_what_is_discarded_after_the_end_is_told_by_the_flush(fake_time: FakeTime) -> None:
    world = World(fake_time)
    world.publish(2)
    assert world.summary.exit_code is Exit.OK
    world.client.polls = [faults(fault(1, 0, "attempts-exceeded"))]
    world.sender.flush()
    assert world.summary.failure is not None
    assert "line 1 was discarded at siem: attempts-exceeded" in world.summary.failure
    assert world.summary.exit_code is Exit.PARTLY


def test_only_json_can_be_numbered(fake_time: FakeTime) -> None:
    world = World(fake_time)
    with pytest.raises(CommandError, match="needs indications in JSON"):
        world.publish(1, kind=Kind.CIM_XML)


@pytest.mark.parametrize(
    ("line", "becomes"),
    [
        (b'{"x": 1.50}', b'{"sequence": 3,"x": 1.50}'),
        (b"{ }", b'{"sequence": 3}'),
        (b"[1]", b"[1]"),
        (b"", b""),
    ],
)
def test_members_are_put_before_what_a_line_has(line: bytes, becomes: bytes) -> None:
    assert with_members(line, {"sequence": 3}) == becomes
