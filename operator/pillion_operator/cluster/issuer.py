"""The API server as the issuer of service-account tokens: who it says it is, and its public keys.

OpenID Connect Discovery 1.0 (4.2) and RFC 7517, as Kubernetes serves both. Every service account
may read them, unless the role ``system:service-account-issuer-discovery`` was taken away.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pillion_operator.cluster.api import Api

CONFIGURATION_PATH = "/.well-known/openid-configuration"
KEYS_PATH = "/openid/v1/jwks"

#: Bytes of one answer, keys in it, and characters of the issuer and of a key's member.
MOST_BYTES = 32 * 1024
MOST_KEYS = 32
MOST_ISSUER = 2048
MOST_MEMBER = 2048
#: The kinds of key that Kubernetes signs with, and the members that make up the public key (RFC
#: 7518, 6.2.1 and 6.3.1). Whatever else stands in a key goes no further.
_PUBLIC = {"RSA": ("n", "e"), "EC": ("crv", "x", "y")}
_COMMON = ("kid", "alg", "use")


class BadIssuer(ValueError):
    """The API server says nothing of its tokens that they could be verified with."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenIssuer:
    """With what service-account tokens of this cluster are verified."""

    #: What they say as ``iss``.
    issuer: str
    #: The public keys, as JWK, in the order of their ``kid``.
    keys: tuple[Mapping[str, str], ...]


async def read_issuer(api: Api) -> TokenIssuer:
    """Ask the API server. Raises BadIssuer, and what :class:`Api` raises."""
    configuration = await api.document(CONFIGURATION_PATH)
    return parse_issuer(configuration, await api.document(KEYS_PATH))


def parse_issuer(configuration: bytes, keys: bytes) -> TokenIssuer:
    """Read both answers; raises BadIssuer."""
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


def token_keys(issuer: TokenIssuer, *, namespace: str, audience: str) -> bytes:
    """The file that a gateway of ``namespace`` verifies tokens with, in JSON."""
    document = {
        "issuer": issuer.issuer,
        "audience": audience,
        "namespace": namespace,
        "keys": list(issuer.keys),
    }
    return json.dumps(document, sort_keys=True, separators=(",", ":")).encode()


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
    """The public part of one key; None for one that no token is verified with."""
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
