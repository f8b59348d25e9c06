"""The books of kill points and chaos: what they must find, each by itself. A checker that finds
nothing would let every run pass."""

import pytest

from support.history import History

NORTH = frozenset(("north",))
BOTH = frozenset(("north", "south"))


@pytest.fixture
def history() -> History:
    made = History()
    for identifier in ("a", "b", "c"):
        made.publish(identifier, NORTH)
    return made


def arrive(history: History, *identifiers: str, start: int = 0) -> None:
    for number, identifier in enumerate(identifiers, start):
        history.arrive("north", identifier, "context", number)


def test_a_good_run_has_no_problems(history: History) -> None:
    arrive(history, "a", "b")
    history.restart()
    # Repeated, since nobody knows that it was settled.
    arrive(history, "b", "c", start=1)
    for identifier in "abc":
        history.acknowledge(identifier)
    assert history.problems() == []


def test_what_was_not_acknowledged_may_be_gone(history: History) -> None:
    arrive(history, "a", "b")
    assert history.problems() == []


def test_what_was_acknowledged_must_arrive(history: History) -> None:
    arrive(history, "a", "b")
    history.acknowledge("c")
    assert history.problems() == ["north: c was acknowledged, and is lost"]
    history.discard("north", "c")
    assert history.problems() == []


def test_what_arrived_at_one_must_arrive_at_all() -> None:
    history = History()
    history.publish("a", BOTH)
    history.arrive("north", "a", None, None)
    assert history.problems() == ["south: a arrived elsewhere, and is lost"]


def test_what_a_harm_took_may_come_again_behind_those_of_its_batch(history: History) -> None:
    history.arrive("north", "b", "new", 0)
    history.restart()
    history.arrive("north", "a", "new", 1)
    assert history.problems() == [
        "north: a was overtaken",
        "north: a has 1 of new, and is older than one before it",
    ]
    history.taken = {"a"}
    assert history.problems() == []


def test_nothing_is_overtaken(history: History) -> None:
    history.arrive("north", "b", None, None)
    history.restart()
    history.arrive("north", "a", None, None)
    assert history.problems() == ["north: a was overtaken"]


def test_a_line_is_all_that_is_in_order() -> None:
    history = History(line=lambda destination, published: published.group)
    for identifier, group in (("a", "x"), ("b", "y"), ("c", "x"), ("d", None), ("e", None)):
        history.publish(identifier, NORTH, group)
    for identifier in ("b", "e", "a", "d", "c"):
        history.arrive("north", identifier, None, None)
    assert history.problems() == []
    history = History(line=lambda destination, published: published.group)
    history.publish("a", NORTH, "x")
    history.publish("c", NORTH, "x")
    history.arrive("north", "c", None, None)
    history.arrive("north", "a", None, None)
    assert history.problems() == ["north: a was overtaken"]


def test_only_a_restart_explains_going_back(history: History) -> None:
    arrive(history, "a", "b", "c")
    arrive(history, "b", start=1)
    assert history.problems() == ["north: b came again without a restart"]


def test_the_same_again_is_a_retry(history: History) -> None:
    arrive(history, "a", "b")
    arrive(history, "b", start=1)
    assert history.problems() == []


def test_what_is_settled_on_disk_does_not_come_again(history: History) -> None:
    arrive(history, "a")
    history.settle("north", "a")
    history.restart()
    arrive(history, "a")
    assert history.problems() == ["north: a came again, though it was settled"]


@pytest.mark.parametrize(
    ("arrivals", "problem"),
    [
        ((("a", "x", 0), ("a", "x", 1)), "north: a was ('x', 0) and came as ('x', 1)"),
        ((("a", "x", 0), ("b", "x", 0)), "north: ('x', 0) is a and b"),
        ((("a", "x", 0), ("b", "y", 0)), "north: the context changed: ['x', 'y']"),
        ((("a", "x", 0), ("b", "x", 2)), "1 numbers of x never came, and 0 were discarded"),
        ((("b", "x", 1), ("c", "x", 0)), "north: b has 1 of x, and is older than one before it"),
        ((("z", None, None),), "north: z was never published"),
    ],
)
def test_numbers_are_what_they_were(
    history: History, arrivals: tuple[tuple[str, str | None, int | None], ...], problem: str
) -> None:
    for identifier, context, number in arrivals:
        history.arrive("north", identifier, context, number)
    assert any(problem in told for told in history.problems()), history.problems()


def test_a_discard_explains_a_missing_number(history: History) -> None:
    history.arrive("north", "a", "x", 0)
    history.arrive("north", "c", "x", 2)
    history.discard("north", "b")
    assert history.problems() == []


def test_what_is_released_takes_its_place_then(history: History) -> None:
    history.release("a")
    arrive(history, "b", "c", "a")
    assert history.problems() == []
    history.release("b")
    assert "b was held again, though it had been released" in history.problems()


def test_a_loss_that_was_told_explains_other_numbers_but_never_one_for_two(
    history: History,
) -> None:
    arrive(history, "a", "b")
    history.restart()
    history.arrive("north", "b", "second", 0)
    history.arrive("north", "c", "second", 1)
    assert len(history.problems()) == 2
    history.renumber()
    assert history.problems() == []
    history.arrive("north", "a", "second", 1)
    assert "north: ('second', 1) is c and a" in list(history.misnumbered())


def test_each_place_that_misses_what_was_acknowledged_is_named() -> None:
    history = History()
    history.publish("a", BOTH)
    history.publish("b", BOTH)
    history.acknowledge("a")
    history.arrive("north", "a", "context", 0)
    assert list(history.lost_places()) == [("south", "a")]
    assert history.arrivals() == 1
    history.discard("south", "a")
    assert list(history.lost_places()) == []
