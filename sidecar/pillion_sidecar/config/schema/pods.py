"""Kubernetes' types for pods, with bounds: selectors, scheduling, and a gateway's pod template."""

from pillion_sidecar.config.schema.common import DNS_SUBDOMAIN, object_name
from pillion_sidecar.fields import (
    Boolean,
    Field,
    Integer,
    JSONObject,
    ListOf,
    MapOf,
    Quantity,
    Rule,
    Struct,
    Text,
    cel_matches,
    matching,
    one_of,
    required,
    structure,
    text_matching,
    unlike,
    whole,
)

_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY = f"({DNS_SUBDOMAIN}/)?{_NAME}"
_VALUE = f"({_NAME})?"
_LONGEST_KEY = 253
_KEY_REMEDY = (
    "Write at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or "
    "digit, with a domain and '/' in front where there is one."
)
_is_key = whole(_KEY)

LABEL_VALUE = text_matching(
    _VALUE,
    max_length=63,
    min_length=0,
    message="is not the value of a label",
    remedy="Write letters, digits, '-', '_' and '.', beginning and ending with a letter "
    "or digit, or nothing.",
)

LABEL_KEY = Text(
    min_length=1,
    max_length=_LONGEST_KEY,
    rules=(matching(_KEY, message="is not the key of a label", remedy=_KEY_REMEDY),),
)


def label_key_rule(what: str = "label") -> Rule:
    return Rule(
        cel=f"self.all(key, size(key) <= {_LONGEST_KEY} && {cel_matches('key', _KEY)})",
        holds=lambda keys: all(len(key) <= _LONGEST_KEY and _is_key(key) for key in keys),
        message=f"holds a key that no {what} may have",
        remedy=_KEY_REMEDY,
    )


def _selects(selector: JSONObject) -> bool:
    return bool(selector.get("matchLabels") or selector.get("matchExpressions"))


def _compares(requirement: JSONObject) -> bool:
    return requirement["operator"] in ("In", "NotIn")


_REQUIREMENT = structure(
    required("key", LABEL_KEY, "The key of the label."),
    required(
        "operator",
        one_of(("In", "NotIn", "Exists", "DoesNotExist")),
        "The test of the label. In: it has one of values. NotIn: it has none "
        "of them, or is absent. Exists, DoesNotExist: whether it is there.",
    ),
    Field("values", ListOf(item=LABEL_VALUE, max_items=64), "The values for In and NotIn."),
    rules=(
        Rule(
            cel='!(self.operator in ["In", "NotIn"]) || (has(self.values) && self.values != [])',
            holds=lambda requirement: not _compares(requirement) or bool(requirement.get("values")),
            field="values",
            message="is empty, but In and NotIn need values",
            remedy="Write the values, or set operator to Exists or DoesNotExist.",
        ),
        Rule(
            cel='self.operator in ["In", "NotIn"] || !has(self.values) || self.values == []',
            holds=lambda requirement: _compares(requirement) or not requirement.get("values"),
            field="values",
            message="is set, but Exists and DoesNotExist take no values",
            remedy="Remove it, or set operator to In or NotIn.",
        ),
    ),
)


def label_selector(*, purpose: str = "") -> Struct:
    needs = f"A pod needs all of them {purpose}".rstrip()
    return structure(
        Field(
            "matchLabels",
            MapOf(
                value=LABEL_VALUE,
                max_properties=16,
                rules=(label_key_rule(),),
            ),
            f"Labels with their values. {needs}.",
        ),
        Field(
            "matchExpressions",
            ListOf(item=_REQUIREMENT, max_items=16, atomic=True),
            f"Conditions on labels. {needs}.",
        ),
        rules=(
            Rule(
                cel="(has(self.matchLabels) && self.matchLabels != {}) || "
                "(has(self.matchExpressions) && self.matchExpressions != [])",
                holds=_selects,
                message="is empty, and would select every pod of the namespace",
                remedy="Write matchLabels or matchExpressions, or remove the selector.",
            ),
        ),
    )


_WHOLE_NUMBER = "-?[0-9]{1,18}"
_is_number = whole(_WHOLE_NUMBER)

NODE_SELECTOR = MapOf(value=LABEL_VALUE, max_properties=16, rules=(label_key_rule(),))

