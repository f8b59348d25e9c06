"""Reports the indications lost with the volume of a sidecar that ended. The sources, in order: the
deliverer's termination message, which is exact; its last report, which may be seconds old; nothing,
if it never answered this leader."""

import json
import logging
import re
from collections.abc import Mapping
from typing import TypeGuard

from pillion_operator.clock import Clock
from pillion_operator.cluster.types import Object, container_state
from pillion_operator.evaluation.references import stores_named
from pillion_operator.events import EventRecorder
from pillion_operator.names import CONTAINER
from pillion_operator.polling.poller import Departure
from pillion_operator.status.conditions import some_of
from pillion_operator.store import Key, Store
from pillion_operator.telemetry.metrics import Metrics

logger = logging.getLogger("pillion.operator")

#: Maximum characters of a termination message (the kubelet's bound), and the largest count.
_LONGEST_MESSAGE = 4096
_LARGEST_COUNT = 2**53
_NAME = re.compile(r"[a-z0-9][a-z0-9.-]{0,252}")


class LostDeliveries:
    def __init__(
        self, *, store: Store, recorder: EventRecorder, metrics: Metrics, clock: Clock
    ) -> None:
        self._store = store
        self._recorder = recorder
        self._metrics = metrics
        self._clock = clock

    def report(self, service: Key, departure: Departure, *, pod: Object | None) -> None:
        """Report a deliverer that is gone; ``pod`` is the last known state of its pod."""
        if pod is not None and outlives(pod):
            return
        exact = None if pod is None else left_behind(pod)
        last = departure.last
        lost = exact[0] if exact else sum(last.pending.values() if last else ())
        if not lost:
            return
        body = self._store.get(service)
        if body is not None and stores_named(body):
            # Its stores keep its journal: ``SessionsPending`` tells of it.
            return
        self._metrics.lost_pending.labels(service.namespace, service.name).inc(lost)
        note = self._note(departure, lost=lost, destinations=None if exact is None else exact[1])
        logger.warning(
            "%s %s: %s",
            service,
            departure.pod,
            note,
            extra={
                "event": "deliverer-lost-pending",
                "namespace": service.namespace,
                "service": service.name,
                "pod": departure.pod,
                "pending": lost,
                "exact": exact is not None,
            },
        )
        if body is not None:
            self._recorder.publish(
                body,
                type="Warning",
                reason="DelivererLost",
                note=note,
                action="Observe",
            )

    def _note(
        self, departure: Departure, *, lost: int, destinations: Mapping[str, int] | None
    ) -> str:
        """``destinations`` are those of the termination message; None without one."""
        last = departure.last
        where = "" if last is None else _named(last.pending)
        if destinations is not None:
            message = (
                f"Pod {departure.pod} ended, and its volume was deleted with {lost} pending "
                "indication(s), by the last message of its deliverer."
            )
            if destinations:
                return f"{message} They are for {_named(destinations)}."
            return message + (f" Last seen: {where}." if where else "")
        age = 0.0 if last is None else max(0.0, self._clock.time() - last.at)
        return (
            f"Pod {departure.pod} ended, and its volume was deleted. By the last answer of its "
            f"deliverer, {age:.0f} s before, {lost} indication(s) were pending: {where}. Later "
            "changes are unknown."
        )


def outlives(pod: Object) -> bool:
    return bool((pod.get("spec") or {}).get("volumes"))


def _named(places: Mapping[str, int]) -> str:
    named = sorted(places.items(), key=lambda item: (-item[1], item[0]))
    return some_of([f"{name} {depth}" for name, depth in named])


def left_behind(pod: Object) -> tuple[int, Mapping[str, int]] | None:
    """The number of indications in the termination message, in all and by destination; None without
    such a message."""
    message = (container_state(pod, CONTAINER).get("terminated") or {}).get("message")
    if not isinstance(message, str) or len(message) > _LONGEST_MESSAGE:
        return None
    try:
        document = json.loads(message)
    except (ValueError, RecursionError):
        # The end of the log, after a failure.
        return None
    left = document.get("left") if isinstance(document, dict) else None
    if not _is_count(left):
        return None
    # Deliverers of the first version name none.
    named = document.get("destinations")
    places = named if isinstance(named, dict) else {}
    return left, {name: n for name, n in places.items() if _NAME.fullmatch(name) and _is_count(n)}


def _is_count(value: object) -> TypeGuard[int]:
    return type(value) is int and 0 <= value <= _LARGEST_COUNT
