"""``IndicationService.spec.deliverer``: where and as what deliverers run in a cluster."""

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Any

from pillion_sidecar.config.schema.common import immutable, object_name, text_matching
from pillion_sidecar.config.schema.fields import (
    Field,
    Integer,
    JSONObject,
    Quantity,
    Rule,
    Struct,
    amount,
    declared,
    resource,
    structure,
)
from pillion_sidecar.config.schema.pods import TEMPLATE, label_selector


class DelivererMode(StrEnum):
    """As what the deliverers of a service run."""

    SIDECAR = "Sidecar"
    GATEWAY = "Gateway"


class MissedInjectionPolicy(StrEnum):
    """What is done about a pod that should have a sidecar and has none."""

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

#: What the volume of the smallest journal holds.
SMALLEST_VOLUME = "10Mi"


def _quantities() -> Struct:
    return structure(
        *tuple(Field(name, Quantity(), description) for name, _, description in _QUANTITIES)
    )


def _within_limit(name: str, escaped: str) -> Rule:
    # A pod that asks for more than its limit is refused, and with an injected sidecar that would
    # be the user's own pod.
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
    Field("limits", _quantities(), "What the container may use at most."),
    rules=tuple(_within_limit(name, escaped) for name, escaped, _ in _QUANTITIES),
)


_IMAGE = text_matching(
    "[A-Za-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?",
    max_length=512,
    message="is not the name of an image",
    remedy="Write it as registry/name:tag or registry/name@sha256:digest.",
)


_STORAGE_RULES = (
    # Whatever the durability: that may change, and the volume may not.
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
    """The volume of a deliverer: an emptyDir beside a sidecar, a claim under a gateway. None of
    the two given: no volume."""

    #: A Kubernetes quantity; None: no limit of an emptyDir, the operator's own choice for a claim.
    size_limit: str | None = declared(
        default=None,
        type=Quantity(),
        assumed="no limit for an emptyDir, 1280Mi for a claim",
        description="How much the volume holds, such as 1Gi. The journal takes 80 % of it at most, "
        "and 1 GiB where nothing is said.",
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
    """Where and as what the deliverers of a service run. Only the operator heeds it."""

    mode: DelivererMode = declared(
        default=DelivererMode.SIDECAR,
        description="As what deliverers run. Sidecar: one in every pod that publishes, reached by "
        "loopback, living and ending with the pod. Gateway: a StatefulSet of its own that the "
        "namespace publishes to. It cannot be changed.",
    )
    #: A Kubernetes label selector as JSON (matchLabels, matchExpressions), never an empty one;
    #: None: only pods that carry the label get a sidecar.
    pod_selector: Mapping[str, Any] | None = declared(
        default=None,
        type=label_selector(purpose="to get a sidecar"),
        assumed="only pods with the label pillion.dev/inject get one",
        description="Which pods of the namespace get a sidecar when they are created, besides "
        "those that ask for one by the label pillion.dev/inject. A pod with pillion.dev/inject: "
        '"false" never does. Only with mode Sidecar.',
    )
    inject_spark_driver: bool = declared(
        default=False,
        description="Whether the driver of a Spark application (label spark-role: driver) gets a "
        "sidecar too where it is selected. Otherwise only the executors do. Only with mode "
        "Sidecar.",
    )
    on_missed_injection: MissedInjectionPolicy = declared(
        default=MissedInjectionPolicy.REPORT,
        description="What happens to a pod that should have a sidecar and has none, for example "
        "because the webhook could not be reached. Report: an Event, a metric, and status.missing. "
        "Evict: that, and the pod is evicted, within its disruption budget, so that its owner "
        "makes another. Only with mode Sidecar.",
    )
    replicas: int = declared(
        default=1,
        type=Integer(minimum=1, maximum=100),
        description="How many pods the gateway has. Each has queues of its own: two of them may "
        "deliver to one listener out of order. More than 1 only with mode Gateway.",
    )
    #: None: the operator's own choice.
    image: str | None = declared(
        default=None,
        type=_IMAGE,
        assumed="the image that the operator was installed with",
        description="The image of the deliverer's container.",
    )
    #: A container's ``resources`` as JSON: requests and limits, each quantity a text.
    resources: Mapping[str, Mapping[str, str]] = declared(
        default_factory=dict,
        type=_RESOURCES,
        convert=_as_texts,
        json_default={},
        assumed="what the operator was installed with",
        description="What the deliverer's container asks for and may use, as in any pod.",
    )
    storage: StorageSpec = declared(
        default=StorageSpec(),
        type=structure(StorageSpec, rules=_STORAGE_RULES),
        json_default={},
        assumed="an emptyDir without a limit",
        description="The volume for the deliverer's journal: an emptyDir beside a sidecar, which "
        "lives as long as its pod; a PersistentVolumeClaim under a gateway, which outlives pods. A "
        "gateway whose service names no storage has an emptyDir, too. It cannot be changed.",
    )


def _only_with(
    mode: DelivererMode, *, field: str, used: str, is_used: Callable[[JSONObject], bool]
) -> Rule:
    return Rule(
        cel=f'self.mode == "{mode}" || !({used})',
        holds=lambda deliverer: deliverer["mode"] == mode or not is_used(deliverer),
        field=field,
        message=f"has no effect unless mode is {mode}",
        remedy=f"Remove it, or make a service with mode {mode}.",
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
    Rule(
        cel='self.mode == "Gateway" || self.replicas == 1',
        holds=lambda deliverer: deliverer["mode"] == "Gateway" or deliverer["replicas"] == 1,
        field="replicas",
        message="is more than 1, but every pod has exactly one sidecar",
        remedy="Remove it, or make a service with mode Gateway.",
    ),
    Rule(
        cel='self.mode == "Gateway" || !has(self.storage.storageClassName)',
        holds=lambda deliverer: (
            deliverer["mode"] == "Gateway" or "storageClassName" not in deliverer["storage"]
        ),
        field="storage",
        message="names a storageClassName, but the volume of a sidecar is an emptyDir",
        remedy="Remove it, or make a service with mode Gateway.",
    ),
)

_REMAKE = (
    "Make another service with subscriptions of its own, and delete this one once nothing waits "
    "in its queues."
)

DELIVERER = structure(
    DelivererSpec,
    TEMPLATE,
    rules=_RULES,
    transitions=(
        immutable(
            "mode",
            message="cannot be changed, since what the deliverers hold would be lost",
            remedy=_REMAKE,
        ),
        immutable(
            "storage",
            message="cannot be changed, since volumes keep the size and class they have",
            remedy=_REMAKE,
        ),
    ),
)
