"""The relay's handler, its lines, and what it makes of answers."""

import asyncio
import json
import os
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.delivery.handler import Delivery, DeliveryOutcome, DeliveryResult
from pillion_sidecar.filewatch import FollowedFile, Unusable
from pillion_sidecar.handlers.authorization import Authorizer, StaticAuthorizer, TokenFileAuthorizer
from pillion_sidecar.handlers.batches import MOST_BYTES
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.gateway import relay_target
from pillion_sidecar.handlers.relay import (
    CONNECTION_SECONDS,
    MOST_LINES,
    RelayHandler,
    line_outcomes,
    render_line,
)
from pillion_sidecar.handlers.transport.exchange import Failure
from pillion_sidecar.handlers.transport.target import parse_target
from pillion_sidecar.indication import GroupMember
from pillion_sidecar.testing import FakeTime
from pillion_sidecar.trace_context import MOST_STATE, TraceContext
from pillion_sidecar.wire.relay import MOST_TRACE_BYTES
from support.handlers import BODY, FakeSender, delivery, indication
from support.relaying import RELAY_URL

TAKEN = {"accepted": 1, "duplicate": 0, "refused": [], "durable": True}


def relayed(number: int, body: bytes = BODY, **given: Any) -> Delivery:
    return delivery(
        indication(body, **given),
        sequence_context="sidecar#1",
        sequence_number=number,
        subscription="uid-1",
    )


class Told:
    """What a handler was given, and told of it."""

    def __init__(self, handler: RelayHandler) -> None:
        self._handler = handler
        self.outcomes: list[tuple[int, DeliveryOutcome]] = []

    def deliver(self, *numbers: int, body: bytes = BODY) -> None:
        for number in numbers:
            self._handler.deliver(
                relayed(number, body),
                lambda outcome, number=number: self.outcomes.append((number, outcome)),
            )

    @property
    def results(self) -> list[tuple[int, DeliveryResult]]:
        return [(number, outcome.result) for number, outcome in self.outcomes]


def handler(
    sender: FakeSender, fake_time: FakeTime, *, token: Authorizer | None = None
) -> RelayHandler:
    return RelayHandler(
        sender=sender,
        target=parse_target(RELAY_URL),
        authorizer=token or StaticAuthorizer(),
        clock=fake_time,
        in_group=True,
    )


@pytest.fixture
def sender() -> FakeSender:
    return FakeSender()


@pytest.fixture
def told(sender: FakeSender, fake_time: FakeTime) -> Told:
    return Told(handler(sender, fake_time))


def lines(body: bytes) -> list[Any]:
    return [json.loads(line) for line in body.splitlines()]


def numbers(body: bytes) -> list[int]:
    return [line["relay"]["number"] for line in lines(body)]


def answer(sender: FakeSender, document: object, status: int = 200, *headers: Any) -> None:
    """Answer the request that was sent last."""
    sender.sent[-1][1].answered(status, headers, json.dumps(document).encode())


# ---------------------------------------------------------------------- batches


def test_a_header_names_the_lines_that_repeat_what_was_discarded(
    fake_time: FakeTime, sender: FakeSender
) -> None:
    relay = handler(sender, fake_time)
    for number, redrives in enumerate((7, 0, 9, 0, 3)):
        relay.deliver(relayed(number, redrives=redrives), lambda _: None)
        assert all(
            line.keys() == {"class", "properties", "relay"} for line in lines(sender.bodies[-1])
        )
    answer(sender, TAKEN)
    relay.deliver(relayed(5), lambda _: None)
    answer(sender, {"accepted": 4, "duplicate": 0, "refused": [], "durable": True})
    heads = [request.partition(b"\r\n\r\n")[0] for request, _ in sender.sent]
    told = [[line for line in head.split(b"\r\n") if b"Repeated" in line] for head in heads]
    assert told == [[b"Pillion-Repeated: 0"], [b"Pillion-Repeated: 1,3"], []]


def trace(number: int, state: str = "") -> TraceContext:
    return TraceContext(f"00-{number:032x}-00f067aa0ba902b7-01", state)


