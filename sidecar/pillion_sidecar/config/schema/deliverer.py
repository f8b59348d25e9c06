"""``IndicationService.spec.deliverer``: where and as what deliverers run in a cluster."""

from collections.abc import Callable

from pillion_sidecar.config.resources import DelivererMode, MissedInjectionPolicy
from pillion_sidecar.config.schema.common import immutable, one_of
from pillion_sidecar.config.schema.fields import (
    Boolean,
    Field,
    Integer,
    JSONObject,
    Quantity,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.config.schema.quantities import amount
from pillion_sidecar.config.schema.rules import matching, object_name
from pillion_sidecar.config.schema.selectors import label_selector
from pillion_sidecar.config.schema.template import TEMPLATE

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
    return Struct(
        fields=tuple(
            Field(name=name, type=Quantity(), description=description)
            for name, _, description in _QUANTITIES
        )
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


_RESOURCES = Struct(
    fields=(
        Field(
            name="requests",
            type=_quantities(),
            description="The resources that are reserved for the container.",
        ),
        Field(
            name="limits",
            type=_quantities(),
            description="What the container may use at most.",
        ),
    ),
    rules=tuple(_within_limit(name, escaped) for name, escaped, _ in _QUANTITIES),
)

_STORAGE = Struct(
    fields=(
        Field(
            name="sizeLimit",
            type=Quantity(),
            assumed="no limit for an emptyDir, 1280Mi for a claim",
            description="How much the volume holds, such as 1Gi. The journal takes 80 % of it at "
            "most, and 1 GiB where nothing is said.",
        ),
        Field(
            name="storageClassName",
            type=object_name(),
            assumed="the cluster's default class",
            description="The StorageClass of a gateway's volume. A sidecar's volume is an emptyDir "
            "and has none.",
        ),
    ),
    rules=(
        # Whatever the durability: that may change, and the volume may not.
        Rule(
            cel="!has(self.sizeLimit) || "
            f'quantity(string(self.sizeLimit)).compareTo(quantity("{SMALLEST_VOLUME}")) >= 0',
            holds=lambda storage: (
                "sizeLimit" not in storage
                or amount(storage["sizeLimit"]) >= amount(SMALLEST_VOLUME)
            ),
            field="sizeLimit",
            message="is too small for a journal",
            remedy=f"Write at least {SMALLEST_VOLUME}.",
        ),
    ),
)

_IMAGE = Text(
    min_length=1,
    max_length=512,
    rules=(
        matching(
            "[A-Za-z0-9]([A-Za-z0-9._:/@-]*[A-Za-z0-9])?",
            message="is not the name of an image",
            remedy="Write it as registry/name:tag or registry/name@sha256:digest.",
        ),
    ),
)

_SIDECAR = (
    Field(
        name="podSelector",
        type=label_selector(purpose="to get a sidecar"),
        assumed="only pods with the label pillion.dev/inject get one",
        description="Which pods of the namespace get a sidecar when they are created, besides "
        "those that ask for one by the label pillion.dev/inject. A pod with "
        'pillion.dev/inject: "false" never does. Only with mode Sidecar.',
    ),
    Field(
        name="injectSparkDriver",
        type=Boolean(),
        default=False,
        description="Whether the driver of a Spark application (label spark-role: driver) gets a "
        "sidecar too where it is selected. Otherwise only the executors do. Only with mode "
        "Sidecar.",
    ),
    Field(
        name="onMissedInjection",
        type=one_of(MissedInjectionPolicy),
        default="Report",
        description="What happens to a pod that should have a sidecar and has none, for example "
        "because the webhook could not be reached. Report: an Event, a metric, and "
        "status.missing. Evict: that, and the pod is evicted, within its disruption budget, so "
        "that its owner makes another. Only with mode Sidecar.",
    ),
)

_RUNNING = (
    Field(
        name="replicas",
        type=Integer(minimum=1, maximum=100),
        default=1,
        description="How many pods the gateway has. Each has queues of its own: two of them may "
        "deliver to one listener out of order. More than 1 only with mode Gateway.",
    ),
    Field(
        name="image",
        type=_IMAGE,
        assumed="the image that the operator was installed with",
        description="The image of the deliverer's container.",
    ),
    Field(
        name="resources",
        type=_RESOURCES,
        default={},
        assumed="what the operator was installed with",
        description="What the deliverer's container asks for and may use, as in any pod.",
    ),
    Field(
        name="storage",
        type=_STORAGE,
        default={},
        assumed="an emptyDir without a limit",
        description="The volume for the deliverer's journal: an emptyDir beside a sidecar, which "
        "lives as long as its pod; a PersistentVolumeClaim under a gateway, which outlives pods. "
        "A gateway whose service names no storage has an emptyDir, too. It cannot be changed.",
    ),
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

DELIVERER = Field(
    name="deliverer",
    type=Struct(
        fields=(
            Field(
                name="mode",
                type=one_of(DelivererMode),
                default="Sidecar",
                description="As what deliverers run. Sidecar: one in every pod that publishes, "
                "reached by loopback, living and ending with the pod. Gateway: a StatefulSet of "
                "its own that the namespace publishes to. It cannot be changed.",
            ),
            *_SIDECAR,
            *_RUNNING,
            TEMPLATE,
        ),
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
    ),
    default={},
    description="Where and as what the deliverers of this service run in a cluster. A deliverer "
    "that is started by hand on a folder of files ignores it.",
)
