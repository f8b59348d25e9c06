"""The state of the deliverer itself, and where its destinations lead."""

import heapq
import os
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pillion_sidecar.config import rendered
from pillion_sidecar.config.resources import Configuration
from pillion_sidecar.config.schema.destination import ListenerDestination
from pillion_sidecar.handlers.errors import InvalidDestinationError
from pillion_sidecar.handlers.transport.target import parse_network_target, parse_target
from pillion_sidecar.history.recorder import History
from pillion_sidecar.protocols import PROTOCOLS, Protocol, Scheme
from pillion_sidecar.wire.diagnosis import (
    MOST_BYTES,
    DelivererStatus,
    Endpoint,
    EndpointPage,
    HistoryStatus,
    JournalStatus,
    StoresStatus,
    StoreStatus,
)

if TYPE_CHECKING:
    from pillion_sidecar.journal.disk import JournalStatistics
    from pillion_sidecar.telemetry.stores import WrittenStores

#: Default and maximum endpoints in one answer.
DEFAULT_ENDPOINTS = 500
MAXIMUM_ENDPOINTS = 1000
#: Sentences of one answer.
MOST_WARNINGS = 100
SECRET_URL = "its URL is in a Secret"


def is_rendered(resources: Path) -> bool:
    """Whether the operator has written the folder. Blocks."""
    try:
        return any(map(rendered.is_part, os.listdir(resources)))
    except OSError:
        return False


def journal_status(folder: Path, statistics: "JournalStatistics") -> JournalStatus:
    """Blocks."""
    try:
        volume = os.statvfs(folder)
    except OSError:
        volume = None
    return JournalStatus(
        folder=str(folder.absolute()),
        total_bytes=statistics.total_bytes + statistics.identity_bytes,
        pending_bytes=statistics.live_bytes,
        maximum_pending_bytes=statistics.live_bound,
        free_bytes=None if volume is None else _bytes(volume.f_bavail, volume),
        volume_bytes=None if volume is None else _bytes(volume.f_blocks, volume),
        is_full=statistics.is_full,
        damaged=statistics.damaged,
    )


def _bytes(blocks: int, volume: os.statvfs_result) -> int:
    # A file system without a limit may tell any number.
    return min(blocks * volume.f_frsize, MOST_BYTES)


def deliverer_status(
    *,
    configuration: Configuration | None,
    problem: Exception | None,
    resources: Path,
    journal: "tuple[Path, JournalStatistics] | None",
    history: HistoryStatus,
    durability: str,
    pending: int,
    at: float,
    stores: StoresStatus | None = None,
    starting: str | None = None,
) -> DelivererStatus:
    """``at`` is in seconds since the epoch. Blocks."""
    return DelivererStatus(
        version=version("pillion"),
        time=datetime.fromtimestamp(at, UTC),
        revision=None if configuration is None else configuration.revision,
        configuration_problem=None if problem is None else str(problem),
        warnings=[] if configuration is None else [*configuration.warnings[:MOST_WARNINGS]],
        resources=str(resources.absolute()),
        is_rendered=is_rendered(resources),
        durability=durability,
        journal=None if journal is None else journal_status(*journal),
        history=history,
        pending=pending,
        stores=stores,
        starting=starting,
    )


def stores_status(stores: "WrittenStores | None") -> StoresStatus | None:
    if stores is None:
        return None
    stalled = stores.stalled
    return StoresStatus(
        unstable_bytes=stores.unstable,
        flight_size_bytes=stores.flight_size,
        unstable_seconds=stores.unstable_seconds,
        consensus=stores.consensus,
        lease_seconds=stores.lease_seconds,
        unannounced_bytes=stores.unannounced,
        forced_discards=sum(stores.forced_discards.values()),
        forced_segments=sum(stores.forced_segments.values()),
        unprotected=stores.unprotected,
        is_changed=stores.is_changed,
        members=[
            StoreStatus(
                name=one.store,
                is_up=one.is_up,
                is_missed=one.store in stalled,
                behind_bytes=one.behind,
                problem=one.problem,
            )
            for one in stores.statuses()
        ],
    )


def history_status(history: History) -> HistoryStatus:
    return HistoryStatus(
        is_on_disk=history.is_on_disk,
        last=history.settled,
        unkept_discards=history.unkept_discards,
        is_behind=history.is_behind,
        problem=history.trouble,
        waiting=history.waiting,
        given_way=history.given_way,
    )


def endpoint_page(
    destinations: Mapping[str, ListenerDestination], *, after: str, limit: int
) -> EndpointPage:
    wanted = [name for name in destinations if name > after]
    names = heapq.nsmallest(limit, wanted)
    return EndpointPage(
        endpoints=[endpoint_of(destinations[name]) for name in names],
        next=names[-1] if len(names) < len(wanted) else None,
    )


def endpoint_of(destination: ListenerDestination) -> Endpoint:
    name, protocol = destination.name, PROTOCOLS.get(destination.protocol)
    if destination.relay_to is not None:
        note = f"it is relayed to gateway {destination.relay_to}, which connects to the listener"
        return _without(destination, note)
    if destination.url_is_hidden:
        return _without(destination, SECRET_URL)
    if protocol is None:
        return _without(destination, "its protocol is not known")
    scheme = _scheme(destination.destination, protocol)
    if scheme is not None and scheme.port is None:
        return _without(destination, "it is no network address")
    try:
        target = parse_network_target(destination.destination, protocol)
        proxy = None if destination.proxy is None else parse_target(destination.proxy.url)
    except InvalidDestinationError:
        return _without(destination, "its URL is not valid")
    assert scheme is not None
    tls, secure = destination.tls, "starttls" if scheme.starts_tls else "tls"
    return Endpoint(
        destination=name,
        protocol=protocol.name,
        host=target.host,
        port=target.port,
        tls=secure if target.tls else "none",
        datagrams=scheme.is_datagram,
        server_name=tls.server_name,
        verify=tls.verify,
        allow_common_name=tls.allow_common_name,
        ca=None if tls.ca_certificates is None else tls.ca_certificates.decode("ascii", "replace"),
        client_certificate=tls.client_certificate is not None,
        proxy=None if proxy is None else f"{proxy.host}:{proxy.port}",
    )


def _scheme(url: str, protocol: Protocol) -> Scheme | None:
    name = urlsplit(url).scheme
    return next((one for one in protocol.schemes if one.name == name), None)


def _without(destination: ListenerDestination, note: str) -> Endpoint:
    return Endpoint(
        destination=destination.name,
        protocol=destination.protocol,
        relay_to=destination.relay_to,
        note=note,
    )
