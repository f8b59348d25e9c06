"""The webhook's own CA: made, renewed, rotated with an overlap."""

import ssl
from dataclasses import replace
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    OVERLAP,
    SERVING_SECONDS,
    SKEW,
    Authority,
    BadMaterial,
    KeyPair,
    not_after,
    serving_certificate,
)
from pillion_operator.certificates.webhook import renewed

HOSTS = ("pillion-webhook.pillion-system.svc", "127.0.0.1")
NOW = 1_800_000_000.0
CA_DUE = NOW + CA_SECONDS * 2 / 3


def at(now: float, material: Authority | None = None, hosts: Any = HOSTS) -> Any:
    return renewed(material, hosts=hosts, now=now)


def trusts(bundle: bytes, serving: KeyPair) -> bool:
    certificate = x509.load_pem_x509_certificate(serving.certificate)
    return any(certificate.issuer == ca.subject for ca in x509.load_pem_x509_certificates(bundle))


def test_the_certificate_is_signed_for_the_hosts_it_serves() -> None:
    made = at(NOW)
    certificate = x509.load_pem_x509_certificate(made.serving.certificate)
    certificate.verify_directly_issued_by(x509.load_pem_x509_certificate(made.ca.certificate))
    names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName) == [HOSTS[0]]
    assert [str(ip) for ip in names.get_values_for_type(x509.IPAddress)] == [HOSTS[1]]


def test_nothing_is_done_while_nothing_is_due() -> None:
    made = at(NOW)
    assert at(NOW + SERVING_SECONDS * 0.6, made) is made


def test_a_certificate_is_renewed_at_two_thirds_of_its_life_under_the_same_ca() -> None:
    made = at(NOW)
    later = at(NOW + SERVING_SECONDS * 0.67, made)
    assert later.ca == made.ca
    assert not_after(later.serving.certificate) > not_after(made.serving.certificate)
    assert later.bundle() == made.bundle()


def test_a_certificate_for_other_hosts_is_signed_anew() -> None:
    made = at(NOW)
    moved = at(NOW + 1, made, ("other.svc",))
    assert moved.serving != made.serving
    assert moved.ca == made.ca


def test_a_certificate_of_another_ca_is_signed_anew() -> None:
    stranger = at(NOW + 7)
    mixed = replace(at(NOW), serving=stranger.serving)
    assert trusts(at(NOW + 8, mixed).bundle(), at(NOW + 8, mixed).serving)


def test_no_certificate_outlives_its_ca() -> None:
    made = at(NOW)
    late = serving_certificate(made.ca, name="n", hosts=HOSTS, now=NOW + CA_SECONDS - 10)
    assert not_after(late.certificate) == not_after(made.ca.certificate)


def test_a_new_ca_is_trusted_before_it_signs_and_the_old_one_after() -> None:
    first = at(NOW)
    due = at(CA_DUE, first)
    # Trusted, but the old one still signs what is renewed now.
    assert due.next_ca is not None
    assert due.ca == first.ca
    assert due.bundle() == first.ca.certificate + due.next_ca.certificate
    assert trusts(first.bundle(), due.serving)
    assert at(CA_DUE + OVERLAP - 1, due) is due

    promoted = at(CA_DUE + OVERLAP, due)
    assert promoted.ca == due.next_ca
    # A replica that still shows the old certificate is trusted, and so is the new one by an API
    # server that has not seen the newest caBundle.
    assert trusts(promoted.bundle(), due.serving)
    assert trusts(due.bundle(), promoted.serving)
    assert not trusts(first.bundle(), promoted.serving)


def test_the_old_ca_leaves_the_bundle_when_it_has_expired() -> None:
    due = at(CA_DUE, at(NOW))
    promoted = at(CA_DUE + OVERLAP, due)
    assert promoted.previous_ca == due.ca.certificate
    later = at(NOW + CA_SECONDS + 1, promoted)
    assert later.previous_ca is None
    assert later.bundle() == promoted.ca.certificate


def test_after_years_away_everything_is_made_anew() -> None:
    made = at(NOW)
    later = at(NOW + CA_SECONDS + SKEW, made)
    assert later.ca != made.ca
    assert trusts(later.bundle(), later.serving)


@pytest.mark.parametrize("now", [NOW, CA_DUE, CA_DUE + OVERLAP])
def test_what_is_written_is_read_again(now: float) -> None:
    material = at(NOW)
    for moment in sorted({NOW, CA_DUE, now}):
        if moment <= now:
            material = at(moment, material)
    assert Authority.from_data(material.to_data()) == material


def rsa_key() -> bytes:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    )


@pytest.mark.parametrize(
    "spoil",
    [
        lambda data: data.pop("ca.key"),
        lambda data: data.update({"tls.crt": b"none"}),
        lambda data: data.update({"tls.key": data["ca.key"]}),
        lambda data: data.update({"ca.key": rsa_key()}),
        lambda data: data.update({"next-ca.crt": data["ca.crt"]}),
        lambda data: data.update({"previous-ca.crt": b"\xff"}),
    ],
)
def test_a_secret_that_somebody_has_spoilt_is_refused(spoil: Any) -> None:
    data = at(NOW).to_data()
    spoil(data)
    with pytest.raises(BadMaterial, match=r"it has no|cannot be"):
        Authority.from_data(data)


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(at(NOW))


def test_pythons_strict_verification_accepts_the_chain() -> None:
    context = ssl.create_default_context(cadata=at(NOW).bundle().decode())
    context.verify_flags |= ssl.VERIFY_X509_STRICT
    assert context.cert_store_stats()["x509_ca"] == 1
