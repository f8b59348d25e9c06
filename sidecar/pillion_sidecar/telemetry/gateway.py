"""Metrics of listeners' connections, and of a gateway's tokens and certificate."""

from collections import Counter
from collections.abc import Callable, Iterator

from pillion_sidecar.auth.acceptor import GivenUp
from pillion_sidecar.auth.principal import Turned
from pillion_sidecar.telemetry import definitions

#: Stages of a connection, in the order of their counts.
STAGES = ("handshake", "unproven", "proven")


class ListenerConnections:
    """The connections of one listener (``auth.acceptor.AcceptorObserver``)."""

    def __init__(self) -> None:
        self.given_up = Counter(dict.fromkeys(GivenUp, 0))
        self._connections: Callable[[], tuple[int, int, int]] | None = None

    def connection_given_up(self, reason: GivenUp) -> None:
        """Count a connection that was closed or not accepted."""
        self.given_up[reason] += 1

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Use ``connections`` to read the counts, in the order of :data:`STAGES`."""
        self._connections = connections

    @property
    def stages(self) -> dict[str, int]:
        """Empty before the first :meth:`watch`."""
        return dict(zip(STAGES, self._connections(), strict=True)) if self._connections else {}


class ConnectionMetrics:
    """The connections of a deliverer's plain listeners."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerConnections] = {}

    def listener(self, name: str) -> ListenerConnections:
        return self._listeners.setdefault(name, ListenerConnections())

    def samples(self) -> Iterator[str]:
        known = self._listeners.items()
        yield definitions.LISTENER_CONNECTIONS.each(
            {name: sum(listener.stages.values()) for name, listener in known}
        )
        yield definitions.LISTENER_CONNECTIONS_GIVEN_UP.each(
            {
                (name, reason): count
                for name, listener in known
                for reason, count in listener.given_up.items()
            }
        )


class GatewayMetrics(ListenerConnections):
    """Also counts refused requests, and has the keys and certificate in use."""

    def __init__(self) -> None:
        super().__init__()
        self._is_guarded = False
        self._is_encrypted = False
        self._turned_away = Counter(dict.fromkeys(Turned, 0))
        self._keys = 0
        self._keys_good = False
        self._expiry: float | None = None
        self._certificate_good = False

    def turned_away(self, reason: Turned) -> None:
        self._turned_away[reason] += 1

    def keys_read(self, keys: int | None) -> None:
        """None: the file is unusable and the last keys stay."""
        self._is_guarded = True
        self._keys_good = keys is not None
        if keys is not None:
            self._keys = keys

    def certificate_read(self, expiry: float | None) -> None:
        """``expiry``: seconds since the epoch; None: unusable, the last one stays."""
        self._is_encrypted = True
        self._certificate_good = expiry is not None
        if expiry is not None:
            self._expiry = expiry

    def samples(self) -> Iterator[str]:
        if self.stages:
            yield definitions.CONNECTIONS.each(self.stages)
            yield definitions.CONNECTIONS_GIVEN_UP.each(self.given_up)
        if self._is_guarded:
            yield definitions.TURNED_AWAY.each(self._turned_away)
            yield definitions.TOKEN_KEYS.one(self._keys)
            yield definitions.TOKEN_KEYS_READ.one(int(self._keys_good))
        if self._is_encrypted:
            yield definitions.CERTIFICATE_EXPIRY.one(self._expiry)
            yield definitions.CERTIFICATE_READ.one(int(self._certificate_good))
