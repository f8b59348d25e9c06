"""An accepted indication, as it travels from intake to the listeners."""

from typing import Protocol

import msgspec

from pillion_sidecar.delivery.reasons import DiscardReason


class Tracker(Protocol):
    """Someone who wants to know what becomes of an indication: a receipt, a publisher's flush,
    the memory of identifiers."""

    def settled(
        self, indication: "Indication", destination: str, discarded: DiscardReason | None
    ) -> None:
        """One target is settled: delivered (``discarded`` None) or discarded for a reason.

        Called once for each target, on the event loop; must not raise and must not block.
        """


class Indication(msgspec.Struct, kw_only=True, eq=False, gc=False):
    """One accepted indication. Not changed after acceptance but for ``unsettled`` and ``rendered``.

    A million of these may be pending: hence a struct that the garbage collector does not walk. It
    is part of no cycle, and must stay so.
    """

    #: The instance in its JSON form: ``{"class": …, "properties": {…}}``, UTF-8, one line.
    body: bytes
    class_name: str
    #: ``Clock.monotonic()`` at acceptance.
    accepted_at: float
    source: str | None = None
    #: IndicationIdentifier, where the publisher gave one.
    identifier: str | None = None
    #: The message group, for ``ordering: Group``.
    group: str | None = None
    #: Content languages (S0.21), as language tags.
    languages: tuple[str, ...] = ()
    trackers: tuple[Tracker, ...] = ()
    #: Targets that are neither delivered nor discarded.
    unsettled: int = 0
    #: What handlers keep after the first rendering, by handler; dropped with the indication.
    rendered: dict[str, object] | None = None
