"""A behaviour that cannot be is refused with its field; the rest is counted down."""

import pytest

from pillion_cli.listener.server import Behaviour, BehaviourError


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ([], "give an object"),
        ({"stats": 503}, "there is no field 'stats'; there are fail, status"),
        ({"status": 99}, "status: 99 is not a status of HTTP from 200 to 599"),
        ({"status": "503"}, "status: '503'"),
        ({"status": True}, "status: True"),
        ({"fail": -1}, "fail: -1"),
        ({"retry_after": 1.5}, "retry_after: 1.5"),
        ({"cim_error": 0}, "cim_error: 0"),
        ({"hang": 1}, "hang: 1 is neither"),
        ({"redirect": "ftp://x"}, "redirect: 'ftp://x'"),
        ({"redirect": "http://x/\r\nSet-Cookie: y"}, "redirect"),
        ({"delay": float("nan")}, "delay: nan"),
        ({"delay": -1}, "delay: -1"),
        ({"delay": None}, "delay: None"),
    ],
)
def test_what_cannot_be_is_refused(changes: object, part: str) -> None:
    with pytest.raises(BehaviourError) as caught:
        Behaviour().changed(changes)
    assert part in str(caught.value)


def test_good_is_the_default_and_what_a_change_leaves_out() -> None:
    assert not Behaviour().is_bad
    assert not Behaviour(delay=3).is_bad
    assert Behaviour(status=500).changed({"delay": 1}) == Behaviour(delay=1)


@pytest.mark.parametrize(
    "changes",
    [
        {"status": 500},
        {"hang": True},
        {"close": True},
        {"garbage": True},
        {"cim_error": 1},
        {"fail": 1},
        {"redirect": "http://127.0.0.1/"},
    ],
)
def test_any_bad_thing_is_bad_until_it_has_been_done_so_often(changes: dict[str, object]) -> None:
    assert Behaviour().changed(changes).is_bad
    twice = Behaviour().changed({**changes, "fail": 2})
    assert twice.after_one().is_bad
    assert not twice.after_one().after_one().is_bad
    assert not twice.after_one().after_one().after_one().is_bad


def test_without_a_limit_it_goes_on() -> None:
    assert Behaviour(status=500).after_one() == Behaviour(status=500)
