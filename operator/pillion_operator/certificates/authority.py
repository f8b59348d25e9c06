"""Creates certificate authorities (or takes a user's) and signs certificates. Pure.

A new CA is trusted for ``OVERLAP`` before it signs, and the old one stays trusted until it expires,
so every server certificate fits every client bundle. A CA whose Secret was deleted, because its key
may have leaked, is replaced in two steps of ``STEP``.
"""

import ipaddress
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from typing import TypeAlias

from cryptography import x509
from cryptography.exceptions import InvalidSignature, UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, ed448, ed25519, rsa
from cryptography.x509.oid import ExtendedKeyUsageOID

#: In seconds.
CA_SECONDS = 10 * 365 * 86_400
SERVING_SECONDS = 365 * 86_400
#: Maximum clock difference in a cluster, in seconds.
SKEW = 300
#: Seconds for which a new CA is trusted before it signs.
OVERLAP = 3600
#: The same for the successor of a deleted CA, which is then trusted for as long again: several
#: times what a kubelet needs to refresh a Secret.
STEP = 300
#: Maximum bytes of a given CA with its chain: one Secret holds three of them.
MOST_CA_BYTES = 16 * 1024
#: The keys of a Secret. ``SINCE``: the start of trust in the next CA, whole seconds since the
#: epoch.
CERTIFICATE, KEY, CA_CERTIFICATE, CA_KEY = "tls.crt", "tls.key", "ca.crt", "ca.key"
NEXT_CERTIFICATE, NEXT_KEY, PREVIOUS_CERTIFICATE = "next-ca.crt", "next-ca.key", "previous-ca.crt"
SINCE = "next-ca.since"
#: The end of trust in a deleted CA, in whole seconds since the epoch.
UNTIL = "previous-ca.until"

_PEM = serialization.Encoding.PEM
_SigningKey: TypeAlias = (
    ec.EllipticCurvePrivateKey
    | rsa.RSAPrivateKey
    | ed25519.Ed25519PrivateKey
    | ed448.Ed448PrivateKey
)


class BadMaterial(ValueError): ...


