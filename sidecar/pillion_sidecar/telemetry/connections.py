"""The connections of plain listeners: how many there are, and how many were closed for want of
places."""

from collections import Counter
from collections.abc import Callable, Iterator

from pillion_sidecar.telemetry import definitions
from pillion_sidecar.telemetry.door import GivenUp


class ListenerConnections:
    """What one listener counts (``door.entrance.EntranceObserver``)."""

    def __init__(self) -> None:
        self.given_up = Counter(dict.fromkeys(GivenUp, 0))
        self._connections: Callable[[], tuple[int, int, int]] | None = None

    @property
    def open(self) -> int:
        """How many connections there are."""
        return 0 if self._connections is None else sum(self._connections())

    def connection_given_up(self, reason: GivenUp) -> None:
        """A connection was closed, or not taken up."""
        self.given_up[reason] += 1

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Ask here how many connections are in each stage."""
        self._connections = connections


class ConnectionMetrics:
    """All plain listeners of a deliverer."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerConnections] = {}

    def listener(self, name: str) -> ListenerConnections:
        """Return where a listener counts."""
        return self._listeners.setdefault(name, ListenerConnections())

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text."""
        yield definitions.LISTENER_CONNECTIONS.header
        for name, listener in self._listeners.items():
            yield definitions.LISTENER_CONNECTIONS.sample(listener.open, name)
        yield definitions.LISTENER_CONNECTIONS_GIVEN_UP.header
        for name, listener in self._listeners.items():
            for reason, count in listener.given_up.items():
                yield definitions.LISTENER_CONNECTIONS_GIVEN_UP.sample(count, name, reason)
