"""Lines that arrive together are accepted as if each had arrived alone: for any body and any parts
in which it comes, the same answers, queues, receipts and journal (S1.2)."""

import json
from collections.abc import Sequence
from itertools import pairwise
from typing import Any, NamedTuple

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.common import QueueFullPolicy
from pillion_sidecar.config.schema.filter import IndicationFilter
from pillion_sidecar.config.schema.limits import RateLimit
from pillion_sidecar.config.schema.service import Durability
from pillion_sidecar.config.schema.subscription import RepeatNotification, RepeatPolicy
from pillion_sidecar.indication import Indication, Target
from pillion_sidecar.intake.answers import submission_answer
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.pacing import PublisherPaces
from pillion_sidecar.intake.relay import RelaySubmission
from pillion_sidecar.intake.submission import Submission
from pillion_sidecar.journal.limits import JournalSettings
from pillion_sidecar.journal.memory import MemoryJournal
from pillion_sidecar.journal.ports import Recovered
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.reliability.publishers import Publisher
from pillion_sidecar.reliability.receipts import Receipt
from pillion_sidecar.routing import Router
from pillion_sidecar.testing import FakeTime
from support.crashing_files import RecordingFiles
from support.delivery import Deliverer, destination, subscription
from support.intake import SCHEMA, alert
from support.on_disk import OnDisk
from support.relay_lines import relayed

#: Everything but the line's end; the fake clock's time is 2023-11-14T22:13:20Z.
PAST, FUTURE = "2023-01-01T00:00:00Z", "2023-11-15T00:00:00Z"
FIRST, SECOND = "first", "second"
FILTERS = {
    "alerts": "SELECT * FROM CIM_AlertIndication",
    "not-z": "SELECT * FROM CIM_AlertIndication WHERE OwningEntity IS NULL OR OwningEntity <> 'z'",
    "of-x": "SELECT * FROM CIM_AlertIndication WHERE OwningEntity = 'x'",
    "thresholds": "SELECT * FROM CIM_ThresholdIndication",
}


class World(NamedTuple):
    """What the lines of a body meet."""

    on_disk: bool = True
    policy: QueueFullPolicy = QueueFullPolicy.REJECT
    capacity: int = 1000
    in_flight: bool = False
    suppresses: bool = False
    #: Whether some lines go nowhere.
    selects: bool = False
    rate: RateLimit | None = None
    journal_bytes: int = 1 << 30
    line_bytes: int = 2000
    #: Whether sidecars relay the lines.
    is_gateway: bool = False