@dataclass(frozen=True, slots=True, kw_only=True)
class KeyPair:
    """A certificate with its chain and its private key, in PEM."""

    certificate: bytes
    key: bytes = field(repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class Authority:
    """The content of one Secret: the signing CA, the other trusted ones, and a certificate. A CA's
    chain follows its certificate."""

    ca: KeyPair
    #: Trusted already; signs next.
    next_ca: KeyPair | None = None
    #: When its trust began, in seconds since the epoch.
    since: int = 0
    #: The CA that signed before.
    previous_ca: bytes | None = None
    #: When the trust in a deleted CA ends, in seconds since the epoch; 0: none was deleted.
    until: int = 0
    #: The certificate of the webhook; each gateway has its own in another Secret.
    serving: KeyPair | None = None

    def bundle(self) -> bytes:
        following = None if self.next_ca is None else self.next_ca.certificate
        return b"".join(one for one in (self.ca.certificate, following, self.previous_ca) if one)

    def to_data(self) -> dict[str, bytes]:
        data = {CA_CERTIFICATE: self.ca.certificate, CA_KEY: self.ca.key}
        if self.next_ca is not None:
            data |= {NEXT_CERTIFICATE: self.next_ca.certificate, NEXT_KEY: self.next_ca.key}
            data[SINCE] = str(self.since).encode()
        if self.previous_ca is not None:
            data[PREVIOUS_CERTIFICATE] = self.previous_ca
        if self.until:
            data[UNTIL] = str(self.until).encode()
        if self.serving is not None:
            data |= {CERTIFICATE: self.serving.certificate, KEY: self.serving.key}
        return data

    @classmethod
    def from_data(cls, data: Mapping[str, bytes]) -> "Authority | None":
        """Reverse ``to_data``; None without any data. Raises BadMaterial."""
        if not data:
            return None
        following = NEXT_CERTIFICATE in data
        previous = data.get(PREVIOUS_CERTIFICATE)
        try:
            if previous is not None:
                parsed(previous)
            # Older versions wrote the next CA without a time; it has been trusted long enough.
            since = int(data.get(SINCE, b"0")) if following else 0
            until = int(data.get(UNTIL, b"0"))
        except ValueError as error:
            raise BadMaterial(f"it cannot be read: {error}") from error
        return cls(
            ca=pair_in(data, CA_CERTIFICATE, CA_KEY),
            next_ca=pair_in(data, NEXT_CERTIFICATE, NEXT_KEY) if following else None,
            since=since,
            previous_ca=previous,
            until=until,
            serving=pair_in(data, CERTIFICATE, KEY) if {CERTIFICATE, KEY} & data.keys() else None,
        )


def renewed_authority(
    authority: Authority | None, *, name: str, now: float, given: KeyPair | None = None
) -> Authority:
    """Return the authority for ``now`` (seconds since the epoch); the same object if nothing is
    due.

    ``given`` is a user's CA. Otherwise the operator makes one, with the name prefix ``name``, and
    renews it at two thirds of its life.
    """
    if authority is None or not_after(authority.ca.certificate) <= now:
        return Authority(ca=given or new_ca(name=name, now=now))
    previous, until = authority.previous_ca, authority.until
    if previous is not None and (0 < until <= now or not_after(previous) <= now):
        authority = replace(authority, previous_ca=None)
    authority = _with_next(authority, name=name, now=now, given=given)
    if authority.until and authority.next_ca is None and authority.previous_ca is None:
        authority = replace(authority, until=0)
    overlap = STEP if authority.until else OVERLAP
    if authority.next_ca is None or now < authority.since + overlap:
        return authority
    return Authority(
        ca=authority.next_ca,
        previous_ca=authority.ca.certificate,
        # From now: there may have been no leader when the step was due.
        until=math.ceil(now) + STEP if authority.until else 0,
    )


def replaced_authority(
    authority: Authority, *, name: str, now: float, given: KeyPair | None = None
) -> Authority:
    """Replace an authority whose Secret was deleted at ``now``: its key may have leaked.

    The old CA stays trusted for two steps; another deletion ends its trust at once. Only the user
    can replace a ``given`` CA; the others lose their trust.
    """
    if authority.until or not_after(authority.ca.certificate) <= now:
        return Authority(ca=given or new_ca(name=name, now=now))
    start = math.ceil(now)
    if given == authority.ca:
        until = 0 if authority.previous_ca is None else start + STEP
        return replace(authority, next_ca=None, since=0, until=until)
    # Not the known next CA: its key was in the same Secret.
    following = given or new_ca(name=name, now=now)
    return replace(authority, next_ca=following, since=start, until=start + 2 * STEP)


def _with_next(authority: Authority, *, name: str, now: float, given: KeyPair | None) -> Authority:
    since = math.ceil(now)
    if given is not None:
        following = None if given == authority.ca else given
        if following == authority.next_ca:
            return authority
        return replace(authority, next_ca=following, since=since if following else 0)
    foreign = not _made_here(authority.ca, name=name)
    if authority.next_ca is None and (foreign or now >= due(authority.ca)):
        return replace(authority, next_ca=new_ca(name=name, now=now), since=since)
    return authority


def _made_here(ca: KeyPair, *, name: str) -> bool:
    names = parsed(ca.certificate).subject.get_attributes_for_oid(x509.NameOID.COMMON_NAME)
    return any(str(one.value).startswith(f"{name}-") for one in names)


def new_ca(*, name: str, now: float) -> KeyPair:
    """Make a CA that may sign server certificates, but no other CA."""
    key = ec.generate_private_key(ec.SECP256R1())
    # Unique names; otherwise only key identifiers distinguish two CAs.
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, f"{name}-{int(now)}")])
    certificate = _builder(
        subject, issuer=subject, key=key, now=now, end=now + CA_SECONDS, ca=True
    ).sign(key, hashes.SHA256())
    return _pair([certificate], key)


def given_ca(data: Mapping[str, bytes], *, now: float) -> KeyPair:
    """Return the CA in a user's Secret (``tls.crt``, ``tls.key``, optionally ``ca.crt``, as
    cert-manager writes them); raises BadMaterial if it cannot sign."""
    if CERTIFICATE not in data:
        raise BadMaterial(f"it has no {CERTIFICATE}")
    certificates = dict.fromkeys(
        one.public_bytes(_PEM)
        for key in (CERTIFICATE, CA_CERTIFICATE)
        for one in _all(data.get(key, b""), key)
    )
    chain = b"".join(certificates)
    if len(chain) > MOST_CA_BYTES:
        raise BadMaterial(f"its certificates take more than {MOST_CA_BYTES} bytes")
    pair = pair_in({**data, CERTIFICATE: chain}, CERTIFICATE, KEY)
    try:
        constraints = parsed(chain).extensions.get_extension_for_class(x509.BasicConstraints)
        signs = constraints.value.ca
    except (ValueError, x509.ExtensionNotFound):
        signs = False
    if not signs:
        raise BadMaterial("tls.crt is not the certificate of a certificate authority")
    if not_after(chain) <= now:
        raise BadMaterial("the authority's certificate has expired")
    return pair


