"""Signing secrets: what is one, and that no text shows any part of another."""

import base64
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.signing import SigningKey, SigningKeyError, parse_signing_key
from support.resources import JSON, destination, secret, write

SEED = bytes(range(32))
PUBLIC = Ed25519PrivateKey.from_private_bytes(SEED).public_key().public_bytes_raw()


def encoded(prefix: str, content: bytes) -> str:
    return prefix + base64.b64encode(content).decode()


@pytest.mark.parametrize(
    ("text", "key"),
    [
        (encoded("whsec_", b"s" * 24), SigningKey(b"s" * 24, is_asymmetric=False)),
        (encoded("whsec_", b"s" * 64), SigningKey(b"s" * 64, is_asymmetric=False)),
        (encoded("whsec_", b"s" * 25).rstrip("="), SigningKey(b"s" * 25, is_asymmetric=False)),
        (encoded("whsk_", SEED), SigningKey(SEED, is_asymmetric=True)),
        (encoded("whsk_", SEED + PUBLIC), SigningKey(SEED, is_asymmetric=True)),
    ],
)
def test_a_secret_is_read(text: str, key: SigningKey) -> None:
    assert parse_signing_key(text) == key
    assert repr(key) == "SigningKey(…)"


WRONG = {
    "planted-secret": "does not begin with whsec_ or whsk_",
    encoded("whpk_", PUBLIC): "does not begin with whsec_ or whsk_",
    "whsec_planted*secret*planted": "is not Base64 after whsec_",
    "whsec_plänted": "is not Base64 after whsec_",
    "whsk_planted secret": "is not Base64 after whsk_",
    encoded("whsec_", b"s" * 23): "has 23 bytes, not 24 to 64",
    encoded("whsec_", b"s" * 65): "has 65 bytes, not 24 to 64",
    "whsec_": "has 0 bytes, not 24 to 64",
    encoded("whsk_", SEED[1:]): "has 31 bytes, not 32, or 64 with the public key",
    encoded("whsk_", SEED + PUBLIC[1:]): "has 63 bytes, not 32, or 64 with the public key",
    encoded("whsk_", SEED + SEED): "holds a public key of another private key",
}


@pytest.mark.parametrize(("text", "says"), WRONG.items())
def test_what_is_no_secret_is_refused_and_not_shown(text: str, says: str) -> None:
    with pytest.raises(SigningKeyError) as caught:
        parse_signing_key(text)
    assert caught.value.message == says
    shown = f"{caught.value}{caught.value.remedy}"
    assert "planted" not in shown
    after_prefix = text.partition("_")[2]
    assert not after_prefix or after_prefix not in shown


@given(st.one_of(st.text(), st.text().map("whsec_{}".format), st.text().map("whsk_{}".format)))
def test_any_text_is_a_secret_or_refused(text: str) -> None:
    try:
        key = parse_signing_key(text)
    except SigningKeyError:
        return
    assert 24 <= len(key.secret) <= 64


def signed(*references: JSON, **spec: Any) -> JSON:
    credentials = {"signing": {"secretRefs": list(references)}}
    return destination(protocol="StandardWebhooks", credentials=credentials, **spec)


def test_secrets_come_in_their_order_from_keys_of_labelled_secrets(tmp_path: Path) -> None:
    new, old = encoded("whsec_", b"n" * 32), encoded("whsk_", SEED)
    documents = (
        signed({"name": "hook"}, {"name": "hook", "key": "old"}),
        secret("hook", {"secret": f"{new}\n", "old": old}),
    )
    found = load_folder(write(tmp_path, *documents)).destinations["ops"].credentials
    assert found is not None
    assert [key.secret for key in found.signing] == [b"n" * 32, SEED]


@pytest.mark.parametrize(
    ("held", "reason", "says"),
    [
        (secret("other", {"secret": "planted"}), "NotFound", "no such Secret"),
        (
            secret("hook", {"secret": encoded("whsec_", b"planted!" * 4)}, labelled=False),
            "CredentialsNotPermitted",
            "may not be used",
        ),
        (secret("hook", {"token": "planted"}), "CredentialsUnusable", "has no key secret"),
        (secret("hook", {"secret": ""}), "CredentialsUnusable", "its key secret is empty"),
        *(
            (
                secret("hook", {"secret": text}),
                "CredentialsUnusable",
                f"the signing secret in its key secret {says}",
            )
            for text, says in WRONG.items()
        ),
    ],
)
def test_a_wrong_secret_is_told_with_its_name_and_key_and_without_its_text(
    tmp_path: Path, held: JSON, reason: str, says: str
) -> None:
    write(tmp_path, signed({"name": "hook"}), held)
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path)
    (problem,) = caught.value.problems
    assert (problem.reason, problem.resource) == (reason, "ListenerDestination/ops")
    assert problem.field == "spec.credentials.signing.secretRefs[0].name"
    assert (problem.value, says in problem.message) == ("'hook'", True)
    assert "planted" not in str(problem)