class Intake:
    """An intake over a real delivery and a real journal."""

    def __init__(self, world: World) -> None:
        time = FakeTime()
        self.files = RecordingFiles()
        self.deliverer: Deliverer = (
            OnDisk(self.files, time=time, settings=_settings(world))
            if world.on_disk
            else InMemory(time=time)
        )
        self.deliverer.answer = None
        given: dict[str, Any] = {
            "queue_full_policy": world.policy,
            "suspended": not world.in_flight,
        }
        repeats = RepeatNotification()
        if world.suppresses:
            repeats = RepeatNotification(
                policy=RepeatPolicy.SUPPRESS, interval_seconds=60.0, count=2
            )
        self.deliverer.apply(
            [
                destination(FIRST, queue_size=world.capacity, **given),
                destination(SECOND, queue_size=3 * world.capacity, **given),
            ],
            [
                subscription("alerts", FIRST, filter_name="not-z" if world.selects else "alerts"),
                subscription("of-x", SECOND, filter_name="of-x", repeat_notification=repeats),
                subscription("both", SECOND, filter_name="thresholds"),
            ],
        )
        queues = self.deliverer.service
        self.memory = DuplicateMemory(clock=time, window_seconds=3600, capacity=1000)
        self.publisher = Publisher(memory=self.memory, timers=time)
        self.receipt = Receipt(memory=self.memory, timers=time)
        self.receipt.id = "receipt"
        filters = {
            name: IndicationFilter(name=name, query=query) for name, query in FILTERS.items()
        }
        known = self.deliverer.configuration
        routes = Router(
            Configuration(
                revision="1",
                service=known.service,
                filters=filters,
                destinations=known.destinations,
                subscriptions=known.subscriptions,
                relayed=known.subscriptions if world.is_gateway else {},
            ),
            schema=SCHEMA,
        )
        self.context = IntakeContext(
            clock=time,
            memory=self.memory,
            routes=routes,
            queues=queues,
            groups=Groups(clock=time, timers=time, queues=queues, window_seconds=3600),
            unreached=UnreachedIndications(timers=time),
            held_back=HeldBack(timers=time),
            undeclared=UndeclaredClasses(timers=time, schema=lambda: SCHEMA),
            paces=None if world.rate is None else PublisherPaces(world.rate),
        )
        self.is_gateway = world.is_gateway
        self.decoder = LineDecoder(
            SCHEMA, maximum_line_bytes=world.line_bytes, is_relayed=world.is_gateway
        )

    def submission(self) -> Submission:
        followers = (self.publisher, self.receipt)
        if self.is_gateway:
            return RelaySubmission(context=self.context, followers=followers)
        return Submission(context=self.context, source="test", followers=followers)

    def submit(self, parts: Sequence[Sequence[bytes]]) -> Any:
        """Return the answer to a request whose lines come in these parts."""
        submission, number = self.submission(), 0
        for part in parts:
            number = self.decoder.submit(part, first=number, submission=submission)
        answer = submission_answer(submission, unread_from=None)
        return msgspec.to_builtins(answer), submission.retry_after, submission.wrong

    def state(self) -> Any:
        """Return what the deliverer knows of the lines."""
        self.deliverer.run()
        queues = {name: self.deliverer.service.queue(name) for name in (FIRST, SECOND)}
        return (
            {name: None if queue is None else _of(queue) for name, queue in queues.items()},
            self.deliverer.settlements.seen,
            _of_publisher(self.publisher),
            _of_receipt(self.receipt),
            {name: bytes(data) for name, data in self.files.image().items()},
            self.memory.entries,
            self.deliverer.service.pending,
        )


class InMemory(Deliverer):
    def open(self) -> None:
        self.service.open(MemoryJournal(clock=self.time, journal_id="run1"), Recovered())


def _settings(world: World) -> JournalSettings:
    return JournalSettings(
        durability=Durability.DISK, segment_bytes=6 << 10, maximum_bytes=world.journal_bytes
    )


def _of(queue: Any) -> Any:
    waiting = queue.waiting
    return (
        [_told(one) for one in waiting.front],
        list(waiting.back),
        [_told(one) for one in queue.in_flight],
        (queue.reserved, queue.held, queue.staged, queue.sequence.next_number, queue.depth),
        (queue.statistics.high_water, queue.statistics.suppressed, queue.throughput.accepted),
    )


def _told(entry: Any) -> Any:
    one: Indication = entry.indication
    shown = msgspec.structs.replace(one, trackers=())
    fields = {name: getattr(shown, name) for name in shown.__struct_fields__}
    return entry.number, entry.subscription.resource.name, len(one.trackers), fields


def _of_publisher(one: Publisher) -> Any:
    counts = {name: (c.pending, c.delivered, c.discarded) for name, c in one.destinations.items()}
    return one.accepted, one.unreached_indications, one.pending_originals, counts


def _of_receipt(one: Receipt) -> Any:
    lines = one.pending_lines()
    keys = [key for key in lines.lines if isinstance(key, bytes) or key > 0]
    return (
        (one.pending, one.delivered, one.unreached_lines, one.discarded),
        {key: lines.lines[key] for key in keys},
        sorted(lines.lines.values()),
        (sorted(lines.targets.values()), lines.originals, len(lines.failed), lines.places),
    )


identifiers = st.sampled_from([None, "", *"abcdefghijklmnop"])


UNUSUAL = {
    "bad": b'{"class":',
    "empty": b"",
    "blank": b"  ",
    "long": b"x" * 2001,
    "other": b'{"class": "CIM_InstCreation", "properties": {}}',
}


