"""Whatever the requests are that a stream of relayed lines comes in, and whatever of their answers
is lost: each line is taken once, in order."""

import json
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from pillion_cim.schema import load_schema
from pillion_sidecar.indication import Indication, Refusal, Target
from pillion_sidecar.intake.bodies import LineDecoder
from pillion_sidecar.intake.context import IntakeContext
from pillion_sidecar.intake.decoding import LineError
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.relay import RelayFastPath, RelaySubmission
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.testing import FakeTime
from support.intake import HeldQueues, ScriptedRoutes, alert, target
from support.relay_lines import UID, compact, relayed, statuses

DECODER = LineDecoder(load_schema(), maximum_line_bytes=1 << 20, is_relayed=True)
FAST = RelayFastPath(load_schema())
#: What is relayed of the lines of a stream, besides identified ones.
BROKEN = b"{"


@dataclass(frozen=True)
class Request:
    """What one sidecar sends: so many of its lines that it has no answer for."""

    sidecar: int
    lines: int
    #: After how many lines the gateway is full; None: it is not.
    room: int | None
    is_answered: bool


_REQUESTS = st.lists(
    st.builds(
        Request,
        st.integers(0, 1),
        st.integers(1, 6),
        st.none() | st.integers(0, 6),
        st.booleans(),
    ),
    max_size=30,
)
#: What a sidecar has: numbers are identifiers, which two sidecars may share; None is wrong.
_STREAM = st.lists(st.none() | st.integers(0, 15), max_size=12, unique_by=lambda one: one or -1)


class Rooming(HeldQueues):
    """Queues with room for so many more."""

    room: int | None = None

    def offer(
        self, indication: Indication, targets: Sequence[Target], *, completes: bool = False
    ) -> Refusal | None:
        if self.room == 0:
            return Refusal(1.0, "full")
        if self.room is not None:
            self.room -= 1
        return super().offer(indication, targets)


class Gateway:
    def __init__(self) -> None:
        time = FakeTime()
        routes = ScriptedRoutes()
        routes.by_uid = {UID: target()}
        self.queues = Rooming()
        self.context = IntakeContext(
            clock=time,
            memory=DuplicateMemory(clock=time, window_seconds=3600, capacity=1000),
            routes=routes,
            queues=self.queues,
            groups=Groups(clock=time, timers=time, queues=self.queues, window_seconds=3600),
            unreached=UnreachedIndications(timers=time),
            held_back=HeldBack(timers=time),
            undeclared=UndeclaredClasses(timers=time, schema=load_schema),
        )

    def relay(self, lines: Sequence[bytes], *, namespace: str | None = None) -> list[int]:
        """Take one request; return the status of each of its lines."""
        submission = RelaySubmission(context=self.context, namespace=namespace)
        assert DECODER.submit(lines, first=0, submission=submission) == len(lines)
        refused = [{"line": one.line, "status": one.status} for one in submission.refused]
        assert submission.accepted + submission.duplicate + len(refused) == len(lines)
        return statuses({"refused": refused}, len(lines))


def line(identifier: int | None, number: int, sidecar: int) -> bytes:
    if identifier is None:
        return BROKEN
    return compact(relayed(str(identifier), number, context=str(sidecar))).strip()


@given(streams=st.tuples(_STREAM, _STREAM), requests=_REQUESTS)
def test_each_line_is_taken_once_and_in_order(
    streams: tuple[list[int | None], list[int | None]], requests: list[Request]
) -> None:
    gateway = Gateway()
    left = [
        [line(identifier, number, sidecar) for number, identifier in enumerate(stream)]
        for sidecar, stream in enumerate(streams)
    ]
    for request in requests:
        send(gateway, left, request)
    for sidecar in (0, 1):
        send(gateway, left, Request(sidecar, 12, None, True))
    assert left == [[], []]
    taken = [int(identifier or "") for identifier in gateway.queues.identifiers]
    assert sorted(taken) == sorted({one for stream in streams for one in stream if one is not None})
    for mine, others in (streams, streams[::-1]):
        # What both have is where the first of them had it.
        alone = [one for one in mine if one is not None and one not in others]
        assert [one for one in taken if one in alone] == alone


