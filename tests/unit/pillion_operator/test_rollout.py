from hypothesis import given
from hypothesis import strategies as st

from pillion_operator.controllers.states import MOST_REVISIONS, Rollout
from pillion_operator.store import Key

A, B = Key("IndicationFilter", "shop", "a"), Key("IndicationFilter", "shop", "b")


def test_an_object_is_in_force_by_every_revision_since_its_last_change() -> None:
    rollout = Rollout()
    assert rollout.advance("one", {A: "1"}) == {A}
    assert rollout.advance("two", {A: "1", B: "1"}) == {B}
    assert rollout.advance("two", {A: "1", B: "1"}) == set()
    assert rollout.revisions_with(A) == {"one", "two"}
    assert rollout.revisions_with(B) == {"two"}
    assert rollout.advance("three", {B: "2"}) == {A, B}
    assert rollout.revisions_with(B) == {"three"}
    assert rollout.content == {B: "2"}


@given(
    st.lists(
        st.dictionaries(st.sampled_from([A, B]), st.sampled_from("xyz"), max_size=2), max_size=12
    )
)
def test_no_revision_counts_that_does_not_hold_the_object_as_it_is(
    history: list[dict[Key, str]],
) -> None:
    rollout = Rollout()
    contents = {}
    for content in history:
        revision = str(sorted(content.items()))
        contents[revision] = content
        rollout.advance(revision, content)
        for key, item in content.items():
            named = rollout.revisions_with(key)
            assert revision in named
            assert all(contents[name].get(key) == item for name in named)


def test_old_revisions_are_forgotten() -> None:
    rollout = Rollout()
    for number in range(MOST_REVISIONS + 5):
        rollout.advance(str(number), {A: "1", B: str(number)})
    assert len(rollout.revisions_with(A)) == MOST_REVISIONS
    assert "0" not in rollout.revisions_with(A)


def test_what_an_earlier_leader_rolled_out_is_told_with_the_first_revision() -> None:
    rollout = Rollout()
    assert rollout.recall({A, B}) == {A, B}
    assert rollout.content.keys() == {A, B}
    assert rollout.advance("r1", {A: "one"}) == {A, B}
    assert rollout.recall({B}) == set()
    assert rollout.content == {A: "one"}