@st.composite
def lines(draw: st.DrawFn) -> bytes:
    """A line: mostly a usual one."""
    kind = draw(st.sampled_from(["usual"] * 12 + ["text", *UNUSUAL]))
    if kind in UNUSUAL:
        return UNUSUAL[kind]
    document: dict[str, Any] = alert(draw(identifiers))
    properties = document["properties"]
    if draw(st.integers(0, 3)) == 0:
        properties["OwningEntity"] = draw(st.sampled_from("xyz"))
    if kind == "text":
        properties["Description"] = draw(st.sampled_from(["a: b", "\\", "\ufffe", "é"]))
    if draw(st.integers(0, 5)) == 0:
        document["class"] = "CIM_ThresholdIndication"
    if draw(st.integers(0, 15)) == 0:
        properties["PerceivedSeverity"] = 70_000
    if draw(st.integers(0, 9)) == 0:
        document["source"] = draw(st.sampled_from(["test", "other"]))
    if draw(st.integers(0, 9)) == 0:
        document["expires"] = draw(st.sampled_from([PAST, FUTURE, "never"]))
    if draw(st.integers(0, 7)) == 0:
        document["group"] = draw(st.sampled_from("gh"))
        if draw(st.booleans()):
            document["sequence"] = draw(st.integers(0, 4))
            document["ordered"] = draw(st.booleans())
            document["last"] = draw(st.integers(0, 5)) == 0
    return json.dumps(document).encode()


@st.composite
def relayed_lines(draw: st.DrawFn) -> bytes:
    """A line of a sidecar: mostly a usual one."""
    kind = draw(st.sampled_from(["usual"] * 20 + ["bad", "empty"]))
    if kind in UNUSUAL:
        return UNUSUAL[kind]
    given: dict[str, Any] = {}
    if draw(st.integers(0, 9)) == 0:
        given["expires"] = draw(st.sampled_from([PAST, FUTURE, "2024-11-15T00:00:00Z"]))
    if draw(st.integers(0, 7)) == 0:
        given |= {"group": "g", "sequence": draw(st.integers(0, 4)), "ordered": draw(st.booleans())}
    line = relayed(
        draw(identifiers),
        draw(st.integers(0, 20)),
        uid=draw(st.sampled_from([*["uid-alerts"] * 12, *["uid-of-x"] * 3, "uid-unknown"])),
        # Before and after the fake clock's time.
        accepted_at=draw(st.sampled_from([1_699_999_000.0, 1_700_000_900.0])),
        source=draw(st.sampled_from(["s", "s", "t", None])),
        **given,
    )
    if draw(st.integers(0, 15)) == 0:
        line["relay"]["discard"] = {
            "destination": draw(st.sampled_from("ab")),
            "reason": "expired",
            "detail": "",
            "attempts": 3,
            "at": 1_700_000_000.0,
        }
    return json.dumps(line, separators=(",", ":")).encode()


rates = st.builds(RateLimit, per_second=st.just(1.0), burst=st.sampled_from([1, 5, 1000]))
worlds = st.builds(
    World,
    on_disk=st.booleans(),
    policy=st.sampled_from(QueueFullPolicy),
    capacity=st.sampled_from([1, 3, 8, 1000]),
    in_flight=st.booleans(),
    suppresses=st.booleans(),
    selects=st.booleans(),
    rate=st.none() | rates,
    journal_bytes=st.just(1 << 30),
    line_bytes=st.just(2000),
)


def check_together_as_alone(world: World, body: list[bytes], ends: set[int]) -> None:
    alone, together = Intake(world), Intake(world)
    bounds = [0, *sorted(end for end in ends if end < len(body)), len(body)]
    parts = [body[begin:end] for begin, end in pairwise(bounds)]
    assert together.submit(parts) == alone.submit([[line] for line in body])
    assert together.state() == alone.state()


@settings(max_examples=60, deadline=None)
@given(world=worlds, body=st.lists(lines(), max_size=40), ends=st.sets(st.integers(1, 40)))
def test_lines_together_are_accepted_as_alone(
    world: World, body: list[bytes], ends: set[int]
) -> None:
    check_together_as_alone(world, body, ends)


@settings(max_examples=60, deadline=None)
@given(
    world=worlds,
    body=st.lists(relayed_lines(), max_size=40),
    ends=st.sets(st.integers(1, 40)),
)
def test_relayed_lines_together_are_accepted_as_alone(
    world: World, body: list[bytes], ends: set[int]
) -> None:
    check_together_as_alone(world._replace(is_gateway=True), body, ends)


