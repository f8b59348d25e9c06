"""Reads the issuer and the public keys of service-account tokens from the API server. OpenID
Connect Discovery 1.0 (4.2) and RFC 7517. Every service account may read them, unless the role
``system:service-account-issuer-discovery`` was removed."""

import json
import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from prometheus_client import Counter

from pillion_operator.clock import Clock
from pillion_operator.cluster.api import FAILURES, Api
from pillion_operator.names import TOKEN_AUDIENCE

logger = logging.getLogger("pillion.operator")

CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"

#: Maximum bytes of an answer and keys in it, and characters of the issuer and of a key's member.
MOST_BYTES = 32 * 1024
MOST_KEYS = 32
MOST_ISSUER = 2048
MOST_MEMBER = 2048
#: The types of key that Kubernetes signs with and their public members (RFC 7518, 6.2.1 and 6.3.1);
#: all other members are dropped.
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y")}
_COMMON = ("kid", "alg", "use")
#: Seconds between two refreshes, and after a failed one. A cluster that changes its key verifies by
#: the old one for at least the lifetime of its tokens.
INTERVAL = 300.0
RETRY = 15.0
#: Random share of either interval, so that operators do not read together.
SPREAD = 0.1


class BadIssuer(ValueError):
    """The API server publishes nothing that tokens could be verified with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    issuer: str
    #: JWKs in the order of their ``kid``.
    keys: tuple[Mapping[str, str], ...]

    def token_keys(self, namespace: str) -> bytes:
        document = {
            "issuer": self.issuer,
            "audience": TOKEN_AUDIENCE,
            "namespace": namespace,
            "keys": self.keys,
        }
        return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


def parse_issuer(configuration: bytes, keys: bytes) -> TokenIssuer:
    """Raises BadIssuer."""
    issuer = _object(configuration, CONFIGURATION_PATH).get("issuer")
    if not isinstance(issuer, str) or not 0 < len(issuer) <= MOST_ISSUER:
        raise BadIssuer(f"{CONFIGURATION_PATH} names no issuer")
    listed = _object(keys, KEYS_PATH).get("keys")
    if not isinstance(listed, list) or len(listed) > MOST_KEYS:
        raise BadIssuer(f"{KEYS_PATH} has no list of at most {MOST_KEYS} keys")
    usable = [key for one in listed if (key := _public(one)) is not None]
    if not usable:
        raise BadIssuer(f"{KEYS_PATH} has no RSA or EC key that tokens are signed with")
    return TokenIssuer(issuer=issuer, keys=tuple(sorted(usable, key=lambda key: key["kid"])))


class IssuerKeeper:
    """Keeps the last token issuer when a refresh fails."""

    def __init__(
        self,
        *,
        api: Api,
        clock: Clock,
        draw: Callable[[], float],
        changed: Callable[[], None],
        reads: Counter,
    ) -> None:
        """``draw`` returns a number from 0 to 1; ``reads`` has the label ``result``: read or
        failed."""
        self._api = api
        self._clock = clock
        self._draw = draw
        self._changed = changed
        self._reads = reads
        self._issuer: TokenIssuer | None = None
        self._failed = False

    def token_keys(self, namespace: str) -> bytes | None:
        """None before the first successful read."""
        return None if self._issuer is None else self._issuer.token_keys(namespace)

    async def run(self) -> None:
        while True:
            pause = RETRY if self._failed else INTERVAL
            await self._clock.sleep(pause * (1.0 + SPREAD * (2.0 * self._draw() - 1.0)))
            await self.look()

    async def look(self) -> None:
        try:
            configuration = await self._api.document(CONFIGURATION_PATH)
            issuer = parse_issuer(configuration, await self._api.document(KEYS_PATH))
        except (*FAILURES, BadIssuer) as error:
            self._failed = True
            self._reads.labels("failed").inc()
            logger.warning(
                "the keys of service-account tokens cannot be had: %s; gateways go on with those "
                "that they have",
                str(error) or type(error).__name__,
                extra={"event": "token-keys-failed"},
            )
            return
        self._failed = False
        self._reads.labels("read").inc()
        if issuer != self._issuer:
            self._issuer = issuer
            self._changed()


def _object(content: bytes, path: str) -> dict[str, Any]:
    if len(content) > MOST_BYTES:
        raise BadIssuer(f"{path} answers {len(content)} bytes, more than {MOST_BYTES}")
    try:
        document = json.loads(content)
    except (ValueError, RecursionError) as error:
        raise BadIssuer(f"{path} answers no JSON") from error
    if not isinstance(document, dict):
        raise BadIssuer(f"{path} answers no JSON object")
    return document


def _public(key: Any) -> dict[str, str] | None:
    """The public part of a key; None for one that verifies no token."""
    if not isinstance(key, dict) or key.get("use", "sig") != "sig":
        return None
    members = _PUBLIC.get(str(key.get("kty")))
    if members is None:
        return None
    found = {name: key[name] for name in ("kty", *_COMMON, *members) if name in key}
    if not all(isinstance(value, str) and len(value) <= MOST_MEMBER for value in found.values()):
        return None
    # Tokens name their key by its kid.
    return found if {"kid", *members} <= found.keys() else None
