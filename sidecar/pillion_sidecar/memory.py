"""The memory of the process: the bytes of each bounded part, and the connections that they
leave."""

from pathlib import Path

MIB = 1 << 20

#: Bytes of an idle deliverer.
BASE_BYTES = 64 * MIB
#: Bytes for decoding one request; one is decoded at a time.
REQUEST_BYTES = 48 * MIB
#: Bytes of a plain connection with the longest head, raw and parsed.
PLAIN_CONNECTION_BYTES = 80 * 1024
#: Bytes of a TLS connection: asyncio's buffer alone is 256 KiB.
TLS_CONNECTION_BYTES = 300_000
#: Bytes of a request that waits for listeners, beside its connection.
WAITING_BYTES = 10 * 1024

_LIMITS = (
    Path("/sys/fs/cgroup/memory.max"),
    Path("/sys/fs/cgroup/memory/memory.limit_in_bytes"),
)


def container_limit(files: tuple[Path, ...] = _LIMITS) -> int | None:
    """Return the container's memory limit in bytes."""
    for file in files:
        try:
            return int(file.read_text())
        except (OSError, ValueError):
            continue
    return None


def tls_connections(limit: int | None, *, bodies: int, plain: int, waiting: int, most: int) -> int:
    """Return how many TLS connections fit in the memory limit beside the other bounded parts;
    ``most`` without a limit.

    ``bodies``: bytes of all bodies being read; ``plain``, ``waiting``: numbers of plain
    connections, and of requests that wait for listeners.
    """
    if limit is None:
        return most
    others = plain * PLAIN_CONNECTION_BYTES + waiting * WAITING_BYTES
    left = limit - BASE_BYTES - REQUEST_BYTES - bodies - others
    return max(1, min(most, left // TLS_CONNECTION_BYTES))
