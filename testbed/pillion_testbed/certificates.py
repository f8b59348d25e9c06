"""The keys of a control plane: one CA, one serving certificate, one key for service accounts."""

import datetime
import ipaddress
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa

NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")
ADDRESSES = ("127.0.0.1", "10.96.0.1")
VALID = datetime.timedelta(days=30)
# Python 3.13 verifies strictly, and asks a CA for this.
_CA_USAGE = x509.KeyUsage(
    digital_signature=False,
    content_commitment=False,
    key_encipherment=False,
    data_encipherment=False,
    key_agreement=False,
    key_cert_sign=True,
    crl_sign=True,
    encipher_only=False,
    decipher_only=False,
)


def write_certificates(folder: Path, *, now: datetime.datetime, addresses: tuple[str, ...]) -> None:
    """Write ca.crt, server.crt, server.key, and service-accounts.key with its .pub."""
    authority, key = (
        ec.generate_private_key(ec.SECP256R1()),
        ec.generate_private_key(ec.SECP256R1()),
    )
    ca_name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pillion-test-ca")])
    alternatives = [x509.DNSName(name) for name in NAMES] + [
        x509.IPAddress(ipaddress.ip_address(address))
        for address in dict.fromkeys((*ADDRESSES, *addresses))
    ]
    start = now - datetime.timedelta(minutes=5)

    def builder(subject: x509.Name) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder(issuer_name=ca_name, subject_name=subject)
            .serial_number(x509.random_serial_number())
            .not_valid_before(start)
            .not_valid_after(start + VALID)
        )

    ca = (
        builder(ca_name)
        .public_key(authority.public_key())
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_CA_USAGE, critical=True)
        .add_extension(
            x509.SubjectKeyIdentifier.from_public_key(authority.public_key()), critical=False
        )
        .sign(authority, hashes.SHA256())
    )
    serving = (
        builder(x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "kube-apiserver")]))
        .public_key(key.public_key())
        .add_extension(x509.SubjectAlternativeName(alternatives), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(authority.public_key()),
            critical=False,
        )
        .sign(authority, hashes.SHA256())
    )
    accounts = rsa.generate_private_key(public_exponent=65537, key_size=2048)
    pem = serialization.Encoding.PEM
    (folder / "ca.crt").write_bytes(ca.public_bytes(pem))
    (folder / "server.crt").write_bytes(serving.public_bytes(pem))
    for name, private in (("server.key", key), ("service-accounts.key", accounts)):
        path = folder / name
        path.touch(mode=0o600)
        path.write_bytes(
            private.private_bytes(
                pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
            )
        )
    (folder / "service-accounts.pub").write_bytes(
        accounts.public_key().public_bytes(pem, serialization.PublicFormat.SubjectPublicKeyInfo)
    )
