"""The seven rules of a listener's order, one by one, then all at once (D.5)."""

from hypothesis import given
from hypothesis import strategies as st

from pillion_cli.listener.sequence import Outcome, SequenceIdentifier, Sequencer, Verdict

LIFETIME = 900.0


class Listener:
    """A sequencer, fed with numbers."""

    def __init__(self, **bounds: int) -> None:
        self.rules: Sequencer[str] = Sequencer(lifetime=LIFETIME, **bounds)
        self.now = 0.0
        self.last: list[Outcome[str]] = []

    def receive(self, number: int | None, *, context: str = "A", sender: str = "s") -> list[str]:
        """What becomes of it: ``A5`` delivered, ``held A5``, ``duplicate A5``, ``late A5``."""
        identifier = None if number is None else SequenceIdentifier(context, number)
        name = "-" if number is None else f"{context}{number}"
        self.last = self.rules.receive(sender, name, identifier, now=self.now)
        return told(self.last)

    def expire(self, now: float) -> list[str]:
        self.now = now
        self.last = self.rules.expire(now)
        return told(self.last)

    @property
    def missing(self) -> int:
        return sum(outcome.missing for outcome in self.last)


def told(outcomes: list[Outcome[str]]) -> list[str]:
    return [
        (f"{outcome.verdict} " if outcome.verdict is not Verdict.DELIVERED else "") + outcome.item
        for outcome in outcomes
    ]


def test_the_first_indication_may_have_any_number() -> None:
    listener = Listener()
    assert listener.receive(41) == ["A41"]
    assert listener.receive(42) == ["A42"]
    assert listener.missing == 0


def test_the_expected_number_is_delivered() -> None:
    listener = Listener()
    assert [listener.receive(number) for number in range(4)] == [["A0"], ["A1"], ["A2"], ["A3"]]


def test_a_number_that_was_seen_is_a_duplicate() -> None:
    listener = Listener()
    listener.receive(0)
    listener.receive(1)
    assert listener.receive(1) == ["duplicate A1"]
    assert listener.receive(0) == ["duplicate A0"]
    assert listener.receive(2) == ["A2"]


def test_a_duplicate_is_remembered_anew() -> None:
    listener = Listener()
    listener.receive(0)
    listener.receive(1)
    listener.now = LIFETIME - 1
    assert listener.receive(0) == ["duplicate A0"]
    listener.now = LIFETIME + 1
    assert listener.receive(0) == ["duplicate A0"]
    assert listener.receive(1) == ["late A1"]


def test_a_low_number_that_was_never_seen_is_late() -> None:
    listener = Listener()
    listener.receive(5)
    assert listener.receive(4) == ["late A4"]
    assert listener.receive(6) == ["A6"]


def test_a_number_too_high_is_held_until_the_gap_fills() -> None:
    listener = Listener()
    listener.receive(0)
    assert listener.receive(3) == ["held A3"]
    assert listener.receive(2) == ["held A2"]
    assert listener.receive(3) == ["duplicate A3"]
    assert listener.receive(1) == ["A1", "A2", "A3"]
    assert listener.missing == 0
    assert listener.rules.next_due() is None
    assert listener.rules.held == 0


def test_a_gap_is_given_up_when_the_held_ones_own_lifetime_ends() -> None:
    listener = Listener()
    listener.receive(0)
    listener.now = 100.0
    listener.receive(3)
    assert listener.rules.next_due() == 100.0 + LIFETIME
    assert listener.expire(100.0 + LIFETIME - 0.001) == []
    assert listener.expire(100.0 + LIFETIME) == ["A3"]
    assert listener.missing == 2
    assert listener.rules.next_due() is None
    assert listener.receive(4) == ["A4"]
    assert listener.receive(1) == ["late A1"]


def test_what_ends_first_takes_lower_numbers_with_it_and_drains_higher_ones() -> None:
    listener = Listener()
    listener.receive(0)
    listener.receive(5)
    listener.now = 10.0
    for number in (3, 6, 9):
        listener.receive(number)
    assert listener.expire(LIFETIME) == ["A3", "A5", "A6"]
    assert listener.missing == 3
    assert listener.rules.next_due() == 10.0 + LIFETIME
    assert listener.expire(10.0 + LIFETIME) == ["A9"]
    assert listener.missing == 2


def test_a_new_context_begins_with_0() -> None:
    listener = Listener()
    listener.receive(7)
    assert listener.receive(0, context="B") == ["B0"]
    assert listener.receive(1, context="B") == ["B1"]
    assert listener.missing == 0


