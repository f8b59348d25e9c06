"""``IndicationService.spec.deliverer``: deployment in a cluster."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from pillion_sidecar.config.schema.common import immutable, object_name, reference
from pillion_sidecar.config.schema.pods import TEMPLATE, label_selector
from pillion_sidecar.config.schema.urls import HTTP, url_rules
from pillion_sidecar.fields import (
    Field,
    Integer,
    JSONObject,
    ListOf,
    Number,
    Quantity,
    Rule,
    Struct,
    Text,
    amount,
    declared,
    matching,
    required,
    resource,
    structure,
    text_matching,
)


class DelivererMode(StrEnum):
    SIDECAR = "Sidecar"
    GATEWAY = "Gateway"


class MissedInjectionPolicy(StrEnum):
    REPORT = "Report"
    EVICT = "Evict"


_QUANTITIES = (
    ("cpu", "cpu", "CPU time, in cores: 1, or 500m for half of one."),
    ("memory", "memory", "Memory, in bytes: 128Mi."),
    (
        "ephemeral-storage",
        "ephemeral__dash__storage",
        "Space on the node's own disk, in bytes: 1Gi.",
    ),
)

SMALLEST_VOLUME = "10Mi"


def _quantities() -> Struct:
    return structure(
        *tuple(Field(name, Quantity(), description) for name, _, description in _QUANTITIES)
    )


def _within_limit(name: str, escaped: str) -> Rule:
    # A pod that requests more than its limit is refused; with a sidecar it is the user's own pod.
    def holds(resources: JSONObject) -> bool:
        request = resources.get("requests", {}).get(name)
        limit = resources.get("limits", {}).get(name)
        return request is None or limit is None or amount(request) <= amount(limit)

    request, limit = f"self.requests.{escaped}", f"self.limits.{escaped}"
    return Rule(
        cel="!has(self.requests) || !has(self.limits) || "
        f"!has({request}) || !has({limit}) || "
        f"quantity(string({request})).compareTo(quantity(string({limit}))) <= 0",
        holds=holds,
        field="requests",
        message=f"asks for more {name} than limits allows",
        remedy=f"Lower requests.{name}, or raise limits.{name}.",
    )


_RESOURCES = structure(
    Field("requests", _quantities(), "The resources that are reserved for the container."),
    Field("limits", _quantities(), "The limits of the container's resources."),
    rules=tuple(_within_limit(name, escaped) for name, escaped, _ in _QUANTITIES),
)


_IMAGE = text_matching(
    "[A-Za-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?",
    max_length=512,
    message="is not the name of an image",
    remedy="Write it as registry/name:tag or registry/name@sha256:digest.",
)


#: An argument or a word of a command.
_WORD = Text(max_length=4096)
_PLUGIN = structure(
    required(
        "name",
        text_matching(
            "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
            max_length=40,
            message="is not the name of a plug-in",
            remedy="Use lower-case letters, digits and '-', "
            "beginning and ending with a letter or digit.",
        ),
        "The name by which destinations name it, as plugin://NAME.",
    ),
    required("image", _IMAGE, "The image of the plug-in's container."),
    Field(
        "command",
        ListOf(item=_WORD, max_items=64, atomic=True),
        "The command of the container.",
        assumed="that of the image",
    ),
    Field(
        "args",
        ListOf(item=_WORD, max_items=64, atomic=True),
        "The arguments of the command.",
        assumed="those of the image",
    ),
    Field(
        "environmentSecretRef",
        reference("Secret"),
        "A Secret whose keys become environment variables of the container, such as the "
        "credentials of the service that the plug-in delivers to.",
    ),
    Field(
        "resources", _RESOURCES, "Resource requests and limits of the container.", assumed="none"
    ),
)
PLUGINS = Field(
    "plugins",
    ListOf(item=_PLUGIN, max_items=8, key="name"),
    "Plug-ins for destinations with protocol Plugin: a container of each pod of the gateway, which "
    "serves the socket in its environment variable PILLION_PLUGIN_SOCKET. A change restarts the "
    "pods one by one. Only with mode Gateway.",
)


_COLLECTOR = Text(
    min_length=1,
    max_length=2048,
    rules=(
        *url_rules(HTTP, credentials="Remove them: give the collector a receiver that needs none."),
        matching(
            "[^?]*",
            message="holds a query (?), and /v1/traces is appended to it",
            remedy="Write scheme, host and port, such as http://collector.observability.svc:4318.",
        ),
    ),
)
TRACING = Field(
    "tracing",
    structure(
        required(
            "endpoint",
            _COLLECTOR,
            "The URL of an OpenTelemetry collector that takes OTLP over HTTP (mostly port 4318, "
            "not 4317): http://host:port. Spans are sent to its path /v1/traces.",
        ),
        Field(
            "samplingRatio",
            Number(minimum=0, maximum=1),
            "The share of traces to record of those that begin at a deliverer: 0.01 is one of a "
            "hundred. A traceparent of the publisher decides for its own trace.",
            default=1,
        ),
    ),
    "Where deliverers send the spans of publish requests and attempts. A sidecar has it from the "
    "creation of its pod on; a change restarts the pods of a gateway one by one.",
    assumed="no spans are recorded",
)


_STORAGE_RULES = (
    # Whatever the durability: it may change, the volume may not.
    Rule(
        cel="!has(self.sizeLimit) || "
        f'quantity(string(self.sizeLimit)).compareTo(quantity("{SMALLEST_VOLUME}")) >= 0',
        holds=lambda storage: (
            "sizeLimit" not in storage or amount(storage["sizeLimit"]) >= amount(SMALLEST_VOLUME)
        ),
        field="sizeLimit",
        message="is too small for a journal",
        remedy=f"Write at least {SMALLEST_VOLUME}.",
    ),
)


@resource
class StorageSpec:
    """An emptyDir of a sidecar or a claim of a gateway; without either field: no volume."""

    #: None: an unlimited emptyDir; the operator's default for a claim.
    size_limit: str | None = declared(
        default=None,
        type=Quantity(),
        assumed="no limit for an emptyDir, 1280Mi for a claim",
        description="The size of the volume, such as 1Gi. The journal uses at most 80 % of it; "
        "without a size, 1 GiB.",
    )
    #: None: the cluster's default class.
    storage_class_name: str | None = declared(
        default=None,
        type=object_name(),
        assumed="the cluster's default class",
        description="The StorageClass of a gateway's volume. A sidecar's volume is an emptyDir and "
        "has none.",
    )


def _as_texts(resources: JSONObject) -> dict[str, dict[str, str]]:
    return {
        section: {name: str(quantity) for name, quantity in quantities.items()}
        for section, quantities in resources.items()
    }


@resource
class DelivererSpec:
    """Only the operator reads it."""

    mode: DelivererMode = declared(
        default=DelivererMode.SIDECAR,
        description="How deliverers run. Sidecar: one in every publishing pod, reached by "
        "loopback; it starts and ends with the pod. Gateway: a separate StatefulSet "
        "that the namespace publishes to. It cannot be changed.",
    )
    #: A label selector as JSON, never empty; None: only pods with the label get a sidecar.
    pod_selector: Mapping[str, Any] | None = declared(
        default=None,
        type=label_selector(purpose="to get a sidecar"),
        assumed="only pods with the label pillion.dev/inject get one",
        description="The pods of the namespace that get a sidecar at their creation, in addition "
        'to pods with the label pillion.dev/inject: "true". A pod with '
        'pillion.dev/inject: "false" never gets one. Only with mode Sidecar.',
    )
    inject_spark_driver: bool = declared(
        default=False,
        description="Whether a selected driver of a Spark application (label spark-role: driver) "
        "gets a sidecar too. If false, only executors get one. Only with mode "
        "Sidecar.",
    )
    on_missed_injection: MissedInjectionPolicy = declared(
        default=MissedInjectionPolicy.REPORT,
        description="What the operator does about a pod that should have a sidecar and has none, "
        "for example because the webhook was unreachable. Report: an Event, a metric "
        "and status.missing. Evict: it also evicts the pod, within its disruption "
        "budget, so that the owner creates another. Only with mode Sidecar.",
    )
    replicas: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=100),
        description="The number of pods of the gateway. Each has its own queues, so two pods may "
        "deliver to one listener out of order. More than 1 only with mode Gateway.",
    )
    #: None: the operator's default.
    image: str | None = declared(
        default=None,
        type=_IMAGE,
        assumed="the image that the operator was installed with",
        description="The image of the deliverer's container.",
    )
    #: A container's ``resources`` as JSON.
    resources: Mapping[str, Mapping[str, str]] = declared(
        default_factory=dict,
        type=_RESOURCES,
        convert=_as_texts,
        json_default={},
        assumed="the values that the operator was installed with",
        description="Resource requests and limits of the deliverer's container, as in any pod.",
    )
    storage: StorageSpec = declared(
        default=StorageSpec(),
        type=structure(StorageSpec, rules=_STORAGE_RULES),
        json_default={},
        assumed="an emptyDir without a limit",
        description="The volume of the deliverer's journal. Sidecar: an emptyDir, which ends "
        "with the pod. Gateway: a PersistentVolumeClaim, which outlives pods; "
        "without storage, an emptyDir. It cannot be changed.",
    )


def _only_with(
    mode: DelivererMode, *, field: str, used: str, is_used: Callable[[JSONObject], bool]
) -> Rule:
    return Rule(
        cel=f'self.mode == "{mode}" || !({used})',
        holds=lambda deliverer: deliverer["mode"] == mode or not is_used(deliverer),
        field=field,
        message=f"has no effect unless mode is {mode}",
        remedy=f"Remove it, or create a service with mode {mode}.",
    )


_RULES = (
    _only_with(
        DelivererMode.SIDECAR,
        field="podSelector",
        used="has(self.podSelector)",
        is_used=lambda deliverer: "podSelector" in deliverer,
    ),
    _only_with(
        DelivererMode.SIDECAR,
        field="injectSparkDriver",
        used="self.injectSparkDriver",
        is_used=lambda deliverer: bool(deliverer["injectSparkDriver"]),
    ),
    _only_with(
        DelivererMode.SIDECAR,
        field="onMissedInjection",
        used='self.onMissedInjection != "Report"',
        is_used=lambda deliverer: deliverer["onMissedInjection"] != "Report",
    ),
    _only_with(
        DelivererMode.GATEWAY,
        field="template",
        used="has(self.template)",
        is_used=lambda deliverer: "template" in deliverer,
    ),
    _only_with(
        DelivererMode.GATEWAY,
        field="plugins",
        used="has(self.plugins)",
        is_used=lambda deliverer: "plugins" in deliverer,
    ),
    Rule(
        cel='self.mode == "Gateway" || self.replicas == 1',
        holds=lambda deliverer: deliverer["mode"] == "Gateway" or deliverer["replicas"] == 1,
        field="replicas",
        message="is more than 1, but every pod has exactly one sidecar",
        remedy="Remove it, or create a service with mode Gateway.",
    ),
    Rule(
        cel='self.mode == "Gateway" || !has(self.storage.storageClassName)',
        holds=lambda deliverer: (
            deliverer["mode"] == "Gateway" or "storageClassName" not in deliverer["storage"]
        ),
        field="storage",
        message="names a storageClassName, but the volume of a sidecar is an emptyDir",
        remedy="Remove it, or create a service with mode Gateway.",
    ),
)

_REMAKE = (
    "Create another service with its own subscriptions, and delete this one when its queues are "
    "empty."
)

DELIVERER = structure(
    DelivererSpec,
    TEMPLATE,
    PLUGINS,
    TRACING,
    rules=_RULES,
    transitions=(
        immutable(
            "mode",
            message="cannot be changed, since the indications in its deliverers would be lost",
            remedy=_REMAKE,
        ),
        immutable(
            "storage",
            message="cannot be changed, since a volume keeps its size and class",
            remedy=_REMAKE,
        ),
    ),
)
