"""The metrics that Pillion itself defines. ``docs/reference/metrics.md`` is made from this table.

Base units, bounded labels. ``destination`` is the name of a ListenerDestination, never its URL. No
histogram has it: ten thousand destinations with fifteen buckets each would overload Prometheus.
"""

from functools import partial

from pillion_sidecar.telemetry.exposition import Metric, MetricType

#: Every metric, in the order of the definitions.
METRICS: list[Metric] = []


def _define(
    type_: MetricType,
    name: str,
    meaning: str,
    labels: tuple[str, ...] = (),
    bounds: tuple[float, ...] = (),
) -> Metric:
    METRICS.append(Metric(type_, name, meaning, labels, bounds))
    return METRICS[-1]


_counter = partial(_define, MetricType.COUNTER)
_gauge = partial(_define, MetricType.GAUGE)
_histogram = partial(_define, MetricType.HISTOGRAM)
_DESTINATION = ("destination",)

QUEUE_DEPTH = _gauge(
    "pillion_destination_queue_depth",
    "Indications pending in the destination queue, those in flight among them.",
    _DESTINATION,
)
QUEUE_HELD = _gauge(
    "pillion_queue_held",
    "Members of incomplete message groups that are held for the destination, beside its queue.",
    _DESTINATION,
)
QUEUE_CAPACITY = _gauge(
    "pillion_destination_queue_capacity",
    "Indications that the destination queue can hold (queueSize).",
    _DESTINATION,
)
QUEUE_HIGH_WATER = _gauge(
    "pillion_destination_queue_high_water",
    "The greatest depth since the destination queue was made.",
    _DESTINATION,
)
OLDEST_AGE = _gauge(
    "pillion_destination_oldest_indication_age_seconds",
    "Seconds since the oldest pending indication was accepted; 0 with none pending.",
    _DESTINATION,
)
IN_FLIGHT = _gauge("pillion_destination_in_flight", "Attempts under way.", _DESTINATION)
SUSPENDED = _gauge(
    "pillion_destination_suspended", "1 where the destination is suspended, else 0.", _DESTINATION
)
HELD = _gauge(
    "pillion_destination_held",
    "1 for each destination that is held, by what is wrong with it: invalid-destination, "
    "unsupported-protocol, invalid-credentials, invalid-certificates, refused-address; absent for "
    "all others. Its indications wait and are not discarded.",
    ("destination", "cause"),
)
RELAYED = _gauge(
    "pillion_destination_relayed",
    "1 where this deliverer relays to a gateway what is for the destination, 0 where it sends to "
    "the listener itself.",
    _DESTINATION,
)
NEXT_ATTEMPT = _gauge(
    "pillion_destination_next_attempt_timestamp_seconds",
    "When the next retry is due, seconds since the epoch; absent while none is scheduled.",
    _DESTINATION,
)
LAST_SUCCESS = _gauge(
    "pillion_destination_last_success_timestamp_seconds",
    "When an indication was last delivered, seconds since the epoch; absent before the first.",
    _DESTINATION,
)
FAILING_SINCE = _gauge(
    "pillion_destination_failing_since_timestamp_seconds",
    "When the first attempt since the last success failed, seconds since the epoch; absent while "
    "the destination does not fail.",
    _DESTINATION,
)
FIRST_LOSS_DUE = _gauge(
    "pillion_queue_first_loss_due_timestamp_seconds",
    "When the first pending indication is discarded if nothing more is delivered, seconds since "
    "the epoch; absent while nothing pending is due to be lost. The bound of the journal's bytes "
    "does not count, and may be reached sooner.",
    _DESTINATION,
)
ATTEMPTS = _counter(
    "pillion_delivery_attempts_total",
    "Attempts to deliver, by result: success, error, fatal-error, post-delivery-error.",
    ("destination", "result"),
)
DELIVERED = _counter("pillion_indications_delivered_total", "Indications delivered.", _DESTINATION)
SUPPRESSED = _counter(
    "pillion_indications_suppressed_total",
    "Accepted indications that repeatNotificationPolicy kept from the destination.",
    _DESTINATION,
)
HANDED_OVER = _counter(
    "pillion_indications_handed_over_total",
    "Indications that the gateway named by handOverTo took when the deliverer ended.",
    _DESTINATION,
)
DISCARDED = _counter(
    "pillion_indications_discarded_total",
    "Accepted indications that were discarded undelivered, by reason.",
    ("destination", "reason"),
)
#: Seconds. An attempt ends with its destination's time-out, 30 s unless a resource says otherwise.
ATTEMPT_DURATION = _histogram(
    "pillion_delivery_attempt_duration_seconds",
    "How long an attempt to deliver took, whatever its result.",
    ("protocol",),
    bounds=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 60),
)
#: Seconds. From a listener beside us to one that was away for a day.
END_TO_END = _histogram(
    "pillion_delivery_end_to_end_seconds",
    "From the acceptance of an indication to its delivery, waits and retries included.",
    ("protocol",),
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400),
)
INTAKE = _counter(
    "pillion_intake_indications_total",
    "Indications that publishers sent, by kind (json, ndjson, cloudevents, cim-xml, relay) and "
    "outcome: accepted, duplicate, invalid, refused (for now).",
    ("kind", "outcome"),
)
UNREACHED = _counter(
    "pillion_indications_unreached_total",
    "Accepted indications that go to no listener, by reason: unrouted (no subscription selects "
    "them), ended (the subscriptions that select them are disabled or have ended), suppressed "
    "(repeatNotificationPolicy).",
    ("reason",),
)
UNDECLARED = _counter(
    "pillion_indications_undeclared_total",
    "Accepted indications whose class is neither in the CIM schema nor declared: filters on its "
    "superclass do not select them.",
)
DUPLICATE_ENTRIES = _gauge(
    "pillion_duplicate_memory_entries", "Identities of accepted indications that are remembered."
)
DUPLICATE_EVICTIONS = _counter(
    "pillion_duplicate_memory_evictions_total",
    "Identities forgotten before their time because the memory was full: "
    "a repeat of one of these is delivered again.",
)
GROUPS_ACTIVE = _gauge("pillion_group_active", "Message groups that go on.")
GROUPS_REMEMBERED = _gauge(
    "pillion_group_remembered",
    "Message groups that have ended and whose members are still known as duplicates.",
)
GROUP_HELD = _gauge(
    "pillion_group_held_indications", "Members of ordered groups that wait for their predecessors."
)
GROUP_HELD_BYTES = _gauge(
    "pillion_group_held_bytes",
    "Bytes of the bodies of the members that wait for their predecessors.",
)
GROUP_TERMINATIONS = _counter(
    "pillion_group_terminations_total",
    "Message groups that ended, by how: t1 (groupExpires), t2 (groupMaxIdleSeconds), t3.1 and t4.1 "
    "(last came, complete), t4.2 (last came, incomplete), d3 (out of order).",
    ("termination",),
)
GROUP_HOLD_REFUSALS = _counter(
    "pillion_group_hold_refusals_total",
    "Members that could not be held for their predecessors, and were refused for now, by what had "
    "no room: all, group (a quarter of all), publisher (half of all), destination (its queue).",
    ("share",),
)
JOURNAL_BYTES = _gauge("pillion_journal_bytes", "Bytes of the journal's segments.")
JOURNAL_LIVE_BYTES = _gauge(
    "pillion_journal_live_bytes", "Bytes of the journal's records of which something is pending."
)
JOURNAL_LIVE_LIMIT_BYTES = _gauge(
    "pillion_journal_live_limit_bytes",
    "What pending records may take; at nine tenths of it the destination with most gives way.",
)
JOURNAL_IDENTITY_BYTES = _gauge(
    "pillion_journal_identity_bytes",
    "Bytes of the files that keep identities of settled indications.",
)
JOURNAL_SEGMENTS = _gauge("pillion_journal_segments", "Segments of the journal.")
JOURNAL_WRITTEN_BYTES = _counter(
    "pillion_journal_written_bytes_total",
    "Bytes written to the journal, those copied forward among them.",
)
JOURNAL_DAMAGED_RECORDS = _counter(
    "pillion_journal_damaged_records_total",
    "Damaged stretches that the start found in the journal, and damaged records read back since.",
)
JOURNAL_TORN_WRITES = _counter(
    "pillion_journal_torn_writes_total",
    "Last writes that the start cut off, since they are not what was written.",
)
JOURNAL_FULL = _gauge(
    "pillion_journal_full",
    "1 while the journal's disk is full, else 0. New indications are taken while the reserved room "
    "lasts, then refused.",
)
JOURNAL_WAITING = _gauge(
    "pillion_journal_waiting", "Publishers' requests and other parts that wait for a commit."
)
#: Seconds. From a disk that only pretends to one that is shared with too many.
JOURNAL_COMMIT_DURATION = _histogram(
    "pillion_journal_commit_duration_seconds",
    "How long a commit of the journal took: write and sync.",
    ("durability",),
    bounds=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
)
CONFIGURATION = _gauge(
    "pillion_configuration_info",
    "1, labelled by the revision of the configuration in force; absent before the first.",
    ("revision",),
)
RELOADS = _counter(
    "pillion_configuration_reloads_total",
    "Attempts to load a configuration, by outcome.",
    ("outcome",),
)
CONFIGURATION_AWAITED = _gauge(
    "pillion_configuration_awaited",
    "1 while the folder holds nothing, or no complete revision, that could be loaded; else 0.",
)
LAST_RELOAD_SUCCESSFUL = _gauge(
    "pillion_configuration_last_reload_successful",
    "1 where the last attempt to load a configuration succeeded, else 0.",
)
LAST_RELOAD_SUCCESS = _gauge(
    "pillion_configuration_last_reload_success_timestamp_seconds",
    "When a configuration was last loaded, seconds since the epoch; absent before the first.",
)
OPERATOR_REFUSED = _counter(
    "pillion_operator_requests_refused_total",
    "Requests for /v1/queues on the telemetry listener that came without the operator's token.",
)
CALLBACKS = _counter(
    "pillion_callbacks_total",
    "Publishers called back about a request: answered with success (delivered), or given up "
    "(dropped).",
    ("outcome",),
)
TURNED_AWAY = _counter(
    "pillion_intake_requests_turned_away_total",
    "Requests that a gateway refused unread, by reason: no-keys (503), missing, "
    "malformed, algorithm, unknown-key, signature, issuer, audience, expired, not-yet-valid, "
    "subject (401), forbidden (403).",
    ("reason",),
)
CONNECTIONS = _gauge(
    "pillion_intake_connections",
    "Connections of a gateway, by stage: handshake (of TLS), unproven (no token "
    "has let them in yet), proven.",
    ("stage",),
)
CONNECTIONS_GIVEN_UP = _counter(
    "pillion_intake_connections_given_up_total",
    "Connections that a gateway closed, by reason: full (a newcomer, since publishers have "
    "all places), handshake-crowded, unproven-crowded (a newcomer took the place), "
    "handshake-failed, unproven-late, idle (its service account has too many), "
    "head-too-long, not-taken (no descriptor was left).",
    ("reason",),
)
LISTENER_CONNECTIONS = _gauge(
    "pillion_listener_connections",
    "Connections of a plain listener: intake (not a gateway's), telemetry, administration.",
    ("listener",),
)
LISTENER_CONNECTIONS_GIVEN_UP = _counter(
    "pillion_listener_connections_given_up_total",
    "Connections that a plain listener closed, by reason: unproven-crowded and idle (a "
    "newcomer took the place of one without a request), unproven-late (no request within 15 s), "
    "head-too-long, full (all are in a request), not-taken (no descriptor was left).",
    ("listener", "reason"),
)
TOKEN_KEYS = _gauge(
    "pillion_token_keys",
    "Keys with which a gateway verifies publishers' tokens; 0: it lets nobody in.",
)
TOKEN_KEYS_READ = _gauge(
    "pillion_token_keys_last_read_successful",
    "1 where the file of keys was good when it was last read; 0: those before it stay in force.",
)
CERTIFICATE_EXPIRY = _gauge(
    "pillion_intake_certificate_expiry_timestamp_seconds",
    "When the certificate that a gateway serves with expires, seconds since the epoch; absent "
    "before the first.",
)
CERTIFICATE_READ = _gauge(
    "pillion_intake_certificate_last_read_successful",
    "1 where certificate and key were good when they were last read; 0: those before stay.",
)
LOG_RECORDS_DROPPED = _counter(
    "pillion_log_records_dropped_total",
    "Log records that were dropped: their reader or the log file was too slow, or did not take "
    "them. Discards among them are in the list of discards all the same.",
)
START = _gauge(
    "pillion_start_timestamp_seconds",
    "When the deliverer started, seconds since the epoch: it changes with each restart.",
)
BUILD = _gauge("pillion_build_info", "1, labelled by the version of Pillion.", ("version",))