def test_a_new_context_delivers_what_is_held_and_awaits_its_own_0() -> None:
    listener = Listener()
    listener.receive(7)
    listener.receive(9)
    assert listener.receive(1, context="B") == ["A9", "held B1"]
    assert listener.missing == 1
    assert listener.receive(0, context="B") == ["B0", "B1"]


def test_an_old_context_is_late_while_it_is_remembered() -> None:
    listener = Listener()
    listener.receive(7)
    listener.receive(0, context="B")
    assert listener.receive(8) == ["late A8"]
    listener.now = LIFETIME
    assert listener.receive(0) == ["A0"]


def test_an_indication_without_a_sequence_is_delivered_behind_what_is_held() -> None:
    listener = Listener()
    listener.receive(0)
    listener.receive(2)
    assert listener.receive(None) == ["A2", "-"]
    assert listener.missing == 1
    assert listener.receive(None) == ["-"]
    # The context is forgotten, its identifiers are not.
    assert listener.receive(3) == ["late A3"]
    assert listener.receive(0, context="B") == ["B0"]


def test_senders_are_apart() -> None:
    listener = Listener()
    listener.receive(0)
    assert listener.receive(9, sender="t") == ["A9"]
    assert listener.receive(1) == ["A1"]


def test_numbers_go_on_from_0_behind_the_last() -> None:
    listener = Listener()
    listener.receive(2**63 - 1)
    assert listener.receive(0) == ["A0"]


def test_what_is_held_comes_out_at_the_end() -> None:
    listener = Listener()
    listener.receive(0)
    listener.receive(2)
    listener.receive(4)
    assert told(listener.rules.flush()) == ["A2", "A4"]
    assert listener.rules.flush() == []
    assert listener.rules.held == 0


def test_too_many_held_are_delivered_early() -> None:
    listener = Listener(max_held=2)
    listener.receive(0)
    assert listener.receive(6) == ["held A6"]
    assert listener.receive(4) == ["held A4"]
    assert listener.receive(2) == ["held A2", "A2"]
    assert listener.missing == 1
    assert listener.rules.held == 2


def test_too_many_remembered_are_forgotten() -> None:
    listener = Listener(max_remembered=3)
    for number in range(5):
        listener.receive(number)
    assert listener.receive(2) == ["duplicate A2"]
    assert listener.receive(1) == ["late A1"]


def test_what_is_held_is_known_though_its_identifier_had_to_make_room() -> None:
    listener = Listener(max_remembered=1)
    assert listener.receive(0) == ["A0"]
    assert listener.receive(2) == ["held A2"]
    assert listener.receive(4) == ["held A4"]
    assert listener.receive(2) == ["duplicate A2"]
    assert listener.receive(1) == ["A1", "A2"]


def test_the_sender_heard_longest_ago_makes_room() -> None:
    listener = Listener(max_senders=2)
    listener.receive(0, sender="s")
    listener.receive(2, sender="s")
    listener.receive(0, sender="t")
    assert listener.receive(5, sender="u") == ["A2", "A5"]
    assert listener.receive(1, sender="t") == ["A1"]
    assert listener.receive(9, sender="s") == ["A9"]


@given(
    arrivals=st.lists(
        st.tuples(st.none() | st.integers(0, 12), st.sampled_from("AB"), st.integers(0, 500)),
        max_size=40,
    ),
    max_held=st.integers(0, 4),
    max_remembered=st.integers(1, 30),
)
def test_nothing_is_lost_and_nothing_out_of_order(
    arrivals: list[tuple[int | None, str, int]], max_held: int, max_remembered: int
) -> None:
    rules: Sequencer[int] = Sequencer(
        lifetime=LIFETIME, max_held=max_held, max_remembered=max_remembered
    )
    outcomes: list[Outcome[int]] = []
    now = 0.0
    for index, (number, context, wait) in enumerate(arrivals):
        now += wait
        outcomes += rules.expire(now)
        identifier = None if number is None else SequenceIdentifier(context, number)
        outcomes += rules.receive("s", index, identifier, now=now)
        assert rules.held <= max_held
    outcomes += rules.flush()
    final = [outcome for outcome in outcomes if outcome.verdict is not Verdict.HELD]
    assert sorted(outcome.item for outcome in final) == list(range(len(arrivals)))
    previous: SequenceIdentifier | None = None
    for outcome in final:
        found = outcome.identifier
        if outcome.verdict is not Verdict.DELIVERED:
            continue
        if previous and found and previous.context == found.context:
            assert found.number > previous.number
            assert found.number - previous.number - 1 == outcome.missing
        previous = found
