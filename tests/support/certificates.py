"""Authorities as others make them: of any kind of key, and below others."""

import datetime
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ed25519

from pillion_operator.injection.authority import parsed
from pillion_operator.injection.tls import KeyPair

PEM = serialization.Encoding.PEM
LIFE = datetime.timedelta(days=365)


def authority_of(
    key: Any, *, now: float, name: str = "corporate", issuer: KeyPair | None = None
) -> KeyPair:
    """A CA with this key, signed by itself or by ``issuer``, valid for a year from ``now``."""
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signing: Any = key
    by = subject
    if issuer is not None:
        signing = serialization.load_pem_private_key(issuer.key, None)
        by = parsed(issuer.certificate).subject
    start = datetime.datetime.fromtimestamp(now, tz=datetime.UTC)
    hashed = None if isinstance(signing, ed25519.Ed25519PrivateKey) else hashes.SHA256()
    certificate = (
        x509.CertificateBuilder(issuer_name=by, subject_name=subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(start + LIFE)
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .sign(signing, hashed)
    )
    private = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate=certificate.public_bytes(PEM), key=private)
