"""Which tokens are good, and what is said of the others."""

import base64
import hashlib
import hmac
import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.auth.principal import Principal, Turned
from pillion_sidecar.auth.tokens import (
    LEEWAY,
    MAXIMUM_TOKEN,
    TokenError,
    TokenKeys,
    parse_keys,
    verify,
)
from support.token_issuer import NOW, TokenIssuer, part


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    made = TokenIssuer()
    made.add("rsa", "RS256")
    return made


@pytest.fixture(scope="module")
def keys(issuer: TokenIssuer) -> TokenKeys:
    return parse_keys(issuer.document(), name="keys")


def refused(token: str, keys: TokenKeys, *, now: float = NOW) -> tuple[Turned, str]:
    with pytest.raises(TokenError) as caught:
        verify(token, keys, now=now)
    # A token with a good signature could be shown again by whoever reads this.
    assert len(token) < 8 or token not in repr(caught.value)
    assert caught.value.__cause__ is None
    return caught.value.reason, caught.value.text


@pytest.mark.parametrize(
    "algorithm", ["RS256", "RS384", "RS512", "ES256", "ES384", "ES512"], ids=str
)
def test_a_service_accounts_token_is_good_until_it_expires(algorithm: str) -> None:
    issuer = TokenIssuer()
    issuer.add("one", algorithm)
    keys = parse_keys(issuer.document(), name="keys")
    token = issuer.token(kid="one", namespace="plant-7", account="spark.driver")
    found = verify(token, keys, now=NOW + 3600 + LEEWAY)
    assert found.principal == Principal("plant-7", "spark.driver")
    assert found.until == NOW + 3600 + LEEWAY
    assert str(found.principal) == "system:serviceaccount:plant-7:spark.driver"


