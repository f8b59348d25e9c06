"""How repairs become rarer."""

from pillion_operator.cluster.repairs import FORGOTTEN_AFTER, MOST_WAIT, Repairs


def test_the_first_repair_is_at_once_and_each_further_one_after_twice_the_wait() -> None:
    repairs, now, waits = Repairs(), 100.0, list[float]()
    for _ in range(9):
        wait = repairs.wait(now)
        waits.append(wait)
        now += wait
        assert repairs.wait(now) == 0
        repairs = repairs.repaired(now)
    assert waits == [0, 5, 10, 20, 40, 80, 160, 300, 300]
    assert repairs.times == 9


def test_after_a_quiet_time_the_next_repair_is_a_first_one() -> None:
    repairs = Repairs().repaired(0).repaired(5).repaired(15)
    assert repairs.wait(15 + FORGOTTEN_AFTER - 1) == 0
    assert repairs.repaired(15 + FORGOTTEN_AFTER - 1).times == 4
    assert repairs.repaired(15 + FORGOTTEN_AFTER).times == 1
    assert FORGOTTEN_AFTER > MOST_WAIT


def test_many_repairs_do_not_overflow() -> None:
    assert Repairs(times=10**9, last=0).wait(0) == MOST_WAIT
