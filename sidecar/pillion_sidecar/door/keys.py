"""The keys that tokens are verified with, as the operator fetched them from the API server
(``token-keys.json``): who issued the tokens, for which audience, and the issuer's JWK set."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from jwt import PyJWK
from jwt.exceptions import PyJWTError

from pillion_sidecar.door.following import Unusable, read_bounded

#: Signatures with a private key that the issuer alone has: none by a shared secret (HS256) or by
#: nothing at all, whatever a token's header says.
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
#: Bytes of the file, and keys in it, that are read.
MAXIMUM_BYTES = 1 << 20
MAXIMUM_KEYS = 100
#: Bits of an RSA modulus. A longer one would hold up the event loop.
RSA_BITS = range(2048, 8193)


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKeys:
    """Whose tokens are good, and the keys by ``kid``, each for one algorithm."""

    issuer: str
    audience: str
    #: That of the gateway: whose service accounts may publish where nothing else is said.
    namespace: str
    keys: Mapping[str, PyJWK]


class _Document(msgspec.Struct):
    issuer: str
    audience: str
    namespace: str
    keys: list[dict[str, Any]]


def read_keys(path: Path) -> TokenKeys:
    """Read the file. Raises :class:`Unusable`."""
    return parse_keys(read_bounded(path, maximum=MAXIMUM_BYTES), name=str(path))


def parse_keys(content: bytes, *, name: str) -> TokenKeys:
    """Return what a file says. Raises :class:`Unusable`, which calls the file by its ``name``.

    Keys of kinds that are not used here are left out (RFC 7517, 5).
    """
    try:
        document = msgspec.json.decode(content, type=_Document)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
        raise Unusable(f"{name}: {str(error)[:200]}") from None
    for field in ("issuer", "audience", "namespace"):
        if not getattr(document, field):
            raise Unusable(f"{name}: {field} is empty")
    if len(document.keys) > MAXIMUM_KEYS:
        raise Unusable(f"{name}: more than {MAXIMUM_KEYS} keys")
    keys: dict[str, PyJWK] = {}
    for given in document.keys:
        key = _usable(given)
        if key is not None and key.key_id is not None:
            keys[key.key_id] = key
    if not keys:
        raise Unusable(
            f"{name}: none of its {len(document.keys)} keys is an RSA or EC key with a kid"
        )
    return TokenKeys(
        issuer=document.issuer,
        audience=document.audience,
        namespace=document.namespace,
        keys=keys,
    )


def _usable(given: dict[str, Any]) -> PyJWK | None:
    """Return a key that may verify tokens; None where it may not."""
    if given.get("kty") not in ("RSA", "EC") or given.get("use", "sig") != "sig":
        return None
    if not isinstance(given.get("kid"), str):
        return None
    # What signs is none of ours, and is not to be kept.
    public = {member: value for member, value in given.items() if member in _PUBLIC}
    try:
        key = PyJWK(public)
    except (PyJWTError, ValueError, TypeError, AttributeError):
        return None
    if key.algorithm_name not in ALGORITHMS:
        return None
    if public["kty"] == "RSA" and key.key.key_size not in RSA_BITS:
        return None
    return key


#: What a public key consists of (RFC 7518, 6.2.1 and 6.3.1).
_PUBLIC = frozenset({"kty", "kid", "use", "alg", "n", "e", "crv", "x", "y"})
