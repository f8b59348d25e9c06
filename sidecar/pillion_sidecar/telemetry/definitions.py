"""Every metric that Pillion itself defines. ``docs/reference/metrics.md`` is made from this table.

Base units, bounded labels. ``destination`` is the name of a ListenerDestination, never its URL, and
no histogram has it: ten thousand destinations with fifteen buckets each would drown a Prometheus.
"""

from pillion_sidecar.telemetry.exposition import Metric, MetricType

_DESTINATION = ("destination",)

QUEUE_DEPTH = Metric(
    "pillion_destination_queue_depth",
    MetricType.GAUGE,
    "Indications pending in the destination queue, those in flight among them.",
    _DESTINATION,
)
QUEUE_HELD = Metric(
    "pillion_queue_held",
    MetricType.GAUGE,
    "Members of incomplete message groups that are held for the destination, beside its queue.",
    _DESTINATION,
)
QUEUE_CAPACITY = Metric(
    "pillion_destination_queue_capacity",
    MetricType.GAUGE,
    "Indications that the destination queue can hold (queueSize).",
    _DESTINATION,
)
QUEUE_HIGH_WATER = Metric(
    "pillion_destination_queue_high_water",
    MetricType.GAUGE,
    "The greatest depth since the destination queue was made.",
    _DESTINATION,
)
OLDEST_AGE = Metric(
    "pillion_destination_oldest_indication_age_seconds",
    MetricType.GAUGE,
    "Seconds since the oldest pending indication was accepted; 0 with none pending.",
    _DESTINATION,
)
IN_FLIGHT = Metric(
    "pillion_destination_in_flight",
    MetricType.GAUGE,
    "Attempts under way.",
    _DESTINATION,
)
SUSPENDED = Metric(
    "pillion_destination_suspended",
    MetricType.GAUGE,
    "1 where the destination is suspended, else 0.",
    _DESTINATION,
)
HELD = Metric(
    "pillion_destination_held",
    MetricType.GAUGE,
    "1 for each destination that is held, by what is wrong with it: invalid-destination, "
    "unsupported-protocol, invalid-credentials, invalid-certificates, refused-address; absent for "
    "all others. Its indications wait and are not discarded.",
    ("destination", "cause"),
)
RELAYED = Metric(
    "pillion_destination_relayed",
    MetricType.GAUGE,
    "1 where this deliverer relays to a gateway what is for the destination, 0 where it sends to "
    "the listener itself.",
    _DESTINATION,
)
NEXT_ATTEMPT = Metric(
    "pillion_destination_next_attempt_timestamp_seconds",
    MetricType.GAUGE,
    "When the next retry is due, seconds since the epoch; absent while none is scheduled.",
    _DESTINATION,
)
FAILING_SINCE = Metric(
    "pillion_destination_failing_since_timestamp_seconds",
    MetricType.GAUGE,
    "When the first attempt since the last success failed, seconds since the epoch; absent while "
    "the destination does not fail.",
    _DESTINATION,
)
FIRST_LOSS_DUE = Metric(
    "pillion_queue_first_loss_due_timestamp_seconds",
    MetricType.GAUGE,
    "When the first pending indication is discarded if nothing more is delivered, seconds since "
    "the epoch; absent while nothing pending is due to be lost. The bound of the journal's bytes "
    "does not count, and may be reached sooner.",
    _DESTINATION,
)
LAST_SUCCESS = Metric(
    "pillion_destination_last_success_timestamp_seconds",
    MetricType.GAUGE,
    "When an indication was last delivered, seconds since the epoch; absent before the first.",
    _DESTINATION,
)
ATTEMPTS = Metric(
    "pillion_delivery_attempts_total",
    MetricType.COUNTER,
    "Attempts to deliver, by result: success, error, fatal-error, post-delivery-error.",
    ("destination", "result"),
)
DELIVERED = Metric(
    "pillion_indications_delivered_total",
    MetricType.COUNTER,
    "Indications delivered.",
    _DESTINATION,
)
SUPPRESSED = Metric(
    "pillion_indications_suppressed_total",
    MetricType.COUNTER,
    "Accepted indications that repeatNotificationPolicy kept from the destination.",
    _DESTINATION,
)
HANDED_OVER = Metric(
    "pillion_indications_handed_over_total",
    MetricType.COUNTER,
    "Indications that the gateway named by handOverTo took when the deliverer ended.",
    _DESTINATION,
)
DISCARDED = Metric(
    "pillion_indications_discarded_total",
    MetricType.COUNTER,
    "Accepted indications that were discarded undelivered, by reason.",
    ("destination", "reason"),
)
ATTEMPT_DURATION = Metric(
    "pillion_delivery_attempt_duration_seconds",
    MetricType.HISTOGRAM,
    "How long an attempt to deliver took, whatever its result.",
    ("protocol",),
)
END_TO_END = Metric(
    "pillion_delivery_end_to_end_seconds",
    MetricType.HISTOGRAM,
    "From the acceptance of an indication to its delivery, waits and retries included.",
    ("protocol",),
)
INTAKE = Metric(
    "pillion_intake_indications_total",
    MetricType.COUNTER,
    "Indications that publishers sent, by kind (json, ndjson, cloudevents, cim-xml, relay) and "
    "outcome: accepted, duplicate, invalid, refused (for now).",
    ("kind", "outcome"),
)
UNREACHED = Metric(
    "pillion_indications_unreached_total",
    MetricType.COUNTER,
    "Accepted indications that go to no listener, by reason: unrouted (no subscription selects "
    "them), ended (the subscriptions that select them are disabled or have ended), suppressed "
    "(repeatNotificationPolicy).",
    ("reason",),
)
UNDECLARED = Metric(
    "pillion_indications_undeclared_total",
    MetricType.COUNTER,
    "Accepted indications whose class is neither in the CIM schema nor declared: filters on its "
    "superclass do not select them.",
)
DUPLICATE_ENTRIES = Metric(
    "pillion_duplicate_memory_entries",
    MetricType.GAUGE,
    "Identities of accepted indications that are remembered.",
)
DUPLICATE_EVICTIONS = Metric(
    "pillion_duplicate_memory_evictions_total",
    MetricType.COUNTER,
    "Identities forgotten before their time because the memory was full: "
    "a repeat of one of these is delivered again.",
)
GROUPS_ACTIVE = Metric(
    "pillion_group_active",
    MetricType.GAUGE,
    "Message groups that go on.",
)
GROUPS_REMEMBERED = Metric(
    "pillion_group_remembered",
    MetricType.GAUGE,
    "Message groups that have ended and whose members are still known as duplicates.",
)
GROUP_HELD = Metric(
    "pillion_group_held_indications",
    MetricType.GAUGE,
    "Members of ordered groups that wait for their predecessors.",
)
GROUP_HELD_BYTES = Metric(
    "pillion_group_held_bytes",
    MetricType.GAUGE,
    "Bytes of the bodies of the members that wait for their predecessors.",
)
GROUP_TERMINATIONS = Metric(
    "pillion_group_terminations_total",
    MetricType.COUNTER,
    "Message groups that ended, by how: t1 (groupExpires), t2 (groupMaxIdleSeconds), t3.1 and t4.1 "
    "(last came, complete), t4.2 (last came, incomplete), d3 (out of order).",
    ("termination",),
)
GROUP_HOLD_REFUSALS = Metric(
    "pillion_group_hold_refusals_total",
    MetricType.COUNTER,
    "Members that could not be held for their predecessors, and were refused for now, by what had "
    "no room: all, group (a quarter of all), publisher (half of all), destination (its queue).",
    ("share",),
)
JOURNAL_BYTES = Metric(
    "pillion_journal_bytes",
    MetricType.GAUGE,
    "Bytes of the journal's segments.",
)
JOURNAL_LIVE_BYTES = Metric(
    "pillion_journal_live_bytes",
    MetricType.GAUGE,
    "Bytes of the journal's records of which something is pending.",
)
JOURNAL_LIVE_LIMIT_BYTES = Metric(
    "pillion_journal_live_limit_bytes",
    MetricType.GAUGE,
    "What pending records may take; at nine tenths of it the destination with most gives way.",
)
JOURNAL_IDENTITY_BYTES = Metric(
    "pillion_journal_identity_bytes",
    MetricType.GAUGE,
    "Bytes of the files that keep identities of settled indications.",
)
JOURNAL_SEGMENTS = Metric(
    "pillion_journal_segments",
    MetricType.GAUGE,
    "Segments of the journal.",
)
JOURNAL_WRITTEN_BYTES = Metric(
    "pillion_journal_written_bytes_total",
    MetricType.COUNTER,
    "Bytes written to the journal, those copied forward among them.",
)
JOURNAL_DAMAGED_RECORDS = Metric(
    "pillion_journal_damaged_records_total",
    MetricType.COUNTER,
    "Damaged stretches that the start found in the journal, and damaged records read back since.",
)
JOURNAL_TORN_WRITES = Metric(
    "pillion_journal_torn_writes_total",
    MetricType.COUNTER,
    "Last writes that the start cut off, since they are not what was written.",
)
JOURNAL_FULL = Metric(
    "pillion_journal_full",
    MetricType.GAUGE,
    "1 while the journal's disk is full, else 0. New indications are taken while the reserved room "
    "lasts, then refused.",
)
JOURNAL_WAITING = Metric(
    "pillion_journal_waiting",
    MetricType.GAUGE,
    "Publishers' requests and other parts that wait for a commit.",
)
JOURNAL_COMMIT_DURATION = Metric(
    "pillion_journal_commit_duration_seconds",
    MetricType.HISTOGRAM,
    "How long a commit of the journal took: write and sync.",
    ("durability",),
)
CONFIGURATION = Metric(
    "pillion_configuration_info",
    MetricType.GAUGE,
    "1, labelled by the revision of the configuration in force; absent before the first.",
    ("revision",),
)
RELOADS = Metric(
    "pillion_configuration_reloads_total",
    MetricType.COUNTER,
    "Attempts to load a configuration, by outcome.",
    ("outcome",),
)
CONFIGURATION_AWAITED = Metric(
    "pillion_configuration_awaited",
    MetricType.GAUGE,
    "1 while the folder holds nothing, or no complete revision, that could be loaded; else 0.",
)
LAST_RELOAD_SUCCESSFUL = Metric(
    "pillion_configuration_last_reload_successful",
    MetricType.GAUGE,
    "1 where the last attempt to load a configuration succeeded, else 0.",
)
LAST_RELOAD_SUCCESS = Metric(
    "pillion_configuration_last_reload_success_timestamp_seconds",
    MetricType.GAUGE,
    "When a configuration was last loaded, seconds since the epoch; absent before the first.",
)
OPERATOR_REFUSED = Metric(
    "pillion_operator_requests_refused_total",
    MetricType.COUNTER,
    "Requests for /v1/queues on the telemetry listener that came without the operator's token.",
)
CALLBACKS = Metric(
    "pillion_callbacks_total",
    MetricType.COUNTER,
    "Publishers called back about a request: answered with success (delivered), or given up "
    "(dropped).",
    ("outcome",),
)
TURNED_AWAY = Metric(
    "pillion_intake_requests_turned_away_total",
    MetricType.COUNTER,
    "Requests that a gateway refused unread, by reason: no-keys (503), missing, "
    "malformed, algorithm, unknown-key, signature, issuer, audience, expired, not-yet-valid, "
    "subject (401), forbidden (403).",
    ("reason",),
)
CONNECTIONS = Metric(
    "pillion_intake_connections",
    MetricType.GAUGE,
    "Connections of a gateway, by stage: handshake (of TLS), unproven (no token "
    "has let them in yet), proven.",
    ("stage",),
)
CONNECTIONS_GIVEN_UP = Metric(
    "pillion_intake_connections_given_up_total",
    MetricType.COUNTER,
    "Connections that a gateway closed, by reason: full (a newcomer, since publishers have "
    "all places), handshake-crowded, unproven-crowded (a newcomer took the place), "
    "handshake-failed, unproven-late, idle (its service account has too many), "
    "head-too-long, not-taken (no descriptor was left).",
    ("reason",),
)
LISTENER_CONNECTIONS = Metric(
    "pillion_listener_connections",
    MetricType.GAUGE,
    "Connections of a plain listener: intake (not a gateway's), telemetry, administration.",
    ("listener",),
)
LISTENER_CONNECTIONS_GIVEN_UP = Metric(
    "pillion_listener_connections_given_up_total",
    MetricType.COUNTER,
    "Connections that a plain listener closed, by reason: unproven-crowded and idle (a "
    "newcomer took the place of one without a request), unproven-late (no request within 15 s), "
    "head-too-long, full (all are in a request), not-taken (no descriptor was left).",
    ("listener", "reason"),
)
TOKEN_KEYS = Metric(
    "pillion_token_keys",
    MetricType.GAUGE,
    "Keys with which a gateway verifies publishers' tokens; 0: it lets nobody in.",
)
TOKEN_KEYS_READ = Metric(
    "pillion_token_keys_last_read_successful",
    MetricType.GAUGE,
    "1 where the file of keys was good when it was last read; 0: those before it stay in force.",
)
CERTIFICATE_EXPIRY = Metric(
    "pillion_intake_certificate_expiry_timestamp_seconds",
    MetricType.GAUGE,
    "When the certificate that a gateway serves with expires, seconds since the epoch; absent "
    "before the first.",
)
CERTIFICATE_READ = Metric(
    "pillion_intake_certificate_last_read_successful",
    MetricType.GAUGE,
    "1 where certificate and key were good when they were last read; 0: those before stay.",
)
LOG_RECORDS_DROPPED = Metric(
    "pillion_log_records_dropped_total",
    MetricType.COUNTER,
    "Log records that were dropped: their reader or the log file was too slow, or did not take "
    "them. Discards among them are in the list of discards all the same.",
)
START = Metric(
    "pillion_start_timestamp_seconds",
    MetricType.GAUGE,
    "When the deliverer started, seconds since the epoch: it changes with each restart.",
)
BUILD = Metric(
    "pillion_build_info",
    MetricType.GAUGE,
    "1, labelled by the version of Pillion.",
    ("version",),
)

