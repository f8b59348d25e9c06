"""What a gateway still has though nobody relays it there any more.

A service that is deleted, or that names another gateway, or a destination that sidecars deliver to
by themselves again: the gateway must go on to deliver what it has taken over. So it keeps those
subscriptions until no sidecar can relay for them any more and it has been seen to hold nothing of
them after that. A subscription or destination that is deleted itself goes as ever.
"""

import base64
import binascii
from collections.abc import Iterable

from pillion_operator.cluster.types import Object
from pillion_operator.controllers.context import Context
from pillion_operator.controllers.states import spec_of
from pillion_operator.evaluation.namespace import being_deleted, draining
from pillion_operator.evaluation.references import (
    DESTINATION,
    SERVICE,
    SUBSCRIPTION,
    service_of,
)
from pillion_operator.names import CONFIGURATION_PARTS, OPERATOR_TOKEN, configuration_secret
from pillion_operator.polling.reports import DelivererReport, Unreachable
from pillion_operator.store import Key
from pillion_sidecar.config.rendered import CorruptRevisionError, is_part, items, unpack

#: Seconds after which it is looked again whether a gateway still has what nobody relays any more:
#: at first, and, twice as many each time, at most.
FIRST_LOOK = 15.0
LONGEST_LOOK = 300.0


class Lingering:
    """Says which subscriptions a gateway has to keep."""

    def __init__(self, context: Context) -> None:
        self._context = context
        #: By gateway and subscription: since when nobody can relay for it, in seconds since the
        #: epoch.
        self._quiet: dict[Key, dict[str, float]] = {}
        #: By gateway: when (monotonic) it is to be looked again, and the wait until then.
        self._looks: dict[Key, tuple[float, float]] = {}

    def of(self, gateway: Key, *, relayed: Iterable[str]) -> set[str]:
        """The names of subscriptions that the gateway has, and that are not in ``relayed``, and
        still has to have."""
        quiet = self._quiet.pop(gateway, {})
        left, kept = set(), {}
        for name in self._rendered(gateway) - set(relayed):
            subscription = self._context.store.get(Key(SUBSCRIPTION, gateway.namespace, name))
            if subscription is None or service_of(subscription) == gateway.name:
                continue
            if self._may_relay(subscription):
                left.add(name)
                continue
            kept[name] = quiet.get(name, self._context.clock.time())
            if self._may_hold(gateway, subscription, since=kept[name]):
                left.add(name)
        if kept:
            self._quiet[gateway] = kept
        return left

    def forget(self, gateway: Key) -> None:
        self._quiet.pop(gateway, None)
        self._looks.pop(gateway, None)

    def again(self, gateway: Key, *, kept: bool) -> float | None:
        """Seconds until the gateway is to be looked at again; None where nothing is ``kept``."""
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
        """The destinations that are being deleted, and of which a sidecar that relays to the
        gateway may still hold something: it drains them by relaying, so the gateway comes last."""
        kept = set()
        for key in draining(self._context.store, gateway.namespace):
            holding = (
                self._may_drain(key, guest) for guest in self._context.references.guests(gateway)
            )
            if any(holding):
                kept.add(key.name)
        return kept

    def _may_drain(self, destination: Key, service: Key) -> bool:
        state = self._context.states.get(service)
        if state is None or destination in state.rollout:
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
        """The subscriptions in the gateway's configuration, whoever has rendered it."""
        state = self._context.states.get(gateway)
        if state is not None and state.rollout.revision is not None:
            return {key.name for key in state.rollout.keys if key.kind == SUBSCRIPTION}
        files: dict[str, bytes] = {}
        for part in range(CONFIGURATION_PARTS):
            name = configuration_secret(gateway.name, part)
            secret = self._context.store.get(Key("Secret", gateway.namespace, name)) or {}
            for file, value in (secret.get("data") or {}).items():
                if file != OPERATOR_TOKEN and is_part(file):
                    files[file] = _decoded(value)
        try:
            found = unpack(files)
            return set() if found is None else _subscriptions(items(found.text))
        except (CorruptRevisionError, ValueError):
            # Somebody else has written there; it is about to be set right.
            return set()

    def _may_relay(self, subscription: Object) -> bool:
        """Whether a deliverer of its service may still run on an older configuration."""
        service = Key(SERVICE, subscription["metadata"]["namespace"], service_of(subscription))
        pods = self._context.pods(service)
        if not pods:
            return False
        body, state = self._context.store.get(service), self._context.states.get(service)
        if body is None or being_deleted(body) or state is None:
            # Nobody tells them anything any more: they go on as they are.
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
        """Whether the service's configuration has its destination as that is now, if at all."""
        key = _destination(subscription)
        body, state = self._context.store.get(key), self._context.states.get(service)
        if body is None or state is None or key not in state.evaluation.content:
            return True
        return state.evaluation.holds(key, self._context.parsing.parse(body).item)

    def _may_hold(self, gateway: Key, subscription: Object, *, since: float) -> bool:
        """Whether the gateway has not been seen, after ``since``, to hold nothing of it."""
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
    name = ((subscription.get("spec") or {}).get("destinationRef") or {}).get("name", "")
    return Key(DESTINATION, subscription["metadata"]["namespace"], name)


def _subscriptions(rendered: Iterable[Object]) -> set[str]:
    return {item["metadata"]["name"] for item in rendered if item.get("kind") == SUBSCRIPTION}


def _decoded(value: str) -> bytes:
    try:
        return base64.b64decode(value)
    except binascii.Error:
        return b""
