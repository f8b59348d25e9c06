from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.status.conditions import (
    LONGEST_MESSAGE,
    MOST_CONDITIONS,
    OUR_TYPES,
    Condition,
    find_condition,
    rfc3339,
    seconds_of,
    set_conditions,
)

BEFORE = "2026-01-01T00:00:00Z"
NOW = "2026-01-02T00:00:00Z"


def live(kind: str, status: str = "True", **changes: Any) -> dict[str, Any]:
    return {
        "type": kind,
        "status": status,
        "observedGeneration": 1,
        "lastTransitionTime": BEFORE,
        "reason": "Before",
        "message": "as it was",
        **changes,
    }


def test_a_new_condition_begins_now() -> None:
    made = set_conditions(
        [], [Condition("Ready", "True", "InForce", "It is.")], generation=3, now=NOW
    )

    assert made == [
        {
            "type": "Ready",
            "status": "True",
            "observedGeneration": 3,
            "lastTransitionTime": NOW,
            "reason": "InForce",
            "message": "It is.",
        }
    ]


def test_the_time_of_transition_stays_unless_the_status_changes() -> None:
    known = [live("Ready"), live("Accepted", "False")]
    wanted = [Condition("Ready", "True", "Other", ""), Condition("Accepted", "True", "Other", "")]

    accepted, ready = set_conditions(known, wanted, generation=2, now=NOW)

    assert (accepted["lastTransitionTime"], ready["lastTransitionTime"]) == (NOW, BEFORE)
    assert (ready["reason"], ready["observedGeneration"]) == ("Other", 2)


def test_ours_go_when_they_are_no_longer_wanted_and_others_stay() -> None:
    known = [live("Draining"), live("example.com/Audited"), live("Ready")]

    made = set_conditions(known, [Condition("Accepted", "True", "R", "")], generation=1, now=NOW)

    assert [one["type"] for one in made] == ["Accepted", "example.com/Audited"]
    assert made[1] == known[1]


def test_others_never_make_the_list_longer_than_it_may_be() -> None:
    known = [live(f"Foreign{number:02}") for number in range(MOST_CONDITIONS)]

    made = set_conditions(known, [Condition("Ready", "True", "R", "")], generation=1, now=NOW)

    assert len(made) == MOST_CONDITIONS
    assert find_condition(made, "Ready") is not None


def test_a_message_is_bounded() -> None:
    long = Condition("Ready", "True", "R", "x" * (LONGEST_MESSAGE + 1))

    (made,) = set_conditions([], [long], generation=1, now=NOW)

    assert len(made["message"]) == LONGEST_MESSAGE
    assert made["message"].endswith("…")


def test_a_condition_without_a_time_gets_one() -> None:
    (made,) = set_conditions(
        [{"type": "Ready", "status": "True"}],
        [Condition("Ready", "True", "R", "")],
        generation=1,
        now=NOW,
    )

    assert made["lastTransitionTime"] == NOW


_STATUSES = st.sampled_from(["True", "False", "Unknown"])
_TYPES = st.sampled_from([*sorted(OUR_TYPES), "Foreign", "example.com/Other"])
_LIVE = st.lists(st.builds(live, _TYPES, _STATUSES), max_size=6, unique_by=lambda one: one["type"])
_WANTED = st.lists(
    st.builds(
        Condition, st.sampled_from(sorted(OUR_TYPES)), _STATUSES, st.just("R"), st.text(max_size=9)
    ),
    max_size=6,
    unique_by=lambda one: one.type,
)


@given(_LIVE, _WANTED, st.randoms(use_true_random=False))
def test_what_is_set_twice_is_set(known: list[Any], wanted: list[Condition], random: Any) -> None:
    once = set_conditions(known, wanted, generation=2, now=NOW)
    shuffled = list(wanted)
    random.shuffle(shuffled)

    assert set_conditions(once, shuffled, generation=2, now="2027-01-01T00:00:00Z") == once
    assert {one.type for one in wanted} <= {one["type"] for one in once}
    assert {one["type"] for one in known} - OUR_TYPES <= {one["type"] for one in once}


@pytest.mark.parametrize("at", [0.0, 1.5, 1_700_000_000.999])
def test_times_are_written_to_the_second_and_read_back(at: float) -> None:
    assert seconds_of(rfc3339(at)) == int(at)
    assert rfc3339(0) == "1970-01-01T00:00:00Z"


@pytest.mark.parametrize("text", [None, 7, "", "soon", "2026-01-01T00:00:00"])
def test_what_is_no_time_is_none(text: object) -> None:
    assert seconds_of(text) is None