def _all(pem: bytes, key: str) -> list[x509.Certificate]:
    try:
        return x509.load_pem_x509_certificates(pem) if pem.strip() else []
    except ValueError as error:
        raise BadMaterial(f"{key} holds no certificates in PEM") from error


def serving_certificate(ca: KeyPair, *, name: str, hosts: Sequence[str], now: float) -> KeyPair:
    issuer, signing = parsed(ca.certificate), _private_key(ca.key)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name[:64])])
    end = min(now + SERVING_SECONDS, issuer.not_valid_after_utc.timestamp())
    hashed = not isinstance(signing, ed25519.Ed25519PrivateKey | ed448.Ed448PrivateKey)
    certificate = (
        _builder(subject, issuer=issuer.subject, key=key, now=now, end=end, ca=False)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName(_alternatives(hosts)), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()), critical=False
        )
        .sign(signing, hashes.SHA256() if hashed else None)
    )
    between = [one for one in _all(ca.certificate, CERTIFICATE) if one.subject != one.issuer]
    return _pair([certificate, *between], key)


def must_be_signed(serving: KeyPair, ca: KeyPair, *, hosts: Sequence[str], now: float) -> bool:
    """Whether a certificate is of another CA, for other hosts, or at two thirds of its life."""
    certificate = parsed(serving.certificate)
    try:
        certificate.verify_directly_issued_by(parsed(ca.certificate))
        shown = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    except (ValueError, TypeError, InvalidSignature, x509.ExtensionNotFound):
        return True
    return now >= due(serving) or list(shown) != _alternatives(hosts)


def pair_in(data: Mapping[str, bytes], certificate: str, key: str) -> KeyPair:
    """Raises BadMaterial."""
    try:
        pair = KeyPair(certificate=data[certificate], key=data[key])
        if _private_key(pair.key).public_key() != parsed(pair.certificate).public_key():
            raise ValueError("they do not belong together")
    except KeyError as error:
        raise BadMaterial(f"it has no {error.args[0]}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadMaterial(f"{certificate} and {key} cannot be used: {error}") from error
    return pair


def due(pair: KeyPair) -> float:
    """Return the time at two thirds of a certificate's life, in seconds since the epoch."""
    start = parsed(pair.certificate).not_valid_before_utc.timestamp()
    return start + 2 / 3 * (not_after(pair.certificate) - start)


def not_after(certificate: bytes) -> float:
    """Return a certificate's end in seconds since the epoch; raises ValueError."""
    return parsed(certificate).not_valid_after_utc.timestamp()


def parsed(certificate: bytes) -> x509.Certificate:
    """Return the first certificate of a PEM; raises ValueError."""
    return x509.load_pem_x509_certificate(certificate)


def _private_key(key: bytes) -> _SigningKey:
    loaded = serialization.load_pem_private_key(key, None)
    if not isinstance(loaded, _SigningKey):
        raise TypeError("the key is of a kind that cannot sign certificates")
    return loaded


def _pair(chain: Sequence[x509.Certificate], key: ec.EllipticCurvePrivateKey) -> KeyPair:
    private = key.private_bytes(
        _PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return KeyPair(certificate=b"".join(one.public_bytes(_PEM) for one in chain), key=private)


def _builder(
    subject: x509.Name,
    *,
    issuer: x509.Name,
    key: ec.EllipticCurvePrivateKey,
    now: float,
    end: float,
    ca: bool,
) -> x509.CertificateBuilder:
    usage = x509.KeyUsage(
        digital_signature=not ca,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=ca,
        crl_sign=ca,
        encipher_only=False,
        decipher_only=False,
    )
    constraints = x509.BasicConstraints(ca=ca, path_length=0 if ca else None)
    return (
        x509.CertificateBuilder(issuer_name=issuer, subject_name=subject)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(now - SKEW, UTC))
        .not_valid_after(datetime.fromtimestamp(end, UTC))
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(constraints, critical=True)
        .add_extension(usage, critical=True)
    )


def _alternatives(hosts: Sequence[str]) -> list[x509.GeneralName]:
    names: list[x509.GeneralName] = []
    for host in hosts:
        try:
            names.append(x509.IPAddress(ipaddress.ip_address(host)))
        except ValueError:
            names.append(x509.DNSName(host))
    return names
