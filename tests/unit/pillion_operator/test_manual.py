"""The manual's page of the operator tells all its conditions, Events and figures, and no others."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from pillion_operator.cluster import applier
from pillion_operator.cluster.repairs import FIRST_WAIT, MOST_WAIT
from pillion_operator.controllers.destination import LONGEST_DRAIN, SHORTEST_DRAIN
from pillion_operator.controllers.filter_and_subscription import LONGEST, QUIET
from pillion_operator.controllers.status_writer import SLOW_INTERVAL, transitions
from pillion_operator.controllers.triggers import SETTLE
from pillion_operator.controllers.worker import FIRST_BACKOFF, MOST_BACKOFF
from pillion_operator.leadership import LeaseTimes
from pillion_operator.names import CONFIGURATION_PARTS, DRAIN_FINALIZER
from pillion_operator.polling.schedule import INTERVAL, RATE, fair_share, poll_interval
from pillion_operator.settings import DelivererDefaults, OperatorSettings
from pillion_operator.status.conditions import OUR_TYPES
from pillion_operator.status.delivery import FULL, FULL_NO_MORE, LEAST_AGE
from pillion_operator.status.subscription import State
from pillion_operator.store import MOST_SECRET
from pillion_operator.telemetry.server import STALLED_AFTER
from pillion_operator.watching import SERVER_TIMEOUT
from support.house import ROOT
from support.manual import codes, table, text_of

PAGE = "operator.md"
#: The page of conditions and Events, with every reason.
STATUS = "conditions.md"
CONDITIONS = "reference/conditions.md"
ROOMS = [
    ROOT / "operator" / "pillion_operator" / room
    for room in ("evaluation", "controllers", "status")
]
#: Reasons that come from the deliverer's own judgement of a resource.
JUDGED = {
    *("Invalid", "Required", "UnknownField", "AddressNotPermitted"),
    *("CredentialsNotPermitted", "CredentialsUnusable", "InternalError"),
}
#: How objects are refused: the name of the exception is the reason.
REFUSED = {kind.__name__ for kind in applier.Refused.__subclasses__()}
#: What a reason that is put together begins with.
WORDS = ("Filter", "Destination")
#: The state of a subscription that delivers is in no condition.
NO_CONDITION = {"Enabled"}
TIMES = LeaseTimes()
SETTINGS = OperatorSettings(deliverer=DelivererDefaults(image="image"))

_REASON = re.compile(r"[A-Z][a-z]+[A-Za-z]*")
#: Of each call that makes a condition or what becomes one: where its reason stands.
_PLACES = {"Condition": 2, "Verdict": 1, "SubscriptionVerdict": 1, "MOFRefused": 0, "Waits": 0}


def reasons(source: str) -> Iterator[str]:
    """The reasons that a module names, whole or as the end of one that is put together."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            place = _PLACES.get(node.func.id, len(node.args))
            named = node.args[place : place + 1]
            yield from (text for reason in named for text in texts(reason))
        elif isinstance(node, ast.Assign) and all(map(named_in_capitals, node.targets)):
            yield from texts(node.value)


def named_in_capitals(target: ast.expr) -> bool:
    return isinstance(target, ast.Name) and target.id.isupper()


def texts(node: ast.expr) -> Iterator[str]:
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        if _REASON.fullmatch(node.value):
            yield node.value
    elif isinstance(node, ast.IfExp):
        yield from (*texts(node.body), *texts(node.orelse))
    elif isinstance(node, ast.JoinedStr):
        (end,) = (part.value for part in node.values if isinstance(part, ast.Constant))
        yield from (f"{word}{end}" for word in WORDS)


def in_the_source() -> set[str]:
    modules = [path for room in ROOMS for path in room.glob("*.py")]
    found = {reason for path in modules for reason in reasons(path.read_text(encoding="utf-8"))}
    return (found | JUDGED | REFUSED) - NO_CONDITION - constants_of_kinds()


def constants_of_kinds() -> set[str]:
    """Kinds of objects and names of DSP1054 that are constants in capitals too."""
    return {
        *("IndicationService", "ListenerDestination", "IndicationFilter"),
        *("IndicationSubscription", "IndicationReplay", "Secret", "ConfigMap"),
        *(state.value for state in State if state.value not in ("Disabled", "Expired")),
    }


def conditions() -> list[list[str]]:
    return table(STATUS, "condition")


def test_every_reason_in_the_source_is_on_the_page_and_no_other() -> None:
    told = {reason for row in conditions() for reason in codes(row[2])}
    assert told == in_the_source()


