"""Kubernetes label selectors: which pods are meant."""

from pillion_sidecar.config.schema.fields import (
    Field,
    JSONObject,
    ListOf,
    MapOf,
    Rule,
    Struct,
    Text,
)
from pillion_sidecar.config.schema.rules import DNS_SUBDOMAIN, cel_matches, matching, whole

_NAME = "[A-Za-z0-9]([A-Za-z0-9_.-]{0,61}[A-Za-z0-9])?"
_KEY = f"({DNS_SUBDOMAIN}/)?{_NAME}"
_VALUE = f"({_NAME})?"
_LONGEST_KEY = 253
_KEY_REMEDY = (
    "Write at most 63 letters, digits, '-', '_' and '.', beginning and ending with a letter or "
    "digit, with a domain and '/' in front where there is one."
)
_is_key = whole(_KEY)

LABEL_VALUE = Text(
    max_length=63,
    rules=(
        matching(
            _VALUE,
            message="is not the value of a label",
            remedy="Write letters, digits, '-', '_' and '.', beginning and ending with a letter "
            "or digit, or nothing.",
        ),
    ),
)

LABEL_KEY = Text(
    min_length=1,
    max_length=_LONGEST_KEY,
    rules=(matching(_KEY, message="is not the key of a label", remedy=_KEY_REMEDY),),
)


def label_key_rule(what: str = "label") -> Rule:
    """The rule that every key of a map can be the key of a label or annotation."""
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


_REQUIREMENT = Struct(
    fields=(
        Field(
            name="key",
            type=LABEL_KEY,
            required=True,
            description="The key of the label.",
        ),
        Field(
            name="operator",
            type=Text(values=("In", "NotIn", "Exists", "DoesNotExist"), max_length=12),
            required=True,
            description="The test of the label. In: it has one of values. NotIn: it has none "
            "of them, or is absent. Exists, DoesNotExist: whether it is there.",
        ),
        Field(
            name="values",
            type=ListOf(item=LABEL_VALUE, max_items=64),
            description="The values for In and NotIn.",
        ),
    ),
    rules=(
        Rule(
            cel='!(self.operator in ["In", "NotIn"]) || (has(self.values) && self.values != [])',
            holds=lambda requirement: not _compares(requirement) or bool(requirement.get("values")),
            field="values",
            message="is empty, and In and NotIn compare with values",
            remedy="Write the values, or set operator to Exists or DoesNotExist.",
        ),
        Rule(
            cel='self.operator in ["In", "NotIn"] || !has(self.values) || self.values == []',
            holds=lambda requirement: _compares(requirement) or not requirement.get("values"),
            field="values",
            message="is there, but Exists and DoesNotExist compare with nothing",
            remedy="Remove it, or set operator to In or NotIn.",
        ),
    ),
)


def label_selector(*, purpose: str = "") -> Struct:
    """A selector of pods that selects something; ``purpose`` says what for."""
    needs = f"A pod needs all of them {purpose}".rstrip()
    return Struct(
        fields=(
            Field(
                name="matchLabels",
                type=MapOf(
                    value=LABEL_VALUE,
                    max_properties=16,
                    rules=(label_key_rule(),),
                ),
                description=f"Labels with their values. {needs}.",
            ),
            Field(
                name="matchExpressions",
                type=ListOf(item=_REQUIREMENT, max_items=16, atomic=True),
                description=f"Conditions on labels. {needs}.",
            ),
        ),
        rules=(
            Rule(
                cel="(has(self.matchLabels) && self.matchLabels != {}) || "
                "(has(self.matchExpressions) && self.matchExpressions != [])",
                holds=_selects,
                message="is empty, and would select every pod of the namespace",
                remedy="Write matchLabels or matchExpressions, or leave the selector out.",
            ),
        ),
    )
