"""Pillion's metrics; ``docs/reference/metrics.md`` is made from this table. ``destination`` is a
name, never a URL, and no histogram has it: 15 buckets for each of 10,000 destinations overload
Prometheus."""

from functools import partial

from pillion_sidecar.delivery.handler import FailureCause
from pillion_sidecar.telemetry.exposition import Metric, MetricType

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
    "Pending indications in the destination queue, including those in flight.",
    _DESTINATION,
)
QUEUE_HELD = _gauge(
    "pillion_queue_held",
    "Members of incomplete message groups that are held for the destination, outside its queue.",
    _DESTINATION,
)
QUEUE_CAPACITY = _gauge(
    "pillion_destination_queue_capacity",
    "Indications that the destination queue can hold (queueSize).",
    _DESTINATION,
)
QUEUE_HIGH_WATER = _gauge(
    "pillion_destination_queue_high_water",
    "Maximum depth since the destination queue was created.",
    _DESTINATION,
)
OLDEST_AGE = _gauge(
    "pillion_destination_oldest_indication_age_seconds",
    "Seconds since the oldest pending indication was accepted; 0 if none is pending.",
    _DESTINATION,
)
IN_FLIGHT = _gauge("pillion_destination_in_flight", "Attempts in progress.", _DESTINATION)
SUSPENDED = _gauge(
    "pillion_destination_suspended", "1 if the destination is suspended, else 0.", _DESTINATION
)
HELD = _gauge(
    "pillion_destination_held",
    "1 for each held destination, by cause: invalid-destination, unsupported-protocol, "
    "invalid-credentials, invalid-certificates, refused-address, disabled; absent for all others. "
    "Its indications wait and are not discarded.",
    ("destination", "cause"),
)
PAUSED = _gauge(
    "pillion_destination_paused",
    "1 for each paused destination, by cause: refused-credentials, response-policy, "
    "circuit-breaker; absent for all others. Only its oldest indication is tried, now and then.",
    ("destination", "cause"),
)
RATE_LIMITED = _counter(
    "pillion_destination_rate_limited_seconds_total",
    "Seconds in which indications waited for the destination's rateLimit alone; absent without a "
    "limit.",
    _DESTINATION,
)
RELAYED = _gauge(
    "pillion_destination_relayed",
    "1 if this deliverer relays the indications of the destination to a gateway, 0 if it sends "
    "them to the listener itself.",
    _DESTINATION,
)
NEXT_ATTEMPT = _gauge(
    "pillion_destination_next_attempt_timestamp_seconds",
    "When the next attempt is due that waits for a retry or for rateLimit, seconds since the "
    "epoch; absent while none waits.",
    _DESTINATION,
)
LAST_SUCCESS = _gauge(
    "pillion_destination_last_success_timestamp_seconds",
    "When an indication was last delivered, seconds since the epoch; absent before the first.",
    _DESTINATION,
)
FAILING = _gauge(
    "pillion_destination_failing",
    "1 for each destination whose last attempts have failed, by the cause of the last one: "
    f"{', '.join(FailureCause)}; absent for all others.",
    ("destination", "cause"),
)
FAILING_SINCE = _gauge(
    "pillion_destination_failing_since_timestamp_seconds",
    "When the first attempt since the last success failed, seconds since the epoch; absent while "
    "the destination does not fail.",
    _DESTINATION,
)
SLOW_SINCE = _gauge(
    "pillion_destination_slow_since_timestamp_seconds",
    "Since when deliveries have been late (10 seconds after acceptance) and fewer than arrivals, "
    "seconds since the epoch; absent while the destination keeps up, and while nothing is "
    "delivered.",
    _DESTINATION,
)
FIRST_LOSS_DUE = _gauge(
    "pillion_queue_first_loss_due_timestamp_seconds",
    "When the first pending indication is discarded at the present rates, or, if nothing is "
    "delivered now, if no delivery succeeds; seconds since the epoch; absent while no discard is "
    "due. The size limit of the journal does not count, and may be reached earlier.",
    _DESTINATION,
)
ATTEMPTS = _counter(
    "pillion_delivery_attempts_total",
    "Delivery attempts, by result: success, error, fatal-error, post-delivery-error.",
    ("destination", "result"),
)
QUEUED = _counter(
    "pillion_indications_queued_total",
    "Indications accepted for the destination, in each deliverer that they pass.",
    _DESTINATION,
)
DELIVERED = _counter("pillion_indications_delivered_total", "Indications delivered.", _DESTINATION)
SUPPRESSED = _counter(
    "pillion_indications_suppressed_total",
    "Accepted indications that repeatNotificationPolicy suppressed for the destination.",
    _DESTINATION,
)
HANDED_OVER = _counter(
    "pillion_indications_handed_over_total",
    "Indications that the gateway in handOverTo took over when the deliverer stopped.",
    _DESTINATION,
)
DISCARDED = _counter(
    "pillion_indications_discarded_total",
    "Accepted indications that were discarded undelivered, by reason.",
    ("destination", "reason"),
)
ATTEMPT_SECONDS = _counter(
    "pillion_destination_attempt_seconds_total",
    "Seconds that the attempts at a destination have taken, for all results. Its rate by that of "
    "pillion_delivery_attempts_total is their average.",
    _DESTINATION,
)
DEAD_LETTERS = _counter(
    "pillion_dead_letters_total",
    "Discarded indications that were handed to the destination in deadLetterRef: taken, or refused "
    "there. destination is the one that discarded them; absent without a deadLetterRef.",
    ("destination", "result"),
)
#: Seconds. An attempt lasts at most its destination's time-out, by default 30 s.
ATTEMPT_DURATION = _histogram(
    "pillion_delivery_attempt_duration_seconds",
    "Duration of a delivery attempt, for all results.",
    ("protocol",),
    bounds=(0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 10, 30, 60),
)
#: Seconds, from a local listener to an outage of a day.
END_TO_END = _histogram(
    "pillion_delivery_end_to_end_seconds",
    "Time from the acceptance of an indication to its delivery, including waits and retries.",
    ("protocol",),
    bounds=(0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5, 30, 60, 300, 1800, 7200, 86400),
)
INTAKE = _counter(
    "pillion_intake_indications_total",
    "Indications that publishers sent, by kind (json, ndjson, cloudevents, cim-xml, relay) and "
    "outcome: accepted, duplicate, invalid, refused (for now).",
    ("kind", "outcome"),
)
BEYOND_LIMIT = _counter(
    "pillion_intake_rate_limited_total",
    "Indications that were refused for now because their publisher exceeded publisherRateLimit; "
    "those behind them in their requests count too.",
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
    "Identities forgotten early because the memory was full; a repeat of one is delivered again.",
)
GROUPS_ACTIVE = _gauge("pillion_group_active", "Active message groups.")
GROUPS_REMEMBERED = _gauge(
    "pillion_group_remembered",
    "Ended message groups whose members are still recognized as duplicates.",
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
    "Message groups that ended, by how: t1 (groupExpires), t2 (groupMaxIdleSeconds), t3.1 and "
    "t4.1 (last member received, complete), t4.2 (last member received, incomplete), d3 (out of "
    "order).",
    ("termination",),
)
GROUP_HOLD_REFUSALS = _counter(
    "pillion_group_hold_refusals_total",
    "Members that were refused for now because they could not be held for their predecessors, by "
    "the exhausted limit: all, group (a quarter of all), publisher (half of all), destination "
    "(its queue).",
    ("share",),
)
JOURNAL_BYTES = _gauge("pillion_journal_bytes", "Bytes of the journal's segments.")
JOURNAL_LIVE_BYTES = _gauge(
    "pillion_journal_live_bytes", "Bytes of the journal's records with pending deliveries."
)
JOURNAL_LIVE_LIMIT_BYTES = _gauge(
    "pillion_journal_live_limit_bytes",
    "Maximum bytes of pending records. At nine tenths of it the fullest queues apply their "
    "queueFullPolicy.",
)
JOURNAL_IDENTITY_BYTES = _gauge(
    "pillion_journal_identity_bytes",
    "Bytes of the files that keep identities of settled indications.",
)
JOURNAL_SEGMENTS = _gauge("pillion_journal_segments", "Segments of the journal.")
JOURNAL_WRITTEN_BYTES = _counter(
    "pillion_journal_written_bytes_total",
    "Bytes written to the journal, including copies by compaction.",
)
JOURNAL_DAMAGED_RECORDS = _counter(
    "pillion_journal_damaged_records_total",
    "Damaged sections that the start found in the journal, and damaged records read since.",
)
JOURNAL_TORN_WRITES = _counter(
    "pillion_journal_torn_writes_total",
    "Incomplete or damaged last writes that the start cut off.",
)
JOURNAL_FULL = _gauge(
    "pillion_journal_full",
    "1 while the journal's disk is full, else 0. New indications are accepted while the reserved "
    "space lasts, then refused.",
)
JOURNAL_WAITING = _gauge(
    "pillion_journal_waiting", "Requests and other operations that wait for a commit."
)
#: Seconds, from a disk that ignores syncs to an overloaded one.
JOURNAL_COMMIT_DURATION = _histogram(
    "pillion_journal_commit_duration_seconds",
    "Duration of a commit of the journal: write and sync.",
    ("durability",),
    bounds=(0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.1, 0.5, 1, 5),
)
HISTORY_BYTES = _gauge(
    "pillion_history_bytes",
    "Bytes of the history: on the volume, or in memory without a folder.",
)
HISTORY_UNKEPT = _gauge(
    "pillion_history_unkept_discards",
    "Discards that the history has no more, over all runs: they were too old, it was full, or the "
    "disk did not take them.",
)
REPLAYED = _counter(
    "pillion_replayed_total",
    "Indications of replays, by result: queued again, then delivered or discarded.",
    ("result",),
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
    "1 while the folder holds no complete configuration to load, else 0.",
)
LAST_RELOAD_SUCCESSFUL = _gauge(
    "pillion_configuration_last_reload_successful",
    "1 if the last attempt to load a configuration succeeded, else 0.",
)
LAST_RELOAD_SUCCESS = _gauge(
    "pillion_configuration_last_reload_success_timestamp_seconds",
    "When a configuration was last loaded, seconds since the epoch; absent before the first.",
)
COPY_REQUESTS = _counter(
    "pillion_journal_copy_requests_total",
    "Requests of writers for the copies of their journals that this gateway keeps, by verb (claim, "
    "cut, append, remove, release, read; none: it cannot be read) and result: ok, or why it was "
    "refused: malformed, unknown, fenced, unclaimed, gap, conflict, forbidden, quota, sessions, "
    "broken, disk, body. Absent without journalCopies, like the others of its kind.",
    ("verb", "result"),
)
COPY_BYTES = _gauge(
    "pillion_journal_copy_bytes",
    "Bytes of the copies of journals, by namespace of their writers; _ without tokens. Beyond 100 "
    "namespaces the rest is other.",
    ("writer_namespace",),
)
COPY_BYTES_LIMIT = _gauge(
    "pillion_journal_copy_bytes_limit",
    "Bytes that the copies of one namespace may take (journalCopies.maximumBytes).",
)
COPY_SESSIONS = _gauge(
    "pillion_journal_copy_sessions", "Journals of which copies are kept.", ("writer_namespace",)
)
COPY_SESSIONS_LIMIT = _gauge(
    "pillion_journal_copy_sessions_limit",
    "Journals of one namespace of which copies may be kept (journalCopies.maximumSessions).",
)
ADOPTIONS = _counter(
    "pillion_adoptions_total",
    "Adoptions of journals whose deliverers are gone, by result: done, failed (the operator orders "
    "it again). Absent where no tokens are required, until the first order.",
    ("result",),
)
ADOPTED_INDICATIONS = _counter(
    "pillion_adopted_indications_total",
    "Indications of adopted journals, by result: taken, duplicate (this gateway had it already), "
    "refused (it cannot be delivered, or follows a lost member of its group). Absent like "
    "pillion_adoptions_total.",
    ("result",),
)
COPIES_DROPPED = _counter(
    "pillion_journal_copies_dropped_total",
    "Copies that nobody had written to for journalCopies.maximumAgeSeconds, and that gave way to "
    "others.",
    ("writer_namespace",),
)
STORE_UNSTABLE_BYTES = _gauge(
    "pillion_store_unstable_bytes",
    "Bytes of the journal that are in too few stores. Absent without stores, like the others of "
    "its kind.",
)
STORE_FLIGHT_SIZE = _gauge(
    "pillion_store_flight_size_bytes",
    "Maximum bytes of the journal that are in too few stores (stores.flightSize).",
)
STORE_UNSTABLE_SECONDS = _gauge(
    "pillion_store_unstable_seconds",
    "Time since the oldest write of the journal that is in too few stores; 0 if all is in enough.",
)
STORE_UNANNOUNCED_BYTES = _gauge(
    "pillion_store_unannounced_bytes",
    "Bytes of the journal behind the position that is announced for its stores (stores.consensus).",
)
STORE_FORCED = _counter(
    "pillion_store_forced_discards_total",
    "Discards of indications while too few stores had them, by reason: those of "
    "pillion_indications_discarded_total.",
    ("reason",),
)
STORE_FORCED_SEGMENTS = _counter(
    "pillion_store_forced_segments_total",
    "Segments of the journal that were removed while they were in too few stores, by cause: "
    "lifetime (stores.stabilityLifetimeSeconds), flight-size (more than stores.flightSize is in "
    "too few stores), volume (the folder has no space for them).",
    ("cause",),
)
STORE_UNPROTECTED = _counter(
    "pillion_store_unprotected_indications_total",
    "Indications that were accepted while more than stores.flightSize was in too few stores "
    "(withoutQuorum Continue).",
)
STORE_LEASE_SECONDS = _gauge(
    "pillion_store_lease_seconds",
    "Time for which deliveries may begin without a further answer of the stores; 0: none begins. "
    "Absent unless stores.fencing is Lease.",
)
STORE_UP = _gauge(
    "pillion_store_up", "1 if the store did what it was last asked for, else 0.", ("store",)
)
STORE_MISSED = _gauge(
    "pillion_store_missed",
    "1 for each store that is missed: while it and others do not take the journal, nothing becomes "
    "stable. 0 for all others.",
    ("store",),
)
STORE_BEHIND_BYTES = _gauge(
    "pillion_store_behind_bytes", "Bytes of the journal that the store does not have.", ("store",)
)
STORE_REQUESTS = _counter(
    "pillion_store_requests_total",
    "Requests to the stores of the journal since the start has claimed them, by verb (claim, cut, "
    "append, remove, keep) and result: ok, unanswered, or why the store refused: malformed, "
    "unknown, fenced, unclaimed, gap, conflict, forbidden, quota, sessions, broken.",
    ("verb", "result"),
)
OPERATOR_REFUSED = _counter(
    "pillion_operator_requests_refused_total",
    "Requests for /v1/queues on the telemetry listener without the operator's token.",
)
CALLBACKS = _counter(
    "pillion_callbacks_total",
    "Callbacks to publishers about a request, by outcome: delivered (answered with success), "
    "dropped (given up).",
    ("outcome",),
)
TURNED_AWAY = _counter(
    "pillion_intake_requests_turned_away_total",
    "Requests that a gateway refused before it read the body, by reason: no-keys (503), missing, "
    "malformed, algorithm, unknown-key, signature, issuer, audience, expired, not-yet-valid, "
    "subject (401), forbidden (403).",
    ("reason",),
)
CONNECTIONS = _gauge(
    "pillion_intake_connections",
    "Connections of a gateway, by stage: handshake (TLS), unproven (no valid token yet), proven.",
    ("stage",),
)
CONNECTIONS_GIVEN_UP = _counter(
    "pillion_intake_connections_given_up_total",
    "Connections that a gateway closed, by reason: full (a new one, while publishers use all "
    "slots), handshake-crowded, unproven-crowded (a new connection took the slot), "
    "handshake-failed, unproven-late, idle (its service account has too many), head-too-long, "
    "not-taken (no descriptor was free).",
    ("reason",),
)
LISTENER_CONNECTIONS = _gauge(
    "pillion_listener_connections",
    "Connections of a plain listener: intake (not a gateway's), telemetry, administration.",
    ("listener",),
)
LISTENER_CONNECTIONS_GIVEN_UP = _counter(
    "pillion_listener_connections_given_up_total",
    "Connections that a plain listener closed, by reason: unproven-crowded and idle (a new "
    "connection took the slot of one without a request), unproven-late (no request within 15 s), "
    "head-too-long, full (all are in a request), not-taken (no descriptor was free).",
    ("listener", "reason"),
)
TOKEN_KEYS = _gauge(
    "pillion_token_keys",
    "Keys for verifying publishers' tokens at a gateway; 0: it refuses all publishers.",
)
TOKEN_KEYS_READ = _gauge(
    "pillion_token_keys_last_read_successful",
    "1 if the file of keys was valid when it was last read; 0: the previous keys stay in force.",
)
CERTIFICATE_EXPIRY = _gauge(
    "pillion_intake_certificate_expiry_timestamp_seconds",
    "When the certificate of a gateway expires, seconds since the epoch; absent before the first.",
)
CERTIFICATE_READ = _gauge(
    "pillion_intake_certificate_last_read_successful",
    "1 if certificate and key were valid when they were last read; 0: the previous ones stay in "
    "force.",
)
LOG_RECORDS_DROPPED = _counter(
    "pillion_log_records_dropped_total",
    "Dropped log records: the reader or the log file was too slow, or failed. Discards among "
    "them are still in the history.",
)
SPANS = _counter(
    "pillion_spans_total",
    "Recorded spans, by result: exported, dropped (too many waited, or the collector did not take "
    "them); absent without OTEL_EXPORTER_OTLP_ENDPOINT.",
    ("result",),
)
START = _gauge(
    "pillion_start_timestamp_seconds",
    "When the deliverer started, seconds since the epoch: it changes with each restart.",
)
BUILD = _gauge("pillion_build_info", "1, labelled by the version of Pillion.", ("version",))
