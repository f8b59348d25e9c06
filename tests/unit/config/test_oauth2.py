"""What a destination's OAuth 2.0 credentials are made from."""

from pathlib import Path
from typing import Any

import pytest
import trustme

from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.config.loader import load_folder
from pillion_sidecar.config.problems import ConfigurationError
from pillion_sidecar.config.schema.oauth2 import ClientAuthentication, OAuth2
from support.resources import destination, secret, write

URL = "https://id.example/token"
CLIENT = {"clientId": "pillion", "clientSecret": "planted"}


def with_client(**given: Any) -> dict[str, Any]:
    client = {"tokenURL": URL, "secretRef": {"name": "client"}, **given}
    return destination(credentials={"oauth2": client})


def test_a_client_comes_from_a_labelled_secret_and_is_not_shown(tmp_path: Path) -> None:
    authority = trustme.CA().cert_pem.bytes()
    documents = (
        with_client(
            scopes=["b", "a"],
            audience="urn:x",
            clientAuthentication="Post",
            caSecretRef={"name": "ca"},
        ),
        secret("client", CLIENT),
        secret("ca", {"ca.crt": authority.decode()}),
    )
    configuration = load_folder(write(tmp_path, *documents))
    found = configuration.destinations["ops"].credentials
    assert found is not None
    assert found.oauth2 == OAuth2(
        token_url=URL,
        client_id="pillion",
        client_secret="planted",
        client_authentication=ClientAuthentication.POST,
        scopes=("b", "a"),
        audience="urn:x",
        ca_certificates=authority,
    )
    assert "planted" not in repr(configuration)


@pytest.mark.parametrize(
    ("data", "says"),
    [
        ({"clientId": "pillion"}, "has no key clientSecret"),
        ({"clientSecret": "planted"}, "has no key clientId"),
        ({**CLIENT, "clientSecret": "planted\nX: y"}, "its key clientSecret is empty, or holds"),
        ({**CLIENT, "clientId": ""}, "its key clientId is empty, or holds"),
    ],
)
def test_a_secret_that_cannot_be_used_is_refused(
    tmp_path: Path, data: dict[str, str], says: str
) -> None:
    write(tmp_path, with_client(), secret("client", data))
    with pytest.raises(ConfigurationError) as refused:
        load_folder(tmp_path)
    (problem,) = refused.value.problems
    assert problem.field == "spec.credentials.oauth2.secretRef.name"
    assert problem.message.startswith(says)
    assert "planted" not in str(problem)


def test_wrong_authorities_are_told_with_their_field(tmp_path: Path) -> None:
    wrong = with_client(caSecretRef={"name": "ca"})
    write(tmp_path, wrong, secret("client", CLIENT), secret("ca", {"ca.crt": "x"}))
    with pytest.raises(ConfigurationError) as refused:
        load_folder(tmp_path)
    (problem,) = refused.value.problems
    assert problem.field == "spec.credentials.oauth2.caSecretRef.name"


def test_the_policy_of_addresses_holds_for_the_token_endpoint(tmp_path: Path) -> None:
    write(tmp_path, with_client(tokenURL="https://169.254.169.254/token"), secret("client", CLIENT))
    with pytest.raises(ConfigurationError) as refused:
        load_folder(tmp_path, addresses=AddressPolicy())
    (problem,) = refused.value.problems
    assert (problem.reason, problem.field) == (
        "AddressNotPermitted",
        "spec.credentials.oauth2.tokenURL",
    )
