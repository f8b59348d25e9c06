"""The API server refuses requests, or hangs up, in the middle of a reconcile."""

import pytest

from cluster.bad_days import BadDay
from cluster.convergence import Object
from support.api_proxy import Asked, Fault, HangUp, Refuse
from support.cluster_resources import destination, filter_, service, subscription

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

URL = "https://listener.example.com/events"


def resources() -> list[Object]:
    return [service(), filter_(), destination(URL), subscription()]


@pytest.mark.parametrize(
    "fault",
    [
        pytest.param(Refuse(status=409, reason="Conflict"), id="409"),
        pytest.param(Refuse(status=422, reason="Invalid"), id="422"),
        pytest.param(
            Refuse(status=429, retry_after=1, text="Too many requests, please try again later."),
            id="429",
        ),
        pytest.param(Refuse(status=500, reason="InternalError"), id="500"),
        pytest.param(Refuse(status=503, text="upstream is away"), id="503"),
        pytest.param(HangUp(), id="hung-up"),
        pytest.param(HangUp(handed_on=True), id="answer-lost"),
    ],
)
def test_a_failure_in_the_middle_of_a_reconcile_is_made_good(day: BadDay, fault: Fault) -> None:
    """Every third write fails, for as long as all that has to be written is."""
    # What the API server calls invalid is tried again by the resync alone, and that may write the
    # same one third each time.
    is_invalid = isinstance(fault, Refuse) and fault.status == 422
    most = 4 if is_invalid else 10
    failed: list[str] = []
    count = 0

    def plan(asked: Asked) -> Fault | None:
        nonlocal count
        if not asked.is_write or len(failed) >= most:
            return None
        count += 1
        if count % 3:
            return None
        failed.append(f"{asked.method} {asked.plural}")
        return fault

    day.proxy.plan = plan
    operator = day.start(*(("--resync-interval", "2") if is_invalid else ()))
    gateway = service("shared", deliverer={"mode": "Gateway"})
    day.world.apply(*resources(), gateway, subscription("shared-to", by="shared"))
    day.world.until(
        lambda: day.world.get("StatefulSet", "pillion-shared") is not None, "the gateway is made"
    )
    day.world.becomes("IndicationSubscription", "shared-to", "Accepted", "True")
    day.world.until(lambda: not day.world.wrong("default", "shared"), "both are rendered")
    day.world.becomes("IndicationSubscription", "alerts-to-operations", "Ready", "True")
    day.world.becomes("IndicationService", "default", "Ready", "True")
    day.world.becomes("IndicationFilter", "alerts", "Ready", "True")
    assert len(failed) >= 3
    assert operator.running.exit_code() is None


def test_reads_that_fail_are_made_good(day: BadDay) -> None:
    """Each list and each watch fails twice."""
    failures: dict[str, int] = {}
    faults: tuple[Fault, ...] = (HangUp(), Refuse(status=503))

    def plan(asked: Asked) -> Fault | None:
        if asked.method != "GET":
            return None
        what = f"{asked.path} {asked.is_watch}"
        count = failures[what] = failures.get(what, -1) + 1
        return faults[count] if count < len(faults) else None

    day.proxy.plan = plan
    operator = day.start()
    day.world.apply(*resources())
    day.world.converges()
    assert operator.running.exit_code() is None


def test_as_long_as_the_api_server_asks_for_is_waited(day: BadDay) -> None:
    """Its own flow control says it in a header, and in plain text."""
    operator = day.start()
    day.world.apply(*resources())
    day.world.converges()
    refused = Refuse(status=429, retry_after=600, text="Too many requests, please try again later.")
    day.proxy.plan = lambda asked: refused if asked.is_write else None
    day.proxy.seen.clear()
    day.world.patch("IndicationFilter", "alerts", {"spec": {"query": "SELECT * FROM CIM_X"}})

    def put_off() -> list[str]:
        told = [one for one in operator.records() if one.get("event") == "reconcile-put-off"]
        return [str(one["message"]) for one in told]

    # It is logged after the proxy has answered.
    day.world.until(lambda: bool(put_off()), "it is put off")
    assert ["put off for 600.0 s" in message for message in put_off()] == [True]
    assert len(day.proxy.writes()) == 1
