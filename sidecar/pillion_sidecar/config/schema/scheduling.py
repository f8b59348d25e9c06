"""Where the pods of a gateway run: Kubernetes' words for it, with bounds."""

from pillion_sidecar.config.schema.fields import (
    Field,
    Integer,
    JSONObject,
    ListOf,
    MapOf,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.config.schema.rules import cel_matches, object_name, whole
from pillion_sidecar.config.schema.selectors import (
    LABEL_KEY,
    LABEL_VALUE,
    label_key_rule,
    label_selector,
)

_WHOLE_NUMBER = "-?[0-9]{1,18}"
_is_number = whole(_WHOLE_NUMBER)

NODE_SELECTOR = MapOf(value=LABEL_VALUE, max_properties=16, rules=(label_key_rule(),))

TOLERATION = Struct(
    fields=(
        Field(
            name="key",
            type=LABEL_KEY,
            assumed="every key, with operator Exists",
            description="The key of the taint.",
        ),
        Field(
            name="operator",
            type=Text(values=("Equal", "Exists"), max_length=6),
            default="Equal",
            description="Equal: the taint has this value. Exists: it has any.",
        ),
        Field(name="value", type=LABEL_VALUE, description="The value of the taint."),
        Field(
            name="effect",
            type=Text(values=("NoSchedule", "PreferNoSchedule", "NoExecute"), max_length=16),
            assumed="all effects",
            description="The effect of the taint.",
        ),
        Field(
            name="tolerationSeconds",
            type=Integer(minimum=0, maximum=2**31 - 1),
            assumed="for good",
            description="For how long a taint with the effect NoExecute is tolerated.",
        ),
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
            message="is there, but operator Exists compares with nothing",
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


_NODE_REQUIREMENT = Struct(
    fields=(
        Field(name="key", type=LABEL_KEY, required=True, description="The key of a node's label."),
        Field(
            name="operator",
            type=Text(values=("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"), max_length=12),
            required=True,
            description="How the label is compared. Gt, Lt: as whole numbers.",
        ),
        Field(
            name="values",
            type=ListOf(item=Text(max_length=63), max_items=16, atomic=True),
            description="What it is compared with: one or more values for In and NotIn, one whole "
            "number for Gt and Lt, none for Exists and DoesNotExist.",
        ),
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
_NODE_TERM = Struct(
    fields=(
        Field(
            name="matchExpressions",
            type=ListOf(item=_NODE_REQUIREMENT, max_items=16, atomic=True),
            required=True,
            description="Conditions on a node's labels. All must hold.",
        ),
    )
)
_REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
_PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"
_TERMS = 8
_WEIGHT = Field(
    name="weight",
    type=Integer(minimum=1, maximum=100),
    required=True,
    description="How much it counts, from 1 to 100.",
)


def _preferred(name: str, term: Struct, *, what: str) -> Field:
    """The terms that count by their weight; ``name`` is that of the term beside the weight."""
    weighted = Field(name=name, type=term, required=True, description=f"{what}.")
    return Field(
        name=_PREFERRED,
        type=ListOf(item=Struct(fields=(_WEIGHT, weighted)), max_items=_TERMS, atomic=True),
        description=f"{what}, by weight.",
    )


_NODE_AFFINITY = Struct(
    fields=(
        Field(
            name=_REQUIRED,
            type=Struct(
                fields=(
                    Field(
                        name="nodeSelectorTerms",
                        type=ListOf(item=_NODE_TERM, max_items=_TERMS, atomic=True),
                        required=True,
                        description="Conditions. At least one must hold.",
                    ),
                ),
                rules=(
                    Rule(
                        cel="self.nodeSelectorTerms != []",
                        holds=lambda required: bool(required["nodeSelectorTerms"]),
                        field="nodeSelectorTerms",
                        message="is empty, and no node would do",
                        remedy="Write a term, or leave the requirement out.",
                    ),
                ),
            ),
            description="What a node must have.",
        ),
        _preferred("preference", _NODE_TERM, what="What a node should have"),
    )
)

_TOPOLOGY = Field(
    name="topologyKey",
    type=LABEL_KEY,
    required=True,
    description="The label of nodes that tells places apart, such as kubernetes.io/hostname.",
)
_PODS = Field(
    name="labelSelector",
    type=label_selector(),
    assumed="the gateway's own pods",
    description="The pods whose place counts.",
)
_POD_TERM = Struct(
    fields=(
        _PODS,
        _TOPOLOGY,
        Field(
            name="namespaces",
            type=ListOf(item=object_name(63), max_items=_TERMS, atomic=True),
            assumed="the gateway's own namespace",
            description="The namespaces of these pods.",
        ),
    )
)
_POD_AFFINITY = Struct(
    fields=(
        Field(
            name=_REQUIRED,
            type=ListOf(item=_POD_TERM, max_items=_TERMS, atomic=True),
            description="Conditions. All must hold.",
        ),
        _preferred("podAffinityTerm", _POD_TERM, what="What should hold"),
    )
)
AFFINITY = Struct(
    fields=(
        Field(name="nodeAffinity", type=_NODE_AFFINITY, description="Which nodes."),
        Field(
            name="podAffinity", type=_POD_AFFINITY, description="Near which pods they are placed."
        ),
        Field(
            name="podAntiAffinity",
            type=_POD_AFFINITY,
            description="Away from which pods they are placed.",
        ),
    )
)

_POLICY = Text(values=("Honor", "Ignore"), max_length=6)
TOPOLOGY_SPREAD = Struct(
    fields=(
        Field(
            name="maxSkew",
            type=Integer(minimum=1, maximum=100),
            required=True,
            description="By how many pods two places may differ.",
        ),
        _TOPOLOGY,
        Field(
            name="whenUnsatisfiable",
            type=Text(values=("DoNotSchedule", "ScheduleAnyway"), max_length=14),
            required=True,
            description="Whether a pod waits where it cannot be kept.",
        ),
        _PODS,
        Field(
            name="nodeAffinityPolicy",
            type=_POLICY,
            assumed="Honor",
            description="Whether only nodes count that the pods' affinity allows.",
        ),
        Field(
            name="nodeTaintsPolicy",
            type=_POLICY,
            assumed="Ignore",
            description="Whether only nodes count whose taints the pods tolerate.",
        ),
    )
)
