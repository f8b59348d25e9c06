"""What ``helm test`` would make, as the chart renders it: no cluster is asked."""

from typing import Any

import pytest

from pillion_cli.cluster_check import KINDS
from pillion_cli.main import command_parser, load
from pillion_operator.cluster.types import our_type
from pillion_operator.names import gateway
from pillion_sidecar.config.schema.common import SERVICE_NAME_LENGTH
from pillion_testbed.helm import MATRIX, Helm, Object, find_helm, of_kind, only

# The first one may have to build helm.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

RELEASE = "pillion-system"


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return find_helm(tmp_path_factory.mktemp("helm"))


def hooks(helm: Helm, *values: str) -> list[Object]:
    """What is made for the test alone."""
    return [found for found in helm.template(*values, tests=True) if hook(found)]


def hook(found: Object) -> Any:
    annotations = found["metadata"].get("annotations") or {}
    return annotations.get("helm.sh/hook")


def asked(objects: list[Object]) -> Any:
    """The command line of the check, as ``pillion`` reads it."""
    (container,) = only(objects, "Pod")["spec"]["containers"]
    assert container["args"][0] == "check"
    return command_parser("check", load("check")).parse_args(container["args"][1:])


@pytest.mark.parametrize("case", MATRIX)
def test_all_of_it_is_a_hook_that_goes_when_it_has_succeeded(helm: Helm, case: str) -> None:
    objects = hooks(helm, *MATRIX[case])
    assert {found["kind"] for found in objects} >= {"Pod", "ServiceAccount", "Role", "RoleBinding"}
    for found in objects:
        annotations = found["metadata"]["annotations"]
        assert annotations["helm.sh/hook"] == "test"
        assert annotations["helm.sh/hook-delete-policy"] == "before-hook-creation,hook-succeeded"
    # Nothing of it is there before the test.
    assert not any(hook(found) for found in helm.template(*MATRIX[case]))


def test_what_is_needed_comes_first(helm: Helm) -> None:
    weights = {
        found["kind"]: int(found["metadata"]["annotations"].get("helm.sh/hook-weight", 0))
        for found in hooks(helm)
    }
    order = ("Namespace", "Role", "RoleBinding", "Pod")
    assert [weights[kind] for kind in order] == sorted({weights[kind] for kind in order})
    assert weights["ServiceAccount"] < weights["Pod"]


def test_where_all_namespaces_are_served_it_has_one_of_its_own(helm: Helm) -> None:
    selector = 'injection.namespaceSelector={"matchLabels":{"indications":"required"}}'
    objects = hooks(helm, selector)
    metadata = only(objects, "Namespace")["metadata"]
    assert metadata["labels"]["pod-security.kubernetes.io/enforce"] == "restricted"
    # Else the webhook would let it out.
    assert metadata["labels"]["indications"] == "required"
    assert asked(objects).namespace == metadata["name"] != RELEASE


@pytest.mark.parametrize(
    ("values", "namespace"),
    [
        (('scope.namespaces=["weather","warehouse"]',), "weather"),
        (('scope.namespaces=["weather","warehouse"]', "test.namespace=warehouse"), "warehouse"),
        (("test.namespace=trial",), "trial"),
    ],
)
def test_elsewhere_it_uses_one_that_is_there(
    helm: Helm, values: tuple[str, ...], namespace: str
) -> None:
    objects = hooks(helm, *values)
    assert of_kind(objects, "Namespace") == []
    assert asked(objects).namespace == namespace
    assert only(objects, "Role")["metadata"]["namespace"] == namespace
    # Where `helm test` looks for it.
    assert only(objects, "Pod")["metadata"]["namespace"] == RELEASE


def test_its_rights_are_those_that_a_check_needs_in_one_namespace(helm: Helm) -> None:
    objects = hooks(helm)
    name = asked(objects).name
    kinds = sorted(our_type(kind).plural for kind in KINDS)
    resources, own, trust, trial = only(objects, "Role")["rules"]
    assert resources == {"apiGroups": ["pillion.dev"], "resources": kinds, "verbs": ["create"]}
    assert own["verbs"] == ["get", "delete"]
    assert own["resourceNames"] == [name]
    assert trust["resourceNames"] == [gateway(name)]
    assert (trust["resources"], trust["verbs"]) == (["configmaps"], ["get"])
    assert (trial["resources"], trial["verbs"]) == (["pods"], ["create"])
    assert of_kind(objects, "ClusterRole") == []
    (subject,) = only(objects, "RoleBinding")["subjects"]
    account = only(objects, "ServiceAccount")["metadata"]
    assert (subject["namespace"], subject["name"]) == (account["namespace"], account["name"])
    assert asked(objects).publisher == (account["namespace"], account["name"])


def test_without_injection_it_neither_tries_it_nor_may(helm: Helm) -> None:
    objects = hooks(helm, "injection.enabled=false")
    assert asked(objects).injection is False
    assert not any("pods" in rule["resources"] for rule in only(objects, "Role")["rules"])
    assert asked(hooks(helm)).injection is True


@pytest.mark.parametrize("case", ["default", "pod"])
def test_its_pod_keeps_to_the_restricted_profile(helm: Helm, case: str) -> None:
    spec = only(hooks(helm, *MATRIX[case]), "Pod")["spec"]
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    (container,) = spec["containers"]
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    assert spec["restartPolicy"] == "Never"


def test_it_takes_no_image_but_the_operators(helm: Helm) -> None:
    objects = helm.template(*MATRIX["digests"], tests=True)
    (operator,) = only(objects, "Deployment")["spec"]["template"]["spec"]["containers"]
    (container,) = only(objects, "Pod")["spec"]["containers"]
    assert container["image"] == operator["image"]


def test_its_token_is_for_a_gateway_and_for_nobody_else(helm: Helm) -> None:
    objects = hooks(helm)
    volumes = {volume["name"]: volume for volume in only(objects, "Pod")["spec"]["volumes"]}
    (source,) = volumes["token"]["projected"]["sources"]
    assert source["serviceAccountToken"]["audience"] == "pillion"
    (container,) = only(objects, "Pod")["spec"]["containers"]
    (mount,) = [one for one in container["volumeMounts"] if one["name"] == "token"]
    path = f"{mount['mountPath']}/{source['serviceAccountToken']['path']}"
    assert str(asked(objects).token_file) == path


def test_names_stay_names_however_long_that_of_the_release_is(helm: Helm) -> None:
    objects = hooks(helm, f"fullnameOverride={'a' * 63}")
    assert len(asked(objects).name) <= SERVICE_NAME_LENGTH
    for found in objects:
        assert len(found["metadata"]["name"]) <= 63


def test_it_can_be_left_out(helm: Helm) -> None:
    assert hooks(helm, "test.enabled=false") == []
