"""What a round of answers has changed: the keys whose status may say something else now."""

from collections.abc import Callable, Mapping

from pillion_operator.evaluation.references import DESTINATION, SERVICE, SUBSCRIPTION
from pillion_operator.gathering.aggregate import DestinationDelivery, deliveries
from pillion_operator.gathering.reports import DelivererReport
from pillion_operator.reconciling.ports import Deliverers
from pillion_operator.reconciling.states import ServiceStates
from pillion_operator.reconciling.triggers import status_of
from pillion_operator.store import Key


class DeliveryNews:
    """Hears from the gatherer, and has reconciled what differs from the time before."""

    def __init__(self, *, states: ServiceStates, enqueue: Callable[[Key], None]) -> None:
        self._states = states
        self._enqueue = enqueue
        self._before: dict[Key, Mapping[str, DestinationDelivery]] = {}

    def heard(self, namespace: str, name: str, *, deliverers: Deliverers) -> None:
        """The deliverers of a service have said something new."""
        service = Key(SERVICE, namespace, name)
        reports = deliverers.reports(namespace, name)
        now = deliveries(reports)
        before = self._before.get(service, {})
        self._before[service] = now
        for destination in sorted(now.keys() | before.keys()):
            if now.get(destination) != before.get(destination):
                self._enqueue(Key(DESTINATION, namespace, destination))
        for report in reports:
            if isinstance(report, DelivererReport):
                for ended in report.ended:
                    self._enqueue(Key(SUBSCRIPTION, namespace, ended.name))
        state = self._states.get(service)
        for key in sorted(state.pending) if state is not None else ():
            self._enqueue(key)
        self._enqueue(status_of(service))

    def forget(self, service: Key) -> None:
        """A service is gone."""
        self._before.pop(service, None)
