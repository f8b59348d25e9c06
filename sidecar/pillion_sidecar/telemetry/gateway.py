"""The metrics of a gateway's connections and tokens."""

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


class GatewayMetrics:
    """Connections and refused requests, and the keys and certificate in use."""

    def __init__(self) -> None:
        self._given_up = Counter(dict.fromkeys(GivenUp, 0))
        self._connections: Callable[[], tuple[int, int, int]] | None = None
        self._is_guarded = False
        self._is_encrypted = False
        self._turned_away = Counter(dict.fromkeys(Turned, 0))
        self._keys = 0
        self._keys_good = False
        self._expiry: float | None = None
        self._certificate_good = False

    def turned_away(self, reason: Turned) -> None:
        """A request was not let in."""
        self._turned_away[reason] += 1

    def connection_given_up(self, reason: GivenUp) -> None:
        """A connection that nobody had proven to be a publisher's was closed."""
        self._given_up[reason] += 1

    def watch(self, connections: Callable[[], tuple[int, int, int]]) -> None:
        """Ask here how many connections are in the handshake, unproven, and proven."""
        self._connections = connections

    def keys_read(self, keys: int | None) -> None:
        """The file of keys was read: so many are in force; None: those before stay."""
        self._is_guarded = True
        self._keys_good = keys is not None
        if keys is not None:
            self._keys = keys

    def certificate_read(self, expiry: float | None) -> None:
        """The certificate was read: it is in force until ``expiry``, in seconds since the epoch;
        None: the one before stays."""
        self._is_encrypted = True
        self._certificate_good = expiry is not None
        if expiry is not None:
            self._expiry = expiry

    def samples(self) -> Iterator[str]:
        """Yield the metrics' text; nothing where anybody may come in."""
        if self._connections is not None:
            yield definitions.CONNECTIONS.header
            for stage, number in zip(STAGES, self._connections(), strict=True):
                yield definitions.CONNECTIONS.sample(number, stage)
            yield definitions.CONNECTIONS_GIVEN_UP.header
            for given_up, count in self._given_up.items():
                yield definitions.CONNECTIONS_GIVEN_UP.sample(count, given_up)
        if self._is_guarded:
            yield definitions.TURNED_AWAY.header
            for reason, count in self._turned_away.items():
                yield definitions.TURNED_AWAY.sample(count, reason)
            yield definitions.TOKEN_KEYS.header
            yield definitions.TOKEN_KEYS.sample(self._keys)
            yield definitions.TOKEN_KEYS_READ.header
            yield definitions.TOKEN_KEYS_READ.sample(int(self._keys_good))
        if self._is_encrypted:
            yield definitions.CERTIFICATE_EXPIRY.header
            if self._expiry is not None:
                yield definitions.CERTIFICATE_EXPIRY.sample(self._expiry)
            yield definitions.CERTIFICATE_READ.header
            yield definitions.CERTIFICATE_READ.sample(int(self._certificate_good))
