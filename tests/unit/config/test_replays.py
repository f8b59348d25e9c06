"""IndicationReplays of a folder."""

from pathlib import Path

import pytest

from pillion_sidecar.config.loader import ConfigurationError, load_folder
from pillion_sidecar.config.schema.limits import RateLimit
from support.resources import JSON, alert_filter, destination, document, service, write

FROM = "2026-11-22T12:00:00Z"
NOON = 1_795_348_800.0


def replay(name: str = "afternoon", **spec: object) -> JSON:
    return document(
        "IndicationReplay", name, {"destinationRef": {"name": "ops"}, "from": FROM, **spec}
    )


def problems(folder: Path, *documents: JSON) -> list[str]:
    with pytest.raises(ConfigurationError) as caught:
        load_folder(write(folder, service(), destination("ops"), *documents))
    return [f"{one.field}: {one.message}" for one in caught.value.problems]


def test_one_is_built_with_its_defaults(tmp_path: Path) -> None:
    # No subscription names the destination.
    loaded = load_folder(write(tmp_path, service(), destination("ops"), replay()))
    one = loaded.replays["afternoon"]
    assert (one.service, one.destination_name, one.filter_name) == ("default", "ops", None)
    assert (one.since, one.until, one.created_at) == (NOON, None, None)
    assert (one.results, one.destinations) == (("Discarded", "Delivered"), ())
    assert (one.rate_limit, one.suspended, one.ttl_seconds_after_finished) == (None, False, None)
    assert one.uid


def test_one_is_built_with_all_that_is_written(tmp_path: Path) -> None:
    given = replay(
        until="2026-11-22T14:00:00.25+01:00",
        results=["Delivered"],
        destinations=["gone"],
        filterRef={"name": "alerts"},
        rateLimit={"perSecond": 0.5},
        suspended=True,
        ttlSecondsAfterFinished=0,
    )
    given["metadata"] |= {"uid": "u-1", "creationTimestamp": "2026-11-22T13:00:00Z"}
    loaded = load_folder(write(tmp_path, service(), destination("ops"), alert_filter(), given))
    one = loaded.replays["afternoon"]
    assert (one.uid, one.created_at, one.until) == ("u-1", NOON + 3600, NOON + 3600.25)
    assert (one.results, one.destinations) == (("Delivered",), ("gone",))
    assert (one.filter_name, one.rate_limit) == ("alerts", RateLimit(per_second=0.5))
    assert (one.suspended, one.ttl_seconds_after_finished) == (True, 0)


def test_those_of_another_service_are_checked_and_not_carried_out(tmp_path: Path) -> None:
    other = replay("theirs", serviceRef={"name": "other"})
    both = (service(), service("other"), destination("ops"))
    loaded = load_folder(write(tmp_path, *both, replay(), other), service="default")
    assert [*loaded.replays] == ["afternoon"]


@pytest.mark.parametrize(
    ("spec", "problem"),
    [
        (
            {"destinationRef": {"name": "no"}},
            "spec.destinationRef.name: there is no ListenerDestination of this name",
        ),
        (
            {"filterRef": {"name": "no"}},
            "spec.filterRef.name: there is no IndicationFilter of this name",
        ),
        (
            {"serviceRef": {"name": "no"}},
            "spec.serviceRef.name: there is no IndicationService of this name",
        ),
        ({"until": FROM}, "spec.until: is not after from"),
        ({"until": "2026-11-22T12:00:00+01:00"}, "spec.until: is not after from"),
        ({"from": "2026-02-30T00:00:00Z"}, "spec.from: is not a time"),
        ({"rateLimit": {"perSecond": 0}}, "spec.rateLimit.perSecond: "),
        ({"ttlSecondsAfterFinished": -1}, "spec.ttlSecondsAfterFinished: "),
        ({"results": ["Redriven"]}, "spec.results[0]: "),
        ({"subscriptionRef": {"name": "s"}}, "spec.subscriptionRef: "),
    ],
    ids=str,
)
def test_a_wrong_one_is_refused(tmp_path: Path, spec: JSON, problem: str) -> None:
    (found,) = problems(tmp_path, replay(**spec))
    assert found.startswith(problem)


def test_a_gateway_is_needed_for_a_destination_that_says_so(tmp_path: Path) -> None:
    through = destination("far", deliverThrough="Gateway")
    (found,) = problems(tmp_path, through, replay(destinationRef={"name": "far"}))
    assert "says deliverThrough Gateway" in found
