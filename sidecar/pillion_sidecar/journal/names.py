"""The indices that stand for destinations and subscriptions in the journal's records."""

from collections.abc import Iterable, Mapping

from pillion_sidecar.journal.ports import RecoveredSubscription
from pillion_sidecar.journal.records import Names
from pillion_sidecar.journal.recovery import Recovery


class NameTable:
    """Assigns indices, and remembers which the log does not have yet."""

    def __init__(
        self,
        *,
        destinations: Mapping[int, tuple[str, str]],
        subscriptions: Mapping[int, RecoveredSubscription],
        next_destination: int,
        next_subscription: int,
        needed_destinations: Iterable[int],
        needed_subscriptions: Iterable[int],
    ) -> None:
        """The names of earlier runs; ``needed``: indices that pending records refer to."""
        self._destinations = {uid: (index, name) for index, (uid, name) in destinations.items()}
        self._subscriptions = {
            one.uid: (index, one.name, one.filter_name) for index, one in subscriptions.items()
        }
        self._next_destination = next_destination
        self._next_subscription = next_subscription
        # A snapshot omits names that are neither used nor pending, so that old ones are forgotten.
        self._used_destinations = set(needed_destinations)
        self._used_subscriptions = set(needed_subscriptions)
        self._new_destinations: list[tuple[int, str, str]] = []
        self._new_subscriptions: list[tuple[int, str, str, str]] = []
        self.has_new = False

    def destination(self, uid: str, name: str) -> int:
        known = self._destinations.get(uid)
        index = self._next_destination if known is None else known[0]
        if known is None:
            self._next_destination += 1
        # A name of an earlier run may be missing from this run's snapshot.
        if known is None or known[1] != name or index not in self._used_destinations:
            self._destinations[uid] = (index, name)
            self._new_destinations.append((index, uid, name))
            self.has_new = True
        self._used_destinations.add(index)
        return index

    def subscription(self, uid: str, name: str, filter_name: str) -> int:
        known = self._subscriptions.get(uid)
        index = self._next_subscription if known is None else known[0]
        if known is None:
            self._next_subscription += 1
        is_same = known is not None and known[1:] == (name, filter_name)
        if not is_same or index not in self._used_subscriptions:
            self._subscriptions[uid] = (index, name, filter_name)
            self._new_subscriptions.append((index, uid, name, filter_name))
            self.has_new = True
        self._used_subscriptions.add(index)
        return index

    def take_new(self) -> Names:
        """Return the names that the log does not have; it gets them now."""
        names = Names(tuple(self._new_destinations), tuple(self._new_subscriptions))
        self._tell()
        return names

    def _tell(self) -> None:
        self._new_destinations, self._new_subscriptions = [], []
        self.has_new = False

    def take_all(self) -> Names:
        self._tell()
        return Names(
            tuple(
                (index, uid, name)
                for uid, (index, name) in self._destinations.items()
                if index in self._used_destinations
            ),
            tuple(
                (index, uid, name, filter_name)
                for uid, (index, name, filter_name) in self._subscriptions.items()
                if index in self._used_subscriptions
            ),
        )


def recovered_names(recovery: Recovery) -> NameTable:
    queues, held = recovery.recovered.queues, recovery.recovered.held
    destinations = {index for index, queue in queues.items() if queue.ids}
    subscriptions: set[int] = set()
    for queue in queues.values():
        subscriptions.update(queue.subscriptions)
    for _, places in held:
        destinations.update(place.destination for place in places)
        subscriptions.update(place.subscription for place in places)
    return NameTable(
        destinations=recovery.destinations,
        subscriptions=recovery.recovered.subscriptions,
        next_destination=recovery.next_destination,
        next_subscription=recovery.next_subscription,
        needed_destinations=destinations,
        needed_subscriptions=subscriptions,
    )
