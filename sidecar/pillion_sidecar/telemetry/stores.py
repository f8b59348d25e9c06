"""Metrics of the stores that a deliverer sends its journal to."""

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Protocol

from pillion_sidecar.telemetry import definitions

if TYPE_CHECKING:
    # It imports the files of stores, which other deliverers do not need.
    from pillion_sidecar.stores.shipping import MemberStatus


class WrittenStores(Protocol):
    @property
    def flight_size(self) -> int: ...

    @property
    def unstable(self) -> int:
        """Bytes of the journal that are in too few stores."""

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
    yield definitions.STORE_UP.each({one.store: int(one.is_up) for one in statuses})
    yield definitions.STORE_MISSED.each({one.store: int(one.store in stalled) for one in statuses})
    yield definitions.STORE_BEHIND_BYTES.each({one.store: one.behind for one in statuses})
    yield definitions.STORE_REQUESTS.each(stores.requests)
