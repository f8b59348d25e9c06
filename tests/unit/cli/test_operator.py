"""``pillion operator``: its command line, and how it ends."""

import argparse
import os
import socket
from pathlib import Path
from typing import Any

import pytest

from pillion_cli.commands import operator
from pillion_cli.exits import CommandError, Exit
from pillion_operator.app import StartFailed
from pillion_operator.leadership import LeadershipLost
from pillion_operator.settings import (
    DelivererDefaults,
    NetworkSettings,
    OperatorSettings,
    SidecarPolicy,
    WebhookSettings,
)
from pillion_sidecar.config.addresses import Address, AddressPolicy

IMAGE = ["--deliverer-image", "registry.example.org/pillion:1"]


@pytest.fixture(autouse=True)
def outside_a_pod(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("POD_NAMESPACE", raising=False)


def parsed(*arguments: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser("pillion operator")
    operator.add_arguments(parser)
    return parser.parse_args([*IMAGE, *arguments])


def settings(*arguments: str) -> OperatorSettings:
    return operator.settings_of(parsed(*arguments))


def test_without_options_the_settings_are_the_defaults() -> None:
    assert settings() == OperatorSettings(
        deliverer=DelivererDefaults(image="registry.example.org/pillion:1"),
        identity=f"{socket.gethostname()}-{os.getpid()}",
    )


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--namespace a --namespace b", "namespaces", ("a", "b")),
        ("--operator-namespace home", "namespace", "home"),
        ("--kubeconfig /x/y", "kubeconfig", Path("/x/y")),
        ("--context other", "context", "other"),
        ("--no-poke", "poke", False),
        ("--namespace-selector {}", "namespace_selector", None),
        (
            '--namespace-selector {"matchLabels":{"a":"b"}}',
            "namespace_selector",
            "a=b",
        ),
        (
            '--namespace-selector {"matchExpressions":[{"key":"a","operator":"Exists"}]}',
            "namespace_selector",
            "a",
        ),
        ("--resync-interval 60", "resync_interval", 60),
        ("--resync-interval 1", "resync_interval", 1),
        ("--resync-interval 86400", "resync_interval", 86_400),
        ("--gather-interval 0.1", "gather_interval", 0.1),
        ("--gather-interval 3600", "gather_interval", 3600.0),
        ("--token-secret tokens", "token_secret", "tokens"),
        ("--gateway-secret other", "gateway_secret", "other"),
        ("--gateway-authority corporate", "gateway_authority", "corporate"),
        ("--no-webhook", "webhook", None),
        ("--telemetry 127.0.0.1:0", "telemetry", Address("127.0.0.1", 0)),
        ("--telemetry [::1]:65535", "telemetry", Address("::1", 65_535)),
        ("--identity me", "identity", "me"),
        ("--lease other", "lease", "other"),
        ("--no-leader-election", "lease", None),
        ("--lease other --no-leader-election", "lease", None),
    ],
)
def test_an_option_changes_its_setting_and_no_other(
    arguments: str, field: str, value: object
) -> None:
    changed, before = settings(*arguments.split()), settings()
    assert getattr(changed, field) == value
    assert type(getattr(changed, field)) is type(value)
    for name in OperatorSettings.__dataclass_fields__:
        if name != field:
            assert getattr(changed, name) == getattr(before, name)


def test_a_console_opens_the_deliverers_to_it() -> None:
    changed, before = settings("--console", "127.0.0.1:8090"), settings()
    assert changed.console == Address("127.0.0.1", 8090)
    assert (changed.deliverer.console, before.deliverer.console) == (True, False)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        ("--webhook 127.0.0.1:1", "address", Address("127.0.0.1", 1)),
        ("--webhook-service s", "service", "s"),
        ("--webhook-host a --webhook-host b", "hosts", ("a", "b")),
        ("--webhook-secret s", "secret", "s"),
        ("--webhook-configuration c", "configuration", "c"),
        ("--no-webhook-configuration", "configuration", None),
        (
            "--webhook-configuration c --no-webhook-configuration",
            "configuration",
            None,
        ),
        ("--webhook-certificates /x", "certificates", Path("/x")),
    ],
)
def test_an_option_changes_its_setting_of_the_webhook(
    arguments: str, field: str, value: object
) -> None:
    changed = settings(*arguments.split()).webhook
    assert changed is not None
    assert getattr(changed, field) == value
    for name in WebhookSettings.__dataclass_fields__:
        if name != field:
            assert getattr(changed, name) == getattr(WebhookSettings(), name)


@pytest.mark.parametrize(
    ("arguments", "field", "value"),
    [
        (["--deliverer-image-pull-policy", "Always"], "image_pull_policy", "Always"),
        (["--deliverer-resources", '{"limits": {}}'], "resources", {"limits": {}}),
        (["--deliverer-resources", "{}"], "resources", {}),
        (["--allow-loopback"], "addresses", AddressPolicy(allow_loopback=True)),
        (["--allow-link-local"], "addresses", AddressPolicy(allow_link_local=True)),
        (["--no-network-policies"], "network", NetworkSettings(gateways=False)),
        (
            ["--sidecar-network-policy", "SparkExecutors"],
            "network",
            NetworkSettings(sidecars=SidecarPolicy.SPARK_EXECUTORS),
        ),
        (
            ["--telemetry-from", '[{"podSelector": {}}]'],
            "network",
            NetworkSettings(telemetry_from=({"podSelector": {}},)),
        ),
    ],
)
def test_an_option_changes_its_setting_of_deliverers(
    arguments: list[str], field: str, value: object
) -> None:
    changed, before = settings(*arguments).deliverer, settings().deliverer
    assert getattr(changed, field) == value
    for name in DelivererDefaults.__dataclass_fields__:
        if name != field:
            assert getattr(changed, name) == getattr(before, name)


