"""Credentials of SNMP in a Secret."""

from pathlib import Path
from typing import Any

import pytest

from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.usm import SNMPCredentials, make_user
from pillion_sidecar.protocols.snmp import AuthProtocol
from support.resources import JSON, destination, secret, write

V2C = {"version": "v2c"}
USER = {"username": "ops", "authPassphrase": "planted-auth", "privPassphrase": "planted-priv"}


def snmp(**options: Any) -> JSON:
    return destination(
        protocol="SNMP",
        destination="snmp://traps.example",
        credentials={"snmp": {"secretRef": {"name": "nms"}}},
        snmp=options,
    )


def loaded(folder: Path, *documents: JSON) -> SNMPCredentials | None:
    found = load_folder(write(folder, *documents)).destinations["ops"].credentials
    assert found is not None
    return found.snmp


def test_a_community_is_read(tmp_path: Path) -> None:
    found = loaded(tmp_path, snmp(**V2C), secret("nms", {"community": "sunny-side\n"}))
    assert found == SNMPCredentials(community="sunny-side")
    assert repr(found) == "SNMPCredentials(…)"


@pytest.mark.parametrize("protocol", AuthProtocol)
def test_a_user_has_the_keys_of_the_passphrases(tmp_path: Path, protocol: AuthProtocol) -> None:
    found = loaded(tmp_path, snmp(authProtocol=protocol.value), secret("nms", USER))
    assert found is not None
    assert found.user == make_user(
        "ops", protocol, auth_passphrase="planted-auth", priv_passphrase="planted-priv"
    )


def test_without_encryption_one_passphrase_is_enough(tmp_path: Path) -> None:
    keys = {name: value for name, value in USER.items() if name != "privPassphrase"}
    found = loaded(tmp_path, snmp(securityLevel="AuthNoPriv"), secret("nms", keys))
    assert found is not None
    assert found.user is not None
    assert found.user.priv_key is None


@pytest.mark.parametrize(
    ("options", "keys", "says"),
    [
        (V2C, USER, "has no key community"),
        (V2C, {"community": "planted" * 40}, "its key community has less than 1 or more than 255"),
        (V2C, {"community": "planted\nx"}, "its key community is empty, or holds"),
        ({}, {"community": "planted"}, "has no key username"),
        ({}, {**USER, "username": "planted" * 5}, "its key username has less than 1 or more than"),
        ({}, {**USER, "authPassphrase": "planted"}, "its key authPassphrase has less than 8"),
        ({}, {**USER, "privPassphrase": "planted"}, "its key privPassphrase has less than 8"),
        ({}, {**USER, "privPassphrase": ""}, "its key privPassphrase is empty"),
    ],
)
def test_a_wrong_secret_is_told_without_its_text(
    tmp_path: Path, options: dict[str, Any], keys: dict[str, str], says: str
) -> None:
    write(tmp_path, snmp(**options), secret("nms", keys))
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path)
    first = caught.value.problems[0]
    assert (first.reason, first.resource) == ("CredentialsUnusable", "ListenerDestination/ops")
    assert first.field == "spec.credentials.snmp.secretRef.name"
    assert says in first.message
    assert "planted" not in "".join(map(str, caught.value.problems))


def test_a_secret_without_the_label_is_not_read(tmp_path: Path) -> None:
    write(tmp_path, snmp(), secret("nms", USER, labelled=False))
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path)
    assert {one.reason for one in caught.value.problems} == {"CredentialsNotPermitted"}


def test_a_wrong_option_is_the_only_problem(tmp_path: Path) -> None:
    write(tmp_path, snmp(version="v1"), secret("nms", USER))
    with pytest.raises(ConfigurationError) as caught:
        load_folder(tmp_path)
    assert [one.field for one in caught.value.problems] == ["spec.snmp.version"]
