"""Which list of properties an attempt is given: that of the subscription's filter now (D.3)."""

from pillion_sidecar.indication import Selection, selection_of
from support.delivery import ERROR, SUCCESS, Deliverer, destination, subscription

EVENT, MESSAGE = selection_of(["EventID"]), selection_of(["Message"])


def select(deliverer: Deliverer, **selections: Selection) -> None:
    """Apply the same resources again, with the lists of these filters."""
    deliverer.service.apply(deliverer.configuration, selections=selections)
    deliverer.run()


def lists(deliverer: Deliverer, name: str) -> list[Selection | None]:
    return [attempt.selection for attempt in deliverer.handlers[name].attempts]


def test_each_attempt_has_the_list_that_its_filter_has_now() -> None:
    deliverer = Deliverer()
    deliverer.answer = ERROR
    severe = subscription("severe-to-ops", "ops", filter_name="severe")
    others = subscription("others-to-noc", "noc", filter_name="others")
    deliverer.apply([destination("ops"), destination("noc")], [severe, others])
    select(deliverer, severe=EVENT)
    deliverer.publish("1")
    deliverer.run()
    select(deliverer, severe=MESSAGE)
    deliverer.advance(30.0)
    select(deliverer)
    deliverer.advance(30.0)
    assert lists(deliverer, "ops") == [EVENT, MESSAGE, None]
    assert lists(deliverer, "noc") == [None, None, None]


def test_a_changed_subscription_has_the_list_of_its_new_filter() -> None:
    deliverer = Deliverer()
    deliverer.answer = ERROR
    deliverer.apply([destination("ops")], [subscription("a", "ops", filter_name="severe")])
    select(deliverer, severe=EVENT, others=MESSAGE)
    deliverer.publish("1")
    deliverer.run()
    deliverer.apply([destination("ops")], [subscription("a", "ops", filter_name="others")])
    select(deliverer, severe=EVENT, others=MESSAGE)
    deliverer.advance(30.0)
    assert lists(deliverer, "ops") == [EVENT, MESSAGE]


def test_what_follows_is_prepared_with_its_own_list() -> None:
    deliverer = Deliverer()
    deliverer.answer = None
    severe = subscription("severe", "ops", filter_name="severe")
    deliverer.apply([destination("ops")], [severe, subscription("others", "ops")])
    select(deliverer, severe=EVENT)
    for identifier, name in (("1", "others"), ("2", "others"), ("3", "severe"), ("4", "others")):
        deliverer.publish(identifier, name)
    deliverer.run()
    for _ in range(2):
        deliverer.answer_held("ops", SUCCESS)
    assert deliverer.handlers["ops"].prepared == ["3", "4"]
    assert deliverer.handlers["ops"].prepared_lists == [EVENT, None]
