"""What intake works with."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from pillion_sidecar.clock import Clock
from pillion_sidecar.config.schema.service import Acknowledgement, Durability
from pillion_sidecar.history.taking_over import TakenHistories
from pillion_sidecar.indication import Queues, Routes
from pillion_sidecar.intake.notices import HeldBack, UndeclaredClasses, UnreachedIndications
from pillion_sidecar.intake.pacing import PublisherPaces
from pillion_sidecar.intake.redelivery import Redeliveries
from pillion_sidecar.reliability.duplicates import DuplicateMemory
from pillion_sidecar.reliability.message_groups import Groups
from pillion_sidecar.telemetry.metrics import IntakeOutcome

if TYPE_CHECKING:
    # It imports the files of stores, which a sidecar does not need.
    from pillion_sidecar.stores.namespaces import NamespaceStores

    # It imports OpenTelemetry, which is an extra.
    from pillion_sidecar.telemetry.spans import Spans


class IntakeObserver(Protocol):
    """Counts what publishers send (telemetry's metrics)."""

    def received(self, kind: str, outcome: IntakeOutcome, indications: int = 1) -> None: ...


@dataclass(slots=True)
class IntakeContext:
    """What intake works with. ``routes`` and ``acknowledgement`` change with the configuration,
    ``closing`` at the end."""

    clock: Clock
    memory: DuplicateMemory
    routes: Routes
    queues: Queues
    groups: Groups
    unreached: UnreachedIndications
    held_back: HeldBack
    undeclared: UndeclaredClasses
    acknowledgement: Acknowledgement = Acknowledgement.ACCEPTED
    #: What the journal provides: ``durable`` needs Disk.
    durability: Durability = Durability.MEMORY
    #: Allowed prefixes of callback URLs (S1.9).
    callbacks: tuple[str, ...] = ()
    #: Why nothing more is accepted, including bodies being read.
    closing: str | None = None
    #: Keeps publishers to ``publisherRateLimit``; None: no limit.
    paces: PublisherPaces | None = None
    #: For requests with ``redeliver=true``.
    redeliveries: Redeliveries | None = None
    #: Takes the histories of ending sidecars over.
    histories: TakenHistories | None = None
    #: Lines that were refused for it.
    beyond_limit: int = 0
    #: Records requests; None: nobody asks for spans.
    spans: "Spans | None" = None
    #: Keep copies of journals; None: nobody may ask for it.
    stores: "NamespaceStores | None" = None
    #: Calls back once all that was taken before is in enough stores; None: there are no stores.
    stable: Callable[[Callable[[], None]], None] | None = None
