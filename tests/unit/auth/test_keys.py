"""``token-keys.json``."""

import json
from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.auth.tokens import MAXIMUM_BYTES, MAXIMUM_KEYS, parse_keys, read_keys
from pillion_sidecar.filewatch import Unusable
from support.token_issuer import ISSUER, TokenIssuer


@pytest.fixture(scope="module")
def issuer() -> TokenIssuer:
    return TokenIssuer()


def test_the_file_says_whose_tokens_are_good(issuer: TokenIssuer, tmp_path: Path) -> None:
    file = tmp_path / "token-keys.json"
    file.write_bytes(issuer.document())
    keys = read_keys(file)
    assert (keys.issuer, keys.audience, keys.namespace) == (ISSUER, "pillion", "team")
    assert set(keys.keys) == {"first"}


def test_a_private_key_is_not_kept(issuer: TokenIssuer) -> None:
    secret = "c2VjcmV0LW9mLXRoZS1pc3N1ZXI"
    content = issuer.document(keys=[{**issuer.jwk("first"), "d": secret}])
    keys = parse_keys(content, name="keys")
    assert not hasattr(keys.keys["first"].key, "private_numbers")


@pytest.mark.parametrize(
    "changed",
    [
        {"kty": "oct", "k": "c2VjcmV0", "alg": "HS256"},
        {"kty": "OKP", "crv": "Ed25519", "x": "11qYAYKxCrfVS_7TyWQHOg7hcvPapiMlrwIaaPcHURo"},
        {"use": "enc"},
        {"kid": None},
        {"kid": 7},
        {"kty": "EC", "crv": "secp256k1", "alg": "ES256K"},
        {"x": "AAAA"},
        {"x": 5},
        {"alg": "HS256"},
        {"alg": "ES999"},
    ],
    ids=str,
)
def test_a_key_that_can_verify_no_token_is_left_out(
    issuer: TokenIssuer, changed: dict[str, Any]
) -> None:
    bad = {**issuer.jwk("first"), "kid": "bad", **changed}
    good = issuer.jwk("first")
    keys = parse_keys(issuer.document(keys=[bad, good]), name="keys")
    assert set(keys.keys) == {"first"}
    with pytest.raises(Unusable, match=r"none of its 1 keys is an RSA or EC key with a kid"):
        parse_keys(issuer.document(keys=[bad]), name="keys")


def test_a_key_for_an_algorithm_that_is_not_taken_is_left_out() -> None:
    issuer = TokenIssuer()
    issuer.add("pss", "RS256")
    pss = {**issuer.jwk("pss"), "alg": "PS256"}
    keys = parse_keys(issuer.document(keys=[pss, issuer.jwk("first")]), name="keys")
    assert set(keys.keys) == {"first"}


@pytest.mark.parametrize("bits", [1024, 8200])
def test_a_key_too_short_or_too_long_is_left_out(issuer: TokenIssuer, bits: int) -> None:
    key = issuer.jwk("first") | {"kid": "rsa", "kty": "RSA", "alg": "RS256", "e": "AQAB"}
    # An odd number of so many bits: nobody looks whether it has two factors.
    number = (1 << (bits - 1)) | 1
    from support.token_issuer import part

    key["n"] = part(number.to_bytes(-(-bits // 8), "big"))
    keys = parse_keys(issuer.document(keys=[key, issuer.jwk("first")]), name="keys")
    assert set(keys.keys) == {"first"}


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "truncated"),
        (b"\xff\xfe", "malformed"),
        (b"[]", "Expected `object`"),
        (b"[" * 100_000, "Expected `object`"),
        (json.dumps({"issuer": "i", "audience": "a", "namespace": "n"}).encode(), "`keys`"),
        (
            json.dumps({"issuer": "", "audience": "a", "namespace": "n", "keys": []}).encode(),
            "issuer is empty",
        ),
        (
            json.dumps({"issuer": "i", "audience": "a", "namespace": "n", "keys": []}).encode(),
            "none of its 0 keys",
        ),
        (
            json.dumps(
                {"issuer": "i", "audience": "a", "namespace": "n", "keys": [{}] * 101}
            ).encode(),
            f"more than {MAXIMUM_KEYS} keys",
        ),
    ],
    ids=range(8),
)
def test_a_file_that_is_wrong_is_said_to_be(content: bytes, says: str) -> None:
    with pytest.raises(Unusable) as caught:
        parse_keys(content, name="/etc/keys.json")
    assert str(caught.value).startswith("/etc/keys.json: ")
    assert says in str(caught.value)


def test_a_file_that_is_not_there_or_too_long_is_said_to_be(tmp_path: Path) -> None:
    with pytest.raises(Unusable, match="No such file"):
        read_keys(tmp_path / "none.json")
    long = tmp_path / "long.json"
    long.write_bytes(b" " * (MAXIMUM_BYTES + 1))
    with pytest.raises(Unusable, match="longer than 1048576 bytes"):
        read_keys(long)