METRICS: tuple[Metric, ...] = (
    QUEUE_DEPTH,
    QUEUE_HELD,
    QUEUE_CAPACITY,
    QUEUE_HIGH_WATER,
    OLDEST_AGE,
    IN_FLIGHT,
    SUSPENDED,
    HELD,
    RELAYED,
    NEXT_ATTEMPT,
    LAST_SUCCESS,
    FAILING_SINCE,
    FIRST_LOSS_DUE,
    ATTEMPTS,
    DELIVERED,
    SUPPRESSED,
    HANDED_OVER,
    DISCARDED,
    ATTEMPT_DURATION,
    END_TO_END,
    INTAKE,
    UNREACHED,
    UNDECLARED,
    DUPLICATE_ENTRIES,
    DUPLICATE_EVICTIONS,
    GROUPS_ACTIVE,
    GROUPS_REMEMBERED,
    GROUP_HELD,
    GROUP_HELD_BYTES,
    GROUP_TERMINATIONS,
    GROUP_HOLD_REFUSALS,
    JOURNAL_BYTES,
    JOURNAL_LIVE_BYTES,
    JOURNAL_LIVE_LIMIT_BYTES,
    JOURNAL_IDENTITY_BYTES,
    JOURNAL_SEGMENTS,
    JOURNAL_WRITTEN_BYTES,
    JOURNAL_DAMAGED_RECORDS,
    JOURNAL_TORN_WRITES,
    JOURNAL_FULL,
    JOURNAL_WAITING,
    JOURNAL_COMMIT_DURATION,
    CONFIGURATION,
    RELOADS,
    CONFIGURATION_AWAITED,
    LAST_RELOAD_SUCCESSFUL,
    LAST_RELOAD_SUCCESS,
    OPERATOR_REFUSED,
    CALLBACKS,
    TURNED_AWAY,
    CONNECTIONS,
    CONNECTIONS_GIVEN_UP,
    LISTENER_CONNECTIONS,
    LISTENER_CONNECTIONS_GIVEN_UP,
    TOKEN_KEYS,
    TOKEN_KEYS_READ,
    CERTIFICATE_EXPIRY,
    CERTIFICATE_READ,
    LOG_RECORDS_DROPPED,
    START,
    BUILD,
)
