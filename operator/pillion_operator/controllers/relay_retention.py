"""Keeps subscriptions at a gateway that are no longer relayed to it.

After a service is deleted, changes its gateway or delivers by itself again, the gateway must still
deliver what it has accepted. So it keeps such subscriptions until no sidecar can relay for them and
it has since been seen to hold nothing of them. Deleted subscriptions and destinations are not kept,
nor those of a service whose status says that it has abandoned the relay.
"""

from collections.abc import Iterable

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import spec_of
from pillion_operator.evaluation.lastgood import rendered_objects, was_rendered
from pillion_operator.evaluation.namespace import draining
from pillion_operator.evaluation.references import (
    DESTINATION,
    SECRET,
    SERVICE,
    SUBSCRIPTION,
    destination_ref,
    service_of,
)
from pillion_operator.names import CONFIGURATION_PARTS, configuration_secret
from pillion_operator.polling.reports import DelivererReport, Unreachable
from pillion_operator.status.relaying import abandoned_gateway
from pillion_operator.store import Key

#: Seconds to the next check of what a gateway still holds: at first, doubling, and at most.
FIRST_LOOK = 15.0
LONGEST_LOOK = 300.0


class Lingering:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: By gateway and subscription: since when none can relay for it, in seconds since the
        #: epoch.
        self._quiet: dict[Key, dict[str, float]] = {}
        #: By gateway: the (monotonic) time of the next check, and the wait until then.
        self._looks: dict[Key, tuple[float, float]] = {}

    def of(self, gateway: Key, *, relayed: Iterable[str]) -> dict[str, set[str]]:
        """By service, the names of subscriptions that are not in ``relayed`` and that the gateway
        must keep."""
        quiet = self._quiet.pop(gateway, {})
        left: dict[str, set[str]] = {}
        kept = {}
        for name in self._rendered(gateway) - set(relayed):
            subscription = self._context.store.get(Key(SUBSCRIPTION, gateway.namespace, name))
            if subscription is None or service_of(subscription) == gateway.name:
                continue
            service = Key(SERVICE, gateway.namespace, service_of(subscription))
            if abandoned_gateway(self._context.store.get(service)) == gateway.name:
                continue
            keeps = self._may_relay(subscription)
            if not keeps:
                kept[name] = quiet.get(name, self._context.clock.time())
                keeps = self._may_hold(gateway, subscription, since=kept[name])
            if keeps:
                left.setdefault(service.name, set()).add(name)
        if kept:
            self._quiet[gateway] = kept
        return left

    def forget(self, gateway: Key) -> None:
        self._quiet.pop(gateway, None)
        self._looks.pop(gateway, None)

    def again(self, gateway: Key, *, kept: bool) -> float | None:
        """Seconds until the gateway's next check; None if nothing is ``kept``."""
        if not kept:
            self._looks.pop(gateway, None)
            return None
        now = self._context.clock.monotonic()
        due, wait = self._looks.get(gateway, (now, FIRST_LOOK / 2))
        if now >= due:
            wait = min(2 * wait, LONGEST_LOOK)
            due = now + wait
            self._looks[gateway] = (due, wait)
        return due - now

    def draining(self, gateway: Key) -> set[str]:
        """The destinations being deleted of which a sidecar may still hold indications: it drains
        them by relaying, so the gateway drains last."""
        guests = self._context.references.guests(gateway)
        return {
            key.name
            for key in draining(self._context.store, gateway.namespace)
            if any(self._may_drain(key, guest) for guest in guests)
        }

    def _may_drain(self, destination: Key, service: Key) -> bool:
        state = self._context.states.get(service)
        if state is None or destination in state.rollout.content:
            return True
        for answer in self._context.answers(service):
            if isinstance(answer, Unreachable):
                if destination.name in answer.held:
                    return True
            elif destination.name in answer.queues or answer.revision not in (
                None,
                state.rollout.revision,
            ):
                return True
        return False

    def _rendered(self, gateway: Key) -> set[str]:
        state = self._context.states.get(gateway)
        if state is not None and state.rollout.revision is not None:
            return {key.name for key in state.rollout.content if key.kind == SUBSCRIPTION}
        names = (configuration_secret(gateway.name, part) for part in range(CONFIGURATION_PARTS))
        secrets = (self._context.store.get(Key(SECRET, gateway.namespace, name)) for name in names)
        found = rendered_objects(filter(None, secrets))
        if not found and was_rendered(self._context.store.get(gateway)):
            # The Secret is lost. Until the gateway's report says more, it may hold anything.
            return set(self._context.store.all(SUBSCRIPTION, gateway.namespace))
        return {one["metadata"]["name"] for one in found if one["kind"] == SUBSCRIPTION}

    def _may_relay(self, subscription: Object) -> bool:
        service = Key(SERVICE, subscription["metadata"]["namespace"], service_of(subscription))
        pods = self._context.pods(service)
        if not pods:
            return False
        body, state = self._context.store.get(service), self._context.states.get(service)
        if body is None or being_deleted(body) or state is None:
            # They get no configuration any more, so they continue as they are.
            return True
        if state.evaluated != spec_of(body) or not state.written:
            return True
        if not self._destination_rendered(subscription, service):
            return True
        answers = [
            answer
            for answer in self._context.answers(service)
            if isinstance(answer, DelivererReport) and answer.revision == state.rollout.revision
        ]
        return len(answers) < len(pods)

    def _destination_rendered(self, subscription: Object, service: Key) -> bool:
        """Whether the service's configuration has the current version of its destination, if
        any."""
        key = _destination(subscription)
        body, state = self._context.store.get(key), self._context.states.get(service)
        if body is None or state is None or key not in state.evaluation.content:
            return True
        return state.evaluation.holds(key, self._context.parsing.parse(body).item)

    def _may_hold(self, gateway: Key, subscription: Object, *, since: float) -> bool:
        """Whether the gateway may hold indications of it: no report after ``since`` shows none."""
        name = _destination(subscription).name
        answers = self._context.answers(gateway)
        seen = [
            answer
            for answer in answers
            if isinstance(answer, DelivererReport)
            and answer.at > since
            and (name not in answer.queues or not answer.queues[name].depth)
        ]
        return not seen or len(seen) < max(len(answers), len(self._context.pods(gateway)))


def _destination(subscription: Object) -> Key:
    return Key(DESTINATION, subscription["metadata"]["namespace"], destination_ref(subscription))