TOLERATION = structure(
    Field("key", LABEL_KEY, "The key of the taint.", assumed="every key, with operator Exists"),
    Field(
        "operator",
        one_of(("Equal", "Exists")),
        "Equal: the taint has this value. Exists: it has any.",
        default="Equal",
    ),
    Field("value", LABEL_VALUE, "The value of the taint."),
    Field(
        "effect",
        one_of(("NoSchedule", "PreferNoSchedule", "NoExecute")),
        "The effect of the taint.",
        assumed="all effects",
    ),
    Field(
        "tolerationSeconds",
        Integer(minimum=0, maximum=2**31 - 1),
        "Seconds for which a taint with the effect NoExecute is tolerated.",
        assumed="no limit",
    ),
    rules=(
        Rule(
            cel='has(self.key) || self.operator == "Exists"',
            holds=lambda one: "key" in one or one["operator"] == "Exists",
            field="key",
            message="is missing, and only operator Exists tolerates every key",
            remedy="Write the key, or set operator to Exists.",
        ),
        Rule(
            cel='self.operator != "Exists" || !has(self.value) || self.value == ""',
            holds=lambda one: one["operator"] != "Exists" or not one.get("value"),
            field="value",
            message="is set, but operator Exists takes no value",
            remedy="Remove it, or set operator to Equal.",
        ),
        Rule(
            cel='!has(self.tolerationSeconds) || (has(self.effect) && self.effect == "NoExecute")',
            holds=lambda one: "tolerationSeconds" not in one or one.get("effect") == "NoExecute",
            field="tolerationSeconds",
            message="has no effect unless effect is NoExecute",
            remedy="Remove it, or set effect to NoExecute.",
        ),
    ),
)


def _values_fit(requirement: JSONObject) -> bool:
    values = requirement.get("values", [])
    match requirement["operator"]:
        case "In" | "NotIn":
            return bool(values)
        case "Gt" | "Lt":
            return len(values) == 1 and _is_number(values[0])
        case _:
            return not values


