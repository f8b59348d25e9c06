"""What the API server says of its tokens, read with care."""

import json
from typing import Any

import pytest

from pillion_operator.cluster.issuer import (
    CONFIGURATION_PATH,
    KEYS_PATH,
    MOST_BYTES,
    MOST_KEYS,
    BadIssuer,
    TokenIssuer,
    parse_issuer,
)

ISSUER = "https://kubernetes.default.svc.cluster.local"
RSA = {"use": "sig", "kty": "RSA", "kid": "b", "alg": "RS256", "n": "AQAB", "e": "AQAB"}
EC = {"use": "sig", "kty": "EC", "kid": "a", "alg": "ES256", "crv": "P-256", "x": "AA", "y": "AA"}


def parsed(*keys: Any, configuration: Any = None) -> TokenIssuer:
    told = {"issuer": ISSUER, "jwks_uri": "https://elsewhere"}
    return parse_issuer(
        json.dumps(told if configuration is None else configuration).encode(),
        json.dumps({"keys": list(keys)}).encode(),
    )


def test_issuer_and_keys_are_read_in_an_order_of_their_own() -> None:
    assert parsed(RSA, EC) == parsed(EC, RSA) == TokenIssuer(issuer=ISSUER, keys=(EC, RSA))


def test_nothing_but_the_public_key_goes_further() -> None:
    (key,) = parsed({**RSA, "d": "secret", "p": "secret", "x5c": ["long"], "new": 1}).keys
    assert key == RSA


@pytest.mark.parametrize(
    "useless",
    [
        None,
        "text",
        {},
        {**RSA, "use": "enc"},
        {**RSA, "kty": "oct", "k": "AA"},
        {**RSA, "kty": ["RSA"]},
        {name: value for name, value in RSA.items() if name != "kid"},
        {name: value for name, value in RSA.items() if name != "n"},
        {name: value for name, value in EC.items() if name != "y"},
        {**RSA, "n": 3},
        {**RSA, "n": "A" * 2049},
    ],
)
def test_what_verifies_no_token_is_left_out(useless: Any) -> None:
    assert parsed(useless, EC).keys == (EC,)
    with pytest.raises(BadIssuer, match="no RSA or EC key"):
        parsed(useless)


@pytest.mark.parametrize(
    ("configuration", "keys", "said"),
    [
        (b"{", b"{}", f"{CONFIGURATION_PATH} answers no JSON"),
        (b"[]", b"{}", f"{CONFIGURATION_PATH} answers no JSON object"),
        (b"{}", b"{}", "names no issuer"),
        (b'{"issuer": ""}', b"{}", "names no issuer"),
        (b'{"issuer": 7}', b"{}", "names no issuer"),
        (b'{"issuer": "' + b"x" * 2049 + b'"}', b"{}", "names no issuer"),
        (b" " * (MOST_BYTES + 1), b"{}", f"more than {MOST_BYTES}"),
        (b'{"issuer": "i"}', b"[" * 100_00, f"{KEYS_PATH} answers no JSON"),
        (b'{"issuer": "i"}', b"{}", "no list of at most"),
        (b'{"issuer": "i"}', b'{"keys": {}}', "no list of at most"),
        (b'{"issuer": "i"}', b" " * (MOST_BYTES + 1), f"{KEYS_PATH} answers"),
        (
            b'{"issuer": "i"}',
            json.dumps({"keys": [EC] * (MOST_KEYS + 1)}).encode(),
            f"at most {MOST_KEYS} keys",
        ),
    ],
)
def test_an_answer_that_is_none_is_named(configuration: bytes, keys: bytes, said: str) -> None:
    with pytest.raises(BadIssuer, match=said.replace("?", r"\?")):
        parse_issuer(configuration, keys)


def test_a_gateway_gets_one_file_that_is_the_same_for_the_same() -> None:
    made = parsed(RSA, EC).token_keys("shop")
    assert made == parsed(EC, RSA).token_keys("shop")
    assert json.loads(made) == {
        "issuer": ISSUER,
        "audience": "pillion",
        "namespace": "shop",
        "keys": [EC, RSA],
    }
