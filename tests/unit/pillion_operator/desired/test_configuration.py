"""A rendered configuration, as Secrets."""

import base64

from pillion_operator.cluster.ownership import belongs
from pillion_operator.desired.configuration import configuration_secrets, operator_token
from pillion_operator.desired.objects import desired_objects
from pillion_sidecar.config.levels import LEVEL
from pillion_sidecar.config.rendered import pack, render, unpack
from support.desired import DEFAULTS, indication_service

TOKEN = operator_token(b"key", "shop", "default")


def test_the_secrets_together_hold_the_configuration() -> None:
    service = indication_service()
    text = render([service])
    rendered = pack(text, part_size=64)
    secrets = configuration_secrets(service, rendered, token=TOKEN)
    assert [secret["metadata"]["name"] for secret in secrets] == [
        f"pillion-default-{part}" for part in range(len(rendered.files))
    ]
    assert len(secrets) > 1
    files = {
        name: base64.b64decode(content)
        for secret in secrets
        for name, content in secret["data"].items()
    }
    assert files.pop("operator-token") == TOKEN.encode()
    unpacked = unpack(files)
    assert unpacked is not None
    assert unpacked.text == text


def test_each_secret_says_what_it_is_and_goes_with_its_service() -> None:
    service = indication_service("alerts")
    rendered = pack(render([service]))
    (secret,) = configuration_secrets(service, rendered, token=TOKEN)
    assert secret["type"] == "pillion.dev/configuration"
    assert secret["metadata"]["labels"] == {
        "app.kubernetes.io/managed-by": "pillion",
        "pillion.dev/service": "alerts",
        "pillion.dev/credentials": "rendered",
    }
    assert secret["metadata"]["annotations"] == {
        "pillion.dev/configuration-revision": rendered.revision,
        "pillion.dev/schema-level": str(LEVEL),
    }
    assert belongs(secret, service)
    (reference,) = secret["metadata"]["ownerReferences"]
    assert reference["blockOwnerDeletion"] is False


def test_a_token_is_that_of_one_service_alone() -> None:
    assert operator_token(b"key", "shop", "default") == TOKEN
    assert len(TOKEN) == 64
    others = {
        operator_token(b"other", "shop", "default"),
        operator_token(b"key", "shops", "default"),
        operator_token(b"key", "shop", "defaults"),
    }
    assert TOKEN not in others
    assert len(others) == 3


def test_a_service_of_sidecars_has_its_configuration_and_nothing_else() -> None:
    service = indication_service(mode="Sidecar")
    rendered = pack(render([service]))
    kinds = [
        body["kind"] for body in desired_objects(service, rendered, token=TOKEN, defaults=DEFAULTS)
    ]
    assert kinds == ["Secret"]
