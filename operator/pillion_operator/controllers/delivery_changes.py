"""What a round of answers has changed: the keys whose status may say something else now."""

from collections.abc import Callable, Mapping, Sequence

from pillion_operator.controllers.ports import Answer, Deliverers
from pillion_operator.controllers.readiness import running_on
from pillion_operator.controllers.states import ServiceStates
from pillion_operator.controllers.triggers import status_of
from pillion_operator.evaluation.namespace import draining
from pillion_operator.evaluation.references import (
    DESTINATION,
    SERVICE,
    SUBSCRIPTION,
    References,
)
from pillion_operator.polling.aggregate import DestinationDelivery, deliveries
from pillion_operator.polling.reports import DelivererReport
from pillion_operator.store import Key, Store


class DeliveryNews:
    """Hears from the gatherer, and has reconciled what differs from the time before."""

    def __init__(
        self,
        *,
        store: Store,
        references: References,
        states: ServiceStates,
        enqueue: Callable[[Key], None],
    ) -> None:
        self._store = store
        self._references = references
        self._states = states
        self._enqueue = enqueue
        self._before: dict[Key, Mapping[str, DestinationDelivery]] = {}

    def heard(self, namespace: str, name: str, *, deliverers: Deliverers) -> None:
        """The deliverers of a service have said something new."""
        service = Key(SERVICE, namespace, name)
        reports = deliverers.reports(namespace, name)
        now = deliveries(reports)
        before = self._before.get(service, {})
        if now:
            self._before[service] = now
        else:
            self._before.pop(service, None)
        for destination in sorted(now.keys() | before.keys()):
            if now.get(destination) != before.get(destination):
                self._enqueue(Key(DESTINATION, namespace, destination))
        self._drained(service)
        for report in reports:
            if isinstance(report, DelivererReport):
                for ended in report.ended:
                    self._enqueue(Key(SUBSCRIPTION, namespace, ended.name))
        for key in sorted(self._concerned(service, reports)):
            self._enqueue(key)
        self._enqueue(status_of(service))
        for guest in sorted(self._references.guests(service)):
            # Theirs says whether their gateway runs.
            self._enqueue(status_of(guest))

    def _drained(self, service: Key) -> None:
        held = sorted(draining(self._store, service.namespace))
        for key in held:
            self._enqueue(key)
        for gateway in sorted(self._references.gateways_of(service)) if held else ():
            # It drains what its guests have relayed, after them.
            self._enqueue(gateway)

    def _concerned(self, service: Key, reports: Sequence[Answer]) -> frozenset[Key]:
        """The objects of which the status may say something else, whatever their queues do."""
        state = self._states.get(service)
        if state is None:
            return frozenset(self._references.served_by(service))
        running = running_on(reports)
        if running == state.running:
            return frozenset(state.pending)
        state.running = running
        return frozenset(self._references.served_by(service)) | state.pending
