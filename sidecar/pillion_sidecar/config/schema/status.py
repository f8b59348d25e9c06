"""Statuses and conditions, each declared once; CRDs, operator, Events and
``docs/reference/conditions.md`` use this table. Only slow changes are in a status; counters are
metrics."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Literal

from pillion_sidecar.fields import (
    Column,
    Field,
    Integer,
    ListOf,
    Struct,
    Text,
    one_of,
    required,
    structure,
)

SERVICE = "IndicationService"
DESTINATION = "ListenerDestination"
FILTER = "IndicationFilter"
SUBSCRIPTION = "IndicationSubscription"
REPLAY = "IndicationReplay"
_ALL = (SERVICE, DESTINATION, FILTER, SUBSCRIPTION)


class Told(Enum):
    """Which transitions of a condition are Events."""

    NEVER = "never"
    #: The bad status.
    BEGINNING = "beginning"
    #: The bad status and its end.
    BOTH = "both"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConditionType:
    name: str
    kinds: tuple[str, ...]
    #: Meaning; ``texts`` has other meanings by kind.
    text: str
    texts: Mapping[str, str] = field(default_factory=dict)
    #: When a resource has the condition, as a clause; empty: always.
    where: str = ""
    bad: Literal["True", "False"] = "True"
    told: Told = Told.NEVER
    #: Only deliverers can tell; the operator keeps the last value until they answer.
    reported: bool = False

    def meaning(self, kind: str) -> str:
        return self.texts.get(kind, self.text)

    def event(self, status: str) -> str:
        """Return the reason of the Event for a change to ``status``."""
        return self.name if status == "True" else f"Not{self.name}"


CONDITIONS = (
    ConditionType(
        name="Accepted",
        kinds=(*_ALL, REPLAY),
        text="it is valid and its references resolve.",
        texts={
            SERVICE: "it is valid.",
            DESTINATION: "it is valid and the Secrets that it names may be used.",
            FILTER: "the query is understood.",
        },
        bad="False",
        told=Told.BOTH,
    ),
    ConditionType(
        name="Ready",
        kinds=_ALL,
        text="every reachable deliverer uses it.",
        texts={SERVICE: "every reachable deliverer uses this configuration."},
        bad="False",
    ),
    ConditionType(
        name="InjectionComplete",
        kinds=(SERVICE,),
        text="every pod that should have a sidecar has one; the message names those that have "
        "none.",
        bad="False",
        told=Told.BOTH,
    ),
    ConditionType(
        name="SelectorsOverlap",
        kinds=(SERVICE,),
        text="another service's podSelector selects the same pods; the older service serves them.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="GatewayReady",
        kinds=(SERVICE,),
        where="where gatewayRef, handOverTo or stores is set",
        text="the named gateways exist, fulfil the requirements, and run; if not, the message "
        "has the cause.",
        bad="False",
        told=Told.BOTH,
    ),
    ConditionType(
        name="RelayRetained",
        kinds=(SERVICE,),
        text="former gateways keep subscriptions until they have delivered their indications; "
        "the message names the gateways.",
    ),
    ConditionType(
        name="RelayAbandoned",
        kinds=(SERVICE,),
        where="with the annotation pillion.dev/abandon-relay",
        text="the named former gateway discards its indications of this service; if False, the "
        "message says why the annotation has no effect.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="OlderDeliverers",
        kinds=(SERVICE,),
        text="deliverers of an older version run, or may run; the message lists the "
        "fields that the configuration omits for them.",
    ),
    ConditionType(
        name="AnotherInstallation",
        kinds=(SERVICE,),
        text="a second installation of the operator overwrites this one's objects; the message "
        "names both.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="ReplicasScaledElsewhere",
        kinds=(SERVICE,),
        text="an autoscaler sets a gateway's replicas.",
    ),
    ConditionType(
        name="NotDurableBeyondPod",
        kinds=(SERVICE,),
        where="in mode Sidecar",
        text="journals are on volumes that end with their pods, handOverTo is not set, and the "
        "gateways in stores are not ready or not set.",
    ),
    ConditionType(
        name="SessionsPending",
        kinds=(SERVICE,),
        where="where stores is set",
        text="stores keep journals of pods that are gone, and the gateway in handOverTo has not "
        "adopted all of them yet; the message says how many, and what they wait for.",
    ),
    ConditionType(
        name="Delivering",
        kinds=(DESTINATION,),
        text="the last attempt of every deliverer succeeded; Unknown before the first attempt.",
        bad="False",
        reported=True,
    ),
    ConditionType(
        name="Backlogged",
        kinds=(DESTINATION,),
        text="a queue is nearly full, or its oldest indication has waited for a long time.",
        told=Told.BOTH,
        reported=True,
    ),
    ConditionType(
        name="ListenerUnreachable",
        kinds=(DESTINATION,),
        text="no deliverer can deliver; the message says how attempts fail. A gateway delivers "
        "relayed indications, so Delivering and ListenerUnreachable describe its attempts.",
        told=Told.BOTH,
        reported=True,
    ),
    ConditionType(
        name="RelayFailing",
        kinds=(DESTINATION,),
        where="where sidecars relay",
        text="the last attempts to relay failed, and the sidecars keep the indications.",
        told=Told.BOTH,
        reported=True,
    ),
    ConditionType(
        name="SequenceIdentifiersShared",
        kinds=(DESTINATION,),
        where="with sequenceIdentifiers Send",
        text="several deliverers deliver to this URL.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="SharedPortAndPath",
        kinds=(DESTINATION,),
        text="another destination may be the same listener.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="RetryTooShort",
        kinds=(DESTINATION,),
        where="where a retry field or indicationLifetimeSeconds is set",
        text="a listener that is down loses its first indication within ten minutes.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="Draining",
        kinds=(DESTINATION,),
        text="the resource was deleted and its queue is still delivered; the message has the "
        "number of pending indications.",
        told=Told.BOTH,
    ),
    ConditionType(
        name="EarlierGenerationInForce",
        kinds=(FILTER,),
        text="an edit is not accepted, and an earlier one is in force.",
    ),
    ConditionType(
        name="ClassUnknown",
        kinds=(FILTER,),
        text="a service does not know a class of the query, which then selects that class alone; "
        "the message names the nearest known class.",
        told=Told.BEGINNING,
    ),
    ConditionType(
        name="Complete",
        kinds=(REPLAY,),
        text="every deliverer has finished: everything that it queued is delivered or discarded.",
        bad="False",
    ),
    ConditionType(
        name="Failed",
        kinds=(REPLAY,),
        text="a deliverer ended it before it was complete; the message says why.",
        told=Told.BEGINNING,
    ),
)


def conditions_described(kind: str, conditions: Iterable[ConditionType] = CONDITIONS) -> str:
    return " ".join(
        f"{one.name}{one.where and f', {one.where}'}: {one.meaning(kind)}"
        for one in conditions
        if kind in one.kinds
    )


_MOST = 2**53
_TIME = Text(max_length=64, format="date-time")

_CONDITION = structure(
    required(
        "type",
        Text(min_length=1, max_length=316),
        "The type of the condition, such as Accepted or Ready.",
    ),
    required("status", one_of(("True", "False", "Unknown")), "Whether the condition is true."),
    Field(
        "observedGeneration",
        Integer(minimum=0, maximum=_MOST),
        "The metadata.generation that the condition describes. If it is older than that of the "
        "resource, the condition is out of date.",
    ),
    required("lastTransitionTime", _TIME, "When status last changed."),
    required(
        "reason", Text(min_length=1, max_length=1024), "Why, as one CamelCase word for programs."
    ),
    required(
        "message", Text(max_length=32768), "Why, as a sentence, with the remedy if there is one."
    ),
)

_OBSERVED_GENERATION = Field(
    "observedGeneration",
    Integer(minimum=0, maximum=_MOST),
    "The metadata.generation that this status describes.",
)

AGE = Column(
    "Age", ".metadata.creationTimestamp", "How long ago the resource was created.", type="date"
)


def condition_column(condition: str, description: str, *, priority: int = 0) -> Column:
    return Column(
        condition,
        f'.status.conditions[?(@.type=="{condition}")].status',
        description,
        priority=priority,
    )


REASON = Column(
    "Reason", '.status.conditions[?(@.type=="Ready")].reason', "Why it is ready, or not."
)
READY = condition_column("Ready", "Whether every reachable deliverer uses it.")


def status(kind: str, *fields: Field) -> Struct:
    listed = Field(
        "conditions",
        ListOf(item=_CONDITION, key="type", max_items=32),
        f"The current conditions of this resource. {conditions_described(kind)}",
    )
    return structure(_OBSERVED_GENERATION, listed, *fields)


def count(name: str, description: str) -> Field:
    return Field(name, Integer(minimum=0, maximum=_MOST), description)


def moment(name: str, description: str) -> Field:
    return Field(name, _TIME, description)


def word(name: str, description: str, *values: str) -> Field:
    """A short text, or one of ``values``."""
    return Field(name, Text(max_length=256, values=values), description)
