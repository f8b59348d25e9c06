"""Metrics of the copies of journals that a gateway keeps."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

from pillion_sidecar.telemetry import definitions

if TYPE_CHECKING:
    # It imports the files of stores, which a sidecar does not need.
    from pillion_sidecar.stores.namespaces import NamespaceStores

#: Namespaces with samples of their own; the rest share ``other``.
MOST_NAMESPACES = 100
OTHER = "other"


def copies_samples(stores: "NamespaceStores") -> Iterator[str]:
    limits, usage = stores.limits, stores.usage
    yield definitions.COPY_REQUESTS.each(stores.requests)
    yield definitions.COPY_BYTES.each(bounded({name: one.bytes for name, one in usage.items()}))
    yield definitions.COPY_BYTES_LIMIT.one(limits.maximum_bytes)
    sessions = {name: one.sessions for name, one in usage.items()}
    yield definitions.COPY_SESSIONS.each(bounded(sessions))
    yield definitions.COPY_SESSIONS_LIMIT.one(limits.maximum_sessions)
    dropped = {**dict.fromkeys(usage, 0), **stores.dropped}
    yield definitions.COPIES_DROPPED.each(bounded(dropped))


def bounded(counts: Mapping[str, int]) -> dict[str, int]:
    """Return the counts of the first namespaces by name, and the sum of the others."""
    names = sorted(counts)
    found = Counter({name: counts[name] for name in names[:MOST_NAMESPACES]})
    if rest := names[MOST_NAMESPACES:]:
        found[OTHER] += sum(counts[name] for name in rest)
    return dict(found)
