"""How much of a queue a replay may fill (S0.11)."""

from pillion_sidecar.delivery.repeating import Room
from support.delivery import ERROR, HELD, SUCCESS, Deliverer, destination, subscription


def given(**changes: object) -> Deliverer:
    deliverer = Deliverer()
    deliverer.apply([destination("ops", **changes)], [subscription("s", "ops")])
    return deliverer


def room(deliverer: Deliverer) -> Room:
    return deliverer.service.room_to_repeat("ops")


def test_it_fills_half_of_the_queue_of_a_listener_that_works() -> None:
    deliverer = given(queue_size=10)
    # One shows whether it works.
    assert room(deliverer).places == 1
    deliverer.publish("1")
    deliverer.run()
    assert room(deliverer).places == 5
    deliverer.handlers["ops"].answer = None
    for number in range(4):
        deliverer.publish(str(number))
    deliverer.run()
    assert room(deliverer).places == 1
    for number in range(4):
        deliverer.publish(str(number))
    assert room(deliverer).places <= 0
    assert room(deliverer).reason == "the queue of destination ops is half full"


def test_the_smallest_queue_has_room() -> None:
    deliverer = given(queue_size=1)
    deliverer.publish("1")
    deliverer.run()
    assert room(deliverer).places == 1


def test_one_at_a_time_goes_to_a_listener_that_fails() -> None:
    deliverer = given(queue_size=10)
    deliverer.publish("1")
    deliverer.run()
    deliverer.handlers["ops"].answer = ERROR
    deliverer.publish("2")
    deliverer.run()
    told = "destination ops has not taken its last indication"
    assert room(deliverer) == Room(0, told)
    deliverer.service.purge("ops")
    assert room(deliverer) == Room(1, told)
    deliverer.publish("3")
    deliverer.run()
    deliverer.handlers["ops"].answer = SUCCESS
    deliverer.advance(60.0)
    assert room(deliverer).places == 5


def test_nothing_goes_to_one_that_takes_nothing() -> None:
    deliverer = given(suspended=True)
    assert room(deliverer) == Room(0, "destination ops is suspended")
    deliverer = given()
    deliverer.handlers["ops"].answer = HELD
    deliverer.publish("1")
    deliverer.run()
    assert room(deliverer) == Room(0, "destination ops is held")
    assert deliverer.service.room_to_repeat("no") == Room(0, "there is no destination no")
