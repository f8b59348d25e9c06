"""IndicationReplay: indications of the history are delivered again, to one destination."""

from dataclasses import replace
from datetime import datetime
from enum import StrEnum

from pillion_sidecar.config.schema.common import (
    LONGEST_TIME,
    immutable,
    object_name,
    reference,
    service_reference,
)
from pillion_sidecar.config.schema.limits import RATE_LIMIT, RateLimit
from pillion_sidecar.config.schema.status import (
    AGE,
    condition_column,
    count,
    moment,
    status,
    word,
)
from pillion_sidecar.fields import (
    Column,
    Integer,
    Kind,
    ListOf,
    Rule,
    declared,
    one_of,
    resource,
    structure,
    text_matching,
)

MOST_DESTINATIONS = 100
#: RFC 3339, of the years 2000 to 2999; each day exists.
_DAY = (
    "2[0-9]{3}-((0[13578]|1[02])-(0[1-9]|[12][0-9]|3[01])|(0[469]|11)-(0[1-9]|[12][0-9]|30)"
    "|02-(0[1-9]|1[0-9]|2[0-8]))"
    "|2([0-9](0[48]|[2468][048]|[13579][26])|[048]00)-02-29"
)
_HOURS = "([01][0-9]|2[0-3]):[0-5][0-9]"
MOMENT = text_matching(
    f"({_DAY})T{_HOURS}:[0-5][0-9](\\.[0-9]{{1,9}})?(Z|[+-]{_HOURS})",
    max_length=40,
    message="is not a time",
    remedy="Write it like 2026-01-31T12:00:00Z.",
)


class Replayable(StrEnum):
    """The results of the outcomes whose indications are replayed."""

    DISCARDED = "Discarded"
    DELIVERED = "Delivered"


class ReplayState(StrEnum):
    WAITING = "Waiting"
    RUNNING = "Running"
    SUSPENDED = "Suspended"
    COMPLETE = "Complete"
    FAILED = "Failed"