def test_headers_name_the_lines_of_each_trace(fake_time: FakeTime, sender: FakeSender) -> None:
    relay = handler(sender, fake_time)
    for number, given in enumerate((None, trace(1, "a=1"), trace(2), None, trace(1, "a=1"))):
        relay.deliver(relayed(number, trace=given), lambda _: None)
    answer(sender, TAKEN)
    head = sender.sent[-1][0].partition(b"\r\n\r\n")[0].decode().split("\r\n")
    assert [line for line in head if "Trace" in line] == [
        f"Pillion-Trace: {trace(1).parent} 0,3 a=1",
        f"Pillion-Trace: {trace(2).parent} 1",
    ]


def test_the_headers_of_traces_are_bounded(fake_time: FakeTime, sender: FakeSender) -> None:
    relay = handler(sender, fake_time)
    for number in range(MOST_LINES + 1):
        given = trace(number + 1, "a" * MOST_STATE)
        relay.deliver(relayed(number, redrives=1, trace=given), lambda _: None)
    answer(sender, TAKEN)
    head = sender.sent[-1][0].partition(b"\r\n\r\n")[0]
    assert MOST_TRACE_BYTES - 1000 < len(head) < MOST_TRACE_BYTES + 2000
    assert b"Pillion-Repeated: 0,1,2" in head


def test_the_first_goes_at_once_and_what_comes_meanwhile_with_the_next_request(
    told: Told, sender: FakeSender
) -> None:
    told.deliver(0, 1, 2)
    assert [numbers(body) for body in sender.bodies] == [[0]]
    answer(sender, TAKEN)
    assert [numbers(body) for body in sender.bodies] == [[0], [1, 2]]
    assert told.results == [(0, DeliveryResult.SUCCESS)]


def test_a_connection_is_another_one_after_a_while(
    told: Told, sender: FakeSender, fake_time: FakeTime
) -> None:
    fake_time.advance(CONNECTION_SECONDS - 1)
    told.deliver(0)
    answer(sender, TAKEN)
    assert sender.renewals == 0
    fake_time.advance(1)
    for number in (1, 2):
        told.deliver(number)
        answer(sender, TAKEN)
    assert sender.renewals == 1
    fake_time.advance(CONNECTION_SECONDS)
    told.deliver(3)
    assert sender.renewals == 2


def test_a_request_has_so_many_lines_at_most(told: Told, sender: FakeSender) -> None:
    told.deliver(*range(MOST_LINES + 10))
    answer(sender, TAKEN)
    assert numbers(sender.bodies[1]) == list(range(1, MOST_LINES + 1))


