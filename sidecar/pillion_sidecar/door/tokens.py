"""Service-account tokens, verified offline (RFC 7519, RFC 8725). Pure: who asks says what the time
is. No text of a refusal quotes what a token says, before its signature is known to be good."""

import math
import re
from dataclasses import dataclass
from typing import Any

import msgspec
from jwt import PyJWK, PyJWS
from jwt.exceptions import PyJWTError

from pillion_sidecar.door.keys import ALGORITHMS, TokenKeys
from pillion_sidecar.door.principal import Principal
from pillion_sidecar.telemetry.door import Turned

#: Characters of a token. Those of Kubernetes have some 1,200.
MAXIMUM_TOKEN = 8000
#: Seconds by which the clocks of the issuer and of the gateway may differ.
LEEWAY = 30.0

_COMPACT = re.compile(r"[A-Za-z0-9_-]+\.[A-Za-z0-9_-]+\.[A-Za-z0-9_-]*")


class BadToken(Exception):
    """A token is not good, for a reason that the text says and that is counted."""

    def __init__(self, reason: Turned, text: str) -> None:
        super().__init__(text)
        self.reason = reason
        self.text = text


@dataclass(frozen=True, slots=True)
class Verified:
    """A token that is good."""

    principal: Principal
    #: Seconds since the epoch: when it is good no more, with the leeway.
    until: float


def verify(token: str, keys: TokenKeys, *, now: float) -> Verified:
    """Return whom a token was issued to. ``now`` is in seconds since the epoch.

    Raises :class:`BadToken`.
    """
    claims = _claims(token, keys)
    if claims.get("iss") != keys.issuer:
        raise BadToken(Turned.ISSUER, f"the token was not issued by {keys.issuer}")
    audience = claims.get("aud")
    if keys.audience not in (audience if isinstance(audience, list) else [audience]):
        raise BadToken(
            Turned.AUDIENCE,
            f"the token is not for the audience {keys.audience}; request one for it",
        )
    expires = _time(claims.get("exp"))
    if expires is None:
        raise BadToken(Turned.EXPIRED, "the token does not say when it expires (exp)")
    if now > expires + LEEWAY:
        raise BadToken(Turned.EXPIRED, "the token has expired; request another one")
    begins = _time(claims.get("nbf", 0))
    if begins is None or now < begins - LEEWAY:
        raise BadToken(Turned.NOT_YET_VALID, "the token is not valid yet (nbf); compare the clocks")
    principal = Principal.of_subject(claims.get("sub"))
    if principal is None:
        raise BadToken(
            Turned.SUBJECT, "the token's subject is no service account of Kubernetes (sub)"
        )
    return Verified(principal, expires + LEEWAY)


def _claims(token: str, keys: TokenKeys) -> dict[str, Any]:
    """Return what a token with a good signature says."""
    key = _key(token, keys)
    try:
        payload = PyJWS().decode(token, key, algorithms=[key.algorithm_name])
    except PyJWTError:
        raise BadToken(Turned.SIGNATURE, "the token's signature is wrong") from None
    try:
        return msgspec.json.decode(payload, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise BadToken(Turned.MALFORMED, "the token's claims are not a JSON object") from None


def _key(token: str, keys: TokenKeys) -> PyJWK:
    """Return the key that a token says it is signed with, for the algorithm that it says."""
    if len(token) > MAXIMUM_TOKEN:
        raise BadToken(Turned.MALFORMED, f"the token has more than {MAXIMUM_TOKEN} characters")
    if _COMPACT.fullmatch(token) is None:
        raise BadToken(Turned.MALFORMED, "the token is not a JSON Web Token in three parts")
    try:
        header = PyJWS().get_unverified_header(token)
    except PyJWTError:
        raise BadToken(Turned.MALFORMED, "the token's header is wrong") from None
    algorithm, kid = header.get("alg"), header.get("kid")
    if algorithm not in ALGORITHMS:
        raise BadToken(
            Turned.ALGORITHM,
            f"the token is not signed with one of {', '.join(sorted(ALGORITHMS))}",
        )
    key = keys.keys.get(kid) if isinstance(kid, str) else None
    if key is None:
        raise BadToken(
            Turned.UNKNOWN_KEY, "the token is signed with a key that the issuer does not have (kid)"
        )
    if key.algorithm_name != algorithm:
        raise BadToken(Turned.ALGORITHM, "the token's key is for another algorithm (alg)")
    return key


def _time(value: object) -> float | None:
    """Return a NumericDate (RFC 7519, 2); None where it is none."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    try:
        seconds = float(value)
    except OverflowError:
        return None
    return seconds if math.isfinite(seconds) else None