def test_every_condition_is_on_the_page_with_its_statuses() -> None:
    told = {kind for row in conditions() for kind in row[0].split(", ")}
    assert told == OUR_TYPES
    assert {row[1] for row in conditions()} == {"True", "False", "Unknown"}


def test_every_event_is_on_the_page_and_no_other() -> None:
    told = {reason for row in table(STATUS, "reason") for reason in codes(row[0])}
    of_ready = of_transitions("Ready")
    assert told == {*of_ready, *of_subscriptions(), *elsewhere()}


@pytest.mark.parametrize("kind", sorted(OUR_TYPES - {"Ready"}))
def test_the_events_of_a_condition_are_in_the_reference(kind: str) -> None:
    (row,) = (row for row in table(CONDITIONS, "Condition") if codes(row[0]) == [kind])
    assert set(codes(row[3])) == of_transitions(kind)


def of_transitions(kind: str) -> set[str]:
    """The Events of a condition that changes, in either direction."""
    told = set()
    for before, after in (("True", "False"), ("False", "True")):
        statuses = [
            {"conditions": [{"type": kind, "status": one, "reason": "R", "message": "M"}]}
            for one in (before, after)
        ]
        told |= {transition.reason for transition in transitions(*statuses)}
    return told


def of_subscriptions() -> set[str]:
    states = [{"subscriptionState": state.value} for state in State]
    return {
        transition.reason
        for before in states
        for after in states
        for transition in transitions(before, after)
    }


def elsewhere() -> set[str]:
    """The reasons that are written out where an Event is published."""
    found: set[str] = set()
    for path in Path(ROOT, "operator").rglob("*.py"):
        text = path.read_text(encoding="utf-8")
        if "publish(" in text:
            found |= set(re.findall(r'^ *(?:reason=|REASON = )"(\w+)"', text, re.MULTILINE))
    return found


def test_every_way_to_end_is_on_the_page() -> None:
    path = ROOT / "operator" / "pillion_operator" / "status" / "subscription.py"
    ends = set(reasons(path.read_text(encoding="utf-8")))
    told = {code for row in table(PAGE, "reason of Ready") for code in codes(row[0])}
    assert told == ends - NO_CONDITION - constants_of_kinds()


@pytest.mark.parametrize(
    "sentence",
    [
        f"`pillion-SERVICE-0` to `pillion-SERVICE-{CONFIGURATION_PARTS - 1}`",
        f"does not fit into {CONFIGURATION_PARTS} Secrets",
        f"larger than {MOST_SECRET * 3 // 4 // 1024} KiB",
        f"within {SETTLE:g} seconds are one revision",
        f"runs every {SETTINGS.resync_interval:g} seconds",
        f"repeated after {FIRST_BACKOFF:g} seconds",
        f"up to {MOST_BACKOFF:g} seconds. It delays",
        f"about every {INTERVAL:g} seconds",
        f"after {QUIET:g} second without a change in the namespace, and after {LONGEST:g} seconds",
        f"At most {RATE:g} deliverers are polled in a second",
        f"Beyond {INTERVAL * RATE / 2:g} deliverers",
        f"remains of {RATE / 2:g} polls a second",
        f"polled every {poll_interval(10_000, share=fair_share([10_000])):g} seconds",
        f"at most every {SLOW_INTERVAL:g} seconds",
        f"filled by {FULL * 100:g} %, and has not been below {FULL_NO_MORE * 100:g} %",
        f"waited for {LEAST_AGE:g} seconds",
        f"then after {FIRST_WAIT:g} seconds",
        f"as long each time, up to {MOST_WAIT:g} seconds, so that two",
        f"finalizer `{DRAIN_FINALIZER}`",
        f"at least {SHORTEST_DRAIN:g} seconds and at most a day",
        f"within {TIMES.lease:g} to {TIMES.lease + TIMES.retry * (1 + TIMES.jitter):g} seconds",
        f"cannot renew the Lease for {TIMES.renew_deadline:g} seconds",
        f"has begun for {STALLED_AFTER:g} seconds: a working watch begins again every "
        f"{SERVER_TIMEOUT}",
        f"path on port {SETTINGS.telemetry.port}",
    ],
)
def test_a_figure_is_the_constant(sentence: str) -> None:
    assert sentence in " ".join((text_of(PAGE) + text_of(STATUS)).split())


def test_a_day_is_a_day() -> None:
    assert LONGEST_DRAIN == 86_400
