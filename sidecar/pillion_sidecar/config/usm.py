"""What SNMP's messages are signed and encrypted with (RFC 3414, RFC 7860)."""

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pillion_sidecar.protocols.snmp import AuthProtocol

if TYPE_CHECKING:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
    from cryptography.hazmat.primitives.ciphers import Cipher

#: RFC 3414, 11.2.
SHORTEST_PASSPHRASE = 8
#: RFC 3411 (SnmpAdminString of usmUserName): bytes.
LONGEST_USERNAME = 32
#: A community of at most so many bytes.
LONGEST_COMMUNITY = 255
#: RFC 3414, A.2.2: bytes of the repeated passphrase.
_REPEATED = 1024 * 1024
#: Of a key, and of an initialization vector.
AES_BYTES = 16
#: Names of :mod:`hashlib`.
HASHES = {
    AuthProtocol.SHA: "sha1",
    AuthProtocol.SHA_256: "sha256",
    AuthProtocol.SHA_384: "sha384",
    AuthProtocol.SHA_512: "sha512",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class USMUser:
    name: str
    protocol: AuthProtocol
    #: Keys of the passphrases, for no engine yet.
    auth_key: bytes
    #: None: nothing is encrypted.
    priv_key: bytes | None

    def __repr__(self) -> str:
        return "USMUser(…)"


@dataclass(frozen=True, slots=True, kw_only=True)
class SNMPCredentials:
    """Exactly one of the two."""

    community: str | None = None
    user: USMUser | None = None

    def __repr__(self) -> str:
        return "SNMPCredentials(…)"


def make_user(
    name: str, protocol: AuthProtocol, *, auth_passphrase: str, priv_passphrase: str | None
) -> USMUser:
    """``priv_passphrase`` None: nothing is encrypted."""
    priv_key = None
    if priv_passphrase is not None:
        priv_key = passphrase_key(priv_passphrase, protocol)
        # Loads the library here, in the loader's thread, so that no event loop waits for it later.
        aes(bytes(AES_BYTES), bytes(AES_BYTES))
    return USMUser(
        name=name,
        protocol=protocol,
        auth_key=passphrase_key(auth_passphrase, protocol),
        priv_key=priv_key,
    )


def passphrase_key(passphrase: str, protocol: AuthProtocol) -> bytes:
    """Return the key of a passphrase (RFC 3414, A.2.2). It takes a millisecond."""
    text = passphrase.encode()
    repeated = text * (_REPEATED // len(text) + 1)
    return hashlib.new(HASHES[protocol], memoryview(repeated)[:_REPEATED]).digest()


def localized_key(key: bytes, engine: bytes, protocol: AuthProtocol) -> bytes:
    """Return the key for one engine (RFC 3414, 2.6)."""
    return hashlib.new(HASHES[protocol], key + engine + key).digest()


def aes(key: bytes, vector: bytes) -> "Cipher[CFB]":
    """Return AES-128 in CFB mode (RFC 3826)."""
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    try:
        from cryptography.hazmat.decrepit.ciphers.modes import CFB
    except ImportError:  # An earlier release.
        from cryptography.hazmat.primitives.ciphers.modes import CFB
    return Cipher(algorithms.AES(key), CFB(vector))
