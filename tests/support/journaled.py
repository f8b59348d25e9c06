"""A delivery service that goes on with what a fake journal has of the run before."""

from pillion_sidecar.journal.ports import (
    NO_NUMBER,
    Recovered,
    RecoveredQueue,
    RecoveredSubscription,
)
from pillion_sidecar.testing import FakeTime
from support.delivery import Deliverer
from support.fake_journal import FakeJournal


def restarted(
    journal: FakeJournal, *, time: FakeTime | None = None, damaged: bool = False
) -> Deliverer:
    """A deliverer that finds what the journal has: everything that was taken and not settled."""
    gone = {(d, n) for d, n, _, through in journal.settled if not through}
    through: dict[int, int] = {}
    for d, n, _, is_through in journal.settled:
        if is_through:
            through[d] = n
    queues = {}
    for uid, index in journal.destinations.items():
        state = journal.states.get(index)
        queues[index] = RecoveredQueue(
            uid=uid, name=uid.removeprefix("uid-"), index=index, state=state
        )
    held = []
    for record_id, (indication, places) in journal.records.items():
        position = next(p for p, found in journal.positions.items() if found == record_id)
        if any(place.number == NO_NUMBER for place in places):
            if record_id not in journal.released:
                held.append((indication, places))
            continue
        for place in places:
            queue = queues[place.destination]
            queue.next_number = max(queue.next_number, place.number + 1)
            if place.number <= through.get(place.destination, -1) or place[::2] in gone:
                continue
            queue.ids.append(record_id)
            queue.positions.append(position)
            queue.numbers.append(place.number)
            queue.subscriptions.append(place.subscription)
    epochs = [state.epoch for state in journal.states.values()]
    recovered = Recovered(
        queues=queues,
        subscriptions={
            index: RecoveredSubscription(uid, uid.removeprefix("uid-"), "filter")
            for uid, index in journal.subscriptions.items()
        },
        held=held,
        next_epoch=max(epochs, default=-1) + 1,
        damaged=damaged,
    )
    return Deliverer(journal=journal, recovered=recovered, time=time)


def settle_loads(deliverer: Deliverer, journal: FakeJournal) -> None:
    """Let reads and turns happen until none is left."""
    deliverer.run()
    while journal.finish_loads():
        deliverer.run()
