"""The container of a deliverer, as a sidecar and as a gateway."""

import argparse
from pathlib import Path
from typing import Any

import pytest
from opentelemetry.sdk.trace import TracerProvider

from pillion_cli.main import command_parser, load
from pillion_operator.injection.container import (
    INTAKE_PORT,
    TELEMETRY_PORT,
    configuration_volume,
    data_volume,
    deliverer_container,
    termination_grace_seconds,
    token_volume,
)
from pillion_operator.settings import DelivererDefaults
from pillion_sidecar import settings
from pillion_sidecar.clock import SystemClock
from pillion_sidecar.config.addresses import AddressPolicy
from pillion_sidecar.telemetry.tracing import create_spans

DEFAULTS = DelivererDefaults(image="registry.test/pillion:1")


def container(spec: dict[str, Any] | None = None, **options: Any) -> dict[str, Any]:
    given = {"namespace": "shop", "defaults": DEFAULTS, **options}
    return deliverer_container("weather", spec=spec or {}, **given)


def parsed_by_pillion(arguments: list[str]) -> argparse.Namespace:
    name, *options = arguments
    return command_parser(name, load(name)).parse_args(options)


def after(arguments: list[str], option: str) -> str:
    return arguments[arguments.index(option) + 1]


def test_the_ports_are_the_deliverers_own() -> None:
    assert (settings.INTAKE_PORT, settings.TELEMETRY_PORT) == (INTAKE_PORT, TELEMETRY_PORT)


def test_a_sidecar_takes_indications_from_its_own_pod_only() -> None:
    arguments = container()["args"]
    assert after(arguments, "--intake") == "127.0.0.1:8288"
    assert after(arguments, "--telemetry") == "0.0.0.0:8289"
    assert after(arguments, "--service") == "weather"
    assert "--wait-for-configuration" in arguments
    assert [port["containerPort"] for port in container()["ports"]] == [8289]


def test_a_gateway_takes_indications_from_others_and_orders_from_its_own_pod() -> None:
    made = container(gateway=True)
    assert after(made["args"], "--intake") == "0.0.0.0:8288"
    assert after(made["args"], "--administration") == "127.0.0.1:8290"
    assert [port["containerPort"] for port in made["ports"]] == [8289, 8288]


def test_a_sidecar_knows_how_to_reach_any_gateway_of_its_namespace() -> None:
    made = container()
    arguments = made["args"]
    assert after(arguments, "--gateway") == "https://pillion-{service}.shop.svc:8288"
    assert after(arguments, "--gateway-ca") == "/etc/pillion/configuration/gateway-ca.crt"
    assert after(arguments, "--gateway-token") == "/var/run/secrets/pillion/token"
    assert mounted(made, "pillion-token") == "/var/run/secrets/pillion"
    assert not {"--token-keys", "--intake-tls-certificate"} & set(arguments)


def test_a_gateway_shows_a_certificate_and_asks_for_tokens() -> None:
    made = container(gateway=True)
    arguments = made["args"]
    assert after(arguments, "--intake-tls-certificate") == "/etc/pillion/tls/tls.crt"
    assert after(arguments, "--intake-tls-key") == "/etc/pillion/tls/tls.key"
    assert after(arguments, "--token-keys") == "/etc/pillion/configuration/token-keys.json"
    assert mounted(made, "pillion-tls") == "/etc/pillion/tls"
    assert "--gateway" not in arguments


def mounted(made: dict[str, Any], volume: str) -> str:
    """Where a volume is, which nobody there may write to."""
    (mount,) = (one for one in made["volumeMounts"] if one["name"] == volume)
    assert mount["readOnly"] is True
    return str(mount["mountPath"])


def test_a_sidecars_token_is_good_for_gateways_alone() -> None:
    (source,) = token_volume()["projected"]["sources"]
    assert source["serviceAccountToken"] == {
        "audience": "pillion",
        "expirationSeconds": 3600,
        "path": "token",
    }


def test_a_late_configuration_keeps_a_gateway_out_of_its_service_but_no_application() -> None:
    assert "readinessProbe" not in container()
    assert container(gateway=True)["readinessProbe"]["httpGet"]["path"] == "/readyz"
    assert container(gateway=True)["startupProbe"]["httpGet"]["path"] == "/startupz"