def _seconds(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()


@resource
class IndicationReplay:
    """Times are in seconds since the epoch."""

    name: str
    uid: str
    service: str = declared(
        default="default",
        name="serviceRef",
        type=service_reference(),
        json_default={},
        description="The service whose deliverers have the history. It cannot be changed.",
    )
    destination_name: str = declared(
        name="destinationRef",
        type=reference("ListenerDestination"),
        description="The destination that gets the indications; it needs no subscription. It "
        "cannot be changed.",
    )
    since: float = declared(
        name="from",
        type=MOMENT,
        convert=_seconds,
        description="The begin of the time that is replayed, such as 2026-01-31T12:00:00Z: "
        "what was delivered or discarded since then. It cannot be changed.",
    )
    #: None: ``created_at``; without one when the deliverer first sees it.
    until: float | None = declared(
        default=None,
        type=MOMENT,
        convert=_seconds,
        assumed="when this resource was created",
        description="The end of the time that is replayed; what was delivered or discarded at this "
        "time or later is not, nor what comes after a deliverer has first read this resource. It "
        "cannot be changed.",
    )
    results: tuple[str, ...] = declared(
        default=tuple(one.value for one in Replayable),
        type=ListOf(item=one_of(Replayable), max_items=len(Replayable)),
        description="The indications that are replayed. Discarded: those that were discarded. "
        "Delivered: those that were delivered; their content is kept only with history.bodies All. "
        "It cannot be changed.",
    )
    destinations: tuple[str, ...] = declared(
        default=(),
        type=ListOf(item=object_name(), max_items=MOST_DESTINATIONS),
        assumed="every destination",
        description="The names of the destinations for which they were delivered or discarded. "
        "They need not exist any more. Empty: any. It cannot be changed.",
    )
    #: None: all.
    filter_name: str | None = declared(
        default=None,
        name="filterRef",
        type=reference("IndicationFilter"),
        assumed="every indication",
        description="The filter that selects the indications. Its query counts, not its "
        "sourceNamespaces, which the history does not keep; a list of properties selects what is "
        "delivered. It cannot be changed.",
    )
    rate_limit: RateLimit | None = declared(
        default=None,
        type=RATE_LIMIT,
        assumed="as fast as the queue of the destination takes them",
        description="Maximum rate at which a deliverer queues replayed indications.",
    )
    suspended: bool = declared(
        default=False,
        description="Whether the replay stops. Indications that it has queued are delivered.",
    )
    ttl_seconds_after_finished: int | None = declared(
        default=None,
        type=Integer(minimum=0, maximum=LONGEST_TIME),
        assumed="it is kept",
        description="Seconds after which the operator deletes this resource once the replay is "
        "complete or has failed.",
    )
    #: metadata.creationTimestamp.
    created_at: float | None = None

    def changed_to(self, given: "IndicationReplay") -> "IndicationReplay":
        """Return this replay with what may be changed of it as ``given``."""
        return replace(
            self,
            rate_limit=given.rate_limit,
            suspended=given.suspended,
            ttl_seconds_after_finished=given.ttl_seconds_after_finished,
        )


_CHANGES = "cannot be changed, since a part may have been replayed"
_CHANGE_REMEDY = "Create a replay with another name, and delete this one: that cancels it."
_IMMUTABLE = ("serviceRef", "destinationRef", "from", "results")
_IMMUTABLE_OPTIONAL = ("until", "destinations", "filterRef")

INDICATION_REPLAY = Kind(
    name="IndicationReplay",
    plural="indicationreplays",
    short_name="indreplay",
    description="A replay: indications that the history of a service keeps are delivered again, to "
    "one destination. Each is delivered under its own identity, marked as repeated. Deleting the "
    "resource cancels the replay.",
    spec_description="The indications, the destination, and the rate.",
    spec=structure(
        IndicationReplay,
        rules=(
            Rule(
                cel="size(self.results) > 0",
                holds=lambda spec: len(spec["results"]) > 0,
                field="results",
                message="is empty",
                remedy="Write Discarded, Delivered, or both, or remove it.",
            ),
        ),
        transitions=(
            *(immutable(one, message=_CHANGES, remedy=_CHANGE_REMEDY) for one in _IMMUTABLE),
            *(
                immutable(one, message=_CHANGES, remedy=_CHANGE_REMEDY, optional=True)
                for one in _IMMUTABLE_OPTIONAL
            ),
        ),
    ),
    status=status(
        "IndicationReplay",
        word(
            "state",
            "Waiting: for an earlier replay, or for the deliverers. Running: under way; it may "
            "wait for the destination. Suspended: by spec.suspended. Complete: everything is "
            "delivered or discarded. Failed: it ended; the condition Failed says why.",
            *(one.value for one in ReplayState),
        ),
        count("selected", "Outcomes that it selects: those replayed and those left out."),
        count("replayed", "Indications that were queued again."),
        count("delivered", "Replayed indications that were delivered."),
        count("discarded", "Replayed indications that were discarded."),
        count(
            "leftOut",
            "Selected outcomes that were not replayed: without content in the history, "
            "not selected by the filter, or of an indication that it has replayed.",
        ),
        count("deliverers", "Deliverers that carry it out, with those that are gone."),
        count("finishedDeliverers", "Deliverers that have finished it."),
        count(
            "goneDeliverers",
            "Deliverers that ended before they had finished: what only their history had is not "
            "replayed.",
        ),
        moment("startTime", "When the first deliverer began."),
        moment("completionTime", "When the last deliverer had finished."),
    ),
    columns=(
        Column("State", ".status.state", "The state."),
        Column("Replayed", ".status.replayed", "Indications queued again.", type="integer"),
        condition_column("Accepted", "Whether it is valid and its references resolve."),
        Column("Destination", ".spec.destinationRef.name", "The destination."),
        AGE,
    ),
)
