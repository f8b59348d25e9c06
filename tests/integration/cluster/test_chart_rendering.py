"""What the chart renders, over a matrix of values: no cluster is asked."""

import json
from collections.abc import Callable, Iterator
from pathlib import PurePath
from typing import Any

import pytest
import yaml

from pillion_cli.commands.operator import settings_of
from pillion_cli.main import command_parser, load
from pillion_operator.clock import SystemClock
from pillion_operator.cluster.issuer import CONFIGURATION_PATH, KEYS_PATH
from pillion_operator.cluster.types import OURS
from pillion_operator.injection.container import TELEMETRY_PORT_NAME
from pillion_operator.injection.decision import SYSTEM_NAMESPACES
from pillion_operator.injection.webhook import InjectingWebhook
from pillion_operator.names import DELIVERER_LABEL, INJECT_LABEL, REVISION_ANNOTATION
from pillion_operator.settings import (
    DelivererDefaults,
    NetworkSettings,
    OperatorSettings,
    SidecarPolicy,
    WebhookSettings,
)
from pillion_operator.store import Store
from pillion_operator.telemetry.metrics import Metrics
from pillion_sidecar.config.addresses import Address, AddressPolicy
from pillion_testbed.helm import (
    CHART,
    MATRIX,
    Helm,
    HelmFailed,
    Object,
    alert_groups,
    find_helm,
    of_kind,
    only,
)

# The first one may have to build helm.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

ROOT = CHART.parents[1]
RULED = ("ClusterRole", "Role")
CLUSTER_WIDE = {
    *("ClusterRole", "ClusterRoleBinding", "CustomResourceDefinition"),
    *("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration"),
    "ValidatingAdmissionPolicy",
    "ValidatingAdmissionPolicyBinding",
}
Render = Callable[..., list[Object]]


@pytest.fixture(scope="module")
def helm(tmp_path_factory: pytest.TempPathFactory) -> Helm:
    return find_helm(tmp_path_factory.mktemp("helm"))


@pytest.fixture(scope="module")
def render(helm: Helm) -> Render:
    """The objects of an entry of the matrix; each is rendered once."""
    rendered: dict[str, list[Object]] = {}

    def ask(case: str) -> list[Object]:
        if case not in rendered:
            rendered[case] = helm.template(*MATRIX[case])
        return rendered[case]

    return ask


def arguments(objects: list[Object]) -> list[str]:
    (container,) = pod(objects)["containers"]
    found: list[str] = container["args"]
    return found


def pod(objects: list[Object]) -> Any:
    return only(objects, "Deployment")["spec"]["template"]["spec"]


def option(objects: list[Object], name: str) -> str:
    found = arguments(objects)
    return found[found.index(name) + 1]


def rules(objects: list[Object]) -> Iterator[Any]:
    """The rules about objects."""
    return (rule for rule in all_rules(objects) if "resources" in rule)


def all_rules(objects: list[Object]) -> Iterator[Any]:
    for kind in RULED:
        for role in of_kind(objects, kind):
            yield from role["rules"]


def test_lint_has_nothing_to_say_against_it(helm: Helm) -> None:
    said = helm.run("lint", str(CHART), "--strict", "--kube-version=1.34.4")
    assert "0 chart(s) failed" in said