def test_a_sidecar_is_waited_for_by_a_hook_that_is_a_command_that_there_is() -> None:
    program, *arguments = container()["lifecycle"]["postStart"]["exec"]["command"]
    parsed = parsed_by_pillion(arguments)
    assert (program, parsed.server, parsed.timeout) == ("pillion", "http://127.0.0.1:8289", 60.0)
    # With a probe too the kubelet would wait for that.
    assert "startupProbe" not in container()


def test_nothing_is_held_back_by_a_gateway() -> None:
    assert "postStart" not in container(gateway=True)["lifecycle"]


def test_port_names_are_short_enough_for_kubernetes() -> None:
    assert all(len(port["name"]) <= 15 for port in container(gateway=True)["ports"])


@pytest.mark.parametrize(
    ("policy", "flags"),
    [
        (AddressPolicy(), {"--refuse-loopback"}),
        (AddressPolicy(allow_loopback=True), set()),
        (AddressPolicy(allow_link_local=True), {"--refuse-loopback", "--allow-link-local"}),
    ],
)
def test_the_operators_address_policy_is_the_deliverers(
    policy: AddressPolicy, flags: set[str]
) -> None:
    arguments = container(defaults=DelivererDefaults(image="i", addresses=policy))["args"]
    assert {"--refuse-loopback", "--allow-link-local"} & set(arguments) == flags


def test_what_the_service_says_of_image_and_resources_goes_before_the_defaults() -> None:
    resources = {"limits": {"memory": "1Gi"}}
    made = container({"deliverer": {"image": "own:2", "resources": resources}})
    assert (made["image"], made["resources"]) == ("own:2", resources)
    assert container()["image"] == DEFAULTS.image
    assert container()["resources"] == DEFAULTS.resources


def test_the_pull_policy_is_left_to_kubernetes_unless_stated() -> None:
    stated = DelivererDefaults(image="i", image_pull_policy="Always")
    assert "imagePullPolicy" not in container()
    assert container(defaults=stated)["imagePullPolicy"] == "Always"


def test_the_container_fits_the_restricted_profile() -> None:
    context = container()["securityContext"]
    assert context["runAsNonRoot"] is True
    assert context["allowPrivilegeEscalation"] is False
    assert context["capabilities"] == {"drop": ["ALL"]}
    assert context["seccompProfile"] == {"type": "RuntimeDefault"}
    assert context["readOnlyRootFilesystem"] is True


def test_the_volume_names_every_secret_there_can_be_and_needs_none() -> None:
    volume = configuration_volume("weather")
    secrets = [source["secret"] for source in volume["projected"]["sources"]]
    assert [secret["name"] for secret in secrets] == [f"pillion-weather-{n}" for n in range(16)]
    assert all(secret["optional"] for secret in secrets)
    mount = container()["volumeMounts"][0]
    assert mount == {
        "name": volume["name"],
        "mountPath": "/etc/pillion/configuration",
        "readOnly": True,
    }


@pytest.mark.parametrize(("gateway", "port"), [(False, 8288), (True, 8290)])
def test_the_hook_before_the_end_is_a_command_that_there_is(gateway: bool, port: int) -> None:
    program, *arguments = container(gateway=gateway)["lifecycle"]["preStop"]["exec"]["command"]
    parsed = parsed_by_pillion(arguments)
    assert (program, parsed.server, parsed.timeout) == ("pillion", f"http://127.0.0.1:{port}", 5.0)


@pytest.mark.parametrize("gateway", [False, True])
def test_the_arguments_are_such_as_the_command_takes(gateway: bool) -> None:
    policy = AddressPolicy(allow_link_local=True)
    made = container(gateway=gateway, defaults=DelivererDefaults(image="i", addresses=policy))
    assert parsed_by_pillion(made["args"]).service == "weather"


def test_storage_is_a_bounded_volume_and_a_mount() -> None:
    spec = {"deliverer": {"storage": {"sizeLimit": "2Gi"}}}
    volume = data_volume(spec)
    assert volume == {"name": "pillion-data", "emptyDir": {"sizeLimit": "2Gi"}}
    assert {"name": "pillion-data", "mountPath": "/var/lib/pillion"} in (
        container(spec)["volumeMounts"]
    )


