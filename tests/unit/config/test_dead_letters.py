"""What a configuration says of dead letters: who gets whose, and what is refused."""

from pathlib import Path

import pytest

from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError, Problem
from pillion_sidecar.config.schema.destination import RemovalPolicy
from support.resources import JSON, alert_filter, destination, service, subscription, write


def to(name: str) -> JSON:
    return {"deadLetterRef": {"name": name}}


def named(tmp_path: Path, *documents: JSON) -> dict[str, str | None]:
    """Who gets the dead letters of each destination."""
    write(tmp_path, alert_filter(), subscription(), *documents)
    found = load_folder(tmp_path).destinations
    return {name: one.dead_letter for name, one in found.items()}


def refused(tmp_path: Path, *documents: JSON) -> Problem:
    write(tmp_path, alert_filter(), subscription(), *documents)
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path)
    (problem,) = caught.value.problems
    return problem


def test_a_destination_without_one_has_that_of_the_service(tmp_path: Path) -> None:
    documents = (
        service(**to("grave")),
        destination(),
        destination("own", **to("other")),
        destination("other"),
        destination("grave"),
    )
    assert named(tmp_path, *documents) == {
        "ops": "grave",
        "own": "other",
        # They get dead letters, which go no further.
        "other": None,
        "grave": None,
    }


def test_without_any_nothing_is_handed_on(tmp_path: Path) -> None:
    assert named(tmp_path, destination()) == {"ops": None}


@pytest.mark.parametrize(
    ("documents", "resource", "says"),
    [
        (
            (destination(**to("grvae")), destination("grave")),
            "ListenerDestination/ops",
            "there is no ListenerDestination of this name: Did you mean grave?",
        ),
        (
            (destination(**to("ops")),),
            "ListenerDestination/ops",
            "names this destination itself: Name another",
        ),
        (
            (destination(**to("grave")), destination("grave", **to("end")), destination("end")),
            "ListenerDestination/ops",
            "names a destination that has a deadLetterRef itself, and dead letters go no further: "
            "Remove deadLetterRef of grave",
        ),
        (
            (service(**to("grave")), destination()),
            "IndicationService/default",
            "there is no ListenerDestination of this name",
        ),
        (
            (service(**to("grave")), destination("grave", **to("ops")), destination()),
            "IndicationService/default",
            "names a destination that has a deadLetterRef itself",
        ),
    ],
)
def test_a_wrong_reference_is_refused_with_a_remedy(
    tmp_path: Path, documents: tuple[JSON, ...], resource: str, says: str
) -> None:
    problem = refused(tmp_path, *documents)
    assert (problem.resource, problem.field) == (resource, "spec.deadLetterRef.name")
    assert says in f"{problem.message}: {problem.remedy}"


@pytest.mark.parametrize(
    "documents",
    [
        (destination(removalPolicy="DeadLetter"),),
        # It gets dead letters itself.
        (service(**to("ops")), destination(removalPolicy="DeadLetter")),
    ],
)
def test_a_removal_to_nowhere_is_refused(tmp_path: Path, documents: tuple[JSON, ...]) -> None:
    problem = refused(tmp_path, *documents)
    assert (problem.resource, problem.field) == ("ListenerDestination/ops", "spec.removalPolicy")
    assert "needs a deadLetterRef" in problem.message


def test_a_removal_follows_the_service_too(tmp_path: Path) -> None:
    leaves = destination(removalPolicy="DeadLetter")
    write(tmp_path, service(**to("grave")), leaves, destination("grave"))
    found = load_folder(tmp_path).destinations["ops"]
    assert found.removal_policy is RemovalPolicy.DEAD_LETTER
    assert found.left_to == "grave"
