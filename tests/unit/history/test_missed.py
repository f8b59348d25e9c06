"""What an indication has missed is found by its identity (S0.11)."""

from pillion_sidecar.history.missed import missed_by
from pillion_sidecar.history.outcome import Numbered
from support.outcomes import outcome

A, B = b"a" * 16, b"b" * 16


def found(*discards: Numbered) -> dict[bytes, list[int]]:
    missed = missed_by(discards, {A})
    return {digest: [one.number for one in numbered] for digest, numbered in missed.items()}


def test_each_target_that_missed_it_is_found_without_its_body() -> None:
    siem = Numbered(1, outcome(1, id=7, digest=A, body=b"{}"))
    noc = Numbered(2, outcome(2, id=7, digest=A, destination="noc"))
    others = Numbered(3, outcome(3, id=8, digest=B)), Numbered(4, outcome(4, id=9))
    assert found(siem, noc, *others) == {A: [1, 2]}
    assert missed_by([siem], {A})[A][0].outcome.body is None


def test_a_redrive_that_was_lost_belongs_to_the_first() -> None:
    first = Numbered(1, outcome(1, id=7, digest=A))
    again = Numbered(5, outcome(5, id=20, redrives=1))
    third = Numbered(6, outcome(6, id=21, redrives=5))
    of_another = Numbered(9, outcome(9, id=22, redrives=2))
    assert found(first, again, third, of_another) == {A: [1, 5, 6]}


def test_what_was_discarded_everywhere_and_accepted_anew_counts_no_more() -> None:
    gone = Numbered(1, outcome(1, id=7, digest=A)), Numbered(2, outcome(2, id=7, digest=A))
    anew = Numbered(3, outcome(3, id=12, digest=A))
    assert found(*gone, anew) == {A: [3]}


def test_what_a_replay_has_lost_is_no_target_of_the_publisher() -> None:
    first = Numbered(1, outcome(1, id=7, digest=A))
    elsewhere = Numbered(2, outcome(2, id=20, redrives=1, replay="u", destination="archive"))
    assert found(first, elsewhere) == {A: [1]}
