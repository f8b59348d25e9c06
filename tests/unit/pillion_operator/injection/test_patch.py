"""What is added to a pod."""

import copy
from typing import Any

import pytest

from pillion_operator.injection.decision import Inject
from pillion_operator.injection.patch import injection_patch
from pillion_operator.settings import DelivererDefaults
from support.injection import patched, pod

DEFAULTS = DelivererDefaults(image="registry.test/pillion:1")


def after(body: dict[str, Any], **spec: Any) -> dict[str, Any]:
    decision = Inject(service="web", spec=spec)
    patch, _ = injection_patch(body, namespace="shop", decision=decision, defaults=DEFAULTS)
    result: dict[str, Any] = patched(body, patch)
    return result


def warnings(body: dict[str, Any]) -> tuple[str, ...]:
    decision = Inject(service="web", spec={})
    return injection_patch(body, namespace="shop", decision=decision, defaults=DEFAULTS)[1]


def test_a_bare_pod_gets_a_native_sidecar_its_volume_and_the_label() -> None:
    made = after(pod())
    (sidecar,) = made["spec"]["initContainers"]
    assert (sidecar["name"], sidecar["restartPolicy"]) == ("pillion-deliverer", "Always")
    names = [volume["name"] for volume in made["spec"]["volumes"]]
    assert names == ["pillion-configuration", "pillion-data", "pillion-token"]
    assert made["metadata"]["labels"] == {"pillion.dev/deliverer": "web"}


def test_the_place_of_the_service_accounts_token_is_taken() -> None:
    (sidecar,) = after(pod())["spec"]["initContainers"]
    mounts = {mount["mountPath"]: mount for mount in sidecar["volumeMounts"]}
    assert mounts["/var/run/secrets/kubernetes.io/serviceaccount"] == {
        "name": "pillion-configuration",
        "mountPath": "/var/run/secrets/kubernetes.io/serviceaccount",
        "readOnly": True,
    }


def test_a_pod_without_an_automatic_token_has_the_one_for_gateways() -> None:
    made = after(pod(spec={"automountServiceAccountToken": False}))
    (volume,) = (one for one in made["spec"]["volumes"] if one["name"] == "pillion-token")
    assert [*volume["projected"]["sources"][0]] == ["serviceAccountToken"]
    assert made["spec"]["automountServiceAccountToken"] is False


def test_the_gateways_are_those_of_the_namespace_that_the_pod_is_made_in() -> None:
    (sidecar,) = after(pod())["spec"]["initContainers"]
    assert "https://pillion-{service}.shop.svc:8288" in sidecar["args"]


BUSY = pod(
    labels={"app": "web"},
    spec={
        "initContainers": [{"name": "mesh", "restartPolicy": "Always"}, {"name": "migrate"}],
        "containers": [{"name": "app"}, {"name": "logs"}],
        "volumes": [{"name": "cache", "emptyDir": {}}],
    },
)


def test_what_is_there_stays_as_it_is_and_where_it_is() -> None:
    made = after(BUSY)
    spec, before = made["spec"], BUSY["spec"]
    assert spec["initContainers"][:-1] == before["initContainers"]
    assert spec["initContainers"][-1]["name"] == "pillion-deliverer"
    assert spec["containers"] == before["containers"]
    assert spec["volumes"][0] == before["volumes"][0]
    assert made["metadata"]["labels"] == {"app": "web", "pillion.dev/deliverer": "web"}


def test_nothing_is_written_over_or_removed() -> None:
    patch, _ = injection_patch(
        BUSY, namespace="shop", decision=Inject(service="web", spec={}), defaults=DEFAULTS
    )
    assert {operation["op"] for operation in patch} == {"add"}
    assert all(
        operation["path"].endswith("/-") or operation["path"].startswith("/metadata/labels/")
        for operation in patch
    )


def test_a_second_call_adds_nothing() -> None:
    once = after(BUSY)
    assert after(once) == once


def test_another_injectors_container_behind_ours_stays_there() -> None:
    once = after(BUSY)
    once["spec"]["initContainers"].append({"name": "late"})
    assert after(once) == once


@pytest.mark.parametrize(
    ("grace", "shutdown", "expected"),
    [(30, 20, 30), (30, 60, 70), (100, 60, 100), (None, 60, 70), (0, 0, 10)],
)
def test_the_grace_period_is_only_ever_raised(
    grace: int | None, shutdown: int, expected: int
) -> None:
    made = after(
        pod(spec={"terminationGracePeriodSeconds": grace}), shutdownGracePeriodSeconds=shutdown
    )
    assert made["spec"]["terminationGracePeriodSeconds"] == expected


def test_a_grace_period_that_nobody_stated_is_that_of_kubernetes() -> None:
    body = pod()
    del body["spec"]["terminationGracePeriodSeconds"]
    assert "terminationGracePeriodSeconds" not in after(body)["spec"]


