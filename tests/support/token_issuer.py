"""A cluster's issuer of service-account tokens, with keys of its own."""

import base64
import json
from typing import Any

import jwt
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from jwt.algorithms import ECAlgorithm, RSAAlgorithm

from support.resources import JSON

ISSUER = "https://kubernetes.default.svc.cluster.local"
#: Seconds since the epoch, where a test does not say otherwise.
NOW = 1_800_000_000.0

_CURVES: dict[str, ec.EllipticCurve] = {
    "ES256": ec.SECP256R1(),
    "ES384": ec.SECP384R1(),
    "ES512": ec.SECP521R1(),
}


class TokenIssuer:
    """Issues tokens, and publishes the keys that verify them."""

    def __init__(self, *, issuer: str = ISSUER, namespace: str = "team") -> None:
        self.issuer = issuer
        self.namespace = namespace
        self.private: dict[str, Any] = {}
        self.algorithms: dict[str, str] = {}
        self.add("first")

    def add(self, kid: str, algorithm: str = "ES256", *, bits: int = 2048) -> None:
        """Have one more key."""
        if algorithm in _CURVES:
            self.private[kid] = ec.generate_private_key(_CURVES[algorithm])
        else:
            self.private[kid] = rsa.generate_private_key(public_exponent=65537, key_size=bits)
        self.algorithms[kid] = algorithm

    def remove(self, kid: str) -> None:
        """Have a key no more."""
        del self.private[kid], self.algorithms[kid]

    def jwk(self, kid: str) -> JSON:
        """A public key, as ``/openid/v1/jwks`` shows it."""
        key = self.private[kid].public_key()
        kind = RSAAlgorithm if isinstance(key, rsa.RSAPublicKey) else ECAlgorithm
        shown: JSON = kind.to_jwk(key, as_dict=True)
        shown.pop("key_ops", None)
        return {**shown, "use": "sig", "kid": kid, "alg": self.algorithms[kid]}

    def document(self, **changed: Any) -> bytes:
        """``token-keys.json``."""
        return json.dumps(
            {
                "issuer": self.issuer,
                "audience": "pillion",
                "namespace": self.namespace,
                "keys": [self.jwk(kid) for kid in self.private],
                **changed,
            }
        ).encode()

    def claims(
        self, *, namespace: str = "team", account: str = "spark", now: float = NOW, **changed: Any
    ) -> dict[str, Any]:
        """What a token says; a claim that is changed to None is left out."""
        claims = {
            "iss": self.issuer,
            "aud": ["pillion"],
            "sub": f"system:serviceaccount:{namespace}:{account}",
            "iat": int(now),
            "nbf": int(now),
            "exp": int(now) + 3600,
            **changed,
        }
        return {name: value for name, value in claims.items() if value is not None}

    def token(
        self,
        *,
        kid: str = "first",
        header: dict[str, Any] | None = None,
        **claims: Any,
    ) -> str:
        """A token for a service account, signed with one of the keys."""
        return self.sign(self.claims(**claims), kid=kid, header=header)

    def sign(
        self, claims: dict[str, Any], *, kid: str = "first", header: dict[str, Any] | None = None
    ) -> str:
        """A token that says just this."""
        return jwt.encode(
            claims,
            self.private[kid],
            algorithm=self.algorithms[kid],
            headers={"kid": kid, **(header or {})},
        )


def part(content: dict[str, Any] | bytes) -> str:
    """One part of a token, whatever it says."""
    raw = content if isinstance(content, bytes) else json.dumps(content).encode()
    return base64.urlsafe_b64encode(raw).rstrip(b"=").decode()
