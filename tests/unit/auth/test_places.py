"""Who goes where there are not places for all: what has shown nothing, for longest."""

from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.auth.acceptor import ConnectionLimiter, Limits

LIMITS = Limits(handshakes=2, unproven=3, total=5, grace_seconds=10.0)


def test_of_too_many_in_the_handshake_the_oldest_goes() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    assert [places.add(name, now=0.0) for name in "abcd"] == [None, None, "a", "b"]
    assert places.counts() == (2, 0, 0)


def test_of_too_many_that_have_shown_nothing_the_oldest_goes() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    leaving = []
    for name in "abcde":
        leaving.append(places.add(name, now=0.0))
        places.finish_handshake(name, now=0.0)
    assert leaving == [None, None, None, "a", "b"]
    assert places.counts() == (0, 3, 0)


def test_whoever_has_been_in_one_stage_for_longest_is_the_oldest() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    places.add("a", now=0.0)
    places.add("b", now=1.0)
    places.finish_handshake("a", now=5.0)
    places.add("c", now=6.0)
    assert [places.add(name, now=7.0) for name in "de"] == ["b", "c"]
    assert places.counts() == (2, 1, 0)
    # One in the handshake where those are too many, though another is older.
    assert places.add("f", now=8.0) == "d"
    assert places.counts() == (2, 1, 0)


def prove(places: ConnectionLimiter[str], names: str) -> None:
    for name in names:
        assert places.add(name, now=0.0) is None
        places.finish_handshake(name, now=0.0)
        places.prove(name)


def test_a_publisher_stays_whoever_comes() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    prove(places, "abc")
    for name in "defgh":
        leaving = places.add(name, now=0.0)
        assert leaving is None or leaving in "defgh"
        places.finish_handshake(name, now=0.0)
    assert places.counts() == (0, 2, 3)


def test_beyond_all_places_whoever_has_shown_nothing_gives_way() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    prove(places, "abcd")
    assert places.add("e", now=2.0) is None
    assert places.add("f", now=4.0) == "e"
    places.finish_handshake("f", now=5.0)
    assert places.add("g", now=6.0) == "f"
    assert places.counts() == (1, 0, 4)


def test_a_newcomer_waits_until_the_oldest_had_its_time() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    assert places.wait(now=0.0) == 0.0
    places.add("a", now=1.0)
    assert places.wait(now=1.0) == 0.0
    places.add("b", now=2.0)
    assert [places.wait(now=now) for now in (2.0, 5.0, 11.0, 20.0)] == [9.0, 6.0, 0.0, 0.0]
    assert places.add("c", now=11.0) == "a"
    assert places.wait(now=11.0) == 1.0
    places.finish_handshake("b", now=11.0)
    assert places.wait(now=11.0) == 0.0


def test_where_publishers_have_all_places_nobody_waits_to_be_told() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    prove(places, "abcd")
    places.add("e", now=0.0)
    assert places.wait(now=0.0) == 10.0
    places.finish_handshake("e", now=5.0)
    assert places.wait(now=5.0) == 10.0
    places.prove("e")
    assert places.wait(now=5.0) == 0.0
    assert places.add("f", now=5.0) == "f"


def test_a_newcomer_is_refused_where_publishers_have_all_places() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    prove(places, "abcde")
    assert places.add("f", now=0.0) == "f"
    assert places.counts() == (0, 0, 5)
    places.remove("b")
    assert places.add("f", now=0.0) is None
    assert places.counts() == (1, 0, 4)


def test_a_place_is_free_again_whatever_it_was() -> None:
    places: ConnectionLimiter[str] = ConnectionLimiter(LIMITS)
    prove(places, "a")
    places.add("b", now=0.0)
    places.finish_handshake("b", now=0.0)
    places.add("c", now=0.0)
    assert places.counts() == (1, 1, 1)
    for name in "abcabz":
        places.remove(name)
    assert len(places) == 0


@given(
    st.lists(
        st.tuples(st.sampled_from(("arrive", "greet", "prove", "leave")), st.integers(0, 12)),
        max_size=80,
    )
)
def test_no_bound_is_passed_and_no_publisher_pushed_out(steps: list[tuple[str, int]]) -> None:
    places: ConnectionLimiter[int] = ConnectionLimiter(LIMITS)
    stage: dict[int, str] = {}
    before = {"arrive": None, "greet": "arrive", "prove": "greet"}
    for step, guest in steps:
        if step == "leave":
            places.remove(guest)
            stage.pop(guest, None)
            continue
        if stage.get(guest) != before[step]:
            continue
        leaving = None
        if step == "arrive":
            leaving = places.add(guest, now=0.0)
        elif step == "greet":
            places.finish_handshake(guest, now=0.0)
        else:
            places.prove(guest)
        stage[guest] = step
        if leaving is not None:
            assert stage.pop(leaving) != "prove"
        handshakes, unproven, proven = places.counts()
        assert handshakes <= LIMITS.handshakes
        assert handshakes + unproven <= LIMITS.unproven
        assert handshakes + unproven + proven == len(stage) <= LIMITS.total
        assert proven == list(stage.values()).count("prove")


def test_where_anybody_may_come_the_longest_idle_gives_way_and_no_request_does() -> None:
    idle = {"a": None, "b": 7.0, "c": 3.0}
    places: ConnectionLimiter[str] = ConnectionLimiter(Limits.of_plain(3), idle_since=idle.get)
    for name in "abc":
        assert places.add(name, now=0.0) is None
        places.finish_handshake(name, now=0.0)
        places.prove(name)
    for name, leaves in (("d", "c"), ("e", "b"), ("f", "f")):
        assert places.add(name, now=0.0) == leaves
        places.finish_handshake(name, now=0.0)
        places.prove(name)


def test_one_owner_leaves_places_to_others() -> None:
    places: ConnectionLimiter[int] = ConnectionLimiter(
        Limits(handshakes=8, unproven=8, total=8), idle_since=float
    )
    leaving = []
    for guest in range(10):
        assert places.add(guest, now=0.0) is None
        places.finish_handshake(guest, now=0.0)
        leaving.append(places.prove(guest, "greedy"))
    assert leaving == [None] * 6 + [0, 1, 2, 3]
    assert places.counts() == (0, 0, 6)
    assert places.add(10, now=0.0) is None
    places.finish_handshake(10, now=0.0)
    assert places.prove(10, "other") is None


@given(st.integers(min_value=1, max_value=1000))
def test_limits_that_follow_from_descriptors_fit(connections: int) -> None:
    for limits in (Limits.of_gateway(connections), Limits.of_plain(connections)):
        assert 1 <= limits.handshakes <= connections
        assert 1 <= limits.unproven <= connections
        assert limits.total == connections
