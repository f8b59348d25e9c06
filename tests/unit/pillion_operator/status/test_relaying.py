"""What is said of gateways, and of what is relayed to them."""

from dataclasses import replace

import pytest

from pillion_operator.polling.aggregate import DestinationDelivery, deliveries, delivery_of
from pillion_operator.polling.reports import (
    Change,
    DelivererReport,
    DeliveryResult,
    QueueReport,
    change,
)
from pillion_operator.status.deliverers import DelivererCounts
from pillion_operator.status.delivery import DestinationFacts, judge_delivery
from pillion_operator.status.relaying import (
    gateway_condition,
    relay_condition,
    shared_condition,
)

NOW = 1_700_000_000.0
FACTS = DestinationFacts(suspended=False, retry_interval=30.0)
NONE = DelivererCounts(deliverers=0, ready=0, behind=0, starting=0, unreachable=0)

#: At the gateway: the listener answers.
DELIVERS = QueueReport(
    name="pager",
    depth=3,
    capacity=100,
    high_water=5,
    oldest_indication_time=NOW - 5,
    last_result=DeliveryResult.SUCCESS,
    last_attempt_time=NOW - 1,
)
#: In a sidecar: the gateway takes nothing.
RELAY_FAILS = QueueReport(
    name="pager",
    depth=40,
    capacity=100,
    high_water=41,
    oldest_indication_time=NOW - 20,
    last_result=DeliveryResult.ERROR,
    last_detail="connection refused",
    last_attempt_time=NOW,
    next_attempt_time=NOW + 2,
    relay_to="hub",
)
RELAYS = replace(
    RELAY_FAILS, depth=1, last_result=DeliveryResult.SUCCESS, last_detail="", next_attempt_time=None
)


def report(queue: QueueReport, pod: str = "p") -> DelivererReport:
    return DelivererReport(pod=pod, revision="r", queues={queue.name: queue}, at=NOW)


def test_what_waits_counts_once_wherever_it_waits() -> None:
    both = delivery_of("pager", [report(RELAY_FAILS), report(RELAYS), report(DELIVERS)])
    assert both.depth == 44
    assert (both.deliverers, both.relays) == (3, 2)
    assert both.oldest_indication_time == NOW - 20
    assert both.fullest == 0.4


def test_only_who_delivers_says_anything_of_the_listener() -> None:
    both = delivery_of("pager", [report(RELAY_FAILS), report(DELIVERS)])
    assert (both.failing, both.delivering) == (0, 1)
    assert both.last_result is DeliveryResult.SUCCESS
    assert both.next_attempt_time is None
    assert both.details == ()
    verdict = judge_delivery(both, FACTS, live_conditions=None, now=NOW)
    told = {one.type: (one.status, one.reason) for one in verdict.conditions}
    assert told["Delivering"] == ("True", "ListenerAnswers")
    assert told["ListenerUnreachable"] == ("False", "ListenerAnswers")
    assert told["RelayFailing"] == ("True", "GatewayFailing")
    assert verdict.fields["depth"] == 43
    assert verdict.fields["relays"] == 1


def test_while_nobody_is_known_to_deliver_the_listener_is_not_judged() -> None:
    relays = delivery_of("pager", [report(RELAY_FAILS)])
    verdict = judge_delivery(relays, FACTS, live_conditions=None, now=NOW)
    told = {one.type: one.status for one in verdict.conditions}
    assert (told["Delivering"], told["ListenerUnreachable"]) == ("Unknown", "Unknown")


def test_who_does_not_relay_says_nothing_of_relays() -> None:
    assert relay_condition(delivery_of("pager", [report(DELIVERS)])) is None
    assert relay_condition(DestinationDelivery()) is None
    verdict = judge_delivery(
        deliveries([report(DELIVERS)])["pager"], FACTS, live_conditions=None, now=NOW
    )
    assert "relays" not in verdict.fields


@pytest.mark.parametrize(
    ("queues", "status", "words"),
    [
        ([RELAY_FAILS], "True", "every sidecar to relay failed: to the gateway hub: connection"),
        ([RELAY_FAILS, RELAYS], "True", "some sidecars"),
        ([RELAYS], "False", "has accepted"),
        ([replace(RELAYS, last_result=None)], "Unknown", "No sidecar"),
        ([replace(RELAY_FAILS, last_detail="")], "True", "hub: cause unknown (1 sidecar)"),
        (
            [replace(RELAY_FAILS, last_detail=f"HTTP {500 + n}") for n in range(9)],
            "True",
            "and other causes",
        ),
    ],
)
def test_whether_sidecars_can_relay(queues: list[QueueReport], status: str, words: str) -> None:
    found = relay_condition(delivery_of("pager", [report(queue) for queue in queues]))
    assert found is not None
    assert found.status == status
    assert words in found.message


def test_a_queue_that_begins_to_relay_changes_state() -> None:
    direct = replace(RELAYS, relay_to=None)
    assert change(report(direct), report(RELAYS)) is Change.STATE


def test_a_shared_url_names_who_delivers_there() -> None:
    assert shared_condition([]).status == "False"
    many = shared_condition([f"s{n}" for n in range(9)])
    assert many.status == "True"
    assert "s0, s1, s2, s3, s4 and 4 more lead" in many.message


@pytest.mark.parametrize(
    ("wrong", "counts", "status", "reason"),
    [
        ([], {"hub": replace(NONE, ready=1)}, "True", "GatewayServes"),
        ([], {"hub": replace(NONE, behind=1)}, "True", "GatewayServes"),
        ([], {"hub": NONE}, "False", "GatewayNotRunning"),
        ([], {"hub": replace(NONE, starting=1)}, "False", "GatewayNotRunning"),
        ([], {"hub": replace(NONE, unreachable=1)}, "Unknown", "Unreachable"),
        ([], {"a": replace(NONE, ready=1), "b": NONE}, "False", "GatewayNotRunning"),
        ([("GatewayNotFound", "Make it.")], {"hub": NONE}, "False", "GatewayNotFound"),
    ],
)
def test_whether_a_gateway_serves(
    wrong: list[tuple[str, str]], counts: dict[str, DelivererCounts], status: str, reason: str
) -> None:
    found = gateway_condition(wrong, counts)
    assert (found.status, found.reason) == (status, reason)
