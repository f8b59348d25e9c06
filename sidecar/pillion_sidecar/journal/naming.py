"""The indexes that stand for destinations and subscriptions in a journal's records."""

from collections.abc import Iterable, Mapping

from pillion_sidecar.journal.ports import RecoveredSubscription
from pillion_sidecar.journal.records import Names
from pillion_sidecar.journal.recovery import Recovery


class Naming:
    """Gives indexes, and remembers which the log must still be told."""

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
        """The names that earlier runs gave; ``needed``: indexes that stand in pending records."""
        self._destinations = {uid: (index, name) for index, (uid, name) in destinations.items()}
        self._subscriptions = {
            one.uid: (index, one.name, one.filter_name) for index, one in subscriptions.items()
        }
        self._next_destination = next_destination
        self._next_subscription = next_subscription
        # A snapshot leaves out what nobody has asked for and nothing pending names: so what was
        # deleted long ago is forgotten.
        self._used_destinations = set(needed_destinations)
        self._used_subscriptions = set(needed_subscriptions)
        self._new_destinations: list[tuple[int, str, str]] = []
        self._new_subscriptions: list[tuple[int, str, str, str]] = []

    def destination(self, uid: str, name: str) -> int:
        """Return the index of a destination."""
        known = self._destinations.get(uid)
        index = self._next_destination if known is None else known[0]
        if known is None:
            self._next_destination += 1
        # A name of an earlier run may be missing from this run's snapshot.
        if known is None or known[1] != name or index not in self._used_destinations:
            self._destinations[uid] = (index, name)
            self._new_destinations.append((index, uid, name))
        self._used_destinations.add(index)
        return index

    def subscription(self, uid: str, name: str, filter_name: str) -> int:
        """Return the index of a subscription."""
        known = self._subscriptions.get(uid)
        index = self._next_subscription if known is None else known[0]
        if known is None:
            self._next_subscription += 1
        is_same = known is not None and known[1:] == (name, filter_name)
        if not is_same or index not in self._used_subscriptions:
            self._subscriptions[uid] = (index, name, filter_name)
            self._new_subscriptions.append((index, uid, name, filter_name))
        self._used_subscriptions.add(index)
        return index

    @property
    def has_new(self) -> bool:
        """Whether there are names that the log has not been told."""
        return bool(self._new_destinations or self._new_subscriptions)

    def take_new(self) -> Names:
        """Return those names; the log is told them now."""
        names = Names(tuple(self._new_destinations), tuple(self._new_subscriptions))
        self._new_destinations, self._new_subscriptions = [], []
        return names

    def take_all(self) -> Names:
        """Return all names that are in use; the log is told them now."""
        self._new_destinations, self._new_subscriptions = [], []
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


def recovered_names(recovery: Recovery) -> Naming:
    """Return the names that earlier runs left."""
    queues, held = recovery.recovered.queues, recovery.recovered.held
    destinations = {index for index, queue in queues.items() if queue.ids}
    subscriptions: set[int] = set()
    for queue in queues.values():
        subscriptions.update(queue.subscriptions)
    for _, places in held:
        destinations.update(place.destination for place in places)
        subscriptions.update(place.subscription for place in places)
    return Naming(
        destinations=recovery.destinations,
        subscriptions=recovery.recovered.subscriptions,
        next_destination=recovery.next_destination,
        next_subscription=recovery.next_subscription,
        needed_destinations=destinations,
        needed_subscriptions=subscriptions,
    )
