"""The events of the stores of a journal: see ``events``."""

from pillion_sidecar.telemetry.event import Event

STORE_EVENTS: tuple[Event, ...] = (
    Event(
        "session-claimed",
        "INFO",
        "A start has claimed the journal at its stores, and its folder has the latest copy. "
        "`restored`: the folder lacked something, so sequence contexts begin again. `announced`: "
        "the position of the stores that have answered (stores.consensus), in hexadecimal.",
        ("session", "epoch", "stores", "announced", "restored"),
    ),
    Event(
        "journal-mended",
        "WARNING",
        "A part of the journal's folder was damaged or missing, and a start took it from a store "
        "of the journal. Nothing of it is lost; check the disk, unless a crash has cut off the "
        "last write.",
        ("file", "begin", "end"),
    ),
    Event(
        "journal-cut",
        "WARNING",
        "A start cut bytes from the journal's folder: another deliverer has gone on with the "
        "session from before them, since the stores that it asked did not have them. They were "
        "not stable.",
        ("session", "bytes"),
    ),
    Event(
        "session-released",
        "INFO",
        "A run has ended with nothing pending, and has had the stores of its journal forget its "
        "copies. The text says whether all stores were asked.",
        ("session",),
    ),
    Event(
        "stores-awaited",
        "WARNING",
        "A start waits for these stores of the journal; intake answers 503 until enough have "
        "answered. The text has the reason of each.",
        ("stores",),
    ),
    Event(
        "stores-lack-copy",
        "WARNING",
        "A start goes on from the copy of one store, and these had none: after a change of "
        "`stores`, or if they have lost their disks, what was stable may be missing.",
        ("session", "stores"),
    ),
    Event(
        "stores-missed",
        "WARNING",
        "For 10 s too few stores have taken the journal, so nothing becomes stable; delivery goes "
        "on. Logged once until `stores-back`. The text has the reason of each store.",
        ("stores",),
    ),
    Event("stores-back", "INFO", "Enough stores take the journal again after `stores-missed`."),
    Event(
        "store-unresponsive",
        "WARNING",
        "For 10 s this store of the journal has not taken it; others may be enough. Logged once "
        "until `store-responsive`. The text has the reason.",
        ("store",),
    ),
    Event(
        "store-responsive",
        "INFO",
        "The store takes the journal again after `store-unresponsive`.",
        ("store",),
    ),
    Event(
        "lease-lapsed",
        "WARNING",
        "stores.fencing is Lease, and for leaseSeconds too few stores have answered: no delivery "
        "begins until `lease-held`.",
    ),
    Event(
        "lease-held",
        "INFO",
        "Enough stores have answered: deliveries begin, at a start and after `lease-lapsed`.",
    ),
    Event(
        "segment-forced",
        "WARNING",
        "A segment of the journal was removed while it was in too few stores: `cause` is lifetime "
        "(stores.stabilityLifetimeSeconds), flight-size or volume. What was pending in it was "
        "copied forward.",
        ("segment", "cause"),
    ),
    Event(
        "flight-exceeded",
        "WARNING",
        "More than stores.flightSize is in too few stores, and withoutQuorum is Continue: what is "
        "accepted now is lost with the deliverer's volume. Logged once until `flight-back`.",
        ("bytes",),
    ),
    Event(
        "flight-back",
        "INFO",
        "No more than stores.flightSize is in too few stores again; `count` indications of this "
        "run were accepted beyond it.",
        ("count",),
    ),
)
