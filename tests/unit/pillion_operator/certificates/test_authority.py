"""An authority that somebody else keeps: taken over, rotated with an overlap, refused."""

import ssl
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ed25519, rsa

from pillion_operator.certificates.authority import (
    CA_SECONDS,
    MOST_CA_BYTES,
    OVERLAP,
    STEP,
    Authority,
    BadMaterial,
    KeyPair,
    due,
    given_ca,
    must_be_signed,
    new_ca,
    not_after,
    parsed,
    renewed_authority,
    replaced_authority,
    serving_certificate,
)
from support.certificates import authority_of

NOW = 1_800_000_000.0
HOSTS = ("pillion-shared.shop.svc", "127.0.0.1")
PEM = serialization.Encoding.PEM


def renewed(
    authority: Authority | None, *, given: KeyPair | None = None, now: float = NOW
) -> Authority:
    return renewed_authority(authority, name="own", now=now, given=given)


def ca(name: str = "theirs", *, now: float = NOW) -> KeyPair:
    return new_ca(name=name, now=now)


def data_of(pair: KeyPair, **more: bytes) -> dict[str, bytes]:
    return {"tls.crt": pair.certificate, "tls.key": pair.key, **more}


def test_the_given_one_is_taken_at_once_where_there_was_none() -> None:
    theirs = ca()
    assert renewed(None, given=theirs) == Authority(ca=theirs)
    assert renewed(Authority(ca=theirs), given=theirs).bundle() == theirs.certificate


def test_another_one_is_trusted_first_and_signs_later() -> None:
    first, second = ca("one"), ca("two")
    before = Authority(ca=first)
    both = renewed(before, given=second)
    assert (both.ca, both.next_ca) == (first, second)
    assert both.bundle() == first.certificate + second.certificate
    assert renewed(both, given=second, now=NOW + OVERLAP - 1) is both
    after = renewed(both, given=second, now=NOW + OVERLAP)
    assert after == Authority(ca=second, previous_ca=first.certificate)
    assert renewed(after, given=second, now=NOW + CA_SECONDS - 400) is after


def test_one_that_is_taken_back_within_the_overlap_never_signs() -> None:
    first, second, third = ca("one"), ca("two"), ca("three")
    both = renewed(Authority(ca=first), given=second)
    assert renewed(both, given=first) == Authority(ca=first)
    other = renewed(both, given=third, now=NOW + 60)
    assert (other.next_ca, other.since) == (third, NOW + 60)


def test_from_ones_own_to_a_given_one_and_back_there_is_an_overlap_too() -> None:
    own = renewed(None)
    theirs = ca()
    assert renewed(own, given=theirs).next_ca == theirs
    back = renewed(Authority(ca=theirs))
    assert back.ca == theirs
    assert back.next_ca is not None
    assert renewed(back, now=NOW + 1) is back


def test_one_that_is_given_up_while_nobody_leads_has_both_steps_all_the_same() -> None:
    old = ca("own-one")
    first = replaced_authority(Authority(ca=old), name="own", now=NOW)
    late = NOW + 10 * STEP
    second = renewed(first, now=late)
    assert (second.ca, second.previous_ca) == (first.next_ca, old.certificate)
    # Whoever shows a certificate of the old one has that long to show another.
    assert renewed(second, now=late + STEP - 1) is second
    assert renewed(second, now=late + STEP) == Authority(ca=second.ca)


def test_what_was_to_sign_next_goes_with_the_one_that_is_given_up() -> None:
    old, leaked = ca("own-one"), ca("own-two")
    before = Authority(ca=old, next_ca=leaked, since=int(NOW))
    after = replaced_authority(before, name="own", now=NOW + 1)
    assert after.ca == old
    assert leaked.certificate not in after.bundle()


def test_one_that_has_expired_is_replaced_at_once() -> None:
    expired = Authority(ca=ca("own-one"))
    late = NOW + CA_SECONDS
    only = replaced_authority(expired, name="own", now=late)
    assert only == Authority(ca=only.ca)
    assert only.ca != expired.ca


def test_a_given_one_that_is_taken_back_is_given_up_no_more() -> None:
    first, second = ca("one"), ca("two")
    leaving = replaced_authority(Authority(ca=first), name="own", now=NOW, given=second)
    assert leaving.bundle() == first.certificate + second.certificate
    assert renewed(leaving, given=first, now=NOW + 1) == Authority(ca=first)


