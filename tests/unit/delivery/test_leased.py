"""Nothing is delivered without the lease that a journal asks for (S3.9)."""

from collections.abc import Callable

from support.delivery import Deliverer, destination
from support.fake_journal import FakeJournal


class Lease:
    def __init__(self) -> None:
        self.held = True
        self._changed: list[Callable[[], None]] = []

    def holds(self) -> bool:
        return self.held

    def follow(self, changed: Callable[[], None]) -> None:
        self._changed.append(changed)

    def change(self, held: bool) -> None:
        self.held = held
        if held:
            for changed in self._changed:
                changed()


def test_no_attempt_begins_without_the_lease_and_all_go_on_with_it() -> None:
    journal, lease = FakeJournal(), Lease()
    journal.lease = lease
    deliverer = Deliverer(journal=journal)
    deliverer.apply([destination("ops")])

    def publish(identifier: str) -> None:
        deliverer.publish(identifier)
        journal.commit()
        deliverer.run()

    def attempted() -> list[str | None]:
        return [one.indication.identifier for one in deliverer.handlers["ops"].attempts]

    publish("a")
    lease.change(False)
    for identifier in "bc":
        publish(identifier)
    assert attempted() == ["a"]
    lease.change(True)
    deliverer.run()
    assert attempted() == ["a", "b", "c"]
