"""Which outcomes a replay selects, and which count as the end of a replayed indication."""

from pillion_sidecar.history.outcome import Outcome, redrive_note
from pillion_sidecar.history.replays import ReplayQuery, read_replays
from pillion_sidecar.indication import REDRIVEN_ELSEWHERE, DeadLetter
from support.outcomes import BEGAN, outcome

QUERY = ReplayQuery(results=frozenset(("discarded", "delivered")))
LOST = DeadLetter("siem", "attempts-exceeded", "HTTP 503", 3, BEGAN)


def selected(*outcomes: Outcome, query: ReplayQuery = QUERY) -> list[str | None]:
    return [one.identifier for one in outcomes if query.matches(one)]


def test_repeated_indications_are_not_selected_wherever_they_were_repeated() -> None:
    own = outcome(1)
    repeated = outcome(2, redrives=1), outcome(3, redrives=REDRIVEN_ELSEWHERE)
    assert selected(own, *repeated, outcome(4, redrives=1, replay="u")) == ["i1"]


def test_a_dead_letter_is_selected_by_its_destination_alone() -> None:
    lost, letter = outcome(1), outcome(2, destination="grave", lost=LOST)
    assert selected(lost, letter) == ["i1"]
    of_grave = ReplayQuery(results=QUERY.results, destinations=frozenset(("grave",)))
    assert selected(lost, letter, query=of_grave) == ["i2"]


def test_a_redrive_is_no_end_of_a_replayed_indication() -> None:
    replayed = outcome(5, redrives=1, replay="u")
    note = redrive_note(replayed, 5, at=BEGAN + 9)
    assert note.replay is None
    earlier = outcome(6, result="redriven", redrives=5, replay="u")
    kept = read_replays(lambda: [(5, replayed), (6, earlier)])["u"]  # type: ignore[list-item]
    assert (kept.settled.delivered, kept.settled.discarded) == (0, 1)
