"""What the operator reports in ``status``: what changes slowly. Counters live in Prometheus."""

from pillion_sidecar.config.schema.conditions import conditions_described
from pillion_sidecar.config.schema.fields import Column, Field, Integer, ListOf, Struct, Text

_MOST = 2**53
_TIME = Text(max_length=64, format="date-time")

_CONDITION = Struct(
    fields=(
        Field(
            name="type",
            type=Text(min_length=1, max_length=316),
            required=True,
            description="What the condition is about, such as Accepted or Ready.",
        ),
        Field(
            name="status",
            type=Text(values=("True", "False", "Unknown"), max_length=7),
            required=True,
            description="Whether it holds.",
        ),
        Field(
            name="observedGeneration",
            type=Integer(minimum=0, maximum=_MOST),
            description="The metadata.generation that the condition was worked out from. "
            "An older one than the resource's own means that the condition is out of date.",
        ),
        Field(
            name="lastTransitionTime",
            type=_TIME,
            required=True,
            description="When status last changed.",
        ),
        Field(
            name="reason",
            type=Text(min_length=1, max_length=1024),
            required=True,
            description="Why, as one CamelCase word for programs.",
        ),
        Field(
            name="message",
            type=Text(max_length=32768),
            required=True,
            description="Why, as a sentence for people, with the remedy where there is one.",
        ),
    )
)

_OBSERVED_GENERATION = Field(
    name="observedGeneration",
    type=Integer(minimum=0, maximum=_MOST),
    description="The metadata.generation that this status was worked out from.",
)

AGE = Column(
    name="Age",
    type="date",
    path=".metadata.creationTimestamp",
    description="How long ago the resource was created.",
)


def condition_column(condition: str, description: str, *, priority: int = 0) -> Column:
    """A column that shows the status of one condition."""
    return Column(
        name=condition,
        path=f'.status.conditions[?(@.type=="{condition}")].status',
        description=description,
        priority=priority,
    )


REASON = Column(
    name="Reason",
    path='.status.conditions[?(@.type=="Ready")].reason',
    description="Why it is ready, or not.",
)
READY = condition_column("Ready", "Whether every deliverer that can be reached runs on it.")


def status(kind: str, *fields: Field) -> Struct:
    """The status of a kind: what all have, and its own ``fields``."""
    listed = Field(
        name="conditions",
        type=ListOf(item=_CONDITION, key="type", max_items=32),
        description=f"What holds for this resource now. {conditions_described(kind)}",
    )
    return Struct(fields=(_OBSERVED_GENERATION, listed, *fields))


def count(name: str, description: str) -> Field:
    """A number of things."""
    return Field(name=name, type=Integer(minimum=0, maximum=_MOST), description=description)


def moment(name: str, description: str) -> Field:
    """A point in time."""
    return Field(name=name, type=_TIME, description=description)


def word(name: str, description: str, *values: str) -> Field:
    """A short text, or one of ``values``."""
    return Field(name=name, type=Text(max_length=256, values=values), description=description)
