"""Metrics of the stores that a deliverer sends its journal to."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from pillion_sidecar.telemetry import definitions

if TYPE_CHECKING:
    # It imports the files of stores, which other deliverers do not need.
    from pillion_sidecar.stores.members import MemberStatus
    from pillion_sidecar.stores.stability import ForcedBy


class WrittenStores(Protocol):
    @property
    def flight_size(self) -> int: ...

    @property
    def unstable(self) -> int:
        """Bytes of the journal that are in too few stores."""

    @property
    def unstable_seconds(self) -> float:
        """Since the oldest write that is in too few stores; 0 if all is in enough."""

    @property
    def unannounced(self) -> int:
        """Bytes of the journal behind the position that is announced for its stores."""

    @property
    def lease_seconds(self) -> float | None:
        """Seconds for which deliveries may begin; None without a lease."""

    @property
    def consensus(self) -> str: ...

    @property
    def forced_discards(self) -> Mapping[str, int]:
        """Discards of indications that were in too few stores, by reason."""

    @property
    def forced_segments(self) -> Mapping["ForcedBy", int]:
        """Segments that were removed while they were in too few stores, by cause."""

    @property
    def unprotected(self) -> int:
        """Indications that were accepted while more than the flight size was in too few stores."""

    @property
    def stalled(self) -> Mapping[str, str]:
        """The stores that are missed, and why, while nothing becomes stable."""

    @property
    def is_changed(self) -> bool:
        """Whether the service wants other stores since the start."""

    @property
    def requests(self) -> Mapping[tuple[str, str], int]:
        """Answered requests, by verb and result."""

    def statuses(self) -> "list[MemberStatus]": ...


def store_samples(stores: WrittenStores) -> Iterator[str]:
    statuses, stalled = stores.statuses(), stores.stalled
    yield definitions.STORE_UNSTABLE_BYTES.one(stores.unstable)
    yield definitions.STORE_FLIGHT_SIZE.one(stores.flight_size)
    yield definitions.STORE_UNSTABLE_SECONDS.one(stores.unstable_seconds)
    yield definitions.STORE_UNANNOUNCED_BYTES.one(stores.unannounced)
    yield definitions.STORE_FORCED.each(stores.forced_discards)
    yield definitions.STORE_FORCED_SEGMENTS.each(stores.forced_segments)
    yield definitions.STORE_UNPROTECTED.one(stores.unprotected)
    if (lease := stores.lease_seconds) is not None:
        yield definitions.STORE_LEASE_SECONDS.one(lease)
    yield definitions.STORE_UP.each({one.store: int(one.is_up) for one in statuses})
    yield definitions.STORE_MISSED.each({one.store: int(one.store in stalled) for one in statuses})
    yield definitions.STORE_BEHIND_BYTES.each({one.store: one.behind for one in statuses})
    yield definitions.STORE_REQUESTS.each(stores.requests)
