"""An accepted indication, as it travels from intake to the listeners."""

from enum import StrEnum
from typing import Protocol

import msgspec

from pillion_sidecar.delivery.reasons import DiscardReason


class Unreached(StrEnum):
    """Why an indication that was accepted goes to no listener at all."""

    #: No subscription selects it.
    UNROUTED = "unrouted"
    #: The subscriptions that select it are disabled or have ended.
    ENDED = "ended"
    #: A repeatNotificationPolicy suppresses or delays it.
    SUPPRESSED = "suppressed"


class Tracker(Protocol):
    """Someone who wants to know what becomes of an indication: a receipt, a publisher's flush,
    the memory of identifiers."""

    def settled(
        self, indication: "Indication", destination: str, discarded: DiscardReason | None
    ) -> None:
        """One target is settled: delivered (``discarded`` None) or discarded for a reason.

        Called once for each target, on the event loop; must not raise and must not block.
        """


class GroupMember(msgspec.Struct, frozen=True, gc=False, array_like=True):
    """The place of an indication in its message group (S1), as its publisher gave it."""

    #: The group sequence, from 0.
    sequence: int
    #: No greater sequence follows (the draft's ``status="end"``).
    last: bool = False
    #: Never deliver past a gap (S1.5).
    ordered: bool = False
    #: ``groupExpires`` in seconds since the epoch: GroupExpiryTime.
    expires: float | None = None
    #: ``groupMaxIdleSeconds``: GroupMaxIdleTime.
    max_idle_seconds: float | None = None


class Relayed(msgspec.Struct, frozen=True, gc=False):
    """How an indication came to this gateway that a sidecar had accepted."""

    #: ``Clock.monotonic()`` when it came.
    at: float
    #: The end of the memory of its identity, in seconds since the epoch: neither before its
    #: ``expires``, nor before the window is over since it came, for it may be sent again.
    remembered_until: float


class Indication(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One accepted indication. Not changed after acceptance but for ``unsettled``, ``rendered`` and
    what the journal notes.

    A million of these may be pending: hence a struct that the garbage collector does not walk. It
    is part of no cycle, and must stay so.
    """

    #: The instance in its JSON form: ``{"class": …, "properties": {…}}``, UTF-8, one line.
    body: bytes
    class_name: str
    #: ``Clock.monotonic()`` at acceptance; of a relayed one at that by its sidecar.
    accepted_at: float
    source: str | None = None
    #: IndicationIdentifier, where the publisher gave one.
    identifier: str | None = None
    #: The message group, for ``ordering: Group``.
    group: str | None = None
    #: Its place in that group (S1); None where the publisher gave no ``sequence``.
    member: GroupMember | None = None
    #: Tells the group from all others of this journal, of its name too; 0 for what is no member,
    #: and in journals of the first release.
    group_run: int = 0
    #: ``expires`` in seconds since the epoch; gates acceptance, and bounds the memory of it (S1.3).
    expires: float | None = None
    #: The digest of its identity; None without one.
    digest: bytes | None = None
    #: Content languages (S0.21), as language tags.
    languages: tuple[str, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    #: Targets that are neither delivered nor discarded.
    unsettled: int = 0
    #: What handlers keep after the first rendering, by handler; dropped with the indication.
    rendered: dict[str, object] | None = None
    #: The journal sequence: greater than that of everything accepted before. 0 before it is known.
    id: int = 0
    #: Where the journal has it, and how many bytes it takes there; -1 and 0 where it does not.
    position: int = -1
    size: int = 0
    #: None where its publisher gave it to this deliverer.
    relayed: Relayed | None = None
