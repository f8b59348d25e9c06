"""The webhook's own CA and certificate, for clusters without cert-manager. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from cryptography.exceptions import UnsupportedAlgorithm

from pillion_operator.certificates.authority import (
    CERTIFICATE,
    KEY,
    Authority,
    BadMaterial,
    authority_from_data,
    authority_to_data,
    checked,
    must_be_signed,
    not_after,
    renewed_authority,
    serving_certificate,
)
from pillion_operator.certificates.tls import KeyPair

#: What the names of the CA and of the certificate begin with.
CA_NAME = "pillion-webhook-ca"
NAME = "pillion-webhook"


@dataclass(frozen=True, slots=True, kw_only=True)
class Material:
    """All that the Secret holds."""

    authority: Authority
    serving: KeyPair

    def bundle(self) -> bytes:
        """The CAs to trust, in PEM: what caBundle says."""
        return self.authority.bundle()


def renewed(material: Material | None, *, hosts: Sequence[str], now: float) -> Material:
    """The material as it should be at ``now``, seconds since the epoch; the same object where
    nothing is due. CA and certificate are renewed at two thirds of their lives.

    ``hosts`` are the names and addresses that the certificate is for.
    """
    known = None if material is None else material.authority
    authority = renewed_authority(known, name=CA_NAME, now=now)
    if material is None or must_be_signed(material.serving, authority.ca, hosts=hosts, now=now):
        serving = serving_certificate(authority.ca, name=NAME, hosts=hosts, now=now)
        return Material(authority=authority, serving=serving)
    return material if authority is known else replace(material, authority=authority)


def to_data(material: Material) -> dict[str, bytes]:
    """The material as a Secret's data, not yet in base64."""
    serving = {CERTIFICATE: material.serving.certificate, KEY: material.serving.key}
    return serving | authority_to_data(material.authority)


def from_data(data: Mapping[str, bytes]) -> Material:
    """The reverse of ``to_data``; raises BadMaterial where something is missing or unreadable."""
    authority = authority_from_data(data)
    try:
        serving = checked(data[CERTIFICATE], data[KEY])
    except KeyError as error:
        raise BadMaterial(f"the Secret has no {error}") from error
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise BadMaterial(f"the Secret cannot be read: {error}") from error
    return Material(authority=authority, serving=serving)


def expiry(pair: KeyPair) -> float:
    """When the certificate ends, in seconds since the epoch; raises ValueError for no PEM."""
    return not_after(pair.certificate)
