"""An accepted indication, as it travels from intake to the listeners."""

from typing import Protocol

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


class Indication:
    """One accepted indication. Not changed after acceptance but for ``unsettled`` and ``rendered``.

    A million of these may be pending, hence slots and as little beside the body as can be.
    """

    __slots__ = (
        "accepted_at",
        "body",
        "class_name",
        "group",
        "identifier",
        "languages",
        "rendered",
        "source",
        "trackers",
        "unsettled",
    )

    def __init__(
        self,
        *,
        body: bytes,
        class_name: str,
        accepted_at: float,
        source: str | None = None,
        identifier: str | None = None,
        group: str | None = None,
        languages: tuple[str, ...] = (),
        trackers: tuple[Tracker, ...] = (),
    ) -> None:
        #: The instance in its JSON form: ``{"class": …, "properties": {…}}``, UTF-8, one line.
        self.body = body
        self.class_name = class_name
        #: ``Clock.monotonic()`` at acceptance.
        self.accepted_at = accepted_at
        self.source = source
        #: IndicationIdentifier, where the publisher gave one.
        self.identifier = identifier
        #: The message group, for ``ordering: Group``.
        self.group = group
        #: Content languages (S0.21), as language tags.
        self.languages = languages
        self.trackers = trackers
        #: Targets that are neither delivered nor discarded.
        self.unsettled = 0
        #: What handlers keep after the first rendering, by handler; dropped with the indication.
        self.rendered: dict[str, object] | None = None
