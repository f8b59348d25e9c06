"""Keeps destinations that still hold what ended replays have queued.

A destination may be in a configuration for a replay alone. When the replay is complete, has failed
or is deleted, its indications may still be queued, at a gateway above all. Without the destination
deliverers would discard them, and a gateway would refuse what sidecars relay.
"""

from collections.abc import Collection, Iterable
from dataclasses import dataclass

from pillion_operator.cluster.types import Object, being_deleted
from pillion_operator.controllers.context import Context
from pillion_operator.evaluation.references import (
    DESTINATION,
    REPLAY,
    SUBSCRIPTION,
    destination_ref,
    is_gateway,
)
from pillion_operator.polling.reports import DelivererReport
from pillion_operator.store import Key

#: Minimum and maximum seconds to the next check of what deliverers still hold.
FIRST_LOOK = 10.0
LONGEST_LOOK = 300.0


@dataclass(slots=True)
class _Left:
    """A destination that no replay needs, with times in seconds since the epoch."""

    since: float
    #: Since when no sidecar relays to it; None: some may.
    unrelayed: float | None = None


class Remains:
    def __init__(self, context: Context) -> None:
        self._context = context
        #: By service and destination.
        self._left: dict[Key, dict[str, _Left]] = {}
        #: By service: the destinations that replays led to when it was last accepted.
        self._direct: dict[Key, Collection[str]] = {}

    def of(
        self, service: Key, *, replays: Iterable[str], before: Iterable[Object]
    ) -> frozenset[str]:
        """The destinations that a service must keep. ``replays`` are those under way, ``before``
        the objects in its configuration when this operator begins to lead."""
        used = self._used_by(service, replays)
        known = self._left.pop(service, {})
        now = self._context.clock.time()
        found = {
            name: known.get(name) or _Left(now)
            for name in self._led_to(service, before)
            if name not in used
        }
        kept = {name: left for name, left in found.items() if self._is_needed(service, name, left)}
        if kept:
            self._left[service] = kept
            waited = now - min(left.since for left in kept.values())
            self._context.requeue(service, min(LONGEST_LOOK, max(FIRST_LOOK, waited)))
        return frozenset(kept)

    def forget(self, service: Key) -> None:
        self._left.pop(service, None)
        self._direct.pop(service, None)

    def _used_by(self, service: Key, replays: Iterable[str]) -> set[str]:
        bodies = (self._context.store.get(Key(REPLAY, service.namespace, name)) for name in replays)
        return {destination_ref(body) for body in bodies if body is not None}

    def _led_to(self, service: Key, before: Iterable[Object]) -> Collection[str]:
        """The destinations that replays led to in the configuration so far."""
        state = self._context.states.get(service)
        if state is not None and state.evaluation.verdict.accepted:
            self._direct[service] = state.evaluation.direct
        elif service not in self._direct:
            self._direct[service] = _without_subscription(before)
        return self._direct[service]

    def _is_needed(self, service: Key, destination: str, left: _Left) -> bool:
        body = self._context.store.get(Key(DESTINATION, service.namespace, destination))
        if body is None or being_deleted(body):
            return False
        here = self._context.store.get(service)
        guests = self._context.references.guests(service) if is_gateway(here) else ()
        if not self._context.has_synced([service, *guests]):
            return True
        if any(self._may_relay(guest, destination, since=left.since) for guest in guests):
            left.unrelayed = None
            return True
        if left.unrelayed is None:
            # What the gateway held before says nothing of the last that was relayed.
            left.unrelayed = self._context.clock.time() if guests else left.since
        pods = {pod["metadata"]["name"] for pod in self._context.pods(service)}
        # The pod of a gateway comes back, with its queues.
        lasting = is_gateway(here) and not pods
        return lasting or not pods <= self._empty(service, destination, since=left.unrelayed)

    def _may_relay(self, guest: Key, destination: str, *, since: float) -> bool:
        """Whether a deliverer of a guest may still relay for it."""
        pods = {pod["metadata"]["name"] for pod in self._context.pods(guest, terminating=True)}
        if not pods:
            return False
        state = self._context.states.get(guest)
        if state is None or not state.evaluation.verdict.accepted:
            # They get no configuration any more, so they continue as they are.
            return True
        revision = state.rollout.revision
        if revision is None or destination in state.evaluation.direct:
            return True
        return not pods <= self._empty(guest, destination, since=since, revision=revision)

    def _empty(
        self, service: Key, destination: str, *, since: float, revision: str | None = None
    ) -> set[str]:
        """The pods of which a report after ``since``, and with that revision if any, shows that
        they hold nothing for it."""
        return {
            answer.pod
            for answer in self._context.answers(service)
            if isinstance(answer, DelivererReport)
            and answer.at > since
            and revision in (None, answer.revision)
            and not answer.pending.get(destination)
        }


def _without_subscription(rendered: Iterable[Object]) -> frozenset[str]:
    """The destinations of a configuration that no subscription leads to, but a replay has."""
    names: dict[str, set[str]] = {DESTINATION: set(), SUBSCRIPTION: set()}
    for one in rendered:
        if one["kind"] == DESTINATION:
            names[DESTINATION].add(one["metadata"]["name"])
        elif one["kind"] == SUBSCRIPTION and isinstance(one.get("spec"), dict):
            names[SUBSCRIPTION].add(destination_ref(one))
    return frozenset(names[DESTINATION] - names[SUBSCRIPTION])