def test_a_nearly_full_journal_refuses_the_same_lines() -> None:
    world = World(journal_bytes=8 << 20, line_bytes=1 << 20)
    body = [json.dumps(alert(str(one), Description="x" * 400_000)).encode() for one in range(12)]
    alone, together = Intake(world), Intake(world)
    answer = together.submit([body])
    assert answer == alone.submit([[line] for line in body])
    assert together.state() == alone.state()
    assert 0 < answer[0]["accepted"] < len(body)


@pytest.mark.parametrize("on_disk", [False, True])
@settings(max_examples=20, deadline=None)
@given(body=st.lists(lines(), max_size=40))
def test_a_request_accepts_what_a_request_for_each_line_does(
    on_disk: bool, body: list[bytes]
) -> None:
    """But for the numbers of the lines, and where nothing is refused for now."""
    alone, together = Intake(World(on_disk=on_disk)), Intake(World(on_disk=on_disk))
    answer, _, wrong = together.submit([body])
    each = [alone.submit([[line]]) for line in body]
    if wrong == len(answer["refused"]):
        assert answer["accepted"] == sum(one["accepted"] for one, _, _ in each)
        assert answer["duplicate"] == sum(one["duplicate"] for one, _, _ in each)
        assert wrong == sum(wrong for _, _, wrong in each)
        assert together.files.image() == alone.files.image()


def offered_together(intake: Intake) -> list[int]:
    """Return how many were offered at once, each time from now on."""
    counts, offer_all = list[int](), intake.deliverer.service.offer_all

    def counted(indications: Sequence[Indication], targets: Sequence[Sequence[Target]]) -> bool:
        counts.append(len(indications))
        return offer_all(indications, targets)

    intake.deliverer.service.offer_all = counted
    return counts


def test_paced_lines_are_accepted_together_up_to_the_limit() -> None:
    intake = Intake(World(rate=RateLimit(per_second=1.0, burst=4)))
    counts = offered_together(intake)
    sources = ["test", "other", "test", "test", "other", "test", "test", "other"]
    body = [
        json.dumps(alert(str(one)) | {"source": source}).encode()
        for one, source in enumerate(sources)
    ]
    answer, retry_after, _ = intake.submit([body])
    assert counts == [6]
    assert (answer["accepted"], [one["line"] for one in answer["refused"]]) == (6, [6, 7])
    assert retry_after == 2.0
    intake.deliverer.advance(1.0)
    answer, _, _ = intake.submit([body[6:]])
    assert (counts, answer["accepted"]) == ([6, 2], 2)


def test_relayed_lines_are_accepted_together_up_to_the_first_unknown_one() -> None:
    intake = Intake(World(is_gateway=True))
    counts = offered_together(intake)
    uids = ["alerts"] * 3 + ["of-x", "gone", "alerts"]
    body = [
        json.dumps(relayed(str(one), one, uid=f"uid-{uid}"), separators=(",", ":")).encode()
        for one, uid in enumerate(uids)
    ]
    # Even what is wrong is refused for now behind it.
    answer, _, wrong = intake.submit([[*body, UNUSUAL["bad"]]])
    assert counts == [4]
    assert (answer["accepted"], [one["line"] for one in answer["refused"]]) == (4, [4, 5, 6])
    assert not wrong


def test_lines_that_expire_are_accepted_together_and_known_until_then() -> None:
    intake = Intake(World())
    counts = offered_together(intake)
    body = [json.dumps({**alert(str(one)), "expires": FUTURE}).encode() for one in range(5)]
    late = json.dumps({**alert("late"), "expires": PAST}).encode()
    answer, _, _ = intake.submit([[*body[:2], late, *body[2:]]])
    assert counts == [2, 3]
    assert (answer["accepted"], [one["line"] for one in answer["refused"]]) == (5, [2])
    # The window of an identity without an end is over, and FUTURE is not.
    intake.deliverer.advance(3700.0)
    answer, _, _ = intake.submit([body])
    assert answer["duplicate"] == 5
