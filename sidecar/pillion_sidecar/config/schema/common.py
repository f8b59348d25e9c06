"""Bounds, enumerations, rules and references that more than one kind uses."""

from enum import StrEnum

from pillion_sidecar.fields import (
    Field,
    FieldType,
    Integer,
    JSONObject,
    ListOf,
    Rule,
    Struct,
    Text,
    Transition,
    matching,
    required,
    structure,
    text_matching,
    unlike,
)

SECRET = "Secret"
#: Of a Secret, in a description.
LABELLED = 'labelled pillion.dev/credentials: "true"'
#: RFC 1123 subdomain.
DNS_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"


def object_name(max_length: int = 253, *, rules: tuple[Rule, ...] = ()) -> Text:
    return Text(
        min_length=1,
        max_length=max_length,
        rules=(
            matching(
                DNS_SUBDOMAIN,
                message="is not the name of an object",
                remedy="Use lower-case letters, digits, '-' and '.', "
                "beginning and ending with a letter or digit.",
            ),
            *rules,
        ),
    )


#: The name also names objects that need a DNS label, such as a gateway's Service and pods.
SERVICE_NAME_RULES = (
    matching(
        "[^.]*",
        message="holds a dot, which the objects of a service cannot have in their names",
        remedy="Write '-' in its place.",
    ),
    unlike(
        ".*-headless",
        message="ends in -headless, which the second Service of a gateway uses",
        remedy="Choose another ending.",
    ),
)
#: With ``pillion-`` and a revision's hash, the name is a label value (63 characters at most).
SERVICE_NAME_LENGTH = 44


def reference(
    what: str,
    *,
    max_length: int = 253,
    default: str | None = None,
    rules: tuple[Rule, ...] = (),
) -> Struct:
    return structure(
        Field(
            "name",
            object_name(max_length, rules=rules),
            f"The name of the {what}, in the same namespace.",
            required=default is None,
            default=default,
        ),
        refers_to=what if what == SECRET else "",
    )


def secret_key_reference(what: str, *, key: str) -> Struct:
    return _key_reference(SECRET, label="pillion.dev/credentials", what=what, key=key)


def config_map_key_reference(what: str, *, key: str) -> Struct:
    return _key_reference("ConfigMap", label="pillion.dev/classes", what=what, key=key)


def _key_reference(kind: str, *, label: str, what: str, key: str) -> Struct:
    return structure(
        required(
            "name",
            object_name(),
            f'The name of a {kind} in the same namespace, labelled {label}: "true".',
        ),
        Field(
            "key",
            text_matching(
                "[-._a-zA-Z0-9]+",
                max_length=253,
                message=f"is not a key of a {kind}",
                remedy="Use letters, digits, '-', '_' and '.'.",
            ),
            f"The key of the {kind} that holds {what}.",
            default=key,
        ),
        refers_to=kind,
    )


def secret_fields(struct: Struct) -> frozenset[str]:
    return frozenset(
        field.name
        for field in struct.fields
        if (struct_of := _struct(field.type)) is not None
        and (struct_of.refers_to == SECRET or secret_fields(struct_of))
    )


def secret_names(struct: Struct, value: JSONObject) -> set[str]:
    """The names of all Secrets in an object, checked or not."""
    if struct.refers_to == SECRET:
        return {value["name"]} if value.get("name") else set()
    names: set[str] = set()
    for field in struct.fields:
        below, struct_below = value.get(field.name), _struct(field.type)
        if below and struct_below is not None:
            items = below if isinstance(field.type, ListOf) else (below,)
            names.update(*(secret_names(struct_below, item) for item in items))
    return names


def _struct(kind: FieldType) -> Struct | None:
    """The object that a field has, or a list of it."""
    item = kind.item if isinstance(kind, ListOf) else kind
    return item if isinstance(item, Struct) else None


#: A week.
LONGEST_INTERVAL = 604_800
#: Ten years.
LONGEST_TIME = 315_360_000
#: After the original one.
MOST_ATTEMPTS = 10_000
LARGEST_QUEUE = 10_000_000

#: Seconds.
INTERVAL = Integer(minimum=1, maximum=LONGEST_INTERVAL)
#: Seconds; 0 has a meaning of its own.
TIME = Integer(minimum=0, maximum=LONGEST_TIME)


class QueueFullPolicy(StrEnum):
    """S0.4."""

    ADAPTIVE = "Adaptive"
    DISCARD_OLDEST = "DiscardOldest"
    REJECT = "Reject"


class RemovalAction(StrEnum):
    """DSP1054's Ignore, Disable and Remove: SubscriptionRemovalAction and OnFatalErrorPolicy."""

    IGNORE = "Ignore"
    DISABLE = "Disable"
    REMOVE = "Remove"


def immutable(name: str, *, message: str, remedy: str, optional: bool = False) -> Transition:
    """``optional``: the field may be missing, and has no default."""
    cel = f"self.{name} == oldSelf.{name}"
    if optional:
        cel = f"has(self.{name}) == has(oldSelf.{name}) && (!has(self.{name}) || {cel})"
    return Transition(cel=cel, field=name, message=message, remedy=remedy)


QUEUE_SIZE = Integer(minimum=1, maximum=LARGEST_QUEUE)
ABOUT_QUEUE_SIZE = (
    "Maximum number of indications in one destination queue. queueFullPolicy says what happens "
    "when it is full."
)
ABOUT_DEAD_LETTERS = (
    "What is discarded is handed to that destination as well, once, with the reason. Not what an "
    "administrator purges, what a subscription that has ended leaves, what the journal cannot "
    "read, or what is lost in memory when the deliverer stops."
)


def service_reference() -> Struct:
    """Of a resource that belongs to a service."""
    return reference(
        "IndicationService",
        max_length=SERVICE_NAME_LENGTH,
        default="default",
        rules=SERVICE_NAME_RULES,
    )


def dead_letter_reference(use: str) -> Struct:
    return reference(f"ListenerDestination {use}")


ABOUT_QUEUE_FULL_POLICY = (
    "What happens when a destination queue is full. DiscardOldest: the oldest indication is "
    "discarded and reported, even while the listener works. Reject: the publisher gets 429 and "
    "retries later. Adaptive: Reject while the listener accepts indications, DiscardOldest while "
    "it fails, so that a failing listener never blocks the others."
)
ABOUT_LIFETIME = (
    "Maximum seconds from the acceptance of an indication to its delivery. An older one is "
    "discarded and reported. 0: no limit. Time while the destination is suspended does not count."
)
