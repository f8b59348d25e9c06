"""The logged events. Names are stable: scripts and alerts match on them. Packages log with
``extra={"event": …}``; a test checks the names against this table, and ``docs/reference/events.md``
is made from it."""

from pillion_sidecar.telemetry.event import Event
from pillion_sidecar.telemetry.store_events import STORE_EVENTS

EVENTS: tuple[Event, ...] = (
    Event("deliverer-started", "INFO", "The deliverer listens.", ("intake", "telemetry")),
    Event(
        "deliverer-stopping",
        "INFO",
        "Delivery has ended, at the end of the grace period or with nothing left to deliver.",
        ("left",),
    ),
    Event(
        "deliverer-failed",
        "CRITICAL",
        "A component failed and cannot continue; the deliverer stops.",
    ),
    Event(
        "configuration-loaded",
        "INFO",
        "A configuration is in force.",
        ("revision", "destinations", "subscriptions"),
    ),
    Event(
        "configuration-warning",
        "WARNING",
        "A resource of the configuration is in force, but may not do what its author intends.",
    ),
    Event(
        "configuration-refused",
        "ERROR",
        "A configuration is invalid; the previous one, if any, stays in force.",
    ),
    Event(
        "destination-tested",
        "INFO",
        "`pillion test` has sent a test indication to a destination, past its queue.",
        ("destination", "identifier", "result", "detail", "seconds"),
    ),
    Event(
        "indications-unreached",
        "WARNING",
        "Accepted indications go to no listener: no subscription selects them (unrouted), or "
        "those that do are disabled or have ended (ended). The first is logged at once, later "
        "ones once a minute in one line with some of their classes. INFO if a "
        "repeatNotificationPolicy is the only reason (suppressed).",
        ("unrouted", "ended", "suppressed"),
    ),
    Event(
        "lines-held-back",
        "WARNING",
        "Publishers must send lines again later: a queue, the journal or the share of a group is "
        "full. The first is logged at once, later ones once a minute in one line, by reason.",
        ("lines",),
    ),
    Event(
        "classes-undeclared",
        "WARNING",
        "Accepted indications have classes that are neither in the CIM schema nor declared. Only "
        "filters on CIM_Indication or on the class itself select them. The first is logged at "
        "once, later ones once a minute in one line with some of them and the nearest known "
        "class.",
        ("count", "classes"),
    ),
    Event(
        "configuration-awaited",
        "INFO",
        "The folder holds no complete configuration yet; the previous one, if any, stays in force.",
    ),
    Event(
        "token-keys-loaded",
        "INFO",
        "A gateway now verifies its publishers' tokens with these keys.",
        ("issuer", "audience", "keys"),
    ),
    Event(
        "token-keys-refused",
        "WARNING",
        "The file of keys is unusable; the previous keys stay in force. Without any, publishers "
        "get 503.",
        ("file",),
    ),
    Event(
        "certificate-loaded",
        "INFO",
        "A gateway uses this certificate for new connections.",
        ("file", "expires"),
    ),
    Event(
        "certificate-refused",
        "WARNING",
        "A certificate and its key are unusable; the previous ones stay in force. Without any, "
        "connections are refused.",
        ("file",),
    ),
    Event(
        "connections-given-up",
        "WARNING",
        "A listener has more connections than slots. It closes those that sent no valid request "
        "for longest (`reason`: unproven-crowded; handshake-crowded during TLS), then idle ones "
        "(idle), and, if all are in use, new ones (full). Logged at most once a minute.",
        ("listener", "reason", "handshakes", "unproven", "proven"),
    ),
    Event(
        "connections-not-taken",
        "WARNING",
        "The system has no descriptor or memory for another connection of a listener.",
        ("listener", "reason"),
    ),
    Event(
        "plugin-missing",
        "WARNING",
        "The program of a plug-in (--plugin) cannot be run. Destinations that name it are held.",
        ("plugin", "reason"),
    ),
    Event(
        "plugin-link-failed",
        "WARNING",
        "The link to a plug-in has ended unasked, or could not be started: it hung up, sent "
        "nothing in time, or something that is not the protocol. It starts again after a wait of 1 "
        "to 60 s.",
        ("destination", "reason"),
    ),
    Event(
        "plugin-message-fault",
        "ERROR",
        "A message of a plug-in could not be handled, by a fault of the deliverer. The link ends.",
        ("destination",),
    ),
    Event(
        "plugin-output",
        "INFO",
        "A line that a plug-in wrote to standard error, or sent as `log` (then with its own "
        "level). At most 20 in 10 s are logged for each destination.",
        ("plugin", "destination"),
    ),
    Event(
        "plugin-output-left-out",
        "WARNING",
        "More lines of a plug-in than were logged.",
        ("plugin", "destination", "count"),
    ),
    Event(
        "dead-letter-refused",
        "WARNING",
        "What was discarded for a destination was not taken by the one in its deadLetterRef. The "
        "history has it. The first is logged at once, later ones once a minute, with how many "
        "there were since (count).",
        ("destination", "dead_letter_destination", "count", "reason"),
    ),
    Event(
        "indication-discarded",
        "WARNING",
        "An accepted indication was discarded undelivered. At most 10 in 10 s are logged for a "
        "destination and reason, and 200 in all; `discards-counted` counts the others. The list "
        "of discards has all (`pillion journal discards`). `detail` is that of the attempt after "
        "which it was discarded, at most 200 characters. `forced`: too few stores had it.",
        (
            "reason",
            "detail",
            "destination",
            "subscription",
            "identifier",
            "source",
            "sequence_context",
            "sequence_number",
            "attempts",
            "forced",
        ),
    ),
    Event(
        "discards-counted",
        "WARNING",
        "In the last 10 s more indications were discarded for a destination and reason than were "
        "logged one by one; without `destination`, for many of them together. `run` is `before` "
        "if a run that crashed discarded them at its end; some are then logged twice. With the "
        "reason `shutdown` it has their `identifiers`, 100 in a line.",
        ("destination", "reason", "count", "run", "identifiers"),
    ),
    Event(
        "discards-not-listed",
        "WARNING",
        "The history is full or cannot be written, for example on a full disk; unlisted counts the "
        "discards that it has no more. What was not written is retried.",
        ("unlisted",),
    ),
    Event(
        "history-damaged",
        "WARNING",
        "Bytes of the history's files cannot be read, and the outcomes there are lost, at most "
        "`discards` discards among them. The other outcomes stay. Logged at each start while the "
        "file is there.",
        ("file", "begin", "size", "discards"),
    ),
    Event(
        "history-shortened",
        "WARNING",
        "The oldest outcomes were removed, since the disk is full. Discards stay, within bounds.",
    ),
    Event(
        "identities-forgotten",
        "WARNING",
        "The disk is full. After a restart, count settled indications are not recognized when they "
        "are published again, and are delivered twice.",
        ("count",),
    ),
    Event("replay-started", "INFO", "An IndicationReplay begins.", ("replay", "destination")),
    Event(
        "replay-complete",
        "INFO",
        "Everything that an IndicationReplay has queued is delivered or discarded.",
        ("replay", "destination", "replayed", "delivered", "discarded", "left_out"),
    ),
    Event(
        "replay-cancelled",
        "INFO",
        "The resource of an IndicationReplay was removed before it was complete. What it has "
        "queued is still delivered.",
        ("replay", "destination", "replayed"),
    ),
    Event(
        "replay-failed",
        "ERROR",
        "An IndicationReplay has ended before it was complete; detail says why.",
        ("replay", "destination", "detail", "replayed"),
    ),
    Event(
        "history-handed-over",
        "INFO",
        "The gateway of `handOverTo` has the history of the ending deliverer: `count` outcomes, "
        "`discards` of them discards.",
        ("gateway", "count", "discards"),
    ),
    Event(
        "history-not-handed-over",
        "WARNING",
        "The gateway of `handOverTo` did not get all of the history of the ending deliverer: "
        "`count` outcomes are left, `discards` of them discards. Notes of redrives count, too.",
        ("gateway", "count", "discards", "reason"),
    ),
    Event(
        "group-terminated",
        "INFO",
        "A message group ended: by its last member, by time, or by a member out of order. "
        "WARNING if members are missing (listed as sequences) or held ones were discarded.",
        ("group", "source", "termination", "missing", "held_discarded"),
    ),
    Event(
        "group-ended-at-destination",
        "WARNING",
        "A member of an ordered message group was discarded at a destination. Later members are "
        "discarded there as out-of-order; other destinations get them.",
        ("destination", "group", "source", "sequence"),
    ),
    Event(
        "group-gap-forgotten",
        "WARNING",
        "More than 1,024 active ordered message groups have ended at a destination. The "
        "deliverer forgets the oldest of these ends and delivers later members of that group.",
        ("destination",),
    ),
    Event(
        "delivery-failing",
        "WARNING",
        "A destination started to fail. Further failed attempts are counted, not logged. Logged at "
        "most once a minute; a failure that lasts longer is logged then.",
        ("destination", "result", "detail", "status"),
    ),
    Event(
        "destination-held",
        "ERROR",
        "A destination itself is faulty (credentials, certificates, address). Its indications "
        "wait and none is lost; it is retried when its configuration changes, and every 30 "
        "seconds. Logged at the start, and when the cause changes.",
        ("destination", "cause", "detail", "depth"),
    ),
    Event(
        "destination-released",
        "INFO",
        "A held destination was released: its fault is fixed.",
        ("destination", "cause", "seconds", "depth"),
    ),
    Event(
        "destination-paused",
        "ERROR",
        "A destination is paused: its listener refuses the credentials, a rule of responsePolicy "
        "says so, or its circuit breaker is open. Only its oldest indication is tried, now and "
        "then. Logged at the start and when the cause changes, at most once in 10 minutes.",
        ("destination", "cause", "detail", "depth"),
    ),
    Event(
        "destination-resumed",
        "INFO",
        "A paused destination resumed: its listener has accepted an indication, or its resource "
        "has changed. Not logged if the pause was not.",
        ("destination", "cause", "seconds", "depth"),
    ),
    Event(
        "attempt-failed",
        "ERROR",
        "A defect: the code or the library that delivers to a destination raised an exception. The "
        "attempt counts as failed. The exception's text is not shown, since it may quote "
        "credentials.",
        ("destination",),
    ),
    Event(
        "delivery-resumed",
        "INFO",
        "A failing destination delivers again. Not logged if the failure was not.",
        ("destination", "seconds", "depth"),
    ),
    Event(
        "subscription-ended",
        "WARNING",
        "A subscription is no longer active, for a reason other than its own resource's state.",
        ("subscription", "destination", "reason"),
    ),
    Event(
        "callback-dropped",
        "WARNING",
        "A callback to a publisher was given up; the publisher can still ask for the receipt.",
        ("receipt", "url", "reason"),
    ),
    Event(
        "callbacks-not-resumed",
        "WARNING",
        "The history could not be read at the start, so callbacks of earlier runs may not be sent; "
        "the publishers can still ask for the receipts.",
    ),
    Event(
        "callbacks-left-at-shutdown",
        "WARNING",
        "Callbacks that were pending when the deliverer stopped. With durability Disk the next "
        "start sends them.",
        ("count",),
    ),
    Event(
        "handed-over",
        "INFO",
        "The indications of a destination when the deliverer stopped: how many its listener "
        "took, how many the gateway in handOverTo took over, how many are left.",
        ("destination", "gateway", "delivered", "handed_over", "left", "seconds"),
    ),
    Event(
        "left-at-shutdown",
        "WARNING",
        "Undelivered indications of a destination when the deliverer stopped. They were in "
        "memory and are discarded, or the journal's disk failed and the next start delivers what "
        "the journal holds.",
        ("destination", "count"),
    ),
    Event(
        "kept-at-shutdown",
        "INFO",
        "Undelivered indications of a destination when the deliverer stopped. They are in the "
        "journal; the next start delivers them.",
        ("destination", "count"),
    ),
    Event(
        "recovered",
        "INFO",
        "Undelivered indications of a destination from the previous run. They are delivered now.",
        ("destination", "count"),
    ),
    Event(
        "lost-at-restart",
        "WARNING",
        "With durability StateOnly: undelivered indications of a destination that were lost with "
        "the previous run. Publishers may send them again.",
        ("destination", "count"),
    ),
    Event(
        "journal-unused",
        "WARNING",
        "The folder holds a journal, and durability is Memory: the journal is not used, and its "
        "pending indications are not delivered.",
        ("folder",),
    ),
    Event(
        "journal-copies-unused",
        "WARNING",
        "The journal's folder holds copies of other journals, and the service has no "
        "journalCopies: they are not served, and take room that nobody counts.",
        ("folder",),
    ),
    Event(
        "journal-copy-refused",
        "WARNING",
        "A writer's request for the copy of its journal was refused, because its namespace has as "
        "many bytes or journals as it may, or because the disk refuses. At most every 10 minutes "
        "for each namespace and reason.",
        ("namespace", "reason"),
    ),
    Event(
        "journal-copy-dropped",
        "WARNING",
        "A copy that nobody had written to for journalCopies.maximumAgeSeconds gave way to "
        "another. What was pending in it is lost if its writer's own volume is.",
        ("namespace", "session", "bytes"),
    ),
    Event(
        "journal-full",
        "ERROR",
        "The journal's disk is full. New indications are accepted while the reserved space "
        "lasts, then refused with 429 until the disk has space; delivery continues.",
        ("reserved",),
    ),
    Event(
        "adoption-begun",
        "INFO",
        "This gateway takes over what a deliverer that is gone left pending at its stores.",
        ("session", "service", "pending"),
    ),
    Event(
        "adoption-done",
        "INFO",
        "An adoption is done, and its session is released. `duplicate`: indications that this "
        "gateway had already; `refused`: those that it cannot deliver, or that follow a lost "
        "member of their group.",
        ("session", "service", "taken", "duplicate", "refused"),
    ),
    Event(
        "adoption-refused",
        "WARNING",
        "An adopted indication cannot be delivered. Logged once for each destination and reason.",
        ("session", "destination", "reason"),
    ),
    Event(
        "adoption-failed",
        "ERROR",
        "An adoption failed. What is pending stays at the stores, and the operator orders the "
        "adoption again.",
        ("session", "service", "reason"),
    ),
    Event(
        "adoption-defect",
        "ERROR",
        "A defect: the code that adopts a session raised an exception. What is pending stays at "
        "the stores.",
        ("session",),
    ),
    Event("journal-writable", "INFO", "The journal's disk has space again.", ("reserved",)),
    Event(
        "journal-incomplete",
        "ERROR",
        "When the deliverer stopped, the journal's disk did not take all accepted indications. "
        "No indication that was acknowledged as durable is lost.",
        ("bytes",),
    ),
    Event(
        "journal-damaged",
        "ERROR",
        "Parts of the journal cannot be read, or segments are missing; a start moves damaged "
        "parts into a separate file. All readable indications are delivered, and every "
        "destination begins a new sequence context.",
        ("damage", "file", "begin", "end", "lost"),
    ),
    Event(
        "journal-unfinished",
        "INFO",
        "A start cut off the last, incomplete write of the journal, for example after kill -9. "
        "Nothing in it was acknowledged, and no sequence context changes.",
        ("file", "begin", "end"),
    ),
    Event(
        "journal-torn",
        "WARNING",
        "The end of the journal was invalid and was cut off: a crash interrupted the last write, "
        "or it is damaged and may have been acknowledged. Every destination begins a new "
        "sequence context.",
        ("file", "begin", "end", "lost"),
    ),
    Event(
        "filter-kept",
        "ERROR",
        "The edit of a filter is invalid: its last good version stays in force, and all other "
        "changes apply.",
        ("filter", "problem"),
    ),
    Event(
        "journal-clock",
        "WARNING",
        "At a start the clock is a day or more ahead of the journal's last record, or behind it. "
        "If ahead, the difference counts toward lifetimes and the memory of identities; if "
        "behind, the journal continues from its own time.",
        ("seconds",),
    ),
    Event(
        "contexts-not-noted",
        "WARNING",
        "A start has begun new sequence contexts, since the folder of its journal lacked "
        "something, and cannot note it on the disk. The next start begins new ones again.",
    ),
    *STORE_EVENTS,
    Event(
        "log-lines-left-out",
        "WARNING",
        "Repeated requests are invalid, fail or are aborted. Five equal lines a minute about "
        "requests or connections are written; this is the number of suppressed ones. The operator "
        "logs it, too.",
        ("of", "count"),
    ),
    Event(
        "log-records-dropped",
        "WARNING",
        "The reader of the log is too slow: these records, by level, did not fit into its "
        "buffer. The operator logs it, too.",
        ("count", "levels"),
    ),
    Event(
        "spans-off",
        "WARNING",
        "The environment (OTEL_…) asks for spans in a way that is not possible: none are recorded, "
        "or they are sent without a header. Delivery is not affected.",
        ("problem",),
    ),
    Event(
        "spans-dropped",
        "WARNING",
        "Spans are lost: the collector does not take them, or too many came at once. The first is "
        "logged at once, later ones once a minute in one line. Delivery is not affected.",
        ("count", "reason"),
    ),
)
