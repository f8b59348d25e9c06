"""What the delivery service is given, and what it refuses."""

from typing import Protocol


class AttemptObserver(Protocol):
    """Measures attempts (telemetry's histograms)."""

    def attempted(self, protocol: str, seconds: float) -> None: ...

    def delivered(self, protocol: str, end_to_end_seconds: float) -> None: ...


class TooManyDestinations(Exception):
    """The configuration has more destinations than the deliverer may keep queues for."""

    def __init__(self, count: int, *, maximum: int) -> None:
        super().__init__(
            f"the configuration has {count} listener destinations, and this deliverer keeps at most"
            f" {maximum} destination queues: remove some, or raise --max-destinations"
        )