def test_a_request_has_so_many_bytes_at_most_and_a_longer_line_goes_alone(
    told: Told, sender: FakeSender
) -> None:
    half = b'{"class":"CIM_AlertIndication","properties":{"Message":"%b"}}' % (
        b"x" * (MOST_BYTES // 2)
    )
    whole = b'{"class":"CIM_AlertIndication","properties":{"Message":"%b"}}' % (b"x" * MOST_BYTES)
    told.deliver(0)
    told.deliver(1, 2, body=half)
    told.deliver(3, body=whole)
    told.deliver(4)
    for _ in range(4):
        answer(sender, TAKEN)
    assert [numbers(body) for body in sender.bodies] == [[0], [1], [2], [3], [4]]


def test_what_is_handed_over_for_each_success_goes_with_one_request(
    sender: FakeSender, fake_time: FakeTime
) -> None:
    relay = handler(sender, fake_time)

    def and_another(outcome: DeliveryOutcome, number: int) -> None:
        relay.deliver(relayed(number), lambda _: None)

    relay.deliver(relayed(0), lambda _: None)
    for number in (1, 2, 3):
        relay.deliver(relayed(number), lambda o, n=number: and_another(o, n + 3))
    answer(sender, TAKEN)
    answer(sender, {**TAKEN, "accepted": 3})
    assert numbers(sender.bodies[2]) == [4, 5, 6]


# ---------------------------------------------------------------------- answers


def test_all_that_is_in_a_failed_request_and_behind_it_comes_back_in_order(
    told: Told, sender: FakeSender
) -> None:
    told.deliver(0)
    answer(sender, TAKEN)
    told.deliver(1, 2, 3)
    sender.sent[-1][1].failed(Failure(DeliveryResult.POST_DELIVERY_ERROR, "no answer"))
    assert told.results[1:] == [
        (1, DeliveryResult.POST_DELIVERY_ERROR),
        (2, DeliveryResult.ERROR),
        (3, DeliveryResult.ERROR),
    ]
    assert not any(outcome.spends_attempt for _, outcome in told.outcomes[1:])
    assert len(sender.sent) == 2


def test_a_prefix_is_taken_and_the_rest_comes_back(told: Told, sender: FakeSender) -> None:
    told.deliver(0, 1, 2, 3)
    answer(sender, TAKEN)
    told.deliver(4)
    refused = [{"line": n, "status": 429, "reason": "full"} for n in (1, 2)]
    document = {"accepted": 1, "duplicate": 0, "refused": refused, "durable": True}
    answer(sender, document, 207, (b"Retry-After", b"7"))
    assert [result for _, result in told.results] == [
        DeliveryResult.SUCCESS,
        DeliveryResult.SUCCESS,
        *[DeliveryResult.ERROR] * 3,
    ]
    assert {outcome.retry_after for _, outcome in told.outcomes[2:]} == {7.0}
    assert "full" in told.outcomes[-1][1].detail


def test_a_line_that_is_refused_for_good_is_fatal_and_no_other(
    told: Told, sender: FakeSender
) -> None:
    told.deliver(0, 1, 2, 3)
    answer(sender, TAKEN)
    refused = [{"line": 1, "status": 400, "reason": "not an instance", "field": "class"}]
    answer(sender, {"accepted": 2, "duplicate": 0, "refused": refused, "durable": True}, 207)
    assert told.results == [
        (0, DeliveryResult.SUCCESS),
        (1, DeliveryResult.SUCCESS),
        (2, DeliveryResult.FATAL_ERROR),
        (3, DeliveryResult.SUCCESS),
    ]
    assert "not an instance" in told.outcomes[2][1].detail


def test_a_request_whose_lines_are_all_refused_for_good_tells_of_each(
    told: Told, sender: FakeSender
) -> None:
    told.deliver(0)
    refused = [{"line": 0, "status": 400, "reason": "not an instance"}]
    answer(sender, {"accepted": 0, "duplicate": 0, "refused": refused}, 400)
    assert told.results == [(0, DeliveryResult.FATAL_ERROR)]


@pytest.mark.parametrize(
    ("status", "document"),
    [
        (400, {"reason": "ack: this deliverer has no disk"}),
        (401, {"reason": "expired"}),
        (403, {"reason": "not among publishers"}),
        (404, {}),
        (413, {"reason": "too long"}),
        (503, {"reason": "no keys yet"}),
        (200, {}),
        (200, {"accepted": 2, "duplicate": 0, "refused": [], "durable": True}),
        (200, {"accepted": 3, "duplicate": 0, "refused": []}),
        (200, {"accepted": 3, "duplicate": 0, "refused": [], "durable": False}),
        (202, {"accepted": 3, "duplicate": 0, "refused": [], "durable": False}),
        (207, {"accepted": 2, "refused": [{"line": 9, "status": 400}]}),
        (207, {"accepted": 1, "refused": [{"line": 0, "status": 400}, {"line": 0, "status": 400}]}),
        (207, {"accepted": 0, "refused": [], "unreadFrom": 4}),
        (200, ["no", "document"]),
        (302, {}),
    ],
)
def test_what_does_not_say_that_every_line_was_taken_brings_all_back(
    status: int, document: Any, fake_time: FakeTime
) -> None:
    body = json.dumps(document).encode()
    outcomes = line_outcomes(3, status=status, headers=(), body=body, clock=fake_time)
    assert [outcome.result for outcome in outcomes] == [DeliveryResult.ERROR] * 3
    assert not any(outcome.spends_attempt for outcome in outcomes)
    if isinstance(document, dict) and "reason" in document:
        assert document["reason"] in outcomes[0].detail


def test_what_was_not_read_comes_back(fake_time: FakeTime) -> None:
    document = {"accepted": 1, "duplicate": 1, "refused": [], "unreadFrom": 2, "durable": True}
    outcomes = line_outcomes(
        4, status=200, headers=(), body=json.dumps(document).encode(), clock=fake_time
    )
    assert [outcome.result for outcome in outcomes] == [
        *[DeliveryResult.SUCCESS] * 2,
        *[DeliveryResult.ERROR] * 2,
    ]


def test_nothing_is_told_after_close(told: Told, sender: FakeSender, fake_time: FakeTime) -> None:
    relay = handler(sender, fake_time)
    heard: list[DeliveryOutcome] = []

    def close_it(outcome: DeliveryOutcome) -> None:
        heard.append(outcome)
        relay.close()

    relay.deliver(relayed(0), close_it)
    relay.deliver(relayed(1), heard.append)
    failure = Failure(DeliveryResult.ERROR, "connection refused")
    sender.sent[-1][1].failed(failure)
    assert len(heard) == 1
    assert sender.closed


# ---------------------------------------------------------------------- lines


def test_a_line_is_the_body_and_what_a_gateway_must_know(fake_time: FakeTime) -> None:
    sent = relayed(
        7,
        source='spark "7"',
        group="run",
        member=GroupMember(3, True, True, 2_000_000_000.25, 60.0),
        expires=1_900_000_000.5,
        languages=("en", "de-CH"),
        accepted_at=5.0,
    )
    line = render_line(sent, epoch=1000.0, in_group=True)
    assert line.endswith(b"}\n")
    assert line.count(b"\n") == 1
    assert json.loads(line) == {
        "class": "CIM_AlertIndication",
        "properties": {"AlertType": 5},
        "source": 'spark "7"',
        "group": "run",
        "sequence": 3,
        "last": True,
        "ordered": True,
        "groupExpires": "2033-05-18T03:33:20.250000Z",
        "groupMaxIdleSeconds": 60.0,
        "expires": "2030-03-17T17:46:40.500000Z",
        "languages": ["en", "de-CH"],
        "relay": {
            "subscription": "uid-1",
            "acceptedAt": 1005.0,
            "context": "sidecar#1",
            "number": 7,
        },
    }


def test_a_time_after_the_last_that_a_line_can_say_goes_as_that() -> None:
    # 9999-12-31T23:59:59.5-01:00, and half a second later.
    member = GroupMember(3, expires=253_402_304_400.0)
    sent = relayed(7, group="run", member=member, expires=253_402_304_399.5)
    line = json.loads(render_line(sent, epoch=0.0, in_group=True))
    assert line["expires"] == "9999-12-31T23:59:58Z"
    assert line["groupExpires"] == "9999-12-31T23:59:59Z"


def test_what_was_ordered_here_goes_without_its_place_in_the_group() -> None:
    sent = relayed(7, group="run", member=GroupMember(3, ordered=True))
    line = json.loads(render_line(sent, epoch=0.0, in_group=False))
    assert line["group"] == "run"
    assert not {"sequence", "ordered"} & line.keys()


def test_a_text_that_no_json_can_carry_is_fatal(sender: FakeSender, fake_time: FakeTime) -> None:
    async def deliver() -> DeliveryOutcome:
        told: asyncio.Future[DeliveryOutcome] = asyncio.get_running_loop().create_future()
        handler(sender, fake_time).deliver(relayed(0, source="\ud800"), told.set_result)
        return await told

    assert asyncio.run(deliver()).result is DeliveryResult.FATAL_ERROR
    assert not sender.sent


# ---------------------------------------------------------------------- the token


class Turning:
    """A token in a file, and a handler that shows it."""

    def __init__(self, path: Path, sender: FakeSender, fake_time: FakeTime) -> None:
        self.path = path
        self.sender = sender
        token = TokenFileAuthorizer(
            FollowedFile(path), clock=fake_time, what="the token for the gateway"
        )
        self.handler = handler(sender, fake_time, token=token)
        self.told = Told(self.handler)

    def write(self, text: str, *, looks_the_same: bool = False) -> None:
        before = self.path.stat() if looks_the_same else None
        self.path.write_text(text)
        if before is not None:
            os.utime(self.path, ns=(before.st_mtime_ns, before.st_mtime_ns))

    async def shown(self, number: int) -> str:
        """Relay one; the line that shows the token."""
        sent = len(self.sender.sent)
        self.told.deliver(number)
        while len(self.sender.sent) == sent:  # noqa: ASYNC110 - a thread looks at the file
            await asyncio.sleep(0)
        return next(line for line in self.sender.heads[-1] if line.startswith("Authorization"))


@pytest.fixture
def turning(tmp_path: Path, sender: FakeSender, fake_time: FakeTime) -> Turning:
    return Turning(tmp_path / "token", sender, fake_time)


def test_the_token_is_read_again_when_it_changes_and_after_a_401(
    turning: Turning, sender: FakeSender, fake_time: FakeTime
) -> None:
    async def rotate() -> None:
        assert await turning.shown(0) == "Authorization: Bearer first"
        turning.write("other\n", looks_the_same=True)
        answer(sender, {"reason": "expired"}, 401)
        assert await turning.shown(0) == "Authorization: Bearer other"
        answer(sender, TAKEN)
        turning.write("another\n")
        assert await turning.shown(1) == "Authorization: Bearer other"
        answer(sender, TAKEN)
        fake_time.advance(1.0)
        assert await turning.shown(2) == "Authorization: Bearer another"

    turning.write("first\n")
    asyncio.run(rotate())
    assert "another" not in f"{turning.handler!r}{vars(turning.handler)!r}"


@pytest.mark.parametrize("content", [None, "", "two words"])
def test_without_its_token_nothing_is_sent_and_all_comes_back_later(
    turning: Turning, sender: FakeSender, content: str | None
) -> None:
    async def deliver() -> None:
        turning.told.deliver(0, 1)
        assert not turning.told.outcomes
        while not turning.told.outcomes:  # noqa: ASYNC110 - a thread looks at the file
            await asyncio.sleep(0)

    if content is not None:
        turning.write(content)
    asyncio.run(deliver())
    outcomes = turning.told.outcomes
    assert [number for number, _ in outcomes] == [0, 1]
    assert all("the token for the gateway" in outcome.detail for _, outcome in outcomes)
    assert not any("words" in outcome.detail for _, outcome in outcomes)
    assert not any(outcome.spends_attempt for _, outcome in outcomes)
    assert not sender.sent


def test_nothing_is_sent_for_a_handler_that_was_closed_meanwhile(
    turning: Turning, sender: FakeSender
) -> None:
    async def deliver() -> None:
        turning.told.deliver(0)
        turning.handler.close()
        for _ in range(100):
            await asyncio.sleep(0)

    turning.write("first")
    asyncio.run(deliver())
    assert not sender.sent
    assert not turning.told.outcomes


def test_a_followed_file_that_is_too_long_is_not_taken(tmp_path: Path) -> None:
    path = tmp_path / "ca.crt"
    path.write_bytes(b"x" * (1024 * 1024 + 1))
    with pytest.raises(Unusable, match="longer"):
        FollowedFile(path).read()


# ---------------------------------------------------------------------- the address


def test_the_url_has_the_name_of_the_service_in_it() -> None:
    target = relay_target("https://pillion-{service}.monitoring.svc:8288", "shared")
    assert str(target) == "https://pillion-shared.monitoring.svc:8288/v1/relay?ack=durable"


@pytest.mark.parametrize("name", ["", "a/b", "a@b", "A", "-a"])
def test_what_is_no_name_of_a_service_becomes_no_host(name: str) -> None:
    with pytest.raises(InvalidDestinationError, match="not the name"):
        relay_target("https://{service}.example", name)