def send(gateway: Gateway, left: list[list[bytes]], request: Request) -> None:
    lines = left[request.sidecar][: request.lines]
    gateway.queues.room = request.room
    found = gateway.relay(lines)
    stop = found.index(429) if 429 in found else len(found)
    # All after one that is refused for now are; what is wrong is told before it alone.
    assert set(found[stop:]) <= {429}
    assert [one == 400 for one in found[:stop]] == [one == BROKEN for one in lines[:stop]]
    if request.is_answered:
        del left[request.sidecar][:stop]


def test_what_sidecars_of_two_namespaces_relay_is_each_ones_own() -> None:
    gateway = Gateway()
    lines = [
        line(1, 0, 0),
        compact(relayed(None, 1)).strip(),
        compact(relayed("2", 2, group="g", sequence=0)).strip(),
    ]
    for namespace in ("plant", "lab", "plant"):
        assert gateway.relay(lines, namespace=namespace) == [200, 200, 200]
    assert gateway.queues.identifiers == ["1", None, "2"] * 2
    assert [one.group for one in gateway.queues.taken if one.group] == [
        f"plant/{UID}/g",
        f"lab/{UID}/g",
    ]
    # Listeners are told the source as it was given.
    assert {one.source for one in gateway.queues.taken} == {"s"}


_PLAIN = st.text(alphabet="a},:{[ ", min_size=1, max_size=8)
_TEXT = _PLAIN | _PLAIN | _PLAIN | st.text(alphabet='a},":\\ü\t', min_size=1, max_size=8)
_ENVELOPE: dict[str, Any] = {
    "source": _TEXT,
    "group": _TEXT,
    "sourceNamespace": _TEXT,
    "expires": st.sampled_from(["2001-01-01T00:00:00Z"] * 5 + ["soon"]),
    "languages": st.lists(st.sampled_from(["de", "en-GB"] * 5 + ["?"]), max_size=3),
}
_MEMBERSHIP: dict[str, Any] = {
    "last": st.booleans(),
    "ordered": st.booleans(),
    "groupExpires": st.just("2002-01-01T00:00:00Z"),
    "groupMaxIdleSeconds": st.integers(0, 5) | st.floats(0.5, 5),
}
_BESIDE = st.fixed_dictionaries({}, optional=_ENVELOPE) | st.fixed_dictionaries(
    {"group": _PLAIN, "sequence": st.integers(0, 3)},
    optional={name: one for name, one in _ENVELOPE.items() if name != "group"} | _MEMBERSHIP,
)


@given(
    beside=_BESIDE,
    message=_TEXT,
    context=_TEXT,
    escaped=st.booleans(),
    again=st.sampled_from(["", "", "", ',"source":"s"', ',"ordered":true', ',"languages":["de"]']),
)
def test_the_shorter_way_finds_what_the_complete_one_does(
    beside: dict[str, Any], message: str, context: str, escaped: bool, again: str
) -> None:
    given = alert("x", Message=message) | beside
    line = relayed(given, context=context, source=None)
    text = json.dumps(line, separators=(",", ":"), ensure_ascii=escaped)
    text = text.replace(',"relay":', again + ',"relay":')
    expected = found = None
    with suppress(LineError):
        expected = DECODER.decode_complete(text.encode())
    try:
        found = FAST.decode(text.encode())
    except LineError:
        assert expected is None
    if found is not None:
        assert expected is not None
        assert json.loads(found.body) == json.loads(expected.body)
        assert found.instance() == expected.instance()
        for name in found.__struct_fields__:
            if name not in ("body", "instance"):
                assert getattr(found, name) == getattr(expected, name)