@pytest.mark.parametrize("case", MATRIX)
def test_every_object_is_named_once_and_lies_where_it_should(render: Render, case: str) -> None:
    objects = render(case)
    identities = [
        (found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"])
        for found in objects
    ]
    assert len(set(identities)) == len(identities)
    for kind, namespace, name in identities:
        assert (namespace is None) == (kind in CLUSTER_WIDE), (kind, name)
        assert len(name) <= 63


@pytest.mark.parametrize("case", MATRIX)
def test_the_operator_keeps_to_the_restricted_profile(render: Render, case: str) -> None:
    spec = pod(render(case))
    assert spec["securityContext"]["runAsNonRoot"] is True
    assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert not {"hostPID", "hostIPC", "initContainers"} & spec.keys()
    assert ("hostNetwork" in spec) == (case == "host-network")
    assert {next(kind for kind in volume if kind != "name") for volume in spec["volumes"]} <= {
        *("emptyDir", "secret", "configMap")
    }
    for container in spec["containers"]:
        context = {**container["securityContext"]}
        context.pop("appArmorProfile", None)
        assert context == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert container["resources"]["requests"].keys() == {"cpu", "memory"}
        assert container["resources"]["limits"].keys() == {"memory"}
        for probe, path in (
            ("startup", "startupz"),
            ("liveness", "livez"),
            ("readiness", "readyz"),
        ):
            assert container[f"{probe}Probe"]["httpGet"]["path"] == f"/{path}"
            assert container[f"{probe}Probe"]["httpGet"]["port"] == "telemetry"


@pytest.mark.parametrize("case", MATRIX)
def test_no_right_is_a_wildcard(render: Render, case: str) -> None:
    for rule in all_rules(render(case)):
        named = [word for words in rule.values() for word in words]
        assert not any("*" in word for word in named)
        assert not set(rule["verbs"]) & {"escalate", "bind", "impersonate"}


@pytest.mark.parametrize("case", MATRIX)
def test_everything_that_selects_the_operator_selects_its_pods(render: Render, case: str) -> None:
    objects = render(case)
    labels = only(objects, "Deployment")["spec"]["template"]["metadata"]["labels"].items()
    selectors = [only(objects, "Deployment")["spec"]["selector"]["matchLabels"]]
    selectors += [found["spec"]["selector"] for found in of_kind(objects, "Service")]
    for kind, field in (("PodDisruptionBudget", "selector"), ("NetworkPolicy", "podSelector")):
        selectors += [found["spec"][field]["matchLabels"] for found in of_kind(objects, kind)]
    for selector in selectors:
        assert selector
        assert selector.items() <= labels


@pytest.mark.parametrize("case", MATRIX)
def test_every_binding_gives_a_role_that_is_there_to_the_operator(
    render: Render, case: str
) -> None:
    objects = render(case)
    there = {
        (found["kind"], found["metadata"].get("namespace"), found["metadata"]["name"])
        for kind in RULED
        for found in of_kind(objects, kind)
    }
    account = pod(objects)["serviceAccountName"]
    for kind in ("ClusterRoleBinding", "RoleBinding"):
        for binding in of_kind(objects, kind):
            role = binding["roleRef"]
            namespace = binding["metadata"].get("namespace")
            assert (role["kind"], namespace, role["name"]) in there
            (subject,) = binding["subjects"]
            assert subject == {
                "kind": "ServiceAccount",
                "name": account,
                "namespace": "pillion-system",
            }


def test_by_default_all_namespaces_are_served(render: Render) -> None:
    objects = render("default")
    assert "--namespace" not in arguments(objects)
    assert [role["metadata"]["namespace"] for role in of_kind(objects, "Role")] == [
        "pillion-system"
    ]
    assert option(objects, "--operator-namespace") == "$(POD_NAMESPACE)"
    assert option(objects, "--identity") == "$(POD_NAME)"
    assert json.loads(option(objects, "--deliverer-resources")) == {
        "requests": {"cpu": "50m", "memory": "96Mi"},
        "limits": {"memory": "384Mi"},
    }


def settings(objects: list[Object]) -> OperatorSettings:
    """What the operator makes of the command line that the pod gives it."""
    parser = command_parser("operator", load("operator"))
    return settings_of(parser.parse_args(arguments(objects)[1:]))


@pytest.mark.parametrize("case", MATRIX)
def test_the_operator_takes_the_command_line(render: Render, case: str) -> None:
    objects = render(case)
    assert arguments(objects)[0] == "operator"
    found = settings(objects)
    assert found.deliverer.resources == DelivererDefaults(image="i").resources
    assert found.lease == only(objects, "Deployment")["metadata"]["name"]
    assert (found.webhook is None) == (case in ("no-injection", "nothing-cluster-wide"))


def test_the_values_become_the_settings_of_the_operator(render: Render) -> None:
    default, namespaced = settings(render("default")), settings(render("namespaced"))
    certificates = settings(render("cert-manager")).webhook
    assert (default.namespaces, namespaced.namespaces) == ((), ("default", "kube-public"))
    assert (default.poke, settings(render("no-poke")).poke) == (True, False)
    assert default.webhook == WebhookSettings()
    assert certificates is not None
    assert certificates.configuration is None
    assert certificates.certificates == PurePath("/etc/pillion/webhook")
    assert settings(render("pod")).deliverer.addresses == AddressPolicy(
        allow_loopback=True, allow_link_local=True
    )


def test_a_scope_gives_roles_in_its_namespaces_and_none_for_secrets_elsewhere(
    render: Render,
) -> None:
    objects = render("namespaced")
    found = arguments(objects)
    named = [found[index + 1] for index, word in enumerate(found) if word == "--namespace"]
    assert named == ["default", "kube-public"]
    served = [
        role["metadata"]["namespace"]
        for role in of_kind(objects, "Role")
        if role["metadata"]["name"].endswith("-served")
    ]
    assert served == ["default", "kube-public"]
    everywhere = [
        resource
        for role in of_kind(objects, "ClusterRole")
        for rule in role["rules"]
        for resource in rule["resources"]
    ]
    assert not {"secrets", "pods", "events"} & set(everywhere)


def test_two_releases_in_two_namespaces_share_no_name_that_is_cluster_wide(helm: Helm) -> None:
    def named(namespace: str) -> set[tuple[str, str]]:
        scope = ('scope.namespaces=["default"]', "crds.install=false")
        objects = helm.template(*scope, namespace=namespace)
        return {(o["kind"], o["metadata"]["name"]) for o in objects if o["kind"] in CLUSTER_WIDE}

    assert named("one")
    assert named("one").isdisjoint(named("two"))


def test_a_release_can_do_without_anything_cluster_wide(render: Render) -> None:
    objects = render("nothing-cluster-wide")
    assert {found["kind"] for found in objects} & CLUSTER_WIDE == set()
    assert {"--no-webhook", "--no-poke"} <= set(arguments(objects))


def test_the_webhook_is_never_asked_about_its_own_and_the_system_namespaces(
    render: Render,
) -> None:
    (webhook,) = only(render("default"), "MutatingWebhookConfiguration")["webhooks"]
    (expression,) = webhook["namespaceSelector"]["matchExpressions"]
    assert expression["key"] == "kubernetes.io/metadata.name"
    assert expression["operator"] == "NotIn"
    assert set(expression["values"]) == {"pillion-system", *SYSTEM_NAMESPACES}
    assert webhook["objectSelector"]["matchExpressions"] == [
        {"key": INJECT_LABEL, "operator": "NotIn", "values": ["false"]}
    ]
    assert webhook["failurePolicy"] == "Ignore"
    assert webhook["sideEffects"] == "None"
    assert webhook["reinvocationPolicy"] == "IfNeeded"


def test_the_webhook_is_asked_where_it_answers(render: Render) -> None:
    (webhook,) = only(render("default"), "MutatingWebhookConfiguration")["webhooks"]
    metrics = Metrics(version="0")
    answering = InjectingWebhook(
        services=Store(),
        defaults=DelivererDefaults(image="i"),
        operator_namespace="pillion-system",
        clock=SystemClock(),
        seconds=metrics.webhook_seconds,
        answers=metrics.webhook_answers,
    )
    posts = [
        route.resource.canonical
        for route in answering.application().router.routes()
        if route.method == "POST" and route.resource is not None
    ]
    assert posts == [webhook["clientConfig"]["service"]["path"]]


def test_the_webhook_keeps_to_the_scope_and_to_the_selector_of_the_values(render: Render) -> None:
    (webhook,) = only(render("namespaced"), "MutatingWebhookConfiguration")["webhooks"]
    assert {
        "key": "kubernetes.io/metadata.name",
        "operator": "In",
        "values": ["default", "kube-public"],
    } in webhook["namespaceSelector"]["matchExpressions"]
    (webhook,) = only(render("fail"), "MutatingWebhookConfiguration")["webhooks"]
    assert webhook["failurePolicy"] == "Fail"
    assert webhook["namespaceSelector"]["matchLabels"] == {"team": "a"}
    assert len(webhook["namespaceSelector"]["matchExpressions"]) == 2


def test_the_operator_goes_by_the_selector_of_the_webhook(render: Render) -> None:
    def lists(case: str) -> bool:
        return any("namespaces" in rule["resources"] for rule in rules(render(case)))

    assert settings(render("fail")).namespace_selector == "team=a,env=prod"
    assert settings(render("default")).namespace_selector is None
    assert (lists("fail"), lists("default")) == (True, False)


@pytest.mark.parametrize("case", sorted(MATRIX.keys() - {"no-injection", "nothing-cluster-wide"}))
def test_the_webhook_leads_to_the_port_that_the_operator_listens_on(
    render: Render, case: str
) -> None:
    objects = render(case)
    (webhook,) = only(objects, "MutatingWebhookConfiguration")["webhooks"]
    reference = webhook["clientConfig"]["service"]
    service = only(objects, "Service", reference["name"])
    assert service["metadata"]["namespace"] == reference["namespace"]
    (port,) = service["spec"]["ports"]
    (container,) = pod(objects)["containers"]
    ports = {found["name"]: found["containerPort"] for found in container["ports"]}
    assert port["port"] == reference["port"]
    assert option(objects, "--webhook") == f"0.0.0.0:{ports[port['targetPort']]}"
    assert option(objects, "--webhook-service") == reference["name"]
    policy = only(objects, "NetworkPolicy")["spec"]
    opened = [found["port"] for rule in policy["ingress"] for found in rule["ports"]]
    assert opened == [ports[name] for name in ("webhook", "telemetry", "console") if name in ports]


def test_its_own_certificates_give_the_operator_the_right_to_its_own_configuration(
    render: Render,
) -> None:
    objects = render("default")
    name = only(objects, "MutatingWebhookConfiguration")["metadata"]["name"]
    assert option(objects, "--webhook-configuration") == name
    assert [
        rule for rule in rules(objects) if "mutatingwebhookconfigurations" in rule["resources"]
    ] == [
        {
            "apiGroups": ["admissionregistration.k8s.io"],
            "resources": ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
            "resourceNames": [name],
            "verbs": ["get", "patch"],
        }
    ]
    # The operator finds both by one name.
    assert only(objects, "ValidatingWebhookConfiguration")["metadata"]["name"] == name
    own = only(objects, "Role")["rules"]
    secrets = [rule for rule in own if rule["resources"] == ["secrets"] and "resourceNames" in rule]
    assert [rule["resourceNames"] for rule in secrets] == [
        [option(objects, "--token-secret")],
        [option(objects, "--gateway-secret")],
        [option(objects, "--webhook-secret")],
    ]
    leases = [rule for rule in own if rule["resources"] == ["leases"] and "resourceNames" in rule]
    assert leases[0]["resourceNames"] == [option(objects, "--lease")]


@pytest.mark.parametrize("case", ["default", "namespaced"])
def test_resources_are_judged_as_they_are_applied_and_nobody_waits_for_it(
    render: Render, case: str
) -> None:
    (webhook,) = only(render(case), "ValidatingWebhookConfiguration")["webhooks"]
    (injecting,) = only(render(case), "MutatingWebhookConfiguration")["webhooks"]
    service = webhook["clientConfig"]["service"]
    assert service == {**injecting["clientConfig"]["service"], "path": "/validate"}
    assert (webhook["failurePolicy"], webhook["sideEffects"]) == ("Ignore", "None")
    (rule,) = webhook["rules"]
    assert rule["operations"] == ["CREATE", "UPDATE"]
    assert set(rule["resources"]) == {known.plural for known in OURS}
    if case == "namespaced":
        (selected,) = webhook["namespaceSelector"]["matchExpressions"]
        assert selected in injecting["namespaceSelector"]["matchExpressions"]


@pytest.mark.parametrize("case", ["cert-manager", "cert-manager-issuer"])
def test_cert_managers_certificate_is_mounted_and_its_ca_injected(
    render: Render, case: str
) -> None:
    objects = render(case)
    certificate = only(objects, "Certificate")
    where = f"pillion-system/{certificate['metadata']['name']}"
    configuration = only(objects, "MutatingWebhookConfiguration")
    assert configuration["metadata"]["annotations"] == {"cert-manager.io/inject-ca-from": where}
    validating = only(objects, "ValidatingWebhookConfiguration")
    assert validating["metadata"]["annotations"] == configuration["metadata"]["annotations"]
    service = configuration["webhooks"][0]["clientConfig"]["service"]["name"]
    assert f"{service}.pillion-system.svc" in certificate["spec"]["dnsNames"]
    volumes = {volume["name"]: volume for volume in pod(objects)["volumes"]}
    mounts = {
        mount["mountPath"]: mount["name"] for mount in pod(objects)["containers"][0]["volumeMounts"]
    }
    mounted = volumes[mounts[option(objects, "--webhook-certificates")]]
    assert mounted["secret"]["secretName"] == certificate["spec"]["secretName"]
    assert "--no-webhook-configuration" in arguments(objects)
    assert not any("mutatingwebhookconfigurations" in rule["resources"] for rule in rules(objects))


def test_an_issuer_is_made_only_where_none_is_named(render: Render) -> None:
    issuer = only(render("cert-manager"), "Issuer")
    named = only(render("cert-manager"), "Certificate")["spec"]["issuerRef"]
    assert named == {"kind": "Issuer", "name": issuer["metadata"]["name"]}
    assert of_kind(render("cert-manager-issuer"), "Issuer") == []
    named = only(render("cert-manager-issuer"), "Certificate")["spec"]["issuerRef"]
    assert named == {"kind": "ClusterIssuer", "name": "corporate"}


def test_the_right_to_patch_pods_comes_only_with_the_policy_that_holds_it(
    helm: Helm, render: Render
) -> None:
    def patches(objects: list[Object]) -> bool:
        return any(
            "pods" in rule["resources"] and "patch" in rule["verbs"] for rule in rules(objects)
        )

    def held(objects: list[Object]) -> bool:
        policies = of_kind(objects, "ValidatingAdmissionPolicy")
        return any(one["metadata"]["name"].endswith("-pod-annotation") for one in policies)

    default, without = render("default"), render("no-poke")
    old = helm.template("rbac.admissionPolicy=false", version="v1.29.0")
    assert (patches(default), held(default), "--no-poke" in arguments(default)) == (
        True,
        True,
        False,
    )
    assert (patches(without), held(without), "--no-poke" in arguments(without)) == (
        False,
        False,
        True,
    )
    assert (patches(old), held(old), "--no-poke" in arguments(old)) == (False, False, True)
    assert REVISION_ANNOTATION in json.dumps(of_kind(default, "ValidatingAdmissionPolicy"))


def test_the_keys_of_tokens_may_be_read_where_the_chart_may_say_so(render: Render) -> None:
    def readable(case: str) -> list[str]:
        (paths,) = (
            rule["nonResourceURLs"]
            for rule in all_rules(render(case))
            if "nonResourceURLs" in rule and rule["verbs"] == ["get"]
        )
        return list(paths)

    assert readable("default") == [CONFIGURATION_PATH, KEYS_PATH]
    for case in ("namespaced", "nothing-cluster-wide", "no-roles"):
        # Kubernetes' own role is what is left.
        assert not any("nonResourceURLs" in rule for rule in all_rules(render(case)))


def test_an_authority_that_is_given_may_be_read_and_no_more(render: Render) -> None:
    def rights(case: str) -> dict[str, list[str]]:
        return {
            name: rule["verbs"]
            for rule in only(render(case), "Role")["rules"]
            if rule["resources"] == ["secrets"]
            for name in rule.get("resourceNames", ())
        }

    given, default = settings(render("gateways")), settings(render("default"))
    assert (default.gateway_secret, default.gateway_authority) == ("pillion-gateways", None)
    assert given.gateway_authority == "corporate-ca"
    assert rights("default")[default.gateway_secret] == ["get", "update"]
    assert rights("gateways")["corporate-ca"] == ["get"]
    assert "corporate-ca" not in rights("default")


def test_the_policies_of_deliverers_are_what_the_values_say(render: Render) -> None:
    assert settings(render("default")).deliverer.network == NetworkSettings()
    assert settings(render("gateways")).deliverer.network == NetworkSettings(
        gateways=False,
        sidecars=SidecarPolicy.SPARK_EXECUTORS,
        telemetry_from=({"podSelector": {}},),
    )


def test_values_of_a_release_from_before_there_were_gateways_will_do(helm: Helm) -> None:
    # What `helm upgrade --reuse-values` comes to.
    found = settings(helm.template("gateways=null", "networkPolicy.deliverers=null"))
    assert (found.gateway_authority, found.deliverer.network) == (None, NetworkSettings())


def test_the_right_to_evict_is_a_value(render: Render) -> None:
    def evicts(case: str) -> bool:
        return any("pods/eviction" in rule["resources"] for rule in rules(render(case)))

    assert (evicts("default"), evicts("no-injection")) == (True, False)


def test_an_image_is_named_by_its_digest_or_by_its_tag(render: Render) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    (container,) = pod(render("default"))["containers"]
    assert container["image"] == f"localhost/pillion:{version}"
    assert option(render("default"), "--deliverer-image") == container["image"]
    (container,) = pod(render("digests"))["containers"]
    assert container["image"] == f"registry.example.com:5000/pillion@sha256:{'a' * 64}"
    objects = render("digests")
    assert option(objects, "--deliverer-image") == (
        f"registry.example.com/deliverer@sha256:{'b' * 64}"
    )
    assert option(objects, "--deliverer-image-pull-policy") == "Always"
    assert pod(objects)["imagePullSecrets"] == [{"name": "pull"}]
    options = command_parser("operator", load("operator")).parse_args(arguments(objects)[1:])
    assert options.deliverer_pull_secret == ["one", "two"]


def test_the_pod_is_what_the_values_say(render: Render) -> None:
    objects = render("pod")
    assert only(objects, "Deployment")["metadata"]["name"] == "other-operator"
    template = only(objects, "Deployment")["spec"]["template"]
    assert template["metadata"]["labels"]["team"] == "a"
    assert template["metadata"]["annotations"] == {"note": "b"}
    spec = template["spec"]
    assert "runAsUser" not in spec["securityContext"]
    assert spec["priorityClassName"] == "high"
    assert spec["nodeSelector"] == {"kubernetes.io/os": "linux"}
    assert spec["tolerations"] == [{"operator": "Exists"}]
    assert spec["affinity"]
    assert spec["topologySpreadConstraints"]
    assert {"--allow-loopback", "--allow-link-local"} <= set(arguments(objects))
    assert pod(render("default"))["securityContext"]["runAsUser"] == 65532


def test_more_arguments_variables_volumes_and_objects_are_added(render: Render) -> None:
    objects = render("extra")
    assert arguments(objects)[-2:] == ["--gather-interval", "5"]
    options = command_parser("operator", load("operator")).parse_args(arguments(objects)[1:])
    assert settings_of(options).gather_interval == 5
    spec = pod(objects)
    (container,) = spec["containers"]
    variables = {one["name"]: one.get("value") for one in container["env"]}
    assert variables["SSL_CERT_FILE"] == "/mnt/ca/ca.crt"
    assert variables["HTTPS_PROXY"] == "http://proxy.example:3128"
    assert variables["NO_PROXY"] == ".svc"
    assert "HTTP_PROXY" not in variables
    assert spec["volumes"][-1] == {"name": "ca", "configMap": {"name": "ca"}}
    assert container["volumeMounts"][-1] == {"name": "ca", "mountPath": "/mnt/ca"}
    made = {found["metadata"]["name"]: found for found in of_kind(objects, "ConfigMap")}
    assert {"one", "two"} <= made.keys()
    assert made["two"]["metadata"]["namespace"] == "pillion-system"


def test_single_fields_of_the_security_contexts_are_replaced(render: Render) -> None:
    spec = pod(render("extra"))
    assert spec["securityContext"] == {
        **pod(render("default"))["securityContext"],
        "fsGroup": 7,
    }
    (container,) = spec["containers"]
    (usual,) = pod(render("default"))["containers"]
    added = {"appArmorProfile": {"type": "RuntimeDefault"}}
    assert container["securityContext"] == {**usual["securityContext"], **added}


def test_common_labels_are_on_every_object_and_never_in_the_place_of_ours(render: Render) -> None:
    objects = [one for one in render("extra") if one["metadata"]["name"] not in ("one", "two")]
    deployment = only(objects, "Deployment")
    for found in (*objects, deployment["spec"]["template"]):
        labels = found["metadata"]["labels"]
        wanted = "b" if found.get("kind") == "ServiceMonitor" else "a"
        assert labels["team"] == wanted, found.get("kind")
        assert labels["app.kubernetes.io/name"] == "pillion"
    assert deployment["spec"]["selector"]["matchLabels"].keys() == {
        "app.kubernetes.io/name",
        "app.kubernetes.io/instance",
        "app.kubernetes.io/component",
    }


def test_the_definitions_show_their_version_and_the_labels_of_the_values(render: Render) -> None:
    version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
    for found in of_kind(render("default"), "CustomResourceDefinition"):
        labels = found["metadata"]["labels"]
        assert labels["app.kubernetes.io/version"] == version
        assert labels["app.kubernetes.io/part-of"] == "pillion"
    for found in of_kind(render("extra"), "CustomResourceDefinition"):
        assert found["metadata"]["labels"]["owner"] == "platform"
        assert found["metadata"]["annotations"] == {
            "helm.sh/resource-policy": "keep",
            "note": "b",
        }


def test_on_the_nodes_network_all_ports_are_those_of_the_values(render: Render) -> None:
    objects = render("host-network")
    deployment = only(objects, "Deployment")["spec"]
    spec = deployment["template"]["spec"]
    assert (spec["hostNetwork"], spec["dnsPolicy"]) == (True, "ClusterFirstWithHostNet")
    # A second pod on the same node would wait for the ports of the first.
    assert deployment["strategy"]["rollingUpdate"] == {"maxSurge": 0, "maxUnavailable": 1}
    usual = only(render("default"), "Deployment")["spec"]["strategy"]["rollingUpdate"]
    assert usual == {"maxSurge": 1, "maxUnavailable": 0}
    (container,) = spec["containers"]
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    assert ports == {"webhook": 10250, "telemetry": 10251}
    assert option(objects, "--webhook") == "0.0.0.0:10250"
    assert option(objects, "--telemetry") == "0.0.0.0:10251"
    rules = only(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["ports"][0]["port"] for rule in rules] == [10250, 10251]
    (service,) = [
        one for one in of_kind(objects, "Service") if one["metadata"]["name"] == "pillion-operator"
    ]
    assert service["spec"]["ports"][0]["port"] == 10251


def test_replicas_of_the_operator_avoid_each_others_nodes_softly(render: Render) -> None:
    objects = render("default")
    rules = pod(objects)["affinity"]["podAntiAffinity"]
    (term,) = rules["preferredDuringSchedulingIgnoredDuringExecution"]
    assert rules.keys() == {"preferredDuringSchedulingIgnoredDuringExecution"}
    assert term["podAffinityTerm"]["topologyKey"] == "kubernetes.io/hostname"
    selector = only(objects, "Deployment")["spec"]["selector"]
    assert term["podAffinityTerm"]["labelSelector"] == selector


def test_alerts_are_left_out_and_changed_by_name(render: Render) -> None:
    objects = render("alerts")
    file = only(objects, "PrometheusRule")["spec"]
    assert yaml.safe_load(only(objects, "ConfigMap")["data"]["rules.yaml"]) == file
    before = {rule["alert"]: rule for group in alert_groups() for rule in group["rules"]}
    after = {rule["alert"]: rule for group in file["groups"] for rule in group["rules"]}
    assert before.keys() - after.keys() == {"PillionGroupStalled"}
    filling = after["PillionQueueFilling"]
    assert (filling["labels"]["severity"], filling["for"]) == ("warning", "5m")
    assert filling["expr"] == before["PillionQueueFilling"]["expr"].replace("> 0.8", "> 0.9")
    expiring = after["PillionGatewayCertificateExpiring"]
    assert expiring["expr"].endswith("< 7 * 86400")
    changed = {name for name in after if after[name] != before[name]}
    assert changed == {"PillionQueueFilling", "PillionGatewayCertificateExpiring"}


@pytest.mark.parametrize(
    ("alerts", "said"),
    [
        ({"PillionNope": {"enabled": False}}, "monitoring.alerts.PillionNope: there is no alert"),
        (
            {"PillionJournalFull": {"threshold": 2}},
            "monitoring.alerts.PillionJournalFull.threshold: this alert has no threshold",
        ),
        ({"PillionJournalFull": {"treshold": 2}}, "additional properties 'treshold' not allowed"),
    ],
)
def test_a_wrong_change_of_an_alert_is_refused_and_named(
    helm: Helm, alerts: Object, said: str
) -> None:
    with pytest.raises(HelmFailed) as refused:
        helm.template("monitoring.rules.enabled=true", f"monitoring.alerts={json.dumps(alerts)}")
    assert said in refused.value.printed


def test_there_is_a_disruption_budget_where_there_is_more_than_one(render: Render) -> None:
    assert of_kind(render("default"), "PodDisruptionBudget") == []
    assert only(render("replicas"), "PodDisruptionBudget")["spec"]["maxUnavailable"] == 2


def test_connections_are_restricted_by_the_values(render: Render) -> None:
    spec = only(render("default"), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress"]
    assert all("from" not in rule for rule in spec["ingress"])
    spec = only(render("network"), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert [rule["from"] for rule in spec["ingress"]] == [
        [{"ipBlock": {"cidr": "198.18.0.0/15"}}],
        [{"namespaceSelector": {}}],
    ]
    assert spec["egress"] == [{"ports": [{"port": 443, "protocol": "TCP"}]}]


def test_the_console_is_off_and_where_it_is_on_has_rights_and_a_port(render: Render) -> None:
    default, objects = render("default"), render("console")
    assert settings(default).console is None
    assert settings(objects).console == Address("0.0.0.0", 8091)
    (container,) = pod(objects)["containers"]
    assert {"name": "console", "containerPort": 8091} in container["ports"]
    assert (
        only(objects, "Service", "pillion-console")["spec"]["ports"][0]["targetPort"] == "console"
    )
    rules = only(objects, "NetworkPolicy")["spec"]["ingress"]
    assert [rule["from"] for rule in rules if rule["ports"][0]["port"] == 8091] == [
        [{"namespaceSelector": {}}]
    ]
    found = {
        role["metadata"]["name"].removeprefix("pillion-console-"): {
            (verb, f"{rule['apiGroups'][0]}/{resource}")
            for rule in role["rules"]
            for verb in rule["verbs"]
            for resource in rule["resources"]
        }
        for role in of_kind(objects, "ClusterRole")
        if role["metadata"]["name"].startswith("pillion-console-")
    }
    reads = {
        ("get", f"pillion.dev/indicationservices/{subresource}")
        for subresource in ("queues", "outcomes")
    }
    assert found == {
        "reviews": {
            ("create", "authentication.k8s.io/tokenreviews"),
            ("create", "authorization.k8s.io/subjectaccessreviews"),
        },
        "view": reads,
        "edit": reads | {("update", "pillion.dev/indicationservices/outcomes")},
    }
    assert not {"ClusterRole", "Service"} & {
        one["kind"] for one in default if one["metadata"]["name"].startswith("pillion-console")
    }


def test_the_definitions_are_those_of_the_source_and_are_kept(render: Render) -> None:
    rendered = {
        found["metadata"]["name"]: found
        for found in of_kind(render("default"), "CustomResourceDefinition")
    }
    source = [yaml.safe_load(path.read_text()) for path in sorted((ROOT / "crds").glob("*.yaml"))]
    assert rendered.keys() == {found["metadata"]["name"] for found in source}
    for found in source:
        copy = rendered[found["metadata"]["name"]]
        assert copy["spec"] == found["spec"]
        assert copy["metadata"]["annotations"]["helm.sh/resource-policy"] == "keep"


def test_monitoring_is_off_and_where_it_is_on_selects_what_there_is(render: Render) -> None:
    kinds = {"ServiceMonitor", "PodMonitor", "PrometheusRule", "ConfigMap"}
    assert not kinds & {found["kind"] for found in render("default")}
    objects = render("monitoring")
    assert kinds <= {found["kind"] for found in objects}
    monitor = only(objects, "ServiceMonitor")["spec"]
    selected = [
        port["name"]
        for service in of_kind(objects, "Service")
        if monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        for port in service["spec"]["ports"]
    ]
    assert selected.count(monitor["endpoints"][0]["port"]) == 1
    pods = only(objects, "PodMonitor")["spec"]
    assert pods["namespaceSelector"] == {"any": True}
    assert pods["selector"]["matchExpressions"] == [{"key": DELIVERER_LABEL, "operator": "Exists"}]
    assert pods["podMetricsEndpoints"][0]["port"] == TELEMETRY_PORT_NAME
    dashboard = only(objects, "ConfigMap")
    assert dashboard["metadata"]["labels"]["grafana_dashboard"] == "1"
    assert json.loads(dashboard["data"]["pillion.json"])["panels"]
    assert only(objects, "PrometheusRule")["spec"] == {"groups": alert_groups()}


@pytest.mark.parametrize(
    ("value", "said"),
    [
        ("replicas=many", "at '/replicas': got string, want integer"),
        ("replicas=-1", "at '/replicas': minimum: got -1, want 0"),
        ("injection.failurePolicy=Maybe", "value must be one of 'Ignore', 'Fail'"),
        ("injection.timeoutSeconds=60", "at '/injection/timeoutSeconds': maximum: got 60, want 30"),
        ("injection.certificates.source=Other", "value must be one of 'Own', 'CertManager'"),
        ("image.digest=abc", "at '/image/digest': 'abc' does not match pattern"),
        ("image.name=x", "at '/image': additional properties 'name' not allowed"),
        ('scope.namespaces=["Upper"]', "at '/scope/namespaces/0': 'Upper' does not match pattern"),
        ("scope.namespaces=default", "at '/scope/namespaces': got string, want array"),
        ("log.format=text", "at '/log/format': value must be one of 'json', 'logfmt'"),
        ("log.level=loud", "at '/log/level': value must be one of"),
        ("replica=2", "additional properties 'replica' not allowed"),
        ('injection.namespaceSelector={"matchlabels":{}}', "'matchlabels' not allowed"),
        ("runAsUser=0", "at '/runAsUser': minimum: got 0, want 1"),
    ],
)
def test_a_wrong_value_is_refused_and_named(helm: Helm, value: str, said: str) -> None:
    with pytest.raises(HelmFailed) as refused:
        helm.template(value)
    assert said in refused.value.printed


def test_an_older_kubernetes_is_refused(helm: Helm) -> None:
    with pytest.raises(HelmFailed, match=r"requires kubeVersion: >=1\.29"):
        helm.template(version="v1.28.9")
