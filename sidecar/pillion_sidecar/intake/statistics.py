"""What intake counts: lines, by the form they came in and what became of them."""

from typing import Protocol

from pillion_sidecar.telemetry.metrics import IntakeKind, IntakeOutcome


class IntakeObserver(Protocol):
    """Counts what publishers sent (telemetry's metrics)."""

    def received(self, kind: IntakeKind, outcome: IntakeOutcome, indications: int = 1) -> None:
        """So many lines of one form have met one outcome."""
