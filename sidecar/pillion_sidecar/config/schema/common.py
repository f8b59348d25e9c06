"""Bounds, enumerations, rules and references that more than one kind uses."""

import re
from collections.abc import Callable
from enum import StrEnum

from pillion_sidecar.config.schema.fields import (
    Field,
    Integer,
    JSONObject,
    Rule,
    Struct,
    Text,
    Transition,
    structure,
)

#: The kind of Secrets.
SECRET = "Secret"
#: RFC 1123 subdomain: what Kubernetes takes for the name of an object.
DNS_SUBDOMAIN = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*"


def cel_text(text: str) -> str:
    """``text`` as a CEL string literal."""
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'


def cel_matches(operand: str, regex: str) -> str:
    """CEL for "the whole of ``operand`` matches ``regex``"."""
    return f"{operand}.matches({cel_text(f'^(?:{regex})$')})"


def whole(regex: str) -> Callable[[str], bool]:
    """The same for this program."""
    pattern = re.compile(regex)
    return lambda text: pattern.fullmatch(text) is not None


def matching(regex: str, *, message: str, remedy: str, when: str = "") -> Rule:
    """A rule on a text: the whole of it matches ``regex``, or not the whole of it ``when``.

    The expressions are in what RE2 (the API server's engine) and Python's ``re`` share.
    """
    wanted = whole(regex)
    concerned = whole(when) if when else None
    cel = cel_matches("self", regex)
    return Rule(
        cel=cel if not when else f"!{cel_matches('self', when)} || {cel}",
        holds=lambda text: (concerned is not None and not concerned(text)) or wanted(text),
        message=message,
        remedy=remedy,
    )


def unlike(regex: str, *, message: str, remedy: str) -> Rule:
    """A rule on a text: the whole of it does not match ``regex``."""
    unwanted = whole(regex)
    return Rule(
        cel=f"!{cel_matches('self', regex)}",
        holds=lambda text: not unwanted(text),
        message=message,
        remedy=remedy,
    )


def text_matching(
    regex: str, *, max_length: int, min_length: int = 1, message: str, remedy: str
) -> Text:
    """A text whose whole matches ``regex``."""
    rules = (matching(regex, message=message, remedy=remedy),)
    return Text(min_length=min_length, max_length=max_length, rules=rules)


def object_name(max_length: int = 253, *, rules: tuple[Rule, ...] = ()) -> Text:
    """The name of an object in the same namespace, which ``rules`` may narrow."""
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


#: A service lends its name to objects that Kubernetes wants a DNS label for, such as the Service
#: and the pods of a gateway.
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
#: With ``pillion-`` before it and a revision's hash behind it, the name is the value of a label
#: that the StatefulSet of a gateway puts on its pods, and such a value has at most 63 characters.
SERVICE_NAME_LENGTH = 44


def reference(
    what: str,
    *,
    max_length: int = 253,
    default: str | None = None,
    rules: tuple[Rule, ...] = (),
) -> Struct:
    """A reference by name in the same namespace; ``rules`` are those that such names have."""
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
        Field(
            "name",
            object_name(),
            f'The name of a {kind} in the same namespace, labelled {label}: "true".',
            required=True,
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
    """The names of the fields that hold a reference to a Secret, at any depth."""
    return frozenset(
        field.name
        for field in struct.fields
        if isinstance(field.type, Struct)
        and (field.type.refers_to == SECRET or secret_fields(field.type))
    )


def secret_names(struct: Struct, value: JSONObject) -> set[str]:
    """The names of the Secrets that an object refers to; it need not be checked."""
    if struct.refers_to == SECRET:
        return {value["name"]} if value.get("name") else set()
    names = set()
    for field in struct.fields:
        below = value.get(field.name)
        if below and isinstance(field.type, Struct):
            names |= secret_names(field.type, below)
    return names


#: The longest wait between two attempts, in seconds: a week.
LONGEST_INTERVAL = 604_800
#: The longest time that anything is kept or waited for, in seconds: ten years.
LONGEST_TIME = 315_360_000
#: The most attempts after the original one.
MOST_ATTEMPTS = 10_000
#: The most indications in one destination queue.
LARGEST_QUEUE = 10_000_000

#: Seconds between two attempts.
INTERVAL = Integer(minimum=1, maximum=LONGEST_INTERVAL)
#: Seconds that something lasts; 0 has a meaning of its own.
TIME = Integer(minimum=0, maximum=LONGEST_TIME)


class QueueFullPolicy(StrEnum):
    """What happens to a full destination queue (S0.4 and the design's "Full queue")."""

    ADAPTIVE = "Adaptive"
    DISCARD_OLDEST = "DiscardOldest"
    REJECT = "Reject"


class RemovalAction(StrEnum):
    """DSP1054's Ignore, Disable and Remove: SubscriptionRemovalAction and OnFatalErrorPolicy."""

    IGNORE = "Ignore"
    DISABLE = "Disable"
    REMOVE = "Remove"


def immutable(name: str, *, message: str, remedy: str) -> Transition:
    """A field that always has a value, and keeps the one that it was made with."""
    return Transition(
        cel=f"self.{name} == oldSelf.{name}", field=name, message=message, remedy=remedy
    )


#: The bound of a destination queue (S0.3).
QUEUE_SIZE = Integer(minimum=1, maximum=LARGEST_QUEUE)
ABOUT_QUEUE_SIZE = (
    "Maximum number of indications in one destination queue. queueFullPolicy says what happens "
    "when it is full."
)
#: What happens to a full destination queue (S0.4).
ABOUT_QUEUE_FULL_POLICY = (
    "What happens when a destination queue is full. DiscardOldest: the oldest indication is "
    "discarded and reported, even while the listener works. Reject: the publisher gets 429 and "
    "retries later. Adaptive: Reject while the listener accepts indications, DiscardOldest while "
    "it fails, so that a failing listener never blocks the others."
)
#: How long an undelivered indication waits (D.2).
ABOUT_LIFETIME = (
    "Maximum seconds from the acceptance of an indication to its delivery. An older one is "
    "discarded and reported. 0: no limit. Time while the destination is suspended does not count."
)
