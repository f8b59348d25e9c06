"""The words in which a resource kind is described: field types, fields, rules and kinds.

From one such description come the validation of files, the CRDs and the reference manual, so the
three cannot disagree. Everything here is a value; nothing here reads or checks anything.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

#: What a checked, defaulted JSON object is to a rule.
JSONObject = Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Rule:
    """A condition over one node, written twice: for the API server (CEL) and for this program.

    ``holds`` gets the same value as CEL's ``self``: defaults applied, types and bounds checked.
    A test proves that the two agree.
    """

    cel: str
    holds: Callable[[Any], bool]
    #: What is wrong, without a full stop.
    message: str
    #: What to do about it: a sentence.
    remedy: str
    #: The field below the node that the complaint is about; empty: the node itself.
    field: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Transition:
    """A condition over a node and what it was before, ``oldSelf`` in CEL.

    Only the API server knows what was before, so it alone asks; a folder of files has no past.
    """

    cel: str
    #: What is wrong, without a full stop.
    message: str
    #: What to do about it: a sentence.
    remedy: str
    #: The field below the node that the complaint is about.
    field: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Text:
    """A string. Bounds are in characters, as the API server counts them."""

    max_length: int
    min_length: int = 0
    values: tuple[str, ...] = ()
    #: OpenAPI format, for what only the API server writes.
    format: str = ""
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number within bounds, both included."""

    minimum: int
    maximum: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Boolean:
    """true or false."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Quantity:
    """A Kubernetes quantity more than 0, such as 500m or 1Gi; a whole number stands for itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ListOf:
    """A list; a set when its order says nothing, a map when ``key`` names an item's key, and
    atomic when it is written and replaced as a whole."""

    item: "Text | Struct"
    max_items: int
    key: str = ""
    atomic: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class MapOf:
    """An object with keys that users choose. What keys may be, its rules say."""

    value: Text
    max_properties: int
    rules: tuple[Rule, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Struct:
    """An object with known fields only."""

    fields: tuple["Field", ...]
    rules: tuple[Rule, ...] = ()
    #: The kind of the object of the core API that its ``name`` refers to; empty: none.
    refers_to: str = ""
    transitions: tuple[Transition, ...] = ()


FieldType = Text | Integer | Boolean | Quantity | ListOf | MapOf | Struct
#: The types that may have rules.
RULED = Text | MapOf | Struct


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """A named value inside an object."""

    name: str
    type: FieldType
    #: Sentences, as ``kubectl explain`` shows them.
    description: str
    required: bool = False
    #: The JSON value that stands where the field is left out; None: nothing does.
    default: Any = None
    #: What is assumed where the field is left out and the schema has no default for it.
    assumed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of ``kubectl get``; priority 1 shows with ``-o wide`` alone."""

    name: str
    path: str
    description: str
    type: str = "string"
    priority: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """A kind of resource."""

    name: str
    plural: str
    short_name: str
    description: str
    spec: Struct
    status: Struct
    columns: tuple[Column, ...]
    #: What ``spec`` says, for ``kubectl explain KIND.spec``.
    spec_description: str
    #: Whether a resource without ``spec`` is complete.
    spec_optional: bool = False
    #: The longest metadata.name.
    name_length: int = 253
    #: What metadata.name must be, beyond what Kubernetes asks of every name.
    name_rules: tuple[Rule, ...] = ()