_NODE_REQUIREMENT = structure(
    required("key", LABEL_KEY, "The key of a node's label."),
    required(
        "operator",
        one_of(("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")),
        "How the label is compared. Gt, Lt: as whole numbers.",
    ),
    Field(
        "values",
        ListOf(item=Text(max_length=63), max_items=16, atomic=True),
        "The values: one or more for In and NotIn, one whole number for Gt and Lt, none for "
        "Exists and DoesNotExist.",
    ),
    rules=(
        Rule(
            cel='self.operator in ["In", "NotIn"] ? (has(self.values) && self.values != []) : '
            '(self.operator in ["Gt", "Lt"] ? (has(self.values) && self.values.size() == 1 && '
            f"{cel_matches('self.values[0]', _WHOLE_NUMBER)}) : "
            "(!has(self.values) || self.values == []))",
            holds=_values_fit,
            field="values",
            message="does not fit the operator",
            remedy="Write at least one value for In and NotIn, one whole number for Gt and Lt, "
            "none for Exists and DoesNotExist.",
        ),
    ),
)
_NODE_TERM = structure(
    required(
        "matchExpressions",
        ListOf(item=_NODE_REQUIREMENT, max_items=16, atomic=True),
        "Conditions on a node's labels. All must hold.",
    )
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS = 8
_WEIGHT = required("weight", Integer(minimum=1, maximum=100), "The weight, from 1 to 100.")


def _preferred(name: str, term: Struct, *, what: str) -> Field:
    """Weighted terms; ``name`` is the field of the term beside the weight."""
    weighted = required(name, term, f"{what}.")
    return Field(
        _PREFERRED,
        ListOf(item=structure(_WEIGHT, weighted), max_items=_TERMS, atomic=True),
        f"{what}, by weight.",
    )


_NODE_AFFINITY = structure(
    Field(
        _REQUIRED,
        structure(
            required(
                "nodeSelectorTerms",
                ListOf(item=_NODE_TERM, max_items=_TERMS, atomic=True),
                "Conditions. At least one must hold.",
            ),
            rules=(
                Rule(
                    cel="self.nodeSelectorTerms != []",
                    holds=lambda required: bool(required["nodeSelectorTerms"]),
                    field="nodeSelectorTerms",
                    message="is empty, so no node matches",
                    remedy="Write a term, or remove the requirement.",
                ),
            ),
        ),
        "Required conditions on nodes.",
    ),
    _preferred("preference", _NODE_TERM, what="Preferred conditions on nodes"),
)

_TOPOLOGY = required(
    "topologyKey",
    LABEL_KEY,
    "The node label that defines a topology domain, such as kubernetes.io/hostname.",
)
_PODS = Field(
    "labelSelector",
    label_selector(),
    "The pods that the term applies to.",
    assumed="the gateway's own pods",
)
_POD_TERM = structure(
    _PODS,
    _TOPOLOGY,
    Field(
        "namespaces",
        ListOf(item=object_name(63), max_items=_TERMS, atomic=True),
        "The namespaces of these pods.",
        assumed="the gateway's own namespace",
    ),
)
_POD_AFFINITY = structure(
    Field(
        _REQUIRED,
        ListOf(item=_POD_TERM, max_items=_TERMS, atomic=True),
        "Conditions. All must hold.",
    ),
    _preferred("podAffinityTerm", _POD_TERM, what="Preferred conditions"),
)
AFFINITY = structure(
    Field("nodeAffinity", _NODE_AFFINITY, "Conditions on nodes."),
    Field("podAffinity", _POD_AFFINITY, "Pods near which the gateway's pods are placed."),
    Field("podAntiAffinity", _POD_AFFINITY, "Pods away from which the gateway's pods are placed."),
)

_POLICY = one_of(("Honor", "Ignore"))
TOPOLOGY_SPREAD = structure(
    required(
        "maxSkew",
        Integer(minimum=1, maximum=100),
        "Maximum difference in the number of pods between two topology domains.",
    ),
    _TOPOLOGY,
    required(
        "whenUnsatisfiable",
        one_of(("DoNotSchedule", "ScheduleAnyway")),
        "Whether a pod stays pending if maxSkew cannot be met.",
    ),
    _PODS,
    Field(
        "nodeAffinityPolicy",
        _POLICY,
        "Whether only nodes that match the pods' affinity count.",
        assumed="Honor",
    ),
    Field(
        "nodeTaintsPolicy",
        _POLICY,
        "Whether only nodes with tolerated taints count.",
        assumed="Ignore",
    ),
)


_RESERVED = r"([^/]*\.)?pillion\.dev/.*|app\.kubernetes\.io/managed-by"
_is_reserved = whole(_RESERVED)
_RESERVED_RULE = Rule(
    cel=f"!self.exists(key, {cel_matches('key', _RESERVED)})",
    holds=lambda keys: not any(_is_reserved(key) for key in keys),
    message="holds a key that is reserved for Pillion",
    remedy="Remove pillion.dev/… and app.kubernetes.io/managed-by; the operator writes them.",
)

_METADATA = structure(
    Field(
        "labels",
        MapOf(value=LABEL_VALUE, max_properties=32, rules=(label_key_rule(), _RESERVED_RULE)),
        "Labels of the pods, besides the operator's own.",
    ),
    Field(
        "annotations",
        MapOf(
            value=Text(max_length=4096),
            max_properties=32,
            rules=(label_key_rule("annotation"), _RESERVED_RULE),
        ),
        "Annotations of the pods.",
    ),
)

_SOURCES = ("secret", "configMap", "persistentVolumeClaim", "emptyDir", "csi")


def _one_source(volume: JSONObject) -> bool:
    return sum(source in volume for source in _SOURCES) == 1


def _named_source(name: str, what: str, *flags: tuple[str, str]) -> Struct:
    return structure(
        required(name, object_name(), f"The {what}."),
        *(Field(flag, Boolean(), description, default=False) for flag, description in flags),
    )


_OPTIONAL = ("optional", "Whether the pod starts if it does not exist.")
_READ_ONLY = ("readOnly", "Whether it is mounted read-only.")
_EMPTY_DIR = structure(Field("sizeLimit", Quantity(), "The maximum size.", assumed="no limit"))
_CSI = structure(
    required("driver", object_name(), "The name of the CSI driver."),
    Field(_READ_ONLY[0], Boolean(), _READ_ONLY[1], default=False),
    Field(
        "volumeAttributes",
        MapOf(value=Text(max_length=1024), max_properties=16),
        "Settings for the driver.",
    ),
)

_VOLUME = structure(
    required(
        "name",
        Text(
            min_length=1,
            max_length=63,
            rules=(
                matching(
                    "[a-z0-9]([a-z0-9-]*[a-z0-9])?",
                    message="is not the name of a volume",
                    remedy="Use lower-case letters, digits and '-', "
                    "beginning and ending with a letter or digit.",
                ),
                unlike(
                    "pillion-.*",
                    message="begins with pillion-, as the operator's own volumes do",
                    remedy="Choose another name.",
                ),
            ),
        ),
        "The name that volumeMounts use.",
    ),
    Field(
        "secret",
        _named_source("secretName", "name of the Secret", _OPTIONAL),
        "The keys of a Secret as files.",
    ),
    Field(
        "configMap",
        _named_source("name", "name of the ConfigMap", _OPTIONAL),
        "The keys of a ConfigMap as files.",
    ),
    Field(
        "persistentVolumeClaim",
        _named_source("claimName", "name of the PersistentVolumeClaim", _READ_ONLY),
        "An existing claim. All replicas share it.",
    ),
    Field("emptyDir", _EMPTY_DIR, "A new empty folder."),
    Field("csi", _CSI, "A volume of a CSI driver."),
    rules=(
        Rule(
            cel=f"[{', '.join(f'has(self.{source})' for source in _SOURCES)}]"
            ".filter(given, given).size() == 1",
            holds=_one_source,
            message="has no source, or more than one",
            remedy=f"Write exactly one of {', '.join(_SOURCES)}.",
        ),
    ),
)

_OURS = "/etc(/pillion(/.*)?)?|/var(/lib(/pillion(/.*)?)?|/run(/secrets(/pillion(/.*)?)?)?)?"
_PART = r"\.?[A-Za-z0-9_-][A-Za-z0-9._-]*"
_MOUNT = structure(
    required(
        "mountPath",
        Text(
            min_length=2,
            max_length=512,
            rules=(
                matching(
                    f"(/{_PART})+",
                    message="is not an absolute path in its shortest form",
                    remedy="Write it as /folder/folder, with letters, digits, '.', '_', '-'.",
                ),
                unlike(
                    _OURS,
                    message="would hide a folder that the deliverer needs",
                    remedy="Mount it elsewhere, such as below /mnt.",
                ),
            ),
        ),
        "The path in the deliverer's container.",
    ),
    required("name", Text(min_length=1, max_length=63), "The name of a volume in volumes."),
    Field(
        "subPath",
        text_matching(
            f"{_PART}(/{_PART})*",
            max_length=512,
            message="is not a relative path in its shortest form",
            remedy="Write it as folder/file, with letters, digits, '.', '_', '-'.",
        ),
        "The path inside the volume.",
        assumed="the whole volume",
    ),
    Field("readOnly", Boolean(), "Whether to mount it read-only.", default=True),
)


def _mounts_are_volumes(template: JSONObject) -> bool:
    names = {volume["name"] for volume in template.get("volumes", ())}
    return all(mount["name"] in names for mount in template.get("volumeMounts", ()))


def _spreads_once(template: JSONObject) -> bool:
    """As the API server demands of pods, which it answers with 500 for a StatefulSet."""
    constraints = template.get("topologySpreadConstraints", ())
    pairs = [(one["topologyKey"], one["whenUnsatisfiable"]) for one in constraints]
    return len(set(pairs)) == len(pairs)


_PULL_SECRET = structure(
    required("name", object_name(), "The name of a Secret in the same namespace.")
)

TEMPLATE = Field(
    "template",
    structure(
        Field("metadata", _METADATA, "Labels and annotations of pods."),
        Field("nodeSelector", NODE_SELECTOR, "Labels that a node needs to run the pods."),
        Field(
            "tolerations",
            ListOf(item=TOLERATION, max_items=32, atomic=True),
            "The taints of nodes that the pods tolerate.",
        ),
        Field(
            "affinity",
            AFFINITY,
            "Affinity of the pods to nodes and to other pods.",
            assumed="replicas prefer different nodes",
        ),
        Field(
            "topologySpreadConstraints",
            ListOf(item=TOPOLOGY_SPREAD, max_items=8, atomic=True),
            "How the replicas spread over topology domains.",
            assumed="replicas are spread over zones and over nodes as far as possible",
        ),
        Field("priorityClassName", object_name(), "The PriorityClass of the pods."),
        Field(
            "imagePullSecrets",
            ListOf(item=_PULL_SECRET, max_items=8, key="name"),
            "The Secrets for pulling the pods' images.",
            assumed="those that the operator was installed with",
        ),
        Field(
            "volumes", ListOf(item=_VOLUME, max_items=16, key="name"), "More volumes of the pods."
        ),
        Field(
            "volumeMounts",
            ListOf(item=_MOUNT, max_items=16, key="mountPath"),
            "Mounts of these volumes in the deliverer's container.",
        ),
        rules=(
            Rule(
                cel="!has(self.volumeMounts) || self.volumeMounts.all(mount, has(self.volumes) && "
                "self.volumes.exists(volume, volume.name == mount.name))",
                holds=_mounts_are_volumes,
                field="volumeMounts",
                message="names a volume that volumes does not have",
                remedy="Add the volume to volumes, or correct the name.",
            ),
            Rule(
                cel="!has(self.topologySpreadConstraints) || self.topologySpreadConstraints.all("
                "one, self.topologySpreadConstraints.exists_one(other, other.topologyKey == "
                "one.topologyKey && other.whenUnsatisfiable == one.whenUnsatisfiable))",
                holds=_spreads_once,
                field="topologySpreadConstraints",
                message="has a topologyKey and whenUnsatisfiable twice",
                remedy="Remove one of the two constraints.",
            ),
        ),
    ),
    "The template and placement of a gateway's pods. A change restarts them one by one. Only "
    "with mode Gateway.",
)
