"""A held indication some of whose targets are relayed: those go to their gateways at once, the
others wait for its predecessors (S1.5). To whoever follows it, it stays one."""

import msgspec

from pillion_sidecar.indication import DiscardReason, Indication


class Parted:
    """Follows both parts of an indication, and tells its followers of the whole."""

    __slots__ = ("_whole",)

    def __init__(self, whole: Indication) -> None:
        """``whole`` has the followers, and in ``unsettled`` the targets of both parts."""
        self._whole = whole

    def settled(
        self, indication: Indication, destination: str, discarded: DiscardReason | None
    ) -> None:
        """See ``Tracker``."""
        whole = self._whole
        whole.unsettled -= 1
        for tracker in whole.trackers:
            tracker.settled(whole, destination, discarded)


def part(indication: Indication, *, held: int, relayed: int) -> Indication:
    """Return the part of an indication that is relayed, to ``relayed`` targets; the indication
    itself becomes the part that is held, for ``held``.

    The identity stays with what is held: after a restart, which knows only the parts, it has not
    been delivered before that has.
    """
    going = msgspec.structs.replace(indication, digest=None, unsettled=relayed)
    # What is told of the whole needs no body, and must not keep one in memory.
    whole = msgspec.structs.replace(indication, body=b"", unsettled=held + relayed)
    going.trackers = indication.trackers = (Parted(whole),)
    # Acceptance asks for how many targets there are; what counts from now on is the whole.
    indication.unsettled = held + relayed
    return going
