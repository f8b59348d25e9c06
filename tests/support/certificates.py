"""Authorities as others make them: of any kind of key, and below others."""

import datetime
import ssl
from pathlib import Path
from typing import Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed25519

from pillion_operator.certificates.authority import KeyPair, parsed

PEM = serialization.Encoding.PEM
LIFE = datetime.timedelta(days=365)


def without_alternatives(authority: trustme.CA, common_name: str) -> tuple[bytes, bytes]:
    """A certificate that names its owner in the subject alone, and its key, in PEM."""
    key = ec.generate_private_key(ec.SECP256R1())
    issuer = x509.load_pem_x509_certificate(authority.cert_pem.bytes())
    signing: Any = serialization.load_pem_private_key(authority.private_key_pem.bytes(), None)
    start = issuer.not_valid_before_utc
    certificate = (
        x509.CertificateBuilder(
            issuer_name=issuer.subject,
            subject_name=x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, common_name)]),
        )
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(start)
        .not_valid_after(issuer.not_valid_after_utc)
        .sign(signing, hashes.SHA256())
    )
    private = key.private_bytes(
        PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return certificate.public_bytes(PEM), private


def nameless_server(authority: trustme.CA, common_name: str, folder: Path) -> ssl.SSLContext:
    """A server whose certificate has its name in the subject alone."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    files = folder / "nameless.crt", folder / "nameless.key"
    for file, pem in zip(files, without_alternatives(authority, common_name), strict=True):
        file.write_bytes(pem)
    context.load_cert_chain(*files)
    return context


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