def test_in_a_pod_the_operator_lives_in_the_pods_namespace(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("POD_NAMESPACE", "home")
    assert settings().namespace == "home"
    assert settings("--operator-namespace", "other").namespace == "other"


def test_two_settings_share_no_list_of_namespaces() -> None:
    settings("--namespace", "a", "--webhook-host", "b")
    again = settings()
    assert again.namespaces == ()
    assert again.webhook is not None
    assert again.webhook.hosts == ()


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--telemetry", "8081"], "argument --telemetry: '8081' is not HOST:PORT, as in"),
        (["--telemetry", ":8081"], "is not HOST:PORT"),
        (["--telemetry", "host:"], "is not HOST:PORT"),
        (["--telemetry", "host:http"], "is not HOST:PORT"),
        (["--telemetry", "host:-1"], "is not HOST:PORT"),
        (["--webhook", "host:65536"], "argument --webhook: 'host:65536' is not HOST:PORT"),
        (["--gather-interval", "soon"], "'soon' is not a number of seconds from 0.1 to 3600"),
        (["--gather-interval", "0"], "is not a number of seconds"),
        (["--gather-interval", "0.09"], "is not a number of seconds"),
        (["--gather-interval", "3600.1"], "is not a number of seconds"),
        (["--gather-interval", "nan"], "is not a number of seconds"),
        (["--gather-interval", "inf"], "is not a number of seconds"),
        (["--resync-interval", "0"], "'0' is not a whole number from 1 to 86400"),
        (["--resync-interval", "86401"], "is not a whole number"),
        (["--resync-interval", "1.5"], "is not a whole number"),
        (["--resync-interval", "x"], "is not a whole number"),
        (["--deliverer-resources", "{"], "argument --deliverer-resources: is not JSON: "),
        (["--deliverer-resources", "[]"], "is not an object with requests and limits"),
        (["--deliverer-resources", '{"cpu": 1}'], "is not an object with requests and limits"),
        (["--telemetry-from", "["], "argument --telemetry-from: is not JSON: "),
        (["--telemetry-from", "{}"], "is not a list of peers"),
        (["--telemetry-from", "[1]"], "is not a list of peers"),
        (["--sidecar-network-policy", "Some"], "invalid choice: 'Some'"),
        (["--deliverer-image-pull-policy", "Often"], "invalid choice: 'Often'"),
        (["--log-level", "TRACE"], "invalid choice: 'TRACE'"),
        (["--log-format", "xml"], "invalid choice: 'xml'"),
    ],
)
def test_a_bad_value_is_named_with_what_would_do(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as end:
        parsed(*arguments)
    assert end.value.code == Exit.USAGE
    assert said in capsys.readouterr().err


def test_the_image_of_deliverers_has_to_be_named(capsys: pytest.CaptureFixture[str]) -> None:
    parser = argparse.ArgumentParser()
    operator.add_arguments(parser)
    with pytest.raises(SystemExit):
        parser.parse_args([])
    assert "--deliverer-image" in capsys.readouterr().err


# ---------------------------------------------------------------- how it ends


def group(*errors: Exception) -> ExceptionGroup[Exception]:
    return ExceptionGroup("several", list(errors))


def ending(monkeypatch: pytest.MonkeyPatch, error: Exception | None) -> list[Any]:
    """Has the operator end like that at once; returns the settings that it got."""
    served: list[Any] = []

    async def serve(wanted: OperatorSettings) -> None:
        served.append(wanted)
        if error is not None:
            raise error

    monkeypatch.setattr(operator, "_serve", serve)
    return served


def test_stopped_it_ends_well(monkeypatch: pytest.MonkeyPatch) -> None:
    served = ending(monkeypatch, None)
    assert operator.run(parsed("--identity", "me")) == Exit.OK
    assert served == [settings("--identity", "me")]


@pytest.mark.parametrize(
    "error", [StartFailed("the address is taken"), LeadershipLost("somebody else leads")]
)
def test_what_is_foreseen_is_told_in_a_sentence(
    monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    ending(monkeypatch, group(group(error)))
    with pytest.raises(CommandError, match=str(error)) as failed:
        operator.run(parsed())
    assert failed.value.code == Exit.FAILED


def test_of_what_nobody_has_foreseen_the_trace_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = group(ZeroDivisionError("a bug"))
    ending(monkeypatch, wanted)
    with pytest.raises(ExceptionGroup) as failed:
        operator.run(parsed())
    assert failed.value is wanted


@pytest.mark.parametrize(
    "selector",
    [
        "pillion=yes",
        "[]",
        '{"labels": {}}',
        '{"matchLabels": 7}',
        '{"matchExpressions": [{}]}',
        '{"matchExpressions": [{"key": "a", "operator": "Like"}]}',
    ],
)
def test_a_namespace_selector_that_is_none_is_refused(
    selector: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit):
        parsed("--namespace-selector", selector)
    assert "--namespace-selector" in capsys.readouterr().err


def test_pull_secrets_of_deliverers_are_kept_in_order() -> None:
    found = settings("--deliverer-pull-secret", "a", "--deliverer-pull-secret", "b")
    assert found.deliverer.pull_secrets == ("a", "b")
