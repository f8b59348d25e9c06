"""Service-account tokens, verified offline (RFC 7519, RFC 8725). Pure. Errors never quote a token
whose signature is not verified."""

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from pillion_sidecar.auth.principal import Principal, Turned
from pillion_sidecar.filewatch import Unusable, read_bounded

#: Asymmetric signatures only, whatever a token's header says: no HS256, no "none".
ALGORITHMS = frozenset({"RS256", "RS384", "RS512", "ES256", "ES384", "ES512"})
#: Maximum bytes of the file, and keys in it.
MAXIMUM_BYTES = 1 << 20
MAXIMUM_KEYS = 100
#: Bits of an RSA modulus. A longer one would block the event loop.
RSA_BITS = range(2048, 8193)
#: Characters of a token. Those of Kubernetes have about 1,200.
MAXIMUM_TOKEN = 8000
#: Seconds by which the clocks of issuer and gateway may differ.
LEEWAY = 30.0
_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenKeys:
    """Accepted issuer and audience, and the keys by ``kid``, each for one algorithm."""

    issuer: str
    audience: str
    #: The gateway's: its service accounts may publish by default.
    namespace: str
    keys: Mapping[str, PyJWK]


class _Document(msgspec.Struct):
    issuer: str
    audience: str
    namespace: str
    keys: list[dict[str, Any]]


def read_keys(path: Path) -> TokenKeys:
    """Raises :class:`Unusable`."""
    return parse_keys(read_bounded(path, maximum=MAXIMUM_BYTES), name=str(path))


def parse_keys(content: bytes, *, name: str) -> TokenKeys:
    """Parse the keys; raises :class:`Unusable`, which names the file. Unused kinds of keys are left
    out (RFC 7517, 5)."""
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
    if given.get("kty") not in ("RSA", "EC") or given.get("use", "sig") != "sig":
        return None
    if not isinstance(given.get("kid"), str):
        return None
    # Drop private members.
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


#: Members of a public key (RFC 7518, 6.2.1 and 6.3.1).
_PUBLIC = frozenset({"kty", "kid", "use", "alg", "n", "e", "crv", "x", "y"})


class TokenError(Exception):
    """A token is invalid; has the text and the counted reason."""

    def __init__(self, reason: Turned, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Verified:
    principal: Principal
    #: Seconds since the epoch: end of validity, with the leeway.
    until: float


def verify(token: str, keys: TokenKeys, *, now: float) -> Verified:
    """Return the holder of a token; ``now`` is in seconds since the epoch. Raises
    :class:`TokenError`."""
    claims = _claims(token, keys)
    if claims.get("iss") != keys.issuer:
        raise TokenError(Turned.ISSUER, f"the token was not issued by {keys.issuer}")
    audience = claims.get("aud")
    if keys.audience not in (audience if isinstance(audience, list) else [audience]):
        raise TokenError(
            Turned.AUDIENCE,
            f"the token is not for the audience {keys.audience}; request one for it",
        )
    expires = _time(claims.get("exp"))
    if expires is None:
        raise TokenError(Turned.EXPIRED, "the token does not say when it expires (exp)")
    if now > expires + LEEWAY:
        raise TokenError(Turned.EXPIRED, "the token has expired; request another one")
    begins = _time(claims.get("nbf", 0))
    if begins is None or now < begins - LEEWAY:
        raise TokenError(
            Turned.NOT_YET_VALID, "the token is not valid yet (nbf); compare the clocks"
        )
    principal = Principal.of_subject(claims.get("sub"))
    if principal is None:
        raise TokenError(
            Turned.SUBJECT, "the token's subject is no service account of Kubernetes (sub)"
        )
    return Verified(principal, expires + LEEWAY)


def _claims(token: str, keys: TokenKeys) -> dict[str, Any]:
    """Return the claims after verifying the signature."""
    key = _key(token, keys)
    try:
        payload = PyJWS().decode(token, key, algorithms=[key.algorithm_name])
    except PyJWTError:
        raise TokenError(Turned.SIGNATURE, "the token's signature is wrong") from None
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise TokenError(Turned.MALFORMED, "the token's claims are not a JSON object") from None


def _key(token: str, keys: TokenKeys) -> PyJWK:
    if len(token) > MAXIMUM_TOKEN:
        raise TokenError(Turned.MALFORMED, f"the token has more than {MAXIMUM_TOKEN} characters")
    if _COMPACT.fullmatch(token) is None:
        raise TokenError(Turned.MALFORMED, "the token is not a JSON Web Token in three parts")
    try:
        header = PyJWS().get_unverified_header(token)
    except PyJWTError:
        raise TokenError(Turned.MALFORMED, "the token's header is wrong") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise TokenError(
            Turned.ALGORITHM,
            f"the token is not signed with one of {', '.join(sorted(ALGORITHMS))}",
        )
    key = keys.keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise TokenError(
            Turned.UNKNOWN_KEY, "the token is signed with a key that the issuer does not have (kid)"
        )
    if key.algorithm_name != algorithm:
        raise TokenError(Turned.ALGORITHM, "the token's key is for another algorithm (alg)")
    return key


def _time(value: object) -> float | None:
    """Return a NumericDate (RFC 7519, 2); None if it is invalid."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None
