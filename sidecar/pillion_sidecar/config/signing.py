"""Signing secrets of Standard Webhooks 1.0, as their text: ``whsec_`` and ``whsk_``."""

import base64
import binascii
from dataclasses import dataclass

SYMMETRIC, ASYMMETRIC = "whsec_", "whsk_"
#: Bytes of a symmetric secret.
SHORTEST, LONGEST = 24, 64
#: Bytes of an Ed25519 seed, and of its public key.
SEED = 32


class SigningKeyError(Exception):
    """A text is no signing secret. It says why, and shows no part of it."""

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(message)
        self.message = message
        self.remedy = remedy


@dataclass(frozen=True, slots=True)
class SigningKey:
    #: The HMAC secret, or the Ed25519 seed.
    secret: bytes
    is_asymmetric: bool

    def __repr__(self) -> str:
        return "SigningKey(…)"


def parse_signing_key(text: str) -> SigningKey:
    """Raises SigningKeyError."""
    prefix = next((one for one in (SYMMETRIC, ASYMMETRIC) if text.startswith(one)), None)
    if prefix is None:
        raise SigningKeyError(
            f"does not begin with {SYMMETRIC} or {ASYMMETRIC}",
            f"Write {SYMMETRIC} and the secret in Base64, or {ASYMMETRIC} and an Ed25519 key.",
        )
    encoded = text.removeprefix(prefix)
    try:
        secret = base64.b64decode(encoded + "=" * (-len(encoded) % 4), validate=True)
    except (binascii.Error, ValueError):
        raise SigningKeyError(
            f"is not Base64 after {prefix}", "Write the secret as its listener shows it."
        ) from None
    if prefix == ASYMMETRIC:
        return SigningKey(_seed(secret), is_asymmetric=True)
    if not SHORTEST <= len(secret) <= LONGEST:
        raise SigningKeyError(
            f"has {len(secret)} bytes, not {SHORTEST} to {LONGEST}",
            f"Make one with: echo {SYMMETRIC}$(openssl rand -base64 32)",
        )
    return SigningKey(secret, is_asymmetric=False)


def _seed(secret: bytes) -> bytes:
    # Loads the library here, in the loader's thread, so that no event loop waits for it later.
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

    remedy = f"Write {ASYMMETRIC} and the private key of 32 bytes in Base64."
    seed, public = secret[:SEED], secret[SEED:]
    if len(seed) != SEED or len(public) not in (0, SEED):
        message = f"has {len(secret)} bytes, not 32, or 64 with the public key"
        raise SigningKeyError(message, remedy)
    if public and Ed25519PrivateKey.from_private_bytes(seed).public_key().public_bytes_raw() != (
        public
    ):
        raise SigningKeyError("holds a public key of another private key", remedy)
    return seed