def test_storage_adds_its_volume() -> None:
    made = after(pod(), deliverer={"storage": {"sizeLimit": "1Gi"}})
    assert made["spec"]["volumes"][1] == {"name": "pillion-data", "emptyDir": {"sizeLimit": "1Gi"}}


def test_volumes_that_a_copied_pod_has_kept_are_not_added_twice() -> None:
    body = pod(spec={"volumes": copy.deepcopy(after(pod())["spec"]["volumes"])})
    names = [volume["name"] for volume in after(body)["spec"]["volumes"]]
    assert names == ["pillion-configuration", "pillion-data", "pillion-token"]


@pytest.mark.parametrize(("user", "ours"), [(0, 65_532), (1000, None), (None, None)])
def test_in_a_pod_that_runs_as_root_the_deliverer_does_not(
    user: int | None, ours: int | None
) -> None:
    made = after(pod(spec={"securityContext": {"runAsUser": user}}))
    context = made["spec"]["initContainers"][0]["securityContext"]
    assert context.get("runAsUser") == ours


@pytest.mark.parametrize("port", [8288, 8289])
@pytest.mark.parametrize("place", ["containers", "initContainers"])
def test_a_container_that_wants_our_port_is_named(place: str, port: int) -> None:
    body = pod(spec={place: [{"name": "greedy", "ports": [{"containerPort": port}]}]})
    (warning,) = warnings(body)
    assert "greedy" in warning
    assert str(port) in warning


def test_other_ports_are_no_clash() -> None:
    assert warnings(pod(spec={"containers": [{"ports": [{"containerPort": 8080}]}]})) == ()


@pytest.mark.parametrize(
    ("present", "expected"),
    [(None, [{"name": "registry"}]), ([], [{"name": "registry"}]), ([{"name": "x"}], None)],
)
def test_pull_secrets_are_added_where_the_pod_has_none(
    present: list[Any] | None, expected: list[Any] | None
) -> None:
    body = pod(spec={} if present is None else {"imagePullSecrets": present})
    defaults = DelivererDefaults(image="registry.test/pillion:1", pull_secrets=("registry",))
    patch, _ = injection_patch(
        body, namespace="shop", decision=Inject(service="web", spec={}), defaults=defaults
    )
    assert patched(body, patch)["spec"]["imagePullSecrets"] == (expected or present)


def test_without_pull_secrets_of_the_installation_none_are_added() -> None:
    assert "imagePullSecrets" not in after(pod())["spec"]


def test_annotations_give_the_sidecar_its_resources_and_log_level() -> None:
    annotations = {
        "pillion.dev/requests": "cpu=100m, memory=128Mi",
        "pillion.dev/limits": "memory=1Gi",
        "pillion.dev/log-level": "DEBUG",
    }
    (sidecar,) = after(pod(annotations=annotations))["spec"]["initContainers"]
    assert sidecar["resources"] == {
        "requests": {"cpu": "100m", "memory": "128Mi"},
        "limits": {"memory": "1Gi"},
    }
    assert sidecar["args"][-2:] == ["--log-level", "DEBUG"]


def test_what_annotations_do_not_name_stays_as_the_service_has_it() -> None:
    resources = {"requests": {"cpu": 1, "memory": "64Mi"}, "limits": {"cpu": 2}}
    made = after(
        pod(annotations={"pillion.dev/requests": "cpu=2"}), deliverer={"resources": resources}
    )
    (sidecar,) = made["spec"]["initContainers"]
    assert sidecar["resources"] == {
        "requests": {"cpu": "2", "memory": "64Mi"},
        "limits": {"cpu": 2},
    }


@pytest.mark.parametrize(
    ("name", "value", "says"),
    [
        ("requests", "cpu", "'' is not a quantity"),
        ("requests", "", "'' is none of cpu, memory"),
        ("requests", "cpus=1", "'cpus' is none of"),
        ("requests", "cpu=1,cpu=2", "it names cpu twice"),
        ("limits", "memory=0", "'0' is not a quantity"),
        ("limits", "memory=1" + "0" * 40, "is not a quantity"),
        ("requests", "memory=1Gi", "request 1Gi of memory, more than its limit of 384Mi"),
        ("limits", "memory=1Mi", "request 96Mi of memory, more than its limit of 1Mi"),
        ("log-level", "debug", "'debug' is none of DEBUG, INFO"),
    ],
)
def test_a_wrong_annotation_is_named_in_a_warning_and_has_no_effect(
    name: str, value: str, says: str
) -> None:
    body = pod(annotations={f"pillion.dev/{name}": value})
    (warning,) = warnings(body)
    assert f"pillion.dev/{name}" in warning
    assert "ignored" in warning
    assert says in warning
    assert after(body)["spec"] == after(pod())["spec"]