def test_what_is_kept_is_read_again() -> None:
    for kept in (
        Authority(ca=ca()),
        renewed(Authority(ca=ca("one")), given=ca("two")),
        Authority(ca=ca("two"), previous_ca=ca("one").certificate),
        replaced_authority(Authority(ca=ca("own-one")), name="own", now=NOW),
    ):
        assert Authority.from_data(kept.to_data()) == kept


def test_keys_are_not_shown() -> None:
    assert "PRIVATE" not in repr(renewed(Authority(ca=ca("one")), given=ca("two")))


def test_two_thirds_of_a_life_are_when_it_is_due() -> None:
    own = renewed(None).ca
    assert NOW < due(own) < not_after(own.certificate)
    assert renewed(Authority(ca=new_ca(name="own", now=NOW)), now=due(own)).next_ca is not None


@pytest.mark.parametrize(
    "make", [lambda: rsa.generate_private_key(65537, 2048), ed25519.Ed25519PrivateKey.generate]
)
def test_an_authority_of_another_kind_of_key_signs(make: Callable[[], Any]) -> None:
    pair = given_ca(data_of(authority_of(make(), now=NOW)), now=NOW)
    serving = serving_certificate(pair, name="pillion-shared", hosts=HOSTS, now=NOW)
    assert not must_be_signed(serving, pair, hosts=HOSTS, now=NOW)
    context = ssl.create_default_context(cadata=pair.certificate.decode())
    assert context.cert_store_stats()["x509_ca"] == 1


def test_an_intermediate_authority_comes_with_what_leads_to_its_root() -> None:
    root = authority_of(ed25519.Ed25519PrivateKey.generate(), name="root", now=NOW)
    between = authority_of(
        ed25519.Ed25519PrivateKey.generate(), name="between", now=NOW, issuer=root
    )
    # As cert-manager writes it: the chain without the root, and the root apart.
    pair = given_ca(data_of(between, **{"ca.crt": root.certificate}), now=NOW)
    assert pair.certificate == between.certificate + root.certificate
    serving = serving_certificate(pair, name="pillion-shared", hosts=HOSTS, now=NOW)
    shown = x509.load_pem_x509_certificates(serving.certificate)
    assert [one.subject.rfc4514_string() for one in shown] == ["CN=pillion-shared", "CN=between"]
    assert not must_be_signed(serving, pair, hosts=HOSTS, now=NOW)


def test_the_same_certificate_in_both_files_is_taken_once() -> None:
    own = ca()
    assert given_ca(data_of(own, **{"ca.crt": own.certificate}), now=NOW) == own


def leaf() -> Mapping[str, bytes]:
    return data_of(serving_certificate(ca(), name="leaf", hosts=HOSTS, now=NOW))


@pytest.mark.parametrize(
    ("data", "said"),
    [
        (lambda: {}, "it has no tls.crt"),
        (lambda: {"tls.crt": ca().certificate}, "it has no tls.key"),
        (lambda: {**data_of(ca()), "tls.crt": b"none"}, "tls.crt holds no certificates"),
        (lambda: {**data_of(ca()), "tls.crt": b""}, "cannot be used"),
        (lambda: {**data_of(ca()), "ca.crt": b"none"}, "ca.crt holds no certificates"),
        (lambda: {**data_of(ca()), "tls.key": ca().key}, "do not belong together"),
        (lambda: {**data_of(ca()), "tls.key": b"none"}, "cannot be used"),
        (leaf, "is not the certificate of a certificate authority"),
        (lambda: data_of(ca(now=NOW - CA_SECONDS - 400)), "has expired"),
        (
            lambda: {
                **data_of(ca()),
                "ca.crt": b"".join(ca(str(n)).certificate for n in range(MOST_CA_BYTES // 500)),
            },
            f"more than {MOST_CA_BYTES} bytes",
        ),
    ],
)
def test_what_cannot_sign_is_refused_with_the_reason(
    data: Callable[[], dict[str, bytes]], said: str
) -> None:
    with pytest.raises(BadMaterial, match=said) as refused:
        given_ca(data(), now=NOW)
    assert "PRIVATE" not in str(refused.value)


def test_a_name_that_is_too_long_for_a_subject_is_cut() -> None:
    serving = serving_certificate(ca(), name="pillion-" + "s" * 60, hosts=HOSTS, now=NOW)
    (name,) = parsed(serving.certificate).subject
    assert len(str(name.value)) == 64
