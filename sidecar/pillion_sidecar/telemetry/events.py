"""The events that the deliverer logs, under names that stay: scripts and alerts match on them.

The packages write ``logger.warning("…", extra={"event": "indication-discarded", …})``. A test reads
the sources and fails when one uses a name that is not here; ``docs/reference/events.md`` is made
from this table.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Event:
    """What a log record with this name means."""

    name: str
    level: str
    meaning: str
    #: The fields that it has besides those of every record.
    fields: tuple[str, ...] = ()


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
        "A part of the deliverer failed where nobody could go on; the deliverer stops.",
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
        "A resource of the configuration is in force, but may not do what was meant.",
    ),
    Event(
        "configuration-refused",
        "ERROR",
        "A configuration is wrong; the one before it stays in force, where there was one.",
    ),
    Event(
        "indications-unreached",
        "WARNING",
        "Accepted indications go to no listener: no subscription selects them (unrouted), or those "
        "that do are disabled or have ended (ended). The first is logged at once, then all of a "
        "minute in one line, which names some of their classes. INFO where a "
        "repeatNotificationPolicy alone is the reason (suppressed).",
        ("unrouted", "ended", "suppressed"),
    ),
    Event(
        "lines-held-back",
        "WARNING",
        "Publishers were told to send lines again later: a queue, the journal or the share of a "
        "group is full. The first is logged at once, then all of a minute in one line, by reason.",
        ("lines",),
    ),
    Event(
        "classes-undeclared",
        "WARNING",
        "Accepted indications have classes that are neither in the CIM schema nor declared. Only "
        "filters on CIM_Indication or on that very class select them. The first is logged at once, "
        "then all of a minute in one line, which names some of them and the nearest known class.",
        ("count", "classes"),
    ),
    Event(
        "configuration-awaited",
        "INFO",
        "The folder holds no configuration yet, or one whose files have not all come; the one "
        "before it stays in force, where there was one.",
    ),
    Event(
        "token-keys-loaded",
        "INFO",
        "A gateway verifies its publishers' tokens with these keys from now on.",
        ("issuer", "audience", "keys"),
    ),
    Event(
        "token-keys-refused",
        "WARNING",
        "The file of keys cannot be used; the keys before stay in force. Where there were none, "
        "publishers are answered 503.",
        ("file",),
    ),
    Event(
        "certificate-loaded",
        "INFO",
        "A gateway shows this certificate to the connections that come from now on.",
        ("file", "expires"),
    ),
    Event(
        "certificate-refused",
        "WARNING",
        "A certificate and its key cannot be used; those before stay in force. Where there were "
        "none, connections are refused.",
        ("file",),
    ),
    Event(
        "connections-given-up",
        "WARNING",
        "A listener has no places for all connections: those that sent no good request for longest "
        "are closed (`reason`: unproven-crowded; handshake-crowded during TLS), then idle ones "
        "(idle), and where all are in use, newcomers (full). Told once a minute at most.",
        ("listener", "reason", "handshakes", "unproven", "proven"),
    ),
    Event(
        "connections-not-taken",
        "WARNING",
        "The system refuses a listener another connection, for want of descriptors or memory.",
        ("listener", "reason"),
    ),
    Event(
        "indication-discarded",
        "WARNING",
        "An accepted indication was discarded undelivered. In 10 s at most 10 are told for a "
        "destination and reason, and 200 in all; `discards-counted` counts the others. The list of "
        "discards has all (`pillion journal discards`).",
        (
            "reason",
            "destination",
            "subscription",
            "identifier",
            "source",
            "sequence_context",
            "sequence_number",
            "attempts",
        ),
    ),
    Event(
        "discards-counted",
        "WARNING",
        "More indications were discarded for a destination and reason than were told one by one, "
        "in the last 10 s; without `destination` for many of them together. `run`: `before` where "
        "a run that crashed has discarded them at its end; then some are told twice. With the "
        "reason `shutdown` their `identifiers`, 100 in a line.",
        ("destination", "reason", "count", "run", "identifiers"),
    ),
    Event(
        "discards-not-listed",
        "WARNING",
        "Discards are not in the list: it cannot be written, as on a full disk, or is full. What "
        "was not written is tried again.",
        ("unlisted",),
    ),
    Event(
        "group-terminated",
        "INFO",
        "A message group has ended: by its last member, by time, or by a member out of order. "
        "WARNING where members were missing (told as sequences) or held ones discarded.",
        ("group", "source", "termination", "missing", "held_discarded"),
    ),
    Event(
        "group-ended-at-destination",
        "WARNING",
        "A member of an ordered message group was discarded at a destination. The members behind "
        "it are discarded there as out-of-order; other destinations get them.",
        ("destination", "group", "source", "sequence"),
    ),
    Event(
        "group-gap-forgotten",
        "WARNING",
        "More than 1,024 ordered message groups that go on have ended at a destination. The oldest "
        "of these ends is forgotten, so that later members of that group are delivered.",
        ("destination",),
    ),
    Event(
        "delivery-failing",
        "WARNING",
        "A destination has begun to fail. The attempts that follow are counted, not logged.",
        ("destination", "result", "detail", "status"),
    ),
    Event(
        "destination-held",
        "ERROR",
        "Something is wrong with a destination itself (credentials, certificates, address). Its "
        "indications wait and lose nothing; it is tried again when its configuration changes, and "
        "every 30 seconds. Logged at the begin, and when the cause changes.",
        ("destination", "cause", "detail", "depth"),
    ),
    Event(
        "destination-released",
        "INFO",
        "A destination that was held is no longer: what was wrong with it is mended.",
        ("destination", "cause", "seconds", "depth"),
    ),
    Event(
        "delivery-resumed",
        "INFO",
        "A destination that was failing delivers again.",
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
        "A publisher could not be called back about a request; its receipt can still be asked for.",
        ("receipt", "url", "reason"),
    ),
    Event(
        "callbacks-left-at-shutdown",
        "WARNING",
        "Publishers who were still to be called back when the deliverer stopped.",
        ("count",),
    ),
    Event(
        "handed-over",
        "INFO",
        "What became of a destination's indications when the deliverer stopped: how many its "
        "listener took, how many the gateway that they were handed over to, how many are left.",
        ("destination", "gateway", "delivered", "handed_over", "left", "seconds"),
    ),
    Event(
        "left-at-shutdown",
        "WARNING",
        "What a destination had still to get when the deliverer stopped. It was in memory and is "
        "discarded, or the journal's disk has failed: then the next start delivers what is there.",
        ("destination", "count"),
    ),
    Event(
        "kept-at-shutdown",
        "INFO",
        "What a destination had still to get when the deliverer stopped. It is in the journal, and "
        "is delivered after the next start.",
        ("destination", "count"),
    ),
    Event(
        "recovered",
        "INFO",
        "What a destination had still to get when the run before ended. It is delivered now.",
        ("destination", "count"),
    ),
    Event(
        "lost-at-restart",
        "WARNING",
        "With durability StateOnly: what a destination had still to get when the run before ended, "
        "and will not. Publishers may send it again.",
        ("destination", "count"),
    ),
    Event(
        "journal-unused",
        "WARNING",
        "The folder holds a journal, and durability is Memory: it is left alone, and what is "
        "pending in it is not delivered.",
        ("folder",),
    ),
    Event(
        "journal-full",
        "ERROR",
        "The journal's disk is full. New indications are taken while the reserved room lasts, then "
        "refused with 429 until the disk has room; delivery goes on.",
        ("reserved",),
    ),
    Event("journal-writable", "INFO", "The journal's disk has room again.", ("reserved",)),
    Event(
        "journal-incomplete",
        "ERROR",
        "When the deliverer stopped the journal's disk did not take all that had been accepted. "
        "Nothing that was acknowledged as durable is lost.",
        ("bytes",),
    ),
    Event(
        "journal-damaged",
        "ERROR",
        "Bytes of the journal cannot be read any more, or segments of it are missing; at a start "
        "what is damaged is put aside in a file beside it. All that can be read is delivered, and "
        "every destination begins a new sequence context.",
        ("damage", "file", "begin", "end", "lost"),
    ),
    Event(
        "journal-unfinished",
        "INFO",
        "A start cut off the last write of the journal, which the end of the process broke off, a "
        "kill -9 for example. Nothing of it was acknowledged, and no sequence context changes.",
        ("file", "begin", "end"),
    ),
    Event(
        "journal-torn",
        "WARNING",
        "The end of the journal is not what was written, and was cut off: a crash broke the last "
        "write off, or it is damaged and may have been acknowledged. Every destination begins a "
        "new sequence context.",
        ("file", "begin", "end", "lost"),
    ),
    Event(
        "filter-kept",
        "ERROR",
        "The edit of a filter is wrong: its last good version stays in force, all else of the "
        "resources is taken over.",
        ("filter", "problem"),
    ),
    Event(
        "journal-clock",
        "WARNING",
        "At a start the clock is a day or more ahead of the journal's last record, or behind it. "
        "Ahead, the time between counts for lifetimes and for the memory of identities; behind, "
        "the journal goes on from its own time.",
        ("seconds",),
    ),
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
        "The reader of the log is too slow: so many records, by level, found no room in its "
        "buffer. The operator logs it, too.",
        ("count", "levels"),
    ),
)
