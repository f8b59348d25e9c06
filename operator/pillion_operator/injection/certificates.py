"""The webhook's own CA and certificate, for clusters without cert-manager. Pure.

A new CA is first only trusted, and signs after ``OVERLAP``; the old one stays trusted until it
expires. So whichever certificate a replica shows, and whichever caBundle an API server still has,
they fit.
"""

import datetime
import ipaddress
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID

from pillion_operator.injection.tls import KeyPair

#: Seconds for which a CA and a certificate are valid.
CA_SECONDS = 10 * 365 * 86_400
SERVING_SECONDS = 365 * 86_400
#: Seconds by which clocks may differ.
SKEW = 300
#: Seconds for which a new CA is trusted before it signs.
OVERLAP = 3600
#: The keys of the Secret.
CERTIFICATE, KEY, CA_CERTIFICATE, CA_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
NEXT_CERTIFICATE, NEXT_KEY, PREVIOUS_CERTIFICATE = "next-ca.crt", "next-ca.key", "previous-ca.crt"


class BadMaterial(ValueError):
    """The Secret does not hold what was once written there; the message says why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that the Secret holds."""

    ca: KeyPair
    serving: KeyPair
    #: The CA that is trusted already and signs soon.
    next_ca: KeyPair | None = None
    #: The certificate of the CA that signed before.
    previous_ca: bytes | None = None

    def bundle(self) -> bytes:
        """The CAs to trust, in PEM: what caBundle says."""
        following = None if self.next_ca is None else self.next_ca.certificate
        return b"".join(one for one in (self.ca.certificate, following, self.previous_ca) if one)


def renewed(material: Material | None, *, hosts: Sequence[str], now: float) -> Material:
    """The material as it should be at ``now``, seconds since the epoch; the same object where
    nothing is due. CA and certificate are renewed at two thirds of their lives.

    ``hosts`` are the names and addresses that the certificate is for.
    """
    if material is None or _end(material.ca) <= now:
        ca = new_ca(now=now)
        return Material(ca=ca, serving=serving_certificate(ca, hosts=hosts, now=now))
    material = _with_ca(material, now=now)
    if _must_be_signed(material, hosts=hosts, now=now):
        material = replace(material, serving=serving_certificate(material.ca, hosts=hosts, now=now))
    return material


def _with_ca(material: Material, *, now: float) -> Material:
    if material.previous_ca is not None and _not_after(material.previous_ca) <= now:
        material = replace(material, previous_ca=None)
    if material.next_ca is None:
        if _is_due(material.ca, now=now):
            return replace(material, next_ca=new_ca(now=now))
        return material
    if now >= _start(material.next_ca) + SKEW + OVERLAP:
        return replace(
            material,
            ca=material.next_ca,
            next_ca=None,
            previous_ca=material.ca.certificate,
        )
    return material


def _must_be_signed(material: Material, *, hosts: Sequence[str], now: float) -> bool:
    certificate = _parsed(material.serving.certificate)
    ca = _parsed(material.ca.certificate)
    try:
        certificate.verify_directly_issued_by(ca)
        shown = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    return _is_due(material.serving, now=now) or list(shown) != _alternatives(hosts)


def new_ca(*, now: float) -> KeyPair:
    """A CA that signs servers' certificates and no further CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Two CAs of one name would have to be told apart by their keys' identifiers alone.
    name = x509.Name(
        [x509.NameAttribute(x509.NameOID.COMMON_NAME, f"pillion-webhook-ca-{int(now)}")]
    )
    certificate = (
        _builder(name, issuer=name, key=key, start=now - SKEW, end=now + CA_SECONDS)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs=True), critical=True)
        .sign(key, hashes.SHA256())
    )
    return _pair(certificate, key)


def serving_certificate(ca: KeyPair, *, hosts: Sequence[str], now: float) -> KeyPair:
    """A certificate for a server of these names and addresses."""
    issuer, signing = _parsed(ca.certificate), _private_key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "pillion-webhook")])
    # No certificate outlives the CA that signed it.
    end = min(now + SERVING_SECONDS, issuer.not_valid_after_utc.timestamp())
    certificate = (
        _builder(name, issuer=issuer.subject, key=key, start=now - SKEW, end=end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
            critical=False,
        )
        .sign(signing, hashes.SHA256())
    )
    return _pair(certificate, key)


def to_data(material: Material) -> dict[str, bytes]:
    """The material as a Secret's data, not yet in base64."""
    data = {
        CERTIFICATE: material.serving.certificate,
        KEY: material.serving.key,
        CA_CERTIFICATE: material.ca.certificate,
        CA_KEY: material.ca.key,
    }
    if material.next_ca is not None:
        data |= {NEXT_CERTIFICATE: material.next_ca.certificate, NEXT_KEY: material.next_ca.key}
    if material.previous_ca is not None:
        data[PREVIOUS_CERTIFICATE] = material.previous_ca
    return data


def from_data(data: Mapping[str, bytes]) -> Material:
    """The reverse of ``to_data``; raises BadMaterial where something is missing or unreadable."""
    try:
        following = None
        if NEXT_CERTIFICATE in data:
            following = _checked(data[NEXT_CERTIFICATE], data[NEXT_KEY])
        previous = data.get(PREVIOUS_CERTIFICATE)
        if previous is not None:
            _parsed(previous)
        return Material(
            ca=_checked(data[CA_CERTIFICATE], data[CA_KEY]),
            serving=_checked(data[CERTIFICATE], data[KEY]),
            next_ca=following,
            previous_ca=previous,
        )
    except KeyError as error:
        raise BadMaterial(f"the Secret has no {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadMaterial(f"the Secret cannot be read: {error}") from error


def expiry(pair: KeyPair) -> float:
    """When the certificate ends, in seconds since the epoch; raises ValueError for no PEM."""
    return _end(pair)


def _checked(certificate: bytes, key: bytes) -> KeyPair:
    if _private_key(key).public_key() != _parsed(certificate).public_key():
        raise ValueError("a certificate and its key do not belong together")
    return KeyPair(certificate=certificate, key=key)


def _private_key(key: bytes) -> ec.EllipticCurvePrivateKey:
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, ec.EllipticCurvePrivateKey):
        raise TypeError("a key is not the elliptic curve key that was made here")
    return loaded


def _pair(certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> KeyPair:
    pem = serialization.Encoding.PEM
    private = key.private_bytes(
        pem, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate=certificate.public_bytes(pem), key=private)


def _builder(
    subject: x509.Name,
    *,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    start: float,
    end: float,
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(_moment(start))
        .not_valid_after(_moment(end))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
    )


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names


def _is_due(pair: KeyPair, *, now: float) -> bool:
    return now >= _start(pair) + 2 / 3 * (_end(pair) - _start(pair))


def _parsed(certificate: bytes) -> x509.Certificate:
    return x509.load_pem_x509_certificate(certificate)


def _start(pair: KeyPair) -> float:
    return _parsed(pair.certificate).not_valid_before_utc.timestamp()


def _end(pair: KeyPair) -> float:
    return _not_after(pair.certificate)


def _not_after(certificate: bytes) -> float:
    return _parsed(certificate).not_valid_after_utc.timestamp()


def _moment(seconds: float) -> datetime.datetime:
    return datetime.datetime.fromtimestamp(seconds, tz=datetime.UTC)