def test_one_audience_of_several_is_enough_and_a_lone_one_is_text(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    for audience in (["https://kubernetes.default.svc", "pillion"], "pillion"):
        assert verify(issuer.token(aud=audience), keys, now=NOW).principal.namespace == "team"


def test_an_expired_token_is_taken_for_the_leeway_and_no_longer(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    token = issuer.token(exp=int(NOW))
    assert verify(token, keys, now=NOW + LEEWAY).until == NOW + LEEWAY
    reason, text = refused(token, keys, now=NOW + LEEWAY + 0.1)
    assert (reason, text) == (Turned.EXPIRED, "the token has expired; request another one")


def test_a_token_is_taken_the_leeway_before_its_time_and_no_earlier(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    token = issuer.token(nbf=int(NOW))
    assert verify(token, keys, now=NOW - LEEWAY).principal.namespace == "team"
    reason, text = refused(token, keys, now=NOW - LEEWAY - 0.1)
    assert reason is Turned.NOT_YET_VALID
    assert text == "the token is not valid yet (nbf); compare the clocks"


@pytest.mark.parametrize(
    ("changed", "reason", "says"),
    [
        ({"iss": "https://elsewhere.example"}, Turned.ISSUER, "was not issued by https://kube"),
        ({"iss": None}, Turned.ISSUER, "was not issued by"),
        ({"aud": ["https://kubernetes.default.svc"]}, Turned.AUDIENCE, "for the audience pillion"),
        ({"aud": "pillions"}, Turned.AUDIENCE, "audience pillion"),
        ({"aud": {"pillion": 1}}, Turned.AUDIENCE, "audience pillion"),
        ({"aud": None}, Turned.AUDIENCE, "audience pillion"),
        ({"exp": None}, Turned.EXPIRED, "does not say when it expires (exp)"),
        ({"exp": "tomorrow"}, Turned.EXPIRED, "does not say when"),
        ({"exp": True}, Turned.EXPIRED, "does not say when"),
        ({"exp": 10**400}, Turned.EXPIRED, "does not say when"),
        ({"nbf": "yesterday"}, Turned.NOT_YET_VALID, "nbf"),
        ({"sub": "system:node:one"}, Turned.SUBJECT, "no service account"),
        ({"sub": "system:serviceaccount:team"}, Turned.SUBJECT, "no service account"),
        ({"sub": "system:serviceaccount:team/other:spark"}, Turned.SUBJECT, "no service account"),
        ({"sub": "system:serviceaccount:team:spark\n"}, Turned.SUBJECT, "no service account"),
        ({"sub": 7}, Turned.SUBJECT, "no service account"),
        ({"sub": None}, Turned.SUBJECT, "no service account"),
    ],
    ids=str,
)
def test_a_claim_that_is_wrong_is_named(
    issuer: TokenIssuer, keys: TokenKeys, changed: dict[str, Any], reason: Turned, says: str
) -> None:
    found, text = refused(issuer.token(**changed), keys)
    assert found is reason
    assert says in text


def test_an_expiry_that_is_no_number_is_none(issuer: TokenIssuer, keys: TokenKeys) -> None:
    for number in ("NaN", "Infinity", "1e999"):
        claims = json.dumps(issuer.claims()).replace(str(int(NOW) + 3600), number)
        header = part({"alg": "ES256", "kid": "first"})
        reason, _ = refused(_sign(issuer, f"{header}.{part(claims.encode())}"), keys)
        assert reason in (Turned.EXPIRED, Turned.MALFORMED)


def _sign(issuer: TokenIssuer, signed: str) -> str:
    from jwt.algorithms import ECAlgorithm

    signature = ECAlgorithm(ECAlgorithm.SHA256).sign(signed.encode(), issuer.private["first"])
    return f"{signed}.{part(signature)}"


# ---------------------------------------------------------------------- what is signed, and how


def test_a_shared_secret_is_no_signature_though_it_is_the_public_key(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    """Algorithm confusion (RFC 8725, 2.1)."""
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    public = issuer.private["rsa"].public_key()
    shown = public.public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    signed = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part(issuer.claims())}"
    signature = hmac.new(shown, signed.encode(), hashlib.sha256).digest()
    reason, text = refused(f"{signed}.{part(signature)}", keys)
    assert reason is Turned.ALGORITHM
    assert text == "the token is not signed with one of ES256, ES384, ES512, RS256, RS384, RS512"


@pytest.mark.parametrize("algorithm", ["none", "None", "HS512", "EdDSA", "PS256", "", 5, None])
def test_no_other_algorithm_is_taken(
    issuer: TokenIssuer, keys: TokenKeys, algorithm: object
) -> None:
    header = part({"alg": algorithm, "kid": "first"})
    for signature in ("", part(b"anything")):
        reason, _ = refused(f"{header}.{part(issuer.claims())}.{signature}", keys)
        assert reason in (Turned.ALGORITHM, Turned.MALFORMED)


def test_a_key_is_for_its_own_algorithm_alone(issuer: TokenIssuer, keys: TokenKeys) -> None:
    token = issuer.token(kid="first")
    for algorithm in ("RS256", "ES384"):
        header = part({"alg": algorithm, "kid": "first"})
        reason, text = refused(".".join([header, *token.split(".")[1:]]), keys)
        assert (reason, text) == (
            Turned.ALGORITHM,
            "the token's key is for another algorithm (alg)",
        )


def test_a_signature_is_of_what_is_said(issuer: TokenIssuer, keys: TokenKeys) -> None:
    header, _, signature = issuer.token().split(".")
    other = part(issuer.claims(namespace="others"))
    assert refused(f"{header}.{other}.{signature}", keys) == (
        Turned.SIGNATURE,
        "the token's signature is wrong",
    )
    assert refused(f"{header}.{other}.", keys)[0] is Turned.SIGNATURE


def test_another_clusters_key_of_the_same_name_is_not_ours(keys: TokenKeys) -> None:
    assert refused(TokenIssuer().token(), keys)[0] is Turned.SIGNATURE


@pytest.mark.parametrize("kid", ["second", "../../etc/passwd", "first\x00", "", "a" * 5000])
def test_a_key_that_the_issuer_does_not_have_is_not_looked_for(
    issuer: TokenIssuer, keys: TokenKeys, kid: str
) -> None:
    reason, text = refused(issuer.token(header={"kid": kid}), keys)
    assert reason is Turned.UNKNOWN_KEY
    assert text == "the token is signed with a key that the issuer does not have (kid)"


@pytest.mark.parametrize("kid", [None, 5, ["first"]], ids=str)
def test_a_key_without_a_name_is_none(issuer: TokenIssuer, keys: TokenKeys, kid: object) -> None:
    rest = issuer.token().split(".")[1:]
    reason, _ = refused(".".join([part({"alg": "ES256", "kid": kid}), *rest]), keys)
    assert reason in (Turned.UNKNOWN_KEY, Turned.MALFORMED)


def test_a_key_that_the_token_brings_along_is_not_looked_at(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    """RFC 8725, 3.10: ``jwk``, ``jku`` and ``x5u`` are whatever the attacker says."""
    attacker = TokenIssuer()
    attacker.add("theirs")
    brought = {"jwk": attacker.jwk("theirs"), "jku": "https://attacker.example/jwks"}
    assert refused(attacker.token(kid="theirs", header=brought), keys)[0] is Turned.UNKNOWN_KEY


def test_what_must_be_understood_and_is_not_is_refused(
    issuer: TokenIssuer, keys: TokenKeys
) -> None:
    token = issuer.token(header={"crit": ["sealed"], "sealed": True})
    assert refused(token, keys)[0] in (Turned.SIGNATURE, Turned.MALFORMED)


@pytest.mark.parametrize(
    "token",
    ["", "a", "a.b", "a.b.c.d", "a.b.c.d.e", "..", "!.b.c", " a.b.c", "a.b.c\n", "é.b.c"],
    ids=repr,
)
def test_what_has_not_three_parts_is_no_token(keys: TokenKeys, token: str) -> None:
    reason, text = refused(token, keys) if token else (Turned.MALFORMED, "in three parts")
    assert reason is Turned.MALFORMED
    assert "in three parts" in text or "header is wrong" in text


def test_a_long_token_is_not_looked_at(issuer: TokenIssuer, keys: TokenKeys) -> None:
    token = issuer.token(padding="x" * MAXIMUM_TOKEN)
    assert refused(token, keys) == (Turned.MALFORMED, "the token has more than 8000 characters")


@pytest.mark.parametrize("claims", [b"[1]", b"null", b"{", b"\xff", b"[" * 3000])
def test_claims_that_are_no_object_are_refused(
    issuer: TokenIssuer, keys: TokenKeys, claims: bytes
) -> None:
    signed = f"{part({'alg': 'ES256', 'kid': 'first'})}.{part(claims)}"
    assert refused(_sign(issuer, signed), keys) == (
        Turned.MALFORMED,
        "the token's claims are not a JSON object",
    )


_CHARACTERS = st.text("abcdefABCDEF0123456789-_", max_size=60)


@given(st.tuples(_CHARACTERS, _CHARACTERS, _CHARACTERS), st.binary(max_size=60))
def test_whatever_comes_is_refused_and_breaks_nothing(
    keys: TokenKeys, parts: tuple[str, str, str], header: bytes
) -> None:
    for token in (".".join(parts), f"{part(header)}.{parts[1]}.{parts[2]}"):
        assert refused(token or "x", keys)[0] in Turned


def test_the_base64_of_a_header_may_not_be_padded_or_broken(keys: TokenKeys) -> None:
    padded = base64.urlsafe_b64encode(b'{"alg":"ES256","kid":"first"} ').decode()
    assert refused(f"{padded}=.e30.x", keys)[0] is Turned.MALFORMED
