"""The metrics of listeners' connections, and of a gateway's tokens and certificate."""

from collections import Counter
from collections.abc import Callable, Iterator
from enum import StrEnum

from pillion_sidecar.telemetry import definitions


class Turned(StrEnum):
    """Why a gateway refused a request before it read the body."""

    #: There are no keys to verify a token with: answered 503.
    NO_KEYS = "no-keys"
    #: The rest but the last is answered 401.
    MISSING = "missing"
    MALFORMED = "malformed"
    ALGORITHM = "algorithm"
    UNKNOWN_KEY = "unknown-key"
    SIGNATURE = "signature"
    ISSUER = "issuer"
    AUDIENCE = "audience"
    EXPIRED = "expired"
    NOT_YET_VALID = "not-yet-valid"
    SUBJECT = "subject"
    #: The token is good, and its service account is not among ``publishers``: answered 403.
    FORBIDDEN = "forbidden"


class GivenUp(StrEnum):
    """Why a listener closed a connection."""

    #: A newcomer: all places are taken by publishers.
    FULL = "full"
    #: The handshake was not done, and a newcomer took the place.
    HANDSHAKE_CROWDED = "handshake-crowded"
    #: No token had let it in, and a newcomer took the place.
    UNPROVEN_CROWDED = "unproven-crowded"
    #: The handshake failed, or took too long.
    HANDSHAKE_FAILED = "handshake-failed"
    #: No token had let it in for too long.
    UNPROVEN_LATE = "unproven-late"
    #: It asked for nothing just then, and a newcomer took the place. (An alert matches "crowded",
    #: which means those without tokens.)
    IDLE = "idle"
    #: The head of its request was too long.
    HEAD_TOO_LONG = "head-too-long"
    #: The system had no descriptor or memory for it. It was not closed: it is taken up later.
    NOT_TAKEN = "not-taken"


#: How far a connection is, in the order of their counts.
STAGES = ("handshake", "unproven", "proven")


class ListenerConnections:
    """The connections of one listener (``auth.acceptor.AcceptorObserver``)."""

    def __init__(self) -> None:
        self.given_up = Counter(dict.fromkeys(GivenUp, 0))
        self._connections: Callable[[], tuple[int, int, int]] | None = None

    def connection_given_up(self, reason: GivenUp) -> None:
        """Count a connection that was closed, or not taken up."""
        self.given_up[reason] += 1

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Read the numbers of connections, by :data:`STAGES`, from a function."""
        self._connections = connections

    @property
    def stages(self) -> dict[str, int]:
        """The number of connections in each stage; empty before the first :meth:`watch`."""
        return dict(zip(STAGES, self._connections(), strict=True)) if self._connections else {}


class ConnectionMetrics:
    """The connections of a deliverer's plain listeners."""

    def __init__(self) -> None:
        self._listeners: dict[str, ListenerConnections] = {}

    def listener(self, name: str) -> ListenerConnections:
        """Return the counters of one listener."""
        return self._listeners.setdefault(name, ListenerConnections())

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text."""
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
    """A gateway's connections and refused requests, and the keys and certificate in use."""

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
        """Count a refused request."""
        self._turned_away[reason] += 1

    def keys_read(self, keys: int | None) -> None:
        """Record how many keys are in force; None: the file is unusable and the last ones stay."""
        self._is_guarded = True
        self._keys_good = keys is not None
        if keys is not None:
            self._keys = keys

    def certificate_read(self, expiry: float | None) -> None:
        """Record the certificate's expiry, in seconds since the epoch; None: it is unusable and the
        last one stays."""
        self._is_encrypted = True
        self._certificate_good = expiry is not None
        if expiry is not None:
            self._expiry = expiry

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text: only what this listener has."""
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