@pytest.mark.parametrize(
    "spec", [{}, {"deliverer": {}}, {"deliverer": {"storage": {}}}, {"durability": "Memory"}]
)
@pytest.mark.parametrize("gateway", [False, True])
def test_every_deliverer_keeps_a_journal_on_a_volume_that_it_may_write_to(
    gateway: bool, spec: dict[str, Any]
) -> None:
    assert data_volume(spec) == {"name": "pillion-data", "emptyDir": {}}
    made = container(spec, gateway=gateway)
    assert made["volumeMounts"][1] == {"name": "pillion-data", "mountPath": "/var/lib/pillion"}
    assert parsed_by_pillion(made["args"]).journal == Path("/var/lib/pillion")


def test_by_default_kubernetes_own_grace_period_is_enough() -> None:
    assert termination_grace_seconds({}) == 30


@pytest.mark.parametrize(("grace", "needed"), [(0, 10), (300, 310)])
def test_a_pod_needs_hook_delivery_and_margin(grace: int, needed: int) -> None:
    assert termination_grace_seconds({"shutdownGracePeriodSeconds": grace}) == needed


COLLECTOR = "http://collector.observability.svc:4318"


def environment(made: dict[str, Any]) -> dict[str, str]:
    return {one["name"]: one["value"] for one in made["env"] if "value" in one}


@pytest.mark.parametrize(
    ("gateway", "name"), [(False, "pillion-sidecar"), (True, "pillion-gateway")]
)
def test_tracing_is_the_environment_of_a_deliverer(gateway: bool, name: str) -> None:
    tracing = {"endpoint": COLLECTOR, "samplingRatio": 0.01}
    made = container({"deliverer": {"tracing": tracing}}, gateway=gateway)
    assert environment(made) == {
        "OTEL_EXPORTER_OTLP_ENDPOINT": COLLECTOR,
        "OTEL_EXPORTER_OTLP_PROTOCOL": "http/protobuf",
        "OTEL_SERVICE_NAME": name,
        "OTEL_RESOURCE_ATTRIBUTES": "k8s.namespace.name=shop,"
        "k8s.pod.name=$(PILLION_POD_NAME),pillion.service=weather",
        "OTEL_TRACES_SAMPLER": "parentbased_traceidratio",
        "OTEL_TRACES_SAMPLER_ARG": "0.01",
    }
    # The kubelet replaces only variables that stand before.
    names = [one["name"] for one in made["env"]]
    assert names.index("PILLION_POD_NAME") < names.index("OTEL_RESOURCE_ATTRIBUTES")
    assert of_pod("PILLION_POD_NAME", "metadata.name") in made["env"]


def of_pod(variable: str, field: str) -> dict[str, Any]:
    return {"name": variable, "valueFrom": {"fieldRef": {"apiVersion": "v1", "fieldPath": field}}}


def test_the_deliverer_takes_the_environment_of_tracing(monkeypatch: pytest.MonkeyPatch) -> None:
    made = container({"deliverer": {"tracing": {"endpoint": COLLECTOR, "samplingRatio": 0.25}}})
    for variable, value in environment(made).items():
        monkeypatch.setenv(variable, value)
    spans = create_spans(SystemClock())
    assert spans is not None
    spans.close()
    sampler = TracerProvider(shutdown_on_exit=False).sampler
    assert sampler.get_description().startswith("ParentBased{root:TraceIdRatioBased{0.25}")


def test_without_tracing_a_container_is_as_it_was() -> None:
    for deliverer in ({"replicas": 1}, {"tracing": None}):
        assert "env" not in container({"deliverer": deliverer}, gateway=True)
        assert environment(container({"deliverer": deliverer})) == {}


def test_a_sidecar_is_told_its_pod_for_the_stores_of_its_journal() -> None:
    # Stores may be set after the pod was made.
    assert container({})["env"] == [of_pod(settings.POD_UID, "metadata.uid")]


@pytest.mark.parametrize("gateway", [False, True])
def test_a_console_opens_deliverers_by_their_environment(gateway: bool) -> None:
    defaults = DelivererDefaults(image="i", console=True)
    made = deliverer_container(
        "default", namespace="shop", spec={}, defaults=defaults, gateway=gateway
    )
    assert {"name": settings.OPERATOR_CONSOLE, "value": "true"} in made["env"]
